"""The book itself as the embedded renderer makes it, for tests that read its pages."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / ".weave"
BESIDE = STORE / "embedded"


def woven_book() -> Path:
    """The folder of the pages and the PDF, woven now if it is not up to date.

    Where Quarto is installed, `_book` is Quarto's, so the pages are made beside it.
    Fails the test with what was said when the book cannot be woven.
    """
    from loom import quarto

    if quarto.find():
        _run("-m", "tests.loom.woven_book")
        return BESIDE
    _run("weave.py")
    return ROOT / "_book"


def quarto_book() -> Path:
    """The same book as Quarto makes it; skips the test where there is no Quarto."""
    from loom import quarto

    if not quarto.find():
        pytest.skip("no working quarto on the PATH: the renderers are not compared")
    _run("weave.py", "--renderer", "quarto")
    return ROOT / "_book"


def _run(*command: str) -> None:
    """Run Python in the root; test processes wait instead of weaving twice."""
    STORE.mkdir(exist_ok=True)
    with (STORE / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=_environment(),
            capture_output=True,
            text=True,
        )
    if done.returncode:
        pytest.fail(f"the book cannot be woven:\n{done.stdout}{done.stderr}")


def _environment() -> dict[str, str]:
    """The environment `make book` has, so that what it executed is used again.

    Our conftest.py has selected the interpreter where there is no GPU, which is what
    the chapters do by themselves.
    """
    from loom.keys import gpu_name

    env = dict(os.environ)
    if env.get("TRITON_INTERPRET") == "1" and not gpu_name():
        del env["TRITON_INTERPRET"]
    return env


def _weave_beside() -> None:
    import tangle
    from loom import execute, render

    book = tangle.read_book(ROOT)
    render.build(execute.weave_chapters(book), book, BESIDE)


if __name__ == "__main__":
    _weave_beside()

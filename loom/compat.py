"""``make compat``: the gate and the interpreter's tests under other versions of Triton.

Each version has an environment in ``.compat/``: its own Triton and, where it needs
one, its own NumPy; everything else is that of ``.venv``, whose packages come after.
A test file that has passed is not run again until it, the workshop's or the package's
code, or a version changes.  Comments and prose do not count.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from loom.keys import Sources, code_digest, digest

ROOT = Path(__file__).resolve().parent.parent
# What each environment has of its own.  The interpreter of Triton 3.6 fails with NumPy
# 2.4 and later at a range() over a run-time number.
VERSIONS = {
    "3.6": ("triton==3.6.0", "numpy>=2,<2.4"),
    "3.9": ("triton>=3.9,<3.10",),
}
WORKSHOP = ("trace", "aot", "gate")
ASK = (
    "from importlib.metadata import version as v; import json, sys; print(json.dumps({"
)
ASK += "n: v(n) for n in ('triton', 'torch', 'numpy')} | {'python': sys.version}))"


@dataclass(frozen=True)
class Result:
    """What a test file gave: its digest, and pytest's counts; failed if not passed."""

    digest: str
    passed: int
    skipped: int
    seconds: float
    ok: bool = True
    said: str = ""


class Environment:
    """One version's Python environment and the results kept in it."""

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self.name = name
        self.folder = root / ".compat" / name
        self.python = self.folder / "bin" / "python"
        self.versions: dict[str, str] = {}
        self._kept = self.folder / "passed.json"

    def prepare(self, requirements: Sequence[str]) -> None:
        """Make the environment, unless a finished one of these requirements is there.

        Raises RuntimeError with pip's words if it cannot be made.
        """
        wanted = "\n".join([*requirements, sys.version, sys.prefix])
        ready = self.folder / "ready"
        if not ready.is_file() or ready.read_text("utf-8") != wanted:
            print(
                f"compat {self.name}: installing {' '.join(requirements)}", flush=True
            )
            shutil.rmtree(self.folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", "--without-pip", str(self.folder)])
            pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install"]
            quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
            _run([*pip, *quiet, *requirements])
            self._share()
            ready.write_text(wanted, encoding="utf-8")
        self.versions = json.loads(_run([str(self.python), "-c", ASK]))

    def _share(self) -> None:
        """Let packages that are not here come from the environment of this process."""
        (own,) = self.folder.glob("lib/python*/site-packages")
        others = [sysconfig.get_paths()["purelib"], str(ROOT)]
        (own / "shared.pth").write_text("\n".join(others) + "\n", encoding="utf-8")

    def passed(self) -> dict[str, Result]:
        """What passed before, by file; nothing if that cannot be read."""
        try:
            kept = json.loads(self._kept.read_text("utf-8"))
            return {name: Result(**result) for name, result in kept.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def keep(self, results: dict[str, Result]) -> None:
        """Keep what passed, for the next time."""
        good = {name: asdict(r) for name, r in results.items() if r.ok}
        spare = self._kept.with_suffix(".new")
        spare.write_text(json.dumps(good, indent=1) + "\n", encoding="utf-8")
        os.replace(spare, self._kept)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = (done.stderr or done.stdout).strip()
        raise RuntimeError(f"{' '.join(command[1:4])} failed:\n{words}")
    return done.stdout


def test_files(root: Path = ROOT) -> list[str]:
    """The tests of the package's modules, their gates, and the workshop's."""
    modules = sorted(path.stem.strip("_") for path in root.glob("generated/*.py"))
    named = [f"tests/test_{module}.py" for module in modules]
    named += [f"tests/test_gate_{module}.py" for module in modules]
    named += [f"tests/loom/test_{part}.py" for part in WORKSHOP]
    return [name for name in named if (root / name).is_file()]


def key_of(name: str, versions: dict[str, str], root: Path = ROOT) -> str:
    """A digest of a test file, the code that it reaches, and versions."""
    sources = Sources(root)
    reached = sorted(sources.closure({name, "conftest.py"}))
    files = [file for file in map(sources.file, reached) if file]
    code = [
        (file.rel, code_digest(file.code) if file.rel.endswith(".py") else file.text)
        for file in files
    ]
    return digest(*code, *sorted(versions.items()))


def run_file(python: Path, name: str, key: str, root: Path = ROOT) -> Result:
    """Run one test file."""
    start = time.perf_counter()
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", name],
        cwd=root,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    ok = done.returncode == 0
    last = (done.stdout.strip().splitlines() or [""])[-1]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", last)}
    said = "" if ok else done.stdout + done.stderr
    passed, skipped = counts.get("passed", 0), counts.get("skipped", 0)
    return Result(key, passed, skipped, seconds, ok, said)


def check(environment: Environment, files: Sequence[str], jobs: int) -> bool:
    """Run what has not passed before, say how it went, and return if all passed."""
    start = time.perf_counter()
    keys = {name: key_of(name, environment.versions) for name in files}
    before = environment.passed()
    results = {n: r for n, r in before.items() if keys.get(n) == r.digest}
    again = len(results)

    lock = threading.Lock()

    def run(name: str) -> None:
        result = run_file(environment.python, name, keys[name])
        with lock:
            results[name] = result
            environment.keep(results)
        said = f"{result.passed} passed" if result.ok else "FAILED"
        print(
            f"compat {environment.name}: {name}: {said}, {result.seconds:.0f} s",
            flush=True,
        )

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(run, [name for name in files if name not in results]))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    failed = [name for name in files if not results[name].ok]
    for name in failed:
        print(f"\n--- Triton {environment.name}: {name}\n{results[name].said}")
    print(
        summary(environment, [results[n] for n in files], again, failed)
        + f"; {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    return not failed


def summary(
    environment: Environment, results: Sequence[Result], again: int, failed: list[str]
) -> str:
    """One line for a version."""
    versions = environment.versions
    passed = sum(result.passed for result in results)
    skipped = sum(result.skipped for result in results)
    state = f"FAILED in {', '.join(failed)}" if failed else "green"
    return (
        f"compat {environment.name}: {state}: Triton {versions['triton']}, NumPy"
        f" {versions['numpy']}, torch {versions['torch']}: {len(results)} files,"
        f" {passed} tests passed, {skipped} skipped; {again} files had passed before"
    )


def main(asked: Sequence[str] = ()) -> int:
    """Check the versions asked for, or all; 1 if a test failed."""
    unknown = [name for name in asked if name not in VERSIONS]
    if unknown:
        print(
            f"compat: got {', '.join(unknown)}; accepted are {', '.join(VERSIONS)}",
            file=sys.stderr,
        )
        return 2
    good = True
    try:
        for name in asked or VERSIONS:
            environment = Environment(name)
            environment.prepare(VERSIONS[name])
            good &= check(environment, test_files(), os.cpu_count() or 1)
    except RuntimeError as error:
        print(f"compat: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("compat: interrupted; what passed is kept", file=sys.stderr)
        return 130
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

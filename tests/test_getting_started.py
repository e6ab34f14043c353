"""Getting Started: what the page prints is what runs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tangle

ROOT = Path(tangle.__file__).resolve().parent
PAGE = "book/getting-started.qmd"


@pytest.fixture(scope="module")
def page():
    return tangle.read_chapter(ROOT / PAGE, PAGE)


@pytest.fixture(scope="module")
def script(page, tmp_path_factory):
    """scale.py, as the page prints it."""
    (code,) = [cell.code for cell in page.cells if cell.label == "scale-py"]
    path = tmp_path_factory.mktemp("reader") / "scale.py"
    path.write_text(code + "\n")
    return path


def python(folder, *arguments):
    """Run Python in `folder` as a reader without a GPU does."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_script_runs_as_printed(script):
    done = python(script.parent, script.name)
    assert (done.returncode, done.stderr) == (0, "")
    numbers = [float(number) for number in re.findall(r"\d+\.", done.stdout)]
    assert numbers == [2.0 * i for i in range(10)]


def test_the_script_at_its_edges_and_in_its_failures(script):
    code = """
import re, torch
from scale import scale, scale_kernel

for n in (0, 1, 3, 4, 5, 16, 17):
    x = torch.arange(float(n)) - 3
    for block in (1, 4, 16):
        assert torch.equal(scale(x, -0.5, BLOCK=block), -0.5 * x), (n, block)

def message(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

x = torch.arange(10.0)
print(message(lambda: scale(torch.ones(4, 3).T, 2.0)))
print(message(lambda: scale(x, 2.0, BLOCK=10)))
print(message(lambda: scale_kernel(x, x.clone(), 2.0, 10, BLOCK=4)))
"""
    done = python(script.parent, "-c", code)
    assert done.returncode == 0, done.stderr
    strided, power, grid = done.stdout.splitlines()[-3:]
    assert strided == "ValueError: scale: x must be contiguous"
    assert "arange's range must be a power of 2" in power
    assert grid.startswith("InterpreterError: AttributeError(")


def test_the_table_worked_by_hand(page):
    rows = re.findall(
        r"^\| (\d) \| ([\d ]+) \| ([a-z ]+) \| ([\d ]+) \|$", page.text, re.M
    )
    assert len(rows) == -(-10 // 4)
    for program, (pid, offs, below, touched) in enumerate(rows):
        indices = [program * 4 + lane for lane in range(4)]
        assert int(pid) == program
        assert list(map(int, offs.split())) == indices
        assert below.split() == ["yes" if i < 10 else "no" for i in indices]
        assert list(map(int, touched.split())) == [i for i in indices if i < 10]


def commands(code):
    """The literal commands that a cell runs."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "run",
            "output",
        ):
            if isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


def test_what_runs_is_what_the_reader_is_told_to_type(page):
    """Each command is printed right above the cell that runs it, word for word."""
    lines = page.text.split("\n")
    shown = re.findall(r"^```bash\n(.*?)\n```$", page.text, re.M | re.S)
    ran = []
    for cell in page.cells:
        for command in commands(cell.code):
            above = "\n".join(lines[: cell.first - 1]).rstrip()
            assert above.endswith(f"```bash\n{command}\n```"), cell.label
            ran.append(command)
    install = "python3 -m venv .venv\nsource .venv/bin/activate\npip install -e ."
    assert shown == [install, *ran]  # installing is all that is told and not run
    assert len(ran) > 10

"""Getting Started: what the page prints is what runs."""

from __future__ import annotations

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


def test_every_command_of_the_page_is_shown_by_running_it(page):
    """A bash block in prose is only for what cannot be run while the book is made."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page.text, re.M | re.S)
    typed = {line for block in blocks for line in block.splitlines()}
    assert typed == {
        "python3 -m venv .venv",
        "source .venv/bin/activate",
        "pip install -e .",
        'python -c "import torch; print(torch.cuda.get_device_name())"',
        "python scale.py",
    }

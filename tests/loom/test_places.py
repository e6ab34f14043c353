"""The pytest plugin: the chapter's line beside the module's, in every style."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CHAPTER = """\
# One {#sec-one}

```{python}
#| label: deep
#| tangle: true
def deep(x):
    return 1 / x


def shallow(x):
    return sorted([x, 1], key=deep)
```
"""
TESTS = """\
import pytest

from generated.one import deep, shallow


def test_fails_in_the_module():
    deep(0)


def test_chained():
    try:
        deep(0)
    except ZeroDivisionError as error:
        raise ValueError("wrapped") from error


def test_cell_frame():
    cell = "\\n" * 4 + "def f():\\n    raise KeyError(1)"
    code = compile(cell, "generated/one.py", "exec")
    names = {}
    exec(code, names)
    names["f"]()


def test_passes():
    assert deep(2) == 0.5


@pytest.fixture
def broken():
    return shallow(0)


def test_set_up(broken):
    pass
"""


@pytest.fixture(scope="module")
def project(make_book):
    book = make_book()
    book.write("book/01-one.qmd", CHAPTER)
    book.read()
    book.write("conftest.py", (ROOT / "conftest.py").read_text())
    book.write("test_one.py", TESTS)
    book.write("bad/test_import.py", "import generated.two\n")
    book.write(
        "book/02-two.qmd",
        "# Two {#sec-two}\n\n"
        "```{python}\n#| label: a\n#| tangle: true\nx = 1 / 0\n```\n",
    )
    book.read()
    return book.root


def run(root, *args):
    env = os.environ | {
        "PYTHONPATH": f"{root}:{ROOT}",
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    env.pop("PYTEST_ADDOPTS", None)
    env.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", root]
        + ["-c", os.devnull, *args],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
    )
    return done.stdout


PLACE = "[book/01-one.qmd:7]"


@pytest.mark.parametrize("style", ["auto", "long", "short", "native"])
def test_every_style_names_the_chapter(project, style):
    said = run(project, "test_one.py", f"--tb={style}", "-k", "module or chained")
    frames = [
        line for line in said.split("\n") if re.search(r"generated/one\.py\D+7\b", line)
    ]
    assert len(frames) >= 2, said
    assert all(PLACE in line for line in frames), said
    assert "2 failed" in said


def test_the_line_style_and_the_summary_name_it_too(project):
    said = run(project, "test_one.py", "--tb=line", "-k", "module")
    line = re.search(r"^.*generated/one.py:7: .*$", said, re.M)[0]
    assert line.endswith(PLACE)
    summary = re.search(r"^FAILED .*$", said, re.M)[0]
    assert "division by zero" in summary and PLACE in summary


def test_set_up_and_cells_and_passing_tests(project):
    said = run(project, "test_one.py", "-k", "set_up or cell or passes")
    assert PLACE in said and "[book/01-one.qmd:11]" in said
    assert "[book/01-one.qmd:6]" in said, "a frame of code that a cell defined"
    assert "1 passed" in said


@pytest.mark.parametrize("style", ["short", "native"])
def test_a_module_that_fails_at_import(project, style):
    said = run(project, "bad/test_import.py", f"--tb={style}")
    assert "[book/02-two.qmd:6]" in said, said


def test_with_xdist(project):
    said = run(project, "test_one.py", "-p", "xdist", "-n", "1", "-k", "module")
    assert PLACE in said and "1 failed" in said

"""The mechanism of the exercises, tried on a small book, and its use in ours."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tangle

ROOT = Path(__file__).resolve().parents[2]

CHAPTER = """\
# A chapter {#sec-one}

```{python}
#| label: code
#| tangle: true
def ceil_div(n, block):
    return -(-n // block)
```

```{python}
#| label: demonstration
import math
assert False, "a demonstration is not run for an exercise"
```

```{python}
#| label: solution-lanes-idle
#| code-fold: true
def lanes_idle(n, block):
    return ceil_div(n, block) * block - math.floor(n)
```
"""

TEST = """\
def test_lanes_idle(attempt):
    assert attempt.lanes_idle(10, 4) == 2
"""


@pytest.fixture
def small_book(tmp_path: Path) -> Path:
    """A book of one chapter with one exercise."""
    for folder in ("book", "exercises", "generated"):
        (tmp_path / folder).mkdir()
    (tmp_path / "_quarto.yml").write_text(
        "book:\n  chapters:\n    - index.qmd\n    - book/01-one.qmd\n"
    )
    (tmp_path / "index.qmd").write_text(
        "# T\n\n```{python}\n#| label: a\n#| tangle: true\nX = 1\n```\n"
    )
    (tmp_path / "book/01-one.qmd").write_text(CHAPTER)
    shutil.copy(ROOT / "exercises/conftest.py", tmp_path / "exercises")
    (tmp_path / "exercises/test_one_lanes_idle.py").write_text(TEST)
    tangle.tangle(tmp_path)
    return tmp_path


def run(root: Path, *arguments: str) -> tuple[int, str]:
    """Pytest's exit status and output in the small book."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + ["--import-mode=importlib", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_without_an_answer_it_says_what_to_write(small_book: Path) -> None:
    status, output = run(small_book, "exercises/test_one_lanes_idle.py")
    assert status == 1
    assert (
        "write exercises/lanes_idle.py (the exercise is in book/01-one.qmd)" in output
    )
    assert "skipped" not in output


def test_the_readers_file_is_what_is_tested(small_book: Path) -> None:
    answer = small_book / "exercises/lanes_idle.py"
    answer.write_text("def lanes_idle(n, block):\n    return -n % block\n")
    assert run(small_book, "exercises/test_one_lanes_idle.py")[0] == 0
    answer.write_text("def lanes_idle(n, block):\n    return n % block + 1\n")
    status, output = run(small_book, "exercises/test_one_lanes_idle.py")
    assert status == 1
    assert "assert 3 == 2" in output
    assert run(small_book, "exercises", "--solutions")[0] == 0


def test_a_printed_solution_that_is_wrong_fails_at_its_line(small_book: Path) -> None:
    chapter = small_book / "book/01-one.qmd"
    chapter.write_text(CHAPTER.replace("math.floor(n)", "math.flour(n)"))
    status, output = run(small_book, "exercises", "--solutions")
    assert status == 1
    assert "01-one.qmd:20" in output


def test_a_solution_that_is_not_printed_is_an_error(small_book: Path) -> None:
    chapter = small_book / "book/01-one.qmd"
    chapter.write_text(CHAPTER.replace("solution-lanes-idle", "answer"))
    status, output = run(small_book, "exercises", "--solutions")
    assert status == 1
    assert "no cell is labelled 'solution-lanes-idle'" in output


def test_a_test_of_no_chapter_is_an_error(small_book: Path) -> None:
    test = small_book / "exercises/test_one_lanes_idle.py"
    test.rename(test.with_name("test_two_lanes_idle.py"))
    status, output = run(small_book, "exercises", "--solutions")
    assert status == 1
    assert "the name names no chapter" in output


def test_every_solution_has_a_test_and_every_test_a_solution() -> None:
    solutions = {
        f"test_{chapter.name}_{cell.label[len('solution-') :].replace('-', '_')}.py"
        for chapter in tangle.read_book(ROOT).chapters
        for cell in chapter.cells
        if cell.label.startswith("solution-")
    }
    tests = {path.name for path in (ROOT / "exercises").glob("test_*.py")}
    assert tests == solutions


def test_every_exercise_that_the_book_names_is_there() -> None:
    for chapter in tangle.read_book(ROOT).chapters:
        for name in re.findall(r"exercises/test_\w+\.py", chapter.text):
            assert (ROOT / name).is_file(), f"{chapter.rel} names {name}"

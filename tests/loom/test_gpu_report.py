"""The GPU run of the tests: what is counted, what is ended, what is said.

No GPU is needed: the runs are of small test files, and the sanitizer is a script.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from loom import gpu_report

PYTEST = '[tool.pytest.ini_options]\nmarkers = ["sanitize: again"]\n'
CHAPTER = (
    "# {0} {{#sec-{0}}}\n\n```{{python}}\n#| label: {0}\n#| tangle: true\n{1}\n```\n"
)
MODULE = "# # {0}\n\n# ```{{python}}\n#| label: {0}\n#| tangle: true\n{1}\n# ```\n"
TESTS = """
import os, pytest
@pytest.mark.sanitize
def test_good(): assert os.environ.get("TRITON_INTERPRET") is None
def test_bad(): assert False
@pytest.mark.skip
def test_skipped(): pass
def test_error(nothing): pass
"""
SANITIZER = """#!/bin/sh
# --tool NAME command...
name=$2; shift 2
test "$PYTORCH_NO_CUDA_MEMORY_CACHING" = 1 || exit 9
"$@"
case $name in
  memcheck) echo "========= ERROR SUMMARY: 2 errors" ;;
  *) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A book of one page with tests, and a page without."""
    for rel, text in {
        "_quarto.yml": "book:\n  chapters:\n    - index.qmd\n    - book/01-a.qmd\n",
        "index.qmd": CHAPTER.format("preface", '"""A book."""'),
        "book/01-a.qmd": CHAPTER.format("page", "A = 1"),
        "generated/__init__.py": MODULE.format("preface", '"""A book."""'),
        "generated/a.py": MODULE.format("page", "A = 1"),
        "tests/test_a.py": TESTS,
        "tests/test_house.py": "def test_x(): assert False\n",
        "pyproject.toml": PYTEST,
    }.items():
        path = tmp_path / rel
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(SANITIZER)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    return tool


def test_a_run(root, sanitizer, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # what runs must not see it
    monkeypatch.setattr(gpu_report, "_device", lambda: "NVIDIA H200")
    report = gpu_report.run(root, seconds=60)
    (found,) = report["files"]  # only the chapters' tests
    assert found["file"] == "tests/test_a.py"
    assert [found[kind] for kind in gpu_report.COUNTED] == [1, 2, 1]
    assert found["names"] == ["test_bad", "test_error"]
    memory, races = (report["sanitizer"][name] for name in gpu_report.TOOLS)
    assert (memory["passed"], memory["failed"], memory["errors"]) == (1, 0, 2)
    assert (races["passed"], races["failed"], races["errors"]) == (1, 0, 0)
    assert "ended" not in memory and "ended" not in races
    assert gpu_report.failed(report)
    text = gpu_report.markdown(report)
    assert ": triton" in text
    assert text.startswith("On NVIDIA H200 in ")
    assert "| all of them | 1 | 2 | 1 |" in text
    assert "| `tests/test_a.py` | 1 | 2 | 1 |" in text
    assert "| memcheck | 1 | 0 | 2 |" in text
    assert "- `tests/test_a.py`: failed: `test_bad`" in text
    assert "of this copy" in gpu_report.since(root, report)


def test_without_a_sanitizer(root, monkeypatch):
    monkeypatch.setattr(gpu_report, "_sanitizer", lambda: "")
    monkeypatch.setattr(gpu_report, "_device", lambda: "")
    (root / "tests/test_a.py").write_text("def test_good(): pass\n")
    report = gpu_report.run(root, seconds=60)
    assert not gpu_report.failed(report)
    assert "compute-sanitizer is not on this machine" in gpu_report.markdown(report)


@pytest.mark.parametrize(
    "text, ended",
    [
        ("import time; time.sleep(60)", "stopped after"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import os; os._exit(0)", "printed nothing"),
    ],
)
def test_a_file_that_does_not_end_is_said_to(root, text, ended):
    (root / "tests/test_a.py").write_text(text + "\n")
    start = time.monotonic()
    found = gpu_report._test_file(root, "tests/test_a.py", start + 6)
    assert time.monotonic() - start < 12
    assert ended in found["ended"]
    assert [found[kind] for kind in gpu_report.COUNTED] == [0, 0, 0]


def test_no_time_left(root):
    found = gpu_report._test_file(root, "tests/test_a.py", time.monotonic())
    assert found["ended"] == "not started: no time was left"


def test_what_changed_since(root):
    report = {"digests": gpu_report.digests(root)}
    module = root / "generated/a.py"
    module.write_text("# another sentence\n" + module.read_text())
    assert "of this copy" in gpu_report.since(root, report)  # prose does not count
    module.write_text(module.read_text().replace("A = 1", "A = 2"))
    assert gpu_report.since(root, report).endswith("about them: `generated/a.py`.")
    (root / "tests/test_a.py").write_text("def test_new(): pass\n")
    assert "`generated/a.py`, `tests/test_a.py`" in gpu_report.since(root, report)
    assert "no GPU has run it yet" in gpu_report.since(root, {})

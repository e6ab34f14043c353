"""``make compat`` with nothing installed: what runs, what is kept, what is said."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest

from loom import compat
from loom.compat import Environment, Result

GOOD = "def test_good():\n    assert True\n"
BAD = "def test_bad():\n    assert not 'a reason'\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder with two test files, and an environment that is this one."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "generated").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"tests/test_{name}.py").write_text(GOOD)
        (tmp_path / f"generated/{name}.py").write_text("")
    monkeypatch.setattr(compat, "ROOT", tmp_path)
    key = functools.partial(compat.key_of, root=tmp_path)
    monkeypatch.setattr(compat, "key_of", key)
    environment = Environment("0.0", tmp_path)
    environment.folder.mkdir(parents=True)
    environment.python = Path(sys.executable)
    environment.versions = {"triton": "0.0.1", "numpy": "2", "torch": "3"}
    monkeypatch.setattr(compat, "run_file", run_here(tmp_path))
    return environment


def run_here(root):
    def run(python, name, key):
        ran.append(name)
        return real(python, name, key, root)

    real = compat.run_file
    ran = run.ran = []
    return run


FILES = ["tests/test_a.py", "tests/test_b.py"]


def test_what_passed_is_not_run_again_until_its_code_changes(tree, capsys):
    ran = compat.run_file.ran
    assert compat.check(tree, FILES, 2)
    assert sorted(ran) == FILES
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        "compat 0.0: green: Triton 0.0.1, NumPy 2, torch 3: 2 files,"
    )
    assert "2 tests passed, 0 skipped; 0 files had passed before" in last
    assert compat.check(tree, FILES, 2) and sorted(ran) == FILES
    assert "2 files had passed before" in capsys.readouterr().out
    path = compat.ROOT / FILES[0]
    path.write_text("# a comment\n" + GOOD)
    assert compat.check(tree, FILES, 2) and sorted(ran) == FILES
    path.write_text(GOOD * 2 + "X = 1\n")
    assert compat.check(tree, FILES, 2) and ran[2:] == [FILES[0]]
    tree.versions["triton"] = "0.0.2"
    assert compat.check(tree, FILES, 2) and sorted(ran[3:]) == FILES


def test_a_failure_is_shown_and_runs_again(tree, capsys):
    (compat.ROOT / FILES[1]).write_text(BAD)
    assert not compat.check(tree, FILES, 1)
    said = capsys.readouterr().out
    assert "tests/test_b.py: FAILED" in said and "assert not 'a reason'" in said
    assert "compat 0.0: FAILED in tests/test_b.py: Triton 0.0.1" in said
    ran = compat.run_file.ran
    del ran[:]
    assert not compat.check(tree, FILES, 1)
    assert ran == [FILES[1]]


def test_kept_results_that_cannot_be_read_count_as_none(tree):
    for text in ("{", "[]", '{"a": 3}', '{"a": {"no": 1}}'):
        (tree.folder / "passed.json").write_text(text)
        assert tree.passed() == {}
    tree.keep({"a": Result("x", 1, 0, 2.0), "b": Result("x", 1, 0, 2.0, ok=False)})
    assert list(tree.passed()) == ["a"]


def test_the_files_are_those_of_the_modules_and_the_workshop():
    files = compat.test_files()
    for name in ("test_jit.py", "test_init.py", "test_gate_jit.py"):
        assert f"tests/{name}" in files
    for name in ("trace", "aot", "gate"):
        assert f"tests/loom/test_{name}.py" in files


def test_the_code_that_a_file_reaches_counts_and_comments_do_not(tmp_path):
    (tmp_path / "generated").mkdir()
    test, path = tmp_path / "test_a.py", tmp_path / "generated/a.py"
    test.write_text("from generated import a\n" + GOOD)
    (tmp_path / "generated/__init__.py").write_text("")
    (tmp_path / "generated/b.py").write_text("")
    found = []
    for code in ("X = 1", "X = 1  # one", "X = 2"):
        path.write_text(f"# ```{{python}}\n#| label: a\n{code}\n# ```\n")
        found.append(compat.key_of("test_a.py", {"triton": "1"}, tmp_path))
    assert found[0] == found[1] != found[2]
    (tmp_path / "generated/b.py").write_text("Y = 1")
    assert compat.key_of("test_a.py", {"triton": "1"}, tmp_path) == found[2]
    assert compat.key_of("test_a.py", {"triton": "2"}, tmp_path) != found[2]


def test_an_environment_is_made_once_for_its_requirements(tmp_path, monkeypatch):
    asked = []

    def run(command):
        asked.append(command)
        if "venv" in command:
            (tmp_path / ".compat/0.0/lib/python3/site-packages").mkdir(parents=True)
        return '{"triton": "0"}'

    monkeypatch.setattr(compat, "_run", run)
    environment = Environment("0.0", tmp_path)
    environment.prepare(("triton==0",))
    assert [c[1:3] for c in asked] == [
        ["-m", "venv"],
        ["-m", "pip"],
        ["-c", compat.ASK],
    ]
    assert "--no-deps" in asked[1] and asked[1][-1] == "triton==0"
    (shared,) = tmp_path.glob(".compat/0.0/lib/*/site-packages/shared.pth")
    assert str(compat.ROOT) in shared.read_text()
    environment.prepare(("triton==0",))
    assert len(asked) == 4
    environment.prepare(("triton==1",))
    assert len(asked) == 7


def test_wrong_requests_and_failed_commands(capsys, monkeypatch):
    assert compat.main(["3.5"]) == 2
    assert "got 3.5; accepted are 3.6, 3.9" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="no_such_module"):
        compat._run([sys.executable, "-m", "no_such_module"])

    def fail(self, requirements):
        raise RuntimeError("no network")

    monkeypatch.setattr(Environment, "prepare", fail)
    assert compat.main([]) == 1
    assert "compat: no network" in capsys.readouterr().err

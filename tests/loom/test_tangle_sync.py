"""Chapters and modules are kept in step, and no edit is ever lost."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tangle
from tests.loom.chapters import ROOT, Folder, cell

TEXT = "# Jit\n\nOne.\n\n" + cell("x = 1") + "\nTwo.\n\n" + cell("y = 1", label="b")
QMD, PY, BASE = "book/01-jit.qmd", "generated/jit.py", ".tangle/jit.py"


@pytest.fixture
def book(tmp_path: Path) -> Folder:
    """A book that was tangled once; git does not know it."""
    made = Folder(tmp_path / "book", **{"01-jit": TEXT})
    tangle.tangle(made.root)
    return made


@pytest.fixture
def repo(book: Folder) -> Folder:
    """A book that was tangled and committed."""
    book.commit()
    return book


def refused(book: Folder, *, sync: bool = False, take: str = "") -> list[str]:
    """The faults for which nothing at all was written."""
    before = book.files()
    kept = {p: p.read_bytes() for p in book.root.glob(".tangle/**/*.py")}
    with pytest.raises(tangle.BookError) as error:
        tangle.tangle(book.root, sync=sync, take=take)
    assert book.files() == before
    assert kept == {p: p.read_bytes() for p in book.root.glob(".tangle/**/*.py")}
    return [str(problem) for problem in error.value.problems]


def agree(book: Folder, *words: str) -> None:
    """Both sides say the same, these words among it."""
    assert tangle.check(book.root) == []
    assert book.text(PY) == tangle.tangle_text(book.text(QMD)) == book.text(BASE)
    assert all(word in book.text(QMD) for word in words)


# ------------------------------------------------------------------ without git


def test_tangle_writes_what_changed_and_only_that(book: Folder) -> None:
    stamps = {rel: (book.root / rel).stat().st_mtime_ns for rel in book.files()}
    assert tangle.tangle(book.root) == []
    assert stamps == {rel: (book.root / rel).stat().st_mtime_ns for rel in book.files()}
    book.edit(QMD, "x = 1", "x = 2")
    run = book.run()
    assert (run.returncode, run.stdout) == (0, f"{PY} <- {QMD}\n")
    agree(book, "x = 2")
    init = (book.root / "generated/__init__.py").stat()
    assert init.st_mtime_ns == stamps["generated/__init__.py"]


@pytest.mark.parametrize("sync", [False, True])
def test_an_edited_chapter_goes_to_its_module(book: Folder, sync: bool) -> None:
    book.edit(QMD, "One.", "Uno.")
    assert tangle.check(book.root)[0].path == PY
    assert tangle.tangle(book.root, sync=sync) == [f"{PY} <- {QMD}"]
    agree(book, "Uno.")


@pytest.mark.parametrize(("old", "new"), [("x = 1", "x = 3"), ("# One.", "# Uno.")])
def test_an_edited_module_goes_to_its_chapter(book: Folder, old: str, new: str) -> None:
    book.edit(PY, old, new)
    (fault,) = refused(book)
    line = TEXT.split("\n").index(old.removeprefix("# ")) + 1
    assert fault.startswith(f"{PY}:{line}: edited") and "--sync" in fault
    (problem,) = tangle.check(book.root)
    assert (problem.path, problem.line) == (PY, line) and f"{QMD}:{line}" in str(
        problem
    )
    run = book.run("--sync")
    assert (run.returncode, run.stdout) == (0, f"{QMD} <- {PY}\n")
    agree(book, new.removeprefix("# "))


def test_the_same_edit_on_both_sides(book: Folder) -> None:
    book.edit(QMD, "x = 1", "x = 2")
    book.edit(PY, "x = 1", "x = 2")
    assert tangle.tangle(book.root) == []
    agree(book, "x = 2")


@pytest.mark.parametrize("sync", [False, True])
def test_different_edits_are_refused_with_both_places(book: Folder, sync: bool) -> None:
    book.edit(QMD, "x = 1", "x = 2")
    book.edit(PY, "y = 1", "y = 2")
    one, two = refused(book, sync=sync)
    line = TEXT.split("\n").index("y = 1") + 1
    assert one.startswith(f"{QMD}:8: edited, and so was {PY}:{line}; --take")
    assert two.startswith(f"{PY}:{line}: edited, and so was {QMD}:8; --take")


@pytest.mark.parametrize(("take", "wins", "loses"), [
    ("chapter", "x = 2", "jit.py"), ("module", "y = 2", "jit.qmd"),
])  # fmt: skip
def test_take_decides_and_keeps_what_it_drops(
    book: Folder, take: str, wins: str, loses: str
) -> None:
    book.edit(QMD, "x = 1", "x = 2")
    book.edit(PY, "y = 1", "y = 2")
    dropped = book.text(PY if take == "chapter" else QMD)
    run = book.run("--take", take)
    assert run.returncode == 0 and f".tangle/dropped/{loses}" in run.stdout
    agree(book, wins)
    assert book.text(f".tangle/dropped/{loses}") == dropped


def test_take_with_names_decides_those_only(tmp_path: Path) -> None:
    book = Folder(tmp_path, a=cell("x = 1"), b=cell("x = 1"))
    tangle.tangle(tmp_path)
    for name in "ab":
        book.edit(f"book/{name}.qmd", "x = 1", "x = 2")
        book.edit(f"generated/{name}.py", "x = 1", "x = 3")
    run = book.run("--take", "module", "a")
    assert run.returncode == 1 and "book/b.qmd:4: edited" in run.stderr
    assert "a.qmd" not in run.stderr
    assert book.run("--take", "module", "a", "b").returncode == 0
    assert "x = 3" in book.text("book/a.qmd") and "x = 3" in book.text("book/b.qmd")


def test_take_module_mends_a_faulty_chapter(book: Folder) -> None:
    book.edit(QMD, "One.", "<<<<<<< HEAD\nOne.")
    assert "merge conflict" in refused(book, take="chapter")[0]
    tangle.tangle(book.root, take="module")
    agree(book, TEXT)
    (book.root / PY).unlink()
    assert refused(book, take="module") == [
        f"{PY}:1: is missing; --take chapter makes it"
    ]


def test_a_module_that_was_deleted_is_made_again(book: Folder) -> None:
    for sync in (False, True):
        (book.root / PY).unlink()
        assert f"{PY}:1: is missing" in str(tangle.check(book.root)[0])
        tangle.tangle(book.root, sync=sync)
        agree(book)


def test_a_lost_base_is_made_again_where_both_agree(book: Folder) -> None:
    (book.root / BASE).unlink()
    assert tangle.tangle(book.root) == []
    agree(book)


def test_without_a_base_no_edit_is_guessed(book: Folder) -> None:
    (book.root / BASE).unlink()
    book.edit(PY, "x = 1", "x = 2")
    for sync in (False, True):
        assert [fault.split(" ")[0] for fault in refused(book, sync=sync)] == [
            f"{QMD}:8:",
            f"{PY}:8:",
        ]


@pytest.mark.parametrize(("old", "new", "place", "what"), [
    ("x = 1\n# ```", "x = 1\n# ```\nz = 1", f"{PY}:10", "code outside a tangled cell"),
    ("x = 1", "x = (", f"{PY}:8", "SyntaxError"),
    ("# One.", "# One. ", f"{PY}:3", "white space"),
    ("# One.", "# One.\r", f"{PY}:3", "carriage return"),
    ("#| label: b", "#| label: a", f"{PY}:14", "already that of line 5"),
    ("x = 1", "x = 1\n# ```\n# ```{python}", f"{PY}:10", "without a label"),
    ("#| tangle: true\nx", "# #| tangle: true\nx", f"{PY}:6", "code outside"),
])  # fmt: skip
def test_a_sync_to_an_invalid_chapter_is_refused(
    book: Folder, old: str, new: str, place: str, what: str
) -> None:
    book.edit(PY, old, new)
    faults = refused(book, sync=True)
    assert any(f.startswith(place) and what in f for f in faults), faults
    assert refused(book, take="module") == faults


def test_a_sync_to_a_label_of_another_chapter_is_refused(tmp_path: Path) -> None:
    one, two = cell("x = 1", label="fig-a"), cell("y = 1", label="fig-b")
    book = Folder(tmp_path, one=one, two=two)
    tangle.tangle(tmp_path)
    book.edit("generated/two.py", "fig-b", "fig-a")
    assert "label 'fig-a' is already at book/one.qmd:1" in refused(book, sync=True)[0]


def test_all_refusals_in_one_run(book: Folder) -> None:
    book.write("book/02-two.qmd", "a \n")
    book.list_pages()
    book.edit(PY, "x = 1", "x = 2")
    book.edit("index.qmd", '"""P."""', '"""Q."""')
    book.edit("generated/__init__.py", '"""P."""', '"""R."""')
    places = [fault.split(": ")[0] for fault in refused(book, sync=True)]
    assert places == ["index.qmd:6", "generated/__init__.py:6", "book/02-two.qmd:1"]


def test_orphans(book: Folder) -> None:
    book.write("generated/py.typed", "")
    book.write("generated/tuned/h200.json", "{}")
    book.write("generated/tuned/table.py", "x = 1\n")
    (book.root / QMD).rename(book.root / "book/01-kernels.qmd")
    book.list_pages()
    assert [str(p) for p in tangle.check(book.root)][0].startswith(
        "generated/kernels.py"
    )
    run = book.run()
    assert run.returncode == 0 and f"{PY} removed" in run.stdout
    names = {"__init__.py", "kernels.py", "py.typed", "tuned"}
    assert {p.name for p in (book.root / "generated").iterdir()} == names
    assert (book.root / "generated/tuned/table.py").exists()
    assert not (book.root / BASE).exists()


def test_an_edited_orphan_stays_and_is_named(book: Folder) -> None:
    book.edit(QMD, "#| tangle: true\n", "")
    assert [str(p) for p in tangle.check(book.root)] == [
        f"{PY}:1: no chapter tangles to it; run tangle.py, it removes it"
    ]
    book.edit(PY, "x = 1", "x = 2")
    for sync in (False, True):
        (fault,) = refused(book, sync=sync)
        assert fault.startswith(f"{PY}:1: edited, but no chapter tangles to it; ")
    assert [str(p) for p in tangle.check(book.root)] == [fault]
    tangle.tangle(book.root, take="module")
    agree(book, "x = 2")


def test_an_unlisted_chapter_keeps_its_module(book: Folder) -> None:
    book.list_pages("index.qmd")
    assert refused(book) == [
        f"{QMD}:1: not listed in _quarto.yml; list it in its place"
    ]


def test_two_chapters_of_one_module(book: Folder) -> None:
    book.write("book/02-jit.qmd", cell("x = 2"))
    book.list_pages()
    assert any("module 'jit' is already that of" in fault for fault in refused(book))


def test_links_and_modes_stay(book: Folder) -> None:
    real = book.root / "elsewhere.qmd"
    (book.root / QMD).rename(real)
    (book.root / QMD).symlink_to(real)
    (book.root / PY).chmod(0o640)
    book.edit(PY, "x = 1", "x = 2")
    tangle.tangle(book.root, sync=True)
    assert (book.root / QMD).is_symlink() and "x = 2" in real.read_text()
    book.edit(QMD, "x = 2", "x = 3")
    tangle.tangle(book.root)
    assert stat.S_IMODE((book.root / PY).stat().st_mode) == 0o640


def test_a_chapter_in_a_folder_below(tmp_path: Path) -> None:
    book = Folder(tmp_path, **{"part/02-deep": cell("x = 1")})
    tangle.tangle(tmp_path)
    book.edit("generated/deep.py", "x = 1", "x = 2")
    notes = tangle.tangle(tmp_path, sync=True)
    assert notes == ["book/part/02-deep.qmd <- generated/deep.py"]


# ---------------------------------------------------------------------- with git


def test_an_uncommitted_edit_that_was_tangled_is_a_base(repo: Folder) -> None:
    repo.edit(QMD, "x = 1", "x = 2")
    tangle.tangle(repo.root)
    repo.edit(PY, "y = 1", "y = 2")
    tangle.tangle(repo.root, sync=True)
    agree(repo, "x = 2", "y = 2")


def test_head_is_a_base_where_the_last_tangle_is_lost(repo: Folder) -> None:
    for rel, old in ((PY, "x = 1"), (QMD, "y = 1")):
        (repo.root / BASE).unlink()
        repo.edit(rel, old, f"{old}1")
        tangle.tangle(repo.root, sync=True)
        agree(repo, f"{old}1")
        repo.commit()


def branch(repo: Folder, name: str, old: str, new: str) -> None:
    """A branch on which the chapter was edited and tangled."""
    repo.git("switch", "-q", "-c", name, "main")
    repo.edit(QMD, old, new)
    tangle.tangle(repo.root)
    repo.commit(name)


@pytest.mark.parametrize("sync", [False, True])
def test_after_a_switch_of_branches(repo: Folder, sync: bool) -> None:
    branch(repo, "side", "x = 1", "x = 2")
    repo.git("switch", "-q", "main")  # the base is still that of the side branch
    repo.edit(QMD, "y = 1", "y = 3")
    tangle.tangle(repo.root, sync=sync)
    agree(repo, "x = 1", "y = 3")
    repo.git("stash", "-q")
    repo.git("switch", "-q", "side")
    assert tangle.tangle(repo.root, sync=sync) == []
    agree(repo, "x = 2", "y = 1")


def test_after_a_switch_an_edit_of_the_module_is_carried(repo: Folder) -> None:
    branch(repo, "side", "x = 1", "x = 2")
    repo.git("switch", "-q", "main")
    repo.edit(PY, "y = 1", "y = 3")
    assert "--sync carries" in refused(repo)[0]
    tangle.tangle(repo.root, sync=True)
    agree(repo, "x = 1", "y = 3")


def test_local_changes_taken_along_to_another_branch(repo: Folder) -> None:
    repo.git("branch", "side")
    repo.edit(PY, "x = 1", "x = 2")
    repo.git("switch", "-q", "side")
    tangle.tangle(repo.root, sync=True)
    agree(repo, "x = 2")


def test_after_a_switch_different_edits_are_refused(repo: Folder) -> None:
    branch(repo, "side", "x = 1", "x = 2")
    repo.git("switch", "-q", "main")
    repo.edit(PY, "y = 1", "y = 3")
    repo.edit(QMD, "y = 1", "y = 4")
    assert len(refused(repo, sync=True)) == 2


def test_disjoint_edits_merge_in_both(repo: Folder) -> None:
    branch(repo, "one", "One.", "Uno.")
    branch(repo, "two", "y = 1", "y = 2")
    repo.git("merge", "-q", "-m", "merge", "one")
    assert tangle.check(repo.root) == []
    repo.edit(PY, "x = 1", "x = 9")
    tangle.tangle(repo.root, sync=True)
    agree(repo, "Uno.", "y = 2", "x = 9")


def test_a_conflict_stands_on_the_same_lines_of_both(repo: Folder) -> None:
    branch(repo, "one", "One.", "Uno.")
    branch(repo, "two", "One.", "Due.")
    with pytest.raises(subprocess.CalledProcessError):
        repo.git("merge", "-q", "one")
    marks = [n for n, s in enumerate(repo.text(QMD).split("\n"), 1) if s[:7] in (
        "<<<<<<<", "=======", ">>>>>>>")]  # fmt: skip
    same = [n for n, s in enumerate(repo.text(PY).split("\n"), 1) if s[:7] in (
        "<<<<<<<", "=======", ">>>>>>>")]  # fmt: skip
    assert len(marks) == 3 and marks == same
    said = [p for p in tangle.check(repo.root) if "merge conflict" in p.message]
    assert [(p.path, p.line) for p in said] == [(QMD, n) for n in marks]
    assert all("merge conflict" in f or "edited" in f for f in refused(repo))
    repo.write(QMD, TEXT.replace("One.", "Tre."))
    assert "--take" in refused(repo)[0]
    tangle.tangle(repo.root, take="chapter")
    agree(repo, "Tre.")


def test_an_orphan_that_is_committed_goes(repo: Folder) -> None:
    repo.git("rm", "-q", QMD)
    (repo.root / BASE).unlink()
    repo.list_pages("index.qmd")
    tangle.tangle(repo.root)
    assert not (repo.root / PY).exists()


def test_without_git_the_last_tangle_is_enough(repo: Folder) -> None:
    repo.edit(PY, "x = 1", "x = 2")
    run = repo.run("--sync", PATH="")
    assert (run.returncode, run.stderr) == (0, "")
    agree(repo, "x = 2")
    (repo.root / BASE).unlink()
    repo.edit(PY, "y = 1", "y = 2")
    run = repo.run("--sync", PATH="")
    assert run.returncode == 1 and "--take" in run.stderr


def test_a_book_below_the_top_of_a_repository(tmp_path: Path) -> None:
    outer = Folder(tmp_path)
    inner = Folder(tmp_path / "inner", **{"01-jit": TEXT})
    tangle.tangle(inner.root)
    outer.commit()
    (inner.root / BASE).unlink(missing_ok=True)
    inner.edit(PY, "x = 1", "x = 2")
    tangle.tangle(inner.root, sync=True)
    agree(inner, "x = 2")


# ------------------------------------------------------------- killed, full, moved

KILL = """
    import builtins, io, os, signal, sys
    sys.path.insert(0, {top!r})
    import tangle
    left = int(sys.argv[1])

    def step():
        global left
        left -= 1
        if left < 0:
            print("killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    class File(io.FileIO):
        def write(self, data):
            step()
            half = len(data) // 2
            super().write(data[:half])
            step()
            return half + super().write(data[half:])

    def around(function):
        def call(*args, **kwargs):
            step()
            return function(*args, **kwargs)
        return call

    real = builtins.open
    tangle.open = lambda path, mode: (File if "b" in mode else real)(path, mode)
    os.replace, os.unlink, os.fsync = map(around, (os.replace, os.unlink, os.fsync))
    tangle.tangle(tangle.Path(sys.argv[2]), **eval(sys.argv[3]))
    print("done")
"""


@pytest.mark.parametrize(("how", "kept"), [
    ("{}", ["a = 2", "b = 1"]),
    ("{'sync': True}", ["a = 1", "b = 2"]),
    ("{'take': 'module'}", ["a = 1", "b = 2"]),
])  # fmt: skip
def test_killed_at_any_step_nothing_is_lost(
    tmp_path: Path, how: str, kept: list[str]
) -> None:
    code = textwrap.dedent(KILL).format(top=str(ROOT))
    one, two = cell("a = 1", "b = 1"), cell("a = 1", "b = 1", label="z")
    for step in range(60):
        book = Folder(tmp_path / f"{step}", one=one, two=two)
        tangle.tangle(book.root)
        for name in ("one", "two"):
            if "{}" in how:
                book.edit(f"book/{name}.qmd", "a = 1", "a = 2")
            else:
                book.edit(f"generated/{name}.py", "b = 1", "b = 2")
        before = book.files()
        run = subprocess.run(
            [sys.executable, "-c", code, str(step), str(book.root), how],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert run.returncode in (0, -signal.SIGKILL), run.stderr
        for rel, data in book.files().items():  # each file is the old or the new one
            name = Path(rel).stem
            if name in ("one", "two"):
                words = ["a = 2", "b = 1"] if "{}" in how else ["a = 1", "b = 2"]
                assert data == before[rel] or all(w.encode() in data for w in words)
        assert set(book.files()) == set(before)  # no temporary file is left about
        tangle.tangle(book.root, **eval(how))
        assert tangle.check(book.root) == []
        assert all(
            w in book.text(f"book/{n}.qmd") for w in kept for n in ("one", "two")
        )
        assert not list((book.root / ".tangle").glob("*.new"))
        if run.stdout == "done\n":
            assert step > 8
            return
    pytest.fail("the run is never done")


def test_a_full_disk_changes_nothing_and_is_named(
    book: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    book.edit("index.qmd", '"""P."""', '"""Q."""')
    book.edit(PY, "x = 1", "x = 2")
    monkeypatch.setattr(os, "fsync", full)  # the module is staged, the chapter fails
    (fault,) = refused(book, sync=True)
    assert fault.startswith(f"{QMD}:1: cannot be written (No space left on device); ")
    assert not list(book.root.glob(".tangle/*.new"))
    monkeypatch.undo()
    tangle.tangle(book.root, sync=True)
    agree(book, "x = 2")


def test_a_folder_that_cannot_be_made(book: Folder) -> None:
    for path in (book.root / "generated").iterdir():
        path.unlink()
    (book.root / "generated").rmdir()
    book.write("generated", "a file")
    run = book.run()
    assert run.returncode == 1 and "Traceback" not in run.stderr
    assert "generated/__init__.py:1: Not a directory; mend that" in run.stderr


def test_a_file_that_is_edited_meanwhile_is_not_overwritten(
    book: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.edit(PY, "x = 1", "x = 2")
    plan: Callable[..., list[tangle.Change]] = tangle.plan

    def slow(*args: object) -> list[tangle.Change]:
        changes = plan(*args)
        book.edit(QMD, "One.", "Saved by an editor.")
        return changes

    monkeypatch.setattr(tangle, "plan", slow)
    with pytest.raises(tangle.BookError, match=f"{QMD}:1: changed while it was read"):
        tangle.tangle(book.root, sync=True)
    assert "Saved" in book.text(QMD) and "x = 2" in book.text(PY)


def test_runs_at_the_same_time(book: Folder) -> None:
    for turn in range(2, 5):
        book.edit(QMD, f"x = {turn - 1}", f"x = {turn}")
        command = [sys.executable, str(ROOT / "tangle.py"), "--root", str(book.root)]
        runs = [
            subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            for _ in range(4)
        ]
        for run in runs:
            _, said = run.communicate(timeout=60)
            assert run.returncode == 0 and said == b""
        agree(book, f"x = {turn}")
    assert not list(book.root.glob(".tangle/*.new"))


def test_check_writes_nothing(tmp_path: Path) -> None:
    book = Folder(tmp_path)
    run = book.run("--check")
    assert run.returncode == 1 and "generated/jit.py:1: is missing" in run.stderr
    assert not (tmp_path / ".tangle").exists() and not (tmp_path / "generated").exists()
    tangle.tangle(tmp_path)
    run = book.run("--check")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


# -------------------------------------------------------------------------- watch


@pytest.fixture
def watched(book: Folder) -> Iterator[tuple[Folder, Path]]:
    """A book under ``--watch``, and the file that holds what was said."""
    said = book.root / "said.txt"
    with open(said, "w") as out:
        command = [sys.executable, str(ROOT / "tangle.py"), "--root", str(book.root)]
        process = subprocess.Popen([*command, "--watch"], stdout=out, stderr=out)
    try:
        yield book, said
        assert process.poll() is None, said.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert "Traceback" not in said.read_text()
    finally:
        process.kill()
        process.wait()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def test_watch_carries_edits_both_ways_and_outlives_faults(
    watched: tuple[Folder, Path],
) -> None:
    book, said = watched
    book.edit(QMD, "x = 1", "x = 2")
    until(lambda: "x = 2" in book.text(PY) and "x = 2" in book.text(BASE))
    book.edit(PY, "y = 1", "y = 2")
    until(lambda: "y = 2" in book.text(QMD) and "y = 2" in book.text(BASE))
    book.edit(QMD, "One.", "One. ")
    until(lambda: f"{QMD}:3: white space" in said.read_text())
    book.edit(QMD, "One. ", "Uno.")
    until(lambda: "Uno." in book.text(PY) and "Uno." in book.text(BASE))
    agree(book, "x = 2", "y = 2", "Uno.")


def test_watch_waits_until_a_file_is_whole(
    book: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor may empty a file first and write it in pieces."""
    whole = book.text(PY).replace("x = 1", "x = 2")
    saves = [whole[:0], whole[: len(whole) // 2], whole]
    seen = []

    def turn(_: float) -> None:
        seen.append(book.text(QMD))
        if saves:
            book.write(PY, saves.pop(0))
        elif len(seen) > 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", turn)
    with pytest.raises(KeyboardInterrupt):
        tangle.watch(book.root)
    assert seen[:4] == [TEXT] * 4 and set(seen[4:]) == {TEXT.replace("x = 1", "x = 2")}
    agree(book, "x = 2")

"""Line N of a module is line N of its chapter, and each can be had from the other."""

from __future__ import annotations

import importlib.util
import inspect
import traceback
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tangle
from tests.loom import chapters
from tests.loom.chapters import ROOT, cell, faults

many = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def sound(text: str) -> tangle.Scanner | None:
    """The scan of a text without faults (its code need not be Python)."""
    scan = tangle.Scanner("x.qmd", text)
    return None if scan.problems or not text.endswith("\n") else scan


def modules() -> st.SearchStrategy[str]:
    """Texts like modules: tangled chapters, some lines changed as editors would."""
    line = st.sampled_from(
        [*chapters.CODE, *(f"# {s}" for s in chapters.FENCES + chapters.PROSE), "# "]
        + ["# ```", "# ```{python}", "#| label: a", "#| tangle: true", "```", "#"]
        + ["# #| label: a", "# #| tangle: true"]
    )
    edits = st.lists(st.tuples(st.integers(0, 40), line), max_size=3)

    def edited(text: str, changes: list[tuple[int, str]]) -> str:
        lines = tangle.tangle_text(text).split("\n")
        for at, new in changes:
            lines[at % len(lines)] = new
        return "\n".join(lines)

    free = st.lists(line, max_size=8).map("\n".join)
    return st.builds(edited, chapters.texts(), edits) | free


@many
@given(chapters.texts())
def test_a_sound_chapter_comes_back_from_its_module(text: str) -> None:
    scan = sound(text)
    if scan is None:
        return
    module = tangle.tangle_text(text)
    assert tangle.untangle_text(module) == text
    raw = {n for c in scan.cells if c.tangled for n in range(c.first + 1, c.last)}
    mine, theirs = text.split("\n"), module.split("\n")
    assert len(mine) == len(theirs)
    for n, (line, got) in enumerate(zip(mine, theirs, strict=True), 1):
        assert got == (line if n in raw or not line else f"# {line}")


def test_the_generated_chapters_are_worth_it() -> None:
    """Some hundred of them are sound and have tangled cells; most faults occur."""
    seen = {"sound": 0, "tangled": 0, "faulty": 0}

    @settings(many, database=None, derandomize=True)
    @given(chapters.texts())
    def count(text: str) -> None:
        scan = sound(text)
        seen["faulty"] += scan is None
        seen["sound"] += scan is not None
        seen["tangled"] += scan is not None and any(c.tangled for c in scan.cells)

    count()
    assert seen["sound"] > 100 and seen["tangled"] > 50 and seen["faulty"] > 100, seen


@many
@given(modules())
def test_what_is_untangled_tangles_to_the_same_module(module: str) -> None:
    try:
        text = tangle.untangle_text(module)
    except tangle.BookError as error:
        assert error.problems and all(p.line > 0 for p in error.problems)
        return
    assert tangle.tangle_text(text) == module


@many
@given(chapters.texts(), st.integers(0, 40), st.sampled_from(chapters.PROSE))
def test_two_sound_chapters_never_have_one_module(text: str, at: int, new: str) -> None:
    lines = text.split("\n")
    lines[at % len(lines)] = new
    other = "\n".join(lines)
    if text != other and sound(text) and sound(other):
        assert tangle.tangle_text(text) != tangle.tangle_text(other)


def test_all_small_chapters() -> None:
    """By enumeration: the sound ones have modules of their own and come back."""
    alphabet = ["", "a", "# a", "```", "# ```", "```{python}", "#| tangle: true", "~~~"]
    label = "#| label: a"
    seen: dict[str, str] = {}
    grown = [[]]
    for _ in range(5):
        grown = [[*lines, new] for lines in grown for new in alphabet]
        for lines in grown:
            text = "".join(f"{line}\n" for line in lines)
            text = text.replace("```{python}\n", f"```{{python}}\n{label}\n", 1)
            if not sound(text):
                continue
            module = tangle.tangle_text(text)
            assert tangle.untangle_text(module) == text
            assert seen.setdefault(module, text) == text
    assert len(seen) > 1000


@pytest.mark.parametrize("option", [
    "#| tangle: true", "#| tangle: false", "#| tangle: True", "#|tangle: true",
    "#| tangle:true", "#| tangle:  true", '#| tangle: "true"', "#| tangle: true # no",
    "#|   tangle: true", "#| tangle: true ", "# | tangle: true",
])  # fmt: skip
def test_one_answer_to_what_is_tangled(option: str) -> None:
    """The reader, the tangler and the untangler agree, whatever is written."""
    text = f"```{{python}}\n#| label: a\n#| fig-cap: |\n{option}\nx = 1\n```\n"
    (found,) = tangle.Scanner("x.qmd", text).cells
    raw = "x = 1" in tangle.tangle_text(text).split("\n")
    assert found.tangled == raw == (option == "#| tangle: true")
    assert raw or option == "#| tangle: false" or faults(text) or "   " in option


@pytest.mark.parametrize(("module", "line", "what"), [
    ("# a\nx = 1\n", 2, "code outside a tangled cell: 'x = 1'"),
    ("#\n", 1, "code outside a tangled cell: '#'"),
    ("# \n", 1, "code outside a tangled cell: '#'"),
    ("    # a\n", 1, "code outside a tangled cell"),
    ("# ```{python}\nx = 1\n# ```\n", 2, "code outside a tangled cell"),
    ("# ```{python}\n#| label: a\n# ```\n", 2, "code outside a tangled cell"),
    ("# ```{python}\n# #| tangle: true\n# x\n# ```\n", 2, "no chapter tangles to"),
    ("# ```{python}\n#| tangle: true\n```\nx\n", 3, "no chapter tangles to '```'"),
    ("# ```{python}\n#| tangle: true\nx\n# ```\ny\n", 5, "outside a tangled cell: 'y'"),
])  # fmt: skip
def test_a_module_that_no_chapter_has(module: str, line: int, what: str) -> None:
    with pytest.raises(tangle.BookError) as error:
        tangle.untangle_text(module, "generated/x.py")
    problem = error.value.problems[0]
    assert (problem.path, problem.line) == ("generated/x.py", line)
    assert what in problem.message and "; " in problem.message


def test_every_line_outside_is_named() -> None:
    with pytest.raises(tangle.BookError) as error:
        tangle.untangle_text("a\n# b\nc\n")
    assert [p.line for p in error.value.problems] == [1, 3]


CHAPTER = (
    "---\ndescription: x\n---\n\n# Jit {#sec-jit}\n\nProse.\n\n"
    + cell(
        '"""The docstring."""', "", "from __future__ import annotations", label="head"
    )
    + "\nMore prose.\n\n"
    + cell("def fail(x):", "    raise ValueError(x)", label="body")
    + "\n```python\nshown = 1\n```\n\n"
    + cell("hidden = 1", label="demo", tangled=False)
)


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "jit.py"
    path.write_text(tangle.tangle_text(CHAPTER), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("a_tangled_module", path)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_module_is_python_with_the_lines_of_its_chapter(module: ModuleType) -> None:
    assert faults(CHAPTER) == []
    assert module.__doc__ == "The docstring."
    assert module.annotations.compiler_flag
    assert not hasattr(module, "hidden") and not hasattr(module, "shown")
    lines = CHAPTER.split("\n")
    source, line = inspect.getsourcelines(module.fail)
    assert "".join(source) == "def fail(x):\n    raise ValueError(x)\n"
    assert lines[line - 1] == "def fail(x):"
    with pytest.raises(ValueError) as error:
        module.fail(1)
    frame = traceback.extract_tb(error.value.__traceback__)[-1]
    assert lines[(frame.lineno or 0) - 1].strip() == frame.line


@pytest.mark.parametrize("path", sorted(ROOT.glob("book/*.qmd")) + [ROOT / "index.qmd"])
def test_the_book_itself(path: Path) -> None:
    chapter = tangle.read_chapter(path, path.relative_to(ROOT).as_posix())
    assert tangle.untangle_text(chapter.tangled) == chapter.text

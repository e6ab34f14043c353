"""Line-true cells: found again by source, and compiled at their lines."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

import tangle
from loom import lines
from loom.parts import find_inlines, split

TEXT = """\
# Title {#sec-t}

```{python}
#| label: first
#| tangle: true
def f():
    return here()
```

```{python}
#| label: magic

%time 1 + 1
class A:
    pass
```

```{python}
#| label: again
f()
```

```{python}
#| label: once-more
f()
```

```{python}
#| label: not-python
#| eval: false
this is no Python
```
"""


@pytest.fixture
def chapter():
    return tangle.read_chapter(Path("book/01-t.qmd"), "book/01-t.qmd", TEXT)


@pytest.fixture
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    shell.history_manager.end_session()
    yield shell
    InteractiveShell.clear_instance()


def sources(cell):
    """As our executor, Quarto, and an editor that trims would send it."""
    return ["\n".join(cell.lines), cell.code, cell.code.strip() + "\n\n"]


def test_a_cell_is_found_with_and_without_its_options(chapter):
    for index, cell in enumerate(chapter.cells[:2]):
        for source in sources(cell):
            assert lines.Cells(chapter).find(source) == index
    assert lines.Cells(chapter).find("g()") is None
    assert lines.Cells(chapter).find("") is None


def test_equal_cells_are_told_apart_by_label_or_by_order(chapter):
    cells = lines.Cells(chapter)
    assert cells.find("#| label: once-more\nf()") == 3
    assert cells.find("f()") == 2
    cells.last = 2
    assert cells.find("f()") == 3
    cells.last = 3
    assert cells.find("f()") == 2


@pytest.mark.parametrize("way", range(3))
def test_code_runs_under_the_module_and_at_its_line(chapter, shell, way, tmp_path):
    hooks = lines.install(chapter, tmp_path, shell)
    assert lines.install(chapter, tmp_path, shell) is hooks
    shell.run_cell(sources(chapter.cells[0])[way])
    code = shell.user_ns["f"].__code__
    assert (code.co_filename, code.co_firstlineno) == ("generated/t.py", 6)
    result = shell.run_cell(sources(chapter.cells[2])[way])
    assert isinstance(result.error_in_exec, NameError)
    assert lines.last_place("generated/t.py") == ["generated/t.py", 7]
    linecache.checkcache()
    assert linecache.getline("generated/t.py", 7) == "    return here()\n"


def test_a_syntax_error_has_the_line_of_the_chapter(shell, tmp_path):
    text = "# T {#sec-t}\n\n```{python}\n#| label: bad\nx = 1\ny = = 1\n```\n"
    chapter = tangle.read_chapter(Path("b.qmd"), "book/02-b.qmd", text)
    lines.install(chapter, tmp_path, shell)
    shell.run_cell(chapter.cells[0].code)
    assert lines.last_place("book/02-b.qmd") == ["book/02-b.qmd", 6]


def test_other_code_keeps_ipythons_names(chapter, shell, tmp_path):
    lines.install(chapter, tmp_path, shell)
    shell.run_cell("def g(): pass")
    assert shell.user_ns["g"].__code__.co_filename != "generated/t.py"


def test_the_view_is_python_with_every_line_in_its_place(chapter):
    view = lines.Cells(chapter).view()
    compile("".join(view), "view", "exec")
    assert view[5] == "def f():\n"
    assert view[12] == "# %time 1 + 1\n"
    assert view[13] == "class A:\n"
    assert "# this is no Python\n" in view


def test_tidy_masks_this_machine(tmp_path):
    import torch

    words = f"{tmp_path}/generated/x.py <A at 0x7f00deadbeef> {torch.__file__}"
    assert lines.tidy(words, tmp_path) == "generated/x.py <A at 0x…> torch/__init__.py"
    assert lines.tidy("0x7f00deadbeef", tmp_path) == "0x7f00deadbeef"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a `{python} x + 1` b", ["x + 1"]),
        ("`{python} a`, `{python} b`", ["a", "b"]),
        ("two\nlines `{python} f(1,\n2)`", ["f(1, 2)"]),
        ("``{python} x``", []),
        ("`` `{python} x` ``", []),
        ("`{{python}} x`", []),
        ("```\n`{python} x`\n```", []),
        ("~~~~\n`{python} x`\n~~~\n`{python} y`\n~~~~\n`{python} z`", ["z"]),
        (r"\`{python} x`", []),
        ("an open ` here\n\n`{python} x`", ["x"]),
    ],
)
def test_inline_expressions_are_found_outside_code_only(text, found):
    inlines = find_inlines(text)
    assert [inline.code for inline in inlines] == found
    for inline in inlines:
        assert text[inline.start : inline.end].startswith("`{python} ")


def test_a_chapter_in_parts_loses_nothing(chapter):
    text = "---\njupyter: python3\n---\n\n" + TEXT + "\nEnd `{python} 1`.\n"
    parts = split(tangle.read_chapter(Path("c.qmd"), "book/03-c.qmd", text))
    assert parts.meta == {"jupyter": "python3"}
    first, last = parts.parts[0], parts.parts[-1]
    assert (first.text.strip(), first.line) == ("# Title {#sec-t}", 4)
    assert last.fill(["one"]).strip() == "End one."
    assert last.inlines[0].line == text[: text.index("End")].count("\n") + 1


def test_options_that_are_no_yaml_are_named(tmp_path):
    text = '# T {#sec-t}\n\n```{python}\n#| label: a\n#| fig-cap: "x" y\n1\n```\n'
    chapter = tangle.read_chapter(Path("d.qmd"), "book/04-d.qmd", text)
    with pytest.raises(tangle.BookError, match="book/04-d.qmd:5: the options"):
        split(chapter)


def test_tidy_masks_what_ipython_has_shortened(tmp_path, monkeypatch):
    import inspect

    monkeypatch.setenv("HOME", str(Path(inspect.__file__).parents[1]))
    short = "~/" + "/".join(Path(inspect.__file__).parts[-2:])
    lines._prefixes.cache_clear()
    assert lines.tidy(f"File {short}:12 in f", tmp_path) == "File inspect.py:12 in f"
    lines._prefixes.cache_clear()

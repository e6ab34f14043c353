"""The lint: each rule with a text that breaks it and one that does not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import tangle
from loom import lint, subset

ROOT = Path(__file__).resolve().parents[2]
TITLE = "# Title {#sec-title}\n\n"
SETUP = (
    "```{python}\n#| label: setup\n#| echo: false\n"
    'import loom\nloom.begin("x")\n```\n\n'
)


def cell(code: str, *options: str, label: str = "one") -> str:
    lines = [f"#| label: {label}", *(f"#| {option}" for option in options), code]
    return "```{python}\n" + "\n".join(lines) + "\n```\n"


def lint_texts(tmp_path: Path, texts: dict[str, str], config=None) -> list[str]:
    chapters = []
    for rel, text in texts.items():
        path = tmp_path / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        chapters.append(tangle.read_chapter(path, rel))
    found = lint.check(tangle.Book(tmp_path, tuple(chapters)), config)
    return [str(problem) for problem in found]


def lint_page(tmp_path: Path, text: str) -> list[str]:
    return lint_texts(tmp_path, {"book/01-x.qmd": text})


# (what is wrong, its line below the title, words of the message, what is right)
PROSE = [
    # headings
    ("text\n## Two\n", 2, "a heading without a blank line", "text\n\n## Two\n"),
    ("### Three\n", 1, "H3 after H1 skips a level; use ##", "## Two\n\n### Three\n"),
    ("# Again {#sec-b}\n", 1, "a second H1 (the first is line 1)", "## Two\n"),
    ("## Two {.big}\n", 1, "heading class 'big'", "## Two {.unnumbered}\n"),
    ("## Two {a=b}\n", 1, "'a' of a heading", "## Two {#sec-two}\n"),
    ("Two\n---\n", 2, "an underlined heading", "## Two\n"),
    ("a.\n\n---\n", 3, "a horizontal rule", "a.\n\nb.\n"),
    # paragraphs
    ("It stops here. Then more.\n", 1, "two sentences on one line", "It stops here.\n"),
    ("Is it? `No`.\nYes! It is.\n", 2, "two sentences", "See Fig. A, e.g. Table B.\n"),
    ("Done.[^a] More is here.) But\nno.\n\n[^a]: x\n", 1, "two sentences",
     "Of 1.5 V.\n"),
    ("This goes\non below.\n", 1, "the sentence goes on below",
     "This ends:\nit does.\n"),
    ("With `x.y\nz` on.\n", 1, "the sentence goes on", "With `code.`\\\nand more.\n"),
    ("a\tb.\n", 1, "a tab", "a b.\n"),
    # lists
    ("text:\n- item\n", 2, "a list without a blank line", "text:\n\n- item\n- two\n"),
    ("* item\n", 1, "bullet '*'; write '- '", "- item. Two here.\n  goes on\n"),
    ("(a) item\n", 1, "write '1. '", "1. item\n2. item\n"),
    ("a) item\n", 1, "write '1. '", "1. item\n\n   more of it\n"),
    ("Term\n:   text\n", 2, "a definition list", "- **Term**: text\n"),
    ("a.\n\n    code\n", 3, "four spaces make a code block", "- a\n\n    goes on\n"),
    # tables
    ("text:\n| a |\n|---|\n", 2, "a table without a blank line",
     "| a |\n|---|\n| 1 |\n"),
    ("| a | b |\n|---|---|\n| 1 |\n", 3, "1 cells under a header of 2",
     "| a | b |\n|:--|--:|\n| `1|2` | $|x|$ |\n"),
    ("| a | b\n", 1, "no table", "| a | b |\n|---|---|\n"),
    ("+---+---+\n| a | b |\n", 1, "a grid table", "| a |\n|---|\n\n: Cap {#tbl-a}\n"),
    ("| a |\n|---|\n\n: Cap {#tab-a}\n", 4, "table label '#tab-a'",
     '| a |\n|---|\n\n: Cap {#tbl-a tbl-colwidths="[1]"}\n'),
    ("| a |\n|---|\n\n: Cap {.wide}\n", 4, "'wide' of a table",
     "| a |\n|---|\n\n: Cap\n"),
    # block quotes, links, notes
    ("text:\n> q\n", 2, "a block quote without", "text:\n\n> q\n> r\n"),
    ("[a]: https://x.org\n", 1, "a link definition", "[a](https://x.org).\n"),
    ("[a](https://x.org){.b}\n", 1, "attributes on a link", "<https://x.org>\n"),
    ("Yes.[^a]\n", 1, "footnote 'a' has no text", "Yes.[^a]\n\n[^a]: It is.\n"),
    ("[^a]: It is.\n", 1, "footnote 'a' is never used", "Yes.^[It is.]\n"),
    ("A.[^a]\n\n[^a]: B.\n\n[^a]: C.\n", 5, "given twice", "A.[^a]\n\n[^a]: B.\n"),
    # divs
    ("text:\n::: {.callout-note}\na\n:::\n", 2, "a div without a blank line",
     "::: {.callout-note}\na\n:::\n"),
    ("::: {.callout-note}\na\n", 1, "never closed", "::: {.callout-tip}\na\n:::\n"),
    ("a\n\n:::\n", 3, "closes nothing", "a\n"),
    ("::: callout-note\na\n:::\n", 1, "write '::: {.class}'",
     '::: {.callout-note title="A b" collapse="true"}\na\n:::\n'),
    ("::: {.callout-notes}\na\n:::\n", 1, "did you mean 'callout-note'?",
     "::: {.callout-important #tip-x}\na\n:::\n"),
    ("::: {.callout-note icon=false}\na\n:::\n", 1, "'icon' of a div",
     "::: {.callout-caution}\na\n:::\n"),
    ('::: {.callout-note collapse="yes"}\na\n:::\n', 1, "accepted: true false",
     '::: {.callout-warning collapse="false"}\na\n:::\n'),
    ("::: {layout-ncol=2}\na\n:::\n", 1, "a div without a class",
     "::: {#lst-x}\na\n\nCap\n:::\n"),
    ("::: {.columns}\na\n:::\n", 1, "div class 'columns'",
     "::: {.panel-tabset}\n\n## A\n\na\n\n## B\n\nb\n:::\n"),
    ("::: {#fig-x layout-nrow=2}\na\n\nCap\n:::\n", 1, "'layout-nrow' of a div",
     "::: {#fig-x layout-ncol=2}\na\n\nCap\n:::\n"),
    ("::: {#figure-x}\na\n:::\n", 1, "accepted: #fig- #tbl- #lst-",
     "::: {#tbl-x}\na\n\nCap\n:::\n"),
    ("::: {.callout-note}\n\n# A\n:::\n", 3, "an H1 inside a div",
     "::: {.callout-note}\n\n#### A\n:::\n"),
    # images
    ("![A](a.svg) and text\n", 1, "an image amid text", "![A](a.svg)\n"),
    ("![](a.svg)\n", 1, "without alternative text", '![](a.svg){fig-alt="A"}\n'),
    ("![A](a.svg){#fig-a}\n", 1, "without alternative text",
     '![A](a.svg){#fig-a fig-alt="A {b}"}\n'),
    ("![A](b.svg)\n", 1, "image 'b.svg' is not there", "![A](/book/a.svg)\n"),
    ("![A](https://x.org/a.svg)\n", 1, "a file of this repository", "![A](a.svg)\n"),
    ("![A](a.svg){.big}\n", 1, "'big' of an image", '![A](a.svg){width="50%"}\n'),
    ("![A](a.svg){#img-a}\n", 1, "image label '#img-a'",
     '![A](a.svg){#fig-a fig-alt="A"}\n'),
    # mathematics and code
    ("So $$x$$ holds.\n", 1, "$$ inside a line", "$$\nx\n$$ {#eq-x}\n"),
    ("$$\nx\n\ny\n$$\n", 1, "an equation that is not closed", "$$ x $$\n"),
    ("$$\nx\n$$ {#x}\n", 3, "'{#x}' after $$", "$$ x $$ {#eq-x}\n"),
    ("So \\textbf{x}.\n", 1, "raw TeX '\\textbf'",
     "So $\\mathbf{x}$ and `\\textbf`.\n"),
    ("`x`{.python}\n", 1, "attributes on `code`", "`{python} x`\n"),
    ("```\nx\n```\n", 1, "without a language", "```text\nx\n```\n"),
    ("```pyton\nx\n```\n", 1, "did you mean 'python'?", "```python\nx\n```\n"),
    ("a\n~~~text\nx\n~~~\n", 2, "a ~~~ block without", "a\n\n~~~text\nx\n~~~\n"),
    (f"```text\n{'x' * 89}\n```\n", 2, "89 columns", f"```text\n{'x' * 88}\n```\n"),
    ("```text\n{{< var x >}}\n```\n", 2, "a shortcode",
     "~~~text\n```{{python}}\n```\n~~~\n"),
    # raw text, spans, references
    ("a <b>c</b>\n", 1, "raw HTML '<b>'", "a < b, `<b>` and $a<b>c$\n"),
    ("<!-- a -->\n", 1, "raw HTML '<!--'", "a <= b -- c\n"),
    ("{{< pagebreak >}}\n", 1, "a shortcode", "`{{< pagebreak >}}`\n"),
    ("[a]{.red}\n", 1, "span class 'red'", "[a]{.evidence}\n"),
    ("[a]{#b}\n", 1, "'b' of a span", "[a]{.evidence}\n"),
    ("See @figure-a.\n", 1, "write @fig-", "See @fig-a and @tillet2019triton.\n"),
    ("See @Tbl-a.\n", 1, "write @tbl-", "See [@sec-a; @eq-b], a@tab-b, `@tab-b`.\n"),
    ("See @thm-a.\n", 1, "'@thm-' is not numbered here", "See @lst-a.\n"),
    ("## A {#sec-a}\n\n## B {#sec-a}\n", 3, "already that of line 3",
     "## A {#sec-a}\n\n## B {#sec-b}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "line", "words", "good"), PROSE)
def test_prose_rule(tmp_path: Path, bad: str, line: int, words: str, good: str) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book/a.svg").write_text("<svg/>")
    assert lint_page(tmp_path, TITLE + good) == []
    found = lint_page(tmp_path, TITLE + bad)
    place = f"book/01-x.qmd:{line + 2}: "
    assert any(p.startswith(place) and words in p for p in found), found


# (a wrong cell, the line of the fault in it, words of the message, a right one)
CELLS = [
    (cell("x = 1", "echo: no"), 3, "echo: no; accepted: true false",
     cell("x = 1", "echo: false")),
    (cell("x = 1", "output: as-is"), 3, "accepted: true false asis",
     cell("x = 1", "output: asis")),
    (cell("x", "fig-cap: A: b", 'fig-alt: "B"', label="fig-a"), 3,
     "fig-cap without quotation marks",
     cell("x", 'fig-cap: "A: b"', "fig-alt: 'it''s'", label="fig-a")),
    (cell("x", 'fig-cap: "A"', label="fig-a"), 3, "without alternative text",
     cell("x", 'fig-cap: "A"', 'fig-alt: "B"', label="fig-a")),
    (cell("x", label="fig-a"), 2, "'fig-a' without a caption",
     cell("x", 'tbl-cap: "A"', label="tbl-a")),
    (cell("x", 'tbl-cap: "A"'), 3, "write label: tbl-one", cell("x")),
    (cell("x", 'lst-cap: "A"'), 3, "lst-cap without lst-label",
     cell("x", 'lst-cap: "A"', "lst-label: lst-a")),
    (cell("x", 'lst-cap: "A"', "lst-label: a"), 4, "write lst-label: lst-name",
     cell("x", 'lst-cap: "A"', "lst-label: lst-b")),
    (cell("x = " + "1" * 90), 3, "94 columns", cell("x = " + "1" * 84)),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "line", "words", "good"), CELLS)
def test_cell_rule(tmp_path: Path, bad: str, line: int, words: str, good: str) -> None:
    assert lint_page(tmp_path, TITLE + SETUP + good) == []
    above = (TITLE + SETUP).count("\n")
    found = lint_page(tmp_path, TITLE + SETUP + bad)
    place = f"book/01-x.qmd:{above + line}: "
    assert any(p.startswith(place) and words in p for p in found), found


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (cell("x = 1"), "the first cell is 'one'; begin with a cell 'setup'"),
        (SETUP.replace('"x"', '"y"'), "loom.begin('y'); begin with"),
        (SETUP.replace("false", "true"), "the setup cell is shown"),
        (SETUP.replace("loom.begin", "begin"), "the first cell is 'setup'; begin"),
    ],
)
def test_the_first_cell_is_the_setup(tmp_path: Path, first: str, words: str) -> None:
    assert words in "".join(lint_page(tmp_path, TITLE + first))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Just text.\n", ":1: no H1"),
        ("## A\n\n# Title {#sec-a}\n", ":1: a section before the H1"),
        ("# Title\n", ":1: an H1 without a label"),
        ("---\ntitle: A\n---\n\n# Title {#sec-a}\n", ":2: title in the YAML header"),
        ("---\nfoo: A\n---\n\n# Title {#sec-a}\n", ":2: 'foo' in the YAML header"),
        ("---\njupyter: a\n\n# Title {#sec-a}\n", ":1: a YAML header that is never"),
    ],
)
def test_the_head_of_a_page(tmp_path: Path, text: str, words: str) -> None:
    assert words in "".join(lint_page(tmp_path, text))
    good = "---\njupyter: python3\n---\n\n# Title {#sec-a .unnumbered}\n"
    assert lint_page(tmp_path, good) == []


@pytest.mark.parametrize(
    "numbered",
    [
        "$$ x $$ {#eq-a}\n",
        "| a |\n|---|\n\n: Cap {#tbl-a}\n",
        "::: {#fig-a}\na\n\nCap\n:::\n",
        SETUP + cell("x", 'tbl-cap: "A"', label="tbl-a"),
        SETUP + cell("x", 'lst-cap: "A"', "lst-label: lst-a"),
    ],
)
def test_unnumbered_pages_carry_no_numbered_floats(
    tmp_path: Path, numbered: str
) -> None:
    assert lint_page(tmp_path, TITLE + numbered) == []
    title = "# Title {#sec-title .unnumbered}\n\n"
    assert "unnumbered page" in "".join(lint_page(tmp_path, title + numbered))


def test_labels_are_unique_in_the_book(tmp_path: Path) -> None:
    two = {
        "book/01-x.qmd": TITLE + "$$ x $$ {#eq-a}\n",
        "book/02-y.qmd": TITLE.replace("title", "other") + "$$ x $$ {#eq-a}\n",
    }
    assert lint_texts(tmp_path, two) == [
        "book/02-y.qmd:3: label 'eq-a' is already at book/01-x.qmd:3; rename one"
    ]
    two["book/02-y.qmd"] = two["book/02-y.qmd"].replace("eq-a", "eq-b")
    assert lint_texts(tmp_path, two) == []


def pages(tmp_path: Path, first: str, second: str) -> list[str]:
    """Two chapters with a tangled cell each, `one` before `two`."""
    setup = {name: SETUP.replace('"x"', f'"{name}"') for name in ("one", "two")}
    return lint_texts(
        tmp_path,
        {
            f"book/0{n}-{name}.qmd": f"# Title {{#sec-{name}}}\n\n"
            + setup[name]
            + cell(code, "tangle: true", label=f"code-{name}")
            for n, (name, code) in enumerate({"one": first, "two": second}.items(), 1)
        },
    )


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("from generated.two import f", "", "01-one.qmd:13: a tangled cell imports"),
        ("def f():\n    import generated.two", "", "01-one.qmd:14: a tangled cell"),
        ("from generated import two", "", "'generated.two', which is no earlier"),
        ("", "import generated.three", "(earlier: one)"),
        ("", "from .one import f", "a relative import ('.one')"),
        ("", "from loom import trace", "imports 'loom'; accepted"),
        ("import pandas as pd", "", "imports 'pandas'; accepted"),
    ],
)
def test_tangled_cells_import_from_earlier_chapters(
    tmp_path: Path, first: str, second: str, words: str
) -> None:
    good = "import math\nimport torch\nimport triton.language as tl\nimport numpy"
    checked = "if TYPE_CHECKING:\n    from generated.two import f"
    assert pages(tmp_path, f"{good}\n{checked}", "from generated.one import f") == []
    assert words in "".join(pages(tmp_path, first, second))


IMPURE = [
    ("print('x')", "a call of print()", "def f():\n    print('x')"),
    ("f[(1,)](x)", "a kernel launch", "def f(x):\n    k[(1,)](x)"),
    ("y = f[(1,)](x)", "a kernel launch", "y = f(1)"),
    ("x = torch.zeros(3)", "a call of torch.zeros()",
     "x = torch.finfo(torch.half).eps"),
    ("x", "an expression that is displayed", '"""A docstring."""'),
    ("f()", "a call of f()", "torch.library.register_fake('a::b')"),
    ("assert x", "an assertion", "def f():\n    assert x"),
    ("for i in y:\n    print(i)", "print()", "for n in y:\n    register(n)"),
    ("if x:\n    plot.show()", "show()", "if __name__ == '__main__':\n    print(x)"),
    ("try:\n    a = 1\nexcept E:\n    print(x)", "print()",
     "try:\n    import numpy\nexcept E:\n    pass"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "words", "good"), IMPURE)
def test_tangled_cells_are_pure_on_import(
    tmp_path: Path, bad: str, words: str, good: str
) -> None:
    assert pages(tmp_path, good, "") == []
    assert words in "".join(pages(tmp_path, bad, ""))


REPLAYED = [
    ("t = f()", "print(t)", "t = 2\nprint(t)"),
    ("t = f()", "t += 1", "t, u = 0, 1\nprint(t)"),
    ("t = f()", "def g():\n    return t", "def g(t):\n    return t"),
    ("t = f()", "y = lambda x: x + t", "y = lambda t: t"),
    ("for t in f():\n    g(t)", "[s for s in t]", "[t for t in s]"),
    ("import t", "t.a()", "captured('cap').a()"),
    ("(t := f())", "del t", "t = 1\ndel t"),
    ("[(t := i) for i in x]", "class A:\n    u = t", "class A:\n    t = 1\n    u = t"),
    ("match f():\n    case [t]:\n        pass", "def g(a: t):\n    pass",
     "with a:\n    t = 1\n    print(t)"),
    ("def t():\n    pass", "[t for t in t]", "[t for t in range(3)]"),
    ("class t:\n    pass", "f'{t}'", "f'{1:{2}}'"),
    ("def g():\n    global t\n    t = 1", "async def h():\n    await t",
     "def h():\n    t = 1\n    return lambda: t"),
    ("try:\n    t = 1\nexcept E:\n    pass", "if x:\n    t = 1\nelse:\n    print(t)",
     "for t in x:\n    print(t)"),
    ("import a.b as t", "t.c = 1", "import a as t\nt.c()"),
    ("with f() as t:\n    pass", "def g(a=t):\n    pass",
     "def g(a=0):\n    t = a\n    t"),
]  # fmt: skip


@pytest.mark.parametrize(("capture", "bad", "good"), REPLAYED)
def test_names_of_a_capture_cell_are_not_read_later(
    tmp_path: Path, capture: str, bad: str, good: str
) -> None:
    text = TITLE + SETUP + cell(capture, "capture: gpu", label="cap") + "\n"
    assert lint_page(tmp_path, text + cell(good)) == []
    found = "".join(lint_page(tmp_path, text + cell(bad)))
    assert "'t' is bound in the capture cell 'cap' (line 10)" in found


CHANGED = [
    ("rows.append(1)", "print(rows)"),
    ("rows['a'] = 1", "f'{rows}'"),
    ("rows.size += 1", "rows.size"),
]


@pytest.mark.parametrize(("capture", "bad"), CHANGED)
def test_what_a_capture_cell_changes_is_not_read_later(
    tmp_path: Path, capture: str, bad: str
) -> None:
    first = TITLE + SETUP + cell("rows = f()", label="first") + "\n"
    text = first + cell(capture, "capture: gpu", label="cap") + "\n"
    found = "".join(lint_page(tmp_path, text + cell(bad)))
    assert "'rows' is changed in the capture cell 'cap'" in found
    assert lint_page(tmp_path, text + cell("rows = 1\nprint(rows)")) == []


def test_names_of_a_capture_cell_are_not_read_in_prose(tmp_path: Path) -> None:
    text = TITLE + SETUP + cell("t = f()", "capture: gpu", label="cap")
    assert "'t' is bound" in "".join(lint_page(tmp_path, text + "\n`{python} t`\n"))
    capture = text.removeprefix(TITLE + SETUP)
    before = TITLE + SETUP + "`{python} t`\n\n" + capture
    assert lint_page(tmp_path, before) == []
    again = text + "\n" + cell("t = 1") + "\n`{python} t`\n"
    assert lint_page(tmp_path, again) == []


def test_an_import_repeated_in_a_capture_cell_stays_bound(tmp_path: Path) -> None:
    first = cell("import torch") + "\n"
    text = cell("import torch", "capture: gpu", label="cap") + "\n"
    last = cell("torch.add", label="two")
    assert lint_page(tmp_path, TITLE + SETUP + first + text + last) == []
    assert lint_page(tmp_path, TITLE + SETUP + text + last) != []


@pytest.mark.parametrize(
    ("section", "settings", "words"),
    [
        ("book", {"autor": "x"}, "_quarto.yml:2: 'book: autor' is not read; did you"),
        ("format", {"pdf": {}}, "'format: pdf' is not read; accepted: html typst"),
        ("execute", {"freeze": "auto"}, "freeze would keep outputs"),
    ],
)
def test_settings(tmp_path: Path, section: str, settings: dict, words: str) -> None:
    (tmp_path / "_quarto.yml").write_text("book:\n  autor: x\n")
    config = {"book": {"title": "x", "author": "y"}}
    assert lint_texts(tmp_path, {}, config) == []
    config[section] = {**config.get(section, {}), **settings}
    assert words in "".join(lint_texts(tmp_path, {}, config))


def test_a_book_has_an_author(tmp_path: Path) -> None:
    (tmp_path / "_quarto.yml").write_text("book:\n  title: x\n")
    found = lint_texts(tmp_path, {}, {"book": {"title": "x"}})
    assert found == [
        "_quarto.yml:1: a book without an author fails in Typst; add author:"
    ]


def test_the_book_passes() -> None:
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((ROOT / "_quarto.yml").read_text(encoding="utf-8"))
    found = lint.check(tangle.read_book(ROOT), config)
    assert found == [], "\n".join(map(str, found))


def test_contributing_prints_the_subset() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert subset.markdown() in text, (
        "CONTRIBUTING.md: its table of the subset is not that of loom/subset.py;"
        " paste what `python -m loom.lint --subset` prints"
    )


def test_the_command_prints_faults_and_fails(tmp_path: Path, capsys) -> None:
    (tmp_path / "_quarto.yml").write_text("book:\n  chapters:\n    - index.qmd\n")
    code = cell("x = 1", "tangle: true")
    (tmp_path / "index.qmd").write_text(f"# T {{#sec-t}}\n\nA <b>.\n\n{code}")
    assert lint.main(["--root", str(tmp_path)]) == 1
    assert "index.qmd:3: raw HTML" in capsys.readouterr().err
    assert lint.main(["--subset"]) == 0
    assert capsys.readouterr().out == subset.markdown()


def test_a_chapter_of_1500_lines_takes_under_a_fifth_of_a_second(
    tmp_path: Path,
) -> None:
    section = "## A section\n\nOne sentence with `code` and $x < y$ in it.\n" * 2
    text = TITLE + SETUP + section * 200 + "\n" * 300
    path = tmp_path / "01-x.qmd"
    path.write_text(text.replace("it.\n##", "it.\n\n##"))
    book = tangle.Book(tmp_path, (tangle.read_chapter(path, "01-x.qmd"),))
    start = time.perf_counter()
    assert lint.check(book) == []
    assert time.perf_counter() - start < 0.2

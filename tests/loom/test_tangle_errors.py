"""Every fault is reported with its line and its mend, all of them in one run."""

from __future__ import annotations

from pathlib import Path

import pytest

import tangle
from tests.loom.chapters import INDEX, Folder, cell, faults

OPEN = "```{python}"


def options(*lines: str, code: str = "x = 1") -> str:
    """A cell whose option lines are given."""
    return "\n".join([OPEN, *lines, code, "```", ""])


A, B = cell("x = 1", tangled=False), cell("y = 1", label="b", tangled=False)
CAPTURE = ["#| label: a", "#| capture: gpu"]

# The text, the line, words of what is wrong and of the mend, a sibling that is right.
ROWS = [
    # how a cell may be written
    (A.replace(OPEN, '```{python filename="x"}'), 1, "attributes", "'#|' lines", A),
    (A.replace(OPEN, "```{python, echo=FALSE}"), 1, "attributes", "'#|' lines", A),
    (A.replace(OPEN, "``` {python}"), 1, "white space around", f"write {OPEN}", A),
    (A.replace(OPEN, "```{python }"), 1, "white space around", f"write {OPEN}", A),
    (A.replace(OPEN, "```{python3}"), 1, "is no cell", f"write {OPEN}", A),
    (A.replace(OPEN, "```{.python}"), 1, "is no cell", "```language", A),
    (A.replace(OPEN, "```{mermaid}"), 1, "is no cell", "```language", A),
    (A.replace(OPEN, "```{{python}}"), 1, "is no cell", "```language",
     f"~~~\n{A.replace(OPEN, '```{{python}}')}~~~\n"),
    ("  ```{python}\n  x\n  ```\n", 1, "an indented cell", "column 0", A),
    ("\t```{python}\n\tx\n\t```\n", 1, "an indented cell", "column 0", A),
    ("- item\n\n    ```{python}\n    x\n    ```\n", 3, "an indented cell", "column 0",
     f"- item\n\n{A}"),
    (f"````{{python}}\nx\n````\n{A}", 1, "four or more backticks", "use three", A),
    (f"````\n{A}````\n", 1, "four or more backticks", "use ~~~", f"~~~\nx\n~~~\n{A}"),
    (f"````\n{A}````\n", 2, "inside the fenced block of line 1", "~~~ and {{python}}",
     f"~~~\n{A.replace(OPEN, '```{{python}}')}~~~\n"),
    (f"~~~\n{A}~~~\n", 2, "inside the fenced block of line 1", "~~~ and {{python}}",
     f"~~~\n{A.replace('```', '> ```')}~~~\n"),
    (f"~~~~\n~~~\n{A}~~~\n~~~~\n", 3, "inside the fenced block of line 1", "close the",
     f"~~~~\n~~~\nx\n~~~\n~~~~\n{A}"),
    (f"```python\nx\n{A}", 3, "inside the fenced block of line 1", "close the block",
     f"```python\nx\n```\n{A}"),
    (f"<!--\n{A}-->\n", 2, "inside the comment of line 1", "-->", f"<!-- x -->\n{A}"),
    (f"x <!-- `y\nz`\n{A}", 3, "inside the comment of line 1", "-->",
     f"x `<!--` ``<!-- ` `` y\nz\n{A}"),
    (f"<!-- a --> <!--\n-->\nb <!-- c\n{A}-->\n", 4, "inside the comment of line 3",
     "-->", f"<!-- a --> <!--\n-->\nb <!-- c\n-->\n{A}"),
    ("a\n<!-- b\n", 2, "a comment that is never closed", "end it with -->",
     "a\n<!-- b\n-->\n"),
    (f"<!-- #region -->\n{A}<!-- #endregion -->\n", 1, "jupytext region", "delete",
     f"<!-- region -->\n{A}"),
    ("{{< include x.qmd >}}\n", 1, "an include", "put its text here",
     "`{{< include x.qmd >}}`\n"),
    # fences that hide or cut a cell
    (f"```inline``` text\n{A}", 1, "begins with ```code```", "single backticks",
     f"`inline` text, a ```b```\n\n{A}"),
    (f"- ```python\n  x\n  ```\n{A}", 1, "behind a list marker", "line of its own",
     f"- a ```b``` c\n\n  ```python\n  x\n  ```\n{A}"),
    (f"```text\nx\n````\n{A}", 3, "'````' closes line 1", "write '```'",
     f"```text\nx\n```\n{A}"),
    (f"```text\nx\n  ```\n{A}", 3, "'  ```' closes line 1", "write '```'",
     f"  ```text\n  x\n  ```\n{A}"),
    (f"  ```text\nx\n```\n{A}", 3, "'```' closes line 1", "write '  ```'",
     f"```text\nx\n```\n{A}"),
    (f"~~~\nx\n~~~~\n{A}", 3, "'~~~~' closes line 1", "write '~~~'",
     f"~~~~\n~~~\n~~~~\n{A}"),
    ("a\n```text\nx\n", 2, "a fence that is never closed", "end it with '```'",
     "a\n```text\nx\n```\n"),
    (f"~~~\n```text\n~~~\n{A}", 2, "without its pair", "pair it",
     f"~~~\n```text\n```\n~~~\n{A}"),
    (f"~~~\n```{{bash}}\nls\n```\n~~~\n{A}", 2, "inside the fenced block", "{{python}}",
     f"~~~\n```{{{{bash}}}}\nls\n```\n~~~\n{A}"),
    ("```{python}\n#| label: a\nx\n", 1, "a cell that is never closed", "```", A),
    (f"```{{python}}\n#| label: a\nx\n\nProse.\n\n{B}", 1, "above the one of line 7",
     "end it with ```", f"{A}\nProse.\n\n{B}"),
    (A.replace("\n```\n", "\n````\n"), 4, "closes a cell for some", "at column 0", A),
    (A.replace("\n```\n", "\n  ```\n"), 4, "closes a cell for some", "at column 0", A),
    (A.replace("x = 1", 's = """\n  ```\n"""'), 4, "closes a cell for some",
     "in a string", A.replace("x = 1", 's = """\n  ```text\n"""')),
    (A.replace("x = 1", 's = """\n```text\n```\n"""\n'), 4, "``` at column 0 cuts",
     "indent it", A.replace("x = 1", 's = """\n ```text\n"""')),
    (A.replace("x = 1", 's = """\n```') + 'x\n"""\n```\n', 4, "ends inside a string",
     "indent the ```", A.replace("x = 1", "s = '# \\'' # \"\"\"\nt = \"'''\"")),
    (A.replace("x = 1", 's = """\n```{python}\n"""'), 1, "above the one of line 4",
     "{{python}}", A.replace("x = 1", 's = """\n ```{{python}}\n"""')),
    (cell("x = 1", "# ```"), 5, "'# ```' would end the tangled cell", "indent",
     cell("x = 1", "    # ```", "#```")),
    (cell("# ```python"), 4, "'# ```' would end", "reword", cell("# `python`")),
    ("---\na: |\n  ```{python}\n---\n", 3, "in the YAML header", "move it below",
     "---\na: |\n  ~~~\n---\n"),
    ("---\n<!-- a -->\nb: c\n---\n", 2, "in the YAML header", "move it below",
     "---\n# a\nb: c\n---\n"),
    # options
    (options("# | label: a"), 2, "no option line", "'#| key: value'", A),
    (options("#| label: a", "# | tangle: true"), 3, "no option line", "#| key: value",
     cell("x = 1", "# | a |")),
    (options("#| label: a", "#|tangle: true"), 3, "no option line", "#| key: value", A),
    (options("#| label: a", "#| tangle:true"), 3, "no option line", "#| key: value", A),
    (options("#| label: a", "#| export"), 3, "no option line", "#| key: value", A),
    (options("#| label: a", "#|"), 3, "no option line", "#| key: value", A),
    (options("#|   - b", "#| label: a"), 2, "no option line", "#| key: value",
     options("#| label: a", "#| fig-subcap:", '#|   - "b"')),
    (options("#| label: a", "#| eco: false"), 3, "unknown option 'eco'", "'echo'?",
     options("#| label: a", "#| echo: false")),
    (options("#| label: a", "#| Echo: false"), 3, "unknown option 'Echo'", "'echo'?",
     options("#| label: a", "#| echo: false")),
    (options("#| label: a", "#| zzz: 1"), 3, "unknown option 'zzz'", "code-fold", A),
    (options("#| label: a", "#| echo: true", "#| echo: false"), 4, "given twice",
     "delete one", options("#| label: a", "#| echo: false")),
    (options("#| echo: false"), 1, "a cell without a label", "#| label:", A),
    (options("#| label:"), 2, "a cell without a label", "kebab-case", A),
    (options("#| label: A_b"), 2, "label 'A_b'", "kebab-case", A),
    (options('#| label: "a"'), 2, "label '\"a\"'", "kebab-case", A),
    (options("#| label: a # b"), 2, "label 'a # b'", "kebab-case", A),
    (A + A, 6, "label 'a' is already that of line 1", "rename", A + B),
    *[
        (options("#| label: a", f"#| tangle: {value}"), 3, f"tangle: {value}",
         "write '#| tangle: true'", options("#| label: a", "#| tangle: true"))
        for value in ("True", '"true"', "yes", "true # now", "", "falsch", "TRUE")
    ],
    (options("#| label: a", "#| tangle:  true"), 3, "tangle: true", "write",
     options("#| label: a", "#| tangle: false")),
    (options("#| label: a", "#| tangle: true "), 3, "white space at the end", "delete",
     cell("x = 1 ")),
    (options("#| label: a", "#| capture: cpu"), 3, "capture: cpu", "capture: gpu",
     options(*CAPTURE)),
    (options(*CAPTURE, "#| tangle: true"), 3, "tangled cell that is a capture", "split",
     options(*CAPTURE, "#| tangle: false")),
    *[
        (options("#| label: a", "#| tangle: true", f"#| eval: {value}"), 4,
         "tangled but not run", "drop one",
         options("#| label: a", "#| tangle: true", "#| eval: true"))
        for value in ("false", "False", "no", '"false"', "")
    ],
    (options(*CAPTURE) + options("#| label: b", CAPTURE[1], code="\nx = 1"), 8,
     "same source as that of line 1", "make them differ",
     options(*CAPTURE) + options("#| label: b", CAPTURE[1], code="x = 2")),
    (options("#| label: a", code="x = 1\n#| tangle: true"), 4, "below the first line",
     "move it up", options("#| label: a", code="x = 1\n# | tangle: true")),
    (options("", "#| label: a"), 3, "below the first line of code", "move it up", A),
    # what the module cannot hold, or would run
    (cell("%time x"), 4, "a magic or shell line", "a module cannot run it",
     cell("%time x", tangled=False)),
    (cell("x = 1", "!ls"), 5, "a magic or shell line", "a module cannot run it",
     cell("x = (3", "% 2)", 's = """', "!ls", '"""')),
    (cell("x = ("), 4, "SyntaxError: '(' was never closed (cell 'a')", "mend the code",
     cell("x = (", tangled=False)),
    (cell("from __future__ import division", "x = 1")
     + cell("from __future__ import annotations", label="b"), 10, "__future__",
     "keep one",
     cell('"""D."""', "from __future__ import annotations") + "\n" + cell(label="b")),
    # characters
    ("a\rb = 1\n", 1, "a carriage return", "use LF", "a b = 1\n"),
    ("a\r\nb\r\n", 1, "a carriage return", "(on 2 lines)", "a\nb\n"),
    ("a\nb\0\n", 2, "a NUL character", "delete it", "a\nb\n"),
    ("\ufeffa\n", 1, "a byte order mark", "without it", "a\n"),
    ("a\nb\udcff\n", 2, "not UTF-8", "save as UTF-8", "a\nbÿ\n"),
    ("a\nb", 2, "no newline at the end", "add one", "a\nb\n"),
    ("# Encoding: bfloat16\n", 1, "a coding declaration", "move it down",
     "\n\n# Encoding: bfloat16\n"),
    ("\na coding=x\n", 2, "a coding declaration", "reword", "\na coding = x\n"),
    (options("#| label: a", "#| tangle: true").replace("a\n", "a coding: x\n"), 2,
     "a coding declaration", "reword", A),
    ("a \n", 1, "white space at the end", "delete it", "a\n"),
    ("a\n\t\n", 2, "white space at the end", "delete it", "a\n\n"),
    ("a\u00a0\n", 1, "white space at the end", "delete it", "a\u00a0b\n"),
    ("~~~\na \n~~~\n", 2, "white space at the end", "delete it", "~~~\na\n~~~\n"),
    (cell("x = 1 ", tangled=False), 3, "white space at the end", "delete it",
     cell("x = 1 ", "  ")),
    (A.replace(OPEN, OPEN + " "), 1, "white space", "delete it", A),
    (A.replace("\n```\n", "\n``` \n"), 4, "white space", "delete it", A),
    *[
        (f"a\n\n{mark}\n", 3, "merge conflict", "resolve", f"a\n\n{mark[1:]}x\n")
        for mark in ("<<<<<<< HEAD", "=======", ">>>>>>> b", "||||||| base")
    ],
    (cell("<<<<<<< HEAD", "x = 1"), 4, "merge conflict", "resolve", cell("x = 1 << 7")),
    (cell("=======", tangled=False), 3, "merge conflict", "resolve",
     cell("x == 7", tangled=False)),
    ("a\u2028```text\nb\n", 1, "a line separator before ```", "start a new line",
     "a\u2028b\n```text\nb\n```\n"),
    ("\x0c```{python}\n#| label: a\n```\n", 1, "an indented cell", "column 0",
     "\x0c\n```{python}\n#| label: a\n```\n".replace("\x0c\n", "\x0cb\n")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "what", "mend", "right"), ROWS)
def test_a_fault_is_named_with_its_line_and_its_mend(
    text: str, line: int, what: str, mend: str, right: str
) -> None:
    found = [p for p in faults(text) if p.line == line and what in p.message]
    assert found, f"{line}: {what} is not among {[str(p) for p in faults(text)]}"
    assert any(mend in problem.message.partition(what)[2] for problem in found)
    assert str(found[0]).startswith(f"book/01-jit.qmd:{line}: ")
    assert faults(right) == []


@pytest.mark.parametrize("text", [
    "",
    "\n",
    "# Only a heading\n",
    "---\ndescription: x\n---\n",
    f"::: {{.callout-note}}\n{A}:::\n",
    f"~~~{{python}}\nx\n~~~\n{A}",
    f"> ```{{python}}\n> x\n> ```\n\n{A}",
    f"Inline `{{python}} x` and `<!--`.\n\n{A}",
    "```{python}\n#| label: a\n```\n",
    f"{'x' * 100_000}\n{A}",
    f"a\x0cb\x0bc\x1cd\x1de\x1ef\x85g\u2028h\u2029i\n{A}",
    f"    indented\n\n    code\n\n{A}",
    cell("s = '\\'\"\"\"'"),
    cell("x = '\\\\'", 's = """', "'''", '"""', "t = 'it''s'"),
])  # fmt: skip
def test_what_is_accepted(text: str) -> None:
    assert faults(text) == []


def test_separators_do_not_cut_lines() -> None:
    code = cell("x = 1", "s = chr(1)  # \x0c \u2028", "y = 2")
    text = "a\x0cb\x85c\u2028d\n" + code
    chapter = tangle.read_chapter(Path("x.qmd"), "book/x.qmd", text)
    (found,) = chapter.cells
    assert (found.first, found.last, found.code_line) == (2, 8, 5)
    assert chapter.tangled.split("\n")[6] == "y = 2"


def test_all_faults_of_a_chapter_in_one_run() -> None:
    text = "a \n<<<<<<< b\n  ```{python}\n  ```\n" + options("#| eco: 1") + "c\rd"
    assert [p.line for p in faults(text)] == [1, 2, 3, 5, 6, 9, 9]


def test_a_fence_that_is_open_does_not_hide_the_faults_below() -> None:
    for opening in ("```python\n", "```{python}\n#| label: b\n", "``` {python}\n"):
        lines = [p.line for p in faults(opening + "x\n" + options("#| eco: 1"))]
        n = opening.count("\n") + 2
        assert lines[-3:] == [n, n, n + 1] or lines == [1, n, n + 1], lines


def test_all_faults_of_all_chapters_in_one_run_in_page_order(tmp_path: Path) -> None:
    book = Folder(tmp_path, zeta="a \n\nb \n", alpha=cell("x = (") + cell("y = )"))
    book.list_pages("index.qmd", "book/zeta.qmd", "book/gone.qmd", "book/alpha.qmd")
    book.write("book/unlisted.qmd", "a\n")
    run = book.run()
    assert run.returncode == 1 and run.stdout == ""
    places = [line.split(": ")[0] for line in run.stderr.splitlines()]
    assert places == [
        "_quarto.yml:5",
        "book/zeta.qmd:1",
        "book/zeta.qmd:3",
        "book/alpha.qmd:4",
        "book/alpha.qmd:7",
        "book/alpha.qmd:9",
        "book/unlisted.qmd:1",
    ]
    assert not (tmp_path / "generated").exists() and not (tmp_path / ".tangle").exists()


def test_each_tangled_cell_with_a_syntax_error_is_named() -> None:
    text = cell("x = (") + cell("y = 1", label="b") + cell("z = )", "%x", label="c")
    assert [p.line for p in faults(text)] == [4, 15]
    assert faults(cell("return 1"))[0].message.startswith("SyntaxError: 'return'")


def book_faults(root: Path) -> list[str]:
    with pytest.raises(tangle.BookError) as error:
        tangle.read_book(root)
    assert set(error.value.problems) <= set(tangle.check(root))
    return str(error.value).split("\n")


def test_faults_between_chapters(tmp_path: Path) -> None:
    figure = cell("x = 1", label="fig-a", tangled=False)
    listing = options("#| label: b", "#| lst-label: fig-a")
    book = Folder(
        tmp_path,
        **{"01-jit": figure, "02-jit": listing, "class": figure, "a-b.c": A},
    )
    book.write("index.qmd", "# Preface\n")
    found = book_faults(tmp_path)
    assert [line.partition(";")[0] for line in found] == [
        "index.qmd:1: no tangled cell",
        "book/02-jit.qmd:1: module 'jit' is already that of book/01-jit.qmd",
        "book/02-jit.qmd:1: label 'fig-a' is already at book/01-jit.qmd:1",
        "book/a-b.c.qmd:1: 'b.c' cannot name a module",
        "book/class.qmd:1: 'class' cannot name a module",
        "book/class.qmd:1: label 'fig-a' is already at book/01-jit.qmd:1",
    ]


def test_labels_that_nothing_refers_to_may_be_alike(tmp_path: Path) -> None:
    Folder(tmp_path, one=A, two=A)
    assert len(tangle.read_book(tmp_path).chapters) == 3


def test_the_page_order(tmp_path: Path) -> None:
    book = Folder(tmp_path, **{"a-x": "a\n", "sub/02-y": "a\n", "b-self-check-quiz": A})
    book.write("book/.#x.qmd", "an editor's own file")
    book.write(
        "_quarto.yml",
        "book:\n  chapters:\n    - index.qmd\n    # - book/no.qmd\n"
        '    - part: "book/sub/02-y.qmd"\n      chapters:\n'
        "        - href: 'book/b-self-check-quiz.qmd'\n"
        "  appendices:\n    - book/a-x.qmd  # last\n",
    )
    names = [chapter.name for chapter in tangle.read_book(tmp_path).chapters]
    assert names == ["__init__", "y", "self_check_quiz", "x"]


@pytest.mark.parametrize(("config", "said"), [
    (None, "_quarto.yml:1: not found"),
    ("book:\n", "_quarto.yml:1: no chapter is listed; write each as '- path.qmd'"),
    ("chapters: [index.qmd\n", "_quarto.yml:1: no chapter is listed; write each"),
    ("- book/jit.qmd\n", "_quarto.yml:1: index.qmd, the home page, is not listed"),
    ("- index.qmd\n- index.qmd\n", "_quarto.yml:2: index.qmd is listed twice"),
    ("- index.qmd\n- no.qmd\n", "_quarto.yml:2: no.qmd does not exist"),
    ("- index.qmd\n", "book/jit.qmd:1: not listed in _quarto.yml"),
])  # fmt: skip
def test_faults_of_the_page_order(
    tmp_path: Path, config: str | None, said: str
) -> None:
    book = Folder(tmp_path)
    if config is None:
        (tmp_path / "_quarto.yml").unlink()
    else:
        book.write("_quarto.yml", config)
    assert any(line.startswith(said) for line in book_faults(tmp_path))
    run = book.run()
    assert run.returncode == 1 and said in run.stderr and "Traceback" not in run.stderr
    assert book.files() == {**book.files(), "index.qmd": INDEX.encode()}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "book" / "no.qmd"
    with pytest.raises(tangle.BookError, match="book/no.qmd:1: does not exist"):
        tangle.read_chapter(missing, "book/no.qmd")
    book = Folder(tmp_path)
    (tmp_path / "generated" / "jit.py").mkdir(parents=True)
    run = book.run()
    assert run.returncode == 1 and "jit.py:1: Is a directory" in run.stderr


def test_a_chapter_that_is_not_utf_8(tmp_path: Path) -> None:
    book = Folder(tmp_path)
    (tmp_path / "book" / "jit.qmd").write_bytes(b"a\n\xff\n")
    assert "book/jit.qmd:2: a byte that is not UTF-8" in book.run().stderr


def test_arguments(tmp_path: Path) -> None:
    book = Folder(tmp_path)
    assert book.run("jit").returncode == 2
    assert book.run("--check", "--sync").returncode == 2
    assert book.run("--take", "both").returncode == 2
    run = book.run("--take", "module", "nobody")
    assert run.returncode == 1 and "no chapter is named 'nobody'" in run.stderr

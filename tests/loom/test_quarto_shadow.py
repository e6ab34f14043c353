"""The shadow project that Quarto gets, and how its answers are read."""

from __future__ import annotations

import json
import os
import stat

import nbformat
import pytest
import yaml

import tangle
from loom import build, quarto
from loom.execute import Results, assemble
from loom.keys import Sources
from loom.parts import split

ONE = """\
---
jupyter: python3
---

# One {#sec-one}

See [Two](02-two.qmd#sec-b) and [home](../index.qmd), value `{python} x`.

```{python}
#| label: fig-a
#| fig-cap: "A"
#| fig-alt: "a"
x = 1
```

End @fig-a.
"""

OUTPUTS = [
    {"output_type": "stream", "name": "stdout", "text": "out\n"},
    {
        "output_type": "display_data",
        "data": {"image/svg+xml": "<svg/>", "text/plain": "x"},
        "metadata": {},
    },
    {
        "output_type": "execute_result",
        "data": {"text/plain": "1"},
        "metadata": {},
        "execution_count": None,
    },
    {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["t"]},
]


@pytest.fixture
def book(make_book):
    book = make_book()
    book.write("book/01-one.qmd", ONE)
    book.write("book/02-two.qmd", "# Two {#sec-two}\n\n## B {#sec-b}\n\nText.\n")
    book.write("book/references.bib", "@book{a, title={A}}\n")
    book.write("book/theme/print.css", "p {}\n")
    return book.read()


def woven(book):
    sources = Sources(book.root)
    results = {
        "one": Results({"fig-a": OUTPUTS}, ["1"]),
        "two": Results(),
        "__init__": Results({"setup": [], "package": []}),
    }
    return [assemble(sources, split(c), results[c.name]) for c in book.chapters]


def test_the_shadow_is_a_book_of_executed_notebooks(book, tmp_path):
    shadow = tmp_path / "shadow"
    quarto.write_shadow(woven(book), book, shadow)
    config = yaml.safe_load((shadow / "_quarto.yml").read_text())
    assert config["book"]["chapters"] == [
        "index.ipynb",
        "book/01-one.ipynb",
        "book/02-two.ipynb",
    ]
    assert config["execute"]["enabled"] is False
    assert "pre-render" not in config["project"]
    assert config["project"]["execute-dir"] == "project"
    assert (shadow / "book/references.bib").exists()
    assert (shadow / "book/theme/print.css").exists()
    assert not list(shadow.rglob("*.qmd"))


def test_a_notebook_is_valid_and_complete(book, tmp_path):
    shadow = tmp_path / "shadow"
    quarto.write_shadow(woven(book), book, shadow)
    found = nbformat.read(shadow / "book/01-one.ipynb", as_version=4)
    nbformat.validate(found)
    raw, before, cell, after = found.cells
    assert (raw.cell_type, raw.source) == ("raw", "---\njupyter: python3\n---")
    assert "[Two](02-two.ipynb#sec-b) and [home](../index.ipynb), value 1." in (
        before.source
    )
    assert cell.source.startswith("#| label: fig-a\n#| fig-cap:")
    assert cell.metadata == {} and len(cell.outputs) == 4
    assert after.source == "End @fig-a."


FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo {version}; exit 0; fi
test "$1" = render && test -f "$2/index.ipynb" || exit 9
mkdir -p "$2/_book/book"
echo "$4" >> "$2/_book/formats"
echo page > "$2/_book/index.html"
{more}
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    def install(version="1.10.18", more=""):
        path = tmp_path / "bin" / "quarto"
        path.parent.mkdir(exist_ok=True)
        path.write_text(FAKE.format(version=version, more=more))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
        return str(path)

    return install


def test_quarto_renders_both_formats_into_the_folder(book, tmp_path, fake):
    binary = fake()
    assert quarto.find() == binary
    out = tmp_path / "out"
    files = quarto.render(woven(book), book, out, ("html", "pdf"), binary)
    assert (out / "formats").read_text().split() == ["html", "typst"]
    assert out / "index.html" in files


@pytest.mark.parametrize("version", ["1.3.450", "", "not a version"])
def test_a_quarto_that_will_not_do_is_not_used(fake, version):
    fake(version=version)
    assert quarto.find() is None


def test_no_quarto(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert quarto.find() is None


def test_an_unresolved_reference_fails_at_its_line(book, tmp_path, fake):
    binary = fake(more="echo 'WARNING: Unable to resolve crossref @fig-a' >&2")
    with pytest.raises(tangle.BookError) as caught:
        quarto.render(woven(book), book, tmp_path / "out", ("html",), binary)
    assert str(caught.value) == "book/01-one.qmd:16: @fig-a is not defined anywhere"


def test_a_failing_quarto_is_quoted(book, tmp_path, fake):
    binary = fake(more="echo 'ERROR: in book/01-one.ipynb' >&2; exit 1")
    with pytest.raises(tangle.BookError, match="ERROR: in book/01-one.qmd"):
        quarto.render(woven(book), book, tmp_path / "out", ("html",), binary)
    assert not (tmp_path / "out").exists()


def files(root):
    out = root / "_book"
    return {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}


def test_quartos_book_takes_the_place_of_the_old_one(book, fake):
    binary = fake()
    (book.root / "_book").mkdir()
    for name in ("Little.pdf", "index.html", "old.html"):
        (book.root / "_book" / name).write_text("old")
    made = build._render(woven(book), book, ["html"], binary, other=False)
    assert files(book.root) == {"Little.pdf", "index.html", "formats"}, "PDF is kept"
    assert book.root / "_book/index.html" in made
    (book.root / "_book" / "old.html").write_text("old")
    build._render(woven(book), book, ["html", "pdf"], binary, other=True)
    assert files(book.root) == {"index.html", "formats"}
    assert not [p for p in (book.root / ".weave").iterdir() if p.name != "quarto"]


def test_a_failing_quarto_leaves_the_old_book(book, fake):
    binary = fake(more="exit 1")
    (book.root / "_book").mkdir()
    (book.root / "_book" / "index.html").write_text("old")
    with pytest.raises(tangle.BookError):
        build._render(woven(book), book, ["html", "pdf"], binary, other=False)
    assert (book.root / "_book" / "index.html").read_text() == "old"


def test_notebooks_hold_no_execution_metadata(book):
    text = json.dumps([quarto.notebook(w) for w in woven(book)])
    assert '"execution"' not in text

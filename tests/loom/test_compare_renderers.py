"""Quarto and the embedded renderer say the same, where Quarto is installed.

Elsewhere the comparison itself is tested, on small pages written as each of them does.
"""

from __future__ import annotations

import re
from pathlib import Path

import pypdf
import pytest

import tangle
from loom import quarto
from loom.render import build
from tests.loom.page_facts import Facts, differences, read_facts, reference
from tests.loom.sample_book import copy_sample, weave
from tests.loom.woven_book import quarto_book, woven_book

OURS = """<!DOCTYPE html><html><body><nav><h2>Not the page's</h2></nav>
<main id="main"><article>
<header class="page-head"><p class="eyebrow">Part 0</p>
<h1 id="sec-a"><span class="number">2</span> A <code>name</code></h1></header>
<h2 id="sec-b"><span class="number">2.1</span> By hand<a class="anchor" href="#sec-b"
 aria-label="Link">#</a></h2>
<p>See <a href="#fig-x" class="ref">Figure\u00a02.1</a>,
<a href="#eq-e" class="ref">Equation\u00a02.1</a>,
<a href="01-o.html#sec-o" class="ref">Chapter\u00a01</a> and
<a href="01-o.html#sec-p" class="ref">Section\u00a01.1</a>.</p>
<div id="eq-e" class="equation"><div class="formula"><math><semantics><mrow><mi>x</mi>
<mo>=</mo><mn>1</mn></mrow><annotation>x = 1</annotation></semantics></math></div>
<span class="equation-number" aria-label="Equation 2.1">(2.1)</span></div>
<div class="cell cell-run"><div class="code"><div class="code-bar">Python</div>
<pre><code class="language-python"><span class="n">draw</span>(x)
</code></pre></div>
<figure id="fig-x" class="float float-fig"><div class="cell-output
 cell-output-display"><span class="drawing"><svg role="img"><text>0</text></svg></span>
</div><figcaption><span class="float-number">Figure\u00a02.1</span> Of <em>x</em>.
</figcaption></figure></div>
<div id="said" class="cell"><details class="fold"><summary>Code</summary>
<div class="code"><div class="code-bar">Python</div><pre><code>print(1)</code></pre>
</div></details><div class="cell-output cell-output-stdout">
<div class="code"><pre><code>1
2 &lt; 3
</code></pre></div></div></div>
<figure id="tbl-t" class="float float-tbl"><figcaption><span
 class="float-number">Table\u00a02.1</span> Rows.</figcaption><div class="table-wrap">
<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>
</div></figure>
<figure id="fig-pair" class="float float-fig"><div class="layout">
<figure id="fig-l" class="subfloat"><img src="a.svg" alt=""><figcaption><span
 class="float-number">(a)</span> Left</figcaption></figure></div>
<figcaption><span class="float-number">Figure\u00a02.2</span> Two.</figcaption></figure>
<div class="callout callout-note" role="note"><p class="callout-title"><span
 class="unseen">Note: </span>Title</p><div class="callout-body">
<h3 id="h">Not counted</h3></div></div>
<h2 id="bibliography">References</h2>
</article></main></body></html>"""

THEIRS = """<!DOCTYPE html><html><body><main class="content"
 id="quarto-document-content"><header id="title-block-header"><h1 class="title"><span
 id="sec-a" class="quarto-section-identifier"><span
 class="chapter-number">2</span>&nbsp; <span
 class="chapter-title">A <code>name</code></span></span></h1></header>
<section id="sec-b" class="level2" data-number="2.1">
<h2 data-number="2.1" class="anchored" data-anchor-id="sec-b"><span
 class="header-section-number">2.1</span> By hand</h2>
<p>See <a href="#fig-x" class="quarto-xref">Figure&nbsp;<span>2.1</span></a>,
<a href="#eq-e" class="quarto-xref">Equation&nbsp;<span>2.1</span></a>,
<a href="01-o.html" class="quarto-xref"><span>Chapter 1</span></a> and
<a href="01-o.html#sec-p" class="quarto-xref"><span>Section 1.1</span></a>.</p>
<p><span id="eq-e"><math display="block"><semantics><mrow><mi>x</mi><mo>=</mo>
<mn>1</mn><mspace width="2em"></mspace><mrow><mo>(</mo><mn>2.1</mn><mo>)</mo></mrow>
</mrow><annotation encoding="application/x-tex">x = 1 \\qquad(2.1)</annotation>
</semantics></math></span></p>
<div class="cell" data-execution_count="1"><div class="sourceCode cell-code" id="cb1">
<pre class="sourceCode python code-with-copy"><code class="sourceCode python"><span
 id="cb1-1"><a href="#cb1-1" aria-hidden="true" tabindex="-1"></a>draw(x)</span></code
></pre></div><div class="cell-output cell-output-display">
<div id="fig-x" class="quarto-float quarto-figure quarto-figure-center anchored">
<figure class="quarto-float quarto-float-fig figure"><div
 aria-describedby="fig-x-caption-0ceaefa1"><img src="f.svg" class="img-fluid"></div>
<figcaption class="quarto-float-caption-bottom quarto-float-caption"
 id="fig-x-caption-0ceaefa1">Figure&nbsp;2.1: Of <em>x</em>.</figcaption></figure></div>
</div></div>
<div id="said" class="cell"><details class="code-fold"><summary>Code</summary>
<div class="sourceCode cell-code" id="cb2"><pre><code>print(1)</code></pre></div>
</details><div class="cell-output cell-output-stdout"><pre><code>1
2 &lt; 3</code></pre></div></div>
<div id="tbl-t" class="quarto-float quarto-figure anchored"><figure
 class="quarto-float quarto-float-tbl figure"><figcaption
 class="quarto-float-caption-top" id="tbl-t-caption-0ceaefa1">Table&nbsp;2.1: Rows.
</figcaption><div aria-describedby="tbl-t-caption-0ceaefa1"><table
 class="caption-top table"><thead><tr class="header"><th>n</th></tr></thead><tbody>
<tr class="odd"><td>1</td></tr></tbody></table></div></figure></div>
<div id="fig-pair" class="quarto-layout-panel"><figure
 class="quarto-float quarto-float-fig figure"><div class="quarto-layout-row">
<div class="quarto-layout-cell"><div id="fig-l" class="quarto-float quarto-figure">
<figure class="quarto-float quarto-subfloat-fig figure"><div><img src="a.svg"></div>
<figcaption class="quarto-subfloat-caption" id="fig-l-caption-0ceaefa1">(a) Left
</figcaption></figure></div></div></div><figcaption id="fig-pair-caption-0ceaefa1">
Figure&nbsp;2.2: Two.</figcaption></figure></div>
<div class="callout callout-style-default callout-note callout-titled"><div
 class="callout-header"><div class="callout-title-container flex-fill"><span
 class="screen-reader-only">Note</span>Title</div></div><div
 class="callout-body-container callout-body"><h3 class="anchored">Not counted</h3></div>
</div></section>
<div id="quarto-appendix"><section><h2 class="anchored quarto-appendix-heading">
References</h2></section></div></main></body></html>"""

FACTS = Facts(
    headings=[(1, "2", "A name"), (2, "2.1", "By hand")],
    floats=[
        ("fig-x", "Figure 2.1", "Of x."),
        ("tbl-t", "Table 2.1", "Rows."),
        ("fig-l", "(a)", "Left"),
        ("fig-pair", "Figure 2.2", "Two."),
    ],
    equations=[("eq-e", "2.1")],
    references=[
        ("fig-x", "Figure 2.1"),
        ("eq-e", "Equation 2.1"),
        ("", "Chapter 1"),
        ("sec-p", "Section 1.1"),
    ],
    code=["draw(x)", "print(1)"],
    outputs=["1\n2 < 3"],
    pictures=2,
    tables=[["n", "1"]],
)


@pytest.mark.parametrize("html", [OURS, THEIRS], ids=["embedded", "quarto"])
def test_both_ways_of_writing_a_page_are_read_alike(html: str) -> None:
    assert read_facts(html) == FACTS


def test_the_pages_agree() -> None:
    assert differences(read_facts(OURS), read_facts(THEIRS)) == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("2.1</span> By", "2.2</span> By", "headings"),
        (" By hand</h2>", " By head</h2>", "headings"),
        ("2.1: Of", "2.3: Of", "floats"),
        ("2.1: Of", "2.1: On", "floats"),
        ("<mn>2.1</mn>", "<mn>2.2</mn>", "equations"),
        ("Section 1.1", "Section 1.2", "references"),
        ("#eq-e", "#eq-f", "references"),
        ("draw(x)", "draw(y)", "code"),
        ("2 &lt; 3", "2 &lt; 4", "outputs"),
        ('<img src="f.svg" class="img-fluid">', "", "pictures"),
        ("<td>1</td>", "<td>2</td>", "tables"),
    ],
)
def test_each_difference_is_seen(old: str, new: str, what: str) -> None:
    assert old in THEIRS
    found = differences(read_facts(OURS), read_facts(THEIRS.replace(old, new, 1)))
    assert found
    assert all(line.startswith(what) for line in found)


def test_an_order_that_differs_is_seen() -> None:
    mixed = read_facts(THEIRS)
    mixed.code.reverse()
    assert differences(FACTS, mixed) == ["code: in another order, or not as often"]


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("Equation\u00a0(1.1)", "Equation 1.1"),
        ("Chapter 2.", "Chapter 2"),
        ("Section  1.2", "Section 1.2"),
        ("Appendix A", "Appendix A"),
    ],
)
def test_words_of_a_reference(words: str, same: str) -> None:
    assert reference(words) == same


@pytest.mark.parametrize(
    "title",
    [
        '<h1 id="sec-x"><span class="number">A</span> Extras</h1>',
        '<h1 class="title"><span id="sec-x" class="quarto-section-identifier">'
        'Appendix A — <span class="chapter-title">Extras</span></span></h1>',
    ],
)
def test_title_of_an_appendix(title: str) -> None:
    assert read_facts(f"<main>{title}</main>").headings == [(1, "A", "Extras")]


def sample_pages(folder: Path, binary: str | None) -> Path:
    root = copy_sample(folder)
    book = tangle.read_book(root)
    out = root / "_book"
    if binary:
        quarto.render(weave(book), book, out, ("html",), binary)
    else:
        build(weave(book), book, out, ("html",))
    return out


def test_our_pages_are_read_in_full(tmp_path: Path) -> None:
    """Each kind of fact of the sample is found, so that it can be compared."""
    html = (sample_pages(tmp_path, None) / "book/01-sample.html").read_text()
    facts = read_facts(html)
    assert (2, "1.1", "By hand") in facts.headings
    assert not any("does not count" in title for _, _, title in facts.headings)
    labels = [label for label, _, _ in facts.floats]
    assert {"fig-trace", "tbl-lanes", "lst-loop", "lst-ptx", "fig-left"} <= {*labels}
    assert all(label and number for label, number, _ in facts.floats)
    assert facts.equations == [("eq-ceil", "1.1")]
    assert ("fig-trace", "Figure 1.1") in facts.references
    assert any("reverse_kernel" in code for code in facts.code)
    assert "three lines\nof text\nand <html> & more" in facts.outputs
    assert facts.pictures == 4
    assert len(facts.tables) == 2


# --- with Quarto ---------------------------------------------------------------------


def compare(ours: Path, theirs: Path) -> list[str]:
    names = sorted(p.relative_to(ours) for p in ours.rglob("*.html"))
    assert names
    return [
        f"{name}: {line}"
        for name in names
        for line in differences(
            read_facts((ours / name).read_text(encoding="utf-8")),
            read_facts((theirs / name).read_text(encoding="utf-8")),
        )
    ]


def test_the_renderers_agree_on_the_sample(tmp_path: Path) -> None:
    binary = quarto.find()
    if binary is None:
        pytest.skip("no working quarto on the PATH: the renderers are not compared")
    ours = sample_pages(tmp_path / "ours", None)
    assert compare(ours, sample_pages(tmp_path / "theirs", binary)) == []


def test_the_renderers_agree_on_the_book() -> None:
    theirs = quarto_book()
    assert compare(woven_book(), theirs) == []


def test_both_pdfs_have_the_same_headings_and_numbers() -> None:
    theirs = quarto_book()
    ours = woven_book()
    (path,) = theirs.glob("*.pdf")
    printed = " ".join(page.extract_text() for page in pypdf.PdfReader(path).pages)
    letters = re.sub(r"[\W_]", "", printed)
    missing = [
        wanted
        for page in sorted(ours.rglob("*.html"))
        for facts in [read_facts(page.read_text(encoding="utf-8"))]
        for wanted in [
            *(title for _, _, title in facts.headings),
            *(number for _, number, _ in facts.floats),
        ]
        if re.sub(r"[\W_]", "", wanted) not in letters
    ]
    assert missing == []

"""The Typst writer: text that stays exact, code that fits, structure that is kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pypdf
import pytest
import typst
from hypothesis import given
from hypothesis import strategies as st

from loom.render import pandoc, typst_math
from loom.render.typst import edition, main_file
from loom.render.typst_code import (
    CODE_SIZE,
    COLUMNS,
    SMALLEST,
    TEXT_WIDTH,
    clean,
    escape,
    fit,
    pieces,
    string,
    width,
    wrap,
)
from loom.render.typst_writer import PageWriter, Picture, Targets

RULER = "".join(str(n % 10) for n in range(1, COLUMNS + 1))


# --- text ---------------------------------------------------------------------


def test_every_ascii_pair_is_set_as_it_is(tmp_path: Path) -> None:
    marks = "".join(chr(n) for n in range(33, 127) if not chr(n).isalnum()) + "1a"
    lines = ["".join(f"{one}{two}" for two in marks) for one in marks]
    source = "#set page(width: 60cm, height: 60cm)\n#set text(size: 8pt)\n"
    source += "#linebreak();\n".join(map(escape, lines))
    source += "\n\n" + "#linebreak();\n".join(f"#{string(line)};" for line in lines)
    out = tmp_path / "a.pdf"
    (tmp_path / "a.typ").write_text(source)
    typst.compile(str(tmp_path / "a.typ"), output=str(out), ignore_system_fonts=True)
    words = pypdf.PdfReader(out).pages[0].extract_text().replace(" ", "")
    for line in lines:
        assert words.count(line) == 2, line


def test_terminal_colors_and_selectors_go() -> None:
    assert clean("\x1b[31mred\x1b[0m ⚠\ufe0f\x07") == "red ⚠"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_escape_only_adds_backslashes(text: str) -> None:
    kept = clean(text)
    marked = escape(text)
    assert len(marked) - len(kept) == sum(c.isascii() and _is_mark(c) for c in kept)


def _is_mark(char: str) -> bool:
    return 32 < ord(char) < 127 and not char.isalnum()


# --- code lines -----------------------------------------------------------------


def test_a_line_of_88_columns_stays_one_line() -> None:
    assert wrap(RULER) == (RULER, ())
    assert fit(RULER, 0) == ((RULER, ()), CODE_SIZE)


def test_a_longer_line_is_cut_and_marked() -> None:
    wrapped = wrap("before\n" + RULER + "end\nafter")
    assert wrapped.text == f"before\n{RULER}\nend\nafter"
    assert wrapped.continued == (3,)


def test_a_cut_falls_after_a_word() -> None:
    wrapped = wrap("word " * 30)
    first, second = wrapped.text.split("\n")
    assert first == ("word " * 17).rstrip()
    assert second.startswith("word")


def test_continued_lines_leave_room_for_the_mark() -> None:
    lines = wrap("x" * 300).text.split("\n")
    assert [len(line) for line in lines] == [88, 86, 86, 40]


def test_wide_characters_take_two_columns() -> None:
    assert max(map(width, wrap("表" * 50).text.split("\n"))) == COLUMNS


@given(st.text(st.sampled_from("ab ,\n\t→表"), max_size=400), st.integers(20, 88))
def test_nothing_is_wider_than_the_columns_and_nothing_is_lost(
    text: str, columns: int
) -> None:
    wrapped = wrap(text, columns)
    for number, line in enumerate(wrapped.text.split("\n"), 1):
        assert width(line) <= columns - 2 * (number in wrapped.continued)
    squeezed = "".join(text.split())
    assert "".join(wrapped.text.split()) == squeezed


def test_code_in_a_box_is_set_smaller_before_it_is_cut() -> None:
    (text, continued), size = fit(RULER, 18)
    assert (text, continued) == (RULER, ())
    assert SMALLEST < size < CODE_SIZE
    (text, continued), size = fit(RULER, 150)
    assert size == SMALLEST
    assert continued == (2,)
    (text, continued), size = fit("x" * 200, 18)
    room = (TEXT_WIDTH - 18 - 12) / (size * 0.60205)
    assert [len(line) for line in text.split("\n")] == [88, 86, 26]
    assert 88 <= room, "a continued line with its mark"


def test_long_inline_code_may_break_and_short_code_may_not() -> None:
    assert pieces("offs < n") == ["offs < n"]
    assert len(pieces("triton.testing.do_bench(fn)")) > 2
    for code in (
        "a.b.c.d.e.f.g.h.i.j.k.l",
        "x" * 60,
        "tl.arange(0, BLOCK) < n_elements",
    ):
        assert "".join(pieces(code)) == code


# --- formulas --------------------------------------------------------------------


def test_formulas_are_converted_in_one_call_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "math.json"
    wanted = [("InlineMath", "x^2"), ("DisplayMath", "\\frac{a}{b}")]
    found = typst_math.convert(wanted, store)
    assert found[wanted[0]] == "$x^2$"
    assert found[wanted[1]].startswith("$ ")

    def fails(*_: Any) -> Any:
        raise AssertionError("pandoc was called again")

    monkeypatch.setattr(typst_math.pandoc, "run", fails)
    assert typst_math.convert(wanted, store) == found


def test_a_formula_that_pandoc_cannot_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(typst_math.FormulaError, match="notacommand"):
        typst_math.convert([("InlineMath", "\\notacommand{x}")], tmp_path / "m.json")


def test_sized_delimiters_are_set_as_delimiters(tmp_path: Path) -> None:
    formulas = [
        ("InlineMath", f"\\{size}l{left} x \\{size}r{right}")
        for size in ("big", "Big", "bigg", "Bigg")
        for left, right in (
            ("(", ")"),
            ("\\{", "\\}"),
            ("\\lfloor", "\\rfloor"),
            ("[", "]"),
        )
    ]
    found = typst_math.convert(formulas, tmp_path / "m.json")
    assert (
        found[formulas[6]]
        == "$stretch(floor.l, size: #180%) x stretch(floor.r, size: #180%)$"
    )
    assert not any("scale" in typst_source for typst_source in found.values())
    (tmp_path / "a.typ").write_text("\n\n".join(found.values()))
    out = tmp_path / "a.pdf"
    typst.compile(str(tmp_path / "a.typ"), output=str(out), ignore_system_fonts=True)
    assert "floor" not in pypdf.PdfReader(out).pages[0].extract_text()


# --- structure --------------------------------------------------------------------


def write(markdown: str, part: str = "") -> tuple[str, PageWriter]:
    """The markup for a page of pandoc markdown, as the resolver would hand it on."""
    blocks = pandoc.parse(markdown)["blocks"]
    chapter = SimpleNamespace(name="one", rel="book/01-one.qmd", text=markdown)
    page = SimpleNamespace(
        woven=SimpleNamespace(chapter=chapter),
        blocks=blocks,
        title="One",
        part=part,
        rel=chapter.rel,
        targets={},
        facts=SimpleNamespace(ids=["sec-one", "here", "fig-x"]),
    )
    targets = Targets.of([page])  # type: ignore[list-item]
    writer = PageWriter(
        page,  # type: ignore[arg-type]
        targets,
        {},
        lambda source: Picture(f"/{source}", 100.0),
    )
    return writer.write(), writer


def test_labels_are_made_of_page_and_id() -> None:
    markup, writer = write("# One {#sec-one}\n\n[x]{#here} and [back](#here)\n")
    assert '#anchor("one:here");' in markup
    assert '#goto("one:here")[back];' in markup
    assert '"one:sec-one"' in markup
    assert writer.problems == []


def test_a_link_without_a_target_is_a_problem_with_its_line() -> None:
    _, writer = write("# One\n\n## Two\n\n[x](#nowhere)\n")
    assert [str(p) for p in writer.problems] == [
        "book/01-one.qmd:3: got a link to '#nowhere', but book/01-one.qmd has no id "
        "'nowhere'"
    ]


def test_a_link_out_of_the_pdf_keeps_its_words() -> None:
    markup, writer = write("# One\n\nsee [the chapter](book/09-away.qmd#x).\n")
    assert "see the chapter\\." in markup
    assert "#goto" not in markup
    assert writer.problems == []


def test_chapters_stand_below_their_part() -> None:
    assert "#chapter(1," in write("# One\n")[0]
    assert "#chapter(2," in write("# One\n", part="Part 0 — First")[0]


def test_headings_in_callouts_do_not_count() -> None:
    source = "# One\n\n::: {.callout .callout-note}\n::: {.callout-title}\nT\n:::\n"
    source += "::: {.callout-body}\n## Not a section\n:::\n:::\n"
    markup, _ = write(source)
    assert "#section(" not in markup
    assert "#minor-heading[Not a section];" in markup


def test_only_tangled_cells_carry_their_place() -> None:
    cell = '::: {.cell %s path="book/01-one.qmd" line="24"}\n'
    code = "```{.python .cell-code}\nx = 1\n```\n:::\n"
    assert '"book/01-one.qmd:24"' in write(cell % ".tangled" + code)[0]
    assert '"book/01-one.qmd:24"' not in write(cell % "" + code)[0]


def test_stale_outputs_are_struck() -> None:
    source = '::: {.cell path="p" line="3" status="%s"}\n'
    source += "::: {.cell-output .cell-output-stdout}\n```\n3.9 TB/s\n```\n:::\n:::\n"
    assert "late: true" in write(source % "stale")[0]
    assert "late: true" not in write(source % "captured")[0]


def test_a_stale_figure_is_crossed_out() -> None:
    source = '::: {.cell path="p" line="3" status="%s"}\n::: {.float .float-fig}\n'
    source += "::: {.cell-output .cell-output-display}\nseen\n:::\n:::\n:::\n"
    assert "#stale[" in write(source % "stale")[0]
    assert "#stale[" not in write(source % "captured")[0]


def test_table_alignments_spans_and_widths() -> None:
    table = "| a | b | c |\n|--:|:-:|---|\n| 1 | 2 | 3 |\n"
    markup, _ = write("# One\n\n" + table)
    assert "align: (right, center, left,)" in markup
    assert "columns: (auto, auto, auto, )" in markup
    assert "table.header([a], [b], [c]), [1], [2], [3]" in markup


def test_short_tables_are_not_cut_and_long_ones_are() -> None:
    head = "# One\n\n| a |\n|---|\n"
    assert "whole: true" in write(head + "| 1 |\n" * 15)[0]
    assert "whole: true" not in write(head + "| 1 |\n" * 16)[0]


def test_html_is_left_out_and_unknown_nodes_are_problems() -> None:
    markup, writer = write("# One\n\n<div>\n\nkept\n\n</div>\n\n`<b>`{=html}x\n")
    assert "<" not in markup.replace("<!--", "")
    assert "kept" in markup
    writer.block({"t": "Marquee", "c": []})
    assert "Marquee" in writer.problems[0].message


def test_heading_lines_skip_fences() -> None:
    source = "# One\n\n```\n# no heading\n```\n\n## Two\n\n### Three\n"
    assert "//@ 7\n#section(2, 2," in write(source)[0]


# --- main file ---------------------------------------------------------------------


def test_parts_and_matter_come_in_page_order() -> None:
    def page(name: str, rel: str, part: str) -> Any:
        chapter = SimpleNamespace(name=name, rel=rel)
        return SimpleNamespace(
            woven=SimpleNamespace(chapter=chapter), rel=rel, part=part
        )

    pages = [
        page("__init__", "index.qmd", ""),
        page("one", "book/01-one.qmd", "Part 0 — First things"),
        page("two", "book/02-two.qmd", "Part 0 — First things"),
        page("extra", "book/a-extra.qmd", "Appendices"),
    ]
    config: Any = SimpleNamespace(
        title='A "T"',
        subtitle="",
        authors=("N",),
        date="2026-11-30",
        repo_url="",
        description="d",
        lang="en-US",
    )
    lines = main_file(pages, config).split("\n")
    assert '  title: "A \\"T\\"",' in lines
    assert '  region: "us",' in lines
    assert lines[-7:-1] == [
        "#show: main-matter",
        '#part("Part 0", "First things", "part:1")',
        '#include "/pages/one.typ"',
        '#include "/pages/two.typ"',
        '#part(none, "Appendices", "part:3")',
        '#include "/pages/extra.typ"',
    ]


def test_the_date_is_spelled_out() -> None:
    assert edition("2026-11-30") == "November 30, 2026"
    assert edition("Draft 3") == "Draft 3"

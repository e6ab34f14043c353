"""The Quarto subset a chapter may use, as tables.

Both renderers handle everything in these tables; the lint refuses the rest.
CONTRIBUTING.md prints them (`python -m loom.lint --subset`), and a test holds
the two together.
"""

from __future__ import annotations

LANGUAGES = {
    "bash": "commands",
    "c": "C",
    "console": "commands with their output",
    "cpp": "C++ and CUDA",
    "diff": "changes",
    "json": "JSON",
    "llvm": "LLVM IR",
    "makefile": "make",
    "markdown": "Quarto source that is shown",
    "mlir": "TTIR and TTGIR",
    "ptx": "PTX",
    "python": "Python that is shown, not run",
    "pytb": "a Python traceback",
    "sass": "SASS and AMD assembly",
    "text": "anything else",
    "toml": "TOML",
    "yaml": "YAML",
}

CALLOUTS = ("note", "tip", "warning", "caution", "important")
CALLOUT_KEYS = frozenset({"title", "collapse"})
FLOAT_DIVS = ("fig", "tbl", "lst")
FLOAT_KEYS = frozenset({"layout-ncol"})
SPAN_CLASSES = frozenset({"evidence"})
HEADER_CLASSES = frozenset({"unnumbered"})
IMAGE_KEYS = frozenset({"fig-alt", "width"})
TABLE_KEYS = frozenset({"tbl-colwidths"})
YAML_KEYS = frozenset({"description", "jupyter"})

REFERENCES = {
    "sec": "chapter or section",
    "fig": "figure",
    "tbl": "table",
    "eq": "equation",
    "lst": "listing",
}

CONFIG_KEYS: dict[str, frozenset[str]] = {
    "": frozenset(
        "project book bibliography link-citations crossref jupyter execute format"
        " lang csl".split()
    ),
    "project": frozenset("type output-dir execute-dir pre-render".split()),
    "book": frozenset(
        "title subtitle author date description output-file page-navigation search"
        " chapters appendices repo-url".split()
    ),
    "format": frozenset({"html", "typst"}),
}

OPTION_VALUES: dict[str, tuple[str, ...]] = {
    "echo": ("true", "false"),
    "eval": ("true", "false"),
    "include": ("true", "false"),
    "output": ("true", "false", "asis"),
    "error": ("true", "false"),
    "warning": ("true", "false"),
    "code-fold": ("true", "false", "show"),
}

TEXT_OPTIONS = ("fig-cap", "fig-alt", "tbl-cap", "lst-cap", "code-summary")

CODE_COLUMNS = 88


def _code(words: list[str] | tuple[str, ...] | frozenset[str]) -> str:
    return ", ".join(f"`{word}`" for word in sorted(words))


def rows() -> list[tuple[str, str]]:
    """What a chapter may hold, and how it is written."""
    callouts = _code(tuple(f".callout-{kind}" for kind in CALLOUTS))
    references = ", ".join(f"`@{key}-` ({what})" for key, what in REFERENCES.items())
    options = "; ".join(
        f"`{key}` {' '.join(values)}" for key, values in OPTION_VALUES.items()
    )
    return [
        (
            "Heading",
            "`#` to `######`, a blank line before it, no level skipped; one H1 with"
            " `{#sec-…}`; `.unnumbered` where the page or section has no number",
        ),
        (
            "Paragraph",
            "one sentence a source line; emphasis, `~~strike~~`, `` `code` ``, links,"
            " inline notes",
        ),
        ("List", "`- ` or `1. `, a blank line before it; nested by indentation"),
        (
            "Table",
            "pipe table, every row as many cells as the header; caption"
            " `: Caption {#tbl-x}` below it",
        ),
        ("Block quote", "`> `, a blank line before it"),
        (
            "Image",
            "alone on its line, a file of the repository: `![Caption](file.svg)"
            '{#fig-x fig-alt="…"}`; keys ' + _code(IMAGE_KEYS),
        ),
        (
            "Callout",
            "`::: {.callout-note}` … `:::`; "
            + callouts
            + "; keys "
            + _code(CALLOUT_KEYS),
        ),
        ("Tabset", "`::: {.panel-tabset}`, a heading begins each tab"),
        (
            "Float",
            "`::: {#fig-x}`, `{#tbl-x}` or `{#lst-x}`, the caption its last paragraph;"
            " keys " + _code(FLOAT_KEYS),
        ),
        ("Span", "`[text]{.class}`; classes " + _code(SPAN_CLASSES)),
        ("Mathematics", "`$…$`; `$$` on lines of its own, `$$ {#eq-x}` numbers it"),
        ("Cross-reference", references),
        ("Citation", "`@key` or `[@key]`, a key of `book/references.bib`"),
        ("Footnote", "`[^name]` and once `[^name]: text`, or `^[text]`"),
        (
            "Listing",
            "```` ```language ````; languages "
            + _code(tuple(LANGUAGES))
            + f"; at most {CODE_COLUMNS} columns, in cells too",
        ),
        (
            "Cell",
            "```` ```{python} ```` with `#|` options; " + options + "; captions and"
            " alternative texts in quotation marks",
        ),
        ("Inline value", "`` `{python} expression` ``"),
        ("YAML header", "rarely needed; keys " + _code(YAML_KEYS)),
    ]


def markdown() -> str:
    """The subset as the table that CONTRIBUTING.md prints."""
    lines = ["| what | how |", "|---|---|"]
    for what, how in rows():
        lines.append(f"| {what} | {how.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"

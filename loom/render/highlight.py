"""Source text as HTML with Pygments' short class names."""

from __future__ import annotations

import functools
from html import escape
from typing import Any

ALIASES = {"ttir": "mlir", "ttgir": "mlir", "llir": "llvm", "amdgcn": "sass"}


@functools.cache
def _own() -> dict[str, Any]:
    """Lexers for the two listings Pygments does not know."""
    from pygments import token as t
    from pygments.lexer import RegexLexer

    class Mlir(RegexLexer):  # type: ignore[misc]
        name = "MLIR"
        tokens = {
            "root": [
                (r"//[^\n]*", t.Comment),
                (r'"[^"\n]*"', t.String),
                (r"%[\w$.-]+(?:#\d+)?", t.Name.Variable),
                (r"[@#^][\w$.-]+", t.Name.Label),
                (r"![\w.]+|\b(?:[fi]\d+|bf16|index|tensor|memref)\b", t.Keyword.Type),
                (r"\b(?:loc|module|attributes|true|false|dense|else)\b", t.Keyword),
                (r"\b[a-z_][\w]*(?:\.[a-z_][\w]*)+", t.Name.Function),
                (r"-?\b\d[\w.+-]*", t.Number),
                (r"\w+", t.Text),
                (r".|\n", t.Text),
            ]
        }

    class Sass(RegexLexer):  # type: ignore[misc]
        name = "SASS"
        tokens = {
            "root": [
                (r"/\*.*?\*/|//[^\n]*", t.Comment),
                (r"\b(?:U?R\d+|RZ|URZ|U?P\d|U?PT|SR_[\w.]+)\b", t.Name.Variable),
                (r"\b[vs]\d+\b|[vs]\[\d+:\d+\]", t.Name.Variable),
                (r"-?\b(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?)\b", t.Number),
                (r"\b[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*\b", t.Keyword),
                (r"\b[sv]_\w+|\b(?:global|buffer|ds)_\w+", t.Keyword),
                (r"\w+", t.Text),
                (r".|\n", t.Text),
            ]
        }

    return {"mlir": Mlir(), "sass": Sass()}


@functools.cache
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    if language in _own():
        return _own()[language]
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None


def highlight(source: str, language: str) -> str:
    """`source` as escaped HTML; unknown languages come without marks."""
    plain = escape(source, quote=False)
    language = ALIASES.get(language, language)
    lexer = _lexer(language) if language and language != "text" else None
    if lexer is None or not source.strip():
        return plain
    from pygments.token import STANDARD_TYPES

    tokens = list(lexer.get_tokens(source + "\n"))
    if "".join(text for _, text in tokens) != source + "\n":
        return plain  # a lexer that changes the text is not believed
    out: list[str] = []
    for kind, text in tokens:
        while kind not in STANDARD_TYPES:
            kind = kind.parent
        name = STANDARD_TYPES[kind]
        body = escape(text, quote=False)
        # Names and plain text need no mark; most of a listing is that.
        if name in ("", "n", "w", "p", "x", "err", "go") or not text.strip():
            out.append(body)
        else:
            out.append(f'<span class="{name}">{body}</span>')
    html = "".join(out)
    if html.endswith("\n"):
        return html[:-1]
    return html.removesuffix("\n</span>") + "</span>"

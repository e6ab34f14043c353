"""The search index: every section's prose and code, as a script of plain data.

A script, because a page opened from a file:// address may not fetch anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from loom.render import nodes
from loom.render.nodes import Node

_SPLIT = ("cell-output-stderr", "references")


def sections(blocks: list[Node]) -> list[dict[str, str]]:
    """The page cut at its headings: anchor, number, title, prose and code.

    The first section is what stands before the first heading below the title.
    """
    found: list[dict[str, str]] = [_section("", "", "")]
    _collect(blocks, found, top=True)
    return [s for s in found if s["title"] or s["prose"].strip() or s["code"].strip()]


def _section(anchor: str, number: str, title: str) -> dict[str, str]:
    return {"anchor": anchor, "number": number, "title": title, "prose": "", "code": ""}


def _collect(blocks: list[Node], found: list[dict[str, str]], *, top: bool) -> None:
    for node in blocks:
        kind = node["t"]
        if kind == "Header" and top:
            level, attributes, inlines = node["c"]
            title = nodes.plain_text(inlines).strip()
            number = nodes.value(attributes, "number")
            if level == 1:
                found[0] = {**found[0], "title": title, "number": number}
            else:
                found.append(_section(attributes[0], number, title))
        elif kind == "CodeBlock":
            found[-1]["code"] += node["c"][1] + "\n"
        elif kind == "Div" and not any(nodes.has_class(node, c) for c in _SPLIT):
            _collect(node["c"][1], found, top=False)
        elif kind in ("BlockQuote", "BulletList", "OrderedList"):
            inner = node["c"][1] if kind == "OrderedList" else node["c"]
            lists = [inner] if kind == "BlockQuote" else inner
            for items in lists:
                _collect(items, found, top=False)
        elif kind not in ("RawBlock", "HorizontalRule"):
            text = nodes.plain_text(nodes.rewrite([node], _readable)).split()
            found[-1]["prose"] += " ".join(text) + "\n" if text else ""


def _readable(node: Node) -> list[Node] | None:
    """A display formula's TeX is no text; an inline one reads as it is.

    The line that says where a page's outputs come from is on every page.
    """
    shown = node["t"] == "Math" and node["c"][0]["t"] == "DisplayMath"
    return [] if shown or nodes.has_class(node, "evidence") else None


def index_js(pages: Iterable[Any]) -> str:
    """The index script. A page gives its address, title, number and sections."""
    entries = []
    for page in pages:
        for section in page.sections:
            title = section["title"] if section["anchor"] else page.title
            number = section["number"] if section["anchor"] else page.number
            url = page.html + (f"#{section['anchor']}" if section["anchor"] else "")
            crumb = page.label if section["anchor"] else page.part
            entries.append(
                [url, number, title, crumb, section["prose"], section["code"]]
            )
    data = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    # A line separator ends a string literal in older readers of JavaScript.
    data = data.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"window.bookIndex = {data};\n"

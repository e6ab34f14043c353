"""Pandoc's JSON syntax tree as plain dictionaries: build, walk, read as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Node = dict[str, Any]
Attr = list[Any]  # [id, [class, …], [[key, value], …]]

BLOCKS = frozenset(
    "Plain Para LineBlock CodeBlock RawBlock BlockQuote OrderedList BulletList "
    "DefinitionList Header HorizontalRule Table Figure Div".split()
)


def attr(
    ident: str = "",
    classes: tuple[str, ...] | list[str] = (),
    pairs: dict[str, str] | None = None,
) -> Attr:
    return [ident, list(classes), [[k, v] for k, v in (pairs or {}).items()]]


def value(attributes: Attr, key: str, default: str = "") -> str:
    """The attribute `key` of an attr triple, or `default`."""
    return next((v for k, v in attributes[2] if k == key), default)


def string(text: str) -> Node:
    return {"t": "Str", "c": text}


def text(words: str) -> list[Node]:
    """Plain words as inlines: strings with spaces between them."""
    inlines: list[Node] = []
    for word in words.split():
        inlines += [{"t": "Space"}, string(word)] if inlines else [string(word)]
    return inlines


def plain(inlines: list[Node]) -> Node:
    return {"t": "Plain", "c": inlines}


def para(inlines: list[Node]) -> Node:
    return {"t": "Para", "c": inlines}


def div(attributes: Attr, blocks: list[Node]) -> Node:
    return {"t": "Div", "c": [attributes, blocks]}


def code_block(attributes: Attr, source: str) -> Node:
    return {"t": "CodeBlock", "c": [attributes, source]}


def raw_block(format_: str, source: str) -> Node:
    return {"t": "RawBlock", "c": [format_, source]}


def raw_inline(format_: str, source: str) -> Node:
    return {"t": "RawInline", "c": [format_, source]}


def is_node(item: Any) -> bool:
    return isinstance(item, dict) and "t" in item


def rewrite(tree: Any, visit: Callable[[Node], list[Node] | None]) -> Any:
    """A copy of `tree` in which `visit` replaced nodes, parents before children.

    `visit` gives a list to put in the node's place (it is not descended into
    again), or None to keep the node and go on with its children.
    """
    if isinstance(tree, list):
        out: list[Any] = []
        for item in tree:
            new = visit(item) if is_node(item) else None
            if new is None:
                out.append(rewrite(item, visit))
            else:
                out.extend(new)
        return out
    if isinstance(tree, dict):
        return {key: rewrite(item, visit) for key, item in tree.items()}
    return tree


def walk(tree: Any) -> Iterator[Node]:
    """Every node below `tree`, in document order."""
    if isinstance(tree, list):
        for item in tree:
            yield from walk(item)
    elif isinstance(tree, dict):
        if "t" in tree:
            yield tree
        yield from walk(tree.get("c"))


def plain_text(tree: Any) -> str:
    """The words of inlines or blocks, without markup; notes are left out."""
    out: list[str] = []
    _words(tree, out)
    return "".join(out)


def _words(tree: Any, out: list[str]) -> None:
    if isinstance(tree, list):
        for item in tree:
            _words(item, out)
        return
    if not is_node(tree):
        return
    kind, content = tree["t"], tree.get("c")
    if kind == "Str":
        out.append(content)
    elif kind in ("Space", "SoftBreak", "LineBreak"):
        out.append(" ")
    elif kind in ("Code", "Math"):
        out.append(content[1])
    elif kind == "CodeBlock":
        out.append(content[1] + "\n")
    elif kind == "Quoted":
        marks = "‘’" if content[0]["t"] == "SingleQuote" else "“”"
        out.append(marks[0])
        _words(content[1], out)
        out.append(marks[1])
    elif kind in ("Note", "RawInline", "RawBlock", "Image"):
        return
    else:
        _words(content, out)
        if kind in BLOCKS:
            out.append("\n")


def has_class(node: Node, name: str) -> bool:
    return node["t"] in ("Div", "Span", "CodeBlock") and name in node["c"][0][1]

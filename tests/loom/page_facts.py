"""What a page of either renderer says, in one form, so that two can be compared.

Quarto and the embedded renderer write the same facts in different elements:
"Figure 1.1: A" and "Figure 1.1 A", "Equation (1.1)" and "Equation 1.1", "Chapter 2."
and "Chapter 2".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset(
    "area base br col embed hr img input link meta source track wbr".split()
)
# What is not the chapter's: buttons, anchors, words for screen readers only, titles of
# the back matter, TeX beside MathML.
LEFT_OUT = frozenset(
    "anchor anchorjs-link code-bar code-copy-button unseen screen-reader-only "
    "footnotes footnote-back quarto-appendix-heading".split()
)
BACK = ("References", "Footnotes")
BOXES = frozenset("callout tabset panel-tabset".split())
LABEL = re.compile(r"(?:fig|tbl|lst)-(?!.*-caption-)")
NUMBER = r"(?:[A-Z]|\d+)(?:\.\d+)*"
CAPTION = re.compile(
    rf"((?:Figure|Table|Listing) {NUMBER}|\([a-z]\))(?:[:.](?= |$))? ?(.*)", re.DOTALL
)
TITLE = re.compile(rf"(?:Appendix )?({NUMBER})(?: —)? (.*)", re.DOTALL)


@dataclass
class Node:
    name: str
    attributes: dict[str, str]
    above: Node | None
    children: list[Node | str] = field(default_factory=list)

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())

    @property
    def left_out(self) -> bool:
        return self.name in ("annotation", "script", "style") or bool(
            self.classes & LEFT_OUT
        )

    def walk(self) -> Iterator[Node]:
        for child in self.children:
            if isinstance(child, Node) and not child.left_out:
                yield child
                yield from child.walk()

    def over(self) -> Iterator[Node]:
        if self.above is not None:
            yield self.above
            yield from self.above.over()

    def raw(self) -> str:
        """The text as it stands."""
        parts = (
            c if isinstance(c, str) else "" if c.left_out else c.raw()
            for c in self.children
        )
        return "".join(parts)

    def text(self) -> str:
        """The text with each run of white space as one space."""
        return " ".join(self.raw().replace("\u00a0", " ").split())


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.here = Node("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {key: value or "" for key, value in attrs}, self.here)
        self.here.children.append(node)
        if tag not in VOID:
            self.here = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {key: value or "" for key, value in attrs}, self.here)
        self.here.children.append(node)

    def handle_endtag(self, tag: str) -> None:
        for node in [self.here, *self.here.over()]:
            if node.name == tag and node.above is not None:
                self.here = node.above
                return

    def handle_data(self, data: str) -> None:
        self.here.children.append(data)


@dataclass
class Facts:
    """A page's facts, each list in the order of the page."""

    headings: list[tuple[int, str, str]]  # level, number, title
    floats: list[tuple[str, str, str]]  # label, "Figure 1.1", caption
    equations: list[tuple[str, str]]  # label, number
    references: list[tuple[str, str]]  # label, "Figure 1.1"
    code: list[str]  # of each cell that shows its code
    outputs: list[str]  # each text that a cell put out
    pictures: int
    tables: list[list[str]]  # the texts of each table's cells


def read_facts(html: str) -> Facts:
    """The facts of a page by either renderer."""
    builder = _Builder()
    builder.feed(html)
    nodes = list(builder.root.walk())
    for name in ("article", "main"):
        found = next((node for node in nodes if node.name == name), None)
        if found is not None:
            nodes = list(found.walk())
            break
    listings = [node for node in nodes if node.name == "pre"]
    return Facts(
        headings=list(_headings(nodes)),
        floats=list(_floats(nodes)),
        equations=list(_equations(nodes)),
        references=list(_references(nodes)),
        code=[
            _lines(n)
            for n in listings
            if _within(n, "cell") and not _within(n, "cell-output")
        ],
        outputs=[_lines(node) for node in listings if _within(node, "cell-output")],
        pictures=sum(
            n.name == "img" or (n.name == "svg" and n.attributes.get("role") == "img")
            for n in nodes
        ),
        tables=[
            [cell.text() for cell in node.walk() if cell.name in ("td", "th")]
            for node in nodes
            if node.name == "table"
        ],
    )


def _within(node: Node, name: str) -> bool:
    return any(name in above.classes for above in node.over())


def _lines(node: Node) -> str:
    return "\n".join(line.rstrip() for line in node.raw().strip("\n").split("\n"))


def _headings(nodes: list[Node]) -> Iterator[tuple[int, str, str]]:
    for node in nodes:
        boxed = any(above.classes & BOXES for above in node.over())
        if re.fullmatch("h[1-6]", node.name) and not boxed:
            numbered = any(
                inner.classes & {"number", "header-section-number", "chapter-number"}
                for inner in node.walk()
            )
            words = node.text()
            match = TITLE.fullmatch(words)
            if match and (numbered or words.startswith("Appendix ")):
                yield int(node.name[1]), match[1], match[2]
            elif words not in BACK:
                yield int(node.name[1]), "", words


def _floats(nodes: list[Node]) -> Iterator[tuple[str, str, str]]:
    for node in nodes:
        if node.name not in ("figcaption", "caption"):
            continue
        label = next(
            (i for n in node.over() if LABEL.match(i := n.attributes.get("id", ""))), ""
        )
        match = CAPTION.fullmatch(node.text())
        if match:
            yield label, match[1], match[2]
        elif label or node.text():
            yield label, "", node.text()


def _equations(nodes: list[Node]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        label = node.attributes.get("id", "")
        if label.startswith("eq-"):
            found = re.findall(rf"\(({NUMBER})\)", re.sub(r"\s", "", node.raw()))
            yield label, found[-1] if found else ""


def _references(nodes: list[Node]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if node.name == "a" and node.classes & {"ref", "quarto-xref"}:
            words = reference(node.text())
            address = node.attributes.get("href", "")
            # A chapter is linked with its anchor or without.
            whole = words.startswith(("Chapter", "Appendix")) and "." not in words
            yield "" if whole else address.partition("#")[2], words


def reference(words: str) -> str:
    """A cross-reference's words as HTML by either renderer, and print, have them."""
    words = " ".join(words.replace("\u00a0", " ").split())
    return re.sub(rf"\(({NUMBER})\)", r"\1", words).rstrip(".")


def differences(ours: Facts, theirs: Facts) -> list[str]:
    """How two readings of one page differ, one sentence each."""
    said = []
    for name, mine in vars(ours).items():
        other = getattr(theirs, name)
        if not isinstance(mine, list):
            said += [] if mine == other else [f"{name}: {mine} here, {other} there"]
            continue
        here = [f"{name}: only here: {item!r}" for item in mine if item not in other]
        there = [f"{name}: only there: {item!r}" for item in other if item not in mine]
        said += here + there
        if mine != other and not here + there:
            said.append(f"{name}: in another order, or not as often")
    return said

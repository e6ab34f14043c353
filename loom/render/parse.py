"""One executed chapter to a structured tree, with numbers counted inside it.

The tree speaks the vocabulary that `document` describes. What depends on other
pages (chapter numbers, cross-reference texts) is left for `document` to fill in.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

from loom.render import nodes, pandoc
from loom.render.config import Config
from loom.render.lines import Locator
from loom.render.nodes import Node, attr, div, value
from loom.woven import CodeCell, Prose, Woven

KINDS = {
    "fig": "Figure",
    "tbl": "Table",
    "lst": "Listing",
    "eq": "Equation",
    "sec": "Section",
}
CALLOUTS = ("note", "tip", "warning", "caution", "important")
MARK = "\x01"  # stands around an identifier whose text `document` fills in

_LABEL = re.compile(r"(?i:(fig|tbl|lst|eq|sec))-\S")
_EQUATION = re.compile(r"^\{#(eq-[\w:.-]+)\}")
_PLAIN = re.compile(r"[\w ,.:;()/+=%?!−–—]*")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_IMAGES = (
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
)
_OUTER, _INNER = ":" * 40, ":" * 20


@dataclass
class Facts:
    """What the rest of the book needs to know about a page, without its tree."""

    title: str = ""
    title_inlines: list[Node] = field(default_factory=list)
    anchor: str = ""
    numbered: bool = False
    # [level, id, number inside the chapter such as "2.1", is it shown, inlines]
    headings: list[list[Any]] = field(default_factory=list)
    # id -> [kind, number inside the chapter, letter of a subfigure or ""]
    labels: dict[str, list[str]] = field(default_factory=dict)
    refs: dict[str, list[int]] = field(default_factory=dict)
    links: list[list[Any]] = field(default_factory=list)  # [page, anchor, line]
    images: list[list[Any]] = field(default_factory=list)  # [file, asset, line]
    ids: list[str] = field(default_factory=list)
    sections: list[dict[str, str]] = field(default_factory=list)
    problems: list[list[Any]] = field(default_factory=list)  # [line, message]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


# --- Woven to markdown -------------------------------------------------------


@dataclass
class Output:
    """An output in the one form that is shown: its kind, and text or bytes."""

    kind: str  # stdout | stderr | error | image | markdown | text | asis
    text: str = ""
    data: bytes = b""
    name: str = ""
    width: str = ""


def cell_options(cell: CodeCell, woven: Woven, config: Config) -> dict[str, Any]:
    """The cell's options on top of the chapter's and the book's defaults."""
    chapter = woven.meta.get("execute") or {}
    return {**config.execute, **chapter, **cell.options}


def slug(woven: Woven) -> str:
    return PurePosixPath(woven.chapter.rel).stem


def outputs(cell: CodeCell, options: dict[str, Any], folder: str) -> list[Output]:
    """The cell's outputs that are shown; images are named below `folder`."""
    if options.get("include") is False or options.get("output") is False:
        return []
    shown: list[Output] = []
    images = 0
    for output in cell.outputs:
        kind = output.get("output_type")
        if kind == "stream":
            _stream(shown, output, options)
        elif kind == "error":
            trace = "\n".join(output.get("traceback") or [])
            trace = trace or f"{output.get('ename')}: {output.get('evalue')}"
            shown.append(Output("error", _ANSI.sub("", trace)))
        else:
            found = _display(output)
            if found is not None and found.kind == "image":
                images += 1
                found.name = f"{folder}/{cell.cell.label}-{images}{found.name}"
            if found is not None:
                shown.append(found)
    return shown


def _stream(
    shown: list[Output], output: dict[str, Any], options: dict[str, Any]
) -> None:
    name = "stderr" if output.get("name") == "stderr" else "stdout"
    if name == "stderr" and options.get("warning") is False:
        return
    text = _ANSI.sub("", _joined(output.get("text")))
    if name == "stdout" and options.get("output") == "asis":
        name = "asis"
    if shown and shown[-1].kind == name:
        shown[-1].text += text
    elif text.strip():
        shown.append(Output(name, text))


def _joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else str(text or "")


def _display(output: dict[str, Any]) -> Output | None:
    data = output.get("data") or {}
    for mime, extension in _IMAGES:
        if mime in data:
            source = _joined(data[mime])
            svg = extension == "svg"
            raw = source.encode("utf-8") if svg else base64.b64decode(source)
            size = (output.get("metadata") or {}).get(mime) or {}
            width = f"{size['width']}px" if size.get("width") else ""
            return Output("image", data=raw, name=f".{extension}", width=width)
    if "text/markdown" in data:
        return Output("markdown", _joined(data["text/markdown"]))
    if "text/latex" in data:
        return Output("markdown", _joined(data["text/latex"]))
    if "text/plain" in data:
        text = _ANSI.sub("", _joined(data["text/plain"]))
        return Output("text", text) if text.strip() else None
    return None


def images(woven: Woven, config: Config) -> Iterator[tuple[str, bytes]]:
    """The images among the chapter's outputs: asset path and content."""
    for part in woven.parts:
        if isinstance(part, CodeCell):
            options = cell_options(part, woven, config)
            for output in outputs(part, options, slug(woven)):
                if output.kind == "image":
                    yield output.name, output.data


def _captions(options: dict[str, Any]) -> dict[str, str]:
    found = {
        key: " ".join(str(options[key]).split())
        for key in ("fig-cap", "tbl-cap", "lst-cap")
        if options.get(key)
    }
    for number, text in enumerate(_as_list(options.get("fig-subcap"))):
        found[f"subcap-{number}"] = " ".join(str(text).split())
    return found


def _as_list(item: Any) -> list[Any]:
    if item is None:
        return []
    return item if isinstance(item, list) else [item]


def markdown(woven: Woven, config: Config) -> str:
    """The chapter as markdown in which a cell is an empty, numbered div.

    Captions and markdown outputs stand inside the div, so that pandoc reads
    them; code and other outputs never pass through the markdown reader.
    """
    out: list[str] = []
    for number, part in enumerate(woven.parts):
        if isinstance(part, Prose):
            out.append(part.text)
            continue
        options = cell_options(part, woven, config)
        inner = _captions(options)
        for index, output in enumerate(outputs(part, options, "")):
            if output.kind in ("markdown", "asis"):
                inner[f"out-{index}"] = output.text
        lines = [f'{_OUTER} {{.weave-cell key="{number}"}}', ""]
        for name, text in inner.items():
            lines += [f'{_INNER} {{.weave-part name="{name}"}}', "", text, ""]
            lines += [_INNER, ""]
        out.append("\n".join(["", "", *lines, _OUTER, "", ""]))
    return "\n".join(out)


# --- markdown to the structured tree ----------------------------------------


def parse(woven: Woven, config: Config) -> tuple[list[Node], Facts]:
    """The chapter's tree and facts. Problems are left in `facts.problems`."""
    tree = pandoc.parse(markdown(woven, config))["blocks"]
    reader = _Reader(woven, config)
    reader.check_cells(tree)
    if reader.facts.problems:
        return [], reader.facts
    return reader.read(tree), reader.facts


class _Reader:
    """Structures one chapter, counting floats, equations and headings."""

    def __init__(self, woven: Woven, config: Config) -> None:
        self.woven = woven
        self.config = config
        self.facts = Facts()
        self.locator = Locator(woven.chapter)
        self.counts: dict[str, int] = {}
        self.depths: list[int] = []
        self.counting = True  # False inside callouts and tabsets
        self.float: list[str] | None = None  # label of the float being read
        self.letters = 0
        self.cell: CodeCell | None = None  # whose output is being read
        self.pending: list[str] = []  # attribute texts that are markdown

    # Problems and places

    def problem(self, lines: list[int] | int, message: str) -> None:
        for line in [lines] if isinstance(lines, int) else sorted(set(lines)):
            if [line, message] not in self.facts.problems:
                self.facts.problems.append([line, message])

    def places(self, lines: list[int]) -> list[int]:
        """`lines`, or the cell being read where the prose does not say it."""
        if self.cell is not None and not lines:
            return [self.cell.cell.first]
        return lines or [1]

    def check_cells(self, tree: list[Node]) -> None:
        found = {
            value(node["c"][0], "key")
            for node in nodes.walk(tree)
            if nodes.has_class(node, "weave-cell")
        }
        for number, part in enumerate(self.woven.parts):
            if isinstance(part, CodeCell) and str(number) not in found:
                self.problem(
                    part.cell.first,
                    "this cell was swallowed by the text or output before it: "
                    "close the fence, comment or math that is left open there",
                )
                return

    # The whole chapter

    def read(self, tree: list[Node]) -> list[Node]:
        heads = [b for b in tree if b["t"] == "Header" and b["c"][0] == 1]
        if len(heads) != 1:
            lines = self.locator.matching(r"^# ") or [1]
            self.problem(
                lines[1:] or lines,
                f"got {len(heads)} headings of level 1, a page has exactly one",
            )
        if heads:
            (ident, classes, _), inlines = heads[0]["c"][1], heads[0]["c"][2]
            self.facts.anchor = ident
            self.facts.numbered = "unnumbered" not in classes
            self.facts.title_inlines = inlines
            self.facts.title = nodes.plain_text(inlines).strip()
        blocks = self.fill_pending(self.blocks(tree))
        blocks = self.citations(blocks)
        self.facts.ids = _identifiers(blocks)
        return blocks

    def fill_pending(self, blocks: list[Node]) -> list[Node]:
        """Attribute texts (callout titles, listing captions) read as markdown."""
        if not self.pending:
            return blocks
        wrapped = [f"{_INNER} {{.weave-part}}\n\n{t}\n\n{_INNER}" for t in self.pending]
        tree = pandoc.parse("\n\n".join(wrapped))["blocks"]
        parsed = [self.inlines(_first_inlines(part["c"][1])) for part in tree]

        def visit(node: Node) -> list[Node] | None:
            if nodes.has_class(node, "weave-pending"):
                return parsed[int(value(node["c"][0], "n"))]
            return None

        filled: list[Node] = nodes.rewrite(blocks, visit)
        return filled

    def written(self, text: str) -> list[Node]:
        """Inlines for an attribute's text, which Quarto reads as markdown."""
        if _PLAIN.fullmatch(text) and "--" not in text and "..." not in text:
            return nodes.text(text)
        self.pending.append(text)
        place = attr("", ["weave-pending"], {"n": str(len(self.pending) - 1)})
        return [{"t": "Span", "c": [place, []]}]

    # Blocks

    def blocks(self, items: list[Node]) -> list[Node]:
        return [new for item in items for new in self.block(item)]

    def block(self, node: Node) -> list[Node]:
        kind = node["t"]
        if kind in ("Para", "Plain"):
            return self.paragraph(node)
        method = getattr(self, f"read_{kind.lower()}", None)
        if method is not None:
            found: list[Node] = method(node)
            return found
        return [{**node, "c": self.children(node["c"])}] if "c" in node else [node]

    def children(self, content: Any) -> Any:
        """Anything below a node: block lists, inline lists, or nested lists."""
        if not isinstance(content, list):
            return content
        if content and all(nodes.is_node(item) for item in content):
            if content[0]["t"] in nodes.BLOCKS:
                return self.blocks(content)
            return self.inlines(content)
        return [self.children(item) for item in content]

    def aside(self, items: list[Node]) -> list[Node]:
        """Blocks in which headings do not count."""
        before, self.counting = self.counting, False
        try:
            return self.blocks(items)
        finally:
            self.counting = before

    def read_header(self, node: Node) -> list[Node]:
        level, (ident, classes, pairs), content = node["c"]
        inlines = self.inlines(content)
        counted = self.counting and self.cell is None
        number = ""
        if counted and self.facts.numbered and "unnumbered" not in classes:
            number = self.heading_number(level)
        if counted:
            chapter = level == 1 and self.facts.numbered
            if ident.startswith("sec-") and (number or chapter):
                kind = "Chapter" if level == 1 else "Section"
                self.label(ident, kind, number)
        shown = bool(number) or (counted and level == 1 and self.facts.numbered)
        shown = shown and level <= self.config.number_depth
        if counted:
            self.facts.headings.append([level, ident, number, shown, inlines])
        if shown:
            pairs = [*pairs, ["number", number]]
        elif "unnumbered" not in classes:
            classes = [*classes, "unnumbered"]
        return [{"t": "Header", "c": [level, [ident, classes, pairs], inlines]}]

    def heading_number(self, level: int) -> str:
        if level == 1:
            return ""
        self.depths = (self.depths + [0] * level)[: level - 1]
        self.depths[-1] += 1
        return ".".join(map(str, self.depths))

    def label(self, ident: str, kind: str, number: str, letter: str = "") -> None:
        if ident in self.facts.labels:
            lines = self.locator.matching(rf"#\|? ?(label: *)?{re.escape(ident)}\b")
            self.problem(
                lines[1:] or self.places(lines),
                f"got the label {ident} twice, a label names one thing",
            )
        self.facts.labels[ident] = [kind, number, letter]

    def read_rawblock(self, node: Node) -> list[Node]:
        return [] if _is_comment(node) else [node]

    def read_figure(self, node: Node) -> list[Node]:
        (ident, _, _), (_, caption), content = node["c"]
        image = next((n for n in nodes.walk(content) if n["t"] == "Image"), None)
        kind = _float_kind(ident) or "fig"

        def body() -> list[Node]:
            if image is None:
                return self.blocks(content)
            alt = nodes.plain_text(caption)
            return [nodes.para(self.image(image, alt))]

        inlines = _first_inlines(caption)
        return [self.make_float(ident, kind, body, lambda: self.inlines(inlines))]

    def read_table(self, node: Node) -> list[Node]:
        attributes, caption, columns, *rest = node["c"]
        ident = attributes[0]
        words = _first_inlines(caption[1])
        widths = _widths(value(attributes, "tbl-colwidths"), len(columns))
        if widths:
            columns = [
                [column[0], w] for column, w in zip(columns, widths, strict=True)
            ]
        bare = {"t": "Table", "c": [attr(), [None, []], columns, *self.children(rest)]}
        if not words:
            return [bare]
        return [
            self.make_float(ident, "tbl", lambda: [bare], lambda: self.inlines(words))
        ]

    def paragraph(self, node: Node) -> list[Node]:
        """A paragraph, cut where a labelled display equation stands in it."""
        out: list[Node] = []
        rest: list[Node] = []
        items = list(node["c"])
        while items:
            item = items.pop(0)
            ident, used = _equation_label(item, items)
            if not ident:
                rest.append(item)
                continue
            if _trimmed(rest):
                out.append(nodes.para(self.inlines(_trimmed(rest))))
            rest = []
            del items[:used]
            out.append(self.equation(ident, item))
        if _trimmed(rest) or not out:
            kept = _trimmed(rest) if out else node["c"]
            inlines = self.inlines(kept)
            if inlines or not node["c"]:
                out.append({"t": node["t"], "c": inlines})
        return out

    def equation(self, ident: str, math: Node) -> Node:
        number = self.count("eq")
        self.label(ident, "Equation", number)
        return div(attr(ident, ["equation"], {"number": number}), [nodes.para([math])])

    def count(self, kind: str) -> str:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return str(self.counts[kind])

    # Divs

    def read_div(self, node: Node) -> list[Node]:
        attributes, content = node["c"]
        ident, classes, _ = attributes
        if "weave-cell" in classes:
            part = self.woven.parts[int(value(attributes, "key"))]
            assert isinstance(part, CodeCell)
            return self.read_cell(part, content)
        callout = next((c for c in CALLOUTS if f"callout-{c}" in classes), None)
        if callout:
            return [self.callout(callout, attributes, content)]
        if "panel-tabset" in classes:
            return [self.tabset(content)]
        if kind := _float_kind(ident):
            return [self.float_div(kind, attributes, content)]
        if value(attributes, "layout-ncol"):
            return [_layout(value(attributes, "layout-ncol"), self.blocks(content))]
        return [div(attributes, self.blocks(content))]

    def callout(self, kind: str, attributes: Any, content: list[Node]) -> Node:
        title = value(attributes, "title")
        if title:
            inlines = self.written(title)
        elif content and content[0]["t"] == "Header":
            inlines = self.inlines(content[0]["c"][2])
            content = content[1:]
        else:
            inlines = [nodes.string(kind.capitalize())]
        pairs = {"collapse": value(attributes, "collapse")}
        parts = [
            div(attr("", ["callout-title"]), [nodes.plain(inlines)]),
            div(attr("", ["callout-body"]), self.aside(content)),
        ]
        return div(attr(attributes[0], ["callout", f"callout-{kind}"], pairs), parts)

    def tabset(self, content: list[Node]) -> Node:
        level = next((b["c"][0] for b in content if b["t"] == "Header"), 0)
        tabs: list[tuple[Node, list[Node]]] = []
        for block in content:
            if block["t"] == "Header" and block["c"][0] == level:
                tabs.append((block, []))
            elif tabs:
                tabs[-1][1].append(block)
        made = []
        for header, body in tabs:
            title = nodes.plain(self.inlines(header["c"][2]))
            inner = [
                div(attr("", ["tab-title"]), [title]),
                div(attr("", ["tab-body"]), self.aside(body)),
            ]
            made.append(div(attr(header["c"][1][0], ["tab"]), inner))
        return div(attr("", ["tabset"]), made)

    def float_div(self, kind: str, attributes: Any, content: list[Node]) -> Node:
        caption = value(attributes, f"{kind}-cap")
        body = list(content)
        words: list[Node] = []
        if caption:
            words = self.written(caption)
        elif body and body[-1]["t"] == "Para" and not _only_image(body[-1]):
            words = body.pop()["c"]
        elif kind == "tbl" and body and body[-1]["t"] == "Table":
            table = body[-1]["c"]
            words = _first_inlines(table[1][1])
            body[-1] = {"t": "Table", "c": [table[0], [None, []], *table[2:]]}
        columns = value(attributes, "layout-ncol")

        def inside() -> list[Node]:
            blocks = self.blocks(body)
            return [_layout(columns, blocks)] if columns else blocks

        return self.make_float(
            attributes[0],
            kind,
            inside,
            lambda: words if caption else self.inlines(words),
        )

    def make_float(self, ident: str, kind: str, content: Any, caption: Any) -> Node:
        """A float, or a lettered part of the float that is being read.

        `content` and `caption` are called after the float has its number, so that
        what stands inside is counted in its place.
        """
        name = KINDS[kind]
        if self.float is not None:
            self.letters += 1
            letter = chr(ord("a") + self.letters - 1)
            if ident:
                kind_of_float, number = self.float[:2]
                self.label(ident, kind_of_float, number, letter)
            parts = [*content(), _caption(caption())]
            return div(attr(ident, ["subfloat"], {"number": letter}), parts)
        if not ident:
            parts = [*content(), _caption(caption())]
            return div(attr("", ["float", f"float-{kind}"], {"kind": name}), parts)
        number = self.count(kind)
        self.label(ident, name, number)
        if not self.facts.numbered:
            self.problem(
                self.places(self.locator.matching(rf"#{ident}\b|label: *{ident}\b")),
                f"got the numbered {name.lower()} {ident} on an unnumbered page, where "
                "HTML and PDF number differently: drop the label or number the page",
            )
        self.float, self.letters = [name, number], 0
        try:
            body = content()
        finally:
            self.float = None
        pairs = {"number": number, "kind": name}
        parts = [*body, _caption(caption())]
        return div(attr(ident, ["float", f"float-{kind}"], pairs), parts)

    # Cells

    def read_cell(self, part: CodeCell, content: list[Node]) -> list[Node]:
        options = cell_options(part, self.woven, self.config)
        if options.get("include") is False:
            return []
        parts = {value(b["c"][0], "name"): b["c"][1] for b in content}
        captions = {
            key: self.inlines(_first_inlines(blocks))
            for key, blocks in parts.items()
            if not key.startswith("out-")
        }
        label = part.cell.label
        inside: list[Node] = []
        if options.get("echo") is not False and part.cell.code.strip():
            inside.append(self.cell_code(part, options, captions))
        kind = label.split("-")[0]
        shown = outputs(part, options, slug(self.woven))
        if kind in ("fig", "tbl") and captions.get(f"{kind}-cap"):
            inside += self.float_outputs(part, options, shown, parts, captions)
        else:
            made = self.cell_outputs(part, options, shown, parts)
            caption = captions.get("fig-cap") or captions.get("tbl-cap")
            if caption and made:
                floated = "fig" if "fig-cap" in captions else "tbl"
                made = [self.make_float("", floated, lambda: made, lambda: caption)]
            inside += made
        if options.get("output") == "asis" and not part.cell.code.strip():
            return inside
        taken = any(node["c"][0][0] == label for node in inside if node["t"] == "Div")
        pairs = {
            "path": self.woven.chapter.rel,
            "line": str(part.cell.first),
            "status": part.status,
        }
        classes = ["cell"]
        if part.cell.tangled and self.woven.chapter.module:
            classes.append("tangled")
            pairs["module"] = self.woven.chapter.module
        if not inside:
            return []
        return [div(attr("" if taken else label, classes, pairs), inside)]

    def cell_code(
        self, part: CodeCell, options: dict[str, Any], captions: dict[str, list[Node]]
    ) -> Node:
        fold = options.get("code-fold")
        pairs = {
            "line": str(part.cell.code_line),
            "fold": "show" if fold == "show" else "hide" if fold is True else "",
            "summary": str(options.get("code-summary") or "Code"),
        }
        source = part.cell.code.rstrip()
        block = nodes.code_block(attr("", ["python", "cell-code"], pairs), source)
        caption = captions.get("lst-cap")
        if not caption:
            return block
        ident = str(options.get("lst-label") or "")
        if not ident and _float_kind(part.cell.label) == "lst":
            ident = part.cell.label
        return self.make_float(ident, "lst", lambda: [block], lambda: caption)

    def float_outputs(
        self,
        part: CodeCell,
        options: dict[str, Any],
        shown: list[Output],
        parts: dict[str, list[Node]],
        captions: dict[str, list[Node]],
    ) -> list[Node]:
        """Printed text as it is, then the displays as one float."""
        label = part.cell.label
        kind = label.split("-")[0]
        printed = ("stdout", "stderr", "error")
        before = self.cell_outputs(
            part, options, [o for o in shown if o.kind in printed], parts
        )

        def content() -> list[Node]:
            # Positions are kept, because markdown outputs are named by them.
            made = self.cell_outputs(part, options, shown, parts, skip=printed)
            subcaptions = [captions[k] for k in captions if k.startswith("subcap-")]
            for number, words in enumerate(subcaptions[: len(made)]):
                made[number] = self.subfloat(
                    f"{label}-{number + 1}", made[number], words
                )
            columns = options.get("layout-ncol")
            return [_layout(str(columns), made)] if columns else made

        words = captions[f"{kind}-cap"]
        return [*before, self.make_float(label, kind, content, lambda: words)]

    def subfloat(self, ident: str, node: Node, words: list[Node]) -> Node:
        return self.make_float(ident, "fig", lambda: [node], lambda: words)

    def cell_outputs(
        self,
        part: CodeCell,
        options: dict[str, Any],
        shown: list[Output],
        parts: dict[str, list[Node]],
        skip: tuple[str, ...] = (),
    ) -> list[Node]:
        alts = [str(alt).strip() for alt in _as_list(options.get("fig-alt"))]
        made: list[Node] = []
        number = 0
        for index, output in enumerate(shown):
            if output.kind in skip:
                continue
            if output.kind == "asis":
                made += self.blocks(parts.get(f"out-{index}", []))
                continue
            if output.kind == "image":
                blocks = self.output_image(part, output, alts[number : number + 1])
                number += 1
            elif output.kind == "markdown":
                blocks = self.output_markdown(part, parts.get(f"out-{index}", []))
            else:
                blocks = [nodes.code_block(attr(), output.text.rstrip("\n"))]
            name = output.kind if output.kind in _STREAMS else "display"
            made.append(div(attr("", ["cell-output", f"cell-output-{name}"]), blocks))
        return made

    def output_markdown(self, part: CodeCell, blocks: list[Node]) -> list[Node]:
        before, self.cell = self.cell, part
        inside, self.float = self.float, None
        try:
            return self.aside(blocks)
        finally:
            self.cell, self.float = before, inside

    def output_image(
        self, part: CodeCell, output: Output, alt: list[str]
    ) -> list[Node]:
        if not alt or not alt[0]:
            self.problem(
                part.cell.first,
                f"cell {part.cell.label} shows an image without an alternative text: "
                "add #| fig-alt: with what a reader who cannot see it must know",
            )
        pairs = {"width": output.width} if output.width else {}
        words = [nodes.string(alt[0])] if alt else []
        image = {"t": "Image", "c": [attr("", [], pairs), words, [output.name, ""]]}
        return [nodes.para([image])]

    # Inlines

    def inlines(self, items: list[Node]) -> list[Node]:
        return [new for item in items for new in self.inline(item)]

    def inline(self, node: Node) -> list[Node]:
        kind = node["t"]
        if kind == "Cite":
            return self.cite(node)
        if kind == "Link":
            return [self.link(node)]
        if kind == "Image":
            return self.image(node, nodes.plain_text(node["c"][1]))
        if kind == "RawInline" and _is_comment(node):
            return []
        if kind == "Note":
            return [{"t": "Note", "c": self.aside(node["c"])}]
        return [{**node, "c": self.children(node["c"])}] if "c" in node else [node]

    def cite(self, node: Node) -> list[Node]:
        """Cross-references become links; citations are kept for citeproc."""
        citations, content = node["c"]
        ours = [c for c in citations if _LABEL.match(c["citationId"])]
        if not ours:
            return [node]
        if len(ours) != len(citations):
            ident = ours[0]["citationId"]
            self.problem(
                self.places(self.locator.citation(ident)),
                f"got @{ident} and a citation in one bracket, write one bracket each",
            )
        out: list[Node] = []
        for citation in ours:
            if out:
                out += [nodes.string(","), {"t": "Space"}]
            out += self.reference(citation)
        return out

    def reference(self, citation: dict[str, Any]) -> list[Node]:
        ident = citation["citationId"]
        ident = ident[0].lower() + ident[1:]
        lines = self.locator.citation(citation["citationId"])
        known = self.facts.refs.setdefault(ident, [])
        known += [n for n in dict.fromkeys(self.places(lines)) if n not in known]
        prefix = self.inlines(citation["citationPrefix"])
        suffix = self.inlines(citation["citationSuffix"])
        bare = citation["citationMode"]["t"] == "SuppressAuthor" or bool(prefix)
        text = nodes.string(f"{MARK}{'-' if bare else '+'}{ident}{MARK}")
        words = [*prefix, nodes.string("\u00a0"), text] if prefix else [text]
        attributes = attr("", ["ref"], {"ref": ident})
        return [{"t": "Link", "c": [attributes, words, [f"ref:{ident}", ""]]}, *suffix]

    def link(self, node: Node) -> Node:
        attributes, content, (url, title) = node["c"]
        target = self.link_target(url)
        return {"t": "Link", "c": [attributes, self.inlines(content), [target, title]]}

    def link_target(self, url: str) -> str:
        """`url` from the root of the book; page links are noted for checking."""
        if _SCHEME.match(url):
            return url
        path, _, anchor = url.partition("#")
        lines = self.places(self.locator.target(url))
        if not path:
            self.facts.links += [[self.woven.chapter.rel, anchor, n] for n in lines]
            return f"#{anchor}"
        rel = self.from_root(unquote(path))
        if rel == self.config.pdf_name:
            return rel
        if not rel.endswith(".qmd"):
            self.problem(
                lines,
                f"got a link to {url}, a page of the book links to its pages (.qmd), "
                "its PDF, or an address with https://",
            )
        self.facts.links += [[rel, anchor, n] for n in lines]
        return f"{rel}#{anchor}" if anchor else rel

    def from_root(self, path: str) -> str:
        if path.startswith("/"):
            return normpath(path.lstrip("/"))
        return normpath(str(PurePosixPath(self.woven.chapter.rel).parent / path))

    def image(self, node: Node, caption: str) -> list[Node]:
        (ident, classes, pairs), _, (url, title) = node["c"]
        lines = self.places(self.locator.target(url))
        alt = value(node["c"][0], "fig-alt") or caption.strip()
        if not alt:
            self.problem(
                lines, f'image {url} has no alternative text: add {{fig-alt="…"}}'
            )
        asset = url
        if _SCHEME.match(url):
            self.problem(
                lines,
                f"got the image {url}, a page loads nothing from elsewhere: put the "
                "file into the repository",
            )
        else:
            rel = self.from_root(unquote(url))
            asset = f"files/{rel}"
            self.facts.images += [[rel, asset, n] for n in lines[:1]]
        kept = [[k, v] for k, v in pairs if k != "fig-alt"]
        attributes = ["" if _float_kind(ident) else ident, classes, kept]
        words = [nodes.string(alt)] if alt else []
        return [{"t": "Image", "c": [attributes, words, [asset, title]]}]

    # Citations

    def citations(self, blocks: list[Node]) -> list[Node]:
        keys = [
            citation["citationId"]
            for node in nodes.walk(blocks)
            if node["t"] == "Cite"
            for citation in node["c"][0]
        ]
        if not keys:
            return blocks
        known = bibliography_keys(self.config)
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        for key in missing:
            self.problem(
                self.places(self.locator.citation(key)),
                f"got the citation @{key}, which no bibliography file has",
            )
        if missing:
            return blocks
        return _with_references(pandoc.cite(blocks, self.config.bibliography), self)


_STREAMS = ("stdout", "stderr", "error")


def bibliography_keys(config: Config) -> set[str]:
    keys: set[str] = set()
    for path in config.bibliography:
        if path.is_file():
            source = path.read_text(encoding="utf-8")
            keys |= set(re.findall(r"^\s*@\w+\s*\{\s*([^,\s]+)\s*,", source, re.M))
    return keys


def _with_references(blocks: list[Node], reader: _Reader) -> list[Node]:
    """Citations as plain spans, the list under a heading of its own."""

    def visit(node: Node) -> list[Node] | None:
        if node["t"] == "Cite":
            return [{"t": "Span", "c": [attr("", ["citation"]), node["c"][1]]}]
        return None

    blocks = nodes.rewrite(blocks, visit)
    last = blocks[-1]
    if last["t"] == "Div" and last["c"][0][0] == "refs":
        last["c"][0] = attr("refs", ["references"])
        inlines = [nodes.string("References")]
        header = {"t": "Header", "c": [2, attr("references", ["unnumbered"]), inlines]}
        reader.facts.headings.append([2, "references", "", False, inlines])
        blocks.insert(-1, header)
    return blocks


def _identifiers(blocks: list[Node]) -> list[str]:
    found: list[str] = []
    for node in nodes.walk(blocks):
        content = node.get("c")
        if not isinstance(content, list) or not content:
            continue
        attributes = content[1] if node["t"] == "Header" else content[0]
        if isinstance(attributes, list) and len(attributes) == 3:
            if isinstance(attributes[0], str) and attributes[0]:
                found.append(attributes[0])
    return found


def _is_comment(node: Node) -> bool:
    format_, source = node["c"]
    return bool(format_ == "html" and source.lstrip().startswith("<!--"))


def _float_kind(ident: str) -> str:
    kind = ident.split("-")[0]
    return kind if kind in ("fig", "tbl", "lst") and "-" in ident else ""


def _caption(inlines: list[Node]) -> Node:
    return div(attr("", ["float-caption"]), [nodes.plain(inlines)])


def _layout(columns: str, blocks: list[Node]) -> Node:
    return div(attr("", ["layout"], {"ncol": columns}), blocks)


def _only_image(block: Node) -> bool:
    return [node["t"] for node in block["c"]] == ["Image"]


def _first_inlines(blocks: list[Node]) -> list[Node]:
    for block in blocks:
        if block["t"] in ("Para", "Plain"):
            inlines: list[Node] = block["c"]
            return inlines
    return []


def _trimmed(inlines: list[Node]) -> list[Node]:
    out = list(inlines)
    while out and out[0]["t"] in ("Space", "SoftBreak"):
        out.pop(0)
    while out and out[-1]["t"] in ("Space", "SoftBreak"):
        out.pop()
    return out


def _equation_label(item: Node, after: list[Node]) -> tuple[str, int]:
    """The label behind a display equation, and how many inlines it takes up."""
    if item["t"] != "Math" or item["c"][0]["t"] != "DisplayMath":
        return "", 0
    for used, node in enumerate(after[:2], 1):
        if node["t"] == "Str":
            match = _EQUATION.match(node["c"])
            if match and not node["c"][match.end() :]:
                return match.group(1), used
            return "", 0
        if node["t"] not in ("Space", "SoftBreak"):
            return "", 0
    return "", 0


def _widths(text: str, columns: int) -> list[Node]:
    numbers = [float(n) for n in re.findall(r"[\d.]+", text)]
    if len(numbers) != columns or not sum(numbers):
        return []
    return [{"t": "ColWidth", "c": n / sum(numbers)} for n in numbers]

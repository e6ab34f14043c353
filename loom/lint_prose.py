"""The Quarto subset and the house style, checked in a chapter's prose.

One pass over the lines keeps the state a line depends on: the open divs, an
open fence or display equation, and the paragraph so far.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import tangle
from loom import subset

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(.*)$")
DIV = re.compile(r"^\s*(:{3,})\s*(.*?)\s*:*$")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*$")
ATTRIBUTES = re.compile(r"\{((?:\"[^\"]*\"|[^}\"])*)\}\s*$")
ATTRIBUTE = re.compile(r"""([\w-]+)=("[^"]*"|'[^']*'|[^\s"']+)|([#.=]?[^\s=]+)""")
CODE = re.compile(r"(`+)(.+?)(?<!`)\1(?!`)")
MATH = re.compile(r"(?<![\\$\w])\$(?![\s$])(?:[^$]*?[^\s\\$])?\$(?![\d$])")
IMAGE = re.compile(
    r"!\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)"
    r"(\{(?:\"[^\"]*\"|[^}\"])*\})?"
)
ITEM = re.compile(r"^\s*(?:([-*+])|\(?(\d+|#|[a-z]|@[\w-]*)[.)])\s+\S")
DELIMITER = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
HTML = re.compile(r"<(?:!--|/?[A-Za-z][A-Za-z0-9-]*(?:\s[^<>]*)?/?>)")
TEX = re.compile(r"(?<!\\)\\[A-Za-z]{2,}")
SPAN = re.compile(r"\]\{([^}]*)\}")
REFERENCE = re.compile(r"(?<![\w@.\\/])@\{?([A-Za-z]\w*)-[\w-]+")
NOTE = re.compile(r"\[\^([\w-]+)\]")
NOTE_TEXT = re.compile(r"^\[\^([\w-]+)\]:")

SECOND_SENTENCE = re.compile(
    r"(?P<word>[^\s(]*[a-z0-9)\]`*_\"'’”%$])[.!?][\"'’”)\]*_]*\s+[\"'“‘(\[*_]*[A-Z]"
)
SENTENCE_END = re.compile(r"(?:[.!?:…][\"'’”)\]*_]*(?:\[\^[\w-]+\])*|\\|\^\[[^\]]*\])$")
ABBREVIATIONS = frozenset(
    "e.g i.e fig figs vs cf etc al eq eqs sec ch no dr mr ms approx resp p pp".split()
)
MISTAKEN = {
    "figure": "fig",
    "image": "fig",
    "table": "tbl",
    "tab": "tbl",
    "equation": "eq",
    "eqn": "eq",
    "section": "sec",
    "chapter": "sec",
    "listing": "lst",
    "lis": "lst",
}
UNSUPPORTED = frozenset(
    "thm lem cor prp cnj def exm exr sol rem alg nte tip wrn imp cau vid".split()
)


@dataclass
class Attributes:
    """What stands in braces: ``{#id .class key="value"}``."""

    ids: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    pairs: dict[str, str] = field(default_factory=dict)
    other: list[str] = field(default_factory=list)


def attributes(text: str) -> Attributes:
    """Reads the inside of a pair of braces."""
    found = Attributes()
    for key, value, word in ATTRIBUTE.findall(text):
        if key:
            found.pairs[key] = value.strip("\"'")
        elif word.startswith("#"):
            found.ids.append(word[1:])
        elif word.startswith("."):
            found.classes.append(word[1:])
        else:
            found.other.append(word)
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean '…'?``, or everything that is known."""
    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, 1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"accepted: {' '.join(choices) or 'none'}"


@dataclass
class Div:
    """An open div and the line it began at."""

    line: int
    kind: str  # "callout", "tabset", "float"


class Page:
    """Checks the prose of one chapter; ``problems`` and ``ids`` are what it found."""

    def __init__(self, chapter: tangle.Chapter) -> None:
        self.chapter = chapter
        self.problems: list[tangle.Problem] = []
        self.ids: dict[str, int] = {}
        self.unnumbered = False
        self._lines = chapter.text.split("\n")[:-1]
        self._divs: list[Div] = []
        self._level = 0
        self._first_heading = 0
        self._notes_used: dict[str, int] = {}
        self._notes_given: dict[str, int] = {}
        self._paragraph = 0  # the line of the paragraph's latest line, 0 outside one
        self._end = ""  # that line, when it does not end a sentence
        self._scan()

    def fault(self, line: int, message: str) -> None:
        self.problems.append(tangle.Problem(self.chapter.rel, line, message))

    # ------------------------------------------------------------------ the pass

    def _scan(self) -> None:
        cells = {cell.first: cell for cell in self.chapter.cells}
        i = self._yaml_header()
        while i < len(self._lines):
            line = self._lines[i]
            if i + 1 in cells:
                self._break()
                i = cells[i + 1].last
                continue
            if not line.strip():
                self._break()
            elif fence := FENCE.match(line):
                i = self._listing(i, fence)
            elif line.startswith("$$"):
                i = self._equation(i)
            else:
                self._line(i, line)
            i += 1
        for div in self._divs:
            self.fault(div.line, "a div that is never closed; end it with :::")
        if not self._first_heading:
            self.fault(1, "no H1; begin the chapter with '# Title {#sec-name}'")
        self._notes()

    def _yaml_header(self) -> int:
        """Checks the header; the index of the first line below it."""
        if not self._lines or self._lines[0] != "---":
            return 0
        for i, line in enumerate(self._lines[1:], 1):
            if line in ("---", "..."):
                return i + 1
            key = re.match(r"^([\w-]+):", line)
            if key and key[1] == "title":
                self.fault(i + 1, "title in the YAML header; '# Title {#sec-…}' is it")
            elif key and key[1] not in subset.YAML_KEYS:
                what = nearest(key[1], subset.YAML_KEYS)
                self.fault(i + 1, f"'{key[1]}' in the YAML header; {what}")
        self.fault(1, "a YAML header that is never closed; end it with ---")
        return len(self._lines)

    def _break(self) -> None:
        self._paragraph, self._end = 0, ""

    def _before(self, i: int, what: str) -> None:
        """``what`` begins at index i: it needs a blank line or a fence above it."""
        above = self._lines[i - 1] if i else ""
        if above.strip() and not DIV.match(above) and not FENCE.match(above):
            self.fault(
                i + 1, f"{what} without a blank line above reads as text; add one"
            )

    def _line(self, i: int, line: str) -> None:
        """One line of prose that is neither blank nor in a block."""
        n = i + 1
        if "\t" in line:
            self.fault(n, "a tab; use spaces")
        bare = mask(line)
        if line.lstrip().startswith(":::"):
            self._break()
            self._div(i, line)
        elif heading := HEADING.match(line):
            self._before(i, "a heading")
            self._break()
            self._heading(n, heading[1], heading[2])
        elif not self._block(i, line, bare):
            self._prose(n, line, bare)
        self._inline(n, line, bare)

    # -------------------------------------------------------------------- blocks

    def _listing(self, i: int, fence: re.Match[str]) -> int:
        """A displayed block of code; the index of its last line."""
        self._break()
        indent, marks, info = fence.groups()
        language = info.strip()
        if marks[0] == "~" and not indent:
            self._before(i, "a ~~~ block")
        if not language:
            self.fault(i + 1, "a listing without a language; write ```text for none")
        elif language not in subset.LANGUAGES:
            what = nearest(language, subset.LANGUAGES)
            self.fault(i + 1, f"language '{language}' of a listing; {what}")
        for j in range(i + 1, len(self._lines)):
            line = self._lines[j]
            end = FENCE.match(line)
            if end and end[2].startswith(marks) and not end[3]:
                return j
            if message := too_wide(line):
                self.fault(j + 1, message)
            if "{{<" in line:
                self.fault(j + 1, "a shortcode; Quarto expands it in listings too")
        return len(self._lines)

    def _equation(self, i: int) -> int:
        """A display equation that begins at index i; the index of its last line."""
        self._break()
        rest = self._lines[i][2:]
        j = i
        while "$$" not in rest:
            j += 1
            if j == len(self._lines) or not self._lines[j].strip():
                self.fault(i + 1, "an equation that is not closed; end it with $$")
                return j - 1
            rest = self._lines[j]
        tail = rest.partition("$$")[2].strip()
        if not tail:
            return j
        label = re.fullmatch(r"\{#(eq-[\w-]+)\}", tail)
        if label:
            self._identify(j + 1, label[1])
        else:
            self.fault(j + 1, f"'{tail}' after $$; accepted: {{#eq-name}}")
        return j

    def _div(self, i: int, line: str) -> None:
        n, match = i + 1, DIV.match(line)
        text = match[2] if match else ""
        if not text:
            if self._divs:
                self._divs.pop()
            else:
                self.fault(n, "::: closes nothing; delete it")
            return
        self._before(i, "a div")
        braces = ATTRIBUTES.fullmatch(text)
        if not braces:
            self.fault(n, f"'::: {text}'; write '::: {{.class}}'")
            self._divs.append(Div(n, ""))
            return
        self._divs.append(Div(n, self._div_kind(n, attributes(braces[1]))))

    def _div_kind(self, n: int, found: Attributes) -> str:
        kinds = [f"callout-{kind}" for kind in subset.CALLOUTS]
        known = [*kinds, "panel-tabset"]
        for word in found.other:
            self.fault(
                n, f"'{word}' in a div; write '.class', '#id' or 'key=\"value\"'"
            )
        for name in found.classes:
            if name not in known:
                self.fault(n, f"div class '{name}'; {nearest(name, known)}")
        kind, keys = "", frozenset[str]()
        if any(name in kinds for name in found.classes):
            kind, keys = "callout", subset.CALLOUT_KEYS
            if found.pairs.get("collapse", "true") not in ("true", "false"):
                self.fault(n, "collapse of a callout; accepted: true false")
        elif "panel-tabset" in found.classes:
            kind = "tabset"
        elif found.ids:
            kind, keys = "float", subset.FLOAT_KEYS
            for name in found.ids:
                if name.partition("-")[0] not in subset.FLOAT_DIVS:
                    prefixes = " ".join(f"#{p}-" for p in subset.FLOAT_DIVS)
                    self.fault(n, f"div '#{name}'; accepted: {prefixes} or a class")
        elif not found.classes:
            self.fault(n, f"a div without a class; {nearest('', known)}")
        for key in found.pairs:
            if key not in keys:
                self.fault(n, f"'{key}' of a div; {nearest(key, keys)}")
        for name in found.ids:
            self._identify(n, name)
        return kind

    def _heading(self, n: int, marks: str, text: str) -> None:
        level = len(marks)
        braces = ATTRIBUTES.search(text)
        found = attributes(braces[1]) if braces else Attributes()
        for name in found.classes:
            if name not in subset.HEADER_CLASSES:
                what = nearest(name, subset.HEADER_CLASSES)
                self.fault(n, f"heading class '{name}'; {what}")
        for word in [*found.other, *found.pairs]:
            self.fault(n, f"'{word}' of a heading; accepted: #sec-name .unnumbered")
        for name in found.ids:
            self._identify(n, name)
        if self._divs:
            if level == 1:
                self.fault(n, "an H1 inside a div; use a lower level")
            return
        if level == 1:
            self._title(n, found)
        elif not self._first_heading:
            self.fault(n, "a section before the H1; begin with '# Title {#sec-name}'")
        elif level > self._level + 1:
            mend = "#" * (self._level + 1)
            self.fault(n, f"H{level} after H{self._level} skips a level; use {mend}")
        self._level = level
        self._first_heading = self._first_heading or n

    def _title(self, n: int, found: Attributes) -> None:
        if self._first_heading:
            self.fault(
                n, f"a second H1 (the first is line {self._first_heading}); use ##"
            )
            return
        self.unnumbered = "unnumbered" in found.classes
        if not any(name.startswith("sec-") for name in found.ids):
            self.fault(n, "an H1 without a label; add {#sec-name}")

    def _block(self, i: int, line: str, bare: str) -> bool:
        """Whether the line belongs to a block other than a paragraph."""
        n, start = i + 1, line.lstrip()
        first = not self._paragraph
        if start.startswith("|") or (start.startswith("+-") and "-+" in start):
            self._table(i, start, bare)
        elif item := ITEM.match(line):
            self._item(i, item, first)
        elif start.startswith(">"):
            if not (i and self._lines[i - 1].lstrip().startswith(">")):
                self._before(i, "a block quote")
            self._break()
        elif note := NOTE_TEXT.match(line):
            if note[1] in self._notes_given:
                self.fault(n, f"footnote '{note[1]}' is given twice; rename one")
            self._notes_given[note[1]] = n
            self._break()
        elif re.match(r"^:\s", line):
            self._caption(i, line)
        elif re.match(r"^[~]\s|^:$", line):
            self.fault(n, "a definition list; use a list or a table")
        elif re.fullmatch(r"(=+|-{3,}|(\*\s*){3,}|(_\s*){3,})", start):
            what = "an underlined heading; write '## Heading'"
            rule = "a horizontal rule; begin a section"
            self.fault(n, rule if first else what)
        elif re.match(r"^\[[^\]^]+\]:\s", line):
            self.fault(n, "a link definition; write [text](address) in place")
        elif IMAGE.match(start) and IMAGE.sub("", start, count=1).strip() == "":
            self._break()
        elif line.startswith("    ") and first and not self._in_list(i):
            self.fault(n, "four spaces make a code block; use ```language")
        elif line.startswith("  ") and (first or self._in_list(i)):
            pass  # goes on with a list item
        else:
            return False
        return True

    def _in_list(self, i: int) -> bool:
        """Whether the indented line at index i can go on with a list item."""
        for j in range(i - 1, -1, -1):
            above = self._lines[j]
            if above.strip() and not above.startswith("  "):
                return bool(ITEM.match(above) or NOTE_TEXT.match(above))
        return False

    def _item(self, i: int, item: re.Match[str], first: bool) -> None:
        above = self._lines[i - 1] if i else ""
        inside = ITEM.match(above) or above.startswith("  ")
        if not first and not inside:
            self._before(i, "a list")
        if item[1] and item[1] != "-":
            self.fault(i + 1, f"bullet '{item[1]}'; write '- '")
        if item[2] and (not item[2].isdigit() or f"{item[2]}. " not in item[0] + " "):
            self.fault(i + 1, f"item '{item[0].strip()[:6]}'; write '1. '")
        self._break()

    def _table(self, i: int, start: str, bare: str) -> None:
        n = i + 1
        if start.startswith("+-"):
            self.fault(n, "a grid table; write a pipe table")
            return
        above = self._lines[i - 1] if i else ""
        if above.lstrip().startswith("|"):
            header = i - 1
            while header and self._lines[header - 1].lstrip().startswith("|"):
                header -= 1
            want, got = columns_of(mask(self._lines[header])), columns_of(bare)
            if want != got:
                self.fault(n, f"a table row of {got} cells under a header of {want}")
            return
        self._before(i, "a table")
        below = self._lines[i + 1] if i + 1 < len(self._lines) else ""
        if not (below.lstrip().startswith("|") and DELIMITER.match(below)):
            self.fault(n, "a line that starts with '|' is no table; add the |---| line")
        self._break()

    def _caption(self, i: int, line: str) -> None:
        """``: Caption {#tbl-x}``, which belongs to the table above it."""
        j = i - 1
        while j > 0 and not self._lines[j].strip():
            j -= 1
        if not self._lines[j].lstrip().startswith("|"):
            self.fault(
                i + 1, "a definition list, or a caption without a table above it"
            )
        braces = ATTRIBUTES.search(line)
        if not braces:
            return
        found = attributes(braces[1])
        for name in found.ids:
            if not name.startswith("tbl-"):
                self.fault(i + 1, f"table label '#{name}'; write #tbl-name")
            self._identify(i + 1, name)
        for key in [*found.pairs, *found.classes]:
            if key not in subset.TABLE_KEYS:
                self.fault(
                    i + 1, f"'{key}' of a table; {nearest(key, subset.TABLE_KEYS)}"
                )

    # --------------------------------------------------------------- paragraphs

    def _prose(self, n: int, line: str, bare: str) -> None:
        """One line of a paragraph: exactly one sentence."""
        if self._paragraph and self._end:
            self.fault(
                self._paragraph,
                f"the sentence goes on below ('…{self._end}'); one sentence a line",
            )
        ends = SENTENCE_END.search(bare.rstrip())
        self._paragraph, self._end = n, "" if ends else line.rstrip()[-24:]
        for match in SECOND_SENTENCE.finditer(bare):
            word = match["word"].strip("\"'*_([").lower()
            if word.rpartition("(")[2] not in ABBREVIATIONS:
                at = line[match.start() :][:32]
                self.fault(n, f"two sentences on one line ('{at}…'); break it there")
                break

    # ------------------------------------------------------------------- inline

    def _inline(self, n: int, line: str, bare: str) -> None:
        """What may stand anywhere in prose."""
        if "![" in bare:
            self._images(n, line, bare)
        if "<" in bare:
            if "{{<" in bare:
                self.fault(n, "a shortcode (only Quarto knows it); write it out")
            elif match := HTML.search(bare):
                self.fault(n, f"raw HTML '{match[0][:24]}'; use markdown, or `code`")
        if "\\" in bare and (match := TEX.search(bare)):
            self.fault(n, f"raw TeX '{match[0]}' outside mathematics; write $…$")
        if "$$" in bare:
            self.fault(n, "$$ inside a line; give the equation lines of its own")
        if "`{" in bare:
            self.fault(n, "attributes on `code` (raw text, a class); drop them")
        if "]{" in bare:
            self._spans(n, bare)
        if "){" in bare and "![" not in bare:
            self.fault(n, "attributes on a link; drop them")
        if "@" in bare:
            self._references(n, bare)
        if "[^" in bare:
            for match in NOTE.finditer(bare):
                if not (match.start() == 0 and NOTE_TEXT.match(line)):
                    self._notes_used.setdefault(match[1], n)

    def _images(self, n: int, line: str, bare: str) -> None:
        found = list(IMAGE.finditer(line))
        if len(found) != 1 or IMAGE.sub("", line, count=1).strip():
            self.fault(n, "an image amid text; give it a line of its own")
            return
        text, target, braces = found[0].groups()
        given = attributes((braces or "{}")[1:-1])
        if re.match(r"[a-z]+:|//", target):
            self.fault(n, f"image '{target[:40]}'; use a file of this repository")
        elif not self._image_exists(target):
            self.fault(n, f"image '{target}' is not there")
        if not (given.pairs.get("fig-alt") or (text.strip() and not given.ids)):
            self.fault(n, 'an image without alternative text; add fig-alt="…"')
        for key in [*given.pairs, *given.classes]:
            if key not in subset.IMAGE_KEYS:
                self.fault(n, f"'{key}' of an image; {nearest(key, subset.IMAGE_KEYS)}")
        for name in given.ids:
            if not name.startswith("fig-"):
                self.fault(n, f"image label '#{name}'; write #fig-name")
            self._identify(n, name)

    def _image_exists(self, target: str) -> bool:
        root = self.chapter.path.parents[self.chapter.rel.count("/")]
        base = root if target.startswith("/") else self.chapter.path.parent
        return (base / target.lstrip("/")).is_file()

    def _spans(self, n: int, bare: str) -> None:
        for match in SPAN.finditer(bare):
            found = attributes(match[1])
            for name in found.classes:
                if name not in subset.SPAN_CLASSES:
                    what = nearest(name, subset.SPAN_CLASSES)
                    self.fault(n, f"span class '{name}'; {what}")
            for word in [*found.ids, *found.pairs, *found.other]:
                self.fault(n, f"'{word}' of a span; only a class is accepted")

    def _references(self, n: int, bare: str) -> None:
        for match in REFERENCE.finditer(bare):
            prefix = match[1]
            if prefix in subset.REFERENCES:
                continue
            meant = MISTAKEN.get(prefix.lower()) or (
                prefix.lower() if prefix.lower() in subset.REFERENCES else ""
            )
            if meant:
                self.fault(n, f"'@{prefix}-' is no reference; write @{meant}-")
            elif prefix.lower() in UNSUPPORTED:
                known = " ".join(f"@{key}-" for key in subset.REFERENCES)
                self.fault(n, f"'@{prefix}-' is not numbered here; accepted: {known}")

    def _identify(self, n: int, name: str) -> None:
        """Notes that line n defines the label ``name``."""
        if name in self.ids:
            self.fault(n, f"label '{name}' is already that of line {self.ids[name]}")
        self.ids.setdefault(name, n)
        prefix = name.partition("-")[0]
        if self.unnumbered and prefix in ("fig", "tbl", "eq", "lst"):
            self.fault(
                n, f"'{name}' on an unnumbered page has no number; drop the label"
            )

    def _notes(self) -> None:
        for name, n in self._notes_used.items():
            if name not in self._notes_given:
                self.fault(n, f"footnote '{name}' has no text; add '[^{name}]: …'")
        for name, n in self._notes_given.items():
            if name not in self._notes_used:
                self.fault(n, f"footnote '{name}' is never used; delete it")


def too_wide(line: str) -> str:
    """The fault of a line of code that runs off the printed page, or nothing."""
    if len(line) <= subset.CODE_COLUMNS:
        return ""
    most = subset.CODE_COLUMNS
    return f"code of {len(line)} columns; at most {most} fit the page, break the line"


def mask(line: str) -> str:
    """The line with code, then mathematics, replaced by as many x."""
    if "`" in line:
        line = CODE.sub(lambda m: m[1] + "x" * len(m[2]) + m[1], line)
    if "$" in line:
        line = MATH.sub(lambda m: "$" + "x" * (len(m[0]) - 2) + "$", line)
    return line


def columns_of(bare: str) -> int:
    """The number of cells in a row of a pipe table (code is masked)."""
    return len(re.findall(r"(?<!\\)\|", bare.strip().strip("|"))) + 1

"""Drawings for the book, as SVG that reads in light, dark, print and by ear.

Every drawing is one self-contained SVG: class `loom-svg` on the root, colors as
presentation attributes, and a class on each colored part so that a stylesheet can
recolor it (`dark_style`). Nothing depends on color alone. The same input gives the
same bytes.

Classes: `ink` and `muted` are the fill of text and of arrow heads, `paper` that of the
card and of uncolored cells, `p0` to `p7` that of the programs' cells; `grid` is the
stroke of outlines and rules, `hatch` that of the hatching.
"""

from __future__ import annotations

import hashlib
import html
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
ADVANCE = 0.605
PAGE_WIDTH = 640

LIGHT = {
    "paper": "#ffffff",
    "ink": "#16181d",
    "muted": "#565b66",
    "grid": "#8a909c",
    "hatch": "#b4b9c2",
    "p0": "#8cc8f2",
    "p1": "#f7b25c",
    "p2": "#7fd3a6",
    "p3": "#f4e673",
    "p4": "#e2a3d2",
    "p5": "#97a5f5",
    "p6": "#f08c7d",
    "p7": "#cfc7b8",
}
DARK = {
    "paper": "#16181d",
    "ink": "#f1f3f6",
    "muted": "#aab0bb",
    "grid": "#767d8a",
    "hatch": "#4d535e",
    "p0": "#11557f",
    "p1": "#85500b",
    "p2": "#14603c",
    "p3": "#625705",
    "p4": "#7a3469",
    "p5": "#3c479d",
    "p6": "#8f3527",
    "p7": "#5a5347",
}
PROGRAMS = 8
FILLED = ("paper", "ink", "muted", *(f"p{n}" for n in range(PROGRAMS)))


def dark_style(scope: str = "") -> str:
    """CSS that recolors a drawing for a dark page; `scope` goes before each rule."""
    lead = f"{scope} .loom-svg" if scope else ".loom-svg"
    rules = [f"{lead} .{n} {{ fill: {DARK[n]} }}" for n in FILLED]
    rules += [f"{lead} .{n} {{ stroke: {DARK[n]} }}" for n in ("grid", "hatch")]
    return "\n".join(rules) + "\n"


@dataclass(frozen=True)
class Drawing:
    """A finished drawing; it shows itself as SVG."""

    svg: str
    title: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing: {self.title}"

    def save(self, path: str | Path) -> Path:
        """Write the SVG to a file and return its path."""
        target = Path(path)
        target.write_text(self.svg, encoding="utf-8")
        return target


class Canvas:
    """Collects shapes and turns them into a `Drawing`.

    Positions are pixels from the top left. Text is monospace, so that its width is
    known without a browser.
    """

    def __init__(self, title: str, desc: str) -> None:
        self.title = title
        self.desc = desc
        self.width = 0.0
        self.height = 0.0
        self._parts: list[str] = []
        self._hatched = False

    def _grow(self, right: float, bottom: float) -> None:
        self.width = max(self.width, right)
        self.height = max(self.height, bottom)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        name: str = "paper",
        *,
        outline: bool = True,
        dashed: bool = False,
        rounded: float = 0,
        tip: str = "",
    ) -> None:
        """A filled box of class `name`, with an outline of class `grid`."""
        kind = f"{name} grid" if outline else name
        extra = f' stroke="{LIGHT["grid"]}" stroke-width="1"' if outline else ""
        extra += ' stroke-dasharray="3 2"' if dashed else ""
        extra += f' rx="{_n(rounded)}"' if rounded else ""
        body = f"<title>{_text(tip)}</title></rect>" if tip else ""
        self._parts.append(
            f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" '
            f'height="{_n(height)}" fill="{LIGHT[name]}"{extra}'
            + (f">{body}" if body else "/>")
        )
        self._grow(x + width, y + height)

    def outline(self, x: float, y: float, width: float, height: float) -> None:
        """An empty box with an outline of class `grid`."""
        self._parts.append(
            f'<rect class="grid" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" '
            f'height="{_n(height)}" fill="none" stroke="{LIGHT["grid"]}"/>'
        )

    def hatch(self, x: float, y: float, width: float, height: float) -> None:
        """Hatching over a box: what is there is masked off."""
        self._hatched = True
        self._parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" '
            f'height="{_n(height)}" fill="url(#@@-hatch)"/>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, width: float = 1
    ) -> None:
        """A rule of class `grid`."""
        self._parts.append(
            f'<line class="grid" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" '
            f'y2="{_n(y2)}" stroke="{LIGHT["grid"]}" stroke-width="{_n(width)}"/>'
        )
        self._grow(max(x1, x2), max(y1, y2))

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """An arrow from the first point to the second."""
        length = math.hypot(x2 - x1, y2 - y1) or 1.0
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 8 * ux, y2 - 8 * uy
        self.line(x1, y1, bx, by, width=1.5)
        corners = [(x2, y2), (bx - 4 * uy, by + 4 * ux), (bx + 4 * uy, by - 4 * ux)]
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in corners)
        self._parts.append(
            f'<polygon class="muted" points="{points}" fill="{LIGHT["muted"]}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        name: str = "ink",
        *,
        size: float = 12,
        anchor: str = "start",
        bold: bool = False,
        struck: bool = False,
    ) -> None:
        """One line of text, its baseline at `y`."""
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text class="{name}" x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" '
            f'text-anchor="{anchor}" fill="{LIGHT[name]}"{weight} '
            f'xml:space="preserve">{_text(words)}</text>'
        )
        width = text_width(words, size)
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        self._grow(left + width, y + 0.3 * size)
        if struck:
            # slanted, since a level line would hide a minus sign
            self._parts.append(
                f'<line class="grid" x1="{_n(left - 2)}" y1="{_n(y + 1)}" '
                f'x2="{_n(left + width + 2)}" y2="{_n(y - 0.75 * size)}" '
                f'stroke="{LIGHT["muted"]}" stroke-width="1.2"/>'
            )

    def finish(self, margin: float = 10) -> Drawing:
        """The drawing, on a card with a margin all around."""
        width, height = self.width + 2 * margin, self.height + 2 * margin
        pattern = ""
        if self._hatched:
            pattern = (
                '<defs><pattern id="@@-hatch" width="6" height="6" '
                'patternUnits="userSpaceOnUse">'
                '<path class="hatch" d="M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2" '
                f'fill="none" stroke="{LIGHT["hatch"]}" stroke-width="1.1"/>'
                "</pattern></defs>"
            )
        body = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="loom-svg" role="img" '
            f'aria-labelledby="@@-title @@-desc" width="{_n(width)}" '
            f'height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" '
            f'font-family="{FONT}">\n'
            f'<title id="@@-title">{_text(self.title)}</title>\n'
            f'<desc id="@@-desc">{_text(self.desc)}</desc>\n'
            + (pattern + "\n" if pattern else "")
            + f'<rect class="paper" width="{_n(width)}" height="{_n(height)}" '
            f'fill="{LIGHT["paper"]}"/>\n'
            f'<g transform="translate({_n(margin)} {_n(margin)})">\n'
            + "\n".join(self._parts)
            + "\n</g>\n</svg>\n"
        )
        mark = "loom-" + hashlib.sha256(body.encode()).hexdigest()[:10]
        return Drawing(body.replace("@@", mark), self.title)


def text_width(words: str, size: float) -> float:
    """The width of monospace text in pixels."""
    return len(words) * size * ADVANCE


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def _text(words: str) -> str:
    return html.escape(words, quote=True)


# --- cells ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One cell: its text, the programs that touched it and whether it is real.

    `programs` are the colors (0 to 7) in order of first touch, `tag` the program
    numbers written in the corner. `masked` hatches the cell; `outside` also strikes
    its text and dashes its outline: there is no such element.
    """

    text: str
    programs: tuple[int, ...] = ()
    tag: str = ""
    masked: bool = False
    outside: bool = False
    tip: str = ""


@dataclass(frozen=True)
class CellGrid:
    """Cells by (row, column), with a heading and optional row and column labels."""

    heading: str
    note: str
    cells: dict[tuple[int, int], Cell]
    rows: dict[int, str] = field(default_factory=dict)
    columns: dict[int, str] = field(default_factory=dict)


CELL_HEIGHT = 34.0


def cell_width(grids: Iterable[CellGrid]) -> float:
    """One width that fits every cell of the drawing."""
    widest = 30.0
    for grid in grids:
        for cell in grid.cells.values():
            widest = max(widest, text_width(cell.text, 12) + 10)
            widest = max(widest, text_width(cell.tag, 9) + 8)
    return math.ceil(widest)


def _top(grid: CellGrid) -> float:
    """The height of what stands above a grid's cells."""
    heading = 24.0 if grid.heading else 4.0
    return heading + (16 if grid.note else 0) + (14 if grid.columns else 0)


def grid_size(grid: CellGrid, width: float) -> tuple[float, float]:
    """The pixels a grid of cells takes, heading and labels included."""
    columns = [c for _, c in grid.cells] or [0]
    rows = [r for r, _ in grid.cells] or [0]
    left = _label_width(grid)
    across = left + (max(columns) - min(columns) + 1) * width
    heading = max(text_width(grid.heading, 13), text_width(grid.note, 10.5))
    down = _top(grid) + (max(rows) - min(rows) + 1) * CELL_HEIGHT
    return max(across, heading), down


def _label_width(grid: CellGrid) -> float:
    longest = max((len(label) for label in grid.rows.values()), default=0)
    return longest * 10 * ADVANCE + 6 if longest else 0.0


def draw_grid(canvas: Canvas, grid: CellGrid, x: float, y: float, width: float) -> None:
    """Draw a grid of cells with its heading, its top left corner at (x, y)."""
    if grid.heading:
        canvas.text(x, y + 13, grid.heading, size=13, bold=True)
    if grid.note:
        canvas.text(x, y + 29, grid.note, "muted", size=10.5)
    left = x + _label_width(grid)
    top = y + _top(grid)
    first_row = min((r for r, _ in grid.cells), default=0)
    first_column = min((c for _, c in grid.cells), default=0)
    for column, label in grid.columns.items():
        middle = left + (column - first_column + 0.5) * width
        canvas.text(middle, top - 4, label, "muted", size=10, anchor="middle")
    for row, label in grid.rows.items():
        middle = top + (row - first_row + 0.5) * CELL_HEIGHT + 3.5
        canvas.text(left - 6, middle, label, "muted", size=10, anchor="end")
    for (row, column), cell in sorted(grid.cells.items()):
        at = left + (column - first_column) * width
        draw_cell(canvas, cell, at, top + (row - first_row) * CELL_HEIGHT, width)


def draw_cell(canvas: Canvas, cell: Cell, x: float, y: float, width: float) -> None:
    """Draw one cell: bands of color, hatching, outline, text and corner tag."""
    height = CELL_HEIGHT
    if cell.outside or not cell.programs:
        canvas.rect(x, y, width, height, "paper", dashed=cell.outside, tip=cell.tip)
    else:
        bands = cell.programs[:4]
        step = width / len(bands)
        for number, program in enumerate(bands):
            name = f"p{program % PROGRAMS}"
            left = x + number * step
            canvas.rect(left, y, step, height, name, outline=False, tip=cell.tip)
        canvas.outline(x, y, width, height)
    middle = x + width / 2
    baseline = y + (17 if cell.tag else height / 2 + 4.3)
    name = "muted" if cell.outside or cell.masked else "ink"
    if cell.masked or cell.outside:
        canvas.hatch(x, y, width, height)
        half = text_width(cell.text, 12) / 2 + 2
        canvas.rect(middle - half, baseline - 11.5, 2 * half, 14.5, outline=False)
        if cell.tag:
            half = text_width(cell.tag, 9) / 2 + 1.5
            canvas.rect(middle - half, y + 21.5, 2 * half, 10.5, outline=False)
    canvas.text(middle, baseline, cell.text, name, anchor="middle", struck=cell.outside)
    if cell.tag:
        tag_name = "muted" if cell.outside or cell.masked else "ink"
        canvas.text(middle, y + 30, cell.tag, tag_name, size=9, anchor="middle")


def draw_legend(
    canvas: Canvas, entries: Sequence[tuple[str, str]], x: float, y: float, width: float
) -> float:
    """Swatches with labels, wrapped at `width`; returns the height taken.

    An entry is (kind, label); the kind is "p0" to "p7", "masked" or "outside".
    """
    at, line = x, y
    for kind, label in entries:
        needed = 18 + text_width(label, 10.5) + 14
        if at > x and at + needed > x + width:
            at, line = x, line + 18
        if kind in ("masked", "outside"):
            canvas.rect(at, line, 13, 13, "paper", dashed=kind == "outside")
            canvas.hatch(at, line, 13, 13)
        else:
            canvas.rect(at, line, 13, 13, kind)
        canvas.text(at + 18, line + 10.5, label, size=10.5)
        at += needed
    return line + 16 - y


def arrange(
    title: str,
    desc: str,
    grids: Sequence[CellGrid],
    legend: Sequence[tuple[str, str]] = (),
    layout: str | None = None,
) -> Drawing:
    """Grids of cells beside or below one another, with a legend, as a drawing.

    `layout` is "side", "stack", or None for side if that fits the page.
    """
    canvas = Canvas(title, desc)
    width = cell_width(grids)
    sizes = [grid_size(grid, width) for grid in grids]
    gap = 28.0
    beside = sum(w for w, _ in sizes) + gap * max(0, len(sizes) - 1)
    side = layout == "side" or (layout is None and beside <= PAGE_WIDTH)
    x = y = bottom = 0.0
    for grid, (across, down) in zip(grids, sizes, strict=True):
        draw_grid(canvas, grid, x, y, width)
        bottom = max(bottom, y + down)
        if side:
            x += across + gap
        else:
            y += down + 18
    if legend:
        room = max(canvas.width, 300.0)
        draw_legend(canvas, legend, 0, bottom + 16, room)
    return canvas.finish()


def strip(
    texts: Sequence[Any],
    programs: Sequence[int | None] = (),
    *,
    title: str,
    desc: str,
    columns: int = 16,
    heading: str = "",
    note: str = "",
) -> Drawing:
    """A row of cells, wrapped at `columns`, cell i colored by `programs[i]`."""
    cells = {}
    used: list[int] = []
    for number, value in enumerate(texts):
        owner = programs[number] if number < len(programs) else None
        known = () if owner is None else (owner % PROGRAMS,)
        tag = "" if owner is None else f"p{owner}"
        cells[divmod(number, columns)] = Cell(str(value), known, tag)
        if owner is not None and owner not in used:
            used.append(owner)
    entries = [(f"p{n % PROGRAMS}", f"program {n}") for n in sorted(used)]
    grid = CellGrid(heading or title, note, cells)
    return arrange(title, desc, [grid], entries)


# --- boxes and arrows -----------------------------------------------------------------


def pipeline(
    stages: Sequence[str | tuple[str, str]],
    *,
    title: str = "",
    desc: str = "",
    labels: Sequence[str] = (),
    width: float = PAGE_WIDTH,
) -> Drawing:
    """Boxes in order with arrows between them, wrapped at `width`.

    A stage is a name, or a name and a line below it; `labels[i]` stands above the
    arrow from stage i to the next.
    """
    pairs = [(s, "") if isinstance(s, str) else s for s in stages]
    names = [name for name, _ in pairs]
    canvas = Canvas(
        title or " to ".join((names[0], names[-1])),
        desc or "A sequence of boxes joined by arrows: " + ", then ".join(names) + ".",
    )
    tall = 52.0 if any(below for _, below in pairs) else 36.0
    x, y = 0.0, 18.0 if any(labels) else 0.0
    for number, (name, below) in enumerate(pairs):
        box = max(text_width(name, 13), text_width(below, 10.5)) + 24
        label = labels[number - 1] if 0 < number <= len(labels) else ""
        gap = max(34.0, text_width(label, 10) + 20)
        if number and x + gap + box > width:
            x, y = 0.0, y + tall + 34
            gap = 34.0
        if number:
            middle = y + tall / 2
            if label:
                canvas.text(
                    x + gap / 2, middle - 8, label, "muted", size=10, anchor="middle"
                )
            canvas.arrow(x + 4, middle, x + gap - 4, middle)
            x += gap
        canvas.rect(x, y, box, tall, "p0", rounded=5)
        baseline = y + (22 if below else tall / 2 + 4.5)
        canvas.text(x + box / 2, baseline, name, size=13, anchor="middle", bold=True)
        if below:
            canvas.text(x + box / 2, y + 40, below, size=10.5, anchor="middle")
        x += box
    return canvas.finish()


# --- plots ----------------------------------------------------------------------------

PLOT_COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#9a4f96",
    "#8a6d00",
    "#3aa0d8",
    "#b5332e",
    "#5c5c5c",
)
PLOT_STYLE = {
    "axes.edgecolor": "#565b66",
    "axes.facecolor": "#ffffff",
    "axes.grid": True,
    "axes.labelcolor": "#16181d",
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.facecolor": "#ffffff",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": "#d7dae0",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "path",
    "svg.hashsalt": "loom",
    "xtick.color": "#565b66",
    "ytick.color": "#565b66",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


class Plot:
    """A matplotlib figure that shows itself as SVG, the same bytes each time.

    `figure` is the Figure and `axes` its Axes (one, or an array of them).
    """

    def __init__(self, width: float, height: float, rows: int, columns: int) -> None:
        import matplotlib
        from cycler import cycler
        from matplotlib.figure import Figure

        cycle = cycler(color=PLOT_COLORS) + cycler(marker=MARKERS)
        self._style = {**PLOT_STYLE, "axes.prop_cycle": cycle}
        with matplotlib.rc_context(self._style):
            self.figure = Figure(figsize=(width, height), layout="constrained")
            self.axes: Any = self.figure.subplots(rows, columns)

    @property
    def svg(self) -> str:
        """The figure as SVG text."""
        import matplotlib

        out = io.BytesIO()
        with matplotlib.rc_context(self._style):
            nothing = {"Date": None, "Creator": None}
            self.figure.savefig(out, format="svg", metadata=nothing)
        return out.getvalue().decode()

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return "Plot"


def figure(
    width: float = 6.4, height: float = 3.4, rows: int = 1, columns: int = 1
) -> Plot:
    """A new plot of a fixed size in inches, in the book's style."""
    return Plot(width, height, rows, columns)

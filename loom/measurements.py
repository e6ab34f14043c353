"""What was measured on a GPU: times with their spread, rates, tables and plots.

`loom.bench` makes these objects and `loom.keep` stores them.  They hold no tensors
and import nothing heavy, so that a chapter can read them where there is no GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Size = int | tuple[int, ...] | None
UNITS = ("bytes", "flops", "calls")
NOT_RUN = "not yet run on a GPU"


@dataclass(frozen=True)
class Run:
    """Where and with what a measurement was made, and the ceilings measured there.

    ``copy`` is the rate of a large device-to-device copy in bytes a second, read and
    written; ``matmul`` that of a large matrix product in operations a second.
    """

    device: str
    versions: dict[str, str]
    date: str
    copy: float | None = None
    matmul: float | None = None
    matmul_dtype: str = ""

    def __str__(self) -> str:
        said = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.device} ({said}), {self.date}"


@dataclass(frozen=True)
class Measurement:
    """One contestant at one size: the median of its calls, and their quartiles.

    Seconds are of device time, for one call.  ``bytes`` and ``flops`` are those of
    one call, as they were given, or None.
    """

    name: str
    size: Size
    seconds: float
    low: float
    high: float
    calls: int
    bytes: float | None
    flops: float | None
    run: Run = field(repr=False)

    @property
    def spread(self) -> float:
        """The distance between the quartiles, as a fraction of the median."""
        return (self.high - self.low) / self.seconds

    @property
    def gbps(self) -> float | None:
        """Gigabytes (10**9) a second."""
        return None if self.bytes is None else self.bytes / self.seconds / 1e9

    @property
    def tflops(self) -> float | None:
        """Tera (10**12) floating-point operations a second."""
        return None if self.flops is None else self.flops / self.seconds / 1e12

    @property
    def of_copy(self) -> float | None:
        """The rate of bytes as a fraction of the measured device copy's."""
        if self.bytes is None or self.run.copy is None:
            return None
        return self.bytes / self.seconds / self.run.copy

    @property
    def of_matmul(self) -> float | None:
        """The rate of operations as a fraction of the measured matrix product's."""
        if self.flops is None or self.run.matmul is None:
            return None
        return self.flops / self.seconds / self.run.matmul

    def rate(self, unit: str) -> float | None:
        """Bytes, floating-point operations or calls a second."""
        amount = {"bytes": self.bytes, "flops": self.flops, "calls": 1.0}[unit]
        return None if amount is None else amount / self.seconds

    def to_kept(self) -> dict[str, Any]:
        return _row(self) | {"run": dataclasses.asdict(self.run)}

    @classmethod
    def from_kept(cls, data: dict[str, Any]) -> Measurement:
        return _measurement(data, Run(**data["run"]))

    def __str__(self) -> str:
        return str(Comparison([self], self.run).table())


def _row(one: Measurement) -> dict[str, Any]:
    row = {f.name: getattr(one, f.name) for f in dataclasses.fields(one)}
    del row["run"]
    return row


def _measurement(row: dict[str, Any], run: Run) -> Measurement:
    size = row["size"]
    size = tuple(size) if isinstance(size, list) else size
    return Measurement(**row | {"size": size, "run": run})


class Comparison:
    """Contestants measured in turns in one run, at one size or at several.

    Iterating gives the measurements, size by size.
    """

    def __init__(self, rows: Sequence[Measurement], run: Run) -> None:
        self.rows = list(rows)
        self.run = run

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(row.name for row in self.rows))

    @property
    def sizes(self) -> list[Size]:
        return list(dict.fromkeys(row.size for row in self.rows))

    def row(self, name: str, size: Size = None) -> Measurement:
        """A contestant's measurement at a size; without one, at the last size.

        Raises KeyError saying which names and sizes there are.
        """
        wanted = self.sizes[-1] if size is None else size
        for row in self.rows:
            if row.name == name and row.size == wanted:
                return row
        raise KeyError(
            f"got {name!r} at size {wanted}; there are {', '.join(self.names)}"
            f" at sizes {', '.join(map(size_text, self.sizes))}"
        )

    def series(self, name: str) -> list[Measurement]:
        """A contestant's measurements by size."""
        return [self.row(name, size) for size in self.sizes]

    def ratio(self, a: str, b: str, size: Size = None, of: str | None = None) -> float:
        """How many times the rate of `b` the contestant `a` reaches; 2 is twice.

        The rate is of bytes where both have them, else of flops, else of calls;
        `of` asks for one of these.  Without a size, at the last one.
        """
        if of is not None and of not in UNITS:
            raise ValueError(f"of: got {of!r}; accepted are {', '.join(UNITS)}")
        first, second = self.row(a, size), self.row(b, size)
        for unit in UNITS if of is None else (of,):
            above, below = first.rate(unit), second.rate(unit)
            if above is not None and below is not None:
                return above / below
        raise ValueError(f"of: got {of!r}, which was not given for {a!r} and {b!r}")

    def table(self) -> Any:
        """Every measurement as a row, as Markdown or aligned text."""
        from loom.trace import Table

        shown = [c for c in COLUMNS if any(c[1](row) for row in self.rows)]
        body = [[text(row) for _, text in shown] for row in self.rows]
        return Table([head for head, _ in shown], body)

    def draw(self) -> Any:
        """The rates by size, with quartiles, as a drawing."""
        return draw(self)

    def to_kept(self) -> dict[str, Any]:
        rows = [_row(row) for row in self.rows]
        return {"rows": rows, "run": dataclasses.asdict(self.run)}

    @classmethod
    def from_kept(cls, data: dict[str, Any]) -> Comparison:
        run = Run(**data["run"])
        return cls([_measurement(row, run) for row in data["rows"]], run)

    def _repr_markdown_(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return str(self.table())


def size_text(size: Size) -> str:
    """``4096``, ``2^20``, ``16384 × 1024``; empty for no size."""
    if size is None:
        return ""
    if isinstance(size, tuple):
        return " × ".join(map(str, size))
    power = size.bit_length() - 1
    return f"2^{power}" if size == 2**power and power > 9 else str(size)


def _number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits, never in powers of ten."""
    if value is None:
        return ""
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:.{max(0, digits - whole)}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


Column = tuple[str, Callable[[Measurement], str]]
COLUMNS: tuple[Column, ...] = (
    ("size", lambda row: size_text(row.size)),
    ("contestant", lambda row: row.name),
    ("median, µs", lambda row: _number(1e6 * row.seconds)),
    (
        "quartiles, µs",
        lambda row: f"{_number(1e6 * row.low)}–{_number(1e6 * row.high)}",
    ),
    ("GB/s", lambda row: _number(row.gbps)),
    ("of the copy", lambda row: _percent(row.of_copy)),
    ("TFLOP/s", lambda row: _number(row.tflops)),
    ("of the product", lambda row: _percent(row.of_matmul)),
)


# ------------------------------------------------------------------------------- plots


def draw(measured: Any) -> Any:
    """A comparison as a drawing: rates against sizes, or bars at a single size.

    What no GPU has run yet (see `loom.captured`) gives empty axes that say so.
    """
    from loom.drawing import figure

    plot = figure()
    axes = plot.axes
    if not measured:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, NOT_RUN, transform=axes.transAxes, ha="center")
        return plot
    unit, factor, label = _axis(measured)
    if len(measured.sizes) == 1:
        _bars(axes, measured, unit, factor)
        axes.set_xlabel(label)
        return plot
    for name in measured.names:
        rows = measured.series(name)
        at = _positions(measured.sizes)
        axes.errorbar(at, *_values(rows, unit, factor), label=name, capsize=2)
    _ceiling(axes.axhline, measured, unit, factor)
    _size_axis(axes, measured.sizes)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(label)
    axes.legend()
    return plot


def _axis(measured: Comparison) -> tuple[str, float, str]:
    """What to draw: unit, factor, and the label of the axis."""
    for unit, factor, label in (("bytes", 1e-9, "GB/s"), ("flops", 1e-12, "TFLOP/s")):
        if all(row.rate(unit) is not None for row in measured.rows):
            return unit, factor, label
    return "calls", 1.0, "calls a second"


def _values(
    rows: Sequence[Measurement], unit: str, factor: float
) -> tuple[list[float], list[list[float]]]:
    """The rates, and how far their quartiles lie below and above."""
    rates = [factor * (row.rate(unit) or 0.0) for row in rows]
    pairs = list(zip(rates, rows, strict=True))
    below = [rate * (1 - row.seconds / row.high) for rate, row in pairs]
    above = [rate * (row.seconds / row.low - 1) for rate, row in pairs]
    return rates, [below, above]


def _positions(sizes: Sequence[Size]) -> list[Any]:
    numbers = all(isinstance(size, int) for size in sizes)
    return list(sizes) if numbers else list(range(len(sizes)))


def _size_axis(axes: Any, sizes: Sequence[Size]) -> None:
    if all(isinstance(size, int) for size in sizes):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("size")
    else:
        axes.set_xticks(range(len(sizes)), [size_text(size) for size in sizes])


def _bars(axes: Any, measured: Comparison, unit: str, factor: float) -> None:
    rates, around = _values(measured.rows, unit, factor)
    axes.barh([row.name for row in measured.rows], rates, xerr=around, capsize=2)
    axes.invert_yaxis()
    _ceiling(axes.axvline, measured, unit, factor)


def _ceiling(line: Any, measured: Comparison, unit: str, factor: float) -> None:
    top = {"bytes": measured.run.copy, "flops": measured.run.matmul}.get(unit)
    if top:
        name = {"bytes": "device copy, large", "flops": "matrix product, large"}[unit]
        line(factor * top, linestyle="--", color="#565b66", marker="", label=name)

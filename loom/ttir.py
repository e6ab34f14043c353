"""What the compile gate asks of a kernel's TTIR: wide offsets, no narrow float64.

`narrow_products` reads the text as a graph of definitions and uses.  A product is
*narrow* if it has fewer than 64 bits, it depends on a program id, an integer argument
(a size or a stride) or a loaded number, and an address depends on it: then it can
wrap before it is widened.  No fault are

- what a constant block size and `tl.arange` give, which is bounded by the kernel;
- a product that is only a divisor, a modulus or part of a condition;
- a product of quotients or remainders, as the number of a tile in a grouped order,
  if it is widened and then multiplied in 64 bits: it is no larger than the grid.

Coordinates of tensor descriptors are 32-bit by nature and are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

PRODUCTS = ("arith.muli", "arith.shli")
QUOTIENTS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui")
CONDITIONS = ("arith.cmpi", "arith.cmpf")
BOUNDED = ("arith.constant", "tt.make_range")
WORDS = {
    "tt.get_program_id": "a program id",
    "tt.get_num_programs": "the number of programs",
    "argument": "the argument {name}",
    "tt.load": "a loaded number",
}
_LOCATION = re.compile(r"\s*loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
NAME = r"%[\w$.-]+(?:#\d+)?"


@dataclass(eq=False)
class Value:
    """A value of the program: what made it, from what, and where in the source."""

    made_by: str
    name: str = ""
    bits: int = 0
    location: str = ""
    operands: list[Value] = field(default_factory=list)


@dataclass
class _Region:
    """An open region: its operation, and the names known in it."""

    made_by: str
    results: list[Value]
    carried: list[Value]
    header: list[Value]
    names: dict[str, Value] = field(default_factory=dict)


class Program:
    """The values of a TTIR text, in order."""

    def __init__(self, ttir: str) -> None:
        self.values: list[Value] = []
        self.places = dict(re.findall(r"^(#loc\d*) = (loc\(.*\))$", ttir, re.MULTILINE))
        self._regions = [_Region("module", [], [], [])]
        for line in ttir.splitlines():
            if not line.startswith("#"):
                self._line(line)

    def place(self, value: Value) -> str:
        """``path:line`` of the source, or nothing if the text does not say."""
        text = value.location
        for _ in range(20):
            found = re.search(r'"([^"]+)":(\d+):\d+', text)
            if found:
                return f"{found[1]}:{found[2]}"
            alias = re.search(r"#loc\d*", text)
            if not alias or alias[0] not in self.places:
                break
            text = self.places[alias[0]]
        return ""

    def _line(self, line: str) -> None:
        last = line.rfind(" loc(")
        location = line[last:] if last >= 0 else ""
        text = _LOCATION.sub("", line).strip()
        if text.startswith("}"):
            self._close(text)
        elif text.startswith("^"):
            self._block(text)
        elif text.startswith("tt.func"):
            self._function(text, location)
        elif re.match(r"(scf\.(yield|condition|reduce)|tt\.\w+\.return)\b", text):
            self._yield(text)
        elif text.startswith("%") or text.endswith("{"):
            self._operation(text, location)

    def _function(self, text: str, location: str) -> None:
        arguments = re.sub(r"\{[^{}]*\}", "", text[: text.rfind(")")])
        self._open("function", [], [], [])
        for name, kind in re.findall(rf"({NAME}): ([^,)]+)", arguments):
            bits = _bits(kind) if "ptr" not in kind and "desc" not in kind else 0
            self._define(name, Value("argument", name[1:], bits, location))

    def _operation(self, text: str, location: str) -> None:
        left, right = "", text
        if text.startswith("%"):
            left, right = text.split(" = ", 1)
        made_by = re.split(r"[ (]", right)[0].strip('"')
        opened = right.endswith("{")
        own = opened and made_by in ("scf.for", "scf.if")  # from what is yielded
        operands = [] if own else self._used(right)
        name, _, count = left.partition(":")
        results = [
            Value(made_by, name[1:], _bits(right), location, list(operands))
            for _ in range(int(count or 1))
        ]
        for number, result in enumerate(results if left else []):
            self._define(f"{name}#{number}" if count else name, result)
        if opened:
            self._enter(made_by, right, location, results if left else [])

    def _enter(
        self, made_by: str, text: str, location: str, results: list[Value]
    ) -> None:
        """Open an operation's region, with the names that its first line gives."""
        loop = made_by in ("scf.for", "scf.while")
        carried = self._carried(text, location) if loop else {}
        for result, value in zip(results, carried.values(), strict=False):
            result.operands.append(value)
        counter = re.match(rf"scf\.for (?:unsigned )?({NAME}) = ({NAME}) to", text)
        step = re.search(rf" step ({NAME})", text)
        ends = [found[found.lastindex or 1] for found in (counter, step) if found]
        begins = _known([self._find(name) for name in ends])
        self._open(made_by, results, list(carried.values()), self._used(text))
        if counter:
            value = Value("counter", counter[1][1:], 32, location, begins)
            self._define(counter[1], value)
        for name, value in carried.items():
            self._define(name, value)

    def _carried(self, text: str, location: str) -> dict[str, Value]:
        """What a loop carries from turn to turn, by its name inside."""
        begins = text.partition("iter_args")[2] if "scf.for" in text else text
        return {
            name: Value("carried", name[1:], 0, location, _known([self._find(first)]))
            for name, first in re.findall(rf"({NAME}) = ({NAME})", begins)
        }

    def _block(self, text: str) -> None:
        region = self._regions[-1]
        for number, name in enumerate(re.findall(rf"({NAME}): ", text)):
            value = Value("block", name[1:], 0, "", list(region.header))
            if number < len(region.carried):
                value.operands.append(region.carried[number])
            self._define(name, value)

    def _yield(self, text: str) -> None:
        values, region = self._used(text), self._regions[-1]
        if region.made_by in ("scf.for", "scf.if") and text.startswith("scf.yield"):
            for group in (region.results, region.carried):
                for target, value in zip(group, values, strict=False):
                    target.operands.append(value)
            return
        for target in (*region.results, *region.carried):
            target.operands += values

    def _open(
        self,
        made_by: str,
        results: list[Value],
        carried: list[Value],
        header: list[Value],
    ) -> None:
        self._regions.append(_Region(made_by, results, carried, header))

    def _close(self, text: str) -> None:
        closed = self._regions.pop()
        if text.endswith("{"):  # the other branch, or the body of a while loop
            self._open(closed.made_by, closed.results, closed.carried, closed.header)

    def _define(self, name: str, value: Value) -> None:
        self._regions[-1].names[name] = value
        self.values.append(value)

    def _find(self, name: str) -> Value | None:
        for region in reversed(self._regions):
            for key in (name, name.partition("#")[0]):
                if key in region.names:
                    return region.names[key]
        return None

    def _used(self, text: str) -> list[Value]:
        return _known([self._find(name) for name in re.findall(NAME, text)])


def _known(values: list[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]


def _bits(text: str) -> int:
    """The bits of the integer type that ends a line, or 0."""
    found = re.search(r"(?:^|[ x<])i(\d+)>?$", text.removesuffix("{").strip())
    return int(found[1]) if found else 0


# ------------------------------------------------------------------------------ checks


def narrow_products(ttir: str) -> list[str]:
    """Each narrow product that an address depends on, with its place."""
    program = Program(ttir)
    found: dict[int, tuple[Value, set[str]]] = {}
    seen: set[tuple[int, bool]] = set()
    for value in program.values:
        if value.made_by == "tt.addptr" and len(value.operands) > 1:
            for product, sources in _narrow(value.operands[1], False, seen):
                found[id(product)] = (product, sources)
    return [
        f"{program.place(value) or 'the kernel'}: a {value.bits}-bit product of"
        f" {' and '.join(sorted(sources))} reaches an address; widen its factors with"
        " .to(tl.int64) first"
        for value, sources in found.values()
    ]


def _narrow(
    value: Value, factor: bool, seen: set[tuple[int, bool]]
) -> Iterator[tuple[Value, set[str]]]:
    """The narrow products that `value` depends on.

    `factor` says that a 64-bit product stands between `value` and the address.
    """
    if (id(value), factor) in seen or value.made_by in (*CONDITIONS, *BOUNDED):
        return
    seen.add((id(value), factor))
    if value.made_by in PRODUCTS and value.bits < 64:
        plain, divided = _sources(value, False, set())
        if plain or (divided and not factor):
            yield value, plain | divided
    inner = factor or (value.made_by in PRODUCTS and value.bits == 64)
    for operand in _followed(value):
        yield from _narrow(operand, inner, seen)


def _sources(
    value: Value, divided: bool, seen: set[tuple[int, bool]]
) -> tuple[set[str], set[str]]:
    """What run-time numbers a value depends on: as they are, and divided."""
    plain: set[str] = set()
    parts: set[str] = set()
    if (id(value), divided) in seen or value.made_by in (*CONDITIONS, *BOUNDED):
        return plain, parts
    seen.add((id(value), divided))
    if value.made_by in WORDS:
        word = WORDS[value.made_by].format(name=value.name)
        (parts if divided else plain).add(word)
    for operand in _followed(value):
        more = _sources(operand, divided or value.made_by in QUOTIENTS, seen)
        plain |= more[0]
        parts |= more[1]
    return plain, parts


def _followed(value: Value) -> list[Value]:
    """The operands whose size the value's size comes from."""
    if value.made_by in ("tt.load", "tt.addptr", "argument"):
        return []
    if value.made_by in QUOTIENTS:
        return value.operands[:1]
    if value.made_by == "arith.select":
        return value.operands[1:]
    return value.operands


def widened_floats(ttir: str) -> list[str]:
    """Each place where a float32 becomes a float64, which has only its digits."""
    program = Program(ttir)
    wide = re.compile(r"arith\.extf .*: (?:tensor<[\dx]+x)?f32>? to .*f64>?")
    found = []
    for line in ttir.splitlines():
        if wide.search(_LOCATION.sub("", line)):
            where = Value("extf", location=line[line.rfind(" loc(") :])
            found.append(
                f"{program.place(where) or 'the kernel'}: a float32 becomes a float64;"
                " annotate a Python float's parameter with tl.float64"
            )
    return found

"""The compile gate: what each kernel configuration must be, compiled without a GPU.

A chapter's gate file, ``tests/test_gate_<module>.py``, lists its configurations:
``SHIPPED``, which the tests compile, and ``OTHERS``, which ``make gate`` adds.  For
each of its targets a configuration must

- compile;
- need no more shared memory than the part has, which compiling does not check;
- spill no more bytes than its budget for this version of Triton, which is 0 unless
  it says otherwise;
- have no "wgmma serialized" advisory from the assembler on sm_90;
- be warp-specialized where it claims to be, as the option is silently ignored;
- compute the addresses of elements in 64 bits (`loom.ttir.narrow_products`);
- widen no float32 to float64 if it works on float64.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from loom.aot import Compiled, CompileError, aot
from loom.kernels import ROOT, KernelError
from loom.ttir import narrow_products, widened_floats
from loom.worker import WorkerError

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
MOST_COMPILES = 600
"""Compiles that the tests of the whole book may make: one a configuration's target."""

# Bytes of shared memory that one program can have.  NVIDIA: CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability", maximum amount of shared memory per
# thread block.  AMD: the ISA guides of CDNA 3 and CDNA 4, local data share per
# work-group.
SHARED_MEMORY = {
    "sm_75": 64 * 1024,
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_103": 227 * 1024,
    "sm_120": 99 * 1024,
    "gfx942": 64 * 1024,
    "gfx950": 160 * 1024,
}
SERIALIZED = re.compile(r"wgmma.*serialized", re.IGNORECASE)
SPECIALIZED = "ttg.warp_specialize("


@dataclass(frozen=True)
class Configuration:
    """A kernel as it is launched: what `loom.aot` takes, and what is claimed of it.

    ``spills`` has the bytes that may spill by version of Triton ("3.7"), and
    ``specialized`` the targets for which warp specialization is claimed.
    """

    name: str
    kernel: Any
    arguments: Mapping[str, Any]
    targets: tuple[str, ...] = TARGETS
    spills: Mapping[str, int] = field(default_factory=dict)
    specialized: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = [t for t in self.targets if t not in SHARED_MEMORY]
        unknown += [t for t in self.specialized if t not in self.targets]
        wrong = [v for v in self.spills if not re.fullmatch(r"\d+\.\d+", v)]
        if not self.targets or unknown:
            raise ValueError(
                f"{self.name}: targets: got {', '.join(unknown) or 'none'}; accepted"
                f" are {', '.join(SHARED_MEMORY)}"
            )
        if wrong:
            raise ValueError(
                f"{self.name}: spills: got version {wrong[0]!r}; accepted is a version"
                " such as '3.7'"
            )

    @property
    def float64(self) -> bool:
        """Whether the kernel reads or writes float64."""
        return any("*fp64" in str(value) for value in self.arguments.values())


@dataclass(frozen=True)
class Outcome:
    """What the gate found for a configuration and a target."""

    configuration: Configuration
    target: str
    compiled: Compiled | None
    problems: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        name = f"{self.configuration.name} for {self.target}"
        if self.compiled is None:
            return f"{name}: {'; '.join(self.problems)}"
        made = self.compiled
        said = (
            f"{name}: {made.registers} registers, {made.spills} B spilled,"
            f" {made.shared} B shared memory, {self.seconds:.1f} s"
        )
        return "\n  ".join([said, *self.problems])


def check(configuration: Configuration, target: str) -> Outcome:
    """Compile a configuration for a target and say what is wrong with it."""
    start = time.perf_counter()
    made, problems = None, []
    try:
        made = aot(configuration.kernel, target=target, **configuration.arguments)
        problems = list(faults(configuration, target, made))
    except (CompileError, KernelError, WorkerError) as error:
        problems = [str(error)]
    seconds = time.perf_counter() - start
    return Outcome(configuration, target, made, tuple(problems), seconds)


def faults(configuration: Configuration, target: str, made: Compiled) -> Iterator[str]:
    """What is wrong with a kernel that compiled, one text for each fault."""
    limit = SHARED_MEMORY[target]
    if made.shared > limit:
        yield f"{made.shared} B of shared memory; {target} has {limit} B"
    version = ".".join(made.versions["triton"].split(".")[:2])
    budget = configuration.spills.get(version, 0)
    spilled = max(made.spill_stores, made.spill_loads)
    if spilled > budget:
        yield f"{spilled} B spilled; the budget for Triton {version} is {budget} B"
    if target.startswith("sm_90"):
        yield from (line for line in made.advisories if SERIALIZED.search(line))
    if target in configuration.specialized and SPECIALIZED not in made.ttgir:
        yield f"no {SPECIALIZED!r} in its TTGIR: warp specialization did not engage"
    yield from narrow_products(made.ttir)
    if configuration.float64:
        yield from widened_floats(made.ttir)


def pairs(
    configurations: Iterable[Configuration],
) -> list[tuple[Configuration, str]]:
    """Every configuration with each of its targets, for a parametrized test."""
    return [(one, target) for one in configurations for target in one.targets]


def identify(value: Any) -> str:
    """A name for a parametrized test."""
    return value.name if isinstance(value, Configuration) else str(value)


# ----------------------------------------------------------------- all of them, by hand


def gate_files(root: Path = ROOT) -> list[Path]:
    """The chapters' gate files."""
    return sorted((root / "tests").glob("test_gate_*.py"))


def load(path: Path) -> tuple[Sequence[Configuration], Sequence[Configuration]]:
    """The shipped and the other configurations of a gate file.

    Raises ValueError when it does not list any.
    """
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None and specification.loader is not None
    module: ModuleType = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    shipped = getattr(module, "SHIPPED", ())
    if not shipped:
        raise ValueError(f"{path.name}: got no SHIPPED list of configurations")
    return shipped, getattr(module, "OTHERS", ())


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile and check every configuration; 1 if one has a fault."""
    parser = argparse.ArgumentParser(prog="loom.gate", description=main.__doc__)
    parser.add_argument("--count", action="store_true", help="compile nothing; count")
    parser.add_argument("files", nargs="*", type=Path, help="gate files; all if none")
    asked = parser.parse_args(arguments)
    import generated  # noqa: F401  selects the interpreter before triton is imported

    shipped, every = 0, []
    for path in asked.files or gate_files():
        first, others = load(path)
        shipped += len(pairs(first))
        every += pairs([*first, *others])
    counts = (
        f"{len(every)} compiles, of which the tests make {shipped}"
        f" (at most {MOST_COMPILES})"
    )
    if asked.count:
        print(counts)
        return int(shipped > MOST_COMPILES)
    start, failed, version = time.perf_counter(), 0, ""
    for configuration, target in every:
        outcome = check(configuration, target)
        failed += bool(outcome.problems)
        if outcome.compiled:
            version = outcome.compiled.versions["triton"]
        print(outcome, flush=True)
    seconds = time.perf_counter() - start
    print(f"gate, Triton {version}: {counts}; {failed} with a fault; {seconds:.0f} s")
    return int(failed > 0 or shipped > MOST_COMPILES)


if __name__ == "__main__":
    sys.exit(main())

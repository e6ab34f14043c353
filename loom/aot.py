"""Compile a kernel for a GPU that is not here, and read what came out.

`aot(kernel, target="sm_90", x_ptr="*fp32", n="i32", BLOCK=1024)` compiles in a child
process, without a driver, and gives the TTIR, TTGIR, LLVM IR, PTX, SASS or amdgcn
text, registers, spills, shared memory and the assembler's advisories. Nothing is run.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from loom.kernels import (
    COMPILE_OPTIONS,
    Kernel,
    KernelError,
    describe,
    pack,
    pack_value,
)
from loom.worker import Refusal, Worker

TIMEOUT = 300.0
COLUMNS = 88
CONTINUATION = "\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS} "
SCALARS = (
    "i1 i8 i16 i32 i64 u1 u8 u16 u32 u64 fp16 bf16 fp32 f32 fp64 f64 "
    "fp8e4nv fp8e5 fp8e4b8 fp8e5b16 fp8e4b15"
).split()
_KEPT = (
    "TRITON_PTXAS_PATH",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_NVDISASM_PATH",
    "TRITON_CUOBJDUMP_PATH",
    "TRITON_DEFAULT_FP_FUSION",
)


class CompileError(RuntimeError):
    """Triton refused the kernel; the message has the kernel's file and line."""


class Listing:
    """An excerpt of a compiler's output, shown as a labelled code block."""

    def __init__(self, label: str, language: str, lines: list[str]) -> None:
        self.label = label
        self.language = language
        self.lines = lines

    def _repr_markdown_(self) -> str:
        body = "\n".join(self.lines)
        return f"[{self.label}]{{.evidence}}\n\n```{self.language}\n{body}\n```\n"

    def __repr__(self) -> str:
        return self.label + "\n\n" + "\n".join(self.lines)


class Compiled:
    """What the compiler made of a kernel for one target."""

    def __init__(
        self, kernel: str, target: str, divisible: tuple[str, ...], answer: Any
    ) -> None:
        self.kernel = kernel
        self.target = target
        self.divisible_by_16 = divisible
        texts = answer["texts"]
        self.ttir: str = texts["ttir"]
        self.ttgir: str = texts["ttgir"]
        self.llir: str = texts["llir"]
        self.ptx: str = texts.get("ptx", "")
        self.amdgcn: str = texts.get("amdgcn", "")
        report = answer["report"]
        self.registers: int = report["registers"]
        self.spill_stores: int = report["spill_stores"]
        self.spill_loads: int = report["spill_loads"]
        self.spills: int = report["spill_stores"]
        self.stack: int = report["stack"]
        self.advisories: list[str] = list(report["advisories"])
        self.shared: int = answer["shared"]
        self.num_warps: int = answer["warps"]
        self.warnings: list[str] = list(answer["warnings"])
        self.versions: dict[str, str] = dict(answer["versions"])
        self.seconds: float = answer["seconds"]
        self._cubin: bytes | None = answer["cubin"]
        self._nvdisasm: str = answer["nvdisasm"]

    def __repr__(self) -> str:
        spilled = f", {self.spills} B spilled" if self.spills else ", no spills"
        return (
            f"{self.kernel} for {self.target}: {self.registers} registers{spilled}, "
            f"{self.shared} B shared memory (Triton {self.versions['triton']}, not run)"
        )

    @property
    def label(self) -> str:
        """What this evidence is, in one line."""
        version = self.versions["triton"]
        return f"Compiled for {self.target} by Triton {version}, not run"

    @cached_property
    def sass(self) -> str:
        """The machine code of an NVIDIA target, one instruction a line."""
        if self._cubin is None:
            return ""
        if not self._nvdisasm:
            raise CompileError("no nvdisasm found, neither in Triton's wheel nor here")
        return _sass(self._nvdisasm, self._cubin)

    def text(self, where: str | None = None) -> str:
        """One of the texts by name; None means the machine code."""
        stages = ["ttir", "ttgir", "llir"]
        stages += ["ptx", "sass"] if self.ptx else ["amdgcn"]
        where = where or stages[-1]
        if where not in stages:
            raise KernelError(
                f"where: got {where!r}; {self.target} has {', '.join(stages)}"
            )
        text: str = getattr(self, where)
        return text

    def lines(self, pattern: str, where: str | None = None) -> list[str]:
        """The lines that match a regular expression, stripped."""
        found = re.compile(pattern)
        lines = self.text(where).split("\n")
        return [line.strip() for line in lines if found.search(line)]

    def count(self, pattern: str, where: str | None = None) -> int:
        """How many lines match a regular expression."""
        return len(self.lines(pattern, where))

    def show(
        self,
        where: str | None = None,
        pattern: str | None = None,
        start: str | int | None = None,
        lines: int | None = None,
    ) -> Listing:
        """A listing of one text, wrapped to the page.

        `pattern` keeps the lines that match, `start` begins at a line number or at
        the first line that matches, `lines` says how many lines to show. What is left
        out is marked; the debug tables at the end of PTX always are.
        """
        where = where or ("sass" if self.ptx else "amdgcn")
        every = _without_debug(self.text(where)).rstrip().split("\n")
        kept = _choose(every, pattern, start, lines)
        shown: list[str] = []
        last = -1
        for number in kept:
            if number != last + 1:
                shown.append(_gap(number - last - 1))
            shown.extend(_wrap(every[number]))
            last = number
        if last != len(every) - 1:
            shown.append(_gap(len(every) - 1 - last))
        names = {"llir": "LLVM IR", "amdgcn": "amdgcn"}
        name = names.get(where, where.upper())
        return Listing(f"{name}. {self.label}.", where, shown)


def _gap(count: int) -> str:
    return f"… {count} line{'' if count == 1 else 's'} left out"


def _choose(
    every: list[str], pattern: str | None, start: str | int | None, lines: int | None
) -> list[int]:
    """The numbers of the lines to show; raises KernelError if there are none."""
    first = 0
    if isinstance(start, int):
        first = start - 1
    elif start is not None:
        found = re.compile(start)
        hits = [n for n, line in enumerate(every) if found.search(line)]
        if not hits:
            raise KernelError(f"start: no line matches {start!r}")
        first = hits[0]
    kept = list(range(max(0, first), len(every)))
    if pattern is not None:
        wanted = re.compile(pattern)
        kept = [n for n in kept if wanted.search(every[n])]
    if not kept:
        asked = f"pattern: no line matches {pattern!r}"
        raise KernelError(asked if pattern is not None else f"start: no line {start}")
    return kept[:lines]


def _wrap(line: str) -> list[str]:
    """A line cut to the page's width; what continues it begins with a sign."""
    line = line.expandtabs(4).rstrip()
    if len(line) <= COLUMNS:
        return [line]
    indent = len(line) - len(line.lstrip())
    lead = " " * min(indent + 2, 24) + CONTINUATION
    pieces, rest, room = [], line, COLUMNS
    while len(rest) > room:
        cut = rest.rfind(" ", room // 2, room + 1)
        cut = cut if cut > indent else room
        pieces.append(rest[:cut])
        rest = rest[cut:].lstrip()
        room = COLUMNS - len(lead)
    pieces.append(rest)
    return [pieces[0], *(lead + piece for piece in pieces[1:] if piece)]


def _without_debug(text: str) -> str:
    """PTX and amdgcn without their debug tables, which are bytes for a debugger."""
    return re.split(r"\n\t\.section\t\.debug_\w+", text, maxsplit=1)[0]


def _sass(tool: str, cubin: bytes) -> str:
    """Disassemble, and keep the instructions and the labels."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [tool, "-c", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise CompileError(f"nvdisasm failed: {done.stderr.strip()[-400:]}")
    kept = []
    for line in done.stdout.split("\n"):
        instruction = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*$", line)
        if instruction:
            predicate, _, rest = instruction[2].rpartition("@")
            guard = ""
            if predicate or instruction[2].startswith("@"):
                guard, _, rest = ("@" + rest).partition(" ")
            code = re.sub(r"\s+", " ", rest).strip()
            kept.append(f"/*{instruction[1]}*/ {guard:>5} {code} ;")
        elif re.match(r"\.L_\w+:", line):
            kept.append(line)
    while kept and (kept[-1].startswith(".L_") or kept[-1].endswith(" NOP ;")):
        kept.pop()
    return "\n".join(kept) + "\n"


# --- asking the worker ----------------------------------------------------------------

_cache_folder: str | None = None


def _environment() -> dict[str, str]:
    global _cache_folder
    if _cache_folder is None:
        _cache_folder = tempfile.mkdtemp(prefix="loom-aot-")
        atexit.register(shutil.rmtree, _cache_folder, ignore_errors=True)
    keep = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    keep.update({k: os.environ[k] for k in _KEPT if k in os.environ})
    keep.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    keep["TRITON_INTERPRET"] = "0"
    keep["TRITON_CACHE_DIR"] = _cache_folder
    keep["TRITON_ALWAYS_COMPILE"] = "1"
    keep["CUDA_VISIBLE_DEVICES"] = ""
    return keep


WORKER = Worker("loom.aot_worker", _environment)


def aot(
    kernel: Any,
    /,
    target: str = "sm_90",
    *,
    divisible_by_16: str | Iterable[str] = "auto",
    **arguments: Any,
) -> Compiled:
    """Compile `kernel` for `target` without a GPU.

    `target` is "sm_NN" or "gfxNNN". A run-time parameter gets its type: "*fp32" for a
    pointer, "i32", "fp64" and so on for a number, a tuple of types for a tuple, or
    the value 1 or None, which Triton compiles in. A constexpr parameter gets its
    value. Compile options such as `num_warps` may be given; an autotuned kernel uses
    its first configuration for what is not given.

    `divisible_by_16` names the parameters that a launch would find divisible by 16:
    "auto" means every pointer and every integer, as for sizes that are powers of
    two; `()` means none. A type may say it itself: "i32:16", "*fp32:16".

    Raises `KernelError` for a wrong argument, `CompileError` with the kernel's file
    and line if Triton refuses it, `WorkerError` if the child dies.
    """
    about = describe(kernel)
    _check_target(target)
    options, given = _split(about, arguments)
    signature, constants, divisible = _signature(about, given, divisible_by_16)
    request: dict[str, Any] = {
        "kernel": pack(about.jitted),
        "target": target,
        "signature": signature,
        "constants": {
            path: pack_value(value, f"argument {about.names[path[0]]!r}")
            for path, value in constants.items()
        },
        "attributes": {path: [["tt.divisibility", 16]] for path in divisible},
        "options": options,
    }
    request["key"] = hashlib.sha256(pickle.dumps(_stable(request))).digest()
    what = f"{about.place}: compiling {about.name} for {target}"
    try:
        answer = WORKER.call(request, TIMEOUT, what)
    except Refusal as refusal:
        raise _error(refusal, about, target) from None
    names = tuple(_path_name(about, path) for path in sorted(divisible))
    return Compiled(about.name, target, names, answer)


def _stable(value: Any) -> Any:
    """The request without object identities, so that equal requests are equal."""
    if isinstance(value, dict):
        return [(_stable(k), _stable(v)) for k, v in value.items()]
    if isinstance(value, (tuple, list)):
        return [_stable(v) for v in value]
    if isinstance(value, str):
        return re.sub(r"(:\d+:[\w.<>]+):\d+$", r"\1", value)
    return value


def _check_target(target: str) -> None:
    if not isinstance(target, str) or not re.fullmatch(
        r"sm_\d{2,3}a?|gfx[0-9a-f]{3,4}", target
    ):
        raise KernelError(
            f"target: got {target!r}; accepted are 'sm_NN' (as sm_80, sm_90, sm_100) "
            "and 'gfxNNN' (as gfx942)"
        )


def _split(
    about: Kernel, arguments: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compile options and kernel arguments; raises KernelError for what is neither."""
    options, given = {}, {}
    unknown = []
    for name, value in {**about.configuration, **arguments}.items():
        if name in about.names:
            given[name] = value
        elif name in COMPILE_OPTIONS:
            options[name] = value
        else:
            unknown.append(name)
    problems = []
    if unknown:
        problems.append(f"got {', '.join(map(repr, unknown))}")
    missing = [p.name for p in about.parameters if p.required and p.name not in given]
    if missing:
        problems.append(f"needs {', '.join(map(repr, missing))}")
    if problems:
        accepted = f"its parameters are {', '.join(about.names)}"
        if unknown:
            accepted += f"; compile options are {', '.join(sorted(COMPILE_OPTIONS))}"
        raise KernelError(
            f"{about.place}: {about.name} {' and '.join(problems)}; {accepted}"
        )
    return options, given


Path = tuple[int, ...]


def _signature(
    about: Kernel, given: dict[str, Any], divisible_by_16: str | Iterable[str]
) -> tuple[dict[str, Any], dict[Path, Any], set[Path]]:
    """Triton's signature, the constants by path, and the divisible paths."""
    signature: dict[str, Any] = {}
    constants: dict[Path, Any] = {}
    wanted: set[Path] = set()
    typed: dict[Path, str] = {}
    for number, parameter in enumerate(about.parameters):
        name = parameter.name
        value = given.get(name, parameter.default)
        if parameter.constexpr:
            signature[name] = "constexpr"
            constants[(number,)] = value
        else:
            signature[name] = _type(
                about, name, value, (number,), constants, wanted, typed
            )
    automatic = {path for path, kind in typed.items() if _may_be_divisible(kind)}
    if divisible_by_16 == "auto":
        return signature, constants, wanted | automatic
    names = (
        [divisible_by_16] if isinstance(divisible_by_16, str) else list(divisible_by_16)
    )
    for name in names:
        found = {p for p in automatic if name in _names_of(about, p)}
        if not found:
            can = ", ".join(_path_name(about, p) for p in sorted(automatic))
            raise KernelError(
                f"divisible_by_16: got {name!r}; the pointers and integers of "
                f"{about.name} are {can or 'none'}"
            )
        wanted |= found
    return signature, constants, wanted


def _type(
    about: Kernel,
    name: str,
    value: Any,
    path: Path,
    constants: dict[Path, Any],
    wanted: set[Path],
    typed: dict[Path, str],
) -> Any:
    """The signature's entry of one run-time parameter, or of a tuple's element."""
    if isinstance(value, (tuple, list)):
        return tuple(
            _type(about, f"{name}[{i}]", v, (*path, i), constants, wanted, typed)
            for i, v in enumerate(value)
        )
    if value is None or (isinstance(value, int) and value == 1):
        constants[path] = value
        return "constexpr"
    if isinstance(value, str):
        kind, _, mark = value.replace(" ", "").partition(":")
        plain = kind.removeprefix("*").removeprefix("k")
        if plain.startswith("tensordesc<"):
            return value
        if plain in SCALARS and mark in ("", "1", "16"):
            kind = kind.replace("f32", "fp32") if plain == "f32" else kind
            kind = kind.replace("f64", "fp64") if plain == "f64" else kind
            if mark == "1":
                constants[path] = 1
                return "constexpr"
            typed[path] = kind
            if mark == "16":
                wanted.add(path)
            return kind
    raise KernelError(
        f"{about.place}: {about.name}: argument {name!r} got {value!r}; accepted are a "
        f"type ({', '.join(SCALARS)}), a pointer to one ('*fp32'), either with ':16', "
        "a tuple of these, 'tensordesc<fp32[64,64]>', and the values 1 and None, "
        "which Triton compiles in"
    )


def _may_be_divisible(kind: str) -> bool:
    return kind.startswith("*") or kind in ("i16", "i32", "i64", "u16", "u32", "u64")


def _path_name(about: Kernel, path: Path) -> str:
    return about.names[path[0]] + "".join(f"[{i}]" for i in path[1:])


def _names_of(about: Kernel, path: Path) -> set[str]:
    return {_path_name(about, path), about.names[path[0]]}


def _error(refusal: Refusal, about: Kernel, target: str) -> CompileError:
    details = refusal.details
    place = about.place
    if details.get("line"):
        place = f"{details['path']}:{details['line']}"
    return CompileError(
        f"{place}: {about.name} does not compile for {target}: {refusal.message}"
    )

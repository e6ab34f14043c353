"""The child process of `loom.aot`: compiles for a named target, without a GPU."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, code_generator
from triton.compiler.errors import CompilationError

from loom.kernels import ROOT, public_path, unpack
from loom.worker import Refusal, serve

_STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn")
_cache: dict[bytes, dict[str, Any]] = {}


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Compile one kernel, or give back what was compiled before."""
    key = request["key"]
    if key not in _cache:
        _cache[key] = _compile(request)
    return _cache[key]


def _compile(request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    fn = unpack(request["kernel"])
    constants = {k: unpack(v) for k, v in request["constants"].items()}
    target = _target(request["target"])
    source = ASTSource(
        fn=fn,
        signature=request["signature"],
        constexprs=constants,
        attrs=request["attributes"],
    )
    printed = io.StringIO()
    with _diagnostics() as diagnostics, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(printed):
            try:
                made = triton.compile(source, target=target, options=request["options"])
            except Exception as error:
                raise _explain(error, fn, diagnostics()) from error
        spoken = diagnostics()
    texts = {s: scrub(str(made.asm[s])) for s in _STAGES if s in made.asm}
    log = printed.getvalue()
    report = _nvidia(log) if target.backend == "cuda" else _amd(texts["amdgcn"])
    words = [scrub(f"{w.category.__name__}: {w.message}") for w in caught]
    words += [line for line in scrub(spoken).splitlines() if line.strip()]
    return {
        "texts": texts,
        "cubin": made.asm.get("cubin"),
        "report": report,
        "shared": int(made.metadata.shared),
        "warps": int(made.metadata.num_warps),
        "warnings": words,
        "versions": _versions(target),
        "nvdisasm": _tool(target),
        "seconds": time.perf_counter() - started,
    }


def _target(name: str) -> GPUTarget:
    if name.startswith("sm_"):
        return GPUTarget("cuda", int(re.sub(r"\D", "", name[3:])), 32)
    return GPUTarget("hip", name, 64 if name.startswith("gfx9") else 32)


@contextlib.contextmanager
def _diagnostics() -> Iterator[Any]:
    """What the compiler writes to standard error, as a function to read it."""
    with tempfile.TemporaryFile() as log:
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)

        def read() -> str:
            log.seek(0)
            return log.read().decode(errors="replace")

        try:
            yield read
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def scrub(text: str) -> str:
    """Text without the machine's folders."""
    text = re.sub(r"[^\s\"'=]*/(?:site|dist)-packages/", "", text)
    text = text.replace(str(ROOT) + "/", "")
    return re.sub(r"(?<![\w.])/tmp/[^\s\"':,]+/", "", text)


def _explain(error: Exception, fn: Any, diagnostics: str) -> Refusal:
    """The compiler's message with the kernel's own file and line."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    located = [e for e in chain if isinstance(e, CompilationError)]
    if not located:
        tail = _last_words(diagnostics)
        message = f"{type(error).__name__}: {error}".strip()
        return Refusal("compile", scrub(message + tail), line=None, path=None)
    inner = located[-1]
    path, first = _home(inner.src, fn)
    line = first + getattr(inner.node, "lineno", 1) - 1
    root = chain[-1]
    message = str(getattr(inner, "error_message", None) or "")
    if root is not inner:
        message = message or f"{type(root).__name__}: {root}"
    message = message or str(inner).strip().splitlines()[-1]
    return Refusal("compile", scrub(message), line=line, path=path)


def _last_words(diagnostics: str) -> str:
    lines = [s for s in diagnostics.splitlines() if "error" in s.lower()]
    return ("\n" + "\n".join(lines[:6])) if lines else ""


def _home(source: str | None, fn: Any) -> tuple[str, int]:
    """Path and first line of the function that a compile error quotes."""
    known = [fn, *_helpers(fn, set())]
    for each in known:
        if source is None or each.src == source:
            break
    else:
        each = fn
    offset = next(
        (i for i, s in enumerate(each.raw_src) if s.lstrip().startswith("def ")), 0
    )
    path = public_path(each.fn.__code__.co_filename)
    return path, each.starting_line_number + offset


def _helpers(fn: Any, seen: set[int]) -> Iterator[Any]:
    for value in fn.fn.__globals__.values():
        if hasattr(value, "raw_src") and hasattr(value, "fn") and id(value) not in seen:
            seen.add(id(value))
            yield value
            yield from _helpers(value, seen)


def _nvidia(log: str) -> dict[str, Any]:
    """Registers, spills and advisories from what `ptxas -v` printed."""
    stores = re.search(r"(\d+) bytes spill stores", log)
    loads = re.search(r"(\d+) bytes spill loads", log)
    stack = re.search(r"(\d+) bytes stack frame", log)
    registers = re.search(r"Used (\d+) registers", log)
    advisories = []
    for line in log.splitlines():
        plain = re.sub(r"^ptxas[\w-]*\s+(/\S+,? *(line \d+;)?)?\s*", "", line).strip()
        routine = re.search(
            r"bytes gmem|Compiling entry|Function properties|spill stores|"
            r"Used \d+ registers|Compile time",
            plain,
        )
        if plain and not routine:
            advisories.append(scrub(re.sub(r"^info\s*:\s*", "", plain)))
    return {
        "registers": int(registers[1]) if registers else None,
        "spill_stores": int(stores[1]) if stores else 0,
        "spill_loads": int(loads[1]) if loads else 0,
        "stack": int(stack[1]) if stack else 0,
        "advisories": advisories,
    }


def _amd(text: str) -> dict[str, Any]:
    """The same from the metadata at the end of an amdgcn listing."""

    def value(name: str) -> int:
        found = re.search(rf"\.{name}:\s*(\d+)", text)
        return int(found[1]) if found else 0

    spilled = 4 * value("vgpr_spill_count")
    return {
        "registers": value("vgpr_count") or None,
        "spill_stores": spilled,
        "spill_loads": spilled,
        "stack": value("private_segment_fixed_size"),
        "advisories": [],
    }


def _versions(target: GPUTarget) -> dict[str, str]:
    versions = {"triton": triton.__version__}
    if target.backend == "cuda":
        from triton.backends.nvidia.compiler import get_ptxas

        versions["ptxas"] = str(get_ptxas(target.arch).version)
    return versions


def _tool(target: GPUTarget) -> str:
    """The path of nvdisasm: the wheel's, or one on the PATH."""
    if target.backend != "cuda":
        return ""
    with contextlib.suppress(AttributeError, RuntimeError):
        return str(triton.knobs.nvidia.nvdisasm.path)
    here = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    return str(here) if here.exists() else shutil.which("nvdisasm") or ""


def install() -> None:
    """Make every location in the IR a path that the book may print."""
    triton.knobs.nvidia.dump_ptxas_log = True
    generator = code_generator.CodeGenerator
    original = generator.__init__

    def with_public_path(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("file_name"):
            kwargs["file_name"] = public_path(kwargs["file_name"])
        original(self, *args, **kwargs)

    generator.__init__ = with_public_path


if __name__ == "__main__":
    if triton.knobs.runtime.interpret:
        raise SystemExit("loom.aot_worker needs TRITON_INTERPRET=0")
    install()
    serve(handle)

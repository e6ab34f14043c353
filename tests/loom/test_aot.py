"""What `loom.aot` compiles, for GPUs that are not here."""

from __future__ import annotations

import importlib
import inspect
import linecache
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import triton
import triton.language as tl

from loom.aot import COLUMNS, WORKER, CompileError, aot
from loom.kernels import KernelError, is_jitted, pack
from loom.worker import WorkerError

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
SCALE = tl.constexpr(2.0)


@triton.jit
def scaled(x):
    return x * SCALE


@triton.jit
def reverse_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(out_ptr + (n - 1 - offs), scaled(x), mask=mask)


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, strides, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * strides[0] + tl.arange(0, BLOCK) * strides[1]
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + offs), 0))


@triton.jit
def dot_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tile = offs[:, None] * BLOCK + offs[None, :]
    x = tl.load(x_ptr + tile)
    tl.store(out_ptr + tile, tl.dot(x, x))


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, n, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    offs_m = tl.arange(0, BLOCK)
    offs_d = tl.arange(0, WIDTH)
    rows = offs_m[:, None] * WIDTH + offs_d[None, :]
    q = tl.load(q_ptr + rows)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    acc = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, n, BLOCK):
        k = tl.load(k_ptr + start * WIDTH + tl.trans(rows))
        scores = tl.dot(q, k)
        new = tl.maximum(best, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        acc = acc * tl.exp2(best - new)[:, None]
        v = tl.load(v_ptr + start * WIDTH + rows)
        acc = tl.dot(p.to(tl.float16), v, acc)
        best = new
    tl.store(out_ptr + rows, acc)


@triton.jit
def wrong_helper(x):
    return x + tl.arange(0, 3)


@triton.jit
def wrong_kernel(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, wrong_helper(tl.load(x_ptr + offs)))


POINTERS = {"x_ptr": "*fp32", "out_ptr": "*fp32"}


def reversed_for(target="sm_90", **more):
    options = {**POINTERS, "n": "i32", "BLOCK": 1024, **more}
    return aot(reverse_kernel, target=target, **options)


@pytest.mark.parametrize("target", TARGETS)
def test_targets(target):
    made = reversed_for(target)
    assert "tt.func public @reverse_kernel" in made.ttir
    assert "#ttg.blocked" in made.ttgir
    assert "define" in made.llir
    assert made.registers > 4
    assert made.spills == made.spill_loads == 0
    assert made.shared > 0  # the store goes through a layout conversion
    assert made.versions["triton"] == triton.__version__
    assert repr(made).startswith(f"reverse_kernel for {target}: ")
    assert "\n" not in repr(made)
    if target.startswith("sm"):
        assert f".target {target}" in made.ptx
        assert made.amdgcn == ""
        assert re.search(r"^/\*0000\*/", made.sass)
        assert made.sass.rstrip().endswith(";")
        assert re.fullmatch(r"\d+\.\d+", made.versions["ptxas"])
    else:
        assert made.ptx == ""
        assert "global_load_dword" in made.amdgcn
        assert made.count("global_store") > 0


def test_texts_name_no_machine_path():
    for target in TARGETS:
        made = reversed_for(target)
        for text in (made.ttir, made.ttgir, made.llir, made.ptx, made.amdgcn):
            for place in (str(ROOT), os.sep + "tmp" + os.sep, sys.prefix, "ipykernel"):
                assert place not in text
    named = aot(row_sum_kernel, **POINTERS, strides=("i32", 1), BLOCK=64).ttir
    assert '"triton/language/standard.py"' in named
    assert '"tests/loom/test_aot.py"' in named


def test_divisibility_decides_the_width_of_the_loads():
    assert reversed_for().count(r"LDG\.E\.128") == 2
    assert reversed_for().count(r"STG\.E ") == 8
    assert reversed_for().divisible_by_16 == ("x_ptr", "out_ptr", "n")
    plain = reversed_for(divisible_by_16=("x_ptr", "out_ptr"))
    assert plain.count(r"LDG\.E\.128") == 0
    assert plain.ttir.count("tt.divisibility") == 2
    assert reversed_for(divisible_by_16=()).ttir.count("tt.divisibility") == 0
    marked = reversed_for(n="i32:16", divisible_by_16=())
    assert marked.divisible_by_16 == ("n",)


def test_one_and_none_are_compiled_in():
    made = reversed_for(n=1)
    assert "%n" not in made.ttir
    assert "n" not in made.divisible_by_16
    tupled = aot(row_sum_kernel, **POINTERS, strides=("i32", 1), BLOCK=64)
    assert tupled.divisible_by_16 == ("x_ptr", "out_ptr", "strides[0]")


def test_options_reach_the_compiler():
    made = reversed_for(num_warps=8)
    assert made.num_warps == 8
    assert '"ttg.num-warps" = 8' in made.ttgir
    assert ".reqntid 256" in made.ptx


def test_spills_are_reported_in_bytes():
    made = aot(
        dot_kernel,
        target="sm_80",
        x_ptr="*fp16",
        out_ptr="*fp32",
        BLOCK=64,
        num_warps=1,
        maxnreg=64,
    )
    assert made.registers == 64
    assert made.spills == made.spill_stores > 0
    assert made.spill_loads > 0
    assert "B spilled" in repr(made)


def test_the_assemblers_advisories_are_kept():
    halves = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp16")
    made = aot(
        attention_kernel, **halves, out_ptr="*fp32", n="i32", BLOCK=128, WIDTH=64
    )
    (advisory,) = made.advisories
    assert "wgmma.mma_async instructions are serialized" in advisory
    assert "ptxas" not in advisory
    assert reversed_for().advisories == []


def test_an_autotuned_kernel_brings_its_first_configuration():
    configs = [
        triton.Config({"BLOCK": 512}, num_warps=2),
        triton.Config({"BLOCK": 64}, num_warps=4),
    ]
    tuned = triton.autotune(configs, key=["n"])(reverse_kernel)
    made = aot(tuned, **POINTERS, n="i32")
    assert made.num_warps == 2
    assert "tensor<512xf32>" in made.ttir
    assert "tensor<64xf32>" in aot(tuned, **POINTERS, n="i32", BLOCK=64).ttir


# --- where the lines come from --------------------------------------------------------


@pytest.fixture
def cell(monkeypatch):
    """Run a notebook-like cell whose code stands at a line of a path."""
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    return run_cell


def run_cell(source: str, line: int, path: str):
    text = "\n" * (line - 1) + textwrap.dedent(source).strip() + "\n"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    space = {"__name__": "__main__", "triton": triton, "tl": tl}
    exec(compile(text, path, "exec"), space)
    return space


CELL = """
    WIDTH = tl.constexpr(3)

    @triton.jit
    def shifted(x):
        return x + WIDTH

    @triton.jit
    def cell_kernel(x_ptr, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        tl.store(x_ptr + offs, shifted(tl.load(x_ptr + offs)))
"""


@pytest.mark.parametrize("path", ["generated/jit.py", str(ROOT / "generated/jit.py")])
def test_a_cell_keeps_its_chapters_lines(cell, path):
    kernel = cell(CELL, 101, path)["cell_kernel"]
    made = aot(kernel, x_ptr="*i32", BLOCK=64)
    assert re.search(r'loc = loc\("generated/jit.py":108:\d', made.ttir)  # the def line
    assert '"generated/jit.py":105:' in made.ttir  # the helper's return
    assert '.file\t1 "generated/jit.py"' in made.ptx
    assert {int(n) for n in re.findall(r"\.loc\t1 (\d+)", made.ptx)} <= set(
        range(104, 112)
    )
    assert re.search(r"\.loc\t1 110 \d+", made.ptx)
    moved = aot(cell(CELL, 301, path)["cell_kernel"], x_ptr="*i32", BLOCK=64)
    assert re.search(r"\.loc\t1 310 \d+", moved.ptx)
    assert made.ptx != moved.ptx


def test_a_temporary_cell_name_does_not_show(cell):
    path = "/tmp/ipykernel_123/456.py"
    kernel = cell(CELL, 1, path)["cell_kernel"]
    made = aot(kernel, x_ptr="*i32", BLOCK=64)
    assert '.file\t1 "cell.py"' in made.ptx
    assert "456" not in made.ttir


def tangled_kernel():
    """A kernel of a tangled module, the function and its file."""
    for path in sorted((ROOT / "generated").glob("[a-z]*.py")):
        module = importlib.import_module(f"generated.{path.stem}")
        for value in vars(module).values():
            here = getattr(value, "fn", None)
            if is_jitted(value) and here.__module__ == module.__name__:
                return value, path
    raise AssertionError("no tangled module has a kernel")


def test_a_tangled_kernel_travels_by_name():
    kernel, path = tangled_kernel()
    packed = pack(kernel)
    assert packed["entry"] == ("attribute", f"generated.{path.stem}", kernel.__name__)
    assert packed["functions"] == {}


def test_a_tangled_kernel_keeps_its_modules_lines():
    kernel, path = tangled_kernel()
    runtime = [
        n
        for n, p in inspect.signature(kernel.fn).parameters.items()
        if "constexpr" not in str(p.annotation)
    ]
    types = {n: "*fp32" if n.endswith("ptr") else "i32" for n in runtime}
    rest = {n: 64 for n in inspect.signature(kernel.fn).parameters if n not in types}
    made = aot(kernel, **types, **rest)
    lines, first = inspect.getsourcelines(kernel.fn)
    start = first + next(i for i, s in enumerate(lines) if s.startswith("def "))
    assert re.search(rf'loc = loc\("generated/{path.name}":{start}:\d', made.ttir)
    debug = re.findall(r"^\.b8 (\d+)", made.ptx, re.MULTILINE)
    spelled = "".join(chr(int(code)) for code in debug)
    assert f"{path.name}\0" in spelled and "generated\0" in spelled
    assert str(ROOT) not in spelled


# --- reading --------------------------------------------------------------------------


def test_show_is_labelled_wrapped_and_says_what_it_left_out():
    made = reversed_for()
    label = f"PTX. Compiled for sm_90 by Triton {triton.__version__}, not run."
    shown = made.show("ptx")
    assert shown._repr_markdown_().startswith(f"[{label}]{{.evidence}}\n\n```ptx\n")
    assert ".debug_info" in made.ptx
    assert not [s for s in shown.lines if ".debug" in s or s.startswith(".b8")]
    for name in ("ttir", "ttgir", "llir", "ptx", "sass"):
        lines = made.show(name).lines
        assert max(map(len, lines)) <= COLUMNS
        sign = r"^\s*\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS} "
        whole = "".join(re.sub(sign, "", line) for line in lines)
        text = made.text(name).split("\n\t.section")[0]
        assert re.sub(r"\s", "", whole) == re.sub(r"\s", "", text)
    part = made.show("ptx", start=r"\.visible", lines=3)
    assert part.lines[0].endswith("lines left out")
    assert part.lines[1].startswith(".visible .entry reverse_kernel(")
    assert len(part.lines) == 5
    hits = made.show("sass", pattern=r"LDG").lines
    assert len([s for s in hits if "LDG.E.128" in s]) == 2
    assert made.lines(r"LDG")[0].startswith("/*")


def test_reading_errors_say_what_there_is():
    made = reversed_for("gfx942")
    with pytest.raises(KernelError, match="gfx942 has ttir, ttgir, llir, amdgcn"):
        made.count("LDG", "sass")
    with pytest.raises(KernelError, match="no line matches"):
        made.show("ttir", pattern="no such thing")
    with pytest.raises(KernelError, match="start: no line matches"):
        made.show("ttir", start="no such thing")


# --- errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": None, "target": "h100"}, r"target: got 'h100'; accepted are 'sm_NN'"),
        ({"size": "i32"}, r"got 'size'; its parameters are x_ptr, out_ptr, n, BLOCK"),
        ({"n": "int"}, r"argument 'n' got 'int'; accepted are a type \(i1, i8"),
        ({"n": 7}, r"argument 'n' got 7"),
        ({"divisible_by_16": "m"}, r"divisible_by_16: got 'm'; .* x_ptr, out_ptr, n"),
    ],
)
def test_wrong_requests(change, message):
    with pytest.raises(KernelError, match=message):
        reversed_for(**change)


def test_a_missing_argument_is_named():
    with pytest.raises(KernelError, match=r"reverse_kernel needs 'out_ptr', 'BLOCK'"):
        aot(reverse_kernel, x_ptr="*fp32", n="i32")


def test_compile_errors_have_the_kernels_line():
    line = reverse_kernel.fn.__code__.co_firstlineno + 2
    with pytest.raises(CompileError) as caught:
        reversed_for(BLOCK=5)
    assert str(caught.value).startswith(f"tests/loom/test_aot.py:{line}: ")
    assert "power of 2" in str(caught.value)
    line = wrong_helper.fn.__code__.co_firstlineno + 2
    with pytest.raises(CompileError, match=rf"test_aot\.py:{line}: wrong_kernel does"):
        aot(wrong_kernel, x_ptr="*fp32", BLOCK=4)


def test_one_worker_cached_answers_and_a_new_worker_after_a_death():
    made = reversed_for()
    first = WORKER.pid
    assert reversed_for().seconds == made.seconds  # not compiled again
    assert WORKER.pid == first
    os.kill(first, 9)
    with pytest.raises(WorkerError, match="SIGKILL"):
        reversed_for()
    again = reversed_for()
    assert WORKER.pid not in (None, first)
    assert (again.ptx, again.sass, again.ttgir) == (made.ptx, made.sass, made.ttgir)


def test_a_killed_caller_leaves_no_worker():
    program = f"""
    import os, sys
    sys.path.insert(0, {str(ROOT)!r})
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from test_aot import WORKER, reversed_for
    reversed_for()
    print(WORKER.pid, flush=True)
    os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -9
    assert gone(int(done.stdout))


def gone(pid: int) -> bool:
    """Whether a process ends within five seconds."""
    import time

    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False

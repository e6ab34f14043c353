"""The compile gate: for each of its checks, a kernel that does not pass."""

from __future__ import annotations

import dataclasses
import textwrap

import pytest
import triton
import triton.language as tl

from loom import gate
from loom.aot import aot
from loom.gate import SHARED_MEMORY, Configuration, check
from loom.ttir import narrow_products, widened_floats

VECTORS = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": 128}


@triton.jit
def wide_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def narrow_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # narrow: pid
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def rows_kernel(x_ptr, out_ptr, stride, step, rows, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + pid * stride + lanes
    for _ in range(rows):
        tl.store(out_ptr + lanes, tl.load(x_ptrs))
        x_ptrs += BLOCK * step  # narrow: step


@triton.jit
def strided_kernel(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes * stride))  # narrow: stride


@triton.jit
def gather_kernel(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    index = tl.load(x_ptr + lanes)
    tl.store(out_ptr + index * 1024, lanes)  # narrow: loaded


@triton.jit
def late_kernel(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)  # narrow: late
    tl.store(out_ptr + row * stride, tl.load(x_ptr + row * stride))


@triton.jit
def branching_kernel(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    if stride > 3:
        offs = pid.to(tl.int64) * stride + lanes
    else:
        offs = (pid * 3 + lanes).to(tl.int64)  # narrow: branch
    tl.store(out_ptr + offs, tl.load(x_ptr + offs))


@triton.jit
def persistent_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offs = tile * BLOCK + tl.arange(0, BLOCK)  # narrow: persistent
        tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def shifted_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = (tl.program_id(0) << 7) + tl.arange(0, BLOCK)  # narrow: shift
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def while_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    while tile < n:
        offs = tile * BLOCK + tl.arange(0, BLOCK)  # narrow: while
        tl.store(out_ptr + offs, tl.load(x_ptr + offs))
        tile += 2


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """A grouped order of tiles, with 32-bit tile numbers and 64-bit offsets."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP * tl.cdiv(N, BLOCK_N)
    first = pid // in_group * GROUP
    high = min(tiles_m - first, GROUP)
    pid_m = (first + pid % in_group % high).to(tl.int64)
    pid_n = (pid % in_group // high).to(tl.int64)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_n[None, :] * stride_bn + offs_k[:, None]
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask[:, None], other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty))


@triton.jit
def specialized_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    first_m = tl.program_id(0) * BLOCK_M
    first_n = tl.program_id(1) * BLOCK_N
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in tl.range(0, tl.cdiv(K, BLOCK_K), warp_specialize=True):
        x = a.load([first_m, k * BLOCK_K])
        y = b.load([first_n, k * BLOCK_K])
        accumulator = tl.dot(x, y.T, accumulator)
    c.store([first_m, first_n], accumulator.to(tl.float16))


@triton.jit
def scaled_kernel(x_ptr, out_ptr, scale, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes) * scale)  # a float32 scale


@triton.jit
def wrong_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.zeros((BLOCK + 1,), tl.float32))


def product(**arguments):
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16")
    return {**pointers, **dict.fromkeys("MNK", "i32"), **arguments}


def matmul(size, depth, **options):
    strides = dict.fromkeys(("stride_am", "stride_bn", "stride_cm"), "i32")
    tile = {"BLOCK_M": size, "BLOCK_N": size, "BLOCK_K": depth, "GROUP": 8}
    return product(**strides, **tile, **options)


def problems(kernel, arguments, target="sm_90", **claims):
    return check(Configuration("it", kernel, arguments, **claims), target).problems


def ttir(kernel, **arguments):
    options = {"x_ptr": "*fp32", "out_ptr": "*fp32", "BLOCK": 128, **arguments}
    return aot(kernel, **options).ttir


def line_of(mark):
    """The line of this file that ends with a mark."""
    with open(__file__, encoding="utf-8") as file:
        (number,) = [n for n, line in enumerate(file, 1) if line.endswith(f"{mark}\n")]
    return number


# ------------------------------------------------------------------------ what passes


@pytest.mark.parametrize("target", gate.TARGETS)
def test_a_good_kernel_passes(target):
    outcome = check(Configuration("good", wide_kernel, VECTORS), target)
    assert outcome.problems == ()
    assert outcome.compiled is not None and outcome.seconds > 0
    assert str(outcome).startswith(f"good for {target}: ")


def test_a_grouped_matmul_passes():
    assert problems(matmul_kernel, matmul(64, 32)) == ()


# ------------------------------------------------------- what does not, check by check


def test_a_kernel_that_does_not_compile():
    wrong = Configuration("it", wrong_kernel, {"x_ptr": "*fp32", "BLOCK": 3})
    outcome = check(wrong, "sm_80")
    assert outcome.compiled is None
    (problem,) = outcome.problems
    assert "tests/loom/test_gate.py:" in problem
    assert "wrong_kernel does not compile for sm_80" in problem
    assert "does not compile" in str(outcome)


def test_more_shared_memory_than_the_part_has():
    arguments = matmul(64, 128, num_stages=4)
    assert problems(matmul_kernel, arguments, "sm_100") == ()
    (problem,) = problems(matmul_kernel, arguments, "gfx942")
    assert problem.endswith(" B of shared memory; gfx942 has 65536 B")
    assert int(problem.split()[0]) > 65536


def test_spills_over_the_budget_of_this_triton():
    version = ".".join(triton.__version__.split(".")[:2])
    arguments = (matmul(64, 32, maxnreg=48), "sm_80")
    (problem,) = problems(matmul_kernel, *arguments)
    assert problem.endswith(f"B spilled; the budget for Triton {version} is 0 B")
    spilled = int(problem.split()[0])
    assert spilled > 0
    assert problems(matmul_kernel, *arguments, spills={version: spilled}) == ()
    assert problems(matmul_kernel, *arguments, spills={version: spilled - 1})
    assert problems(matmul_kernel, *arguments, spills={"2.0": spilled})


def test_serialized_wgmma():
    found = problems(matmul_kernel, matmul(128, 32, maxnreg=96))
    assert any("wgmma" in p and "serialized" in p for p in found), found


def test_warp_specialization_that_did_not_engage():
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 2}
    claim = {"specialized": ("sm_90",)}
    assert problems(specialized_kernel, product(**tile, num_warps=4), **claim) == ()
    ignored = product(**tile, num_warps=8)
    said = "warp specialization did not engage"
    assert sum(said in p for p in problems(specialized_kernel, ignored, **claim)) == 1
    assert not any(said in p for p in problems(specialized_kernel, ignored))


@pytest.mark.parametrize(
    ("kernel", "arguments", "mark", "source"),
    [
        (narrow_kernel, {"n": "i32"}, "pid", "a program id"),
        (
            rows_kernel,
            {"stride": "i32", "step": "i32", "rows": "i32"},
            "step",
            "the argument step",
        ),
        (strided_kernel, {"stride": "i32"}, "stride", "the argument stride"),
        (gather_kernel, {"x_ptr": "*i32", "out_ptr": "*i32", "stride": "i32"},
         "loaded", "a loaded number"),
        (late_kernel, {"stride": "i64"}, "late", "a program id"),
        (branching_kernel, {"stride": "i32"}, "branch", "a program id"),
        (
            persistent_kernel,
            {"n": "i32"},
            "persistent",
            "a program id and the number of programs",
        ),
        (shifted_kernel, {"n": "i32"}, "shift", "a program id"),
        (while_kernel, {"n": "i32"}, "while", "a program id"),
    ],
)  # fmt: skip
def test_a_narrow_product_in_an_address(kernel, arguments, mark, source):
    (found,) = narrow_products(ttir(kernel, **arguments))
    place = f"tests/loom/test_gate.py:{line_of(f'# narrow: {mark}')}: "
    assert found.startswith(f"{place}a 32-bit product of {source} reaches an address")


def test_wide_products_and_strides_of_one_are_no_fault():
    assert narrow_products(ttir(wide_kernel, n="i32")) == []
    assert (
        narrow_products(ttir(rows_kernel, stride="i32", step="i64", rows="i32")) == []
    )
    assert narrow_products(ttir(strided_kernel, stride=1)) == []
    assert narrow_products(ttir(strided_kernel, stride="i64")) == []


def test_a_kernel_with_a_narrow_product_fails_the_gate():
    (problem,) = problems(narrow_kernel, VECTORS)
    assert "32-bit product of a program id" in problem


def test_a_float32_that_becomes_a_float64():
    doubles = {"x_ptr": "*fp64", "out_ptr": "*fp64", "BLOCK": 128}
    (problem,) = problems(scaled_kernel, {**doubles, "scale": "fp32"})
    place = f"tests/loom/test_gate.py:{line_of('# a float32 scale')}"
    assert problem.startswith(f"{place}: a float32 becomes a float64")
    assert problems(scaled_kernel, {**doubles, "scale": "fp64"}) == ()
    singles = {"x_ptr": "*fp32", "out_ptr": "*fp32", "BLOCK": 128, "scale": "fp64"}
    assert problems(scaled_kernel, singles) == ()  # no float64 tensor


# --------------------------------------------------------------------- reading the text


def test_functions_called_and_regions_of_reductions():
    text = textwrap.dedent("""\
        module {
          tt.func public @k(%p: !tt.ptr<f32> loc("p"(#loc)), %n: i32 loc("n"(#loc))) {
            %c4 = arith.constant 4 : i32 loc(#loc1)
            %0 = tt.get_program_id x : i32 loc(#loc1)
            %1 = arith.muli %0, %c4 : i32 loc(#loc2)
            %2 = "tt.reduce"(%1) <{axis = 0 : i32}> ({
            ^bb0(%a: i32 loc(#loc1), %b: i32 loc(#loc1)):
              %s = arith.addi %a, %b : i32 loc(#loc1)
              tt.reduce.return %s : i32 loc(#loc1)
            }) : (tensor<4xi32>) -> i32 loc(#loc1)
            %3 = tt.call @f(%2) : (i32) -> i32 loc(#loc1)
            %4 = tt.addptr %p, %3 : !tt.ptr<f32>, i32 loc(#loc1)
            tt.return loc(#loc1)
          } loc(#loc)
        } loc(#loc)
        #loc1 = loc("k.py":3:1)
        #loc2 = loc(callsite(#loc3 at #loc1))
        #loc3 = loc("helper"(#loc4))
        #loc4 = loc("h.py":7:2)
        """)
    (found,) = narrow_products(text)
    assert found.startswith("h.py:7: a 32-bit product of a program id reaches")
    assert narrow_products(text.replace("addptr %p, %3", "addptr %p, %n")) == []
    sums = text.replace("arith.muli", "arith.addi")
    assert narrow_products(sums) == []
    (found,) = narrow_products(sums.replace("%s = arith.addi", "%s = arith.muli"))
    assert found.startswith("k.py:3: a 32-bit product of a program id reaches")
    assert widened_floats(text) == []


def test_a_product_that_only_divides_is_no_fault():
    text = textwrap.dedent("""\
        module {
          tt.func public @k(%p: !tt.ptr<f32> loc("p"(#loc)), %n: i32 loc("n"(#loc))) {
            %c4 = arith.constant 4 : i32 loc(#loc1)
            %0 = tt.get_program_id x : i32 loc(#loc1)
            %1 = arith.muli %n, %c4 : i32 loc(#loc1)
            %2 = arith.remsi %0, %1 : i32 loc(#loc1)
            %3 = tt.addptr %p, %2 : !tt.ptr<f32>, i32 loc(#loc1)
            tt.return loc(#loc1)
          } loc(#loc)
        } loc(#loc)
        """)
    assert narrow_products(text) == []
    assert len(narrow_products(text.replace("remsi %0, %1", "remsi %1, %0"))) == 1


def test_what_a_loop_begins_with_is_what_a_loop_of_no_turns_gives():
    text = textwrap.dedent("""\
        module {
          tt.func public @k(%p: !tt.ptr<f32> loc("p"(#loc)), %n: i32 loc("n"(#loc))) {
            %c4 = arith.constant 4 : i32 loc(#loc1)
            %0 = tt.get_program_id x : i32 loc(#loc1)
            %1 = arith.muli %0, %c4 : i32 loc(#loc1)
            %2 = scf.for %i = %c4 to %n step %c4 iter_args(%a = %1) -> (i32)  : i32 {
              scf.yield %c4 : i32 loc(#loc1)
            } loc(#loc1)
            %3 = tt.addptr %p, %2 : !tt.ptr<f32>, i32 loc(#loc1)
            tt.return loc(#loc1)
          } loc(#loc)
        } loc(#loc)
        """)
    assert len(narrow_products(text)) == 1
    assert narrow_products(text.replace("%a = %1", "%a = %0")) == []


# ---------------------------------------------------------------------- configurations


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": ()}, "targets: got none"),
        ({"targets": ("sm_90", "sm_1")}, "targets: got sm_1; accepted are sm_75"),
        ({"targets": ("sm_80",), "specialized": ("sm_90",)}, "targets: got sm_90"),
        ({"spills": {"3.7.1": 4}}, "spills: got version '3.7.1'"),
    ],
)
def test_wrong_configurations(change, message):
    with pytest.raises(ValueError, match=message):
        Configuration("it", wide_kernel, VECTORS, **change)


def test_pairs_and_names():
    one = Configuration("it", wide_kernel, VECTORS, targets=("sm_90", "gfx942"))
    assert gate.pairs([one, one]) == 2 * [(one, "sm_90"), (one, "gfx942")]
    assert gate.identify(one) == "it" and gate.identify("sm_90") == "sm_90"
    assert not one.float64
    assert dataclasses.replace(one, arguments={"x_ptr": "*fp64:16"}).float64
    assert set(gate.TARGETS) <= set(SHARED_MEMORY)


GATE_FILE = """
from loom.gate import Configuration
from generated.jit import add_kernel
VECTORS = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32") | {"n": "i32"}
SHIPPED = [Configuration("small", add_kernel, VECTORS | {"BLOCK": 128})]
OTHERS = [Configuration("tuned", add_kernel, VECTORS | {"BLOCK": 3}, ("sm_90",))]
"""


def test_the_command_compiles_all_and_fails_for_one(tmp_path, capsys):
    path = tmp_path / "test_gate_it.py"
    path.write_text(GATE_FILE)
    assert gate.main([str(path)]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("small for ") for line in lines) == 4
    assert "5 compiles, of which the tests make 4 (at most 600); 1 with a fault" in last
    path.write_text(GATE_FILE.replace('"BLOCK": 3', '"BLOCK": 256'))
    assert gate.main([str(path)]) == 0
    path.write_text("SHIPPED = []")
    with pytest.raises(ValueError, match="no SHIPPED list"):
        gate.main([str(path)])


def test_the_books_compiles_stay_under_their_number(capsys):
    assert gate.main(["--count"]) == 0
    assert "compiles, of which the tests make" in capsys.readouterr().out

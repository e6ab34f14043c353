"""Chapter 1: interpreted without a GPU, and natively on one, from the same file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import generated
from generated import jit
from generated.jit import fused_multiply_add, store_rounded, upcast, vector_add

ROOT = Path(__file__).resolve().parent.parent
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
SIZES = [0, 1, 2, 127, 128, 129, 1023, 1024, 1025, 3001]
pytestmark = pytest.mark.filterwarnings(  # NumPy's, in the interpreter
    "ignore:(overflow|invalid value) encountered:RuntimeWarning"
)
interpreted = pytest.mark.skipif(
    not generated.interpreting(), reason="about the interpreter"
)


@pytest.fixture(scope="module")
def device() -> str:
    if generated.interpreting():
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip("compiled kernels need a GPU")
    return "cuda"


def sample(shape, dtype: torch.dtype, device: str, seed: int = 0) -> torch.Tensor:
    """Random numbers: normal ones, or the whole range of an integer type."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.to(dtype).to(device)
    info = torch.iinfo(dtype)
    low, high = max(info.min, -(2**62)), min(info.max, 2**62)
    values = torch.randint(low, high, tuple(shape), generator=generator)
    return values.to(dtype).to(device)


def check_error_rule(
    ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor
) -> None:
    """DESIGN §6.5: at most twice PyTorch's error in max and mean, plus a rounding."""
    if ours.numel() == 0:
        return
    atom = torch.finfo(ours.dtype).eps * exact.abs().max()
    error, peer = (ours.double() - exact).abs(), (theirs.double() - exact).abs()
    assert error.max() <= 2 * peer.max() + atom
    assert error.mean() <= 2 * peer.mean() + atom


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bit for bit; all NaNs count as one."""
    assert a.dtype == b.dtype and a.shape == b.shape
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    view = integer[a.element_size()]
    same = a.contiguous().view(view) == b.contiguous().view(view)
    return bool((same | (a.isnan() & b.isnan())).all())


# --- numbers --------------------------------------------------------------------------


@pytest.mark.sanitize
def test_smoke_value(device):
    x, y, z = (torch.tensor(v, device=device) for v in (3.0, 4.0, 3.0))
    assert fused_multiply_add(x, y, z).item() == 15.0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_floats_obey_the_error_rule(n, dtype, device):
    x, y, z = (sample((n,), dtype, device, seed) for seed in range(3))
    wide = [t.double() for t in (x, y, z)]
    check_error_rule(vector_add(x, y), x + y, wide[0] + wide[1])
    ours, theirs = fused_multiply_add(x, y, z), torch.addcmul(z, x, y)
    check_error_rule(ours, theirs, wide[0] * wide[1] + wide[2])
    assert ours.dtype == dtype and ours.shape == (n,)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_addition_is_correctly_rounded(dtype, device):
    x, y = sample((1000,), dtype, device), sample((1000,), dtype, device, 1)
    assert same_bits(vector_add(x, y), x + y)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_as_torch_does(dtype, device):
    x, y, z = (sample((777,), dtype, device, seed) for seed in range(3))
    info = torch.iinfo(dtype)
    x[:2], y[:2] = info.max, info.max
    x[2:4], y[2:4] = info.min, info.min
    assert torch.equal(vector_add(x, y), x + y)
    assert torch.equal(fused_multiply_add(x, y, z), x * y + z)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values(dtype, device):
    inf, nan = float("inf"), float("nan")
    tiny = torch.finfo(dtype).smallest_normal / 4
    values = [0.0, -0.0, 1.0, inf, -inf, nan, torch.finfo(dtype).max, tiny, -tiny]
    x = torch.tensor(values, dtype=dtype, device=device).repeat_interleave(len(values))
    y = torch.tensor(values, dtype=dtype, device=device).repeat(len(values))
    assert same_bits(vector_add(x, y), x + y)
    # the one-element case of each, so that no neighbor lends its value
    for i in range(0, len(x), 7):
        assert same_bits(vector_add(x[i], y[i]), x[i] + y[i])


def test_fused_once_on_a_gpu_twice_when_interpreted(device):
    xy = torch.tensor(1 + 2.0**-12, device=device)
    z = torch.tensor(-(1 + 2.0**-11), device=device)
    rounds_twice = generated.interpreting() and triton.__version__ < "3.9"
    expected = 0.0 if rounds_twice else 2.0**-24
    assert fused_multiply_add(xy, xy, z).item() == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reruns_are_bitwise_equal(dtype, device):
    x, y, z = (sample((2049,), dtype, device, seed) for seed in range(3))
    first = fused_multiply_add(x, y, z), vector_add(x, y)
    for _ in range(3):
        assert torch.equal(fused_multiply_add(x, y, z), first[0])
        assert torch.equal(vector_add(x, y), first[1])


# --- layouts --------------------------------------------------------------------------


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "sliced": lambda t: t.repeat_interleave(2, dim=-1)[..., ::2],
    "offset": lambda t: torch.cat([t[:1], t])[1:],
    "column-major": lambda t: t.permute(2, 1, 0).contiguous().permute(2, 1, 0),
}


@pytest.mark.parametrize("x_layout", LAYOUTS)
@pytest.mark.parametrize("y_layout", LAYOUTS)
def test_any_two_layouts_agree(x_layout, y_layout, device):
    x, y, z = (sample((5, 7, 3), torch.float32, device, seed) for seed in range(3))
    x_view, y_view = LAYOUTS[x_layout](x), LAYOUTS[y_layout](y)
    assert torch.equal(x_view, x) and torch.equal(y_view, y)
    out = vector_add(x_view, y_view)
    assert torch.equal(out, x + y)
    assert out.stride() == torch.empty_like(x_view).stride()
    expected = fused_multiply_add(x, y, z)
    assert torch.equal(fused_multiply_add(x_view, y_view, z), expected)


@pytest.mark.sanitize
@pytest.mark.parametrize("rank", range(6))
def test_ranks_and_expanded_dimensions(rank, device):
    shape = (2, 3, 1, 4, 2)[:rank]
    x = sample(shape, torch.float32, device)
    for d in range(rank):
        narrow = sample(shape[:d] + (1,) + shape[d + 1 :], torch.float32, device, 1)
        y = narrow.expand(shape)
        assert torch.equal(vector_add(x, y), x + y)
        assert torch.equal(vector_add(y, x), x + y)
        assert torch.equal(vector_add(y, y), y + y)
    scalar = torch.tensor(2.5, device=device)
    assert torch.equal(vector_add(x, scalar.expand(shape)), x + 2.5)


@pytest.mark.sanitize
@pytest.mark.parametrize("shape", [(0,), (3, 0), (1,), (1, 1, 1), (7, 1), (1, 7)])
def test_empty_and_single(shape, device):
    x, y = (sample(shape, torch.float32, device, seed) for seed in range(2))
    assert torch.equal(vector_add(x, y), x + y)
    if len(shape) > 1:
        assert torch.equal(vector_add(x.mT, y.mT), (x + y).mT)
        assert torch.equal(vector_add(x.mT, y.mT.contiguous()), (x + y).mT)


def test_nothing_is_launched_for_no_elements():
    class Unlaunchable:
        def __getitem__(self, grid):
            raise AssertionError(f"launched with the grid {grid}")

    empty = torch.empty(3, 0)
    assert jit.launch(Unlaunchable(), empty, empty) is empty


def test_inputs_are_not_written(device):
    x, y = (sample((1000,), torch.float32, device, seed) for seed in range(2))
    before = x.clone(), y.clone()
    vector_add(x, y)
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])


@pytest.mark.sanitize
@pytest.mark.parametrize("n", [1, 4, 11, 1023])
def test_nothing_is_written_past_the_end(n, device):
    """`add_kernel` and the shipped kernel, on a buffer with a guard."""
    guard = torch.full((n + 1024,), -7.0, device=device)
    x, y = torch.ones(2, n + 1024, device=device).unbind()
    jit.add_kernel[(1,)](x, y, guard, n, BLOCK=1024)
    assert guard[:n].eq(2).all() and guard[n:].eq(-7).all()
    guard.fill_(-7.0)
    ones = ((1,), (1,), (1,))
    jit.vector_add_kernel[(1,)](x, y, guard, n, (n,), *ones, BLOCK=1024)
    assert guard[:n].eq(2).all() and guard[n:].eq(-7).all()


def test_offsets_past_two_to_the_31(device):
    """Five int8 elements 2^30 apart: a 32-bit offset wraps to element 0, visibly."""
    try:
        storage = torch.empty(4 * 2**30 + 1, dtype=torch.int8, device=device)
    except RuntimeError as error:
        pytest.skip(f"no room for 4 GiB of addresses: {error}")
    x = storage.as_strided((5,), (2**30,))
    x.copy_(torch.tensor([1, 2, 3, 4, 5], dtype=torch.int8))
    y = torch.full((5,), 10, dtype=torch.int8, device=device)
    assert vector_add(x, y).tolist() == [11, 12, 13, 14, 15]
    assert fused_multiply_add(y, y, x).tolist() == [101, 102, 103, 104, 105]


# --- upcast and store_rounded ---------------------------------------------------------


@triton.jit
def round_trip_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = upcast(tl.load(x_ptr + offs, mask=offs < n))
    store_rounded(out_ptr + offs, x, offs < n)


def round_trip(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.full(x.shape, 7, dtype=dtype, device=x.device)
    block = 65536 if generated.interpreting() else 1024
    grid = (triton.cdiv(x.numel(), block),)
    with torch.cuda.device_of(x):
        round_trip_kernel[grid](x, out, x.numel(), BLOCK=block)
    return out


def every_upper_half(device: str) -> torch.Tensor:
    """Each upper half of a float32 with the lower halves where a rounding turns."""
    low = torch.tensor([0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    bits = (torch.arange(65536)[:, None] * 65536 + low).flatten()
    bits = torch.where(bits >= 2**31, bits - 2**32, bits)
    return bits.to(torch.int32).view(torch.float32).to(device)


@pytest.mark.parametrize("source", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_store_rounded_is_torchs_rounding(dtype, source, device):
    x = every_upper_half(device).to(source)
    assert same_bits(round_trip(x, dtype), x.to(dtype))


def test_store_rounded_around_every_float16(device):
    """Ties between neighboring float16 numbers, and the float32 on either side."""
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16)
    finite = every[every.isfinite()].float().sort().values
    ties = (finite[1:] + finite[:-1]) / 2
    beside = [torch.nextafter(ties, torch.full_like(ties, e)) for e in (-1e9, 1e9)]
    limit = torch.tensor([65519.99, 65520.0, 65536.0, -65520.0, 2.0**-25, 2.0**-26])
    x = torch.cat([ties, *beside, limit]).to(device)
    assert same_bits(round_trip(x, torch.float16), x.to(torch.float16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_float64_is_rounded_by_way_of_float32(dtype, device):
    """Just above a tie in float64, on it in float32: twice rounded, as in torch."""
    tie = 1 + torch.finfo(dtype).eps / 2
    x = torch.tensor([tie + 2.0**-40, -tie - 2.0**-40], dtype=torch.float64)
    x = x.to(device)
    assert (x.abs() > tie).all()
    assert round_trip(x, dtype).tolist() == x.to(dtype).tolist() == [1.0, -1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_upcast_is_exact_for_every_bit_pattern(dtype, device):
    every = torch.arange(65536).to(torch.int16).view(dtype).to(device)
    assert same_bits(round_trip(every, torch.float32), every.float())
    assert same_bits(round_trip(every, dtype), every)


def test_other_types_pass_unchanged(device):
    for dtype in (torch.float32, torch.float64, *INTEGERS):
        x = sample((500,), dtype, device)
        assert same_bits(round_trip(x, dtype), x)


@interpreted
def test_the_interpreters_own_cast_would_fail():
    """Why store_rounded exists: remove it when this test fails."""

    @triton.jit
    def cast_kernel(x_ptr, out_ptr):
        tl.store(out_ptr, tl.load(x_ptr))

    x, out = torch.tensor([1 + 3 * 2.0**-8]), torch.zeros(1, dtype=torch.bfloat16)
    cast_kernel[(1,)](x, out)
    assert out.item() != x.bfloat16().item()


# --- refusals -------------------------------------------------------------------------


def refusals(device: str):
    x = torch.ones(3, device=device)
    meta, minus = x.to("meta"), torch.imag(torch.conj(x + 0j))
    return {
        "x is a list": (TypeError, "x: got list; accepted", ([1.0], x)),
        "y is a number": (TypeError, "y: got float; accepted", (x, 2.0)),
        "bool": (
            TypeError,
            "x: got dtype torch.bool; accepted are float16",
            (x > 0, x),
        ),
        "complex": (TypeError, "x: got dtype torch.complex64", (x + 0j, x)),
        "dtype of y": (TypeError, "y: got dtype torch.float64; .*32", (x, x.double())),
        "sparse": (TypeError, "x: got layout torch.sparse_coo", (x.to_sparse(), x)),
        "shape": (ValueError, r"y: got shape \(2,\); .* of x, \(3,\)", (x, x[:2])),
        "rank": (ValueError, r"y: got shape \(3, 1\)", (x, x[:, None])),
        "meta": (ValueError, "x: got device meta", (meta, meta)),
        "negation": (ValueError, r"x: .*x\.resolve_neg\(\)", (minus, x)),
        "grad of x": (RuntimeError, "x requires grad.*Chapter 13", (_leaf(x), x)),
        "grad of y": (RuntimeError, "y requires grad.*backward", (x, _leaf(x))),
    }


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


@pytest.mark.parametrize("case", list(refusals("cpu")))
def test_refusals_name_the_argument(case, device):
    error, words, arguments = refusals(device)[case]
    with pytest.raises(error, match=words):
        vector_add(*arguments)
    if case not in ("x is a list", "y is a number"):
        with pytest.raises(error, match=words):
            fused_multiply_add(*arguments, arguments[0])


def test_the_third_argument_is_checked_too(device):
    x = torch.ones(3, device=device)
    for z, error in ((x.double(), TypeError), (x[:2], ValueError), (None, TypeError)):
        with pytest.raises(error, match="^z: "):
            fused_multiply_add(x, x, z)
    with pytest.raises(RuntimeError, match="^z requires grad"):
        fused_multiply_add(x, x, _leaf(x))


def test_no_graph_no_refusal(device):
    x = _leaf(torch.ones(3, device=device))
    with torch.no_grad():
        assert vector_add(x, x).tolist() == [2, 2, 2]
    assert not vector_add(x.detach(), x.detach()).requires_grad


@pytest.mark.skipif(generated.interpreting(), reason="the interpreter reads the CPU")
def test_a_cpu_tensor_is_refused_natively(device):
    with pytest.raises(ValueError, match=r"x: got device cpu; .*TRITON_INTERPRET=1"):
        vector_add(torch.ones(3), torch.ones(3))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_tensors_gpu_is_used():
    x = torch.ones(3, device="cuda:1")
    with torch.cuda.device(0):
        assert vector_add(x, x).device == x.device


# --- compiled without a GPU -----------------------------------------------------------

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")


def compiled(kernel, target: str, dtype: str, stride: object = 1, rank: int = 1):
    from loom import aot

    names = kernel.arg_names
    shape = {"shape": ("i32",) * rank}
    pointers = {name: f"*{dtype}" for name in names if name.endswith("_ptr")}
    strides = {name: (stride,) * rank for name in names if name.endswith("_strides")}
    arguments = pointers | {"n": "i32", "BLOCK": 1024}
    if strides:
        arguments |= shape | strides
    return aot(kernel, target=target, **arguments)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_compile_gate(target, dtype):
    for kernel in (jit.add_kernel, jit.vector_add_kernel, jit.multiply_add_kernel):
        strides = [1] if kernel is jit.add_kernel else [1, "i32"]
        for stride in strides:
            asm = compiled(kernel, target, dtype, stride)
            assert asm.spills == 0 and asm.shared == 0 and not asm.advisories
            assert re.search(r"arith\.extsi .* : i32 to i64", asm.ttir)  # program id
            addresses = asm.lines(r"tt\.addptr", where="ttir")
            assert addresses and all("xi64>" in line for line in addresses)


@pytest.mark.parametrize("dtype", ["fp64", "fp16", "i8", "i32", "i64"])
def test_compile_gate_for_the_other_types(dtype):
    asm = compiled(jit.multiply_add_kernel, "sm_90", dtype, "i32", rank=3)
    fused = {"fp64": "fma.rn.f64", "fp16": "fma.rn.f32"}.get(dtype)
    assert asm.count(r"math\.fma", where="ttir") == (0 if fused is None else 1)
    assert fused is None or fused in asm.ptx
    assert asm.count(r"arith\.extf .*f32 to f64", where="ttir") == 0
    assert asm.count(r"arith\.divsi", where="ttir") == 2  # shared by four tensors


def test_sixteen_bits_are_widened_once_and_rounded_once():
    asm = compiled(jit.vector_add_kernel, "sm_90", "bf16")
    assert asm.count(r"arith\.extf", where="ttir") == 2
    assert asm.count(r"arith\.truncf", where="ttir") == 1
    assert asm.count(r"bitcast|shrui|select", where="ttir") == 0
    assert asm.count(r"addf .*xf32>", where="ttir") == 1


def test_a_row_of_stride_one_is_loaded_wide():
    wide = compiled(jit.vector_add_kernel, "sm_90", "fp32")
    assert wide.count(r"LDG\.E\.128") == 4 and wide.count(r"STG\.E\.128") == 2


def test_listings_point_into_the_chapter():
    asm = compiled(jit.add_kernel, "sm_90", "fp32")
    lines = {int(n) for n in re.findall(r"\.loc\s+1 (\d+)", asm.ptx)}
    chapter = (ROOT / "book" / "01-jit.qmd").read_text().split("\n")
    assert "jit.py" in asm.ptx
    assert {chapter[n - 1].strip().split("(")[0] for n in lines} >= {
        "def add_kernel",
        "pid = tl.program_id",
        "mask = offs < n",
    }


def test_one_is_a_constant_and_divides_like_python():
    """The trap of the chapter, on a helper of its own."""
    from loom import aot

    @triton.jit
    def half_down_kernel(out_ptr, n):
        tl.store(out_ptr, -n // 2)

    any_n = aot(half_down_kernel, target="sm_90", out_ptr="*i32", n="i32")
    one = aot(half_down_kernel, target="sm_90", out_ptr="*i32", n=1)
    assert "arith.divsi" in any_n.ttir
    assert "arith.divsi" not in one.ttir and "constant -1 : i32" in one.ttir


# --- the package ----------------------------------------------------------------------


def test_lazy_names_are_the_chapters():
    assert generated.vector_add is vector_add
    assert generated.fused_multiply_add is fused_multiply_add
    for function in (vector_add, fused_multiply_add, jit.check_tensor, jit.launch):
        assert "Defined in Chapter 1" in (function.__doc__ or "")


def test_import_is_silent_and_launches_nothing():
    code = "import generated.jit as j; print(type(j.add_kernel).__name__)"
    environment = {**os.environ, "TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "JITFunction" and done.stderr == ""


@pytest.mark.parametrize("choice", [None, "0"])
def test_where_nothing_can_be_launched_the_error_says_how_to(choice):
    """Triton imported first, or told to compile, on a machine without a GPU."""
    code = (
        "import triton, torch, generated\n"
        "try: generated.vector_add(torch.ones(3), torch.ones(3))\n"
        "except RuntimeError as error: print(error)"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TRITON_INTERPRET", None)
    if choice is not None:
        environment["TRITON_INTERPRET"] = choice
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "TRITON_INTERPRET=1" in done.stdout and "GPU" in done.stdout
    assert choice == "0" or "import generated before triton" in done.stdout


def test_a_tangent_is_not_lost(device):
    """Forward mode: a dual tensor does not require grad, and has a derivative."""
    from torch.autograd import forward_ad

    x = torch.ones(3, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        for arguments in ((dual, x), (x, dual)):
            name = "xy"[arguments[1] is dual]
            with pytest.raises(
                RuntimeError, match=f"^{name} carries a tangent.*ter 13"
            ):
                vector_add(*arguments)
        with torch.no_grad(), pytest.raises(RuntimeError, match="^z carries a tangent"):
            fused_multiply_add(x, x, dual)
        assert vector_add(dual.detach(), x).tolist() == [2, 2, 2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind", ["vmap", "jvp", "functionalize", "fake", "nested", "masked"]
)
def test_stand_ins_are_refused(kind, device):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.masked import masked_tensor

    x = torch.ones(2, 3, device=device)
    trials = {
        "vmap": lambda: torch.vmap(vector_add)(x, x),
        "jvp": lambda: torch.func.jvp(vector_add, (x, x), (x, x)),
        "functionalize": lambda: torch.func.functionalize(vector_add)(x, x),
        "nested": lambda: vector_add(torch.nested.as_nested_tensor([x, x]), x),
        "masked": lambda: vector_add(masked_tensor(x, x > 0), x),
        "fake": lambda: vector_add(FakeTensorMode().from_tensor(x), x),
    }
    with pytest.raises(TypeError, match="^x: got a stand-in for a tensor"):
        trials[kind]()


def test_subclasses_and_parameters_are_tensors(device):
    class Labelled(torch.Tensor):
        pass

    x = torch.ones(3, device=device)
    for other in (x.as_subclass(Labelled), torch.nn.Parameter(x, requires_grad=False)):
        assert vector_add(other, x).tolist() == [2, 2, 2]

# # Types and the JIT boundary {#sec-jit}

# Two vectors of a million numbers are to be added, and the Python function that says so will never see one of those numbers.
# It is read once, as text, and what comes out of the reading is a program for another machine.
# This chapter is about the line between the two: what crosses it, in which type, how often it is drawn anew, and what lies on the far side.

# ```{python}
# #| label: setup
# #| echo: false
# import loom

# loom.begin("jit")
# ```

# ## What you will be able to do {.unnumbered}

# After this chapter you can

# - write down, before you launch a kernel, which program reads and writes which element;
# - name the type of every value in a kernel, and say what becomes of `0.1`, of `1` and of a tensor on the way in;
# - say of any expression in a kernel whether Python evaluates it or the compiler translates it;
# - predict how often a sequence of calls compiles, and count it;
# - find a line of your kernel again in TTIR, TTGIR, LLVM IR, PTX and SASS;
# - divide negative integers and store bfloat16 knowing what you get, compiled and interpreted.

# You need Python, the tensors of PyTorch (shape, dtype, `stride()`) and the installation of [Getting Started](getting-started.qmd).
# You do not need a GPU: the numbers on this page come from Triton's interpreter, the listings from its compiler, and both run on a CPU.
# The section *Measured* is the only one that a GPU has to fill.

# ## The first kernel {#sec-jit-first}

# A GPU is fast because it does one thing to many elements at once.
# Triton's way of saying so [@tillet2019triton] is the *program*: a function that handles one block of elements, launched as many times as there are blocks.
# The copies differ in one number, their program id, and everything that a program does differently from its neighbors it computes from that number.

# ### By hand

# Add two vectors of $n = 11$ elements with blocks of $B = 4$.
# Program $p$ is responsible for the elements

# $$
# \mathrm{offs}_p = p \cdot B + (0, 1, \dots, B - 1) ,
# $$ {#eq-jit-offsets}

# and $\lceil 11/4 \rceil = 3$ programs are needed to cover all eleven.
# Take $x_i = i$ and $y_i = 10\,i$, so that every sum shows its index: $x_i + y_i = 11\,i$.

# | program | offsets | live | $x$ | $y$ | $x + y$ |
# |---|---|---|---|---|---|
# | 0 | 0 1 2 3 | 4 | 0 1 2 3 | 0 10 20 30 | 0 11 22 33 |
# | 1 | 4 5 6 7 | 4 | 4 5 6 7 | 40 50 60 70 | 44 55 66 77 |
# | 2 | 8 9 10 ~~11~~ | 3 | 8 9 10 – | 80 90 100 – | 88 99 110 – |

# : Three programs add eleven elements. The last lane of program 2 has no element. {#tbl-jit-hand}

# Blocks are powers of two and vectors are not, so some program nearly always has lanes left over.
# Those lanes exist and would read and write memory like all others; a *mask* switches them off.

# ### The code

# The module begins here.
# Its first cells are code that you can import: everything marked so on this page is also, at the same line numbers, the file `generated/jit.py`.

# ```{python}
#| label: module
#| tangle: true
"""Types and the JIT boundary: the first kernels, and what may cross into them.

Public operations: ``vector_add`` and ``fused_multiply_add``.  For later chapters:
the kernel helpers ``upcast`` and ``store_rounded``, the argument checks
``check_tensor``, ``check_like`` and ``refuse_grad``, and ``launch``.

Defined in Chapter 1.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from generated import interpreting, require_launchable
# ```

# ```{python}
#| label: add-kernel
#| tangle: true
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for i < n; program p handles elements pB to pB + B - 1."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)
# ```

# Read it from the top.
# `tl.program_id(0)` is $p$; it is made 64 bits wide before it is multiplied, for a reason that @sec-jit-integers puts a number on.
# `tl.arange(0, BLOCK)` is the vector $(0, \dots, B-1)$, so `offs` is @eq-jit-offsets and has `BLOCK` elements.
# `x_ptr` is one address; `x_ptr + offs` is a block of addresses, and it counts in elements, not in bytes, because the pointer knows its type.
# `tl.load` fetches a whole block and `tl.store` writes one, except where the mask is false.

# A kernel is launched by indexing it with a *grid*, the number of programs, and calling the result.

# ```{python}
# #| label: first-launch
# DEVICE = "cpu" if interpreting() else "cuda"

# x = torch.arange(11.0, device=DEVICE)
# y = 10 * x
# out = torch.empty_like(x)
# add_kernel[(3,)](x, y, out, 11, BLOCK=4)

# assert out.tolist() == [11.0 * i for i in range(11)]
# out
# ```

# The tensors went in as tensors and arrived as pointers; `n` went in as a Python integer; `BLOCK`, marked `tl.constexpr`, never arrived at all, as @sec-jit-traced will show.
# The grid, `(3,)`, was worked out by hand; `triton.cdiv(11, 4)` does the same division, rounding up.

# ### What the launch really did

# `trace` is one of this book's two instruments.
# It runs a launch in Triton's interpreter, in a process of its own, and records every load and store of every program: the element indices, the mask and the values.
# What it draws is therefore what happened, not what the author thinks should happen.

# ```{python}
# #| label: fig-jit-first
# #| fig-cap: "Reads and writes of `add_kernel` for n = 11 and BLOCK = 4, recorded from a run. Cells are colored by program; hatched lanes are masked."
# #| fig-alt: "Three rows of cells, x and y read and out written, elements 0 to 10 in three colors of four, four and three; one hatched cell at index 11 past the end of each tensor belongs to program 2."
# from loom import trace

# first = trace(
#     add_kernel, grid=(3,), x_ptr=x, y_ptr=y, out_ptr=torch.empty_like(x), n=11, BLOCK=4
# )
# first.draw()
# ```

# The same run as a table gives the rows of @tbl-jit-hand again, this time from the machine; here is its last program.

# ```{python}
# #| label: first-table
# first.table(program=2)
# ```

# ### The ragged edge

# The mask is one line, and a kernel without it is right whenever `BLOCK` divides `n`.
# That makes it the easiest line to forget and the hardest to miss in a test on 1024 elements.

# ::: {.callout-warning title="Trap: a store that nobody asked for"}
# Give the vectors one more element in memory than the kernel is told about, and leave out the masks.
# The twelfth element of `out` belongs to somebody else; mark it with −1.

# ```{python}
# #| label: unmasked
# @triton.jit
# def unmasked_add_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
#     pid = tl.program_id(0).to(tl.int64)
#     offs = pid * BLOCK + tl.arange(0, BLOCK)
#     tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


# x12 = torch.arange(12.0, device=DEVICE)
# memory = torch.full((12,), -1.0, device=DEVICE)
# ours, neighbor = memory[:11], memory[11:]
# unmasked_add_kernel[(3,)](x12, 10 * x12, ours, BLOCK=4)

# assert ours.tolist() == [11.0 * i for i in range(11)]  # nothing wrong to be seen
# assert neighbor.item() == 121.0  # it was -1
# neighbor
# ```

# The result is right, no exception is raised, and a number that was not ours is gone.
# Past the last page of memory the same line would end the process; here it only corrupts.
# `trace` refuses what a GPU does without a word:

# ```{python}
# #| label: unmasked-traced
# #| error: true
# tensors = dict(x_ptr=x, y_ptr=y, out_ptr=torch.empty_like(x))
# trace(unmasked_add_kernel, grid=(3,), **tensors, BLOCK=4)
# ```

# The mend is the mask, on loads as well as on stores.
# :::

# ## What the decorator does, and when anything compiles {#sec-jit-decorator}

# `@triton.jit` does not compile.
# It reads the *source text* of the function, notes the parameters, and puts an object in the function's place; the function itself is never called, except by the interpreter.
# Compiling has to wait, because the text alone does not say what `x_ptr` points to.

# ```{python}
# #| label: decorator
# from triton.runtime.jit import JITFunction

# compiled_kind = JITFunction(add_kernel.fn)  # what @triton.jit makes when it compiles
# parameters = {p.name: p.is_constexpr for p in compiled_kind.params}

# assert compiled_kind.src.startswith("def add_kernel(x_ptr")
# assert [name for name, fixed in parameters.items() if fixed] == ["BLOCK"]
# print(type(add_kernel).__name__, "here;", type(compiled_kind).__name__, "on a GPU")
# print(parameters)
# ```

# Which of the two kinds of object the decorator makes is decided by the environment variable `TRITON_INTERPRET` at that moment, so it must be set before Triton is imported.
# [The preface](../index.qmd) tells how the package sets it where there is no GPU.
# Both kinds keep the original function as `.fn`, and that lets a page that runs in the interpreter put questions to the compiler.

# A kernel must therefore have source text to read: one made by `exec`, or typed into `python -c`, is refused, and a notebook cell is accepted.

# @tbl-jit-when follows one kernel through its life.
# @sec-jit-specialization counts the compilations in it, and @sec-jit-measured times its rows.

# | moment | what happens |
# |---|---|
# | `@triton.jit` is executed | the source is read and the parameters are listed; no compiler runs |
# | first launch | the arguments are turned into a *key*; nothing is stored under it; the kernel is compiled to a binary; the binary is loaded and launched |
# | next launch, same key | the key is looked up in a dictionary of this process; launch |
# | next launch, another key | compiled again, for the new key |
# | first launch in a new process | the key finds the binary in the cache directory on disk; it is loaded and launched, without compiling |
# | the source of the kernel, or of a helper it calls, has changed | its hash is another: compiled again |

# : When a kernel compiles. {#tbl-jit-when}

# ## Types {#sec-jit-types}

# A tensor's dtype decides what the kernel's pointer points to, and that decides the type of everything loaded from it.
# The kernel never asks; the types are worked out before it runs, once for each combination that occurs.

# ### Tensors arrive as typed pointers

# Triton has its own dtypes in `triton.language`, with a short name for each.
# @tbl-jit-dtypes was made by asking Triton how it would pass an empty tensor of each torch dtype; a leading `*` means *pointer to*.

# ```{python}
# #| label: tbl-jit-dtypes
# #| tbl-cap: "PyTorch's dtypes, as Triton passes and names them."
# #| code-fold: true
# #| code-summary: "How the table was made"
# from IPython.display import Markdown, display
# from triton.runtime.jit import mangle_type


# def triton_type(dtype):
#     """The type of an element that a kernel loads from a tensor of this dtype."""
#     return tl.str_to_ty(mangle_type(torch.empty(0, dtype=dtype)), None).element_ty


# TYPES = {
#     torch.float64: "double precision; stays double precision in this book",
#     torch.float32: "the type that fp16 and bf16 are computed in",
#     torch.float16: "11 significant bits, at most 65504",
#     torch.bfloat16: "8 significant bits, the range of float32",
#     torch.float8_e4m3fn: "4 significant bits; storage and matrix products only",
#     torch.float8_e5m2: "3 significant bits; likewise",
#     torch.int64: "offsets",
#     torch.int32: "program ids, `tl.arange`, most Python integers",
#     torch.int16: "",
#     torch.int8: "",
#     torch.uint8: "",
#     torch.bool: "1 bit as a value, 1 byte in memory",
# }

# rows = ["| torch | bytes | passed as | `tl.` name | remark |", "|---|--:|---|---|---|"]
# for dtype, remark in TYPES.items():
#     passed = mangle_type(torch.empty(0, dtype=dtype))
#     element = triton_type(dtype)
#     name = next(n for n in vars(tl) if getattr(tl, n) is element or n == str(element))
#     bits = 1 if dtype is torch.bool else 8 * dtype.itemsize
#     assert element.primitive_bitwidth == bits
#     rows.append(f"| {dtype} | {dtype.itemsize} | `{passed}` | `{name}` | {remark} |")
# Markdown("\n".join(rows))
# ```

# Complex numbers are not in the table: Triton has no complex type, and a launch with a complex tensor fails.

# ### Python numbers arrive by value

# A number has no dtype, so Triton gives it one by looking at the value.
# That last word is meant literally: `1` and `2` arrive as different *types*.

# ```{python}
# #| label: scalars
# from triton.backends.compiler import GPUTarget
# from triton.compiler import make_backend
# from triton.runtime.jit import create_function_from_signature

# BACKEND = make_backend(GPUTarget("cuda", 90, 32))


# def bind(kernel, *args, **options):
#     """How Triton's own binder types these arguments for a GPU of capability 9.0."""
#     native = JITFunction(kernel.fn)
#     binder = create_function_from_signature(native.signature, native.params, BACKEND)
#     return binder(*args, **options)[1]


# @triton.jit
# def scalar_kernel(value):
#     pass


# EXPECTED = [
#     (7, ("i32", "")),
#     (16, ("i32", "D")),
#     (1, ("constexpr", 1)),
#     (2**31 - 1, ("i32", "")),
#     (2**31, ("i64", "D")),
#     (2**63, ("u64", "D")),
#     (0.5, ("fp32", None)),
#     (True, ("u1", None)),
# ]
# for value, expected in EXPECTED:
#     [passed] = bind(scalar_kernel, value)
#     assert passed == expected
#     print(f"{value!r:>20}  {passed}")
# ```

# An `i32` is a signed 32-bit integer; `D` says that 16 divides the value; `constexpr` says that the value is built into the code and is no argument at all.
# A float is always `fp32`, whatever it was in Python, and that has a price.

# ::: {.callout-warning title="Trap: a Python float is single precision"}
# Python's `0.1` is a double.
# On its way into a compiled kernel it is rounded to single precision, and a kernel on float64 tensors then computes with the wrong tenth.

# ```{python}
# #| label: float-argument
# from loom import aot


# @triton.jit
# def add_scalar_kernel(x_ptr, value):
#     tl.store(x_ptr, tl.load(x_ptr) + value)


# @triton.jit
# def add_double_kernel(x_ptr, value: tl.float64):
#     tl.store(x_ptr, tl.load(x_ptr) + value)


# single = aot(add_scalar_kernel, target="sm_90", x_ptr="*fp64", value="fp32")
# double = aot(add_double_kernel, target="sm_90", x_ptr="*fp64", value="fp64")
# assert bind(add_scalar_kernel, torch.zeros(1).double(), 0.1)[1] == ("fp32", None)
# assert bind(add_double_kernel, torch.zeros(1).double(), 0.1)[1] == ("fp64", None)
# assert single.count(r"arith\.extf", where="ttir") == 1
# assert double.count(r"arith\.extf", where="ttir") == 0
# tenth = torch.zeros(1, dtype=torch.float64)
# trace(add_scalar_kernel, grid=(1,), x_ptr=tenth, value=0.1)
# assert tenth.item() == 0.1  # interpreted, nothing is lost
# single.show("ttir", pattern=r"extf|addf")
# ```

# The line with `extf` widens a number that is already rounded: the kernel adds `{python} f"{torch.tensor(0.1).double().item():.20f}"` instead of 0.1.
# The interpreter does not show this, because it hands the Python double through.
# The mend is the annotation `value: tl.float64`, which every float64 kernel in this book carries on every scalar.
# :::

# `aot` is the second instrument.
# It compiles a kernel for a GPU that need not exist, "ahead of time", and hands over each language that the compiler went through; here the first of them, of which @sec-jit-ir shows all.

# ### What an expression's type is

# Two operands of different types must agree before they meet.
# Triton's rules look like PyTorch's and are its own, so @tbl-jit-promotion lets each answer for itself.

# ```{python}
# #| label: tbl-jit-promotion
# #| tbl-cap: "The type of a sum and of a quotient of two loaded values."
# #| code-fold: true
# #| code-summary: "How the table was made"
# from triton.language.semantic import TritonSemantic

# PAIRS = [
#     (torch.int8, torch.int32),
#     (torch.int64, torch.float16),
#     (torch.float16, torch.float32),
#     (torch.float32, torch.float64),
#     (torch.bfloat16, torch.bfloat16),
#     (torch.float16, torch.bfloat16),
#     (torch.int8, torch.uint8),
#     (torch.int32, torch.uint32),
# ]


# def rule(a, b, dividing):
#     try:
#         return TritonSemantic(None).computation_type_impl(a, False, b, False, dividing)
#     except TypeError:
#         return "refused"


# rows = ["| `a` | `b` | `a + b` | `a / b` | torch: `a + b` |", "|---|---|---|---|---|"]
# for pair in PAIRS:
#     a, b = map(triton_type, pair)
#     known = torch.uint32 not in pair
#     torchs = str(torch.promote_types(*pair))[6:] if known else "refused"
#     rows.append(f"| {a} | {b} | {rule(a, b, False)} | {rule(a, b, True)} | {torchs} |")
# assert "| fp16 | bf16 | fp16 | fp32 | float32 |" in rows
# assert "| int8 | uint8 | uint8 | refused | int16 |" in rows
# Markdown("\n".join(rows))
# ```

# Two rows deserve a second look.
# float16 with bfloat16 stays float16 in Triton, where PyTorch widens to float32; a bfloat16 beyond 65504 becomes infinite there.
# int8 with uint8 becomes uint8, as it would in C, so that −1 turns into 255, where PyTorch finds int16.
# The rule of this book makes most of the table idle: right after the load, a kernel converts to the type it computes in, and it says so.

# A number written in the kernel's own text has no dtype to promote: it takes the type of the tensor it meets, if it is of the same kind or a lower one (bool, integer, float in this order).
# `x + 1` is bfloat16 for a bfloat16 `x`; `x + 0.5` is float32 for an int32 `x`; and a literal that does not fit is refused, as @sec-jit-integers shows.

# ## What Python evaluates, and what is traced {#sec-jit-traced}

# Three clocks tick in one kernel.
# Some expressions are evaluated by Python when you *call* the kernel, some by Python while the kernel is *translated*, and the rest by the GPU, in every program of every launch.

# ```{python}
# #| label: three-clocks
# @triton.jit
# def three_clocks_kernel(out_ptr, n, WIDTH: tl.constexpr):
#     tl.store(out_ptr, -WIDTH // 2)  # Python, while translating
#     tl.store(out_ptr + 1, -n // 2)  # the GPU
#     if WIDTH > 4:  # Python: the branch is there or it is not
#         tl.store(out_ptr + 2, WIDTH)
#     if n > 4:  # the GPU: the branch is taken or it is not
#         tl.store(out_ptr + 3, n)


# clocks = aot(three_clocks_kernel, target="sm_90", out_ptr="*i32", n="i32", WIDTH=7)
# assert clocks.count(r"scf\.if", where="ttir") == 1  # one of the two ifs is left
# assert clocks.count(r"arith\.divsi", where="ttir") == 1  # and one of the two divisions
# clocks.show("ttir", pattern=r"constant|subi|divsi|cmpi|scf|tt\.store")
# ```

# Both stores of the first two lines divide by two, and one division is left.
# `-WIDTH // 2` is an expression in Python integers and was finished before the compiler saw it: it is the constant −4.
# `-n // 2` is a subtraction and an `arith.divsi`.
# Likewise one `if` became an `scf.if`, and the other decided what text there is to compile.

# | expression | evaluated by | when |
# |---|---|---|
# | `triton.cdiv(n, 4)`, the grid, `x.stride(0)` | Python | at each call |
# | the type of each argument | Triton's binder | at each call |
# | `BLOCK * 2`, `x.dtype == tl.bfloat16`, `if WIDTH > 4` | Python | once a compilation |
# | `tl.static_range(4)`, `tl.static_assert(…)`, `tl.static_print(…)` | Python | once a compilation |
# | `f"{BLOCK}"`, a global `tl.constexpr`, `len(shape)` | Python | once a compilation |
# | `pid * BLOCK`, `offs < n`, `x + y`, `if n > 4`, `range(n)` | the GPU | in every program |

# : The three clocks. {#tbl-jit-clocks}

# A rule of thumb follows: an expression belongs to Python if every name in it does.
# One runtime value in it, and it is the GPU's.

# ::: {.callout-warning title="Trap: a global is not a constant"}
# A kernel's text can name a global of its module, and the interpreter, being Python, looks it up.

# ```{python}
# #| label: global-interpreted
# SCALE = 3


# @triton.jit
# def scale_kernel(out_ptr):
#     tl.store(out_ptr, SCALE)


# looked_up = trace(scale_kernel, grid=(1,), out_ptr=torch.zeros(1))
# assert looked_up.events[-1].values.tolist() == [3.0]
# ```

# The compiler refuses, because a binary could not notice if the global changed.

# ```{python}
# #| label: global-compiled
# #| error: true
# aot(scale_kernel, target="sm_90", out_ptr="*fp32")
# ```

# The mend is in the message: `SCALE = tl.constexpr(3)`, or an argument.
# :::

# ## Specialization: what makes a kernel compile again {#sec-jit-specialization}

# A compiled kernel is stored under a key.
# For each argument that is no constant the key has its type and at most one further letter, and for each constant its value:

# $$
# \text{key} = \bigl( (\text{type}, \text{D or nothing}), \dots, (\text{constexpr}, \text{value}), \dots,\ \text{options} \bigr) .
# $$ {#eq-jit-key}

# `D` stands for *divisible by 16*: for an integer it is a property of its value, for a tensor a property of its address in bytes.
# An integer argument that equals 1 is treated as a constant.
# The options are those that the call gives, such as `num_warps`.

# Nothing else counts: not the shape, not the strides, not the number of programs, unless you pass them, and then only through @eq-jit-key.

# ### Why 16

# Sixteen bytes are what one thread fetches with its widest ordinary load.[^wider]
# If the address of a block is known to be a multiple of 16 bytes, four consecutive floats can be fetched by one instruction; if it is not known, they cannot.
# The same must be known of `n`: a group of four lanes can share one instruction only if they share one mask, and they do if `n` is a multiple of four.

# [^wider]: Blackwell's instruction set has loads of 32 bytes, too; the code compiled for `sm_100` in @tbl-jit-targets does not use them.

# By hand: 4 warps of 32 threads are 128 threads, so with `BLOCK=1024` each thread has 8 elements, or two groups of four.
# Two inputs make $2 \cdot 2 = 4$ wide loads, and the output 2 wide stores.
# Without the `D`, each thread needs $2 \cdot 8 = 16$ narrow loads and 8 narrow stores.

# ```{python}
# #| label: tbl-jit-alignment
# #| tbl-cap: "Loads and stores of `add_kernel` for `sm_90`, by what is known."
# types = dict(x_ptr="*fp32", y_ptr="*fp32", out_ptr="*fp32", n="i32")
# known = {
#     "addresses and n": ("x_ptr", "y_ptr", "out_ptr", "n"),
#     "only the addresses": ("x_ptr", "y_ptr", "out_ptr"),
#     "nothing": (),
# }
# cases = {
#     what: aot(add_kernel, target="sm_90", **types, BLOCK=1024, divisible_by_16=names)
#     for what, names in known.items()
# }
# counts = {}
# for what, asm in cases.items():
#     counts[what] = [
#         asm.count(pattern)
#         for pattern in (r"LDG\.E\.128", r"LDG\.E ", r"STG\.E\.128", r"STG\.E ")
#     ]
# assert list(counts.values()) == [[4, 0, 2, 0], [0, 16, 0, 8], [0, 16, 0, 8]]
# head = "| divisible by 16 | wide loads | narrow | wide stores | narrow |"
# rows = [head, "|---|--:|--:|--:|--:|"]
# rows += [f"| {what} | {' | '.join(map(str, n))} |" for what, n in counts.items()]
# Markdown("\n".join(rows))
# ```

# So the recompilation is not an accident of the design but its purpose: `n = 1024` and `n = 1000` get different machine code, because they deserve it.
# (`1000 = 62 · 16 + 8` is a multiple of four and would deserve it too; the test is for 16 and nothing between.)

# ### By hand

# Here are twelve calls of `add_kernel`, in this order.
# Say for each whether it compiles, before you read the last column.

# | # | call | key, where it differs | compiles? |
# |--:|---|---|---|
# | 1 | `n=1024`, float32 | everything is new | yes |
# | 2 | `n=2048` | still `i32`, `D` | no |
# | 3 | `n=1000` | $1000 = 62 \cdot 16 + 8$: no `D` | yes |
# | 4 | `n=1001` | as 3 | no |
# | 5 | `n=1` | the constant 1 | yes |
# | 6 | `x[1:]`, `n=1000` | address 4 bytes further: `x_ptr` loses its `D` | yes |
# | 7 | `x[4:]`, `n=1000` | 16 bytes further: as 3 | no |
# | 8 | bfloat16, `n=1000` | `*bf16` | yes |
# | 9 | `n=2**31` | `i64` | yes |
# | 10 | `n=1000`, `BLOCK=2048` | another constant | yes |
# | 11 | `n=1000`, `num_warps=8` | another option | yes |
# | 12 | `n=1000`, `num_warps=4` | the default, but given | yes |

# : Twelve calls and their keys. Nine of them compile. {#tbl-jit-calls}

# The twelfth is a surprise: 4 *is* the default, the compiled code is the same, and yet the key differs from that of call 3, because the option is in one call and not in the other.

# ```{python}
# #| label: twelve-calls
# def twelve_calls(device):
#     """The twelve calls: the arguments of each, and its options."""
#     x = torch.zeros(4096, device=device)
#     half = x.to(torch.bfloat16)
#     return [
#         ((x, x, x, 1024), dict(BLOCK=1024)),
#         ((x, x, x, 2048), dict(BLOCK=1024)),
#         ((x, x, x, 1000), dict(BLOCK=1024)),
#         ((x, x, x, 1001), dict(BLOCK=1024)),
#         ((x, x, x, 1), dict(BLOCK=1024)),
#         ((x[1:], x, x, 1000), dict(BLOCK=1024)),
#         ((x[4:], x, x, 1000), dict(BLOCK=1024)),
#         ((half, half, half, 1000), dict(BLOCK=1024)),
#         ((x, x, x, 2**31), dict(BLOCK=1024)),
#         ((x, x, x, 1000), dict(BLOCK=2048)),
#         ((x, x, x, 1000), dict(BLOCK=1024, num_warps=8)),
#         ((x, x, x, 1000), dict(BLOCK=1024, num_warps=4)),
#     ]


# PREDICTED = [1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1]
# ```

# Triton's own binder, asked for the keys, needs no GPU, and a set tells which are new.

# ```{python}
# #| label: keys
# seen, new = set(), []
# for args, options in twelve_calls("cpu"):
#     given = {name: v for name, v in options.items() if name not in parameters}
#     key = (str(bind(add_kernel, *args, **options)), str(given))
#     new.append(int(key not in seen))
#     seen.add(key)

# assert new == PREDICTED and sum(new) == 9
# for args, options in (twelve_calls("cpu")[i] for i in (0, 4, 5)):
#     print(bind(add_kernel, *args, **options))
# ```

# ### Counting what really compiles

# Keys are an argument; compilations are a fact.
# A launch asks three things of a GPU's driver before it compiles: which device, which stream, which architecture.
# An object that answers these three questions is all that Triton needs to go through everything but the launch itself, in a process where kernels are compiled and not interpreted.

# ```{python}
# #| label: count-compiles
# import inspect
# import os
# import subprocess
# import sys
# import tempfile

# PAPER_DRIVER = '''
# import torch, triton
# from triton.backends.compiler import GPUTarget
# from generated.jit import add_kernel


# class PaperDriver:
#     """Answers what a launch asks of a driver, and has no GPU."""

#     def get_current_device(self):
#         return 0

#     def get_current_stream(self, device):
#         return 0

#     def get_current_target(self):
#         return GPUTarget("cuda", 90, 32)


# triton.runtime.driver.set_active(PaperDriver())
# compiled = []
# triton.knobs.runtime.jit_post_compile_hook = lambda **what: compiled.append(what)
# counts = []
# for args, options in twelve_calls("cpu"):
#     before = len(compiled)
#     add_kernel.warmup(*args, grid=(1,), **options)
#     counts.append(len(compiled) - before)
# print(counts)
# '''

# with tempfile.TemporaryDirectory() as cache:
#     counted = subprocess.run(
#         [sys.executable, "-c", inspect.getsource(twelve_calls) + PAPER_DRIVER],
#         env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache},
#         capture_output=True,
#         text=True,
#         check=True,
#     ).stdout.strip()

# assert counted == str(PREDICTED)
# print(counted)
# ```

# `warmup` is Triton's own method: it does all that a launch does and stops before launching.
# The hook is called after each compilation.
# The prediction holds, call by call.

# ::: {.callout-note title="Where this costs"}
# A compilation is paid once for a key and a machine, and then read from the cache directory.
# What hurts is a key that keeps changing: a serving loop whose batch size is sometimes 1, sometimes a multiple of 16 and sometimes neither compiles three kernels, the third perhaps in the middle of the night.
# `@triton.jit(do_not_specialize=["n"])` takes an argument out of @eq-jit-key, except for its type.
# :::

# ## Five languages for one kernel {#sec-jit-ir}

# Between your text and the machine stand five languages, each a translation of the one before.

# | language | what is new in it | what is gone |
# |---|---|---|
# | TTIR | every value has a type and a shape | Python |
# | TTGIR | every block has a *layout*: which thread holds which element | independence of the GPU |
# | LLVM IR | one thread's view: scalars and vectors of a few elements | blocks |
# | PTX | NVIDIA's virtual instructions, as many registers as wanted | functions and types |
# | SASS | the instructions that this GPU's architecture executes | any further secret |

# : The five languages, in order. {#tbl-jit-languages}

# TTIR and TTGIR are dialects of MLIR [@lattner2021mlir], PTX is documented by NVIDIA [@nvidia-ptx], and SASS is what a disassembler says.
# For an AMD GPU the first three are of the same kind, and AMD's assembler code takes the place of the last two.
# `aot` has all of them for `add_kernel`, compiled with `BLOCK=1024` and 4 warps for compute capability 9.0, which a program calls `sm_90`.

# ```{python}
# #| label: ir-compiled
# add_asm = cases["addresses and n"]
# first_line = inspect.getsourcelines(add_kernel.fn)[1]
# print(add_asm.versions)
# ```

# ### TTIR: the kernel, typed

# ```{python}
# #| label: ir-ttir
# add_asm.show("ttir", pattern=r"= (arith|tt)\.|tt\.store")
# ```

# Read it against the kernel.
# The names are still there: `%pid`, `%offs`, `%mask`, `%x`.
# `arith.extsi` is the `.to(tl.int64)`, before the multiplication `arith.muli`, whose operands are `i64`.
# `tt.make_range` is `tl.arange`, and `tt.splat` makes a block out of a scalar, a thing that Python's `+` left unsaid.
# The addresses have the type `tensor<1024x!tt.ptr<f32>>`: a block of 1024 pointers.
# `tt.load` has two operands, addresses and mask, and *no third*: what a masked lane holds after the load is unsaid, which @sec-jit-interpreter comes back to.

# Each line ends in a location, and the locations are the line numbers of this page.

# ```{python}
# #| label: ir-lines
# import re


# def lines_named(text):
#     """The line numbers of the module that a listing names in its locations."""
#     return {int(line) for line in re.findall(r'jit\.py":(\d+):\d+', text)}


# source = inspect.getsource(add_kernel.fn).split("\n")
# for line in sorted(lines_named(add_asm.ttir)):
#     print(f"{line}: {source[line - first_line]}")

# named = lines_named(add_asm.ttir)
# assert min(named) == first_line + 1 and max(named) == first_line + 8  # def … store
# ```

# This is no coincidence of this chapter.
# Line 1 of a module is line 1 of its chapter throughout the book, so a traceback, a profiler and the compiler all point into the text that explains the code.

# ### TTGIR: who holds what

# ```{python}
# #| label: ir-ttgir
# add_asm.show("ttgir", pattern=r"#blocked =|module attributes|tt\.load")
# ```

# TTGIR is TTIR with one addition, the *layout* `#blocked`, and the addition answers the question that TTIR left open.
# `sizePerThread = [4]`: a thread holds four neighbors.
# `threadsPerWarp = [32]` and `warpsPerCTA = [4]`: so one sweep of all threads covers $4 \cdot 32 \cdot 4 = 512$ elements, and a block of 1024 takes two.
# The 4 was chosen because four floats are 16 bytes and the arguments' `tt.divisibility = 16` permits it: this is the place where the `D` of @sec-jit-specialization is spent.

# ### LLVM IR: one thread

# ```{python}
# #| label: ir-llir
# assert add_asm.count(r"icmp slt", where="llir") == 2
# assert add_asm.count(r"fadd", where="llir") == 8 == 1024 // (4 * 32)
# add_asm.show("llir", pattern=r"= .*(ctaid|tid\.x\(\), |shl|icmp|fadd)")
# ```

# The block is gone, and what is left is the life of a single thread.
# It asks for its block's number, `ctaid`, multiplies by 1024 as a shift by 10, asks for its own number, `tid`, and multiplies by 4 as a shift by 2.
# Two comparisons `icmp` remain of the 1024 lanes of the mask: one for each group of four, since a group shares its mask.
# And there are eight additions `fadd`, the eight elements of this thread.

# ### PTX: the addresses of this page

# ```{python}
# #| label: ir-ptx
# assert {int(line) for line in re.findall(r"\.loc\s+1 (\d+)", add_asm.ptx)} == named
# assert add_asm.count(r"ld\.global\.v4\.b32", where="ptx") == 4
# assert add_asm.count(r"st\.global\.v4\.b32", where="ptx") == 2
# add_asm.show("ptx", start=rf"\.loc\s+1 {first_line + 5}", lines=17)
# ```

# The excerpt is the mask and the load of `x`.
# `.loc 1 L C` says that what follows comes from line L, column C, of this chapter's module.
# `setp.lt.s64` is `offs < n` in 64 bits, for the first element of each of the two groups of four.
# `shl.b64 …, 2` turns elements into bytes, four each; the second address is 2048 bytes after the first, that is 512 elements, one sweep of all threads.
# The `mov` instructions put zeros where masked lanes will find nothing loaded.
# `ld.global.v4.b32` loads four 32-bit words at once, under the predicate `@%p1`, which is the mask.

# ### SASS: what runs

# ```{python}
# #| label: ir-sass
# assert add_asm.count(r"FADD") == 8
# assert add_asm.spills == 0 and add_asm.shared == 0
# add_asm.show("sass", pattern=r" S2R|LDG|FADD|STG|EXIT")
# ```

# Four `LDG.E.128`, eight `FADD`, two `STG.E.128`: the numbers that were worked out by hand in @sec-jit-specialization.
# `@!P0` and its like are the mask again.
# The kernel uses `{python} add_asm.registers` registers a thread and spills `{python} add_asm.spills`.

# The same text compiles for other targets, and the plan of the loads survives: 16 bytes at a time.

# ```{python}
# #| label: tbl-jit-targets
# #| code-fold: true
# #| code-summary: "How the table was made"
# #| tbl-cap: "`add_kernel` for four targets. A wide access moves 16 bytes a thread; gfx942 has 64 threads in a warp, so a thread holds half as many elements."
# nvidia = (r"LDG\.E\.128", r"STG\.E\.128")
# amd = ("load_dwordx4", "store_dwordx4")
# rows = ["| target | wide loads | wide stores |", "|---|--:|--:|"]
# for target in ("sm_80", "sm_90", "sm_100", "gfx942"):
#     pointers = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32")
#     asm = aot(add_kernel, target=target, **pointers, n="i32", BLOCK=1024)
#     loads, stores = map(asm.count, amd if target == "gfx942" else nvidia)
#     assert (loads, stores) == ((2, 1) if target == "gfx942" else (4, 2))
#     rows.append(f"| {target} | {loads} | {stores} |")
# Markdown("\n".join(rows))
# ```

# ## Integers: wrap, division, remainder {#sec-jit-integers}

# Kernels are mostly integer arithmetic, since every address is one.
# The integers are not Python's.

# ### They wrap

# A 32-bit integer that passes $2^{31} - 1$ goes on at $-2^{31}$.
# No flag is raised.
# With `BLOCK = 1024` the product `pid * BLOCK` gets there at program $2^{31} / 2^{10} = 2^{21} = 2{,}097{,}152$, that is, in a tensor of two billion elements: 4 GiB of bfloat16, which a large GPU holds many times over.

# ```{python}
# #| label: wrap
# @triton.jit
# def first_offset_kernel(out_ptr, pid, BLOCK: tl.constexpr):
#     tl.store(out_ptr, pid * BLOCK)
#     tl.store(out_ptr + 1, pid.to(tl.int64) * BLOCK)


# offsets = torch.zeros(2, dtype=torch.int64, device=DEVICE)
# first_offset_kernel[(1,)](offsets, 2_097_152, BLOCK=1024)

# assert offsets.tolist() == [-(2**31), 2**31]
# offsets
# ```

# A negative offset reads memory in front of the tensor.
# This is why `add_kernel` widens the program id first, and why the tests of this book look for `i64` in the TTIR of every kernel.

# Narrow types wrap earlier, and a literal adapts to them: an int8 tensor plus `100` is computed in int8.

# ```{python}
# #| label: narrow
# @triton.jit
# def plus_hundred_kernel(x_ptr, out_ptr):
#     tl.store(out_ptr, tl.load(x_ptr) + 100)


# narrow = torch.tensor([100], dtype=torch.int8, device=DEVICE)
# wide_out = torch.zeros(1, dtype=torch.int32, device=DEVICE)
# plus_hundred_kernel[(1,)](narrow, wide_out)

# assert wide_out.item() == 100 + 100 - 256 == -56
# assert (narrow + 100).item() == -56  # torch does the same
# wide_out
# ```

# That `out` is an int32 tensor does not help, because the sum was finished before it was stored.

# ### They divide like C

# Python rounds a quotient down, and the remainder has the sign of the divisor.
# C rounds toward zero, and the remainder has the sign of the dividend.
# Both satisfy $a = b \cdot q + r$.
# Triton's runtime integers are C's.

# | $a$ | $b$ | Python `a // b`, `a % b` | Triton `a // b`, `a % b` |
# |--:|--:|---|---|
# | 7 | 2 | 3, 1 | 3, 1 |
# | −7 | 2 | **−4, 1** | **−3, −1** |
# | 7 | −2 | **−4, −1** | **−3, 1** |
# | −7 | −2 | 3, −1 | 3, −1 |

# : Quotient and remainder of runtime integers. {#tbl-jit-division}

# ```{python}
# #| label: division
# @triton.jit
# def divide_kernel(out_ptr, a, b):
#     tl.store(out_ptr, a // b)
#     tl.store(out_ptr + 1, a % b)


# def divided(a, b):
#     out = torch.zeros(2, dtype=torch.int32, device=DEVICE)
#     divide_kernel[(1,)](out, a, b)
#     return tuple(out.tolist())


# assert [divmod(a, b) for a, b in ((7, 2), (-7, 2), (7, -2), (-7, -2))] == [
#     (3, 1), (-4, 1), (-4, -1), (3, -1)
# ]  # fmt: skip
# assert [divided(a, b) for a, b in ((7, 2), (-7, 2), (7, -2), (-7, -2))] == [
#     (3, 1), (-3, -1), (-3, 1), (3, -1)
# ]  # fmt: skip
# signed = aot(divide_kernel, target="sm_90", out_ptr="*i32", a="i32", b="i32")
# unsigned = aot(divide_kernel, target="sm_90", out_ptr="*u32", a="u32", b="u32")
# display(
#     signed.show("ttir", pattern=r"arith\.(div|rem)"),
#     unsigned.show("ttir", pattern=r"arith\.(div|rem)"),
# )
# ```

# `arith.divsi` is the signed division that rounds toward zero, `arith.remsi` its remainder; for unsigned types there are `divui` and `remui`, and the question does not arise.
# Division of offsets is safe, as offsets are not negative.
# Division of anything that may be negative is where a kernel and its reference in Python part, by one.

# ::: {.callout-warning title="Trap: the rule that depends on the value"}
# Constants are Python's and runtime integers are C's, and an argument of value 1 *is* a constant.
# So the following kernel follows C for every `n` except one.

# ```{python}
# #| label: one-is-special
# @triton.jit
# def half_down_kernel(out_ptr, n):
#     tl.store(out_ptr, -n // 2)
#     tl.store(out_ptr + 1, -n % 4)


# for_any_n = aot(half_down_kernel, target="sm_90", out_ptr="*i32", n="i32")
# for_one = aot(half_down_kernel, target="sm_90", out_ptr="*i32", n=1)
# display(
#     for_any_n.show("ttir", pattern=r"divsi|remsi|tt\.store"),
#     for_one.show("ttir", pattern=r"divsi|remsi|constant|tt\.store"),
# )
# ```

# | $n$ | C: $-n$ `// 2`, $-n$ `% 4` | Python | interpreted | compiled |
# |--:|---|---|---|---|
# | 1 | 0, −1 | −1, 3 | 0, −1 | **−1, 3** |
# | 2 | −1, −2 | −1, 2 | −1, −2 | −1, −2 |
# | 3 | −1, −3 | −2, 1 | −1, −3 | −1, −3 |

# : The same kernel, the same line, three values. {#tbl-jit-one}

# The stored constants in the listing above, −1 and 3, are Python's `-1 // 2` and `-1 % 4`.
# No test with random sizes is likely to try 1, and no test in the interpreter can find it, since the interpreter never makes a constant of an argument.

# ```{python}
# #| label: one-interpreted
# interpreted = []
# for n in (1, 2, 3):
#     run = trace(half_down_kernel, grid=(1,), out_ptr=torch.zeros(2).int(), n=n)
#     interpreted.append(tuple(int(event.values[0]) for event in run.events))

# assert interpreted == [(0, -1), (-1, -2), (-1, -3)]
# assert for_any_n.count(r"divsi|remsi", where="ttir") == 2
# assert for_one.count(r"divsi|remsi", where="ttir") == 0
# assert for_one.count(r"constant -1 : i32", where="ttir") == 1
# assert for_one.count(r"constant 3 : i32", where="ttir") == 1
# ```

# The mend is to write what is meant: keep `//` and `%` for operands that cannot be negative, and use a helper such as that of the exercise `floor_divmod` for the rest; or keep the argument from being specialized with `do_not_specialize`.
# :::

# A literal that does not fit its tensor's type is at least refused, by the interpreter as by the compiler.

# ```{python}
# #| label: literal-out-of-range
# #| error: true
# @triton.jit
# def plus_thousand_kernel(x_ptr):
#     tl.store(x_ptr, tl.load(x_ptr) + 1000)


# aot(plus_thousand_kernel, target="sm_90", x_ptr="*i8")
# ```

# ## Rounding: the last line of every kernel {#sec-jit-rounding}

# float16 and bfloat16 are types for storage.
# A kernel widens them to float32 as soon as they are loaded, computes, and rounds once, at the store.
# On a GPU that is two casts.
# In the interpreter neither can be left to Triton, and since this book tests its kernels there, both get a helper.

# ### What goes wrong

# bfloat16 is the upper half of a float32.
# The interpreter keeps it as a 16-bit *integer* with that bit pattern, for want of a NumPy type, and forgets to decode it before it does arithmetic.

# | | value | bits |
# |---|--:|--:|
# | $x$ | 1.0 | `0x3F80` = 16256 |
# | $y$ | 2.0 | `0x4000` = 16384 |
# | sum of the integers | | `0x7F80` = 32640 |
# | `0x7F80` read as bfloat16 | $\infty$ | |

# : One plus two, in the interpreter. {#tbl-jit-bf16}

# ```{python}
# #| label: bf16-raw
# def values_stored(kernel, *inputs, out_dtype):
#     """What one program of `kernel` stores when it is interpreted."""
#     out = torch.zeros(inputs[0].shape, dtype=out_dtype)
#     names = list(inspect.signature(kernel.fn).parameters)
#     arguments = dict(zip(names, (*inputs, out), strict=False))
#     if "n" in names:
#         arguments |= dict(n=out.numel(), BLOCK=triton.next_power_of_2(out.numel()))
#     run = trace(kernel, grid=(1,), **arguments)
#     [stored] = [event for event in run.events if event.kind == "store"]
#     return stored.values[: out.numel()].tolist()


# one, two = (torch.tensor([v], dtype=torch.bfloat16) for v in (1.0, 2.0))
# assert 0x3F80 + 0x4000 == 0x7F80
# [wrong] = values_stored(add_kernel, one, two, out_dtype=torch.bfloat16)
# assert wrong == float("inf")
# print("1 + 2 =", wrong)
# ```

# So `add_kernel` as it stands is right for float32 and wrong for bfloat16, and the error is not a matter of digits.

# The second fault is smaller and harder to see.
# Where float32 becomes bfloat16, the interpreter cuts the lower 16 bits off, instead of rounding to the nearest.

# ```{python}
# #| label: bf16-truncated
# @triton.jit
# def cast_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offs = tl.arange(0, BLOCK)
#     tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


# ulp = 2.0**-7  # the distance of bfloat16 numbers from 1 to 2
# exact = torch.tensor([1 + 0.5 * ulp, 1 + 0.75 * ulp, 1 + 1.5 * ulp])
# cut = values_stored(cast_kernel, exact, out_dtype=torch.bfloat16)
# rounded = exact.to(torch.bfloat16).tolist()

# assert cut == [1, 1, 1 + ulp]
# assert rounded == [1, 1 + ulp, 1 + 2 * ulp]
# print("interpreter", cut)
# print("torch      ", rounded)
# ```

# The third fault hides among the smallest numbers: 254 of the 256 bfloat16 bit patterns with exponent zero, the subnormals, widen to a wrong float32.

# ```{python}
# #| label: bf16-subnormal
# @triton.jit
# def widen_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offs = tl.arange(0, BLOCK)
#     x = tl.load(x_ptr + offs, mask=offs < n)
#     tl.store(out_ptr + offs, x.to(tl.float32), mask=offs < n)


# patterns = torch.cat([torch.arange(128), torch.arange(128) - 32768]).to(torch.int16)
# subnormal = patterns.view(torch.bfloat16)  # 0 and -0 are among them
# widened = values_stored(widen_kernel, subnormal, out_dtype=torch.float32)
# differ = sum(a != b for a, b in zip(widened, subnormal.tolist(), strict=True))
# assert differ == 254
# print(differ, "of", len(widened))
# ```

# ### The mend, bit by bit

# To round a float32 to its upper half, take its bits as an unsigned integer $u$ and compute

# $$
# \operatorname{bf16}(u) = \Bigl\lfloor \frac{u + \mathtt{0x7FFF} + (\lfloor u / 2^{16} \rfloor \bmod 2)}{2^{16}} \Bigr\rfloor .
# $$ {#eq-jit-rne}

# Adding `0x7FFF`, one less than half a unit, carries into the upper half if the lower half is above one half.
# A tie, exactly `0x8000`, carries only if one more is added, and it is added if the upper half is odd: so ties end on an even number, which is the default of IEEE 754 [@ieee754].

# | $x$ | $u$ | odd? | $u$ + `0x7FFF` + odd | upper half | value |
# |---|---|--:|---|---|--:|
# | $1 + \frac12$ ulp | `0x3F80_8000` | 0 | `0x3F80_FFFF` | `0x3F80` | 1 |
# | $1 + \frac34$ ulp | `0x3F80_C000` | 0 | `0x3F81_3FFF` | `0x3F81` | $1 + 1$ ulp |
# | $1 + \frac32$ ulp | `0x3F81_8000` | 1 | `0x3F82_0000` | `0x3F82` | $1 + 2$ ulp |

# : Three roundings by hand; the first and the third are ties. {#tbl-jit-rne}

# ```{python}
# #| label: rounding-by-hand
# def upper_half(u):
#     return (u + 0x7FFF + ((u >> 16) & 1)) >> 16


# assert [upper_half(u) for u in (0x3F808000, 0x3F80C000, 0x3F818000)] == [
#     0x3F80, 0x3F81, 0x3F82
# ]  # fmt: skip
# assert exact.view(torch.int32).tolist() == [0x3F808000, 0x3F80C000, 0x3F818000]
# ```

# Infinity needs no care: its lower half is zero.
# NaN does, for a NaN with all bits set would carry into the sign and come out as a zero, so it is replaced by one fixed NaN, `0x7FC0`.

# ```{python}
#| label: rounding
#| tangle: true
@triton.constexpr_function
def interpreted():
    """Whether the kernel is interpreted; Python's answer, given while translating."""
    return triton.knobs.runtime.interpret


@triton.jit
def upcast(value):
    """float16 and bfloat16 to float32, exactly; any other type as it is.

    The conversion that follows every load of a storage type.  When interpreted,
    bfloat16 goes through its bits, as the interpreter's cast misreads subnormals.
    """
    if value.dtype == tl.bfloat16 and interpreted():
        bits = value.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        wide = bits.to(tl.float32, bitcast=True)
    elif value.dtype == tl.bfloat16 or value.dtype == tl.float16:
        wide = value.to(tl.float32)
    else:
        wide = value
    return wide


@triton.jit
def nearest_bfloat16(value):
    """The bfloat16 nearest to a float32, ties to even; NaN becomes 0x7FC0."""
    bits = value.to(tl.uint32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    upper = tl.where(value == value, rounded, 0x7FC0)
    return upper.to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def store_rounded(pointers, value, mask):
    """Store a block where the mask is true, rounded to the pointers' type.

    Rounding is to nearest, ties to even, interpreted and compiled.  A float64 goes
    to a 16-bit type by way of float32, as in PyTorch.  Every kernel that may store
    float16 or bfloat16 stores through this function.
    """
    dtype: tl.constexpr = pointers.dtype.element_ty
    if dtype == tl.bfloat16 and interpreted():
        tl.store(pointers, nearest_bfloat16(value.to(tl.float32)), mask=mask)
    elif dtype == tl.bfloat16 or dtype == tl.float16:
        tl.store(pointers, value.to(tl.float32).to(dtype), mask=mask)
    else:
        tl.store(pointers, value.to(dtype), mask=mask)
# ```

# `interpreted` is one more function that Python evaluates while translating, this time one of ours.
# Each `if` is Python's, so a compiled kernel contains exactly one of the three stores and neither of the bit tricks.

# ```{python}
# #| label: rounding-checked
# @triton.jit
# def round_trip_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offs = tl.arange(0, BLOCK)
#     x = upcast(tl.load(x_ptr + offs, mask=offs < n))
#     store_rounded(out_ptr + offs, x, offs < n)


# mended = values_stored(round_trip_kernel, exact, out_dtype=torch.bfloat16)
# assert mended == rounded
# widened = values_stored(round_trip_kernel, subnormal, out_dtype=torch.float32)
# assert widened == subnormal.tolist()

# pointers = dict(x_ptr="*fp32", out_ptr="*bf16")
# asm = aot(round_trip_kernel, target="sm_90", **pointers, n="i32", BLOCK=1024)
# assert asm.count("truncf", where="ttir") == 1
# assert asm.count("bitcast|shrui", where="ttir") == 0
# asm.show("ptx", pattern=r"cvt\.\w+\.bf16x2")
# ```

# The instruction `cvt.rn.bf16x2.f32` rounds two float32 numbers to nearest (`rn`) and packs them.
# The tests of this chapter hold `store_rounded` against PyTorch for all 65,536 upper halves, each with the lower halves at which something can change.

# ## Two functions that can ship {#sec-jit-public}

# What separates `add_kernel` from a function for strangers is not speed.
# It is what happens with bfloat16, with a transposed tensor, with an empty one, and with the wrong argument.

# ### Refusing what cannot work

# A kernel does not check anything: it believes the pointer, the type and the size.
# So everything is checked before the launch, and every refusal names the argument, says what was got and says what would be accepted.
# Four small functions do it for this chapter and the ten that follow.
# The first asks whether there is any memory to read: inside `vmap` and `torch.func`, and as a nested, masked or fake tensor, an object of the class `Tensor` only stands for one.

# ```{python}
#| label: checks
#| tangle: true
FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGER_DTYPES = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
ARITHMETIC_DTYPES = FLOAT_DTYPES + INTEGER_DTYPES


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has numbers at an address, and is no stand-in for others.

    Stand-ins are what vmap and torch.func hand around, and nested, masked and fake
    tensors.  Defined in Chapter 1.
    """
    plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    if not plain or tensor.is_nested or torch._is_functional_tensor(tensor):
        return False
    try:
        tensor.data_ptr()
    except RuntimeError:  # no storage: torch.func's wrappers
        return False
    return True


def check_tensor(
    name: str, value: object, dtypes: tuple[torch.dtype, ...] = ARITHMETIC_DTYPES
) -> None:
    """Return if a kernel can read `value`, the argument called `name`.

    Raises:
        TypeError: no tensor, another dtype than `dtypes`, a sparse layout, or a
            stand-in for a tensor.
        ValueError: a device whose memory kernels cannot read, or a tensor whose
            memory does not hold its values (a pending negation).
        RuntimeError: a CPU tensor in a process that can launch no kernel at all.
    Defined in Chapter 1.
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: got {type(value).__name__}; accepted is a tensor")
    if value.dtype not in dtypes:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name}: got dtype {value.dtype}; accepted are {known}")
    if value.layout is not torch.strided:
        raise TypeError(
            f"{name}: got layout {value.layout}; accepted is a strided tensor,"
            f" such as {name}.to_dense()"
        )
    if not has_memory(value):
        raise TypeError(
            f"{name}: got a stand-in for a tensor (of vmap, torch.func, or a nested,"
            " masked or fake one), which a kernel cannot read; accepted is a tensor"
            " with memory of its own; under vmap and torch.func, the operation of"
            " Chapter 13, generated.backward"
        )
    if value.is_neg():
        raise ValueError(
            f"{name}: got a view that negates on reading, and a kernel would read the"
            f" numbers not yet negated; accepted is {name}.resolve_neg()"
        )
    devices = ("cuda", "cpu") if interpreting() else ("cuda",)
    if value.device.type not in devices:
        require_launchable()  # where nothing can be launched, that is the answer
        mends = "a tensor on the CPU or a CUDA GPU"
        if not interpreting():
            mends = (
                f"{name}.to('cuda'), or TRITON_INTERPRET=1 set before triton is"
                " imported"
            )
        raise ValueError(f"{name}: got device {value.device}; accepted: {mends}")


def check_like(name: str, value: object, like_name: str, like: torch.Tensor) -> None:
    """Return if `value` has the dtype, shape and device of the argument `like`.

    Raises:
        TypeError: another dtype.
        ValueError: another shape, or another device.
    Defined in Chapter 1.
    """
    check_tensor(name, value, (like.dtype,))
    assert isinstance(value, torch.Tensor)
    if value.shape != like.shape:
        raise ValueError(
            f"{name}: got shape {tuple(value.shape)}; accepted is that of {like_name},"
            f" {tuple(like.shape)}; expand() makes a view of it without copying"
        )
    if value.device != like.device:
        raise ValueError(
            f"{name}: got device {value.device}; accepted is that of {like_name},"
            f" {like.device}"
        )


def refuse_grad(**tensors: torch.Tensor) -> None:
    """Return if no derivative is being taken through the tensors, given by name.

    A forward kernel leaves no trace in PyTorch's graph and carries no tangent, so a
    derivative that flows through it would be lost without a word, in reverse mode
    as in forward mode.

    Raises:
        RuntimeError: a tensor requires grad and grad mode is on, or it is a dual
            tensor of ``torch.autograd.forward_ad``.
    Defined in Chapter 1.
    """
    for name, tensor in tensors.items():
        if tensor.requires_grad and torch.is_grad_enabled():
            what = "requires grad, and this kernel has no backward"
        elif torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
            what = "carries a tangent, and this kernel has no forward derivative"
        else:
            continue
        raise RuntimeError(
            f"{name} {what}; accepted: {name}.detach(), torch.no_grad() (reverse mode"
            " only), or the differentiable operation of Chapter 13, generated.backward"
        )
# ```

# The last of them is the most important.
# A raw launch inside a differentiated function does not fail: it gives the right value and a gradient that silently lacks everything upstream.
# In forward mode it is the *tangent* that is dropped, and `requires_grad` is false there, so it is asked for by itself.
# Until Chapter 13 has built the backward kernels, these functions refuse.

# ### Any strides, without a copy

# A transposed tensor is the same memory read in another order, and an expanded one is the same memory read several times.
# PyTorch describes both by strides: element $(i_0, i_1, \dots)$ lies $\sum_d i_d \, s_d$ elements after the first.
# To number the elements of a tensor with $D$ dimensions of sizes $m_d$, count the last dimension fastest; then element number $k$ has

# $$
# i_d = \Bigl\lfloor \frac{k}{m_{d+1} m_{d+2} \cdots m_{D-1}} \Bigr\rfloor \bmod m_d ,
# \qquad
# \mathrm{offset}(k) = \sum_d i_d \, s_d ,
# $$ {#eq-jit-strides}

# and the loop that computes it takes remainder and quotient, dimension by dimension, from the last to the first.

# By hand: let `x` be the transpose of `[[0, 1, 2], [3, 4, 5]]`, with shape (3, 2) and strides (1, 3), and `y` the row `[10, 20]` expanded to three rows, with strides (0, 1).

# | $k$ | 0 | 1 | 2 | 3 | 4 | 5 |
# |---|--:|--:|--:|--:|--:|--:|
# | $i_0 = \lfloor k/2 \rfloor,\ i_1 = k \bmod 2$ | 0, 0 | 0, 1 | 1, 0 | 1, 1 | 2, 0 | 2, 1 |
# | offset in `x`: $i_0 + 3\,i_1$ | 0 | 3 | 1 | 4 | 2 | 5 |
# | offset in `y`: $i_1$ | 0 | 1 | 0 | 1 | 0 | 1 |
# | $x + y$ | 10 | 23 | 11 | 24 | 12 | 25 |

# : Six elements, three strides. {#tbl-jit-strides}

# ```{python}
#| label: element-offsets
#| tangle: true
@triton.jit
def element_offsets(index, shape, strides):
    """Where the elements numbered `index` lie, in elements from the first one.

    The sum over d of i_d * strides[d], with the i_d of `index` in row-major order.
    `shape` and `strides` are tuples of one length, at least 1; `index` is int64.
    """
    rest = index
    offs = tl.zeros_like(index)
    for d in tl.static_range(len(shape) - 1, 0, -1):
        offs += (rest % shape[d]) * strides[d]
        rest = rest // shape[d]
    return offs + rest * strides[0]
# ```

# Tuples are ordinary arguments, one number after the other, each with its own place in the key.
# `len(shape)` belongs to Python, so the loop is unrolled while translating and a kernel for two dimensions contains one division, not a loop.
# `index` is never negative, so @sec-jit-integers has no objection.
# The first dimension needs no remainder, since no live index reaches beyond it.

# ### The kernels

# Two equations, one helper each, and around them the order that every kernel in this book keeps: ids, offsets, mask, load, upcast, compute, round and store.

# ```{python}
#| label: vector-add-kernel
#| tangle: true
@triton.jit
def add(x, y):
    """x + y."""
    return x + y


@triton.jit
def vector_add_kernel(
    x_ptr, y_ptr, out_ptr, n, shape, x_strides, y_strides, out_strides,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = x + y over n elements of one shape, each tensor with its own strides."""
    pid = tl.program_id(0).to(tl.int64)
    index = pid * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = upcast(tl.load(x_ptr + element_offsets(index, shape, x_strides), mask=mask))
    y = upcast(tl.load(y_ptr + element_offsets(index, shape, y_strides), mask=mask))
    out_ptrs = out_ptr + element_offsets(index, shape, out_strides)
    store_rounded(out_ptrs, add(x, y), mask)
# ```

# ```{python}
#| label: multiply-add-kernel
#| tangle: true
@triton.jit
def multiply_add(x, y, z):
    """x * y + z: rounded once for floating point, modulo 2**bits for integers."""
    if x.dtype.is_floating():
        result = tl.fma(x, y, z)
    else:
        result = x * y + z
    return result


@triton.jit
def multiply_add_kernel(
    x_ptr, y_ptr, z_ptr, out_ptr, n, shape, x_strides, y_strides, z_strides,
    out_strides, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = x * y + z over n elements of one shape, each with its own strides."""
    pid = tl.program_id(0).to(tl.int64)
    index = pid * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = upcast(tl.load(x_ptr + element_offsets(index, shape, x_strides), mask=mask))
    y = upcast(tl.load(y_ptr + element_offsets(index, shape, y_strides), mask=mask))
    z = upcast(tl.load(z_ptr + element_offsets(index, shape, z_strides), mask=mask))
    out_ptrs = out_ptr + element_offsets(index, shape, out_strides)
    store_rounded(out_ptrs, multiply_add(x, y, z), mask)
# ```

# `element_offsets` is called three and four times with the same `index` and `shape`; the compiler sees that the divisions are the same and makes them once.

# ```{python}
# #| label: fig-jit-strided
# #| fig-cap: "`vector_add_kernel` on a transposed and an expanded tensor, BLOCK = 4, recorded from a run. Cells stand at their places in the tensor, carry its values and are colored by program."
# #| fig-alt: "Panels for x, y and out: the two programs visit the six elements of x and of out in the order 0, 3, 1, 4, 2, 5, and both of them read the two elements of y again and again."
# x2 = torch.arange(6.0).view(2, 3).t()
# y2 = torch.tensor([10.0, 20.0]).expand(3, 2)
# out2 = torch.empty_like(x2)
# strides = dict(x_strides=x2.stride(), y_strides=y2.stride(), out_strides=out2.stride())
# strided = trace(
#     vector_add_kernel, grid=(2,), x_ptr=x2, y_ptr=y2, out_ptr=out2,
#     n=6, shape=(3, 2), **strides, BLOCK=4,
# )  # fmt: skip
# strided.draw(values=True)
# ```

# ```{python}
# #| label: strided-table
# by_hand = {"x_ptr": [0, 3, 1, 4, 2, 5], "y_ptr": [0, 1, 0, 1, 0, 1]}
# for name, expected in by_hand.items():
#     visited = [e.index[e.mask].tolist() for e in strided.select("load", name)]
#     assert sum(visited, []) == expected
# assert out2.flatten().tolist() == [10, 23, 11, 24, 12, 25]
# assert out2.stride() == x2.stride() == (1, 3)
# strided.table()
# ```

# ### When strides cost nothing

# A division is dozens of instructions, and most tensors are contiguous.
# If all tensors have the same strides and no gaps between elements, one walk through memory meets the same element of all of them, in whatever order; the shape no longer matters, and the tensor may be treated as one long row of $n$ elements with stride 1.
# A stride of 1 is an argument of value 1, hence a constant, hence a multiplication that the compiler can see through.

# ```{python}
# #| label: stride-one
# def compile_vector_add(shape, strides):
#     pointers = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32")
#     names = ("x_strides", "y_strides", "out_strides")
#     return aot(
#         vector_add_kernel, target="sm_90", **pointers, n="i32", shape=shape,
#         **dict.fromkeys(names, strides), BLOCK=1024,
#     )  # fmt: skip


# row = compile_vector_add(("i32",), (1,))
# matrix = compile_vector_add(("i32", "i32"), ("i32", "i32"))
# for asm in (add_asm, row, matrix):
#     wide = asm.count(r"LDG\.E\.128"), asm.count(r"STG\.E\.128")
#     print(f"{asm.count(';'):4} instructions, wide accesses {wide}: {asm.kernel}")
#     assert wide == ((0, 0) if asm is matrix else (4, 2))
# ```

# Compiled for one row of stride 1, the second line, the general kernel has the wide loads and stores of `add_kernel`; compiled for two dimensions, the third, it has the divisions and no wide access.
# The specialization on 1 pays for the generality.

# ### The launch and the public functions

# ```{python}
#| label: launch
#| tangle: true
BLOCK_SIZE = 1024


def launch(kernel: Any, out: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
    """Run an element-wise kernel on inputs of one shape, and return `out`.

    `out` comes from ``torch.empty_like`` of an input.  The kernel's parameters are
    the input pointers, the out pointer, n, shape, the strides in the same order, and
    BLOCK.  The tensors' GPU is made the current one for the launch.

    Raises:
        RuntimeError: this process can launch no kernel.
    Defined in Chapter 1.
    """
    require_launchable()
    n = out.numel()
    if n == 0:
        return out
    tensors = (*inputs, out)
    shape: tuple[int, ...] = (n,)
    strides: list[tuple[int, ...]] = [(1,)] * len(tensors)
    if any(tensor.stride() != out.stride() for tensor in inputs):
        shape, strides = tuple(out.shape), [tensor.stride() for tensor in tensors]
    grid = (triton.cdiv(n, BLOCK_SIZE),)
    with torch.cuda.device_of(out):
        kernel[grid](*tensors, n, shape, *strides, BLOCK=BLOCK_SIZE)
    return out
# ```

# `torch.empty_like` gives a tensor without gaps, and keeps the strides of its argument if that has no gaps either; so equal strides imply that none of the tensors has gaps, and the condition in `launch` needs no second half.
# An empty tensor is not launched at all, since a grid of zero programs is an error on a GPU.
# `torch.cuda.device_of` matters on a machine with several GPUs: a kernel runs on the *current* GPU, which need not be the one that holds the tensors.

# ```{python}
#| label: public
#| tangle: true
def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, element by element.

    Args:
        x: any shape and strides; float16, bfloat16, float32, float64, int8, uint8,
            int16, int32 or int64.
        y: the shape, dtype and device of x; any strides.

    Returns:
        A new tensor of that shape and dtype, laid out as ``torch.empty_like(x)``.
        16-bit floats are added in float32 and rounded once, ties to even; integers
        wrap, as in PyTorch.

    Raises:
        TypeError: no tensor, a stand-in for one, or an unaccepted dtype.
        ValueError: another shape or device.
        RuntimeError: an argument requires grad or carries a tangent, or no kernel can
            be launched.
    Defined in Chapter 1.
    """
    check_tensor("x", x)
    check_like("y", y, "x", x)
    refuse_grad(x=x, y=y)
    return launch(vector_add_kernel, torch.empty_like(x), x, y)


def fused_multiply_add(
    x: torch.Tensor, y: torch.Tensor, z: torch.Tensor
) -> torch.Tensor:
    """x * y + z, element by element, in one pass over memory.

    Args:
        x: any shape and strides; float16, bfloat16, float32, float64, int8, uint8,
            int16, int32 or int64.
        y, z: the shape, dtype and device of x; any strides.

    Returns:
        A new tensor of that shape and dtype, laid out as ``torch.empty_like(x)``.
        On a GPU, float32 and float64 round once (IEEE 754 fusedMultiplyAdd); the
        interpreter rounds the product, too, before Triton 3.9.  16-bit floats are
        computed in float32 and rounded at the store; integers wrap, as in PyTorch.

    Raises:
        TypeError: no tensor, a stand-in for one, or an unaccepted dtype.
        ValueError: another shape or device.
        RuntimeError: an argument requires grad or carries a tangent, or no kernel can
            be launched.
    Defined in Chapter 1.
    """
    check_tensor("x", x)
    check_like("y", y, "x", x)
    check_like("z", z, "x", x)
    refuse_grad(x=x, y=y, z=z)
    return launch(multiply_add_kernel, torch.empty_like(x), x, y, z)
# ```

# The smoke test of the whole chain, from the checks to the rounded store, is a single element.

# ```{python}
# #| label: smoke
# three, four = (torch.tensor(v, device=DEVICE) for v in (3.0, 4.0))
# smoke = fused_multiply_add(three, four, three)

# assert smoke.shape == () and smoke.item() == 3 * 4 + 3 == 15.0
# smoke
# ```

# ### At the edges

# Nothing, one thing, the tensors drawn above, and the bfloat16 that went wrong before:

# ```{python}
# #| label: edges
# empty = torch.empty(0, 3, device=DEVICE)
# assert vector_add(empty, empty).shape == (0, 3)
# assert vector_add(x2.to(DEVICE), y2.to(DEVICE)).tolist() == (x2 + y2).tolist()
# assert vector_add(one.to(DEVICE), two.to(DEVICE)).item() == 3.0

# wrapped = torch.full((2,), 100, dtype=torch.int8, device=DEVICE)
# assert vector_add(wrapped, wrapped).tolist() == [-56, -56]
# vector_add(one.to(DEVICE), two.to(DEVICE))
# ```

# And the refusals, each in its own words:

# ```{python}
# #| label: refusals
# import textwrap
# from torch.autograd import forward_ad

# vector = torch.ones(3, device=DEVICE)
# with forward_ad.dual_level():
#     refused = {
#         "a list": (vector, [1.0, 2.0, 3.0]),
#         "complex numbers": (vector + 0j, vector),
#         "two dtypes": (vector, vector.double()),
#         "two shapes": (vector, vector[:2]),
#         "a pending negation": (torch.imag(torch.conj(vector + 0j)), vector),
#         "a graph": (vector.clone().requires_grad_(), vector),
#         "a tangent": (forward_ad.make_dual(vector, vector), vector),
#     }
#     for what, arguments in refused.items():
#         try:
#             vector_add(*arguments)
#         except (TypeError, ValueError, RuntimeError) as error:
#             words = f"{what}: {type(error).__name__}: {error}"
#             print(textwrap.fill(words, 80, subsequent_indent="    "))
#         else:
#             raise AssertionError(f"{what} was not refused")
# ```

# ## What the interpreter hides {#sec-jit-interpreter}

# The interpreter is a second implementation of the language, written in Python on top of NumPy.
# With `TRITON_INTERPRET=1`, `@triton.jit` wraps the function so that a launch *calls* it, once for each program of the grid, one after the other; `tl.load` becomes indexing of memory, `x + y` becomes NumPy's addition, and a block is an array.
# That makes it the best debugger Triton has: `print` works in it, a Python debugger stops in it, and `trace` can watch it.
# As a judge of correctness it has to be known.

# ### It runs one program at a time

# A thousand programs that add 1 to the same number are a race on a GPU: each reads, adds and writes, and an addition is lost whenever two of them read the same number.
# In the interpreter there is nobody to race with.

# ```{python}
# #| label: race
# @triton.jit
# def racing_kernel(out_ptr):
#     tl.store(out_ptr, tl.load(out_ptr) + 1)


# counter = torch.zeros(1, dtype=torch.int32)
# trace(racing_kernel, grid=(1000,), out_ptr=counter)
# assert counter.item() == 1000  # "correct"
# counter
# ```

# No amount of testing in the interpreter finds a race.
# What finds one is the rule that different programs write to different places, checked on a trace, and a repeated run on a GPU.

# ### It is Python

# A kernel's text is executed by Python, so everything that Python can do is done, even what the compiler has no translation for.

# ```{python}
# #| label: break-interpreted
# @triton.jit
# def breaking_kernel(out_ptr, n):
#     i = 0
#     while i < n:
#         if i == 3:
#             break
#         i += 1
#     tl.store(out_ptr, i)


# reached = torch.zeros(1, dtype=torch.int32)
# trace(breaking_kernel, grid=(1,), out_ptr=reached, n=10)
# assert reached.item() == 3
# ```

# ```{python}
# #| label: break-compiled
# #| error: true
# aot(breaking_kernel, target="sm_90", out_ptr="*i32", n="i32")
# ```

# The mend for `break` is the condition itself: `while (i < n) & (i != 3)`.
# The general mend is to compile every kernel for every target in the tests, which takes no GPU; `aot` does it here, and the tests of this chapter do it for the kernels of this chapter.

# ### It fills in what was left open

# A masked load without `other=` gives zeros in the interpreter.
# In TTIR it gives *nothing in particular*, as the listing in @sec-jit-ir showed: the third operand is missing.
# `other=0.0` puts it there.

# ```{python}
# #| label: masked-load
# @triton.jit
# def open_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offs = tl.arange(0, BLOCK)
#     tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n))


# @triton.jit
# def closed_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
#     offs = tl.arange(0, BLOCK)
#     tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n, other=0.0))


# filled = torch.full((4,), 7.0)
# trace(open_kernel, grid=(1,), x_ptr=torch.ones(2), out_ptr=filled, n=2, BLOCK=4)
# assert filled.tolist() == [1, 1, 0, 0]  # zeros that nobody asked for

# for kernel in (open_kernel, closed_kernel):
#     arguments = dict(x_ptr="*fp32", out_ptr="*fp32", n="i32", BLOCK=4)
#     asm = aot(kernel, target="sm_90", **arguments)
#     [operands] = re.findall(r"tt\.load (.*?) :", asm.ttir)
#     print(f"{kernel.__name__:>13}: tt.load {operands}")
#     assert operands.count(",") == (2 if kernel is closed_kernel else 1)
# ```

# In `add_kernel` it does not matter, because what the masked lanes load is stored nowhere.
# It matters as soon as lanes are mixed, in a sum or a maximum; from there on the book writes `other`.

# ### It has NumPy's types

# Between $2^{31}$ and $2^{32}$ the interpreter keeps an integer argument in an *unsigned 32-bit* NumPy array, though it calls it `i64`.
# Twice such a number is then wrong, where a GPU is right.

# ```{python}
# #| label: wide-integer
# @triton.jit
# def twice_kernel(out_ptr, n):
#     tl.store(out_ptr, n + n)


# n = 3_000_000_000
# doubled = torch.zeros(1, dtype=torch.int64)
# trace(twice_kernel, grid=(1,), out_ptr=doubled, n=n)

# assert bind(twice_kernel, doubled, n)[1][0] == "i64"  # compiled: 6000000000
# assert doubled.item() == 2 * n - 2**32 == 1_705_032_704
# doubled
# ```

# ### It rounds a fused multiply-add twice

# `tl.fma` is one rounding on a GPU and two in the interpreter.[^fma]
# By hand, in float32 with its 24 significant bits: for $x = y = 1 + 2^{-12}$ the product is $1 + 2^{-11} + 2^{-24}$, whose last term is half a unit and is lost to rounding, ties to even.
# With $z = -(1 + 2^{-11})$ the interpreter finds 0; fused, the answer is $2^{-24}$.

# [^fma]: The interpreter of Triton 3.9 rounds once, too, and this chapter's tests expect of each version what it does.

# ```{python}
# #| label: fma-twice
# @triton.jit
# def fma_kernel(x_ptr, z_ptr, out_ptr):
#     x = tl.load(x_ptr)
#     tl.store(out_ptr, multiply_add(x, x, tl.load(z_ptr)))


# xx, zz = torch.tensor([1 + 2.0**-12]), torch.tensor([-(1 + 2.0**-11)])
# result = torch.full((1,), 7.0)
# trace(fma_kernel, grid=(1,), x_ptr=xx, z_ptr=zz, out_ptr=result)
# assert result.item() == 0.0
# assert (xx.double() * xx.double() + zz.double()).item() == 2.0**-24  # exact

# asm = aot(fma_kernel, target="sm_90", x_ptr="*fp32", z_ptr="*fp32", out_ptr="*fp32")
# assert asm.count(r"fma\.rn\.f32", where="ptx") == 1
# asm.show("ptx", pattern=r"fma")
# ```

# Both are within the error that this book allows; but two results that differ in their *first* digit are a good reason not to compare a GPU with the interpreter bit by bit.

# ### The list

# | what | interpreted | compiled | shown |
# |---|---|---|---|
# | bfloat16 arithmetic | on the bit patterns | on the numbers | @tbl-jit-bf16 |
# | float32 to bfloat16 | cut off | rounded | @sec-jit-rounding |
# | bfloat16 subnormals | widened wrongly | exact | @sec-jit-rounding |
# | a Python float | a double | float32 | @sec-jit-types |
# | an argument of value 1 | a runtime integer | a constant | @tbl-jit-one |
# | an integer argument from $2^{31}$ to $2^{32}$ | 32 bits | 64 bits | above |
# | a global | looked up | refused | @sec-jit-traced |
# | `break` | works | refused | above |
# | a masked lane without `other` | zero | unspecified | above |
# | a race | never happens | happens | above |
# | `tl.fma` | two roundings | one | above |

# : What the interpreter of Triton hides, each shown on this page. {#tbl-jit-hides}

# None of this makes the interpreter useless: the arithmetic of offsets, masks and float32 blocks, which is where most faults are, is the same.
# It makes three checks necessary besides: compiling for each target, looking into the TTIR, and running the same tests on a GPU.

# ## Measured {#sec-jit-measured}

# What a GPU says about this chapter.
# The cells below are run natively on a GPU and their answers stored, with the versions that gave them; where none has been asked yet, the page says so.

# ### The differences, natively

# The first question goes to the kernels of @tbl-jit-hides.
# Expected are: `-n // 2` and `-n % 4` by Python's rule for `n = 1` and by C's for `n = 2`; the widened 0.1; 6,000,000,000; $2^{-24}$; fewer than 1000 from the race; and 3 from bfloat16.

# ```{python}
# #| label: gpu-answers
# #| capture: gpu
# def zeros(count, dtype):
#     return torch.zeros(count, dtype=dtype, device="cuda")


# def answer_of(kernel, out, *args, grid=(1,), **meta):
#     kernel[grid](out, *args, **meta)
#     return out.tolist()


# bf16 = [torch.tensor([v], dtype=torch.bfloat16, device="cuda") for v in (1.0, 2.0)]
# answers = loom.keep(
#     half_down=[answer_of(half_down_kernel, zeros(2, torch.int32), n) for n in (1, 2)],
#     tenth=answer_of(add_scalar_kernel, zeros(1, torch.float64), 0.1)[0],
#     tenth_annotated=answer_of(add_double_kernel, zeros(1, torch.float64), 0.1)[0],
#     doubled=answer_of(twice_kernel, zeros(1, torch.int64), 3_000_000_000)[0],
#     fma=fused_multiply_add(xx.cuda(), xx.cuda(), zz.cuda()).item(),
#     race=answer_of(racing_kernel, zeros(1, torch.int32), grid=(1000,))[0],
#     bf16=vector_add(*bf16).item(),
# )
# for name, value in answers.items():
#     print(f"{name:>16}  {value}")
# ```

# ### Compilations

# The twelve calls of @tbl-jit-calls, launched for real, each with one program; the predicted column is the one from @sec-jit-specialization.

# ```{python}
# #| label: gpu-recompiles
# #| capture: gpu
# fresh = triton.jit(add_kernel.fn)  # the same text, nothing compiled yet
# compiled, counts = [], []
# triton.knobs.runtime.jit_post_compile_hook = lambda **what: compiled.append(what)
# try:
#     for args, options in twelve_calls("cuda"):
#         before = len(compiled)
#         fresh[(1,)](*args, **options)
#         counts.append(len(compiled) - before)
# finally:
#     triton.knobs.runtime.jit_post_compile_hook = None
# loom.keep(counts=counts, total=sum(counts))
# print("predicted", PREDICTED)
# print("counted  ", counts)
# ```

# Compiled on the GPU, out of twelve calls: `{python} f"{loom.captured('gpu-recompiles')['total']}"`; predicted: `{python} sum(PREDICTED)`.

# ### What a launch costs

# A first launch compiles, a first launch in a new process reads the binary from disk, and a launch of a known key looks it up.
# Two fresh processes share one empty cache directory, so the first is cold and the second finds what the first left.

# ```{python}
# #| label: gpu-launch-cost
# #| capture: gpu
# import json

# LAUNCHES = """
# import json
# from generated.jit import add_kernel
# from loom.bench import host_seconds, random

# x, y, out = random(3, 4096).unbind()


# def launch(n):
#     return lambda: add_kernel[(4,)](x, y, out, n, BLOCK=1024)


# print(json.dumps({
#     "first launch": host_seconds(launch(4096)),
#     "same key again": host_seconds(launch(4096)),
#     "another key": host_seconds(launch(4095)),
#     "launch, host side": host_seconds(launch(4096), calls=1000, wait=False),
# }))
# """

# costs = {}
# with tempfile.TemporaryDirectory() as cache:
#     for state in ("empty cache", "filled cache"):
#         said = subprocess.run(
#             [sys.executable, "-c", LAUNCHES],
#             env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache},
#             capture_output=True,
#             text=True,
#             check=True,
#         ).stdout
#         costs[state] = json.loads(said)
# loom.keep(costs)
# for state, times in costs.items():
#     for what, took in times.items():
#         print(f"{state:>13}  {what:>18}  {1e6 * took:12.1f} µs")
# ```

# | | empty cache | filled cache |
# |---|--:|--:|
# | first launch of the process, in ms | `{python} f"{1e3 * loom.captured('gpu-launch-cost')['empty cache']['first launch']:.1f}"` | `{python} f"{1e3 * loom.captured('gpu-launch-cost')['filled cache']['first launch']:.1f}"` |
# | a second key, in ms | `{python} f"{1e3 * loom.captured('gpu-launch-cost')['empty cache']['another key']:.1f}"` | `{python} f"{1e3 * loom.captured('gpu-launch-cost')['filled cache']['another key']:.2f}"` |
# | a known key, on the host, in µs | `{python} f"{1e6 * loom.captured('gpu-launch-cost')['empty cache']['launch, host side']:.1f}"` | `{python} f"{1e6 * loom.captured('gpu-launch-cost')['filled cache']['launch, host side']:.1f}"` |

# : The cost of a launch, by what has to be done for it. {#tbl-jit-launch}

# The first row is more than a compilation: a process that launches for the first time also loads the driver's interface and Triton's launcher.
# The last row is what Python and the driver need to hand one launch to the GPU; a kernel that is done sooner than that leaves the GPU waiting.

# ### Bandwidth

# Adding two float32 vectors reads 8 bytes and writes 4 for one addition.
# The addition is free and the bytes are not, so the limit is the memory, and the fair measure of it is a copy by the device itself, which reads 4 bytes and writes 4.
# Prediction: for large $n$, `vector_add` and `torch.add` both reach the bandwidth of the copy; for small $n$, all three measure the few microseconds that any kernel takes to start and to end.

# `loom.bench` is the timer of this book, and Chapter 15 will open it up.
# Its contestants take turns on the same random data, warm, with the L2 cache flushed in between, and it gives medians and their spread.

# ```{python}
# #| label: gpu-bandwidth
# #| capture: gpu
# from loom.bench import compare, random


# def three_vectors(n):
#     return random(3, n).unbind()


# def bytes_moved(n):
#     return {"copy": 8 * n, "torch.add": 12 * n, "vector_add": 12 * n}


# by_size = loom.keep(
#     compare(
#         {
#             "copy": lambda a, b, into: into.copy_(a),
#             "torch.add": lambda a, b, into: torch.add(a, b),
#             "vector_add": lambda a, b, into: vector_add(a, b),
#         },
#         sizes=[2**exponent for exponent in range(12, 29, 2)],
#         make=three_vectors,
#         bytes=bytes_moved,
#     )
# )
# by_size.table()
# ```

# ```{python}
# #| label: fig-jit-bandwidth
# #| fig-cap: "Bandwidth by size: `vector_add`, `torch.add` and a device copy. Drawn from the captured run; empty axes mean that there is none yet."
# #| fig-alt: "Axes with the number of elements, 2 to the 12 up to 2 to the 28, to the right, and gigabytes per second upward; three rising curves where a run was captured."
# #| echo: false
# from loom.measurements import draw

# draw(loom.captured("gpu-bandwidth"))
# ```

# At the largest size, `vector_add` in GB/s: `{python} f"{loom.captured('gpu-bandwidth').row('vector_add').gbps:.0f}"`; the copy: `{python} f"{loom.captured('gpu-bandwidth').row('copy').gbps:.0f}"`.
# Their ratio: `{python} f"{loom.captured('gpu-bandwidth').ratio('vector_add', 'copy'):.2f}"`.
# The copy is a yardstick and no wall: it writes as much as it reads, the addition reads twice what it writes, and a memory need not be equally fast at both mixtures.

# At the smallest size, $2^{12}$ elements, the medians in µs are `{python} f"{1e6 * loom.captured('gpu-bandwidth').row('torch.add', 4096).seconds:.1f}"` for `torch.add` and `{python} f"{1e6 * loom.captured('gpu-bandwidth').row('vector_add', 4096).seconds:.1f}"` for `vector_add`.
# Such a time is the GPU's only as long as Python stays ahead of it.
# @tbl-jit-launch has what handing over one launch costs the host; where the host falls behind, the GPU waits, and what is measured is the host.

# ### The compiler that ran

# A compiler of another version may have made something else of the kernel than @sec-jit-ir shows, so the machine code that gave these figures is asked, too.

# ```{python}
# #| label: gpu-ir
# #| capture: gpu
# vectors = torch.randn(3, 4096, device="cuda").unbind()
# binary = triton.jit(add_kernel.fn)[(4,)](*vectors, 4096, BLOCK=1024)
# wide_loads = binary.asm["ptx"].count("ld.global.v4.b32")
# loom.keep(
#     triton=triton.__version__,
#     registers=binary.n_regs,
#     spills=binary.n_spills,
#     wide_loads=wide_loads,
# )
# print(f"triton {triton.__version__}: {binary.n_regs} registers, {wide_loads=}")
# interesting = re.compile(r"mul\.wide|ld\.global|add\.(rn\.)?f32|st\.global")
# for line in binary.asm["ptx"].split("\n"):
#     if interesting.search(line):
#         print(line.strip())
# ```

# Wide loads in that code: `{python} f"{loom.captured('gpu-ir')['wide_loads']}"`; worked out by hand: 4.

# ## Summary

# - A kernel is text. `@triton.jit` keeps it; a launch turns the arguments into a key; only a key that was not seen before compiles.
# - The key has the type of each argument, whether 16 divides it, the value if it is 1 or a `tl.constexpr`, and the options of the call. Alignment is in it because a thread can load 16 bytes at once.
# - An expression whose names are all constants is Python's and is gone before the GPU sees it; everything else is the GPU's, in C's integers: they wrap, and division rounds toward zero.
# - A Python float arrives as float32; an argument of value 1 arrives as a constant, and divides like Python.
# - TTIR has types, TTGIR has layouts, LLVM IR has one thread, PTX has instructions and SASS has this GPU's; each line of each knows its line on this page.
# - float16 and bfloat16 are loaded, widened, computed in float32 and rounded once: `upcast` and `store_rounded`, from here to the end of the book.
# - The interpreter is a debugger, not a judge. It is right about indices, masks and float32; @tbl-jit-hides says what it is not right about.

# ## Exercises

# Write an answer to an exercise into the file it names and run its test; `pytest exercises --solutions` runs the tests on the answers printed here.

# ::: {.callout-tip title="Exercise: every second element"}
# Write `take_even(x)` in `exercises/take_even.py`: for a vector `x` it returns $x_0, x_2, x_4, \dots$, by a kernel of yours, for any length and any stride.
# On paper first: for 11 elements and `BLOCK = 4`, which lanes are live, and which elements of `x` do they read?
# Test: `pytest exercises/test_jit_take_even.py`.

# ```{python}
# #| label: solution-take-even
# #| code-fold: true
# #| code-summary: "A solution"
# @triton.jit
# def take_even_kernel(x_ptr, out_ptr, n_out, x_stride, BLOCK: tl.constexpr):
#     offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offs < n_out
#     x = upcast(tl.load(x_ptr + 2 * offs * x_stride, mask=mask))
#     store_rounded(out_ptr + offs, x, mask)


# def take_even(x):
#     n_out = triton.cdiv(x.numel(), 2)
#     out = torch.empty(n_out, dtype=x.dtype, device=x.device)
#     if n_out:
#         grid = (triton.cdiv(n_out, 1024),)
#         take_even_kernel[grid](x, out, n_out, x.stride(0), BLOCK=1024)
#     return out
# ```

# :::

# ::: {.callout-tip title="Exercise: how often does it compile?"}
# Write `compilations(calls)` in `exercises/compilations.py`.
# A call is a dictionary with `dtype` (a string such as `"fp32"`), `address` (an integer), `n` (an integer) and `BLOCK`: the arguments of a kernel with one pointer, one integer and one constant.
# Return how many of the calls compile, in a process that has compiled nothing yet.
# The test compares you with Triton's own binder.
# Test: `pytest exercises/test_jit_compilations.py`.

# ```{python}
# #| label: solution-compilations
# #| code-fold: true
# #| code-summary: "A solution"
# def integer_key(n):
#     if n == 1:
#         return ("constant", 1)
#     if -(2**31) <= n < 2**31:
#         width = "i32"
#     else:
#         width = "i64" if n < 2**63 else "u64"
#     return (width, n % 16 == 0)


# def compilations(calls):
#     keys = {
#         (c["dtype"], c["address"] % 16 == 0, integer_key(c["n"]), c["BLOCK"])
#         for c in calls
#     }
#     return len(keys)
# ```

# :::

# ::: {.callout-tip title="Exercise: division as Python has it"}
# Write `floor_divmod(a, b)` in `exercises/floor_divmod.py` for two int32 vectors of any stride, without a zero in `b`: quotient and remainder by Python's rule, by a kernel of yours.
# Hint: C's quotient is one too large exactly if the remainder is not zero and its sign is not that of the divisor.
# Test: `pytest exercises/test_jit_floor_divmod.py`.

# ```{python}
# #| label: solution-floor-divmod
# #| code-fold: true
# #| code-summary: "A solution"
# @triton.jit
# def floor_divmod_kernel(a_ptr, b_ptr, q_ptr, r_ptr, n, sa, sb, BLOCK: tl.constexpr):
#     offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
#     mask = offs < n
#     a = tl.load(a_ptr + offs * sa, mask=mask)
#     b = tl.load(b_ptr + offs * sb, mask=mask, other=1)
#     remainder = a % b
#     too_large = (remainder != 0) & ((remainder < 0) != (b < 0))
#     quotient = tl.where(too_large, a // b - 1, a // b)
#     remainder = tl.where(too_large, remainder + b, remainder)
#     tl.store(q_ptr + offs, quotient, mask=mask)
#     tl.store(r_ptr + offs, remainder, mask=mask)


# def floor_divmod(a, b):
#     n, strides = a.numel(), (a.stride(0), b.stride(0))
#     out = [torch.empty(n, dtype=a.dtype, device=a.device) for _ in range(2)]
#     if n:
#         grid = (triton.cdiv(n, 1024),)
#         floor_divmod_kernel[grid](a, b, *out, n, *strides, BLOCK=1024)
#     return tuple(out)
# ```

# :::

# ::: {.callout-tip title="Exercise: rounding to float8 by hand"}
# Write `to_float8(value)` in `exercises/to_float8.py`, in plain Python: the eight bits, as an integer from 0 to 255, of the float8_e5m2 nearest to a *float16* number that is given as its sixteen bits.
# float8_e5m2 is the upper half of float16, so @eq-jit-rne needs new constants and nothing else, except for NaN, which shall become `0x7F` or `0xFF`.
# Test: `pytest exercises/test_jit_to_float8.py`; it asks all 65,536.

# ```{python}
# #| label: solution-to-float8
# #| code-fold: true
# #| code-summary: "A solution"
# def to_float8(value):
#     if value & 0x7FFF > 0x7C00:  # NaN: exponent all ones, significand not zero
#         return 0x7F | (value >> 8 & 0x80)
#     return (value + 0x7F + ((value >> 8) & 1)) >> 8
# ```

# :::

# ## Where it leads

# This chapter's `BLOCK` was 1024 and its warps were four, for no reason given.
# The next chapter, on parameterization, makes such numbers arguments of the translation, lets loops unroll over them, and reads in the PTX what each choice costs.
# Strides come back in Chapter 3, where the question is no longer whether an address is right but how many bytes the memory has to move to serve it.
# The functions `check_tensor`, `check_like`, `refuse_grad`, `upcast`, `store_rounded` and `launch` are imported by every chapter from here on.

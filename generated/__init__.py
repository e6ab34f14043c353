# # Preface {#sec-preface .unnumbered}

# ```{python}
# #| label: setup
# #| echo: false
# import loom

# loom.begin("__init__")
# ```

# > A number stands beside the run that produced it, or it does not stand here.

# A kernel is a small program that a GPU runs thousands of times at once, each time on another piece of the data.
# Frameworks ship kernels by the thousand, so most people who use a GPU never write one.
# Then an operation is missing, or it is there and goes over memory four times where once would do, or it is fast and its gradient is wrong.
# On that day you can file a request and wait, or you can know how a kernel is made.

# This book is for the second way.
# It begins with a kernel that adds two vectors and explains every character of it.
# It ends, as planned, with kernels that could ship: attention forward and backward, a mixture-of-experts layer, bond and option pricers whose sensitivities come with error bars.
# You need Python and some PyTorch.
# You need no CUDA and no C++, and for most pages you need no GPU.

# ## What this book is, and what it is not {#sec-preface-what .unnumbered}

# It is a book and a Python package, made from the same text.
# The code cells of a chapter are the only place where a kernel of the package is written; the module you import is that chapter, line for line.
# So the code that is explained is the code that runs, and a traceback names a line that has a paragraph above it.

# It is not a reference for the Triton language; Triton's own documentation is that.
# It is not a CUDA course, though you will read a fair amount of PTX, the assembly language that NVIDIA's tools accept, and SASS, the one the chip executes.
# It is not a framework either: nothing in it asks you to give up the one you have.

# The code is under the MIT license, the prose under CC BY 4.0.

# Each section follows the same path.
# A concrete case shows why the next idea is needed.
# The arithmetic is done by hand on a case small enough to hold in the head.
# A figure is drawn from a recorded run of that case.
# Then comes the code, then its output, and then the question of what happens at the ragged edge, where the block is larger than what is left of the data.

# ## Four principles {#sec-preface-principles .unnumbered}

# **Kernel first, not framework first.**
# Triton owns the kernel.
# The tensor, the device and the graph are PyTorch's, and we do not build them again.

# **PyTorch does the bookkeeping.**
# Every kernel that claims a gradient plugs into the real autograd engine, the one your training loop already uses.

# **Numbers you can check by hand.**
# Block indices, strides and masked lanes are traced on paper before the code that produces them, and the next cell asserts what the paper said.

# **Ready for financial computing.**
# A price that is off by a cent is noticed; a risk number that is silently off by a factor of two is traded on.
# A silently wrong gradient is not tolerated anywhere in this book, and Part 7 is where that costs the most work.

# ## The parts {#sec-preface-parts .unnumbered}

# | Part | Chapters | Focus |
# |:-----|:---------|:------|
# | 0 — Triton foundations | 1–5 | What a kernel is: types and compilation, parameters, addresses, the grid, the block |
# | 1 — The kernel–tensor interface | 6–8 | What a kernel receives from a `torch.Tensor`, and what the hardware makes of it |
# | 2 — Core kernels | 9–11 | Element-wise operations, the blocked matrix product, reductions |
# | 3 — Wiring into PyTorch's autograd | 12 | A kernel as a node of the graph, eager and compiled |
# | 4 — The backward kernel | 13 | Derivatives on paper, then as kernels; how the engine chains them |
# | 5 — GPU acceleration and performance | 14–15 | Choosing parameters by measurement, and measuring without fooling yourself |
# | 6 — Neural network building blocks | 16–19 | Fused layers, attention, mixtures of experts, higher derivatives |
# | 7 — Financial computing applications | 20–22 | Bonds, credit and portfolio risk, Monte Carlo option pricing |
# | Appendices | A–B | Checking your machine; a quiz on every chapter |

# ```{python}
# #| label: in-this-copy
# #| echo: false
# import re
# from pathlib import Path

# import tangle
# from IPython.display import Markdown

# ROOT = Path(tangle.__file__).parent


# def numbered_chapters(book):
#     """A link to every numbered chapter of this copy, in page order."""
#     for chapter in book.chapters:
#         number = re.match(r"book/(\d+)-", chapter.rel)
#         title = re.search(r"^# (.+?) \{#", chapter.text, re.MULTILINE)
#         if number and title:
#             yield f"[Chapter {int(number[1])}, {title[1]}]({chapter.rel})"


# here = list(numbered_chapters(tangle.read_book(ROOT)))
# Markdown(
#     f"The table is the plan of the whole book. This copy holds {len(here)} of its 22"
#     f" chapters: {'; '.join(here)}."
# )
# ```

# ## The sibling in Mojo {#sec-preface-sibling .unnumbered}

# This book has a sibling that covers the same ground in Mojo.
# There the reader defines the structs that hold data, builds a tensor class on them, and writes the graph that records operations and runs backward.

# Here none of the three is built.
# There are **no user-defined structs**: a Triton kernel sees pointers, scalars and blocks, and that is enough.
# There is **no tensor class**: shapes, strides, storage, views and dtypes are `torch.Tensor`'s, and Part 1 studies them closely instead of imitating them.
# There is **no graph of our own**: a kernel joins PyTorch's graph, and Parts 3 and 4 show what it has to promise to be allowed in.

# What is gained is that everything works inside programs that exist already.
# What is given up is the view from the inside of a framework, and for that the sibling is the better book.

# ## Where the outputs come from {#sec-preface-evidence .unnumbered}

# Every output in this book was produced by running a cell of its chapter.
# None is typed in by hand.
# There are three kinds of evidence, and each says what it is.

# | Evidence | What ran | What it can show | What it cannot show |
# |:--------------|:------------------------|:---------------------|:--------------------|
# | CPU interpreter | The kernel, one program after another, through Triton's interpreter, while the book was made | Values, masks, addresses, error messages | Time, races, TF32, how `bfloat16` rounds |
# | Compiled without a GPU | Triton's compiler, for a named target | The compiler's stages, PTX and SASS, registers, spills, shared memory | That the code was ever executed |
# | Captured on a GPU | The cell, on the GPU that its badge names | Time, bandwidth, the numbers the hardware gave | Anything about another GPU |

# The line at the top of each page says what ran its cells and in which versions.
# If the book was made on a machine with a GPU, the cells of the first kind ran on that GPU, and the line says so.

# Some runs were not possible, and this is where.
# Code for `sm_80`, `sm_100` and `gfx942` (NVIDIA A100, NVIDIA B200 and AMD MI300X) is compiled and inspected, never executed.
# GPU figures are taken on one kind of machine, an NVIDIA H200 (`sm_90`), and a statement about speed is a statement about that machine.
# A cell that no GPU has executed yet says "not yet run on a GPU" where its output would be.
# A captured output whose code has changed since is struck out and marked *stale*, and the book does not pass its own checks until the run is repeated.

# ## Read it {#sec-preface-read .unnumbered}

# [Getting Started](book/getting-started.qmd) takes ten minutes and ends with a kernel of your own running, on a GPU or without one.
# After that, read in order: every chapter uses only what the ones before it defined.

# Three habits pay off.
# Do the small case on paper before you look at the output; that is what the paper cases are for.
# Read the trap boxes, each of which shows a failure that really happened, with its message or its wrong number.
# Do at least one exercise a chapter, since each comes with a test that says whether you are done.

# ## Import it {#sec-preface-import .unnumbered}

# The package is called `generated`, because that is what its files are.
# An operation is imported from the package, and you need not know which chapter defines it.

# ```{python}
# #| label: import-it
# import torch
# from generated import vector_add

# device = "cuda" if torch.cuda.is_available() else "cpu"
# x = torch.tensor([1.0, 2.0, 3.0], device=device)
# y = torch.tensor([10.0, 20.0, 30.0], device=device)
# total = vector_add(x, y)
# assert total.tolist() == [11.0, 22.0, 33.0]
# total
# ```

# `vector_add` is built in [Chapter 1](book/01-jit.qmd).
# Everything else that a chapter defines, its kernels included, is in its module: the chapter `book/01-jit.qmd` is `generated/jit.py`.

# ## Edit it {#sec-preface-edit .unnumbered}

# One sentence governs the package:

# > Line N of a module is line N of its chapter; everything that is not tangled code stands there as a comment.

# A cell is tangled if it carries the option `tangle: true`.
# Here is a chapter of one page, and the module that it becomes.

# ```{python}
# #| label: tangle-by-example
# #| code-fold: true
# #| code-summary: "The page, and the call that tangles it"
# fence, option = "`" * 3, "#|"
# page = f"""# One page {{#sec-one-page}}

# The threads of a program come in groups of this size.

# {fence}{{python}}
# {option} label: warp
# {option} tangle: true
# WARP = 32
# {fence}
# """
# module = tangle.tangle_text(page)
# for name, text in {"book/01-warp.qmd": page, "generated/warp.py": module}.items():
#     print(name)
#     for number, line in enumerate(text.rstrip().split("\n"), 1):
#         print(f"{number:4} │ {line}".rstrip())
#     print()
# assert tangle.untangle_text(module) == page
# assert page.split("\n").index("WARP = 32") == module.split("\n").index("WARP = 32")
# ```

# Prose and fences turned into comments, blank lines stayed blank, the cell stayed as it was, and nothing moved.
# So a traceback, a type checker, a profiler and the line information inside compiled GPU code all point at a line that you can look up in the book.
# It also works in the other direction: edit the module in your editor, and `python tangle.py --sync` carries the edit into the chapter.
# If both sides were edited, it refuses and names both places.

# [Getting Started](book/getting-started.qmd) makes such an edit on this one page and shows what each command prints.

# ## What happens when you import the package {#sec-preface-package .unnumbered}

# This preface is itself a chapter with a module: it is `generated/__init__.py`.
# You can skip the rest of it until an import surprises you.
# On screen its code is folded.

# ```{python}
#| label: package
#| tangle: true
#| code-fold: true
#| code-summary: "The module's docstring and imports"
"""Triton From First Principles: the kernels of the book, one module a chapter.

``from generated import vector_add`` gives the canonical version of an operation;
``generated.jit`` and its sisters hold everything that their chapters define.

Importing this package imports neither torch nor triton and prints nothing.
It may set one environment variable, TRITON_INTERPRET, and says so through the
logger "generated".  This module is line for line the preface of the book, whose
section "What happens when you import the package" explains when and why.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import logging
import os
import re
import sys
from typing import TYPE_CHECKING

_log = logging.getLogger("generated")
# ```

# The version is a plain string, the same whether installed or not.

# ```{python}
#| label: version
#| tangle: true
__version__ = "0.1.0"
# ```

# ### Is there a GPU to launch on? {#sec-preface-probe .unnumbered}

# Importing `torch` takes a second or more, so the package asks the machine itself, in a few hundredths of a second.
# It asks three questions, and the first "no" settles the matter.

# 1. Was the installed PyTorch built for GPUs at all?
#    Triton launches through PyTorch, so a CPU-only build has no use for the best of drivers.
#    The answer is in PyTorch's `version.py`, which is read as a text file.
# 2. Is there a driver, and how many devices does it list?
# 3. Does `CUDA_VISIBLE_DEVICES` leave any of them?

# The obvious way to count NVIDIA devices is to call `cuInit` from the driver library.
# It is also the wrong way.
# A process that has called `cuInit` cannot use CUDA in any child that it forks afterwards, and an import must not do that to its caller.
# NVML, the management library behind `nvidia-smi`, counts devices without initializing CUDA.
# Where a driver comes without NVML, CUDA is initialized in a child process that exits at once.
# AMD's kernel driver lists its devices in `/sys`, which needs no library.

# ```{python}
#| label: probe
#| tangle: true
#| code-fold: true
#| code-summary: "Looking for a GPU without torch and without cuInit"
def _no_gpu() -> str:
    """Why no kernel can be launched on a GPU here, or "" if one can."""
    build = _torch_build()
    if build == "cpu":
        return "the installed PyTorch is a CPU-only build"
    return _no_amd() if build == "hip" else _no_nvidia()


def _torch_build() -> str:
    """What the installed PyTorch is built for: "cuda", "hip" or "cpu".

    It is read from torch/version.py, since importing torch takes a second.
    The answer is "" where there is no such file or it names neither.
    """
    try:
        spec = importlib.util.find_spec("torch")
        folder = os.path.dirname(spec.origin)  # type: ignore[union-attr,arg-type]
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            text = file.read()
    except (AttributeError, TypeError, ValueError, OSError):
        return ""
    found = dict(re.findall(r"^(cuda|hip)\b[^=\n]*=\s*(\S+)", text, re.MULTILINE))
    for name in ("cuda", "hip"):
        if found.get(name, "None") != "None":
            return name
    return "cpu" if found else ""


def _no_nvidia() -> str:
    """Why no NVIDIA GPU can be used, or "".

    NVML is asked, not CUDA: `cuInit` in a parent makes CUDA fail in every child
    that it forks later.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no GPU driver is installed (libcuda.so.1 cannot be loaded)"
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        start, ask, stop = (
            nvml.nvmlInit_v2,
            nvml.nvmlDeviceGetCount_v2,
            nvml.nvmlShutdown,
        )
    except (OSError, AttributeError):
        return _no_nvidia_in_child()
    count = ctypes.c_uint(0)
    code = start()
    if code == 0:
        code = ask(ctypes.byref(count))
        stop()  # closes the device files again
    if code:
        return _broken("NVML", code, quiet=9)  # 9: the kernel module is not loaded
    return _hidden(count.value, "CUDA_VISIBLE_DEVICES")


_CUDA_IN_CHILD = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
print(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""


def _no_nvidia_in_child() -> str:
    """The same for a driver without NVML: CUDA is initialized in a child process.

    Where no child can be asked the answer is "", and the first launch will tell.
    """
    import subprocess

    if not os.path.basename(sys.executable or "").startswith("python"):
        return ""  # an embedded interpreter: do not start its host again
    command = [sys.executable, "-I", "-S", "-c", _CUDA_IN_CHILD]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=30)
        code, count = map(int, child.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return _broken("CUDA", code, quiet=100) if code else _hidden(count)  # 100: none


def _broken(library: str, code: int, quiet: int) -> str:
    """The reason for an error code, with a warning unless it only means "none"."""
    if code != quiet:
        message = "an NVIDIA driver is installed and does not work: %s error %d"
        _log.warning(message + "; nvidia-smi says more", library, code)
    return f"the NVIDIA driver finds no usable GPU ({library} error {code})"


_KFD, _KFD_NODES = "/dev/kfd", "/sys/class/kfd/kfd/topology/nodes"


def _no_amd() -> str:
    """Why no AMD GPU can be used, or "": the kernel driver lists them in /sys."""
    try:
        os.close(os.open(_KFD, os.O_RDWR))
        nodes = os.listdir(_KFD_NODES)
    except OSError:
        return f"no AMD driver can be reached ({_KFD})"
    count = 0
    for node in nodes:
        try:
            with open(f"{_KFD_NODES}/{node}/gpu_id", encoding="ascii") as file:
                count += file.read().strip() not in ("", "0")  # 0: a CPU
        except OSError:  # a GPU that this container may not use
            continue
    visible = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    return _hidden(count, *visible)


def _hidden(count: int, *variables: str) -> str:
    """Why none of `count` devices may be used, or "".

    CUDA and HIP read such a list up to its first invalid entry, so the first one
    decides whether anything is left. A name (GPU-..., MIG-...) is taken as valid.
    """
    if count == 0:
        return "the driver finds no GPU"
    for variable in variables:
        first = os.environ.get(variable, "0").split(",")[0].strip()
        number = int(first) if re.fullmatch(r"-?[0-9]+", first) else -1
        if not (0 <= number < count or first.startswith(("GPU-", "MIG-"))):
            return f"{variable}={os.environ[variable]!r} hides every GPU"
    return ""
# ```

# ### Choosing the interpreter {#sec-preface-selection .unnumbered}

# Triton decides when a kernel is defined whether it will be compiled or interpreted, and it decides by the environment variable `TRITON_INTERPRET`.
# Its own library functions, `tl.sum` among them, are defined while Triton is imported, so for them the decision has then been made.
# A variable set later would give interpreted kernels that call compiled library functions, and those calls fail with a message about something else.

# So there is one rule with three cases.

# - The variable is set: it is respected, whichever way it is set.
#   Triton reads `1`, `true`, `on`, `yes` and `y` as "interpret", in any case of letters, and everything else as "compile", an empty value included.
# - It is not set, there is no GPU, and Triton has not been imported: it is set to `1`, and the logger `generated` says so.
# - It is not set, there is no GPU, and Triton *has* been imported: it is too late.
#   Nothing is changed, one warning is logged, and the first operation that would launch a kernel raises an error that names both mends.

# Programs that you start from this one inherit the variable, as they inherit every other.

# ```{python}
#| label: selection
#| tangle: true
#| code-fold: true
#| code-summary: "Selecting the interpreter"
_TRUE = frozenset({"1", "true", "on", "yes", "y"})  # as Triton reads the variable

_MENDS = (
    "import generated before triton, or set TRITON_INTERPRET=1 before Python starts;"
    " kernels then run in Triton's interpreter, on the CPU"
)


def interpreting() -> bool:
    """Whether a kernel defined now is interpreted on the CPU instead of compiled."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in _TRUE


def _imported_interpreting() -> bool | None:
    """The same for the triton.language imported already; None if there is none."""
    library_function = getattr(sys.modules.get("triton.language"), "sum", None)
    if library_function is None:
        return None
    return type(library_function).__name__ == "InterpretedFunction"


def _mixed() -> str:
    """Why own kernels and Triton's library disagree about interpreting, or ""."""
    if _imported_interpreting() in (None, interpreting()):
        return ""
    now = os.environ.get("TRITON_INTERPRET")
    value = "was removed" if now is None else f"became {now!r}"
    return (
        f"TRITON_INTERPRET {value} after triton was imported, which mixes compiled and"
        " interpreted functions: set it before triton is imported and leave it"
    )


def _select() -> None:
    """Choose the interpreter where nothing else can run; never against a choice."""
    if reason := _mixed():
        _log.warning("%s", reason)
    elif "TRITON_INTERPRET" in os.environ:
        _log.debug("TRITON_INTERPRET=%r is respected", os.environ["TRITON_INTERPRET"])
    elif not sys.platform.startswith("linux"):
        _log.info("Triton is published for Linux only, and this is %s", sys.platform)
    elif not (reason := _no_gpu()):
        _log.debug("kernels are compiled for the GPU")
    elif _imported_interpreting() is None:
        os.environ["TRITON_INTERPRET"] = "1"
        _log.info("%s: TRITON_INTERPRET=1 is set, kernels run on the CPU", reason)
    else:
        message = "%s, and triton was imported before generated: %s"
        _log.warning(message, reason, _MENDS)


_select()
# ```

# Here are the cases on the machine that made this page, each in a fresh process with logging switched on.

# ```{python}
# #| label: selection-tried
# #| code-fold: true
# #| code-summary: "Four fresh processes"
# import os
# import subprocess
# import sys
# import textwrap


# def tried(code, choice=None):
#     """Print `code`, then what a fresh process that runs it logs and prints."""
#     env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
#     if choice is not None:
#         env["TRITON_INTERPRET"] = choice
#     log = "import logging; logging.basicConfig(level='DEBUG', format='%(message)s'); "
#     say = "; print('interpreting:', generated.interpreting())"
#     command = [sys.executable, "-c", log + code + say]
#     child = subprocess.run(
#         command, env=env, cwd=ROOT, capture_output=True, text=True, check=True
#     )
#     print("$", "" if choice is None else f"TRITON_INTERPRET={choice} ", end="")
#     print(f'python -c "{code}"')
#     for line in (child.stderr + child.stdout).splitlines():
#         print(textwrap.fill(line, 84, initial_indent="  ", subsequent_indent="    "))


# tried("import generated")
# tried("import generated", choice="1")
# tried("import generated", choice="0")
# tried("import triton; import generated")
# ```

# A public operation asks `require_launchable` before it launches anything.
# By then Triton is imported, so Triton itself can be asked, and a GPU that is listed but cannot be used is found out here.

# ```{python}
#| label: launchable
#| tangle: true
#| code-fold: true
#| code-summary: "Refusing a launch that cannot work"
_launchable = False


def require_launchable() -> None:
    """Return if this process can launch kernels; every public operation asks.

    Raises:
        RuntimeError: nothing can be launched; the message says why and what to do.
    """
    global _launchable
    if not _launchable:
        if reason := _mixed() or _unlaunchable():
            raise RuntimeError(reason)
        _launchable = True


def _unlaunchable() -> str:
    """Why Triton, as it was imported, can launch nothing, or "". Imports torch."""
    if interpreting():
        return ""
    from triton.backends import backends

    if any(backend.driver.is_active() for backend in backends.values()):
        return ""
    if "TRITON_INTERPRET" in os.environ:
        value = os.environ["TRITON_INTERPRET"]
        return (
            f"TRITON_INTERPRET={value!r} asks for compiled kernels and Triton finds no"
            " GPU: run on a machine with one, or set TRITON_INTERPRET=1 before Python"
            " starts; kernels then run in Triton's interpreter, on the CPU"
        )
    return f"Triton finds no GPU to launch a kernel on: {_MENDS}"
# ```

# ### Names that load when they are used {#sec-preface-names .unnumbered}

# `import generated` must stay cheap, and `from generated import vector_add` must work.
# Python asks a module's own `__getattr__` for a name that it does not have, so the chapter that defines a name is imported when somebody first asks for that name.
# A name that no chapter defines is answered with the names that are spelled like it.

# ```{python}
#| label: names
#| tangle: true
#| code-fold: true
#| code-summary: "Lazy names"
_OPERATIONS: dict[str, tuple[str, ...]] = {
    "jit": ("fused_multiply_add", "vector_add"),
    "environment": (),
}
_HOME = {name: module for module, names in _OPERATIONS.items() for name in names}

if TYPE_CHECKING:
    from generated.jit import fused_multiply_add as fused_multiply_add
    from generated.jit import vector_add as vector_add
else:

    def __getattr__(name: str) -> object:
        """Import the chapter that defines `name`; called once a name (PEP 562)."""
        if name not in _HOME and name not in _OPERATIONS:
            package = sys.modules["generated"]
            raise AttributeError(_unknown(name), name=name, obj=package)
        try:
            module = importlib.import_module(f"generated.{_HOME.get(name, name)}")
        except ModuleNotFoundError as error:
            if error.name in ("torch", "triton"):
                error.add_note(
                    f"{error.name} is needed to run kernels. Triton is published for"
                    f" Linux only (this is {sys.platform}); see Getting Started."
                )
            raise
        value = getattr(module, name) if name in _HOME else module
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """What tab completion offers: the names loaded and those that can be."""
        return sorted({*globals(), *_HOME, *_OPERATIONS})


def _unknown(name: str) -> str:
    """The message for a name that no chapter defines, with the names near it."""
    message = f"module 'generated' has no attribute {name!r}"
    if name.startswith("_"):
        return message
    import difflib

    near = difflib.get_close_matches(name, [*_HOME, *_OPERATIONS], n=3)
    if near:
        return f"{message}; near matches: {', '.join(near)}"
    return f"{message}; it has {', '.join(sorted(_HOME))}"
# ```

# ```{python}
# #| label: names-tried
# import generated

# try:
#     generated.vectoradd
# except AttributeError as error:
#     print(error)
# ```

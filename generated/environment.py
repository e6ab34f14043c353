# # Environment setup {#sec-environment}

# A kernel that does not start says little about why.
# The driver may be missing or too old, PyTorch may be built for another machine, a C compiler may not be there, or a variable that somebody exported last year may be in the way.
# This appendix has what a machine needs, how to get it, and a program that looks at the machine and says which of these it is.

# ```{python}
# #| label: setup
# #| echo: false
# import loom

# loom.begin("environment")
# ```

# ```{python}
# #| label: workbench
# #| echo: false
# import json
# import os
# import re
# import subprocess
# import sys
# import tempfile
# import textwrap
# import tomllib
# from dataclasses import replace
# from pathlib import Path

# import tangle
# from IPython.display import Markdown

# ROOT = Path(tangle.__file__).parent


# def fresh_terminal(**variables):
#     """The environment of a new terminal with the package installed."""
#     kept = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
#     paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
#     return kept | {"PATH": paths, "PYTHONPATH": str(ROOT)} | variables


# def run(command, **variables):
#     """What a command prints, without this machine's folders, and its exit status."""
#     done = subprocess.run(
#         ["bash", "-c", command],
#         cwd=ROOT,
#         env=fresh_terminal(**variables),
#         stdout=subprocess.PIPE,
#         stderr=subprocess.STDOUT,
#         text=True,
#         timeout=300,
#         check=False,
#     )
#     text = re.sub(r"/\S*/site-packages/", ".../", done.stdout)
#     return text.replace(f"{ROOT}/", "").rstrip(), done.returncode


# def shown(command, **variables):
#     """Run the command that stands above the cell, and print what it printed."""
#     text, status = run(command, **variables)
#     print(text + f"\n(exit status {status})")
# ```

# ## What you need {#sec-environment-need}

# @tbl-environment-versions is drawn from the package's own requirements and from `constraints.txt`, the list of exact versions that the printed book was made with.

# ```{python}
# #| label: tbl-environment-versions
# #| tbl-cap: "What the package accepts, and the versions that the printed book was made with."
# #| echo: false
# project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# exact = dict(
#     line.split("==")
#     for line in (ROOT / "constraints.txt").read_text().split("\n")
#     if "==" in line
# )
# WHY = {
#     "numpy": "the interpreter computes with it",
#     "torch": "tensors, gradients, and CUDA itself",
#     "triton": "the compiler and the interpreter; Linux only",
# }
# python = ".".join(map(str, sys.version_info[:2]))
# accepted = {"Python": (project["requires-python"], python, "the language")}
# for requirement in project["dependencies"]:
#     name, minimum = re.match(r"(\w+)(>=[\d.]+)", requirement).groups()
#     accepted[name] = (minimum, exact[name], WHY[name])
# rows = ["| | accepted | printed book | what for |", "|---|---|---|---|"]
# for name, (minimum, version, why) in accepted.items():
#     number = minimum.replace(">=", "")
#     rows.append(f"| {name} | {number} or newer | {version} | {why} |")
# Markdown("\n".join(rows))
# ```

# Besides these, a machine with a GPU needs

# - an NVIDIA driver, and of NVIDIA's software nothing else: PyTorch brings the CUDA libraries and Triton brings the assembler;
# - a C compiler and Python's header files, because Triton compiles a small launcher in C when it first meets a GPU;
# - a GPU of compute capability 8.0 or newer (A100, RTX 30 and later), which is what Triton supports.

# Without a GPU, none of the three is needed.

# ## Step by step {#sec-environment-steps}

# ### A machine with a CUDA GPU {#sec-environment-gpu}

# 1. **The driver.** Run `nvidia-smi`. If it prints a table with your GPU, the driver is there, and the table's head says which CUDA version it supports at most. If not, install one: `sudo ubuntu-drivers install` on Ubuntu, `sudo apt install nvidia-driver` on Debian with the component `non-free` switched on. Then restart the machine.
# 2. **The compiler.** `sudo apt install gcc python3-dev`.
# 3. **The package**, in the folder of the book:

#    ```bash
#    python3 -m venv .venv
#    source .venv/bin/activate
#    pip install -e .
#    ```

# 4. **The doctor.** `python -m generated.environment` says whether it all fits together, and launches a kernel.

# Which CUDA version PyTorch is built for decides which driver is new enough: 525 for CUDA 12, 580 for CUDA 13.
# Where the driver cannot be changed, take a PyTorch that is built for the older CUDA; the selector on pytorch.org gives the command.

# ### A machine without a GPU {#sec-environment-cpu}

# Only step 3.
# The PyTorch that `pip` finds by itself brings some gigabytes of CUDA libraries that such a machine has no use for.
# To save them, install PyTorch's CPU-only build first, with the command that the selector on pytorch.org gives for "CPU"; `pip install -e .` then keeps it.
# Kernels run in the interpreter, and everything in this book that is not a measurement can be done.

# ### In a container {#sec-environment-container}

# A container uses the driver of its host, so there is none in the image.
# The host needs the driver and NVIDIA's Container Toolkit.
# This `Dockerfile` stands in the folder of the book; it is shown, not executed, here.

# ```text
# FROM python:3.12-slim
# RUN apt-get update \
#  && apt-get install --yes --no-install-recommends gcc libc6-dev make \
#  && rm -rf /var/lib/apt/lists/*
# ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
# WORKDIR /book
# COPY . .
# RUN pip install --no-cache-dir --editable .
# CMD ["python", "-m", "generated.environment"]
# ```

# Name `.venv`, `.git` and `_book` in a `.dockerignore` beside it, so that they are not copied.

# ```bash
# docker build --tag triton-book .
# docker run --rm --gpus all --shm-size=1g triton-book
# ```

# Without `--gpus all` the container sees no GPU, and the doctor says that it runs kernels in the interpreter.
# Docker gives a container 64 MiB of shared memory, which is too little for data loaders with worker processes; `--shm-size` mends that.
# The compile cache is lost with the container, unless `TRITON_CACHE_DIR` points into a volume.

# ### On Windows, in WSL 2 {#sec-environment-wsl}

# Install the NVIDIA driver in *Windows*, and none inside WSL: Windows lends its own, in `/usr/lib/wsl/lib`.
# Inside, follow the steps for a GPU from the second one on.
# Keep the folder of the book in the Linux file system (`~`, not `/mnt/c`), where files open many times faster.
# If Triton cannot find `libcuda.so`, `export TRITON_LIBCUDA_PATH=/usr/lib/wsl/lib` tells it.

# ### conda or pip {#sec-environment-conda}

# Either, but one for the packages.
# PyTorch publishes for `pip`; conda serves well to bring a Python:

# ```bash
# conda create --name triton-book python=3.12
# conda activate triton-book
# pip install -e .
# ```

# Mixed installations of `torch` or `triton` from both are the usual cause of a message about `GLIBCXX`.

# ### To build the book, too {#sec-environment-workshop}

# `make book` and `make test` make an environment of their own in `.venv`, with the versions of `constraints.txt`.
# By hand it is `pip install -e '.[book,test]'`.
# Quarto is used where it is installed and not needed otherwise.

# ## The doctor {#sec-environment-doctor}

# ```bash
# python -m generated.environment
# ```

# ```{python}
# #| label: doctor
# #| echo: false
# shown("python -m generated.environment", CUDA_VISIBLE_DEVICES="")
# ```

# That is the machine which made this page, with its GPU, if it has one, hidden.
# Each line has one of three states.
# `ok` needs nothing.
# `warn` works, with a consequence that the line names.
# `missing` is not there or broken; the line below it says what to type.

# Here is the same on a machine with a GPU, where it also compares a kernel with a copy by the device.
# An addition of two vectors moves 12 bytes an element and computes next to nothing, so in bytes a second it should come out close to the copy, which moves 8.

# ```{python}
# #| label: doctor-gpu
# #| echo: false
# #| capture: gpu
# shown("python -m generated.environment")
# ```

# For scripts, the exit status says the same in one number, and `--json` says all of it.

# | exit status | meaning |
# |:--|:-----------------------------------------------------------------|
# | 0 | nothing is missing for what this machine can do; warnings do not count |
# | 1 | something is missing or broken; on a machine with a GPU that includes whatever keeps kernels off it |
# | 2 | the command was called with an argument that it does not know |

# ```bash
# python -m generated.environment --no-run --json
# ```

# ```{python}
# #| label: doctor-json
# #| echo: false
# text, status = run("python -m generated.environment --no-run --json")
# answer = json.loads(text)
# assert status == answer["exit"]
# short = answer | {"findings": answer["findings"][:2]}
# print(json.dumps(short, indent=2)[:-6] + ",")
# print(f"    ... {len(answer['findings']) - 2} more\n  ]\n}}")
# ```

# `--no-run` launches no kernel.
# From Python, `environment.report()` returns the text.

# ## How it works {#sec-environment-how}

# This section is the doctor's own code, and you can skip it until you want to know what a line of the report was derived from.
# On screen the code is folded; on paper it takes some pages, and @sec-environment-wrong goes on with what to do.

# A program that examines sick machines must not fall ill itself.
# Three rules see to that.

# - **Look first, then judge.** Everything that is read from the machine goes into one record, `Machine`. The checks are functions of that record alone, so each of them can be tried on machines that nobody has.
# - **What may crash runs elsewhere.** An `import torch` can raise, hang, or take its process down with it. It is therefore done in a child process with a time limit, and so are the kernels.
# - **The standard library only.** The module imports with PyTorch broken, Triton missing and a Python too old for the book, since that is when it is needed.

# ```{python}
#| label: module
#| tangle: true
#| code-fold: true
#| code-summary: "The module's docstring, imports and limits"
"""The doctor: what this machine has for Triton, what is missing, what to type.

``python -m generated.environment`` prints it, ``environment.report()`` returns it.
Exit status: 0 if nothing is missing for what this machine can do, 1 if something is
missing or broken, 2 for wrong arguments.  Importing this needs neither torch nor
triton.  Defined in Appendix A.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import dataclasses
import glob
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, NamedTuple

import generated

PROJECT = "triton-from-first-principles"
PYTHON = (3, 11)
TORCH = (2, 11)
NUMPY = (1, 26)
TRITON = (3, 6)
TRITON_UNTRIED = (3, 10)  # the first version that the book was not run with
CAPABILITY = (8, 0)  # the oldest that Triton supports
DRIVERS = {12: 525, 13: 580}  # the oldest driver, by the CUDA version of PyTorch
GIB = 2**30
# ```

# ### Findings {#sec-environment-findings}

# A finding is what a check answers: a name, a state, what was found, what to type.
# `Machine` is the record that all checks read, and its `launches` is the one question behind all the others: where does a new process run its kernels?

# ```{python}
#| label: finding
#| tangle: true
#| code-fold: true
#| code-summary: "Finding, Gpu and Machine"
class Finding(NamedTuple):
    """One answer: `state` is "ok", "warn" or "missing", `mend` is what to type."""

    name: str
    state: str
    found: str
    mend: str = ""


class Gpu(NamedTuple):
    """One NVIDIA GPU as its driver describes it; memory in bytes."""

    name: str
    memory: int
    capability: tuple[int, int]


@dataclass(frozen=True)
class Machine:
    """What was seen on a machine. An empty value means: not there, or not seen."""

    system: str = ""
    release: str = ""  # of the kernel; WSL 2 is recognized by it
    architecture: str = ""
    libc: str = ""
    python: tuple[int, ...] = ()
    shared_memory: int = 0  # bytes of /dev/shm
    compiler: tuple[str, str] = ("", "")  # name and version
    headers: bool = False  # Python.h
    versions: Mapping[str, str] = field(default_factory=dict)  # by package
    pinned: str = ""  # the triton version that torch requires
    build: str = ""  # torch: "cuda", "hip", "cpu"
    build_cuda: str = ""  # "13.0"
    cards: int = 0  # NVIDIA display controllers on the PCI bus
    driver: str = ""
    driver_cuda: tuple[int, int] = (0, 0)
    gpus: tuple[Gpu, ...] = ()
    no_nvidia: str = ""  # why no NVIDIA GPU can be used
    no_gpu: str = ""  # why no kernel can be launched on a GPU
    variables: Mapping[str, str] = field(default_factory=dict)
    at_start: Mapping[str, str] | None = None  # those of the process when it began
    assemblers: Mapping[str, str] = field(default_factory=dict)  # ptxas
    cache: str = ""
    cache_fault: str = ""
    cache_free: int = 0
    cache_runs: bool = True  # a library in it may be loaded
    installed: tuple[str, str] = ("", "")  # version, and how
    workshop: bool = False  # the book's folder, not the package alone
    lacking: Mapping[str, list[str]] = field(default_factory=dict)  # by extra
    quarto: str = ""
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()  # what could not be looked at, and why

    @property
    def launches(self) -> str:
        """Where a new process runs kernels: "gpu", "interpreter" or "nothing"."""
        chosen = self.variables.get("TRITON_INTERPRET")
        if chosen is None:
            return "interpreter" if self.no_gpu else "gpu"
        if chosen.lower() in generated._TRUE:
            return "interpreter"
        return "nothing" if self.no_gpu else "gpu"

    @property
    def has_gpu(self) -> bool:
        """Whether a driver lists a GPU here, used or not."""
        return bool(self.gpus) or not self.no_gpu

    def version(self, package: str) -> str:
        """The version of a package, by its metadata or else by itself."""
        said = self.steps.get(package, {}).get("version", "")
        return self.versions.get(package, "") or str(said)
# ```

# ### Looking {#sec-environment-look}

# Whatever is read here is read without importing anything large: versions from the packages' metadata, PyTorch's build from its `version.py`, GPUs from NVML, the driver's own management library.
# The preface's `_no_gpu` decides whether there is something to launch on, so that the doctor and the package cannot be of two minds.

# ```{python}
#| label: ask
#| tangle: true
#| code-fold: true
#| code-summary: "Asking another program, with a time limit"
def _ask(
    command: list[str], seconds: float, env: Mapping[str, str] | None = None
) -> tuple[str, str, str]:
    """Run a program: its output, its errors, and how it ended if not well.

    It and what it started are killed after so many seconds; nothing is waited for
    longer than that, not even a process that cannot be killed.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        except OSError as error:
            return "", "", f"{command[0]} cannot be started: {error.strerror}"
        how = _wait(child, seconds)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
        return texts[0], texts[1], how


def _wait(child: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for the end of a process, or end it; how it ended, or "" if well."""
    try:
        code = child.wait(seconds)
    except subprocess.TimeoutExpired:
        try:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            pass
        return f"no answer within {seconds:.0f} s"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"exit status {code}" if code else ""


def _one_line(error: BaseException | str) -> str:
    """An exception on one line, without the user's home folder."""
    kind = "" if isinstance(error, str) else f"{type(error).__name__}: "
    text = " ".join(f"{kind}{error}".split())
    home = os.path.expanduser("~")
    if len(home) > 1:
        text = text.replace(home, "~")
    return text if len(text) <= 300 else text[:297] + "..."
# ```

# ```{python}
#| label: look-machine
#| tangle: true
#| code-fold: true
#| code-summary: "System, compiler, packages"
def _libc() -> str:
    name, version = platform.libc_ver()
    return f"{name} {version}" if name == "glibc" else ""


def _shared_memory() -> int:
    return shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0


def _compiler() -> tuple[str, str]:
    """The C compiler that Triton would call, and its version.

    A `CC` that cannot be found has no version; ("", "") if there is none at all.
    """
    name = os.environ.get("CC")
    if name is None:
        name = "gcc" if shutil.which("gcc") else "clang"
        if not shutil.which(name):
            return "", ""
    said, _, how = _ask([name, "-dumpversion"], 20)
    return name, "" if how else said.strip()


def _headers() -> bool:
    """Whether Python.h lies where Triton looks for it."""
    scheme = sysconfig.get_default_scheme()
    if scheme == "posix_local":  # Debian's own; headers are not there
        scheme = "posix_prefix"
    folder = sysconfig.get_paths(scheme=scheme)["include"]
    return os.path.isfile(os.path.join(folder, "Python.h"))


def _version(*names: str) -> str:
    """The version of the first package that is installed, by its metadata."""
    for name in names:
        try:
            return metadata.version(name) or ""
        except metadata.PackageNotFoundError:
            continue
    return ""


def _versions() -> dict[str, str]:
    return {
        "torch": _version("torch"),
        "triton": _version("triton", "pytorch-triton", "triton-rocm"),
        "numpy": _version("numpy"),
    }


def _pinned() -> str:
    """The one version of triton that the installed torch requires, if it does."""
    try:
        required = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return ""
    found = (re.match(r"triton\s*\(?==\s*([\w.]+)", line) for line in required)
    return next((match[1] for match in found if match), "")


def _build_cuda() -> str:
    """The CUDA version that torch is built for, from its version.py."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return ""
    path = os.path.join(os.path.dirname(spec.origin), "version.py")
    with open(path, encoding="utf-8") as file:
        found = re.search(r"^cuda\b[^=\n]*= '([\d.]+)'", file.read(), re.MULTILINE)
    return found[1] if found else ""
# ```

# ```{python}
#| label: look-gpu
#| tangle: true
#| code-fold: true
#| code-summary: "Driver, GPUs, assembler, variables, cache"
def _cards() -> int:
    """How many NVIDIA display controllers the PCI bus lists, driver or not."""
    count = 0
    for folder in glob.glob("/sys/bus/pci/devices/*"):
        try:
            with open(f"{folder}/vendor") as vendor, open(f"{folder}/class") as kind:
                count += (
                    vendor.read().startswith("0x10de") and kind.read()[:4] == "0x03"
                )
        except OSError:
            continue
    return count


def _nvml() -> dict[str, Any]:
    """Driver, the CUDA version it supports, and its GPUs; {} without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return {}
    except (OSError, AttributeError):
        return {}
    try:
        driver, cuda = ctypes.create_string_buffer(96), ctypes.c_int()
        nvml.nvmlSystemGetDriverVersion(driver, 96)
        nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda))
        return {
            "driver": driver.value.decode("utf-8", "replace"),
            "driver_cuda": (cuda.value // 1000, cuda.value % 1000 // 10),
            "gpus": tuple(_gpus(nvml)),
        }
    finally:
        nvml.nvmlShutdown()


def _gpus(nvml: Any) -> Iterator[Gpu]:
    """The GPUs that the driver lists; one that cannot be asked is left out."""
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        memory = (ctypes.c_ulonglong * 3)()  # total, free, used
        major, minor = ctypes.c_int(), ctypes.c_int()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue
        nvml.nvmlDeviceGetName(handle, name, 96)
        nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        nvml.nvmlDeviceGetCudaComputeCapability(
            handle, ctypes.byref(major), ctypes.byref(minor)
        )
        text = name.value.decode("utf-8", "replace")
        yield Gpu(text, memory[0], (major.value, minor.value))


def _assemblers() -> dict[str, str]:
    """The versions of the assemblers that Triton would call, by name."""
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.origin:
        return {}
    folder = os.path.join(os.path.dirname(spec.origin), "backends/nvidia/bin")
    found = {}
    for name in ("ptxas", "ptxas-blackwell"):
        variable = f"TRITON_{name.replace('-', '_').upper()}_PATH"
        path = os.environ.get(variable) or os.path.join(folder, name)
        if os.path.exists(path) or variable in os.environ:
            said = re.search(r"release ([\d.]+)", _ask([path, "--version"], 20)[0])
            found[name] = said[1] if said else ""
    return found


def _variables() -> dict[str, str]:
    """Triton's variables, and others that decide where kernels run."""
    others = ("CUDA_VISIBLE_DEVICES", "CC")
    return {k: v for k, v in os.environ.items() if k[:7] == "TRITON_" or k in others}


def _at_start() -> dict[str, str] | None:
    """The variables that this process was started with; None if not known."""
    try:
        with open("/proc/self/environ", "rb") as file:
            text = os.fsdecode(file.read())
    except OSError:
        return None
    pairs = (entry.partition("=") for entry in text.split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs}


def _cache() -> dict[str, Any]:
    """Triton's cache folder: where, whether files can be made and loaded, and room.

    A folder that is not there yet is judged by the one that it would be made in.
    """
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    default = os.path.join(home, ".triton", "cache")
    path = place = os.path.abspath(os.environ.get("TRITON_CACHE_DIR") or default)
    while not os.path.exists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    found: dict[str, Any] = {"cache": _one_line(path)}
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        found["cache_fault"] = error.strerror or str(error)
    found["cache_free"] = shutil.disk_usage(place).free
    found["cache_runs"] = not os.statvfs(place).f_flag & os.ST_NOEXEC
    return found
# ```

# ```{python}
#| label: look-book
#| tangle: true
#| code-fold: true
#| code-summary: "The package, its extras, Quarto; and all looks together"
def _folder() -> str:
    """The folder that holds the package."""
    return os.path.dirname(os.path.dirname(os.path.abspath(generated.__file__)))


def _installed() -> tuple[str, str]:
    """The installed version of the package, and how it is installed.

    "editable", "wheel", "other" if a copy elsewhere is installed, or "" if none is.
    """
    try:
        found = metadata.distribution(PROJECT)
    except metadata.PackageNotFoundError:
        return "", ""
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return found.version, "editable"
    file = os.path.realpath(str(found.locate_file("generated/__init__.py")))
    own = file == os.path.realpath(generated.__file__)
    return found.version, "wheel" if own else "other"


def _requirements() -> list[tuple[str, str, str]]:
    """Package, minimal version and extra of each optional requirement."""
    try:
        lines = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        import tomllib

        with open(os.path.join(_folder(), "pyproject.toml"), "rb") as file:
            extras = tomllib.load(file)["project"]["optional-dependencies"]
        lines = [f"{line}; extra == '{e}'" for e in extras for line in extras[e]]
    pattern = r"([\w.-]+)(?:\s*\(?>=\s*([\d.]+))?.*extra\s*==\s*['\"](\w+)"
    found = (re.match(pattern, line) for line in lines)
    return [(m[1], m[2] or "0", m[3]) for m in found if m]


def _lacking() -> dict[str, list[str]]:
    """By extra, the packages that are not installed or too old."""
    found: dict[str, list[str]] = {}
    for name, minimum, extra in _requirements():
        missing = found.setdefault(extra, [])
        if _release(_version(name)) < _release(minimum):
            missing.append(name)
    return found


def _quarto() -> str:
    path = shutil.which("quarto")
    return _ask([path, "--version"], 30)[0].strip() if path else ""


def _release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: "2.13.0+cpu" gives (2, 13, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


_LOOKS: dict[str, Callable[[], Any]] = {
    "system": platform.system,
    "release": platform.release,
    "architecture": platform.machine,
    "libc": _libc,
    "python": lambda: tuple(sys.version_info[:3]),
    "shared_memory": _shared_memory,
    "compiler": _compiler,
    "headers": _headers,
    "versions": _versions,
    "pinned": _pinned,
    "build": generated._torch_build,
    "build_cuda": _build_cuda,
    "cards": _cards,
    "no_nvidia": generated._no_nvidia,
    "no_gpu": generated._no_gpu,
    "variables": _variables,
    "at_start": _at_start,
    "assemblers": _assemblers,
    "installed": _installed,
    "workshop": lambda: os.path.isfile(os.path.join(_folder(), "weave.py")),
    "lacking": _lacking,
    "quarto": _quarto,
    "the driver": _nvml,  # several at once
    "the cache": _cache,
}


def look() -> Machine:
    """Read everything but what has to be tried; never raises."""
    seen: dict[str, Any] = {}
    unseen = []
    for name, reads in _LOOKS.items():
        try:
            value = reads()
        except Exception as error:  # a sick machine is what this is for
            unseen.append(f"{name} ({_one_line(error)})")
            continue
        seen.update(value if name.startswith("the ") else {name: value})
    return Machine(unseen=tuple(unseen), **seen)
# ```

# ### Trying {#sec-environment-try}

# What has to be tried is tried in child processes, step by step.
# Before each step the child prints that the step did not end, and afterwards what it gave; so if the child is killed in the middle, the last line says where.

# ```{python}
#| label: try
#| tangle: true
#| code-fold: true
#| code-summary: "Imports and kernels, in child processes"
def _import_torch() -> dict[str, Any]:
    import torch

    return {"version": torch.__version__}


def _import_triton() -> dict[str, Any]:
    import triton

    assert callable(triton.jit)  # a folder named triton has none
    return {"version": triton.__version__}


def _interpreted() -> dict[str, Any]:
    """`vector_add` of random numbers in the interpreter: how many are wrong."""
    import torch

    from generated.jit import vector_add

    x, y = torch.randn(2, 1000).unbind()
    return {"n": 1000, "wrong": int((vector_add(x, y) != x + y).sum())}


def _compiled() -> dict[str, Any]:
    """The same kernel compiled for a GPU that is not here; nothing is run."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from generated.jit import add_kernel

    pointers = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32")
    signature = {**pointers, "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(add_kernel, signature, constexprs={"BLOCK": 1024})
    start = time.perf_counter()
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    seconds = time.perf_counter() - start
    return {"target": "sm_90", "bytes": len(made.asm["cubin"]), "seconds": seconds}


def _on_gpu() -> dict[str, Any]:
    """`vector_add` on the GPU: how many are wrong, and GB/s beside a copy.

    Random data; the two take turns, three each; medians.
    """
    import torch
    from triton.testing import do_bench

    from generated.jit import vector_add

    free, _ = torch.cuda.mem_get_info()
    n = max(1024, min(2**27, free // 48 // 1024 * 1024))
    x, y = torch.randn(2, n, device="cuda").unbind()
    into = torch.empty_like(x)
    start = time.perf_counter()
    total = vector_add(x, y)
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    wrong = int((total != x + y).sum())
    timed = {
        "add": (lambda: vector_add(x, y), 12 * n),
        "copy": (lambda: into.copy_(x), 8 * n),
    }
    rates: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(3):
        for name, (call, moved) in timed.items():
            milliseconds = do_bench(call, return_mode="median")
            rates[name].append(moved / milliseconds / 1e6)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    device = torch.cuda.get_device_name()
    return {"device": device, "n": n, "wrong": wrong, "first": first, **medians}


_STEPS = {
    "torch": _import_torch,
    "triton": _import_triton,
    "interpreted": _interpreted,
    "compiled": _compiled,
    "on_gpu": _on_gpu,
}
_UNENDED = "did not end"


def _child(names: str) -> None:
    """Do the steps and print a line of JSON before and after each."""
    for name in names.split(","):
        print(json.dumps({"step": name, "error": _UNENDED}), flush=True)
        try:
            answer = _STEPS[name]()
        except BaseException as error:
            answer = {"error": _one_line(error)}
        print(json.dumps({"step": name, **answer}), flush=True)


def try_steps(
    names: str, variables: Mapping[str, str], seconds: float = 120.0
) -> dict[str, dict[str, Any]]:
    """Do steps, given as "torch,triton", in a child process; what each gave.

    A step that failed has an "error"; `variables` are set for the child.
    """
    if not sys.executable:
        return {name: {"error": "no Python to start"} for name in names.split(",")}
    paths = [_folder(), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(paths)}
    code = f"from generated.environment import _child; _child({names!r})"
    said, errors, how = _ask([sys.executable, "-c", code], seconds, env)
    found = {}
    for line in said.split("\n"):
        try:
            answer = json.loads(line)
            found[answer.pop("step")] = answer
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # what a library prints
    for name in names.split(","):
        last = found.setdefault(name, {"error": _UNENDED})
        if last.get("error") == _UNENDED:
            words = errors.strip().split("\n")[-1]
            last["error"] = ": ".join(filter(None, [how or _UNENDED, words]))
        if "error" in last:
            last["stderr"] = errors[-2000:]
    return found


def _attempt(plan: tuple[str, dict[str, str]]) -> dict[str, dict[str, Any]]:
    """`try_steps` of a plan, with a cache of its own if the plan asks for one."""
    names, variables = plan
    try:
        if "compiled" not in names:
            return try_steps(names, variables)
        with tempfile.TemporaryDirectory() as cache:
            return try_steps(names, {"TRITON_CACHE_DIR": cache, **variables})
    except OSError as error:  # not even a temporary file can be made
        return {name: {"error": _one_line(error)} for name in names.split(",")}


def examine(run: bool = True) -> Machine:
    """Look at this machine and try what can be tried; never raises."""
    machine = look()
    plans: list[tuple[str, dict[str, str]]] = [("torch,triton", {})]
    if run and machine.launches == "gpu":
        plans = [("torch,triton,on_gpu", {})]
    elif run and machine.launches == "interpreter":
        plans = [
            ("torch,triton,interpreted", {"TRITON_INTERPRET": "1"}),
            ("compiled", {"TRITON_INTERPRET": "0"}),
        ]
    with concurrent.futures.ThreadPoolExecutor(len(plans)) as pool:
        steps = [item for said in pool.map(_attempt, plans) for item in said.items()]
    return dataclasses.replace(machine, steps=dict(steps))
# ```

# ### Judging {#sec-environment-judge}

# Each check takes the record and gives a finding.
# None of them looks at anything else, and a check that itself fails becomes a finding, too.

# The first group asks whether Triton is published for this machine at all, which takes Linux, glibc and one of two processors, and whether its launcher can be compiled.
# That launcher is the small piece of C between Python and the driver; Triton takes the compiler that `CC` names, else `gcc`, else `clang`, and so does the check.
# It keeps what it compiled in a cache folder, from which the system must be allowed to load a library.
# Without a GPU there is no launcher, and the same absences are no fault.

# ```{python}
#| label: judge-machine
#| tangle: true
#| code-fold: true
#| code-summary: "The machine and the tools"
def _numbers(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def check_system(m: Machine) -> Finding:
    """Linux with glibc, on a processor that Triton is published for."""
    wsl = ", in WSL 2" if "microsoft" in m.release.lower() else ""
    found = f"{m.system} {m.release.split('-')[0]} on {m.architecture}{wsl}"
    if m.system != "Linux":
        mend = "use a Linux machine, a container or WSL 2"
        found = f"{found}: Triton is published for Linux only"
    elif m.architecture not in ("x86_64", "aarch64"):
        mend = "use a machine with an x86_64 or aarch64 processor"
        found = f"{found}: Triton is not published for this processor"
    elif not m.libc:
        mend = "use a distribution with glibc, such as Debian, Ubuntu or Fedora"
        found = f"{found}: not with glibc, which Triton is built for"
    else:
        return Finding("system", "ok", f"{found}, {m.libc}")
    return Finding("system", "missing", found, mend)


def check_python(m: Machine) -> Finding:
    """The Python that runs this is new enough."""
    found = _numbers(m.python)
    if m.python[:2] >= PYTHON:
        return Finding("Python", "ok", found)
    mend = "install a newer Python and make the environment with it: python3.12 -m venv"
    found = f"{found}; {_numbers(PYTHON)} or newer is needed"
    return Finding("Python", "missing", found, mend + " .venv")


def check_compiler(m: Machine) -> Finding:
    """A C compiler, where Triton needs one: on a machine with a GPU."""
    name, version = m.compiler
    if name and version:
        return Finding("C compiler", "ok", f"{os.path.basename(name)} {version}")
    if name:
        found, mend = f"CC={name} cannot be run", "unset CC, or set it to a C compiler"
    else:
        found, mend = "neither gcc nor clang is on the PATH", "sudo apt install gcc"
    if m.launches == "gpu":
        return Finding("C compiler", "missing", found + "; a first launch fails", mend)
    return Finding("C compiler", "ok", found + "; only a machine with a GPU needs one")


def check_headers(m: Machine) -> Finding:
    """Python's header files, which the launcher is compiled with."""
    if m.headers:
        return Finding("Python.h", "ok", "found")
    if m.launches == "gpu":
        found, mend = "not found; a first launch fails", "sudo apt install python3-dev"
        return Finding("Python.h", "missing", found, mend)
    return Finding("Python.h", "ok", "not found; only a machine with a GPU needs it")


def check_shared_memory(m: Machine) -> Finding:
    """Room for data loaders with worker processes, and for NCCL."""
    found = f"{m.shared_memory / GIB:.3g} GiB"
    if m.shared_memory >= GIB // 2:
        return Finding("/dev/shm", "ok", found)
    mend = "docker run --shm-size=1g ..., or: sudo mount -o remount,size=1G /dev/shm"
    found += ": data loaders with worker processes may fail"
    return Finding("/dev/shm", "warn", found, mend)


def check_cache(m: Machine) -> Finding:
    """Triton's cache folder can be written to and has room."""
    name, mend = "compile cache", "export TRITON_CACHE_DIR=a folder with room"
    if m.cache_fault:
        found = f"{m.cache} cannot be written to: {m.cache_fault}"
        return Finding(name, "missing", found, mend)
    if not m.cache_runs and m.launches == "gpu":
        found = f"{m.cache} is on a file system mounted noexec; a launcher cannot load"
        return Finding(name, "missing", found, mend)
    found = f"{m.cache}, {m.cache_free / GIB:.0f} GiB free"
    return Finding(
        name, *(("ok", found) if m.cache_free >= GIB else ("warn", found, mend))
    )
# ```

# A package can be absent, too old, or there and broken; the third is told from the first by the child process that tried to import it.
# Two combinations of good packages are bad.
# A PyTorch built for CUDA asks for exactly one Triton.
# And Triton 3.6 makes a NumPy array of a loop's bound, which NumPy 2.4 refuses to turn into an integer.

# ```{python}
#| label: judge-packages
#| tangle: true
#| code-fold: true
#| code-summary: "The packages"
def _package(m: Machine, name: str, minimum: tuple[int, ...]) -> Finding | None:
    """What is wrong with a package in itself: absent, broken or too old."""
    version, step = m.version(name), m.steps.get(name, {})
    wanted = f'pip install --upgrade "{name}>={_numbers(minimum)}"'
    if not version:
        return Finding(name, "missing", "not installed", wanted)
    if "error" in step:
        found = f"{version} is installed and cannot be imported: {step['error']}"
        mend = known_mend(step) or f"pip install --force-reinstall {name}"
        return Finding(name, "missing", found, mend)
    if _release(version) < minimum:
        found = f"{version}; {_numbers(minimum)} or newer is needed"
        return Finding(name, "missing", found, wanted)
    return None


def check_torch(m: Machine) -> Finding:
    """PyTorch works, is new enough, and is built for the GPU that is here."""
    if wrong := _package(m, "torch", TORCH):
        return wrong
    version = m.version("torch")
    built = {
        "cuda": f"built for CUDA {m.build_cuda}",
        "hip": "built for ROCm; the book has been run on NVIDIA GPUs only",
        "cpu": "built for the CPU only",
    }
    found = f"{version}, {built.get(m.build, 'its build cannot be told')}"
    if m.build == "cpu" and not m.no_nvidia:
        mend = (
            "pip uninstall torch, then what the selector on pytorch.org says for CUDA"
        )
        found += ": it cannot use the GPU that is here"
        return Finding("torch", "missing", found, mend)
    return Finding("torch", "warn" if m.build == "hip" else "ok", found)


def check_triton(m: Machine) -> Finding:
    """Triton works, in a version that the book was run with and that torch wants."""
    if wrong := _package(m, "triton", TRITON):
        return wrong
    version = m.version("triton")
    if _release(version) >= TRITON_UNTRIED:
        found = f"{version} is newer than any that the book was run with"
        return Finding("triton", "warn", found, f"pip install {_tried()}")
    if m.pinned and m.pinned != version.split("+")[0]:
        found = f"{version}, and this torch asks for {m.pinned}: torch.compile may fail"
        return Finding("triton", "warn", found, f"pip install triton=={m.pinned}")
    return Finding("triton", "ok", version)


def _tried() -> str:
    return f'"triton>={_numbers(TRITON)},<{_numbers(TRITON_UNTRIED)}"'


def check_numpy(m: Machine) -> Finding:
    """NumPy is new enough, and not too new for Triton 3.6."""
    if wrong := _package(m, "numpy", NUMPY):
        return wrong
    version = m.version("numpy")
    old = (3, 6) <= _release(m.version("triton")) < (3, 7)
    if old and _release(version) >= (2, 4):
        found = (
            f"{version} with triton 3.6: the interpreter raises TypeError at every"
            " range() over a run-time value; compiled kernels do not mind"
        )
        return Finding("numpy", "warn", found, 'pip install "numpy<2.4"')
    return Finding("numpy", "ok", version)
# ```

# A driver states which CUDA version it supports at most, a PyTorch which one it was built for.
# Only the first numbers have to agree: within CUDA 13, a driver for 13.0 runs what was built for 13.2.

# `TRITON_INTERPRET` is reported with the one who set it.
# The variables of the running process cannot tell, since the package may have set it a moment ago; Linux keeps those that the process was started with in `/proc/self/environ`, and the difference is the answer.

# ```{python}
#| label: judge-gpu
#| tangle: true
#| code-fold: true
#| code-summary: "The GPU"
_NVML = {  # what to do about NVML's error codes
    "4": "this user may not open /dev/nvidia*: ask for the group, or run as another",
    "9": "sudo modprobe nvidia; if that fails, reinstall the driver",
    "15": "a GPU has fallen off the bus: restart the machine",
    "18": "the driver was updated while running: restart the machine",
}


def check_driver(m: Machine) -> Finding:
    """A driver that answers, where there is an NVIDIA GPU."""
    if m.driver and m.gpus:
        found = f"{m.driver}, supports CUDA up to {_numbers(m.driver_cuda)}"
        return Finding("driver", "ok", found)
    if not m.has_gpu or not m.no_nvidia:
        if code := re.search(r"error (\d+)", m.no_nvidia):
            mend = _NVML.get(code[1], "nvidia-smi says more")
            return Finding("driver", "missing", m.no_nvidia, mend)
        if m.cards:
            found = f"there is an NVIDIA card, and {m.no_nvidia}"
            mend = "install the driver; in a container: docker run --gpus all ..."
            return Finding("driver", "warn", found, mend)
        return Finding("driver", "ok", m.no_nvidia or "it answers without NVML")
    return Finding("driver", "ok", "none of NVIDIA's; another GPU is used")


def check_gpu(m: Machine) -> Finding:
    """GPUs, and whether Triton supports them."""
    if not m.gpus:
        return Finding("GPU", "ok", "none" if m.no_gpu else "not listed by NVML")
    names = [
        f"{g.name}, {g.memory / GIB:.0f} GiB, capability {_numbers(g.capability)}"
        for g in m.gpus
    ]
    found = names[0]
    if len(names) > 1:
        same = len(set(names)) == 1
        found = f"{len(names)} x {found}" if same else "; ".join(names)
    if max(g.capability for g in m.gpus) < CAPABILITY:
        found += f": older than {_numbers(CAPABILITY)}, which Triton asks for"
        mend = "export TRITON_INTERPRET=1 runs kernels on the CPU"
        return Finding("GPU", "missing", found, mend)
    return Finding("GPU", "ok", found)


def check_visible(m: Machine) -> Finding | None:
    """Whether a variable hides the GPUs that are there."""
    value = m.variables.get("CUDA_VISIBLE_DEVICES")
    if not m.gpus or value is None:
        return None
    found, mend = f"CUDA_VISIBLE_DEVICES={value!r}", "unset CUDA_VISIBLE_DEVICES"
    if "hides" in m.no_nvidia:
        return Finding("visible", "warn", f"{found} hides every GPU", mend)
    return Finding("visible", "ok", found)


def check_cuda(m: Machine) -> Finding | None:
    """The driver is new enough for the CUDA version that torch is built for."""
    built = _release(m.build_cuda)
    if not m.gpus or not built or m.driver_cuda == (0, 0):
        return None
    found = f"torch is built for {m.build_cuda}, the driver supports "
    found += _numbers(m.driver_cuda)
    if m.driver_cuda[0] >= built[0]:
        return Finding("CUDA", "ok", found)
    oldest = DRIVERS.get(built[0])
    newer = f"driver {oldest} or newer" if oldest else "a newer driver"
    mend = f"install {newer}, or a PyTorch built for CUDA {m.driver_cuda[0]}"
    return Finding("CUDA", "missing", found, mend + " (selector on pytorch.org)")


def check_assembler(m: Machine) -> Finding:
    """The assembler that comes with Triton runs."""
    broken = [name for name, version in m.assemblers.items() if not version]
    if broken:
        found = f"{' and '.join(broken)} cannot be run"
        mend = "unset TRITON_PTXAS_PATH and TRITON_PTXAS_BLACKWELL_PATH, or set them"
        if not any("PTXAS" in name for name in m.variables):
            mend = "pip install --force-reinstall triton"
        return Finding("assembler", "missing", found, mend)
    if not m.version("triton"):
        return Finding("assembler", "ok", "comes with Triton")
    if not m.assemblers:
        state = "missing" if m.launches == "gpu" and m.build != "hip" else "warn"
        mend = "pip install --force-reinstall triton"
        return Finding("assembler", state, "no ptxas beside Triton", mend)
    found = ", ".join(f"{name} {version}" for name, version in m.assemblers.items())
    return Finding("assembler", "ok", found)


def check_interpreter(m: Machine) -> Finding:
    """TRITON_INTERPRET: its value, who set it, and what follows."""
    name, value = "TRITON_INTERPRET", m.variables.get("TRITON_INTERPRET")
    if value is None:
        where = "on the GPU" if not m.no_gpu else "nowhere, until generated is imported"
        return Finding(name, "ok", f"not set; kernels run {where}")
    if m.at_start is None:
        by = "by whom cannot be seen"
    elif name in m.at_start:
        by = "before Python started"
    else:
        by = "by the package, since there is no GPU to use"
    found = f"{value!r}, set {by}"
    if m.launches == "nothing":
        found += ": asks for compiled kernels, and there is no GPU to use"
        return Finding(name, "missing", found, "unset TRITON_INTERPRET")
    if m.launches == "interpreter" and not m.no_gpu:
        found += ": kernels are interpreted, although there is a GPU"
        return Finding(name, "warn", found, "unset TRITON_INTERPRET")
    return Finding(name, "ok", found)
# ```

# What belongs to the book's workshop is optional, so its absence is never a fault.
# A kernel that gives a wrong number is one, and so is a failed launch.

# ```{python}
#| label: judge-book
#| tangle: true
#| code-fold: true
#| code-summary: "The book's own, and the kernels"
def check_package(m: Machine) -> Finding:
    """How this package is installed, and in which version."""
    version, how = m.installed
    said = f"generated {generated.__version__}, "
    if not how:
        mend = "pip install -e ."
        return Finding("package", "ok", f"{said}used from its folder", mend)
    if how == "other":
        found = f"{said}used from this folder, not the installed {version}"
        return Finding("package", "warn", found, "pip install -e .")
    found = f"{said}{'editable' if how == 'editable' else 'from a wheel'}"
    if version != generated.__version__:
        found += f"; pip has noted {version}"
        return Finding("package", "warn", found, "pip install -e .")
    return Finding("package", "ok", found)


def check_workshop(m: Machine) -> Finding:
    """What `make book` and `make test` need; nothing that a kernel needs."""
    if not m.workshop:
        return Finding("workshop", "ok", "not here: the package alone")
    lacking = {e: m.lacking[e] for e in ("book", "test") if m.lacking.get(e)}
    if not m.lacking or not lacking:
        return Finding("workshop", "ok", "all that builds and tests the book")
    parts = (f"[{extra}] lacks {', '.join(names)}" for extra, names in lacking.items())
    mend = f"to build and test the book: pip install -e '.[{','.join(lacking)}]'"
    return Finding("workshop", "ok", "; ".join(parts), mend)


def check_renderer(m: Machine) -> Finding | None:
    """What turns chapters into pages."""
    if not m.workshop:
        return None
    if m.quarto:
        return Finding("renderer", "ok", f"Quarto {m.quarto}")
    return Finding("renderer", "ok", "no Quarto here; weave.py uses pandoc and Typst")


def check_kernel(m: Machine) -> Finding | None:
    """The kernel that was run: its result, and on a GPU its bandwidth."""
    step = m.steps.get("on_gpu") or m.steps.get("interpreted")
    if step is None:
        return None
    if "error" in step:
        return _failed(m, "a kernel", step)
    where = "on the GPU" if "device" in step else "in the interpreter"
    found = f"vector_add of {step['n']:,} numbers {where}: "
    if step["wrong"]:
        found += f"{step['wrong']:,} of them are wrong"
        return Finding("a kernel", "missing", found, "report it, with this text")
    if "device" not in step:
        return Finding("a kernel", "ok", found + "all right")
    found += (
        f"all right, {step['add']:,.0f} GB/s, {step['add'] / step['copy']:.0%} of a"
        f" device copy's {step['copy']:,.0f}; first launch {step['first']:.1f} s"
    )
    if step["add"] < 0.8 * step["copy"]:
        mend = "nvidia-smi shows whether something else uses the GPU"
        return Finding("a kernel", "warn", found, mend)
    return Finding("a kernel", "ok", found)


def check_compiled(m: Machine) -> Finding | None:
    """The kernel that was compiled for a GPU that is not here."""
    step = m.steps.get("compiled")
    if step is None:
        return None
    if "error" in step:
        return _failed(m, "compiling", step)
    found = (
        f"the same for {step['target']}, in {step['seconds']:.1f} s:"
        f" {step['bytes']:,} bytes, not run"
    )
    return Finding("compiling", "ok", found)


def _failed(m: Machine, name: str, step: Mapping[str, Any]) -> Finding:
    """The finding for a step that failed, unless a package is to blame."""
    for package in ("torch", "triton"):
        if not m.version(package) or "error" in m.steps.get(package, {}):
            return Finding(name, "missing", f"not tried, because of {package}")
    mend = known_mend(step) or "the chapter's table of messages may have it"
    return Finding(name, "missing", str(step["error"]), mend)
# ```

# Some messages of Triton and PyTorch are known, with their cause and the mend.
# The list serves twice: the doctor looks in it when a kernel fails, and @sec-environment-wrong prints it.

# ```{python}
#| label: known
#| tangle: true
#| code-fold: true
#| code-summary: "Known messages"
class Known(NamedTuple):
    """A message (a regular expression), its cause and its mend (in Markdown)."""

    name: str
    message: str
    cause: str
    mend: str


KNOWN = (
    Known(
        "no-driver",
        r"0 active drivers",
        "there is no GPU, and Triton was imported to compile",
        "`import generated` before triton, or `export TRITON_INTERPRET=1`",
    ),
    Known(
        "set-late",
        r"Cannot call @triton\.jit'd outside of the scope of a kernel",
        "a launch without a grid, or `TRITON_INTERPRET` set after Triton was imported",
        "`kernel[grid](...)`; set the variable before Python starts",
    ),
    Known(
        "cpu-build",
        r"Torch not compiled with CUDA enabled",
        "PyTorch is a CPU-only build",
        "what the selector on pytorch.org says for CUDA",
    ),
    Known(
        "cpu-tensor",
        r"Pointer argument .* cannot be accessed from Triton \(cpu tensor",
        "a compiled kernel got a tensor that lies in the CPU's memory",
        'make the tensor with `device="cuda"`',
    ),
    Known(
        "no-compiler",
        r"Failed to find C compiler",
        "Triton needs a C compiler for its launcher",
        "`sudo apt install gcc`, or set `CC` to the path of one",
    ),
    Known(
        "no-headers",
        r"Python\.h: No such file",
        "Python's header files are not installed",
        "`sudo apt install python3-dev`",
    ),
    Known(
        "no-libcuda",
        r"libcuda\.so cannot found",
        "the driver's library is not in the loader's list",
        "`sudo ldconfig`; in WSL 2 `export TRITON_LIBCUDA_PATH=/usr/lib/wsl/lib`",
    ),
    Known(
        "old-driver",
        r"driver (on your system is too old|version is insufficient)",
        "the driver is older than the CUDA version of PyTorch",
        "a newer driver, or a PyTorch built for an older CUDA",
    ),
    Known(
        "no-image",
        r"no kernel image is available",
        "this PyTorch has no code for this GPU: it is too old, or too new for it",
        '`pip install --upgrade "torch>=2.11"`',
    ),
    Known(
        "out-of-memory",
        r"out of memory",
        "the GPU's memory is full, perhaps with another process's data",
        "`nvidia-smi` lists who uses it; make the tensors smaller",
    ),
    Known(
        "numpy-clash",
        r"only (0-dimensional|length-1|integer scalar) arrays can be converted",
        "triton 3.6 with numpy 2.4 or newer, in the interpreter",
        '`pip install "numpy<2.4"`',
    ),
    Known(
        "cache",
        r"(Permission denied|Read-only file system|Not a directory).*(triton|cache)",
        "Triton's cache folder cannot be written to",
        "set `TRITON_CACHE_DIR` to a folder with room",
    ),
    Known(
        "no-package",
        r"No module named '(torch|triton|numpy|generated)'",
        "another Python than the one the package was installed for",
        "`source .venv/bin/activate`, then `pip install -e .`",
    ),
    Known(
        "glibcxx",
        r"GLIBCXX_[\d.]+' not found",
        "an older libstdc++ is found first, often conda's",
        "`conda install -c conda-forge libstdcxx-ng`, or a plain venv",
    ),
    Known(
        "power-of-two",
        r"arange's range must be a power of 2",
        "a block of a size that is no power of two",
        "take the next power of two, and a mask",
    ),
)


def known_mend(step: Mapping[str, Any]) -> str:
    """The mend for a step's error message, or for what it wrote, if it is known."""
    text = f"{step.get('error', '')}\n{step.get('stderr', '')}"
    mends = (k.mend for k in KNOWN if re.search(k.message, text))
    return next(mends, "").replace("`", "")
# ```

# ### Reporting {#sec-environment-report}

# ```{python}
#| label: report
#| tangle: true
#| code-fold: true
#| code-summary: "The report and the command line"
CHECKS: dict[str, tuple[Callable[[Machine], Finding | None], ...]] = {
    "The machine": (
        check_system,
        check_python,
        check_compiler,
        check_headers,
        check_shared_memory,
    ),
    "Packages": (check_torch, check_triton, check_numpy),
    "The GPU": (check_driver, check_gpu, check_visible, check_cuda),
    "Triton": (check_interpreter, check_assembler, check_cache),
    "The book": (check_package, check_workshop, check_renderer),
    "Tried": (check_kernel, check_compiled),
}


def judge(machine: Machine) -> dict[str, list[Finding]]:
    """The findings on a machine, by section; never raises."""
    found = {section: list(_findings(machine, section)) for section in CHECKS}
    for what in machine.unseen:
        found["The machine"].append(Finding("not seen", "warn", what))
    return found


def _findings(machine: Machine, section: str) -> Iterator[Finding]:
    for check in CHECKS[section]:
        try:
            finding = check(machine)
        except Exception as error:  # a fault of the doctor's own
            name = check.__name__.replace("check_", "")
            finding = Finding(name, "warn", f"cannot be judged: {_one_line(error)}")
        if finding is not None:
            yield finding


def summary(machine: Machine) -> dict[str, Any]:
    """Everything, as JSON has it; "exit" is the exit status."""
    found = judge(machine)
    flat = [{"section": s, **f._asdict()} for s, all_ in found.items() for f in all_]
    states = [finding["state"] for finding in flat]
    broken = [f for f in flat if f["section"] == "Tried" and f["state"] == "missing"]
    needed = [f["name"] in ("torch", "triton") for f in flat if f["state"] == "missing"]
    launches = "nothing" if broken or any(needed) else machine.launches
    return {
        "format": 1,
        "exit": int("missing" in states),
        "launches": launches,
        "warnings": states.count("warn"),
        "missing": states.count("missing"),
        "findings": flat,
    }


def as_text(answer: Mapping[str, Any], columns: int = 84) -> str:
    """A summary as lines of text."""
    lines = []
    section = ""
    for finding in answer["findings"]:
        if finding["section"] != section:
            section = finding["section"]
            lines += ["", section]
        head = f"  {finding['state']:<8} {finding['name']:<17} "
        rows = _wrapped(finding["found"], head, columns)
        if finding["mend"]:
            rows += _wrapped(finding["mend"], " " * (len(head) - 6) + "mend: ", columns)
        lines += rows
    return "\n".join([*lines[1:], "", *_conclusion(answer)])


def _wrapped(text: str, head: str, columns: int) -> list[str]:
    return textwrap.wrap(
        text,
        columns,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _conclusion(answer: Mapping[str, Any]) -> list[str]:
    where = {
        "gpu": "Kernels run on the GPU.",
        "interpreter": "Kernels run on the CPU, in Triton's interpreter.",
        "nothing": "No kernel can be run here as it is.",
    }
    missing, warnings = answer["missing"], answer["warnings"]
    said = "Nothing is missing" if not missing else f"{missing} missing or broken"
    if warnings:
        said += f", {warnings} warning{'s' if warnings > 1 else ''}"
    return [where[answer["launches"]], said + "."]


def report(run: bool = True) -> str:
    """What is here, what is missing and what to type, as text; never raises.

    With `run`, a kernel is run on the GPU, or else in the interpreter, and one is
    compiled.  Takes some seconds.  Defined in Appendix A.
    """
    return as_text(summary(examine(run)))


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m generated.environment",
        description="What this machine has for Triton, what is missing, what to type.",
        epilog="exit status: 0 nothing is missing for what this machine can do;"
        " 1 something is missing or broken; 2 wrong arguments",
    )
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.add_argument("--no-run", action="store_true", help="launch no kernel")
    wishes = parser.parse_args(arguments)
    answer = summary(examine(run=not wishes.no_run))
    print(json.dumps(answer, indent=2) if wishes.json else as_text(answer))
    return int(answer["exit"])


if __name__ == "__main__":
    if globals().get("__spec__") is not None:  # a notebook is "__main__" too
        sys.exit(main())
# ```

# The last cell is what `python -m` runs.
# A notebook's cells are "main" as well, and this page is one, so the second condition asks whether Python was started with this module.

# ### Machines that are not here {#sec-environment-elsewhere}

# Since a check sees only the record, a record with one field changed is a patient.
# Here is one in good health, made up, and then some that lack something.

# ```{python}
# #| label: healthy
# #| code-fold: true
# #| code-summary: "A machine with a GPU, made up"
# H200 = Gpu("NVIDIA H200", 140 * GIB, (9, 0))
# healthy = Machine(
#     system="Linux",
#     release="6.8.0",
#     architecture="x86_64",
#     libc="glibc 2.39",
#     python=(3, 12, 3),
#     shared_memory=16 * GIB,
#     compiler=("gcc", "13"),
#     headers=True,
#     versions={"torch": "2.13.0+cu130", "triton": "3.7.1", "numpy": "2.4.6"},
#     pinned="3.7.1",
#     build="cuda",
#     build_cuda="13.0",
#     driver="580.82.07",
#     driver_cuda=(13, 0),
#     gpus=(H200,),
#     assemblers={"ptxas": "12.9"},
#     cache="~/.triton/cache",
#     cache_free=100 * GIB,
#     installed=(generated.__version__, "editable"),
# )
# assert summary(healthy)["exit"] == summary(healthy)["warnings"] == 0
# ```

# ```{python}
# #| label: patients
# def not_ok(machine):
#     """The findings that are not ok."""
#     return [f for found in judge(machine).values() for f in found if f.state != "ok"]


# LEFT_OVER = {"TRITON_INTERPRET": "1"}
# V100 = Gpu("Tesla V100", 16 * GIB, (7, 0))
# PATIENTS = {
#     "an older driver": replace(healthy, driver_cuda=(12, 4), driver="550.54.14"),
#     "no compiler": replace(healthy, compiler=("", "")),
#     "a CPU-only PyTorch": replace(
#         healthy,
#         versions=healthy.versions | {"torch": "2.13.0+cpu"},
#         build="cpu",
#         build_cuda="",
#         no_gpu="the installed PyTorch is a CPU-only build",
#     ),
#     "a variable left over": replace(healthy, variables=LEFT_OVER, at_start=LEFT_OVER),
#     "a GPU of 2017": replace(healthy, gpus=(V100,)),
#     "triton 3.6, numpy 2.4": replace(
#         healthy, pinned="", versions=healthy.versions | {"triton": "3.6.0"}
#     ),
# }
# for trouble, machine in PATIENTS.items():
#     (finding,) = not_ok(machine)
#     print(f"{trouble}: {finding.name}, exit status {summary(machine)['exit']}")
#     print(textwrap.indent(textwrap.fill(finding.found, 80), "    "))
#     print(textwrap.indent(textwrap.fill(f"mend: {finding.mend}", 80), "    "))
# ```

# ::: {.callout-note title="Self-check: a warning or a fault?"}
# A leftover `TRITON_INTERPRET=1` on a machine with a GPU is a warning, and the exit status is 0.
# `TRITON_INTERPRET=0` on a machine without one is a fault, and the exit status is 1.
# Why the difference, when both are one character in the wrong place?

# ```{python}
# #| label: self-check
# #| code-fold: true
# #| code-summary: "An answer"
# without = replace(healthy, gpus=(), driver="", no_nvidia="none", no_gpu="none")
# slow = replace(healthy, variables={"TRITON_INTERPRET": "1"})
# stuck = replace(without, variables={"TRITON_INTERPRET": "0"})

# assert (slow.launches, summary(slow)["exit"]) == ("interpreter", 0)  # works, on the CPU
# assert (stuck.launches, summary(stuck)["exit"]) == ("nothing", 1)  # launches nothing
# assert (without.launches, summary(without)["exit"]) == ("interpreter", 0)
# # Interpreted kernels are slow and right; compiled ones have nowhere to run.
# ```

# :::

# ## What goes wrong, and what to type {#sec-environment-wrong}

# A message is easier to recognize if you have seen it once, so here they are provoked: each line is what Triton, PyTorch, Python or the C compiler really said when this page was made.
# @tbl-environment-wrong has them again with cause and mend.

# ```{python}
# #| label: provoke
# #| code-fold: true
# #| code-summary: "Provoking the messages that need no GPU"
# KERNEL = """
# import torch, triton, triton.language as tl
# @triton.jit
# def double_kernel(x_ptr, BLOCK: tl.constexpr):
#     offs = tl.arange(0, BLOCK)
#     tl.store(x_ptr + offs, 2 * tl.load(x_ptr + offs))
# x = torch.ones(8)
# """
# NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
# TROUBLE = {
#     "no-driver": (KERNEL + "double_kernel[(1,)](x, BLOCK=8)", NO_GPU),
#     "set-late": (KERNEL + "double_kernel(x, BLOCK=8)", NO_GPU),
#     "power-of-two": (
#         KERNEL + "double_kernel[(1,)](x, BLOCK=6)",
#         NO_GPU | {"TRITON_INTERPRET": "1"},
#     ),
#     "no-compiler": (
#         "import os; os.environ['PATH'] = ''; os.environ.pop('CC', None)\n"
#         "from triton.runtime.build import compile_module_from_src as c\n"
#         "c('int x;', 'launcher')",
#         {},
#     ),
#     "no-package": ("import sys; sys.path = sys.path[:0]; import triton", {}),
#     "cache": (
#         "from triton.runtime.cache import get_cache_manager as c; c('ab').put('', 'f')",
#         {"TRITON_CACHE_DIR": "/dev/null/triton"},
#     ),
# }
# if generated._torch_build() == "cpu":
#     TROUBLE["cpu-build"] = ("import torch; torch.ones(8, device='cuda')", {})
# if generated._no_nvidia().startswith("no GPU driver"):
#     code = "from triton.backends.nvidia.driver import libcuda_dirs as f; f()"
#     TROUBLE["no-libcuda"] = (code, {})
# said = {}
# with tempfile.TemporaryDirectory() as desk:
#     for name, (code, variables) in TROUBLE.items():
#         script = Path(desk) / f"{name}.py"
#         script.write_text(code + "\n")
#         cache = {"TRITON_CACHE_DIR": f"{desk}/cache"}
#         text, status = run(f"python {script}", **(cache | variables))
#         assert status == 1, text
#         words = text[text.rindex("Error: ") :].split("\n")[0]
#         said[name] = re.findall(r"[\w.]+$", text[: text.rindex(words)])[0] + words
#     header = Path(desk) / "launcher.c"
#     header.write_text("#include <Python.h>\n")
#     said["no-headers"] = run(f"cd {desk} && gcc -c launcher.c")[0].split("\n")[0]

# for name, message in said.items():
#     (known,) = (k for k in KNOWN if k.name == name)
#     assert re.search(known.message, message), (name, message)
#     print(textwrap.fill(message, 86, subsequent_indent="    "))
# ```

# Two more need a GPU.

# ```{python}
# #| label: provoke-gpu
# #| capture: gpu
# import torch

# from generated.jit import add_kernel

# here, there = torch.ones(8), torch.ones(8, device="cuda")
# for provoke in (
#     lambda: add_kernel[(1,)](here, there, there, 8, BLOCK=8),
#     lambda: torch.empty(2**45, dtype=torch.int8, device="cuda"),
# ):
#     try:
#         provoke()
#     except Exception as error:
#         message = " ".join(str(error).split(". ")[0].split())
#         assert any(re.search(k.message, message) for k in KNOWN), message
#         print(f"{type(error).__name__}: {message}")
# ```

# ```{python}
# #| label: tbl-environment-wrong
# #| tbl-cap: "Messages, their causes, and what to type."
# #| tbl-colwidths: "[30, 32, 38]"
# #| echo: false
# PLAIN = {  # how a pattern with alternatives reads
#     "cpu-tensor": "Pointer argument (…) cannot be accessed from Triton (cpu tensor?)",
#     "old-driver": "driver on your system is too old",
#     "numpy-clash": "only 0-dimensional arrays can be converted",
#     "cache": "Permission denied: '~/.triton/cache'",
#     "no-package": "No module named 'triton'",
#     "glibcxx": "GLIBCXX_3.4.30' not found",
# }
# rows = ["| it says | because | what to type or do |", "|---|---|---|"]
# for known in KNOWN:
#     text = PLAIN.get(known.name, known.message.replace("\\", ""))
#     assert re.search(known.message, text)
#     rows.append(f"| `{text}` | {known.cause} | {known.mend} |")
# Markdown("\n".join(rows))
# ```

# ```{python}
# #| label: not-provoked
# #| echo: false
# on_gpu = {"cpu-tensor", "out-of-memory"}
# others = [PLAIN.get(k.name, k.message) for k in KNOWN if k.name not in {*said, *on_gpu}]
# Markdown(f"Not provoked for this page: {', '.join(f'`{text}`' for text in others)}.")
# ```

# If a kernel gives wrong numbers without any message, the list is of no use; [Chapter 1](01-jit.qmd) says what the interpreter hides, and `trace` finds addresses out of bounds.

# ## The test suite on a GPU {#sec-environment-tests}

# Most tests of this book run in the interpreter, on any machine.
# The same files run natively on a GPU, and a small case of each kernel runs a second time under NVIDIA's `compute-sanitizer`: `memcheck` finds addresses out of bounds, `racecheck` two threads that use the same shared memory without waiting for each other.
# Both are what the interpreter cannot see.

# ```{python}
# #| label: gpu-tests
# #| echo: false
# #| capture: gpu
# from loom import gpu_report

# tested = gpu_report.run(ROOT)
# loom.keep(tested)
# Markdown(gpu_report.markdown(tested))
# ```

# ```{python}
# #| label: gpu-tests-since
# #| echo: false
# from loom import gpu_report

# Markdown(gpu_report.since(ROOT, loom.captured("gpu-tests")))
# ```

# To repeat it on your own GPU, run `python -m loom.gpu_report` in the folder of the book.

"""Appendix A, the doctor: each check on machines made up, and the whole on real ones.

The checks are functions of a record, so most tests make a record.  The looks are
tried with stand-ins for the driver, the compiler and the folders; the command is
tried in fresh processes, one of them a Python that has no package at all.
"""

from __future__ import annotations

import ast
import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import textwrap
import time
import tomllib
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import generated
from generated import environment
from generated.environment import GIB, Finding, Gpu, Machine, judge, summary

ROOT = Path(generated.__file__).resolve().parents[1]
FILE = ROOT / "generated/environment.py"
H200 = Gpu("NVIDIA H200", 140 * GIB, (9, 0))
NO_DRIVER = "no GPU driver is installed (libcuda.so.1 cannot be loaded)"

HEALTHY = Machine(
    system="Linux",
    release="6.8.0-45-generic",
    architecture="x86_64",
    libc="glibc 2.39",
    python=(3, 12, 3),
    shared_memory=16 * GIB,
    compiler=("gcc", "13"),
    headers=True,
    versions={"torch": "2.13.0+cu130", "triton": "3.7.1", "numpy": "2.4.6"},
    pinned="3.7.1",
    build="cuda",
    build_cuda="13.0",
    cards=1,
    driver="580.82.07",
    driver_cuda=(13, 0),
    gpus=(H200,),
    at_start={},
    assemblers={"ptxas": "12.9"},
    cache="~/.triton/cache",
    cache_free=100 * GIB,
    installed=(generated.__version__, "editable"),
    workshop=True,
    lacking={"book": [], "test": []},
    steps={"torch": {"version": "2.13.0"}, "triton": {"version": "3.7.1"}},
)
BARE = replace(  # the same without a GPU, as `generated` leaves it
    HEALTHY,
    versions=dict(HEALTHY.versions) | {"torch": "2.13.0+cpu"},
    pinned="",
    build="cpu",
    build_cuda="",
    cards=0,
    driver="",
    driver_cuda=(0, 0),
    gpus=(),
    no_nvidia=NO_DRIVER,
    no_gpu="the installed PyTorch is a CPU-only build",
    variables={"TRITON_INTERPRET": "1"},
)


def versions(**changed):
    return dict(HEALTHY.versions) | changed


def findings(machine: Machine) -> dict[str, Finding]:
    return {f.name: f for found in judge(machine).values() for f in found}


# --- the checks -----------------------------------------------------------------------


@pytest.mark.parametrize("machine", [HEALTHY, BARE], ids=["gpu", "cpu"])
def test_a_machine_in_order_has_nothing_to_mend(machine):
    assert {f.state for f in findings(machine).values()} == {"ok"}
    assert not any(f.mend for f in findings(machine).values())
    answer = summary(machine)
    assert (answer["exit"], answer["missing"], answer["warnings"]) == (0, 0, 0)
    assert answer["launches"] == ("gpu" if machine is HEALTHY else "interpreter")


GPU_PATIENTS = {
    "macOS": ({"system": "Darwin"}, "system", "missing", "WSL 2"),
    "another processor": (
        {"architecture": "riscv64"},
        "system",
        "missing",
        "x86_64 or aarch64",
    ),
    "musl": ({"libc": ""}, "system", "missing", "glibc"),
    "old python": ({"python": (3, 10, 9)}, "Python", "missing", "python3.12 -m venv"),
    "no compiler": ({"compiler": ("", "")}, "C compiler", "missing", "apt install"),
    "bad CC": ({"compiler": ("icc", "")}, "C compiler", "missing", "unset CC"),
    "no headers": ({"headers": False}, "Python.h", "missing", "python3-dev"),
    "docker's shm": ({"shared_memory": 2**26}, "/dev/shm", "warn", "--shm-size"),
    "cache read-only": (
        {"cache_fault": "Read-only file system"},
        "compile cache",
        "missing",
        "TRITON_CACHE_DIR",
    ),
    "cache full": (
        {"cache_free": 2**20},
        "compile cache",
        "warn",
        "TRITON_CACHE_DIR",
    ),
    "cache noexec": (
        {"cache_runs": False},
        "compile cache",
        "missing",
        "TRITON_CACHE_DIR",
    ),
    "no torch": (
        {"versions": versions(torch=""), "steps": {}},
        "torch",
        "missing",
        'pip install --upgrade "torch>=2.11"',
    ),
    "old torch": (
        {"versions": versions(torch="2.9.1")},
        "torch",
        "missing",
        "torch>=2.11",
    ),
    "CPU torch on a GPU machine": (
        {
            "versions": versions(torch="2.13.0+cpu"),
            "build": "cpu",
            "build_cuda": "",
            "no_gpu": "the installed PyTorch is a CPU-only build",
        },
        "torch",
        "missing",
        "selector",
    ),
    "broken torch": (
        {"steps": {"torch": {"error": "ImportError: libc10.so"}}},
        "torch",
        "missing",
        "--force-reinstall torch",
    ),
    "no triton": (
        {"versions": versions(triton=""), "steps": {}, "assemblers": {}},
        "triton",
        "missing",
        "triton>=3.6",
    ),
    "old triton": (
        {"versions": versions(triton="3.5.1"), "pinned": ""},
        "triton",
        "missing",
        "triton>=3.6",
    ),
    "new triton": (
        {"versions": versions(triton="3.10.0"), "pinned": "3.10.0"},
        "triton",
        "warn",
        "triton>=3.6,<3.10",
    ),
    "triton that torch did not ask for": (
        {"versions": versions(triton="3.9.0")},
        "triton",
        "warn",
        "triton==3.7.1",
    ),
    "broken triton": (
        {"steps": {"triton": {"error": "ImportError: libtriton.so"}}},
        "triton",
        "missing",
        "--force-reinstall triton",
    ),
    "known cause of a broken triton": (
        {
            "steps": {
                "triton": {
                    "error": "ImportError",
                    "stderr": "`GLIBCXX_3.4.30' not found",
                }
            }
        },
        "triton",
        "missing",
        "libstdcxx-ng",
    ),
    "old numpy": ({"versions": versions(numpy="1.24")}, "numpy", "missing", "1.26"),
    "numpy clash": (
        {"versions": versions(triton="3.6.0", numpy="2.4.0"), "pinned": ""},
        "numpy",
        "warn",
        "numpy<2.4",
    ),
    "hidden GPU": (
        {
            "variables": {"CUDA_VISIBLE_DEVICES": ""},
            "no_nvidia": "CUDA_VISIBLE_DEVICES='' hides every GPU",
            "no_gpu": "CUDA_VISIBLE_DEVICES='' hides every GPU",
        },
        "visible",
        "warn",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "old GPU": (
        {"gpus": (Gpu("Tesla P100", 16 * GIB, (6, 0)),)},
        "GPU",
        "missing",
        "TRITON_INTERPRET=1",
    ),
    "old driver": ({"driver_cuda": (12, 4)}, "CUDA", "missing", "driver 580"),
    "interpreter left on": (
        {
            "variables": {"TRITON_INTERPRET": "on"},
            "at_start": {"TRITON_INTERPRET": "on"},
        },
        "TRITON_INTERPRET",
        "warn",
        "unset TRITON_INTERPRET",
    ),
    "no ptxas": ({"assemblers": {}}, "assembler", "missing", "reinstall triton"),
    "bad ptxas": (
        {"assemblers": {"ptxas": ""}, "variables": {"TRITON_PTXAS_PATH": "/x"}},
        "assembler",
        "missing",
        "unset TRITON_PTXAS_PATH",
    ),
    "another copy installed": (
        {"installed": ("0.0.9", "other")},
        "package",
        "warn",
        "pip install -e .",
    ),
    "an older install": (
        {"installed": ("0.0.9", "editable")},
        "package",
        "warn",
        "pip install -e .",
    ),
    "wrong numbers": (
        {"steps": {"on_gpu": {"device": "x", "n": 8, "wrong": 3}}},
        "a kernel",
        "missing",
        "report it",
    ),
    "slow GPU": (
        {
            "steps": {
                "on_gpu": {
                    "device": "x",
                    "n": 8,
                    "wrong": 0,
                    "first": 1.0,
                    "add": 50.0,
                    "copy": 100.0,
                }
            }
        },
        "a kernel",
        "warn",
        "nvidia-smi",
    ),
    "no libcuda for the loader": (
        {"steps": {"on_gpu": {"error": "AssertionError: libcuda.so cannot found!"}}},
        "a kernel",
        "missing",
        "ldconfig",
    ),
    "headers seen to miss": (
        {"steps": {"on_gpu": {"error": "exit 1", "stderr": "Python.h: No such file"}}},
        "a kernel",
        "missing",
        "python3-dev",
    ),
}


@pytest.mark.parametrize("trouble", GPU_PATIENTS)
def test_one_trouble_gives_one_finding_with_its_mend(trouble):
    changed, name, state, mend = GPU_PATIENTS[trouble]
    machine = replace(HEALTHY, **changed)
    bad = [f for f in findings(machine).values() if f.state != "ok"]
    assert [(f.name, f.state) for f in bad] == [(name, state)]
    assert mend in bad[0].mend
    assert bad[0].found
    assert summary(machine)["exit"] == (state == "missing")


@pytest.mark.parametrize(
    "code, mend",
    [("9", "modprobe"), ("18", "restart"), ("4", "group"), ("999", "nvidia-smi")],
)
def test_a_driver_that_does_not_answer(code, mend):
    reason = f"the NVIDIA driver finds no usable GPU (NVML error {code})"
    machine = replace(
        HEALTHY, gpus=(), driver="", no_nvidia=reason, no_gpu=reason, cards=1
    )
    finding = findings(machine)["driver"]
    assert finding.state == "missing"
    assert mend in finding.mend
    assert summary(machine)["exit"] == 1


def test_a_card_without_a_driver_is_a_warning():
    finding = findings(replace(BARE, cards=2))["driver"]
    assert finding.state == "warn"
    assert "--gpus all" in finding.mend
    assert summary(replace(BARE, cards=2))["exit"] == 0


def test_without_a_gpu_its_tools_are_not_needed():
    machine = replace(BARE, compiler=("", ""), headers=False, cache_runs=False)
    assert {f.state for f in findings(machine).values()} == {"ok"}
    assert "only a machine with a GPU" in findings(machine)["C compiler"].found


@pytest.mark.parametrize(
    "value, no_gpu, launches, state",
    [
        (None, "", "gpu", "ok"),
        (None, "none", "interpreter", "ok"),
        ("0", "", "gpu", "ok"),
        ("0", "none", "nothing", "missing"),
        ("1", "", "interpreter", "warn"),
        ("YES", "none", "interpreter", "ok"),
    ],
)
def test_where_kernels_run(value, no_gpu, launches, state):
    variables = {} if value is None else {"TRITON_INTERPRET": value}
    machine = replace(HEALTHY, no_gpu=no_gpu, variables=variables, at_start=variables)
    assert machine.launches == launches
    assert findings(machine)["TRITON_INTERPRET"].state == state
    assert summary(machine)["launches"] == launches


def test_who_set_the_variable():
    by = {"TRITON_INTERPRET": "1"}
    said = [
        findings(replace(BARE, at_start=start))["TRITON_INTERPRET"].found
        for start in (by, {}, None)
    ]
    assert "before Python started" in said[0]
    assert "by the package" in said[1]
    assert "cannot be seen" in said[2]


def test_several_gpus():
    two = findings(replace(HEALTHY, gpus=(H200, H200)))["GPU"]
    assert two.found.startswith("2 x NVIDIA H200, 140 GiB, capability 9.0")
    mixed = replace(HEALTHY, gpus=(Gpu("Tesla P4", 8 * GIB, (6, 1)), H200))
    assert findings(mixed)["GPU"].state == "ok"


def test_a_kernel_that_could_not_be_tried_blames_the_package():
    steps = {"torch": {"error": "x"}, "interpreted": {"error": "y"}}
    finding = findings(replace(BARE, steps=steps))["a kernel"]
    assert finding == ("a kernel", "missing", "not tried, because of torch", "")


def test_what_is_optional_is_never_missing():
    machine = replace(BARE, lacking={"book": ["typst"], "test": [], "quarto": ["q"]})
    finding = findings(machine)["workshop"]
    assert finding.state == "ok"
    assert "typst" in finding.found
    assert "'.[book]'" in finding.mend
    alone = findings(replace(machine, workshop=False))
    assert "package alone" in alone["workshop"].found
    assert "renderer" not in alone


def test_checks_survive_an_empty_record_and_their_own_faults(monkeypatch):
    assert summary(Machine())["exit"] == 1
    assert environment.as_text(summary(Machine()))

    def check_nothing(machine):
        raise KeyError("x")

    monkeypatch.setitem(environment.CHECKS, "Tried", (check_nothing,))
    (finding,) = judge(HEALTHY)["Tried"]
    assert finding == ("nothing", "warn", "cannot be judged: KeyError: 'x'", "")


def test_the_limits_are_the_projects():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    limits = {
        "numpy": environment.NUMPY,
        "torch": environment.TORCH,
        "triton": environment.TRITON,
    }
    for line in project["dependencies"]:
        name, minimum = re.match(r"(\w+)>=([\d.]+)", line).groups()
        assert limits.pop(name) == environment._release(minimum)
    assert limits == {}
    python = project["requires-python"].removeprefix(">=")
    assert environment.PYTHON == environment._release(python)


def test_known_messages():
    names = [known.name for known in environment.KNOWN]
    assert len(set(names)) == len(names) >= 10
    for known in environment.KNOWN:
        re.compile(known.message)
        assert known.cause and known.mend
        assert known.mend.count("`") % 2 == 0
    step = {"error": "RuntimeError: CUDA error: no kernel image is available"}
    assert "torch>=2.11" in environment.known_mend(step)
    assert environment.known_mend({"error": "something else"}) == ""


# --- the looks ------------------------------------------------------------------------


class Driver:
    """NVML with two GPUs, one of which cannot be asked."""

    stopped = 0

    def nvmlInit_v2(self):
        return 0

    def nvmlShutdown(self):
        Driver.stopped += 1

    def nvmlSystemGetDriverVersion(self, text, size):
        text.value = b"580.82.07"

    def nvmlSystemGetCudaDriverVersion_v2(self, number):
        number._obj.value = 13010

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = index + 1
        return index  # the second gives an error code

    def nvmlDeviceGetName(self, handle, text, size):
        text.value = b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle, memory):
        memory._obj[0] = 140 * GIB

    def nvmlDeviceGetCudaComputeCapability(self, handle, major, minor):
        major._obj.value, minor._obj.value = 9, 0


def test_the_driver_is_asked_and_let_go(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    Driver.stopped = 0
    assert environment._nvml() == {
        "driver": "580.82.07",
        "driver_cuda": (13, 1),
        "gpus": (H200,),
    }
    assert Driver.stopped == 1


@pytest.mark.parametrize("fault", [OSError, AttributeError])
def test_no_driver_library(monkeypatch, fault):
    def load(name):
        raise fault(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert environment._nvml() == {}


def test_the_compiler_is_the_one_that_triton_calls(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment._compiler() == ("", "")
    for name, version in (("clang", "19.1"), ("gcc", "13")):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\necho {version}\n")
        tool.chmod(0o755)
        assert environment._compiler() == (name, version)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert environment._compiler() == ("no-such-compiler", "")


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "not" / "yet"))
    found = environment._cache()
    assert found["cache"] == str(tmp_path / "not" / "yet")
    assert "cache_fault" not in found
    assert found["cache_free"] > 0
    assert not (tmp_path / "not").exists()  # looking makes nothing
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(file / "below"))
    assert "irectory" in environment._cache()["cache_fault"]
    monkeypatch.delenv("TRITON_CACHE_DIR")
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert environment._cache()["cache"] == str(tmp_path / ".triton" / "cache")


def test_a_cache_that_may_not_be_written_to(monkeypatch, tmp_path):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(environment.tempfile, "TemporaryFile", refuse)
    assert environment._cache()["cache_fault"] == "Permission denied"


def test_triton_agrees_about_the_cache_folder(monkeypatch, tmp_path):
    knobs = pytest.importorskip("triton.knobs")
    for name in ("TRITON_CACHE_DIR", "TRITON_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = os.path.expanduser("~")
    assert knobs.cache.dir.replace(home, "~", 1) == environment._cache()["cache"]
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert knobs.cache.dir == environment._cache()["cache"]


def test_looking_survives_everything(monkeypatch):
    def broken():
        raise RuntimeError("no such thing")

    for name in environment._LOOKS:
        monkeypatch.setitem(environment._LOOKS, name, broken)
    machine = environment.look()
    assert len(machine.unseen) == len(environment._LOOKS)
    assert "system (RuntimeError: no such thing)" in machine.unseen
    text = environment.as_text(summary(machine))
    assert "not seen" in text


@pytest.mark.parametrize(
    "version, numbers",
    [("2.13.0+cpu", (2, 13, 0)), ("3.7", (3, 7)), ("3.6.0rc1", (3, 6, 0)), ("", ())],
)
def test_release(version, numbers):
    assert environment._release(version) == numbers


def runs(pid):
    """Whether a process is there and is no zombie, a second after it was killed."""
    for _ in range(20):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state in "ZX":
            return False
        time.sleep(0.05)
    return True


def test_a_program_that_hangs_is_ended_with_its_children():
    start = time.monotonic()
    script = "sleep 60 & echo $!; sleep 60"
    said, _, how = environment._ask(["sh", "-c", script], 0.5)
    assert time.monotonic() - start < 5
    assert how == "no answer within 0 s"
    assert not runs(int(said))
    assert environment._ask(["/no/such/program"], 1)[2].startswith("/no/such/program")
    assert environment._ask(["sh", "-c", "exit 3"], 5)[2] == "exit status 3"


# --- what is tried --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, error",
    [
        ("raise ImportError('libtriton.so is broken')", "libtriton.so is broken"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("import time; time.sleep(60)", "no answer within 3 s"),
        ("print('hello')", "AttributeError"),  # a file of that name: no jit
    ],
)
def test_a_broken_package_is_named(monkeypatch, tmp_path, text, error):
    (tmp_path / "torch.py").write_text("print('noise')\n__version__ = '2.13.0'\n")
    (tmp_path / "triton.py").write_text(text + "\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    steps = environment.try_steps("torch,triton", {}, seconds=3)
    assert steps["torch"] == {"version": "2.13.0"}
    assert error in steps["triton"]["error"]


# --- the command ----------------------------------------------------------------------


def command(*arguments, python=sys.executable, path=ROOT, cwd=None, **variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    env = kept | {"PYTHONPATH": str(path), "CUDA_VISIBLE_DEVICES": ""} | variables
    return subprocess.run(
        [python, "-m", "generated.environment", *arguments],
        cwd=cwd or path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the wheel unpacked, which is what installing it amounts to."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("wheel")
    make = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    target = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(target)
    return target


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A Python that has no package at all."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, symlinks=True, with_pip=False)
    return str(folder / "bin" / "python")


def test_the_interpreter_path_is_quick_and_all_right(tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = command(cwd=tmp_path, HOME=str(tmp_path))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "vector_add of 1,000 numbers in the interpreter: all" in done.stdout
    assert "the same for sm_90" in done.stdout
    assert "set by the package" in done.stdout
    assert "Kernels run on the CPU, in Triton's interpreter." in done.stdout
    assert max(map(len, done.stdout.split("\n"))) <= 84
    # Seconds of processor time: what else runs here does not count.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15
    assert "~/.triton/cache" in done.stdout
    assert not (tmp_path / ".triton").exists()  # what is tried leaves nothing behind


def test_from_a_wheel_without_the_workshop(site, tmp_path):
    done = command("--json", path=site, cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert done.returncode == answer["exit"] == 0, done.stdout
    by_name = {f["name"]: f for f in answer["findings"]}
    assert by_name["package"]["found"].endswith("from a wheel")
    assert by_name["workshop"]["found"] == "not here: the package alone"
    assert "renderer" not in by_name
    assert by_name["a kernel"]["state"] == "ok"


def test_where_no_package_is_installed(site, empty, tmp_path):
    done = command("--json", python=empty, path=site, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    answer = json.loads(done.stdout)
    missing = {f["name"] for f in answer["findings"] if f["state"] == "missing"}
    assert missing >= {"torch", "triton", "numpy"}
    assert answer["launches"] == "nothing"
    by_name = {f["name"]: f for f in answer["findings"]}
    assert by_name["torch"]["mend"] == 'pip install --upgrade "torch>=2.11"'
    text = command("--no-run", python=empty, path=site, cwd=tmp_path).stdout
    assert "No kernel can be run here as it is." in text


def test_the_json_has_its_schema():
    done = command("--json", "--no-run", TRITON_INTERPRET="0")
    answer = json.loads(done.stdout)
    assert list(answer) == [
        "format",
        "exit",
        "launches",
        "warnings",
        "missing",
        "findings",
    ]
    assert answer["format"] == 1
    assert (done.returncode, answer["exit"], answer["launches"]) == (1, 1, "nothing")
    for finding in answer["findings"]:
        assert list(finding) == ["section", "name", "state", "found", "mend"]
        assert finding["section"] in environment.CHECKS
        assert finding["state"] in ("ok", "warn", "missing")
        assert all(isinstance(value, str) for value in finding.values())
        assert finding["section"] != "Tried"
    states = [finding["state"] for finding in answer["findings"]]
    assert answer["missing"] == states.count("missing") == 1
    assert answer["warnings"] == states.count("warn")
    (finding,) = [f for f in answer["findings"] if f["name"] == "TRITON_INTERPRET"]
    assert "set before Python started" in finding["found"]


def test_an_unknown_argument():
    done = command("--quick")
    assert done.returncode == 2
    assert "--quick" in done.stderr
    assert done.stdout == ""


def test_report_is_a_text(monkeypatch):
    monkeypatch.setattr(environment, "examine", lambda run: HEALTHY)
    text = environment.report()
    assert text.startswith("The machine\n  ok       system")
    assert text.endswith("Kernels run on the GPU.\nNothing is missing.")


@pytest.mark.gpu
def test_on_a_gpu():
    import torch

    if not torch.cuda.is_available() or generated.interpreting():
        pytest.skip("needs a CUDA GPU")
    answer = summary(environment.examine())
    assert answer["launches"] == "gpu"
    (finding,) = [f for f in answer["findings"] if f["name"] == "a kernel"]
    assert finding["state"] == "ok", finding
    assert "GB/s" in finding["found"]


# --- the module -----------------------------------------------------------------------


def test_an_old_python_can_read_it_and_its_import_loads_nothing():
    for path in (FILE, FILE.with_name("__init__.py")):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    code = """
        import sys, generated.environment
        heavy = {name.partition(".")[0] for name in sys.modules}
        print(heavy & {"torch", "triton", "numpy"})
    """
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"


def test_a_notebook_does_not_run_the_command():
    """Its cells are in a module `__main__` as well, which has no spec."""
    code = f"exec(compile(open({str(FILE)!r}).read(), 'x', 'exec')); print('went on')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "went on\n"

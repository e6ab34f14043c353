"""The package's front door: `generated/__init__.py`, which is the preface.

Importing happens once in a process, so selection is tried in fresh ones. Most of them
get stand-ins for torch and triton and for the driver's libraries, which makes them
fast and independent of the machine; a few use the real ones.
"""

from __future__ import annotations

import ast
import ctypes
import itertools
import json
import operator
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import generated

ROOT = Path(generated.__file__).resolve().parent.parent
LOAD = ctypes.CDLL
CHOICES = [None, "1", "true", "0", "", "off"]
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

TRITON = """
import os

class InterpretedFunction: pass
class JITFunction: pass

interpret = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true")
sum = InterpretedFunction() if interpret else JITFunction()
"""
BACKENDS = """
import os
from types import SimpleNamespace

def active():
    print("asked")
    return os.environ.get("STAND_IN_ACTIVE") == "1"

backends = {"nvidia": SimpleNamespace(driver=SimpleNamespace(is_active=active))}
"""
PRELUDE = """
import ctypes, json, logging, os, sys

class Libraries:
    "What ctypes loads: `devices` NVIDIA GPUs, or no driver at all."
    def __init__(self, devices): self.devices = devices
    def __call__(self, name):
        if self.devices is None: raise OSError(name)
        if name == "libcuda.so.1": return object()  # any call of cuInit would fail
        assert name == "libnvidia-ml.so.1", name
        return self
    def nvmlInit_v2(self): return 0
    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = self.devices
        return 0
    def nvmlShutdown(self): return 0

devices = json.loads(os.environ["STAND_IN_DEVICES"])
ctypes.CDLL = Libraries(devices)
records = []
class Keep(logging.Handler):
    def emit(self, record): records.append([record.levelname, record.getMessage()])
logging.getLogger("generated").setLevel(1)
logging.getLogger("generated").addHandler(Keep())
"""
REPORT = """
import generated
print(json.dumps({
    "variable": os.environ.get("TRITON_INTERPRET"),
    "interpreting": generated.interpreting(),
    "records": records,
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """A folder with a torch and a triton that are quick to import."""
    folder = tmp_path_factory.mktemp("stand-ins")
    for name, text in {
        "torch/__init__.py": "",
        "torch/version.py": "cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n",
        "triton/__init__.py": "from triton import language\n",
        "triton/language/__init__.py": TRITON,
        "triton/backends/__init__.py": BACKENDS,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def python(code, path=(), **variables):
    """Run `code` in a fresh process; a variable that is None is not set."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    for name in VISIBLE:
        environment.pop(name, None)
    environment["PYTHONPATH"] = os.pathsep.join(map(str, [*path, ROOT]))
    environment |= {k: v for k, v in variables.items() if v is not None}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def selection(stand_ins, before="", devices=None, **variables):
    """What importing `generated` after `before` selects, as `REPORT` says."""
    variables["STAND_IN_DEVICES"] = json.dumps(devices)
    done = python(PRELUDE + before + REPORT, [stand_ins], **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


# --- selection ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choice, devices, imported",
    list(itertools.product(CHOICES, [None, 0, 2], [False, True])),
)
def test_selection(stand_ins, choice, devices, imported):
    before = "import triton\n" if imported else ""
    found = selection(stand_ins, before, devices, TRITON_INTERPRET=choice)
    chosen = choice is None and not devices and not imported
    assert found["variable"] == ("1" if chosen else choice)
    assert found["interpreting"] is (chosen or choice in ("1", "true"))
    assert "torch" not in found["modules"]
    assert ("triton" in found["modules"]) is imported
    ((level, message),) = found["records"]
    if choice is not None:
        assert (level, message) == (
            "DEBUG",
            f"TRITON_INTERPRET={choice!r} is respected",
        )
    elif devices:
        assert (level, message) == ("DEBUG", "kernels are compiled for the GPU")
    elif imported:
        assert level == "WARNING"
        assert "import generated before triton" in message
        assert "TRITON_INTERPRET=1 before Python starts" in message
    else:
        assert level == "INFO"
        assert message.endswith("TRITON_INTERPRET=1 is set, kernels run on the CPU")


def test_devices_hidden_from_cuda_are_no_devices(stand_ins):
    found = selection(stand_ins, devices=2, CUDA_VISIBLE_DEVICES="")
    assert found["variable"] == "1"
    assert "CUDA_VISIBLE_DEVICES='' hides every GPU" in found["records"][0][1]


@pytest.mark.parametrize("late", ["'1'", "'0'", None])
def test_a_variable_that_changes_after_triton_was_imported(stand_ins, late):
    """Set late, or taken away late: own kernels and Triton's library disagree."""
    change = f"os.environ['TRITON_INTERPRET'] = {late}\n"
    if late is None:
        change = "del os.environ['TRITON_INTERPRET']\n"
    before = f"import triton\n{change}"
    start = None if late == "'1'" else "1"
    found = selection(stand_ins, before, TRITON_INTERPRET=start)
    assert found["variable"] == (late and late.strip("'"))
    ((level, message),) = found["records"]
    assert level == "WARNING"
    assert "after triton was imported" in message
    ask = "import generated\ngenerated.require_launchable()\n"
    done = python("import os\n" + before + ask, [stand_ins], TRITON_INTERPRET=start)
    assert f"RuntimeError: {message}" in done.stderr


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_can_import_and_are_told(stand_ins, system):
    found = selection(stand_ins, f"sys.platform = {system!r}\n")
    assert found["variable"] is None
    assert found["records"] == [
        ["INFO", f"Triton is published for Linux only, and this is {system}"]
    ]


def test_a_child_inherits_the_choice(stand_ins):
    code = (
        "import generated, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import os, generated;"
        ' print(os.environ["TRITON_INTERPRET"], generated.interpreting())\'])'
    )
    assert python(code, [stand_ins], CUDA_VISIBLE_DEVICES="").stdout == "1 True\n"


def test_importing_prints_nothing_unless_it_is_too_late(stand_ins):
    for choice in (None, "1", "0"):
        done = python(
            "import generated",
            [stand_ins],
            CUDA_VISIBLE_DEVICES="",
            TRITON_INTERPRET=choice,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = python("import triton, generated", [stand_ins], CUDA_VISIBLE_DEVICES="")
    assert done.stderr.count("triton was imported before generated") == 1
    assert done.stdout == ""


def test_importing_is_fast_and_imports_nothing_large():
    code = (
        "import sys, time; start = time.perf_counter(); import generated\n"
        "print(time.perf_counter() - start)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    runs = [python(code).stdout.split("\n") for _ in range(5)]
    assert min(float(run[0]) for run in runs) < 0.1
    assert not {"torch", "triton", "numpy", "subprocess"} & set(runs[0][1].split())


# --- the probe ------------------------------------------------------------------------


class Driver:
    """Stands for ctypes.CDLL: named libraries, every other one cannot be loaded."""

    def __init__(self, **libraries):
        self.libraries = {
            "libcuda.so.1": libraries.get("cuda"),
            "libnvidia-ml.so.1": libraries.get("nvml"),
        }

    def __call__(self, name):
        if self.libraries[name] is None:
            raise OSError(f"{name}: cannot open shared object file")
        return self.libraries[name]


class Nvml:
    """NVML that starts with one code and counts with another."""

    def __init__(self, devices=0, start=0, count=0):
        self.devices, self.start, self.count = devices, start, count
        self.open = 0

    def nvmlInit_v2(self):
        self.open += self.start == 0
        return self.start

    def nvmlShutdown(self):
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, number):
        number._obj.value = self.devices
        return self.count


CUDA = SimpleNamespace()  # no cuInit: whoever calls it fails


@pytest.fixture
def machine(monkeypatch):
    """Set what is installed; the variables that hide devices are not set."""
    for name in VISIBLE:
        monkeypatch.delenv(name, raising=False)

    def install(**libraries):
        monkeypatch.setattr(generated.ctypes, "CDLL", Driver(**libraries))

    return install


@pytest.mark.parametrize(
    "visible, left",
    [
        (None, True),
        ("0", True),
        ("1", True),
        ("1,0", True),
        (" 1 , 7", True),
        ("2", False),
        ("2,0", False),
        ("", False),
        (" ", False),
        (",0", False),
        ("-1", False),
        ("-1,0", False),
        ("NoDevFiles", False),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", True),
        ("MIG-GPU-8932f937/1/0", True),
    ],
)
def test_visible_devices(machine, monkeypatch, visible, left):
    machine(cuda=CUDA, nvml=Nvml(devices=2))
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    reason = generated._no_nvidia()
    assert reason == (
        "" if left else f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"
    )


def test_no_driver(machine):
    machine()
    assert "libcuda.so.1 cannot be loaded" in generated._no_nvidia()
    machine(nvml=Nvml(devices=2))  # a container without the compute libraries
    assert "libcuda.so.1 cannot be loaded" in generated._no_nvidia()
    machine(cuda=CUDA, nvml=Nvml(devices=0))
    assert generated._no_nvidia() == "the driver finds no GPU"


@pytest.mark.parametrize(
    "nvml, code, warned",
    [
        (Nvml(start=9), 9, False),  # driver not loaded: a machine without a GPU
        (Nvml(start=18), 18, True),  # library and kernel module do not match
        (Nvml(count=999), 999, True),
    ],
)
def test_a_driver_that_does_not_work(machine, caplog, nvml, code, warned):
    machine(cuda=CUDA, nvml=nvml)
    assert f"NVML error {code}" in generated._no_nvidia()
    assert nvml.open == 0
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == warned
    if warned:
        assert "installed and does not work: NVML error" in messages[0]
        assert caplog.records[0].levelname == "WARNING"


@pytest.mark.parametrize(
    "printed, reason, warned",
    [
        ("0 2\n", "", False),
        ("0 0\n", "the driver finds no GPU", False),
        ("100 0\n", "the NVIDIA driver finds no usable GPU (CUDA error 100)", False),
        ("802 0\n", "the NVIDIA driver finds no usable GPU (CUDA error 802)", True),
        ("", "", False),  # the child died: a launch will tell
        ("Segmentation fault", "", False),
    ],
)
@pytest.mark.parametrize("nvml", [None, SimpleNamespace()])
def test_without_nvml_a_child_is_asked(
    machine, monkeypatch, caplog, printed, reason, warned, nvml
):
    machine(cuda=CUDA, nvml=nvml)
    asked = []

    def run(command, **options):
        asked.append(command)
        return SimpleNamespace(stdout=printed)

    monkeypatch.setattr(subprocess, "run", run)
    assert generated._no_nvidia() == reason
    assert asked[0][0] == sys.executable
    assert len(caplog.records) == warned


def test_a_child_that_cannot_be_asked_decides_nothing(machine, monkeypatch):
    machine(cuda=CUDA)

    def fail(*_, **__):
        raise subprocess.TimeoutExpired("python", 30)

    monkeypatch.setattr(subprocess, "run", fail)
    assert generated._no_nvidia() == ""
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("was started"))
    for executable in ("/usr/bin/blender", "", None):
        monkeypatch.setattr(sys, "executable", executable)
        assert generated._no_nvidia() == ""


def compiled(folder, name, text):
    """A shared library made of C."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    command = [shutil.which("gcc"), "-shared", "-fPIC", source, "-o", library]
    subprocess.run(command, check=True)
    return LOAD(str(library))


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
def test_the_probe_against_real_shared_libraries(machine, tmp_path):
    """The calling convention: an unsigned int is written where the probe says."""
    text = "int nvmlInit_v2(void) { return 0; }\n"
    text += "int nvmlDeviceGetCount_v2(unsigned *n) { *n = %d; return 0; }\n"
    text += "int nvmlShutdown(void) { return 0; }\n"
    cuda = compiled(tmp_path, "cuda", "int cuInit(unsigned f) { __builtin_trap(); }")
    machine(cuda=cuda, nvml=compiled(tmp_path, "three", text % 3))
    assert generated._no_nvidia() == ""
    machine(cuda=cuda, nvml=compiled(tmp_path, "none", text % 0))
    assert generated._no_nvidia() == "the driver finds no GPU"


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
def test_the_child_counts_with_cuda(tmp_path):
    """The code the child runs, on a CUDA that finds four devices, then on none."""
    text = "int cuInit(unsigned f) { return %d; }\n"
    text += "int cuDeviceGetCount(int *n) { *n = 4; return 0; }\n"
    for code, printed in ((0, "0 4\n"), (100, "100 0\n")):
        library = compiled(tmp_path, f"cuda{code}", text % code)._name
        child = generated._CUDA_IN_CHILD.replace("libcuda.so.1", library)
        assert python(child).stdout == printed


@pytest.mark.parametrize(
    "text, build",
    [
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", "cuda"),
        ("cuda = '13.0'\nhip = None\n", "cuda"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n", "hip"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", "cpu"),
        ("__version__ = '9.0'\n", ""),
        (None, ""),
    ],
)
def test_what_torch_was_built_for(monkeypatch, tmp_path, text, build):
    if text is not None:
        (tmp_path / "version.py").write_text(text)
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(generated.importlib.util, "find_spec", lambda name: spec)
    assert generated._torch_build() == build


def test_torch_that_cannot_be_found(monkeypatch):
    find_spec = "generated.importlib.util.find_spec"
    monkeypatch.setattr(find_spec, lambda name: None)
    assert generated._torch_build() == ""
    monkeypatch.setattr(find_spec, lambda name: SimpleNamespace(origin=None))
    assert generated._torch_build() == ""

    def none_in_sys_modules(name):
        raise ValueError(f"{name}.__spec__ is None")

    monkeypatch.setattr(find_spec, none_in_sys_modules)
    assert generated._torch_build() == ""


def test_the_installed_torch_says_what_it_was_built_for():
    torch = pytest.importorskip("torch")
    build = "cuda" if torch.version.cuda else "hip" if torch.version.hip else "cpu"
    assert generated._torch_build() == build


@pytest.mark.parametrize("build", ["cuda", "hip", "cpu", ""])
def test_the_build_decides_which_driver_is_asked(monkeypatch, build):
    monkeypatch.setattr(generated, "_torch_build", lambda: build)
    monkeypatch.setattr(generated, "_no_nvidia", lambda: "no NVIDIA")
    monkeypatch.setattr(generated, "_no_amd", lambda: "no AMD")
    cpu = "the installed PyTorch is a CPU-only build"
    reasons = {"cuda": "no NVIDIA", "hip": "no AMD", "cpu": cpu, "": "no NVIDIA"}
    assert generated._no_gpu() == reasons[build]


@pytest.mark.parametrize(
    "ids, variables, reason",
    [
        (["0", "51543", "12345"], {}, ""),
        (["0\n", "51543\n"], {"HIP_VISIBLE_DEVICES": "0"}, ""),
        (["0"], {}, "the driver finds no GPU"),
        (["0", None], {}, "the driver finds no GPU"),  # may not be read
        (
            ["0", "51543"],
            {"HIP_VISIBLE_DEVICES": "1"},
            "HIP_VISIBLE_DEVICES='1' hides every GPU",
        ),
        (
            ["51543"],
            {"ROCR_VISIBLE_DEVICES": ""},
            "ROCR_VISIBLE_DEVICES='' hides every GPU",
        ),
    ],
)
def test_amd(machine, monkeypatch, tmp_path, ids, variables, reason):
    for number, text in enumerate(ids):
        node = tmp_path / "nodes" / str(number)
        node.mkdir(parents=True)
        if text is not None:
            (node / "gpu_id").write_text(text)
    (tmp_path / "kfd").write_text("")
    monkeypatch.setattr(generated, "_KFD", str(tmp_path / "kfd"))
    monkeypatch.setattr(generated, "_KFD_NODES", str(tmp_path / "nodes"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert generated._no_amd() == reason
    (tmp_path / "kfd").unlink()
    assert "no AMD driver can be reached" in generated._no_amd()


@pytest.mark.gpu
@pytest.mark.skipif(bool(generated._no_gpu()), reason=generated._no_gpu() or "a GPU")
def test_importing_leaves_cuda_usable_in_a_forked_child():
    """What `cuInit` in the import would break."""
    code = (
        "import ctypes, os, generated\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "child = os.fork()\n"
        "if not child: os._exit(cuda.cuInit(0))\n"
        "print(generated.interpreting(), os.waitstatus_to_exitcode("
        "os.waitpid(child, 0)[1]))\n"
    )
    assert python(code).stdout == "False 0\n"


# --- refusing a launch ----------------------------------------------------------------

ASK = """
import generated, triton
for attempt in range(2):
    try:
        print(generated.require_launchable())
    except RuntimeError as error:
        print(f"refused: {error}")
"""


def test_an_interpreter_can_always_launch(stand_ins):
    done = python(ASK, [stand_ins], TRITON_INTERPRET="1")
    assert done.stdout == "None\nNone\n"


def test_triton_is_asked_once_where_it_can_launch(stand_ins):
    done = python(ASK, [stand_ins], TRITON_INTERPRET="0", STAND_IN_ACTIVE="1")
    assert done.stdout == "asked\nNone\nNone\n"


def test_a_choice_to_compile_without_a_gpu_is_refused_with_the_mends(stand_ins):
    done = python(ASK, [stand_ins], TRITON_INTERPRET="0")
    lines = done.stdout.splitlines()
    assert len(lines) == 4  # asked and refused, twice: a failure is not remembered
    assert "TRITON_INTERPRET='0' asks for compiled kernels" in lines[1]
    assert "set TRITON_INTERPRET=1 before Python starts" in lines[1]


def test_the_real_triton_imported_first():
    """The one state that cannot be mended from inside names both mends."""
    pytest.importorskip("triton")
    code = (
        "import triton, os, generated\n"
        "assert 'TRITON_INTERPRET' not in os.environ\n"
        "generated.require_launchable()\n"
    )
    done = python(code, CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="")
    last = done.stderr.rstrip().split("\n")[-1]
    assert last.startswith("RuntimeError: Triton finds no GPU to launch a kernel on")
    assert "import generated before triton" in last
    assert "set TRITON_INTERPRET=1 before Python starts" in last


def test_values_are_read_as_the_real_triton_reads_them():
    """Eleven spellings, by Triton's own reader and by ours, and a library function."""
    pytest.importorskip("triton")
    values = ["1", "true", "TRUE", "on", "Yes", "y", "", "0", "2", "false", " 1"]
    code = (
        "import os, generated, triton.language as tl\n"
        "from triton import knobs\n"
        f"for value in {values!r}:\n"
        "    os.environ['TRITON_INTERPRET'] = value\n"
        "    assert knobs.runtime.interpret is generated.interpreting(), value\n"
        "print(generated._imported_interpreting(), type(tl.sum).__name__)\n"
    )
    done = python(code, TRITON_INTERPRET="1")
    assert done.stdout == "True InterpretedFunction\n", done.stderr
    done = python(code, TRITON_INTERPRET="0")
    assert done.stdout == "False JITFunction\n", done.stderr


# --- names ----------------------------------------------------------------------------


def test_names_resolve_to_what_their_chapter_defines():
    for module, names in generated._OPERATIONS.items():
        home = getattr(generated, module)
        assert home.__name__ == f"generated.{module}"
        for name in names:
            assert getattr(generated, name) is getattr(home, name)
            assert getattr(home, name).__module__ == home.__name__
            assert name in dir(generated)
        assert module in dir(generated)


def test_a_name_is_loaded_when_it_is_used_and_then_kept():
    code = (
        "import generated, sys\n"
        "def state():\n"
        "    return 'vector_add' in vars(generated), 'generated.jit' in sys.modules\n"
        "print('vector_add' in dir(generated), *state())\n"
        "generated.vector_add\n"
        "print(*state())\n"
    )
    assert python(code).stdout == "True False False\nTrue True\n"


def test_no_module_carries_the_name_of_an_operation():
    modules = {path.stem for path in (ROOT / "generated").glob("*.py")}
    assert set(generated._OPERATIONS) <= modules
    assert not modules & set(generated._HOME)
    assert len(generated._HOME) == sum(map(len, generated._OPERATIONS.values()))


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "generated/__init__.py").read_text())
    (guarded,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.asname: node.module.removeprefix("generated.")
        for node in guarded.body
        for alias in node.names
        if alias.name == alias.asname
    }
    assert seen == generated._HOME


@pytest.mark.parametrize(
    "name, expected",
    [
        ("vectoradd", "near matches: vector_add"),
        ("fused_multiply", "near matches: fused_multiply_add"),
        ("zebra", "it has fused_multiply_add, vector_add"),
    ],
)
def test_an_unknown_name_is_answered_with_those_near_it(name, expected):
    with pytest.raises(AttributeError) as caught:
        getattr(generated, name)
    message = str(caught.value)
    assert message == f"module 'generated' has no attribute {name!r}; {expected}"
    assert caught.value.name == name
    assert not hasattr(generated, name)


def test_unknown_names_elsewhere():
    with pytest.raises(AttributeError) as caught:
        operator.attrgetter("__wrapped__")(generated)
    assert str(caught.value) == "module 'generated' has no attribute '__wrapped__'"
    with pytest.raises(ImportError, match="cannot import name 'zebra'"):
        exec("from generated import zebra", {})


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_a_missing_package_is_named_with_where_to_read_on(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import generated\n"
        "try:\n"
        "    generated.vector_add\n"
        "except ModuleNotFoundError as error:\n"
        "    print(*error.__notes__)\n"
    )
    done = python(code)
    assert done.stdout.startswith(f"{package} is needed to run kernels."), done.stderr


# --- version --------------------------------------------------------------------------


def test_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert generated.__version__ == project["version"]

"""The test suite on a GPU: the chapters' tests natively, and under a sanitizer.

`run(root)` runs ``tests/test_<module>.py`` of every chapter without the interpreter,
counts what passed, failed and was skipped, then runs the tests marked ``sanitize``
under compute-sanitizer's memcheck and racecheck.  Everything has a time limit: the
whole ends within `SECONDS`, and what did not end by then is reported as such.

Appendix A prints the result; ``python -m loom.gpu_report`` prints it as text.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tangle
from loom import keys
from loom.begin import version

SECONDS = 285.0  # for everything
SANITIZER_SHARE = 0.5  # of what is left after the tests, for each of the two tools
JOBS = 4  # test files at a time; they share one GPU
TOOLS = ("memcheck", "racecheck")
COUNTED = ("passed", "failed", "skipped")


def run(root: Path, seconds: float = SECONDS) -> dict[str, Any]:
    """Run it all; what came of it, as JSON data.

    Never raises for a test that fails, hangs or dies: its file has "failed" or a
    reason under "ended".
    """
    start = time.monotonic()
    files = test_files(root)
    with ThreadPoolExecutor(min(JOBS, os.cpu_count() or 1)) as pool:
        limit = 0.6 * seconds
        jobs = [pool.submit(_test_file, root, rel, start + limit) for rel in files]
        results = [job.result() for job in jobs]
    return {
        "device": _device(),
        "versions": {name: version(name) for name in ("triton", "torch", "numpy")},
        "python": ".".join(map(str, sys.version_info[:2])),
        "files": results,
        "sanitizer": _sanitize(root, files, start + seconds),
        "seconds": time.monotonic() - start,
        "digests": digests(root),
    }


def test_files(root: Path) -> list[str]:
    """The test file of each chapter that has a module and a test file."""
    modules = [c.name for c in tangle.read_book(root).chapters if c.module]
    rels = [f"tests/test_{name.strip('_')}.py" for name in modules]
    return [rel for rel in rels if (root / rel).is_file()]


def digests(root: Path) -> dict[str, str]:
    """A digest of the code of each test file and of each chapter's module."""
    modules = sorted((root / "generated").glob("*.py"))
    sources = keys.Sources(root)
    found = {}
    for rel in [*test_files(root), *(p.relative_to(root).as_posix() for p in modules)]:
        file = sources.file(rel)
        if file is not None:
            found[rel] = keys.code_digest(file.code)[:16]
    return found


# ----------------------------------------------------------------------- the test files


def _test_file(root: Path, rel: str, end: float) -> dict[str, Any]:
    """Run one test file natively; counts, seconds, and the names of what failed."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "result.xml"
        command = [*_pytest(rel), f"--junitxml={xml}"]
        ended, said = _run(root, command, end - started)
        counts = _counts(xml) if xml.is_file() else None
    result: dict[str, Any] = {"file": rel, "seconds": time.monotonic() - started}
    result |= counts or {**dict.fromkeys(COUNTED, 0), "names": []}
    if counts is None:
        result["ended"] = ended or _last_line(said)
    return result


def _pytest(*more: str) -> list[str]:
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    return [sys.executable, "-m", "pytest", *quiet, *more]


def _counts(xml: Path) -> dict[str, Any] | None:
    """What a result file of pytest counts; None if it cannot be read."""
    try:
        cases = list(ET.parse(xml).getroot().iter("testcase"))
    except ET.ParseError:
        return None
    found: dict[str, Any] = {**dict.fromkeys(COUNTED, 0), "names": []}
    for case in cases:
        kinds = {child.tag for child in case}
        bad = bool(kinds & {"failure", "error"})
        kind = "failed" if bad else "skipped" if "skipped" in kinds else "passed"
        found[kind] += 1
        if bad:
            found["names"].append(case.get("name", ""))
    return found


# ---------------------------------------------------------------------------- sanitizer


def _sanitize(root: Path, files: list[str], end: float) -> dict[str, Any]:
    """The marked tests under each tool of compute-sanitizer."""
    tool = _sanitizer()
    if not tool:
        return {"absent": "compute-sanitizer is not on this machine"}
    found: dict[str, Any] = {}
    for number, name in enumerate(TOOLS, 1):
        left = end - time.monotonic()
        share = left * SANITIZER_SHARE if number < len(TOOLS) else left
        found[name] = _sanitized(root, files, tool, name, share)
    return found


def _sanitizer() -> str:
    """The path of compute-sanitizer: the PATH's, or the newest toolkit's."""
    places = sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))
    return shutil.which("compute-sanitizer") or (places[-1] if places else "")


def _sanitized(
    root: Path, files: list[str], tool: str, name: str, seconds: float
) -> dict[str, Any]:
    """One tool over the marked tests: how many passed, and its errors.

    The files are looked at in one process: a start under the tool takes seconds.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "result.xml"
        tests = _pytest("-m", "sanitize", f"--junitxml={xml}", *files)
        ended, said = _run(root, [tool, "--tool", name, *tests], seconds)
        counts = _counts(xml) if xml.is_file() else None
    result: dict[str, Any] = {"seconds": time.monotonic() - started}
    result |= counts or {**dict.fromkeys(COUNTED, 0), "names": []}
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) ", said)
    result["errors"] = int(summary[1]) if summary else None
    if counts is None or summary is None:
        result["ended"] = ended or _last_line(said)
    return result


# ---------------------------------------------------------------------------- processes


def _run(root: Path, command: list[str], seconds: float) -> tuple[str, str]:
    """Run a program natively; why it did not end by itself, and what it printed."""
    if seconds <= 1:
        return "not started: no time was left", ""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    # Without a pool of memory, the sanitizer sees where each tensor ends.
    if "--tool" in command:
        env["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    with tempfile.TemporaryFile() as out:
        try:
            child = subprocess.Popen(
                command,
                cwd=root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot be started: {error.strerror}", ""
        ended = _wait(child, seconds)
        out.seek(0)
        return ended, out.read().decode("utf-8", "replace")


def _wait(child: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for a process, or end it and what it started."""
    try:
        code = child.wait(seconds)
    except subprocess.TimeoutExpired:
        try:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            pass
        return f"stopped after {seconds:.0f} s"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return lines[-1][:200] if lines else "printed nothing"


def _device() -> str:
    """The GPU's name, asked in a process of its own; "" without one."""
    code = "import torch; print(torch.cuda.get_device_name())"
    ended, said = _run(Path.cwd(), [sys.executable, "-c", code], 60)
    last = _last_line(said)
    return "" if ended or "Error" in last else last


# --------------------------------------------------------------------------- as text


def markdown(report: dict[str, Any]) -> str:
    """The report as Markdown: a table of the files, one of the tools, what failed."""
    rows = [
        "| tests of | passed | failed | skipped | seconds |",
        "|:--|--:|--:|--:|--:|",
    ]
    for found in report["files"]:
        rows.append(_row(f"`{found['file']}`", found))
    total: dict[str, Any] = {
        key: sum(found[key] for found in report["files"])
        for key in (*COUNTED, "seconds")
    }
    rows.append(_row("all of them", total))
    versions = ", ".join(f"{name} {v}" for name, v in report["versions"].items())
    head = (
        f"On {report['device'] or 'no GPU'} in {report['seconds']:.0f} s, several files"
        f" at a time: {versions}, Python {report['python']}."
    )
    parts = [head, "\n".join(rows), _tools(report["sanitizer"]), _failures(report)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _row(name: str, found: dict[str, Any]) -> str:
    counts = " | ".join(str(found[kind]) for kind in COUNTED)
    return f"| {name} | {counts} | {found['seconds']:.1f} |"


def _tools(found: dict[str, Any]) -> str:
    if "absent" in found:
        return f"Not run: {found['absent']}."
    rows = ["| compute-sanitizer | tests passed | failed | errors found | seconds |"]
    rows.append("|:--|--:|--:|--:|--:|")
    for name, said in found.items():
        errors = "–" if said["errors"] is None else said["errors"]
        rows.append(
            f"| {name} | {said['passed']} | {said['failed']} | {errors}"
            f" | {said['seconds']:.1f} |"
        )
    return "\n".join(rows)


def _failures(report: dict[str, Any]) -> str:
    """What failed or did not end, one a line."""
    tools = report["sanitizer"] if "absent" not in report["sanitizer"] else {}
    found = [(f["file"], f) for f in report["files"]] + list(tools.items())
    lines = []
    for name, said in found:
        lines += [f"- `{name}`: failed: `{test}`" for test in said["names"]]
        if said.get("ended"):
            lines.append(f"- `{name}`: {said['ended']}")
    return "\n".join(lines)


def since(root: Path, report: Any) -> str:
    """Whether the tested code is still this code, as a sentence of Markdown."""
    if not report:
        return "Nothing can be said about this copy's code: no GPU has run it yet."
    then, now = report["digests"], digests(root)
    changed = sorted(
        rel for rel in then.keys() | now.keys() if then.get(rel) != now.get(rel)
    )
    if not changed:
        return (
            "The tests and the package are, line for line of code, those of this copy."
        )
    names = ", ".join(f"`{rel}`" for rel in changed)
    return f"Changed since that run, so that it says nothing about them: {names}."


def failed(report: dict[str, Any]) -> bool:
    """Whether anything failed, did not end, or was found by the sanitizer."""
    tools = report["sanitizer"]
    found = list(report["files"])
    if "absent" not in tools:
        found += list(tools.values())
    return any(f["failed"] or f.get("ended") or f.get("errors") for f in found)


def main() -> int:
    """Print the report; 1 if anything failed."""
    report = run(Path(tangle.__file__).resolve().parent)
    as_json = sys.argv[1:] == ["--json"]
    print(json.dumps(report, indent=1) if as_json else markdown(report))
    return int(failed(report))


if __name__ == "__main__":
    sys.exit(main())

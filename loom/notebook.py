"""One fresh kernel: started, asked, and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DAY = 86400.0
POLL = 0.25  # seconds between looks at the clock, the kernel and Ctrl-C
DROPPED = frozenset(  # what would make a page depend on who wove it, and how
    "PYTHONSTARTUP PYTHONINSPECT JUPYTER_CONFIG_DIR JUPYTER_PATH"
    " MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES MAKE_TERMOUT MAKE_TERMERR".split()
)


class Stopped(Exception):
    """The user stopped the run."""


class KernelDied(Exception):
    """The kernel's process ended; the message holds how, and its last words."""


class TooLong(Exception):
    """A cell ran past its time."""


@dataclass
class Reply:
    """What a cell said: its outputs, its error, the values it was asked for."""

    outputs: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None
    values: dict[str, dict[str, Any]] = field(default_factory=dict)


def environment(root: Path, private: Path) -> dict[str, str]:
    """The kernel's environment: the caller's, less what would make runs differ."""
    env = {key: value for key, value in os.environ.items() if key not in DROPPED}
    home = str(Path(__file__).resolve().parent.parent)
    paths = [str(root), home, env.get("PYTHONPATH", "")]
    return env | {
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(p for p in paths if p)),
        "PYTHONUNBUFFERED": "1",
        "IPYTHONDIR": str(private / "ipython"),
        "TRITON_CACHE_DIR": str(private / "triton"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MATPLOTLIBRC": str(Path(__file__).with_name("matplotlibrc")),
        "COLUMNS": "88",
        "NO_COLOR": "1",
    }


def private_folder(root: Path) -> Path:
    """A new folder for one kernel; those that a killed run has left a day ago go."""
    parent = root / ".weave" / "run"
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > DAY:
                shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=parent))


class Kernel:
    """An ipykernel of this interpreter in `root`, with no user's settings.

    ``halted`` is asked several times a second whether the user wants to stop.
    """

    def __init__(self, root: Path, halted: Callable[[], bool] = bool) -> None:
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import KernelManager

        self.halted = halted
        self.private = private_folder(root)
        # Sockets have short names: a path of a socket is at most 107 bytes.
        self.sockets = Path(tempfile.mkdtemp(prefix="loom-"))
        self.words = self.private / "stderr"
        manager = KernelManager(connection_file=str(self.private / "connection.json"))
        manager.transport, manager.ip = "ipc", str(self.sockets / "k")
        manager._kernel_spec = KernelSpec(
            argv=[
                *(sys.executable, "-m", "ipykernel_launcher"),
                *("-f", "{connection_file}"),
                "--HistoryManager.enabled=False",
                "--InteractiveShell.colors=nocolor",
            ],
            language="python",
        )
        self.manager = manager
        self.client: Any = None
        try:
            self._start(root)
        except BaseException:
            self.stop()
            raise

    def _start(self, root: Path) -> None:
        with open(self.words, "wb") as words:
            self.manager.start_kernel(
                cwd=str(root),
                env=environment(root, self.private),
                stdout=words,
                stderr=words,
            )
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self._wait_until_ready()

    def _wait_until_ready(self, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while True:
            self._look()
            try:
                self.client.wait_for_ready(timeout=1)
                return
            except RuntimeError:
                self._look()
                if time.monotonic() > end:
                    raise KernelDied("no answer from a new kernel") from None

    def _look(self) -> None:
        """Raise what has happened meanwhile: Ctrl-C, or the kernel's end."""
        if self.halted():
            raise Stopped
        if not self.manager.is_alive():
            raise KernelDied(self._how_it_ended())

    def _how_it_ended(self) -> str:
        process = getattr(self.manager.provisioner, "process", None)
        code = process.poll() if process else None
        how = "the kernel died"
        if code is not None:
            how += f" (signal {-code})" if code < 0 else f" (exit code {code})"
        words = self.words.read_text("utf-8", "replace").strip()
        return how + ("\n" + "\n".join(words.split("\n")[-30:]) if words else "")

    def run(
        self,
        code: str,
        seconds: float = 600,
        *,
        silent: bool = False,
        values: dict[str, str] | None = None,
    ) -> Reply:
        """Execute code and wait for its end.

        Raises KernelDied, TooLong or Stopped; an exception in the code is
        ``Reply.error``.
        """
        asked = self.client.execute(
            code,
            silent=silent,
            store_history=not silent,
            user_expressions=values or {},
            allow_stdin=False,
        )
        reply, end = Reply(), time.monotonic() + seconds
        while True:
            message = self._next(self.client.get_iopub_msg, asked, end, seconds)
            if self._take(message, reply):
                break
        answer = self._next(self.client.get_shell_msg, asked, end, seconds)["content"]
        reply.values = answer.get("user_expressions") or {}
        if answer["status"] == "error" and reply.error is None:
            reply.error = {k: answer[k] for k in ("ename", "evalue", "traceback")}
        return reply

    def _next(
        self, get: Callable[..., Any], asked: str, end: float, seconds: float
    ) -> dict[str, Any]:
        """The next message that answers `asked`."""
        while True:
            try:
                message = get(timeout=POLL)
            except queue.Empty:
                self._look()
                if time.monotonic() > end:
                    raise TooLong(f"ran longer than {seconds:.0f} s") from None
                continue
            if message["parent_header"].get("msg_id") == asked:
                return message
            self._look()

    def _take(self, message: dict[str, Any], reply: Reply) -> bool:
        """Add a message to the reply; true for the last one."""
        kind, content = message["msg_type"], message["content"]
        outputs = reply.outputs
        if kind == "status":
            return bool(content["execution_state"] == "idle")
        if kind == "stream":
            last = outputs[-1] if outputs else {}
            if last.get("name") == content["name"] and "text" in last:
                last["text"] += content["text"]
            else:
                outputs.append(
                    {
                        "output_type": "stream",
                        "name": content["name"],
                        "text": content["text"],
                    }
                )
        elif kind in ("display_data", "execute_result"):
            output = {
                "output_type": kind,
                "data": content["data"],
                "metadata": content.get("metadata") or {},
            }
            if kind == "execute_result":
                output["execution_count"] = None
            outputs.append(output)
        elif kind == "error":
            reply.error = {k: content[k] for k in ("ename", "evalue", "traceback")}
            outputs.append({"output_type": "error", **reply.error})
        elif kind == "clear_output":
            outputs.clear()
        return False

    def stop(self) -> None:
        """End the kernel and all that it started, and remove its private files."""
        try:
            if self.client is not None:
                self.client.stop_channels()
            if self.manager.has_kernel:
                self.manager.shutdown_kernel(now=True)
            self.manager.cleanup_resources()
        finally:
            shutil.rmtree(self.private, ignore_errors=True)
            shutil.rmtree(self.sockets, ignore_errors=True)

    def ask(self, expression: str) -> Any:
        """The value of an expression that gives JSON text."""
        reply = self.run("", 60, silent=True, values={"asked": expression})
        data = reply.values.get("asked", {}).get("data", {})
        text = data.get("text/markdown") or data.get("text/plain") or "null"
        return json.loads(text)

"""One persistent child process that answers requests, and its two ends.

`Worker` is the calling end: it starts the child on the first request, restarts it
after a death or a timeout, and stops it at exit. `serve` is the child's end. Frames
are a length and a pickle, on two pipes of their own, so that nothing a kernel prints
can disturb them.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from loom.kernels import ROOT

_HEADER = struct.Struct("<Q")


class WorkerError(RuntimeError):
    """The worker died, or did not answer in time. The next request starts another."""


class Refusal(Exception):
    """An answer that is an error: raised by a handler, sent to the calling end."""

    def __init__(self, kind: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.details = details


class Worker:
    """A persistent `python -m module` child of this process."""

    def __init__(self, module: str, environment: Callable[[], dict[str, str]]) -> None:
        self.module = module
        self.environment = environment
        self._lock = threading.RLock()
        self._owner = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._ends: tuple[int, int] = (-1, -1)
        self._log: BinaryIO | None = None
        atexit.register(self.stop)

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is none."""
        running = self._child is not None and self._owner == os.getpid()
        return self._child.pid if running and self._child else None

    def call(self, request: Any, timeout: float, what: str) -> Any:
        """Send one request and return the answer.

        Raises `Refusal` as the handler raised it, and `WorkerError`, naming `what`,
        if the child dies or takes more than `timeout` seconds.
        """
        with self._lock:
            if self.pid is None:
                self._start()
            try:
                self._send(pickle.dumps(request), time.monotonic() + timeout)
                status, value = pickle.loads(self._receive(timeout))
            except TimeoutError:
                self.stop()
                raise WorkerError(
                    f"{what}: no answer after {timeout:g} s, so the worker was "
                    "stopped; make the case smaller"
                ) from None
            except (EOFError, BrokenPipeError):
                raise WorkerError(f"{what}: {self._obituary()}") from None
            except BaseException:
                self.stop()
                raise
        if status == "refused":
            kind, message, details = value
            raise Refusal(kind, message, **details)
        return value

    def stop(self) -> None:
        """End the child and everything it started."""
        child, self._child = self._child, None
        if child is None or self._owner != os.getpid():
            return
        for end in self._ends:
            os.close(end)
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        if self._log is not None:
            self._log.close()

    def _start(self) -> None:
        requests, ours_out = os.pipe()
        ours_in, replies = os.pipe()
        self._log = tempfile.TemporaryFile()
        environment = self.environment()
        paths = [str(ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._child = subprocess.Popen(
            [sys.executable, "-m", self.module, str(requests), str(replies)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(requests, replies),
            env=environment,
            start_new_session=True,
        )
        os.close(requests)
        os.close(replies)
        os.set_blocking(ours_out, False)
        self._ends = (ours_in, ours_out)
        self._owner = os.getpid()

    def _send(self, body: bytes, deadline: float) -> None:
        rest = memoryview(_HEADER.pack(len(body)) + body)
        while rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [self._ends[1]], [], left)[1]:
                raise TimeoutError
            rest = rest[os.write(self._ends[1], rest[: 1 << 16]) :]

    def _receive(self, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        head = self._read(_HEADER.size, deadline)
        return self._read(_HEADER.unpack(head)[0], deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._ends[0]], [], [], left)[0]:
                raise TimeoutError
            part = os.read(self._ends[0], min(size - len(parts), 1 << 20))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def _obituary(self) -> str:
        """Say how the child died, with the last lines it wrote."""
        assert self._child is not None and self._log is not None
        try:
            code = self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self._log.seek(0)
        words = self._log.read().decode(errors="replace").strip().splitlines()[-12:]
        self.stop()
        reason = f"exit status {code}"
        if code < 0:
            reason = f"signal {signal.Signals(-code).name}"
        tail = ("\n" + "\n".join(words)) if words else ""
        return f"the worker died ({reason}); the next call starts another{tail}"


def serve(handle: Callable[[Any], Any]) -> None:
    """Answer requests until the calling process goes away."""
    incoming, outgoing = int(sys.argv[1]), int(sys.argv[2])
    for end in (incoming, outgoing):
        os.set_inheritable(end, False)
    requests: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(incoming, requests), daemon=True).start()
    with os.fdopen(outgoing, "wb") as replies:
        while True:
            answer = _answer(handle, requests.get())
            body = pickle.dumps(answer)
            replies.write(_HEADER.pack(len(body)) + body)
            replies.flush()


def _listen(incoming: int, requests: queue.Queue[bytes]) -> None:
    """Queue the requests; when the calling process is gone, end this one at once."""
    with os.fdopen(incoming, "rb") as stream:
        while True:
            head = stream.read(_HEADER.size)
            if len(head) < _HEADER.size:
                break
            requests.put(stream.read(_HEADER.unpack(head)[0]))
    os.killpg(os.getpid(), signal.SIGKILL)


def _answer(handle: Callable[[Any], Any], body: bytes) -> tuple[str, Any]:
    try:
        return ("answered", handle(pickle.loads(body)))
    except Refusal as refusal:
        return ("refused", (refusal.kind, refusal.message, refusal.details))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return ("refused", ("unexpected", message, {}))

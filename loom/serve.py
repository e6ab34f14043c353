"""Preview: serve the book on this machine and weave again on every save.

The renderer stays in this process, so that it keeps what it has compiled.  A page
that is open reloads after each weave; faults are shown on it, and printed.
"""

from __future__ import annotations

import html
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from loom import build
from loom.progress import Progress, progress
from tangle import BookError

EVENTS = "/.loom/events"
HOLD = 25.0  # seconds an unanswered request for news is held
SCRIPT = """
<div id="loom-faults" role="alert" hidden style="position:fixed;inset:auto 0 0 0;
 max-height:60vh;overflow:auto;z-index:9999;margin:0;padding:1rem;background:#7a1020;
 color:#fff;font:14px/1.4 monospace;white-space:pre-wrap"></div>
<script>
(async () => {
  const box = document.getElementById("loom-faults");
  let seen = %(state)s;
  const show = (text) => { box.textContent = text; box.hidden = !text; };
  show(%(faults)s);
  for (;;) {
    try {
      const answer = await fetch("%(events)s?seen=" + seen, {cache: "no-store"});
      const news = await answer.json();
      if (news.state !== seen) {
        seen = news.state;
        if (news.faults) show(news.faults); else { location.reload(); return; }
      }
    } catch (_) {
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
})();
</script>
"""


class State:
    """How often the book was woven, and what was wrong the last time."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.number = 0
        self.faults = ""

    def set(self, faults: str) -> None:
        with self.changed:
            self.number += 1
            self.faults = faults
            self.changed.notify_all()

    def wait(self, seen: int, seconds: float) -> dict[str, Any]:
        """The state once it is not `seen`, or after some seconds."""
        with self.changed:
            self.changed.wait_for(lambda: self.number != seen, seconds)
            return {"state": self.number, "faults": self.faults}


class Handler(SimpleHTTPRequestHandler):
    """Serves the book's files; pages get the reloading script, on the way only."""

    def __init__(self, *args: Any, state: State, **kwargs: Any) -> None:
        self.state = state
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == EVENTS:
            seen = query.removeprefix("seen=")
            number = int(seen) if seen.isdigit() else -1
            news = self.state.wait(number, HOLD)
            self._send(json.dumps(news).encode(), "application/json")
            return
        file = Path(self.translate_path(path))
        if file.is_dir():
            if not path.endswith("/"):
                super().do_GET()
                return
            file = file / "index.html"
        if file.suffix == ".html":
            self._page(file)
        elif file.is_file():
            super().do_GET()
        else:
            self.send_error(404)

    def _page(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="utf-8")
        except OSError:
            known = self.state.faults or "The book is not woven yet."
            text = f"<!doctype html><title>Book</title><pre>{html.escape(known)}</pre>"
        now = self.state.wait(-1, 0)
        faults = json.dumps(now["faults"]).replace("<", "\\u003c")
        script = SCRIPT % {"state": now["state"], "faults": faults, "events": EVENTS}
        head, mark, tail = text.rpartition("</body>")
        page = head + script + mark + tail if mark else text + script
        self._send(page.encode(), "text/html; charset=utf-8")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            pass


def watched(root: Path) -> list[tuple[str, int, int]]:
    """The files whose change calls for a new weave, with time and size."""
    paths = [root / "_quarto.yml", root / "index.qmd"]
    for folder, pattern in (
        ("book", "*"),
        ("generated", "*.py"),
        ("captures", "*.json"),
    ):
        paths += (root / folder).rglob(pattern)
    found = []
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue
        if path.is_file() and not path.name.startswith("."):
            found.append((str(path), state.st_mtime_ns, state.st_size))
    return sorted(found)


def weave_once(
    root: Path, options: build.Options, state: State, report: Callable[[], Progress]
) -> None:
    """Weave, and tell the open pages; no fault of a chapter ends the preview."""
    begun = time.monotonic()
    faults = ""
    try:
        built = build.weave(root, options, report())
        for note in built.notes:
            print(note, flush=True)
        said = "woven" if built.files else "nothing has changed"
        print(f"{said} ({time.monotonic() - begun:.1f} s)", flush=True)
    except BookError as fault:
        faults = str(fault)
    except Exception as fault:  # a preview outlives faults of the workshop, too
        traceback.print_exc()
        faults = f"{type(fault).__name__}: {fault}"
    if faults:
        print(faults, file=sys.stderr, flush=True)
    state.set(faults)


def serve(
    root: Path,
    options: build.Options,
    port: int,
    *,
    poll: float = 0.3,
    stop: threading.Event | None = None,
) -> int:
    """Serve ``_book`` on localhost until Ctrl-C (or `stop`), weaving on every save.

    Raises OSError when the port is taken.
    """
    stop = stop or threading.Event()
    state = State()
    out = root / build.OUT
    handler = partial(Handler, state=state, directory=str(out))
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        print(
            f"http://127.0.0.1:{server.server_address[1]}/  (Ctrl-C ends)", flush=True
        )
        seen: object = None
        while not stop.is_set():
            now = watched(root)
            if now != seen:
                weave_once(root, options, state, progress)
                # What tangling wrote is no new edit; what was saved meanwhile is.
                after = watched(root)
                seen = after if _tangled_only(now, after, root) else now
            stop.wait(poll)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    finally:
        server.shutdown()
        server.server_close()
    return 0


def _tangled_only(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], root: Path
) -> bool:
    """Whether all that changed during a weave are modules."""
    modules = str(root / "generated")
    changed = set(before) ^ set(after)
    return all(path.startswith(modules) for path, _, _ in changed)

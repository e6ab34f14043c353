"""Chromium for tests of the pages: found, started, and watched while it reads them."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright
from playwright.sync_api import Error as PlaywrightError

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    "no Chromium to read the pages with: install Debian's package chromium,"
    " name a browser with CHROMIUM=/path/to/it, or run `playwright install chromium`"
)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium(own: str = "") -> str | None:
    """The browser to start: CHROMIUM, one on the PATH, or Playwright's `own`."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    on_path = filter(None, map(shutil.which, NAMES))
    return next(on_path, own if os.access(own, os.X_OK) else None)


def without_browser() -> None:
    """Skip the test; in CI, where the browser belongs to the set-up, fail it."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


def launch(playwright: Playwright) -> Browser:
    """A browser without a window; skips or fails the test where none is installed."""
    path = find_chromium(playwright.chromium.executable_path)
    if path is None:
        without_browser()
    return playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))


@functools.cache
def axe() -> str:
    """The source of axe-core, from the package that carries it."""
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


@dataclass(frozen=True)
class Site:
    """Pages in a folder, and the address that the folder has in the browser."""

    folder: Path
    address: str  # ends with a slash

    @property
    def pages(self) -> list[str]:
        """The pages by their path in the folder, the home page first."""
        found = [p.relative_to(self.folder) for p in self.folder.rglob("*.html")]
        return sorted(map(str, found), key=lambda name: (name != "index.html", name))


def on_disk(folder: Path) -> Site:
    return Site(folder, folder.resolve().as_uri() + "/")


@contextlib.contextmanager
def served(folder: Path, work: Path, below: str = "some/where") -> Iterator[Site]:
    """The folder served over HTTP, not from the server's root but `below` it."""
    place = work / below
    place.parent.mkdir(parents=True)
    place.symlink_to(folder.resolve())
    handler = functools.partial(_Handler, directory=str(work))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Site(folder, f"http://127.0.0.1:{server.server_port}/{below}/")
        server.shutdown()


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing: the browser's side is watched."""


class Watch:
    """Everything a context's pages complain of, or ask for outside their folder."""

    def __init__(
        self, context: BrowserContext | None = None, site: Site | None = None
    ) -> None:
        self.site = site
        self.faults: list[str] = []
        self.requests: list[str] = []
        if context is None:
            return
        context.on("request", lambda request: self._requested(request.url))
        context.on("requestfailed", lambda request: self._say("failed", request.url))
        context.on("response", self._answered)
        context.on("console", self._printed)
        context.on("weberror", lambda fault: self._say("uncaught", str(fault.error)))

    def take(self, other: Watch) -> None:
        """Add what another has seen, and let it begin anew."""
        self.faults += other.faults
        self.requests += other.requests
        other.faults, other.requests = [], []

    def _say(self, what: str, words: str) -> None:
        self.faults.append(f"{what}: {words}")

    def _requested(self, url: str) -> None:
        if not url.startswith("data:"):
            self.requests.append(url)
            if self.site and not url.startswith(self.site.address):
                self._say("request outside the folder", url)

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self._say(str(response.status), response.url)

    def _printed(self, message: Any) -> None:
        if message.type in ("error", "warning", "assert"):
            where = message.page.url if message.page else ""
            self._say(f"console {message.type} on {where}", message.text)


class Reader:
    """Opens pages, watches them, and uses them again: a new one takes half a second."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.kept: dict[str, tuple[Page, Watch]] = {}
        self.used: set[str] = set()
        self.others: list[tuple[BrowserContext, Watch]] = []

    def context(self, site: Site, **options: Any) -> BrowserContext:
        """A context of the test's own; options as Playwright's `new_context`."""
        context = self.browser.new_context(**options)
        context.set_default_timeout(10_000)
        self.others.append((context, Watch(context, site)))
        return context

    def page(
        self,
        site: Site,
        width: int = 1280,
        height: int = 900,
        color_scheme: Any = "light",
        reduced_motion: Any = "no-preference",
        **options: Any,
    ) -> Page:
        """A page that remembers nothing, the same one for the same options."""
        key = repr(sorted(options.items()))
        if key not in self.kept:
            context = self.context(site, **options)
            _, watch = self.others.pop()
            self.kept[key] = (context.new_page(), watch)
        page, watch = self.kept[key]
        self.used.add(key)
        watch.site = site
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(
            media="null", color_scheme=color_scheme, reduced_motion=reduced_motion
        )
        return page

    def open(self, site: Site, name: str = "index.html", **options: Any) -> Page:
        """That page, at an address of the site."""
        page = self.page(site, **options)
        page.goto(site.address + name)
        return page

    def finish(self) -> Watch:
        """End a test: forget what the pages remember; all that they complained of."""
        seen = Watch()
        for key in self.used:
            page, watch = self.kept[key]
            with contextlib.suppress(PlaywrightError):
                page.evaluate("localStorage.clear()")
            if watch.faults:  # who knows what state it is in
                page.context.close()
                del self.kept[key]
            seen.take(watch)
        for context, watch in self.others:
            context.close()
            seen.take(watch)
        self.used, self.others = set(), []
        return seen

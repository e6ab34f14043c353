"""The pages in a real Chromium: quiet, self-contained, and usable by everyone.

The same tests read the book itself and the sample, which has every construct.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pypdf
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import tangle
from loom.render import build
from tests.loom import browser as chromium
from tests.loom.browser import Reader, Site
from tests.loom.sample_book import copy_sample, weave
from tests.loom.woven_book import ROOT, woven_book

WIDTHS = (1280, 1024, 768, 360, 320)
PHONE: dict[str, Any] = {"width": 360, "height": 740, "has_touch": True}
SAMPLE = "book/01-sample.html"
DARK, LIGHT = "rgb(20, 24, 28)", "rgb(253, 252, 250)"  # --page in book.css


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the whole session: while it runs, this thread has an event loop.
    with sync_playwright() as playwright:
        started = chromium.launch(playwright)
        yield started
        started.close()


@pytest.fixture(scope="module")
def book(browser: Browser) -> Site:
    return chromium.on_disk(woven_book())


@pytest.fixture(scope="module")
def sample(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Site:
    root = copy_sample(tmp_path_factory.mktemp("browser"))
    source = tangle.read_book(root)
    build(weave(source), source, root / "_book", ("html",))
    return chromium.on_disk(root / "_book")


@pytest.fixture(params=["book", "sample"])
def site(request: pytest.FixtureRequest) -> Site:
    found: Site = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def pages(browser: Browser) -> Reader:
    return Reader(browser)


@pytest.fixture
def reader(pages: Reader) -> Iterator[Reader]:
    """Opens pages; at the end none of them may have had anything to complain of."""
    pages.finish()
    yield pages
    assert pages.finish().faults == []


def background(page: Page) -> str:
    color: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return color


def open_search(page: Page) -> None:
    page.keyboard.press("/")
    page.wait_for_function(
        "document.querySelector('.search-status').textContent.includes('section')"
    )


def search(page: Page, query: str) -> list[str]:
    """The addresses that the open search finds, from the book's root."""
    page.fill(".search input", query)
    found: list[str] = page.eval_on_selector_all(
        ".search-results a", "links => links.map(link => link.href)"
    )
    root: str = page.evaluate(
        "new URL(document.body.dataset.root + '.', location).href"
    )
    return [address.removeprefix(root) for address in found]


# --- every page ----------------------------------------------------------------------

# What a page links to, its anchors, and the classes of what stands on it.
_CONTENTS = """() => ({
  links: [...document.querySelectorAll('a[href]')].map(a => a.href),
  ids: [...document.querySelectorAll('[id]')].map(node => node.id),
  classes: [...new Set([...document.querySelectorAll('main *:not(pre *)')]
    .flatMap(node => [...node.classList, node.localName]))],
})"""

# What sticks out of the window, where it scrolls sideways, and what is cut off.
_WIDER = """() => {
  const root = document.documentElement;
  const named = node =>
    `${node.localName}.${node.className}: ${node.textContent.slice(0, 40)}`;
  const boxes = [...document.querySelectorAll('body *')]
    .filter(node => node instanceof HTMLElement);
  const cut = boxes.filter(node => node.closest('main') && !node.matches('.unseen') &&
    ['hidden', 'clip'].includes(getComputedStyle(node).overflowX) &&
    node.scrollWidth > node.clientWidth + 1);
  if (root.scrollWidth <= innerWidth) return cut.map(node => 'cut off: ' + named(node));
  const clips = node => node && node !== document.body &&
    (getComputedStyle(node).overflowX !== 'visible' || clips(node.parentElement));
  return boxes
    .filter(node => node.getBoundingClientRect().right > innerWidth + 0.5 &&
      !clips(node.parentElement))
    .map(named)
    .concat(`the window scrolls to ${root.scrollWidth} of ${innerWidth}`);
}"""
_SHOW_ALL = """() => {
  for (const box of document.querySelectorAll('main details')) box.open = true;
  for (const tab of document.querySelectorAll('.tab')) tab.style.display = '';
}"""


class Survey:
    """Every page of a site looked at once."""

    def __init__(self, reader: Reader, site: Site) -> None:
        self.contents: dict[str, dict[str, list[str]]] = {}
        self.wider: list[tuple[str, int, list[str]]] = []
        page = reader.page(site)
        for name in site.pages:
            page.set_viewport_size({"width": WIDTHS[0], "height": 900})
            page.goto(site.address + name)
            self.contents[name] = page.evaluate(_CONTENTS)
            page.evaluate(_SHOW_ALL)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 740})
                if found := page.evaluate(_WIDER):
                    self.wider.append((name, width, found))
        seen = reader.finish()
        self.faults, self.requests = seen.faults, seen.requests

    def typical(self) -> list[str]:
        """Pages on which every kind of element of the site stands at least once."""
        left = set().union(*(found["classes"] for found in self.contents.values()))
        chosen = []
        while left:
            name = max(
                self.contents,
                key=lambda n: len(left & set(self.contents[n]["classes"])),
            )
            chosen.append(name)
            left -= set(self.contents[name]["classes"])
        return chosen


_surveys: dict[Site, Survey] = {}


@pytest.fixture
def survey(pages: Reader, site: Site) -> Survey:
    if site not in _surveys:
        _surveys[site] = Survey(pages, site)
    return _surveys[site]


def test_no_page_complains_or_asks_outside_its_folder(survey: Survey) -> None:
    assert survey.faults == []
    assert len(survey.requests) >= 3 * len(survey.contents)


def test_the_browser_that_is_named_is_taken(monkeypatch, tmp_path) -> None:
    for name in ("google-chrome", "mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    own = str(tmp_path / "mine")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert chromium.find_chromium(own) == str(tmp_path / "google-chrome")
    monkeypatch.setenv("CHROMIUM", own)
    assert chromium.find_chromium() == own
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "gone"))
    assert chromium.find_chromium(own) is None
    monkeypatch.delenv("CHROMIUM")
    monkeypatch.setenv("PATH", "")
    assert chromium.find_chromium(own) == own
    assert chromium.find_chromium(str(tmp_path / "gone")) is None


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_without_a_browser_ci_fails_and_others_skip(monkeypatch, ci, outcome) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="install Debian's package chromium"):
        chromium.without_browser()


def test_a_fault_is_seen(pages: Reader, tmp_path: Path) -> None:
    """The watch itself: what it must catch, it catches."""
    (tmp_path / "page.html").write_text(
        "<script>console.warn('said'); missing()</script><img src='gone.png'>"
        "<link rel='stylesheet' href='../outside.css'>"
    )
    pages.open(chromium.on_disk(tmp_path), "page.html")
    faults = "\n".join(pages.finish().faults)
    for words in ("said", "missing is not defined", "gone.png", "request outside"):
        assert words in faults


def test_every_link_leads_to_an_anchor(site: Site, survey: Survey) -> None:
    inner = 0
    for name, found in survey.contents.items():
        assert len(found["ids"]) == len(set(found["ids"])), name
        for link in found["links"]:
            address, _, anchor = link.partition("#")
            if not address.startswith(site.address):
                assert address.startswith("https://"), (name, link)
                continue
            inner += 1
            path = address.removeprefix(site.address)
            assert (site.folder / path).is_file(), (name, link)
            assert not anchor or anchor in survey.contents[path]["ids"], (name, link)
    assert inner > 50


def test_no_page_scrolls_sideways_or_cuts_off(survey: Survey) -> None:
    assert survey.wider == []


def test_pages_need_no_particular_server(
    reader: Reader, book: Site, tmp_path: Path
) -> None:
    with chromium.served(book.folder, tmp_path) as site:
        page = reader.open(site, "book/01-jit.html")
        open_search(page)
        assert search(page, "add_kernel")
        page.keyboard.press("Enter")
        page.wait_for_url("**/some/where/**#*")
        page.click(".pager a")
        page.click(".brand")
        assert page.url == site.address + "index.html"


# --- accessibility -------------------------------------------------------------------

# axe takes a millisecond for the colors of each word, and highlighted code has
# thousands of words. Of the words, and of the blocks, that look alike, one is left.
_LOOK = """const look = node => {
    const boxes = [];
    for (let box = node; box && box.localName !== 'article'; box = box.parentElement) {
      boxes.push(`${box.localName}.${box.className.baseVal ?? box.className}`);
    }
    return boxes.join(' ');
  };
  const seen = new Set();"""
_THIN_WORDS = f"""() => {{
  {_LOOK}
  for (const word of document.querySelectorAll('pre span')) {{
    const name = look(word);
    if (seen.has(name)) word.replaceWith(...word.childNodes);
    seen.add(name);
  }}
}}"""
_THIN_BLOCKS = f"""() => {{
  {_LOOK}
  for (const block of document.querySelectorAll('article > *')) {{
    const names = [block, ...block.querySelectorAll('*')].map(look);
    if (names.every(name => seen.has(name))) block.remove();
    for (const name of names) seen.add(name);
  }}
}}"""
COLORS = ["color-contrast", "link-in-text-block"]


def violations(page: Page, colors: bool | None = None) -> list[str]:
    """What axe-core holds against the page, of serious or critical impact.

    `colors` runs only the rules about colors, or all but these.
    """
    page.evaluate(chromium.axe())
    options: dict[str, Any] = {"preload": False, "resultTypes": ["violations"]}
    if colors:
        options["runOnly"] = COLORS
    elif colors is not None:
        options["rules"] = {rule: {"enabled": False} for rule in COLORS}
    found = page.evaluate(f"axe.run(document, {json.dumps(options)})")
    return [
        f"{rule['id']} ({rule['impact']}): {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_axe_finds_no_serious_violation(
    reader: Reader, site: Site, survey: Survey, width: int, scheme: str
) -> None:
    page = reader.page(site, width, color_scheme=scheme)
    for name in survey.typical():
        page.goto(site.address + name)
        page.evaluate(_THIN_WORDS)
        assert violations(page, colors=False) == [], name
        page.evaluate(_THIN_BLOCKS)
        assert violations(page, colors=True) == [], name


def test_axe_finds_nothing_in_what_opens(reader: Reader, sample: Site) -> None:
    page = reader.open(sample, SAMPLE, **PHONE)
    page.evaluate(_SHOW_ALL)
    page.evaluate(_THIN_WORDS)
    assert violations(page) == []
    page.click(".menu")
    page.wait_for_timeout(250)  # it slides in
    assert violations(page) == []
    page.keyboard.press("Escape")
    open_search(page)
    search(page, "kernel")
    assert violations(page) == []


def test_axe_can_find_something(reader: Reader, sample: Site) -> None:
    page = reader.open(sample)
    page.evaluate("document.querySelector('.theme').removeAttribute('aria-label')")
    page.evaluate("document.querySelector('article p').style.color = '#bbb'")
    found = "\n".join(violations(page))
    assert "button-name" in found
    assert "color-contrast" in found


# --- search --------------------------------------------------------------------------

# Texts of one kind on a page, each with the anchor of the section it stands in.
_TEXTS = """selector => {
  const heads = [...document.querySelectorAll('article :is(h2, h3, h4)[id]')]
    .filter(head => !head.closest('.callout, .tab'));
  const anchor = node => heads.filter(head =>
    head.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING).at(-1)?.id;
  return [...document.querySelectorAll(selector)]
    .map(node => [node.innerText, anchor(node) ?? '']);
}"""
TEXTS = {
    "a first paragraph": "article > p",
    "a code cell": ".cell > .code code",
    "an output": ".cell-output-stdout code",
    "a table": "article > .table-wrap td, figure td",
    "a listing": ":is(figure, .tab-body, article) > .code code",
}


def rare_words(text: str, count: int = 3) -> str:
    """The longest words of a text, which say best which text it is."""
    words = {word.strip(".") for word in re.findall(r"[\w.]+", text)}
    return " ".join(sorted(words, key=lambda word: (-len(word), word))[:count])


def test_search_finds_each_kind_of_text(
    reader: Reader, site: Site, survey: Survey
) -> None:
    page = reader.page(site)
    seen = dict.fromkeys(TEXTS, 0)
    for name in survey.contents:
        page.goto(site.address + name)
        open_search(page)
        for what, selector in TEXTS.items():
            texts = page.evaluate(_TEXTS, selector)
            if what == "a first paragraph":
                texts = [text for text in texts if not text[1]]
            for text, anchor in texts[:: max(1, len(texts) // 5)]:
                query = rare_words(text)
                if len(query) > 5:
                    address = f"{name}#{anchor}" if anchor else name
                    assert address in search(page, query), (what, query, address)
                    seen[what] += 1
    assert all(count >= 2 for count in seen.values()), seen


def test_search_finds_every_heading_by_its_own_words(
    reader: Reader, site: Site, survey: Survey
) -> None:
    page = reader.page(site)
    for name in survey.contents:
        page.goto(site.address + name)
        headings = page.eval_on_selector_all(
            ".outline a", "links => links.map(a => [a.lastChild.innerText, a.hash])"
        )
        assert headings or site.folder.name != "_book" or name != SAMPLE
        open_search(page)
        for title, anchor in headings:
            assert name + anchor in search(page, title)[:10], title


@pytest.mark.parametrize("query", ["add_kernel", "add kernel", "tl.load", "TL.Load"])
def test_search_finds_identifiers_whole_and_in_parts(
    reader: Reader, book: Site, query: str
) -> None:
    page = reader.open(book)
    open_search(page)
    found = search(page, query)
    assert found
    assert any(address.startswith("book/01-jit.html#") for address in found[:5])
    marked = page.locator(".search-results a:first-child mark").all_inner_texts()
    assert {word.lower() for word in marked} & {query.lower(), "add", "kernel"}


def test_search_finds_first_where_a_name_is_defined(reader: Reader, book: Site) -> None:
    page = reader.open(book)
    open_search(page)
    seen = 0
    for chapter in tangle.read_book(ROOT).chapters:
        name = chapter.rel.removesuffix(".qmd") + ".html"
        page.goto(book.address + name)
        places = dict(page.evaluate(_TEXTS, TEXTS["a code cell"]))
        open_search(page)
        for cell in chapter.cells:
            for kernel in re.findall(r"^def ([a-z]\w*_\w+)\(", cell.code, re.MULTILINE):
                if cell.tangled and cell.code in places:
                    first = f"{name}#{places[cell.code]}".rstrip("#")
                    assert search(page, kernel)[0] == first, kernel
                    seen += 1
    assert seen > 5


def test_enter_goes_to_the_section(reader: Reader, sample: Site) -> None:
    page = reader.open(sample)
    open_search(page)
    found = search(page, "one mask serves both sides")
    assert found[0] == f"{SAMPLE}#sec-kernel"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{SAMPLE}#sec-kernel")
    at_heading(page, "sec-kernel")
    # On the page itself, and by an arrow.
    open_search(page)
    second = search(page, "reverse")[1]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(sample.address + second)
    assert not page.evaluate("document.querySelector('dialog').open")


def at_heading(page: Page, ident: str) -> None:
    """The heading stands below the bar, near the top of the window."""
    page.wait_for_function(
        """id => {
          const top = document.getElementById(id).getBoundingClientRect().top;
          const bar = document.querySelector('.bar').getBoundingClientRect().bottom;
          return top >= bar && top < bar + 80;
        }""",
        arg=ident,
    )


def test_search_that_finds_nothing_says_so(reader: Reader, sample: Site) -> None:
    page = reader.open(sample)
    open_search(page)
    assert search(page, "zyzzyva <b>") == []
    assert "zyzzyva <b>" in page.inner_text(".search-status")
    page.keyboard.press("Enter")
    assert page.url == sample.address + "index.html"


# --- theme ---------------------------------------------------------------------------


@pytest.mark.parametrize(("scheme", "own"), [("light", LIGHT), ("dark", DARK)])
def test_theme_follows_the_system_until_it_is_switched(
    reader: Reader, book: Site, scheme: str, own: str
) -> None:
    other = DARK if own == LIGHT else LIGHT
    page = reader.open(book, color_scheme=scheme)
    pressed = page.locator(".theme[aria-pressed=true]")
    assert background(page) == own
    assert pressed.count() == (scheme == "dark")
    page.click(".theme")
    assert background(page) == other
    assert pressed.count() == (scheme == "light")
    page.reload()
    assert background(page) == other
    page.click(".pager .next")
    assert background(page) == other
    page.click(".theme")
    assert background(page) == own
    # The reader has taken the choice back: the page follows the system again.
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    assert background(page) == other


def test_no_page_flashes_in_the_other_theme(reader: Reader, book: Site) -> None:
    """The remembered theme is there before the first paint: without book.js."""
    context = reader.context(book, color_scheme="light")
    page = context.new_page()
    page.goto(book.address + "index.html")
    page.click(".theme")
    context.route("**/book.js", lambda route: route.fulfill(body=""))
    context.add_init_script(
        "document.addEventListener('DOMContentLoaded', () => {"
        "window.first = getComputedStyle(document.body).backgroundColor})"
    )
    page.goto(book.address + "book/01-jit.html")
    assert page.evaluate("window.first") == DARK


def test_drawings_take_the_colors_of_the_theme(reader: Reader, sample: Site) -> None:
    page = reader.open(sample, SAMPLE, color_scheme="light")
    fill = "getComputedStyle(document.querySelector('.loom-svg .paper')).fill"
    light = page.evaluate(fill)
    page.click(".theme")
    assert page.evaluate(fill) != light


# --- copying -------------------------------------------------------------------------

_KEEP_COPIES = (
    "window.copies = []; Object.defineProperty(navigator, 'clipboard', "
    "{value: {writeText: async text => { window.copies.push(text); }}})"
)


def test_copy_gives_exactly_the_code_of_each_cell(
    reader: Reader, site: Site, survey: Survey
) -> None:
    source = tangle.read_book(ROOT if site.folder == ROOT / "_book" else _root(site))
    context = reader.context(site)
    context.add_init_script(_KEEP_COPIES)
    page = context.new_page()
    seen = 0
    for chapter in source.chapters:
        name = chapter.rel.removesuffix(".qmd") + ".html"
        page.goto(site.address + name)
        copied = page.evaluate("""async () => {
          const found = {};
          for (const cell of document.querySelectorAll('.cell')) {
            const button = cell.querySelector(
              ':scope > .code .copy, :scope > details .copy, .float-lst .copy');
            if (!button) continue;
            button.click();
            await new Promise(resolve => setTimeout(resolve));
            const label = cell.id || cell.querySelector('figure').id;
            found[label] = [window.copies.pop(), button.textContent];
          }
          return found;
        }""")
        cells = {cell.label: cell for cell in chapter.cells}
        assert copied == {name: [cells[name].code, "Copied"] for name in copied}
        assert {c.label for c in chapter.cells if c.tangled} <= copied.keys()
        seen += len(copied)
    assert seen > 7


def _root(site: Site) -> Path:
    """The folder of the chapters that a site was made from."""
    parents = [site.folder, *site.folder.parents]
    return next(p for p in parents if (p / "_quarto.yml").is_file())


def test_copy_fills_the_real_clipboard(
    reader: Reader, sample: Site, tmp_path: Path
) -> None:
    with chromium.served(sample.folder, tmp_path) as site:
        page = reader.open(
            site, SAMPLE, permissions=["clipboard-read", "clipboard-write"]
        )
        page.click("#reverse-kernel .copy")
        page.wait_for_selector("#reverse-kernel .copy.done")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == page.text_content("#reverse-kernel .code code")
        assert copied.startswith("import torch\nimport triton\n")


def test_copy_works_where_the_clipboard_is_refused(
    reader: Reader, sample: Site
) -> None:
    context = reader.context(sample)
    context.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
        "document.addEventListener('copy', () => {"
        "window.copied = document.activeElement.value})"
    )
    page = context.new_page()
    page.goto(sample.address + SAMPLE)
    page.click("#reverse-kernel .copy")
    page.wait_for_selector("#reverse-kernel .copy.done")
    code = page.text_content("#reverse-kernel .code code")
    assert page.evaluate("window.copied") == code
    assert page.locator("textarea").count() == 0
    focused = page.evaluate("document.activeElement.className")
    assert "copy" in focused


# --- keyboard ------------------------------------------------------------------------

# What Tab must reach: in this order, each thing that can be used and is shown.
_STOPS = """() => [...document.querySelectorAll(
    'a[href], button, input, summary, [tabindex]')]
  .filter(node => node.tabIndex >= 0 && node.checkVisibility(
    {visibilityProperty: true}))
  .map((node, number) => { node.dataset.stop = number; return node.outerHTML; })"""

# Where the focus is, whether it can be seen, and whether something lies over it.
_FOCUS = """() => {
  const node = document.activeElement;
  const style = getComputedStyle(node);
  const box = node.getClientRects()[0];
  const middle = (from, to, end) => (Math.max(from, 0) + Math.min(to, end)) / 2;
  const over = box && document.elementFromPoint(
    middle(box.left, box.right, innerWidth), middle(box.top, box.bottom, innerHeight));
  return [
    node.dataset.stop ?? null,
    style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
    Boolean(over) && node.contains(over),
  ];
}"""


@pytest.mark.parametrize("width", [1440, 360])
@pytest.mark.parametrize("name", ["index.html", SAMPLE])
def test_tab_reaches_everything_and_shows_where_it_is(
    reader: Reader, sample: Site, name: str, width: int
) -> None:
    page = reader.open(sample, name, width=width, reduced_motion="reduce")
    page.evaluate(_SHOW_ALL)
    stops = page.evaluate(_STOPS)
    for number, what in enumerate(stops):
        page.keyboard.press("Tab")
        assert page.evaluate(_FOCUS) == [str(number), True, True], what
    assert len(stops) > (20 if name == SAMPLE else 8)
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(_FOCUS)[0] == str(len(stops) - 2)


def test_skip_link_comes_first_and_leads_to_the_text(
    reader: Reader, book: Site
) -> None:
    page = reader.open(book)
    skip = page.locator(".skip")
    assert not _in_window(page, ".skip")
    page.keyboard.press("Tab")
    assert _in_window(page, ".skip")
    assert skip.evaluate("node => node === document.activeElement")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def _in_window(page: Page, selector: str) -> bool:
    seen: bool = page.locator(selector).first.evaluate(
        """node => { const box = node.getBoundingClientRect();
          return node.checkVisibility({visibilityProperty: true}) &&
            box.right > 0 && box.bottom > 0 && box.left < innerWidth &&
            box.top < innerHeight }"""
    )
    return seen


def focused(page: Page) -> str:
    found: str = page.evaluate(
        "(e => e.getAttribute('aria-label') || e.innerText)(document.activeElement)"
    )
    return found


@pytest.mark.parametrize("keys", ["/", "Control+K"])
def test_search_by_keyboard(reader: Reader, sample: Site, keys: str) -> None:
    page = reader.open(sample)
    page.focus(".open-search")
    page.keyboard.press(keys)
    page.keyboard.type("reverse")
    options = page.locator(".search-results [role=option]")
    options.nth(1).wait_for()
    assert focused(page) == "Search the book"
    active = page.locator(".search input").get_attribute
    assert active("aria-activedescendant") == "result-0"
    page.keyboard.press("ArrowUp")
    last = options.count() - 1
    assert active("aria-activedescendant") == f"result-{last}"
    assert options.nth(last).get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowDown")
    assert options.nth(0).get_attribute("aria-selected") == "true"
    page.keyboard.press("Escape")
    assert not page.evaluate("document.querySelector('dialog').open")
    assert focused(page) == "Search"


def test_a_slash_that_is_typed_stays_a_slash(reader: Reader, sample: Site) -> None:
    page = reader.open(sample)
    open_search(page)
    page.keyboard.type("a/b")
    assert page.input_value(".search input") == "a/b"


def test_theme_parts_folds_and_callouts_by_keyboard(
    reader: Reader, sample: Site
) -> None:
    page = reader.open(sample, SAMPLE, color_scheme="light")
    page.focus(".theme")
    page.keyboard.press("Space")
    assert background(page) == DARK
    for box in (".contents details", "details.fold", "details.callout"):
        details = page.locator(box).first
        was_open = details.evaluate("node => node.open")
        details.locator("summary").first.focus()
        page.keyboard.press("Enter")
        assert details.evaluate("node => node.open") is not was_open, box
        page.keyboard.press("Space")
        assert details.evaluate("node => node.open") is was_open, box


def test_tabs_by_arrows(reader: Reader, sample: Site) -> None:
    page = reader.open(sample, SAMPLE)
    tabs = page.locator("[role=tab]")
    panels = page.locator("[role=tabpanel]")
    count = tabs.count()
    assert count == panels.count() >= 2

    def chosen() -> list[int]:
        selected = page.eval_on_selector_all(
            "[role=tab]",
            "tabs => tabs.map((t, n) => t.ariaSelected === 'true' ? n : -1)",
        )
        shown = [n for n in range(count) if panels.nth(n).is_visible()]
        assert [n for n in selected if n >= 0] == shown
        assert tabs.nth(shown[0]).get_attribute("tabindex") == "0"
        return shown

    assert chosen() == [0]
    tabs.nth(0).focus()
    for key, expected in (
        ("ArrowRight", 1),
        ("End", count - 1),
        ("ArrowRight", 0),
        ("ArrowLeft", count - 1),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        assert chosen() == [expected], key
        assert focused(page) == tabs.nth(expected).inner_text()


def test_copy_by_keyboard(reader: Reader, sample: Site) -> None:
    context = reader.context(sample)
    context.add_init_script(_KEEP_COPIES)
    page = context.new_page()
    page.goto(sample.address + SAMPLE)
    button = page.locator("#reverse-kernel .copy")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#reverse-kernel .copy.done")
    assert len(page.evaluate("window.copies")) == 1
    assert focused(page) == "Copy the code"


def test_what_is_too_wide_is_scrolled_by_keyboard(reader: Reader, sample: Site) -> None:
    page = reader.open(sample, SAMPLE, width=360, reduced_motion="reduce")
    listing = page.locator("#lst-ptx pre")
    listing.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('#lst-ptx pre').scrollLeft > 0")


def test_a_link_opens_the_box_it_leads_into(reader: Reader, sample: Site) -> None:
    page = reader.open(sample, SAMPLE, height=300, reduced_motion="reduce")
    page.evaluate("""() => {
      document.querySelector('details.callout .callout-body p').id = 'within';
      const tab = document.querySelectorAll('.tab')[1];
      tab.querySelector('.tab-body p').id = 'in-tab';
    }""")
    for ident in ("within", "in-tab"):
        page.evaluate("scrollTo(0, 0)")
        assert not page.locator(f"#{ident}").is_visible()
        page.evaluate("ident => { location.hash = ident; }", ident)
        page.locator(f"#{ident}").wait_for()
        assert _in_window(page, f"#{ident}")


# --- phone ---------------------------------------------------------------------------


def test_contents_open_and_close_on_a_phone(reader: Reader, site: Site) -> None:
    page = reader.open(site, **PHONE, reduced_motion="reduce")
    menu, contents = page.locator(".menu"), page.locator("#contents")

    def is_open() -> bool:
        expanded = menu.get_attribute("aria-expanded") == "true"
        assert contents.is_visible() == expanded
        return expanded

    assert not is_open()
    menu.tap()
    assert is_open()
    assert _in_window(page, "#contents a")
    assert page.evaluate("document.activeElement.ariaCurrent") == "page"
    page.keyboard.press("Escape")
    assert not is_open()
    assert focused(page) == "Contents"
    menu.tap()
    page.touchscreen.tap(350, 700)  # beside it
    assert not is_open()
    menu.tap()
    contents.locator("a").nth(1).tap()
    page.wait_for_url("**/book/*.html")
    assert not is_open()


def test_search_fits_on_a_phone(reader: Reader, site: Site) -> None:
    page = reader.open(site, **(PHONE | {"width": 320}))
    page.tap(".open-search")
    page.wait_for_selector(".search[open]")
    page.wait_for_function("document.querySelector('.search-status').textContent")
    assert search(page, "kernel")
    assert page.evaluate(_WIDER) == []
    box = page.locator(".search").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 320
    assert box["y"] + box["height"] <= PHONE["height"]
    page.tap(".search [aria-label=Close]")
    assert not page.locator(".search").is_visible()


# --- print, motion, no script --------------------------------------------------------


def test_print_holds_the_text_and_nothing_to_click(
    reader: Reader, sample: Site
) -> None:
    page = reader.open(sample, SAMPLE, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    for part in ("bar", "contents", "outline", "pager", "skip", "copy", "tab-list"):
        found = page.locator(f".{part}")
        assert found.count() > 0
        assert not found.first.is_visible(), part
    assert background(page) == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(34, 38, 43)"
    assert all(tab.is_visible() for tab in page.locator(".tab").all())


def test_paper_has_every_page_folds_and_tabs_included(
    reader: Reader, sample: Site, tmp_path: Path
) -> None:
    page = reader.open(sample, SAMPLE)
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    texts = [p.extract_text() for p in pypdf.PdfReader(tmp_path / "page.pdf").pages]
    assert len(texts) > 2
    assert all(len(text) > 40 for text in texts)
    flat = " ".join(" ".join(texts).split())
    for words in (
        "warnings.warn(",  # in a fold
        "with any strides",  # in a closed callout
        "The interpreter runs it.",  # in the second tab
        "a line that is much longer than the page is wide, to be scrolled",
    ):
        assert re.sub(r"\s", "", words) in re.sub(r"\s", "", flat), words
    assert "Skip to content" not in flat


@pytest.mark.parametrize(
    ("motion", "moves"), [("reduce", False), ("no-preference", True)]
)
def test_motion_is_reduced_for_who_asks(
    reader: Reader, sample: Site, motion: str, moves: bool
) -> None:
    page = reader.open(sample, SAMPLE, **PHONE, reduced_motion=motion)
    style = "getComputedStyle(document.querySelector('{}')).{}"
    smooth = page.evaluate(style.format("html", "scrollBehavior")) == "smooth"
    assert smooth is moves
    moving = page.evaluate("""() => [...document.querySelectorAll('*')].filter(node => {
      const style = getComputedStyle(node);
      const lasts = text => text.split(',').some(part => parseFloat(part) > 0);
      return lasts(style.transitionDuration) || lasts(style.animationDuration);
    }).length""")
    assert (moving > 0) is moves


@pytest.mark.parametrize("width", [1280, 360])
def test_everything_can_be_read_without_scripts(
    reader: Reader, site: Site, width: int
) -> None:
    page = reader.page(site, width, java_script_enabled=False)
    for name in ("index.html", site.pages[1]):
        page.goto(site.address + name)
        assert page.locator("article h1").is_visible()
        assert page.locator("#contents a").first.is_visible()
        assert not page.locator(".bar button").first.is_visible()
        assert page.locator(".copy").count() == 0
        assert page.locator(".pager a").first.is_visible()
        assert page.evaluate(_WIDER) == []
        for tab in page.locator(".tab").all():
            assert tab.is_visible()
            assert tab.locator(".tab-title").is_visible()
        for fold in page.query_selector_all("article details:not([open])")[:3]:
            inside = fold.query_selector(":scope > :not(summary)")
            assert inside is not None
            assert not inside.is_visible()
            fold.query_selector("summary").click()  # type: ignore[union-attr]
            assert inside.is_visible()
    page.goto(site.address + "index.html")
    page.locator("#contents a").nth(1).click()
    assert page.url != site.address + "index.html"

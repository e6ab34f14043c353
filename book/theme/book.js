/* The HTML book's behavior: theme, contents on a phone, copying, tabs, the outline,
   search. Everything is readable without it. No request leaves the book's folder. */
"use strict";
(() => {
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const make = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };

  // Theme: the system's until the reader chooses the other one.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = $(".theme");
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const showTheme = () => themeButton.setAttribute("aria-pressed", String(isDark()));
  themeButton.addEventListener("click", () => {
    const wanted = isDark() ? "light" : "dark";
    const follows = (wanted === "dark") === system.matches;
    if (follows) delete root.dataset.theme;
    else root.dataset.theme = wanted;
    try {
      if (follows) localStorage.removeItem("theme");
      else localStorage.setItem("theme", wanted);
    } catch (error) { /* storage is closed: the choice lasts for this page */ }
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  // Contents on a narrow window.
  const menu = $(".menu");
  const contents = $("#contents");
  const setMenu = (open) => {
    contents.classList.toggle("open", open);
    menu.setAttribute("aria-expanded", String(open));
  };
  menu.addEventListener("click", () => {
    const open = !contents.classList.contains("open");
    setMenu(open);
    if (open) ($("[aria-current]", contents) || $("a", contents)).focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && contents.classList.contains("open")) {
      setMenu(false);
      menu.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!contents.contains(event.target) && !menu.contains(event.target)) setMenu(false);
  });
  const current = $("[aria-current]", contents);
  if (current) {
    const place = current.offsetTop - contents.clientHeight / 2;
    if (place > 0) contents.scrollTop = place;
  }

  // Copy buttons: exactly the text of the listing.
  const copyText = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) {
      const focused = document.activeElement;
      const area = make("textarea", { value: text, className: "unseen" });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      focused?.focus();
    }
  };
  for (const bar of $$(".code-bar")) {
    const button = make("button", { type: "button", className: "copy" }, "Copy");
    button.setAttribute("aria-label", "Copy the code");
    let back;
    button.addEventListener("click", async () => {
      await copyText($("code", bar.parentElement).textContent);
      button.textContent = "Copied";
      button.classList.add("done");
      clearTimeout(back);
      back = setTimeout(() => {
        button.textContent = "Copy";
        button.classList.remove("done");
      }, 1600);
    });
    bar.append(button);
  }

  // What scrolls sideways can be reached with the keyboard.
  const reachable = () => {
    for (const box of $$("pre, .table-wrap, .formula, .drawing")) {
      if (box.scrollWidth > box.clientWidth + 1) {
        box.tabIndex = 0;
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", box.tagName === "PRE" ? "Code" : "Wide content");
      } else if (box.hasAttribute("role")) {
        for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
      }
    }
  };
  addEventListener("load", reachable);
  addEventListener("resize", reachable);

  // Tabs.
  const tabsets = $$(".tabset");
  tabsets.forEach((set, setNumber) => {
    const panels = [...set.children];
    const list = make("div", { className: "tab-list" });
    list.setAttribute("role", "tablist");
    const buttons = panels.map((panel, number) => {
      const title = $(".tab-title", panel);
      const button = make("button", { type: "button", innerHTML: title.innerHTML });
      button.id = `tab-${setNumber}-${number}`;
      button.setAttribute("role", "tab");
      panel.id = panel.id || `panel-${setNumber}-${number}`;
      button.setAttribute("aria-controls", panel.id);
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", button.id);
      return button;
    });
    const select = (chosen, focus = false) => {
      panels.forEach((panel, number) => {
        panel.style.display = number === chosen ? "" : "none";
        buttons[number].setAttribute("aria-selected", String(number === chosen));
        buttons[number].tabIndex = number === chosen ? 0 : -1;
      });
      if (focus) buttons[chosen].focus();
      reachable();
    };
    buttons.forEach((button, number) => {
      button.addEventListener("click", () => select(number));
      button.addEventListener("keydown", (event) => {
        const last = buttons.length - 1;
        const to = {
          ArrowRight: number === last ? 0 : number + 1,
          ArrowLeft: number === 0 ? last : number - 1,
          Home: 0,
          End: last,
        }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        select(to, true);
      });
    });
    list.append(...buttons);
    set.prepend(list);
    set.classList.add("ready");
    select(0);
    set.reveal = (node) => {
      const number = panels.findIndex((panel) => panel.contains(node));
      if (number >= 0) select(number);
    };
  });

  // A link may lead into a closed box or a hidden tab.
  const reveal = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (!target) return;
    let moved = false;
    for (let node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS" && !node.open) moved = node.open = true;
      if (node.reveal) { node.reveal(target); moved = true; }
    }
    if (moved) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => {
    for (const box of $$("details")) box.open = true;
  });

  // The outline follows the page.
  const marks = new Map();
  for (const link of $$(".outline a")) {
    const heading = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    if (heading) marks.set(heading, link);
  }
  if (marks.size) {
    const headings = [...marks.keys()];
    const outline = $(".outline");
    let waiting = false;
    const follow = () => {
      waiting = false;
      const edge = 140;
      let here = headings[0];
      for (const heading of headings) {
        if (heading.getBoundingClientRect().top <= edge) here = heading;
      }
      const end = innerHeight + scrollY >= root.scrollHeight - 2;
      if (end && scrollY > 0) here = headings.at(-1);
      for (const [heading, link] of marks) {
        const on = heading === here;
        link.classList.toggle("here", on);
        if (on) link.setAttribute("aria-current", "location");
        else link.removeAttribute("aria-current");
      }
      const link = marks.get(here);
      const view = outline.getBoundingClientRect();
      const box = link.getBoundingClientRect();
      if (box.top < view.top + 60) outline.scrollTop -= view.top + 60 - box.top;
      else if (box.bottom > view.bottom - 60) outline.scrollTop += box.bottom - view.bottom + 60;
    };
    const soon = () => {
      if (!waiting) { waiting = true; requestAnimationFrame(follow); }
    };
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    follow();
  }

  // Search. The index is read when search is first opened.
  const base = document.body.dataset.root;
  const dialog = $("dialog.search");
  const input = $("input", dialog);
  const results = $(".search-results", dialog);
  const status = $(".search-status", dialog);
  let engine = null;
  let loading = null;

  const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}_.]+/gu) || [];
  const parts = (word) => {
    const whole = word.replace(/^\.+|\.+$/g, "");
    const pieces = whole.split(/[_.]+/).filter(Boolean);
    return [...new Set([whole, ...pieces])].filter(Boolean); // __init__ is init, too
  };

  const build = (entries) => {
    const WEIGHTS = [12, 3, 1.5]; // heading, prose, code
    const found = new Map(); // word -> Map(entry number -> weight)
    entries.forEach((entry, number) => {
      [`${entry[1]} ${entry[2]}`, entry[4], entry[5]].forEach((text, fieldNumber) => {
        const counts = new Map();
        for (const word of words(text)) {
          for (const part of parts(word)) counts.set(part, (counts.get(part) || 0) + 1);
        }
        for (const [word, count] of counts) {
          if (!found.has(word)) found.set(word, new Map());
          const places = found.get(word);
          const weight = WEIGHTS[fieldNumber] * (1 + Math.log(count));
          places.set(number, (places.get(number) || 0) + weight);
        }
      });
    });
    const sorted = [...found.keys()].sort();
    const from = (prefix) => {
      let low = 0;
      let high = sorted.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (sorted[middle] < prefix) low = middle + 1;
        else high = middle;
      }
      return low;
    };
    const lookUp = (term) => {
      const scores = new Map();
      for (let n = from(term); n < sorted.length && sorted[n].startsWith(term); n++) {
        const places = found.get(sorted[n]);
        const rare = Math.log(1 + entries.length / places.size);
        const near = sorted[n] === term ? 1 : (0.6 * term.length) / sorted[n].length;
        for (const [number, weight] of places) {
          const score = weight * rare * near;
          if (score > (scores.get(number) || 0)) scores.set(number, score);
        }
      }
      return scores;
    };
    return (query) => {
      const terms = words(query).map((w) => w.replace(/^\.+|\.+$/g, "")).filter(Boolean);
      if (!terms.length) return [];
      let total = null;
      for (const term of terms) {
        const scores = lookUp(term);
        if (total === null) { total = scores; continue; }
        for (const [number, score] of total) {
          if (scores.has(number)) total.set(number, score + scores.get(number));
          else total.delete(number);
        }
      }
      const phrase = query.trim().toLowerCase();
      const ranked = [...total].map(([number, score]) => {
        const entry = entries[number];
        // A name in snake_case is looked for where it is defined.
        const defined = phrase.includes("_") && `\n${entry[5]}`.includes(`\ndef ${phrase}(`);
        if (defined) score *= 20;
        if (entry[2].toLowerCase().includes(phrase)) score *= 2;
        else if (terms.length > 1 && entry[4].toLowerCase().includes(phrase)) score *= 1.6;
        else if (terms.length > 1 && entry[5].toLowerCase().includes(phrase)) score *= 1.4;
        return { entry, terms, score };
      });
      return ranked.sort((a, b) => b.score - a.score);
    };
  };

  const load = () => {
    loading ??= new Promise((resolve) => {
      const script = make("script", { src: `${base}site/search-index.js` });
      script.addEventListener("load", () => {
        engine = build(window.bookIndex);
        resolve();
      });
      script.addEventListener("error", () => {
        status.textContent = "The search index could not be read.";
      });
      document.head.append(script);
    });
    return loading;
  };

  const marked = (text, terms) => {
    const pattern = terms
      .map((term) => term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
      .sort((a, b) => b.length - a.length);
    const out = document.createDocumentFragment();
    const regex = new RegExp(`(${pattern.join("|")})`, "gi");
    text.split(regex).forEach((piece, number) => {
      if (piece) out.append(number % 2 ? make("mark", {}, piece) : piece);
    });
    return out;
  };
  const at = (text, terms) => {
    const low = text.toLowerCase();
    const places = terms.map((term) => low.indexOf(term)).filter((place) => place >= 0);
    return places.length ? Math.min(...places) : -1;
  };
  const snippet = ({ entry, terms }) => {
    const inProse = at(entry[4], terms);
    const inCode = at(entry[5], terms);
    const code = inProse < 0 && inCode >= 0;
    const text = code ? entry[5] : entry[4];
    const place = code ? inCode : inProse;
    if (!text || (place < 0 && code)) return "";
    let start = Math.max(0, place - 70);
    if (code) {
      start = text.lastIndexOf("\n", Math.max(0, place - 1)) + 1;
      if (place - start > 90) start = place - 60;
    } else if (start > 0) {
      start = text.indexOf(" ", start) + 1 || start;
    }
    let body = text.slice(start, start + (code ? 160 : 190));
    if (code) body = body.split("\n").slice(0, 2).join("\n");
    else body = body.replace(/\s+/g, " ");
    const node = make("span", { className: code ? "snippet is-code" : "snippet" });
    if (start > 0 && !code) node.append("… ");
    node.append(marked(body.trimEnd(), terms));
    if (start + body.length < text.length && !code) node.append(" …");
    return node;
  };

  let chosen = -1;
  const options = () => [...results.children];
  const choose = (number) => {
    const all = options();
    if (!all.length) {
      chosen = -1;
      input.removeAttribute("aria-activedescendant");
      return;
    }
    chosen = (number + all.length) % all.length;
    all.forEach((option, n) => option.setAttribute("aria-selected", String(n === chosen)));
    input.setAttribute("aria-activedescendant", all[chosen].id);
    all[chosen].scrollIntoView({ block: "nearest" });
  };
  const LIMIT = 30;
  const search = () => {
    if (!engine) return;
    const query = input.value;
    const hits = engine(query);
    const shown = hits.slice(0, LIMIT).map((hit, number) => {
      const [url, sectionNumber, title, crumb] = hit.entry;
      const name = make("span", { className: "title" });
      name.append(sectionNumber ? `${sectionNumber}  ` : "", marked(title, hit.terms));
      const link = make("a", { href: base + url, id: `result-${number}`, tabIndex: -1 });
      link.setAttribute("role", "option");
      if (crumb) link.append(make("span", { className: "crumb" }, crumb));
      link.append(name, snippet(hit));
      return link;
    });
    results.replaceChildren(...shown);
    if (!query.trim()) status.textContent = "Every section's text and code is searched.";
    else if (!hits.length) status.textContent = `Nothing found for “${query.trim()}”.`;
    else {
      const more = hits.length > LIMIT ? `, the best ${LIMIT} shown` : "";
      status.textContent = `${hits.length} ${hits.length === 1 ? "section" : "sections"}${more}`;
    }
    choose(0);
  };
  const openSearch = async () => {
    if (dialog.open) return;
    setMenu(false);
    dialog.showModal();
    input.select();
    await load();
    search();
  };
  $(".open-search").addEventListener("click", openSearch);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    const slash = event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
    const controlK = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
    if (slash || controlK) {
      event.preventDefault();
      openSearch();
    }
  });
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") options()[chosen]?.click();
    else if (event.key === "Escape") dialog.close(); // not only: empty the field
    else return;
    event.preventDefault();
  });
  results.addEventListener("click", (event) => {
    if (event.target.closest("a")) dialog.close();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
})();

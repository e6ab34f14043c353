"""What no file of the repository holds, and what the guides promise."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import tangle
from loom import budget, lint, subset

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ("README.md", "CONTRIBUTING.md")

# Written so that this file does not hold what it looks for.
FORBIDDEN = {
    "an unfinished place": r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b|(?i:coming[ ]soon)",
    "a machine's path": r"(?<![\w.])/(?:ro[o]t|wo[r]k|ho[m]e/\w+|Us[e]rs/\w+)/\w",
    "a merge conflict": r"^(?:<{7}|>{7}|\|{7})(?: |$)",
    "a package index": r"--(?:extra-)?index[-]url|find[-]links",
}


def files() -> list[Path]:
    """The files that git has or would take; all of them where git is not."""
    command = ["git", "-C", str(ROOT), "ls-files", "-coz", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [p for p in ROOT.rglob("*") if p.is_file() and ".venv" not in p.parts]
    paths = [ROOT / name for name in listed.decode("utf-8").split("\0") if name]
    return [path for path in paths if path.is_file()]


def texts() -> list[tuple[str, str]]:
    """The text files by their path."""
    found = []
    for path in files():
        data = path.read_bytes()
        if b"\0" not in data[:4096]:
            text = data.decode("utf-8", "replace")
            found.append((path.relative_to(ROOT).as_posix(), text))
    return found


def faults(name: str, text: str) -> list[str]:
    """Each forbidden thing in a text as ``path:line: what``."""
    found = []
    for what, pattern in FORBIDDEN.items():
        if what == "a machine's path" and name.startswith("tests/"):
            continue  # the tests of what scrubs them need some
        for match in re.finditer(pattern, text, re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{name}:{line}: {what}: {match[0]!r}")
    return found


def test_no_file_holds_what_is_forbidden() -> None:
    found = [fault for name, text in texts() for fault in faults(name, text)]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "text",
    ["# TO" + "DO: later", "open('/ro" + "ot/x')", "a\n<<<<" + "<<< HEAD\n"],
)
def test_what_is_forbidden_is_found(text: str) -> None:
    assert faults("loom/x.py", text)


def commands(guide: str) -> list[str]:
    """The commands of a guide: lines of its bash blocks, and its inline code."""
    text = (ROOT / guide).read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    plain = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line.partition("#")[0].strip() for line in lines] + re.findall(
        r"`([^`\n]+)`", plain
    )


@pytest.mark.parametrize("guide", GUIDES)
def test_targets_that_a_guide_names_are_there(guide: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))
    named = {m[1] for c in commands(guide) if (m := re.match(r"make ([a-z]+)", c))}
    assert named
    assert named <= targets


@pytest.mark.parametrize("guide", GUIDES)
def test_scripts_and_flags_that_a_guide_names_are_there(guide: str) -> None:
    run = re.compile(r"(?:\S*python3? )(?:-m )?(tangle\.py|weave\.py|loom\.lint)(.*)")
    found = 0
    for command in commands(guide):
        match = run.match(command)
        if not match:
            continue
        found += 1
        script = match[1].replace("loom.lint", "loom/lint.py")
        source = (ROOT / script).read_text(encoding="utf-8")
        for flag in re.findall(r"--[a-z]+", match[2]):
            assert f'"{flag}"' in source, f"{guide}: {command}: {script} has no {flag}"
    assert found


def test_flags_that_the_makefile_uses_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    used = set(re.findall(r"(tangle\.py|weave\.py) (--[a-z]+)", makefile))
    used.remove(("weave.py", "--capture"))  # only where there is a GPU
    assert len(used) >= 4
    for script, flag in used:
        assert f'"{flag}"' in (ROOT / script).read_text(encoding="utf-8"), (
            script,
            flag,
        )


@pytest.mark.parametrize("guide", [*GUIDES, "CHANGELOG.md", "LICENSE-PROSE.md"])
def test_files_that_a_guide_names_are_there(guide: str) -> None:
    text = (ROOT / guide).read_text(encoding="utf-8")
    plain = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)\)", plain):
        if "file.svg" not in target:
            assert (ROOT / target).exists(), f"{guide}: {target}"


def numbered(mark: str) -> str:
    """The numbered listing below a mark in CONTRIBUTING.md, without its numbers."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = text.split(f"<!-- {mark} -->\n~~~text\n")[1].split("~~~")[0]
    lines = re.findall(r"^ *(\d+) │ ?(.*)$", block, re.MULTILINE)
    assert [int(number) for number, _ in lines] == list(range(1, len(lines) + 1))
    return "".join(f"{line}\n" for _, line in lines)


def test_the_worked_example_is_what_the_tangler_does(tmp_path: Path) -> None:
    chapter, module = numbered("chapter"), numbered("module")
    assert tangle.tangle_text(chapter) == module
    assert tangle.untangle_text(module) == chapter
    read = tangle.read_chapter(tmp_path / "x.qmd", "book/02-doubling.qmd", chapter)
    assert lint.check(tangle.Book(tmp_path, (read,))) == []
    assert subset.markdown() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_a_file_over_the_budget_is_marked() -> None:
    seconds = {"tests/test_a.py": 3.25, "tests/test_long.py": 61.0}
    lines = budget.table(
        budget.Counter(seconds), budget.Counter(dict.fromkeys(seconds, 2))
    )
    assert lines == [
        "tests/test_long.py     61.0 s     2 tests  over budget",
        "tests/test_a.py         3.2 s     2 tests",
    ]


def test_ci_does_what_the_readme_says() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (packages,) = re.findall(r"^sudo apt-get install (.*)$", readme, re.MULTILINE)
    for package in packages.split():
        assert f"missing+=({package})" in script
    assert script.rstrip().endswith("make book\nmake check\nmake test")

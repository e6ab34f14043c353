"""Where in a chapter a reference, a link or a citation stands."""

from __future__ import annotations

import re

from tangle import Chapter

_FENCE = re.compile(r"^\s*(```+|~~~+)")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n[ \t]*\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


class Locator:
    """Finds the lines of a chapter's prose (and cell options) that say something."""

    def __init__(self, chapter: Chapter) -> None:
        lines = chapter.text.split("\n")
        if lines and lines[0].strip() == "---":
            end = next((i for i, x in enumerate(lines[1:], 1) if x.strip() == "---"), 0)
            lines[: end + 1] = [""] * (end + 1)
        for cell in chapter.cells:
            options = True
            for number in range(cell.first, cell.last - 1):
                options = options and lines[number].startswith("#|")
                if not options:
                    lines[number] = ""
            lines[cell.first - 1] = lines[cell.last - 1] = ""
        fence = ""
        for number, line in enumerate(lines):
            match = _FENCE.match(line)
            if fence:
                lines[number] = ""
                if match and line.strip().startswith(fence) and not line.strip(" `~"):
                    fence = ""
            elif match:
                fence = match.group(1)
                lines[number] = line if "{#" in line else ""
        prose = _COMMENT.sub(_blank, "\n".join(lines))
        self.lines = _SPAN.sub(_blank, prose).split("\n")

    def matching(self, pattern: str) -> list[int]:
        """The numbers of the lines that `pattern` is found in, one for each match."""
        regex = re.compile(pattern)
        return [
            number
            for number, line in enumerate(self.lines, 1)
            for _ in regex.finditer(line)
        ]

    def citation(self, key: str) -> list[int]:
        """Lines that cite or refer to `@key`."""
        return self.matching(rf"(?<![\w@.\\])@\{{?{re.escape(key)}(?![\w-]|[.:]\w)")

    def target(self, url: str) -> list[int]:
        """Lines with a link or an image that goes to `url`."""
        return self.matching(rf"[(<:\s]{re.escape(url)}(?![\w/#-]|\.\w)")

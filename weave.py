#!/usr/bin/env python3
"""Weave the chapters into the book: execute them, render HTML and PDF.

``python weave.py`` leaves ``_book/index.html`` and the PDF beside it.  What has not
changed is not executed or rendered again.  A failing run names every fault as
``file:line`` and leaves the old book.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

import tangle


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("weave.py", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--chapter",
        action="append",
        default=[],
        metavar="NAME",
        help="execute only this chapter (reductions, 11-reductions); can be repeated",
    )
    parser.add_argument("--to", choices=("html", "pdf"), help="only this format")
    parser.add_argument(
        "--check", action="store_true", help="execute nothing; 1 if something is wrong"
    )
    parser.add_argument(
        "--serve", action="store_true", help="preview in a browser, rebuild on save"
    )
    parser.add_argument("--port", type=int, default=4848, help="with --serve (4848)")
    parser.add_argument(
        "--no-cache", action="store_true", help="execute chapters that have not changed"
    )
    parser.add_argument(
        "--renderer",
        choices=("auto", "embedded", "quarto"),
        default="auto",
        help="auto: Quarto where it is found",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="chapters at once (default: the cores)"
    )
    args = parser.parse_args(argv)
    if args.jobs is not None and args.jobs < 1:
        parser.error(f"--jobs {args.jobs}: at least 1")
    if args.check and (args.chapter or args.serve or args.to):
        parser.error("--check looks at the whole book; give it alone")
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    root = (args.root or Path(__file__).parent).resolve()
    try:
        signal.signal(signal.SIGTERM, _interrupt)
    except ValueError:  # not the main thread: the caller handles signals
        pass
    try:
        if args.check:
            return check(root)
        from loom.build import Options

        options = Options(
            names=tuple(args.chapter),
            formats=(args.to,) if args.to else ("html", "pdf"),
            renderer=args.renderer,
            use_cache=not args.no_cache,
            jobs=args.jobs,
        )
        if args.serve:
            from loom.serve import serve

            return serve(root, options, args.port)
        return weave(root, options)
    except tangle.BookError as fault:
        print(fault, file=sys.stderr)
        return 1
    except ModuleNotFoundError as fault:
        print(
            f"weave.py: {fault.name} is not installed; `make book` installs what is"
            " needed, or pip install -e '.[book]'",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("stopped; the old book is as it was", file=sys.stderr)
        return 130
    except OSError as fault:
        print(f"{fault.filename or root}: {fault.strerror or fault}", file=sys.stderr)
        return 1


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def weave(root: Path, options: object) -> int:
    """Weave once, and say where the book is."""
    from loom import build
    from loom.progress import progress

    begun = time.monotonic()
    report = progress()
    built = build.weave(root, options, report)  # type: ignore[arg-type]
    report.summary()
    for note in built.notes:
        print(note)
    out = root / build.OUT
    pdfs = sorted(out.glob("*.pdf"))
    done = "woven" if built.files else "nothing has changed"
    print(f"{done} ({time.monotonic() - begun:.1f} s)")
    for path in [out / "index.html", *pdfs]:
        if path.exists():
            print(f"  {path.relative_to(root)}")
    return 0


def check(root: Path) -> int:
    """Print every problem; notes are no problem."""
    from loom import build

    problems, notes = build.check(root)
    for note in notes:
        print(note)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

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
    parser.add_argument(
        "--capture",
        action="store_true",
        help="on a GPU: run chapters natively, store what their capture cells say",
    )
    parser.add_argument(
        "--pack",
        type=Path,
        metavar="FILE",
        help="with --capture: also put the captures into this archive (.tar, .tar.gz)",
    )
    parser.add_argument(
        "--unpack",
        type=Path,
        metavar="FILE",
        help="check the captures in an archive and copy them into captures/",
    )
    args = parser.parse_args(argv)
    if args.jobs is not None and args.jobs < 1:
        parser.error(f"--jobs {args.jobs}: at least 1")
    if args.check and (args.chapter or args.serve or args.to):
        parser.error("--check looks at the whole book; give it alone")
    modes = [args.check, args.serve, args.capture, args.unpack is not None]
    if sum(modes) > 1:
        parser.error("give one of --check, --serve, --capture and --unpack")
    if args.pack and not args.capture:
        parser.error("--pack packs what --capture made; give both")
    if args.pack and not args.pack.absolute().parent.is_dir():
        parser.error(f"--pack {args.pack}: no such folder")
    if args.unpack and args.chapter:
        parser.error("--unpack copies all that the archive has; give no --chapter")
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
        if args.unpack:
            return unpack(root, args.unpack)
        if args.capture:
            return capture(root, args.chapter, args.pack)
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


def capture(root: Path, names: list[str], pack: Path | None) -> int:
    """Capture on this machine's GPU, and say what was stored."""
    from loom import capture as run
    from loom.progress import progress

    report = progress()
    try:
        files = run.capture(root, names, report, pack=pack)
    except run.NoGpu as reason:
        print(f"weave.py --capture: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "stopped; the chapters that had ended are captured, all other captures"
            " are as they were",
            file=sys.stderr,
        )
        return 130
    finally:
        report.summary()
    print(f"{len(files)} cells captured")
    return 0


def unpack(root: Path, archive: Path) -> int:
    """Bring captures home; 1 when one of them no longer fits the code."""
    from loom import transport

    done = transport.unpack(root, archive)
    for name in done.written:
        print(f"{name}: stored")
    for name in done.same:
        print(f"{name}: says the same; kept as it was")
    for problem in done.left_out:
        print(problem, file=sys.stderr)
    return 1 if done.left_out else 0


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

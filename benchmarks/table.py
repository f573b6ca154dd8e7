"""The table of all results: `python -m benchmarks table --from build/bench`, with plots.

Writes `table.md` and the plots beside the results, or, with `--page`, into a page of the documentation between
its two marks, with the results and the plots in a folder beside the page.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from .groups import Data
from .interface import BadOptions, Progress
from .page import render, write_plots
from .results import load, save

SUMMARY = "The table and the plots of results that were written with --json or by `all`."
BENCH = Path("build/bench")
ASSETS = "assets/benchmarks"
"""Where a page has its plots and results, from its folder."""
RESULTS = "results.json"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument(
        "--from",
        dest="places",
        action="append",
        type=Path,
        metavar="PLACE",
        help=f"a JSON file, or a folder of them; may be given more than once (default {BENCH})",
    )
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="a Markdown file with two marks, between which the table is to stand, such as docs/benchmarks.md",
    )


def run(arguments: Namespace, progress: Progress) -> None:
    """Read the results, and write what they say."""
    places: list[Path] = arguments.places or [BENCH]
    results = load(places)
    if arguments.page is None:
        folder = places[0] if places[0].is_dir() else places[0].parent
        write_beside(results, folder, progress)
    else:
        write_page(results, arguments.page, progress)


def write_beside(results: Data, folder: Path, progress: Progress) -> None:
    """A table and plots in the folder of the results."""
    text, drawn = render(results, ".")
    write_plots(folder, drawn)
    (folder / "table.md").write_text(text, "utf-8")
    progress(f"written: {folder / 'table.md'}, and {len(drawn)} plots beside it")


def write_page(results: Data, page: Path, progress: Progress) -> None:
    """The part of a page between its marks, and what it refers to."""
    text, drawn = render(results, ASSETS)
    page.write_text(between_marks(page.read_text("utf-8"), text, page), "utf-8")
    write_plots(page.parent / ASSETS, drawn)
    save(page.parent / ASSETS / RESULTS, results)
    progress(f"written: {page}, and {len(drawn)} plots in {page.parent / ASSETS}")


def between_marks(whole: str, text: str, page: Path) -> str:
    """A page with this text between its marks."""
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadOptions(f"{page} needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"

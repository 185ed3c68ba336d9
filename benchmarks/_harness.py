"""What benchmarks share: repeated measurement, a table, a picture, and a file of results."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
#: Headings are whole sentences: wide enough for them where nothing is known of the terminal.
console = Console() if Console().is_terminal else Console(width=160)


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """The median of several calls."""
    return statistics.median(seconds(work) for _ in range(repeats))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float]) -> str:
    """The median, and behind it the least and the most if there are several."""
    middle = f"{as_text(float(statistics.median(values)))}"
    if len(values) == 1:
        return middle
    return f"{middle} ({as_text(float(min(values)))} to {as_text(float(max(values)))})"


def processor_seconds(root: int) -> float:
    """Seconds of the processor that a process and its descendants have used, ended ones too.

    A descendant that ended while nobody waited for it is not known.
    """
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        used[number] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    found, total = [root], 0.0
    while found:
        number = found.pop()
        total += used.get(number, 0.0)
        found += [child for child, parent in parents.items() if parent == number]
    return total


def describe_machine() -> str:
    """When and on what a result was measured, with which command, versions and load."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ("pyspark", "pyarrow", "duckdb", "numba", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    command = " ".join(["millpond bench", Path(sys.argv[0]).stem, *sys.argv[1:]])
    return (
        f"`{command}` on {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} processors,"
        f" {memory:.0f} GB, load {os.getloadavg()[2]:.1f} (mean of the last 15 minutes);"
        f" {platform.system()}, Python {platform.python_version()}, {versions}."
    )


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table and keep its rows as JSON under the benchmark's title."""
    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*[as_text(value) for value in row])
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    name = "".join(c if c.isalnum() else "_" for c in title.lower()).strip("_")
    content = {
        "title": title,
        "measured": describe_machine(),
        "columns": list(columns),
        "rows": [list(r) for r in rows],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1, default=str))


def picture(
    name: str,
    title: str,
    x_label: str,
    y_label: str,
    lines: dict[str, tuple[Sequence[float], Sequence[float]]],
) -> Path:
    """Draw lines on logarithmic axes; returns the picture's file, beside which it lies as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    # Equal pictures are equal files.
    matplotlib.rcParams |= {"svg.hashsalt": "millpond", "svg.fonttype": "none"}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for label, (xs, ys) in lines.items():
        axes.plot(xs, ys, marker="o", label=label)
    axes.set(xscale="log", yscale="log", title=title, xlabel=x_label, ylabel=y_label)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.png"
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)
    console.print(f"picture: {path}")
    return path


def as_text(value: object) -> str:
    """A figure as tables show it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

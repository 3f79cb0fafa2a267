"""One picture of all cells of the zoo: what each library reached beside what others published."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

from zoo_cell import Cell
from zoo_intervals import interquartile_mean, interval
from zoo_table import Files

from plugrad.cli.plot import COLORS, SVG_OF_READER

MOST = 1.0
"""Nothing is drawn beyond it on either side: one cell that is far off would hide the others."""


def draw_all(
    files: Files, cells: Sequence[Cell], titles: Mapping[str, str], libraries: Mapping[str, str], path: Path
) -> None:
    """Draw a line for each cell with a published value: `(return - published) / |published|` of each library.

    Points are interquartile means over seeds, bars their 95 % intervals by bootstrap; the grey bar is one published
    standard deviation on either side.

    Args:
        files: `{(cell, library): runs}`.
        cells: in the order of the page.
        titles: `{cell: its title}`.
        libraries: `{library: its name}`, in the order of their colours.
        path: an SVG.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = [cell for cell in cells if cell.published is not None][::-1]
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.34 * len(shown)), layout="constrained")
    for row, cell in enumerate(shown):
        published = cell.published
        assert published is not None
        scale = abs(published.mean)
        spread = min(published.std / scale, MOST)
        axes.barh(row, 2 * spread, left=-spread, height=0.7, color="#8a94a6", alpha=0.2)
        for number, (library, label) in enumerate(libraries.items()):
            if means := cell.means(files[cell.name, library]):
                reached = (interquartile_mean([means]), *interval([means]))
                at = [(each - published.mean) / scale for each in reached]
                place = row + 0.2 * (1.5 - number)
                axes.plot(at[1:], [place, place], color=COLORS[number], linewidth=1.5, alpha=0.6)
                axes.plot(at[0], place, "o", color=COLORS[number], markersize=4.5, label=label)
    axes.axvline(0.0, color="#5a6678", linewidth=1.0)
    axes.set_yticks(range(len(shown)), [titles[cell.name] for cell in shown])
    axes.set_xlim(-1.05 * MOST, 1.05 * MOST)
    axes.set_xlabel("return beside the published one: 0 is equal, -0.5 is half of it less")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    names, labels = {}, axes.get_legend_handles_labels()
    for handle, label in zip(*labels, strict=True):
        names.setdefault(label, handle)
    drawn = [each for each in libraries.values() if each in names]
    handles = [names[each] for each in drawn]
    figure.legend(handles, drawn, loc="outside upper center", ncols=4, frameon=False)
    picture = BytesIO()
    with plt.rc_context({"svg.hashsalt": "plugrad"}):
        figure.savefig(picture, format="svg", metadata={"Date": None})
    plt.close(figure)
    path.write_bytes(picture.getvalue().replace(b"<defs>", SVG_OF_READER + b"<defs>", 1))

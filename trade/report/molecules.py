"""Figures of a molecule: Ramachandran plots, the φ marginal and energies, beside those of the simulation."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from trade.report.figures import STYLE

REFERENCE = "md"
COLUMNS = 4


@mpl.rc_context(STYLE)
def ramachandran(curves: list[dict[str, Any]], c: float) -> Figure:
    """The layout of the paper's figure: (φ, ψ) of each method and of the simulation, the φ marginal, energies.

    Args:
        curves: Rows with a histogram each: ``ramachandran`` on a square grid of [-π, π)², and ``energies``, whose
            row also has the edges of its bins.
        c: The temperature.
    """
    here = [r for r in curves if r["condition"] == c]
    maps = {r["method"]: _density(r["values"]) for r in here if r["metric"] == "ramachandran"}
    energies = {r["method"]: np.asarray(r["values"], float) for r in here if r["metric"] == "energies"}
    edges = next(np.asarray(r["edges"]) for r in here if r["metric"] == "energies")
    names = sorted(maps, key=lambda name: name == REFERENCE)  # the simulation last
    rows = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(2.7 * COLUMNS, 2.6 * rows + 3.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(2.5 * rows, 3.4))
    top, bottom = parts
    panels = top.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True)
    scale = LogNorm(1e-4, max(float(m.max()) for m in maps.values()))
    for axis in panels.ravel()[len(names) :]:
        axis.set_axis_off()
    for axis, name in zip(panels.ravel(), names, strict=False):
        axis.imshow(
            np.maximum(maps[name], 1e-9).T, origin="lower", extent=(-180, 180, -180, 180), norm=scale, cmap="viridis"
        )
        axis.set_title("simulation" if name == REFERENCE else name, fontsize=9)
        axis.set(xticks=(-180, 0, 180), yticks=(-180, 0, 180))
        axis.grid(visible=False)
        axis.set_facecolor(mpl.colormaps["viridis"](0.0))
    for axis in panels[-1]:
        axis.set_xlabel("φ in degrees")
    for axis in panels[:, 0]:
        axis.set_ylabel("ψ in degrees")
    top.colorbar(panels[0, 0].images[0], ax=panels, shrink=0.8, label="density per rad²")
    left, right = bottom.subplots(1, 2)
    for name in names:
        look = {"color": "black", "lw": 1.8, "zorder": 0} if name == REFERENCE else {"lw": 1.1}
        label = "simulation" if name == REFERENCE else name
        marginal = maps[name].sum(axis=1) * 2.0 * np.pi / len(maps[name])
        left.stairs(np.maximum(marginal, 1e-9), np.linspace(-180, 180, len(marginal) + 1), label=label, **look)
        heights = energies[name] / (energies[name].sum() * np.diff(edges))
        right.stairs(heights, edges, **look)
    left.set(
        yscale="log", ylim=(1e-5, 3.0), xlabel="φ in degrees", ylabel="density per rad", xticks=range(-180, 181, 60)
    )
    right.set(xlabel="energy in kJ/mol", ylabel="density")
    bottom.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(f"{c:g} K")
    return figure


def _density(counts: list[int]) -> np.ndarray:
    bins = int(np.sqrt(len(counts)))
    share = np.asarray(counts, float).reshape(bins, bins) / max(sum(counts), 1)
    return share * (bins / (2.0 * np.pi)) ** 2

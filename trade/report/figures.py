"""The figures: each function takes what was measured and returns a Matplotlib figure."""

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter
from scipy.interpolate import CubicSpline

from trade.evaluation.free_energy import FreeEnergy
from trade.training.log import ess_columns

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#D55E00", "#009E73", "#CC3311", "#666666"
GAMMA = 0.4  # of the colour scale of densities
STYLE: Any = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "figure.dpi": 150,
}
NAMES = {
    "forward_kl": "boundary: negative log-likelihood",
    "reverse_kl": "reverse KL",
    "reweighted": "reweighted forward KL",
    "gradient": "gradient residual",
}
LATER = ("gradient", "reweighted")  # terms that are zero until they begin


def _figure(width: float, height: float, **layout: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(**layout)


def _condition_axis(axis: Any, *, log: bool) -> None:
    """Label the horizontal axis with plain numbers at 1, 2 and 5 times powers of ten."""
    axis.set_xlabel("condition c")
    if log:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


@mpl.rc_context(STYLE)
def densities(
    rows: dict[str, list[np.ndarray]],
    conditions: list[float],
    ranges: Sequence[tuple[float, float]],
    kl: dict[str, list[float]],
    boundary: tuple[float, ...] = (),
) -> Figure:
    """Densities in the plane, one row a model and one column a condition.

    Args:
        rows: Label to one density grid ``[x, y]`` per condition; the first row is the target.
        conditions: The conditions.
        ranges: The interval of either coordinate.
        kl: For labels that have one, the exact KL at each condition, printed in the panel.
        boundary: Conditions with data.
    """
    figure, axes = _figure(2.6 * len(conditions), 2.6 * len(rows) + 0.3, nrows=len(rows), ncols=len(conditions))
    axes = np.atleast_2d(axes)
    first = next(iter(rows.values()))
    for i, (label, grids) in enumerate(rows.items()):
        for j, (c, grid) in enumerate(zip(conditions, grids, strict=True)):
            axis = axes[i, j]
            # A small power of the density shows the broad and the narrow modes of one panel together.
            axis.imshow(
                grid.T**GAMMA,
                origin="lower",
                extent=(*ranges[0], *ranges[1]),
                cmap="magma",
                vmin=0.0,
                vmax=float(first[j].max() ** GAMMA),
                interpolation="bilinear",
            )
            axis.set(xticks=[], yticks=[])
            axis.grid(visible=False)
            for side in axis.spines.values():
                side.set_visible(False)
            if i == 0:
                axis.set_title(f"c = {c:g}" + ("  (data)" if c in boundary else ""))
            if j == 0:
                axis.set_ylabel(label)
            if label in kl:
                axis.text(0.97, 0.04, f"KL {kl[label][j]:.3f}", color="white", ha="right", transform=axis.transAxes)
    return figure


@mpl.rc_context(STYLE)
def against_condition(
    series: dict[str, dict[str, list[float]]],
    conditions: list[float],
    boundary: tuple[float, ...],
    *,
    log: bool = True,
    labels: dict[str, str] | None = None,
) -> Figure:
    """ESS, and KL where it is known, against the condition.

    Args:
        series: Label to {"kl": [...], "ess": [...]} at the conditions.
        conditions: The conditions.
        boundary: Where data is, marked by a line.
        log: Whether the condition axis is logarithmic.
        labels: Names of the metrics, where they have better ones.
    """
    panels = [m for m in ("kl", "ess") if any(m in s for s in series.values())]
    figure, axes = _figure(5.2 * len(panels), 3.8, ncols=len(panels), squeeze=False)
    titles = {"kl": "KL(target ‖ model)", "ess": "effective sample size", **(labels or {})}
    for axis, metric in zip(axes[0], panels, strict=True):
        for (label, values), colour in zip(series.items(), (BLUE, ORANGE, GREEN, RED), strict=False):
            if metric in values:
                axis.plot(conditions, values[metric], "o-", color=colour, label=label, ms=4)
        for c in boundary:
            axis.axvline(c, color=GREY, ls=":", lw=1.2)
            axis.annotate("data", (c, 1.0), xycoords=("data", "axes fraction"), ha="center", va="bottom", color=GREY)
        _condition_axis(axis, log=log)
        if metric == "kl":
            axis.set_yscale("log")
        else:
            axis.set_ylim(0.0, 1.03)
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.set_ylabel(titles[metric])
    if len(series) > 1:
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(series))
    return figure


@mpl.rc_context(STYLE)
def methods_against_condition(
    rows: list[dict[str, Any]], metric: str, title: str, boundary: tuple[float, ...], *, log: bool = True
) -> Figure:
    """One metric of many methods against the condition; TRADE in colour, the others grey or dashed.

    Args:
        rows: The rows of a results file.
        metric: Which metric.
        title: Label of the vertical axis.
        boundary: Where data is, marked by a line.
        log: Whether the condition axis is logarithmic.
    """
    figure, axis = _figure(8.4, 4.6)
    names = list(dict.fromkeys(r["method"] for r in rows if r["metric"] == metric))
    ours = [n for n in names if n.startswith("trade")]
    others = [n for n in names if n not in ours]
    styles = dict(zip(ours, mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(ours))), strict=True))
    styles |= dict(zip(others, mpl.colormaps["autumn"](np.linspace(0.0, 0.75, len(others))), strict=True))
    for name in names:
        own = sorted(
            (r["condition"], r["mean"], r["std"]) for r in rows if (r["method"], r["metric"]) == (name, metric)
        )
        c, mean, std = (np.array(v) for v in zip(*own, strict=True))
        axis.errorbar(
            c, mean, std, color=styles[name], ls="-" if name in ours else "--", marker="o", ms=3.5, label=name
        )
    for c in boundary:
        axis.axvline(c, color=GREY, ls=":", lw=1.2)
    _condition_axis(axis, log=log)
    axis.set_ylabel(title)
    if metric == "ess":
        axis.set_ylim(0.0, 1.03)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        axis.set_yscale("log")
    figure.legend(loc="outside right upper", fontsize=9)
    return figure


@mpl.rc_context(STYLE)
def marginals(truth: np.ndarray, samples: dict[str, np.ndarray], c: float) -> Figure:
    """Histograms of one coordinate, one panel a method, with the target behind."""
    columns = min(5, len(samples))
    count = -(-len(samples) // columns)
    figure, axes = _figure(3.0 * columns, 2.2 * count + 0.4, nrows=count, ncols=columns, squeeze=False, sharex=True)
    edges = np.linspace(float(truth.min()), float(truth.max()), 61)
    for axis in axes.flat[len(samples) :]:
        axis.set_visible(False)
    for axis, (name, values) in zip(axes.flat, samples.items(), strict=False):
        axis.hist(truth, edges, density=True, color="#d9d9d9")
        axis.hist(values, edges, density=True, histtype="step", color=BLUE, lw=1.3)
        axis.set_title(name, fontsize=8)
        axis.set_yticks([])
        axis.grid(visible=False)
    between = "\n" if columns == 1 else " "
    figure.suptitle(f"first coordinate at c = {c:g}:{between}model (line) and target (grey)", fontsize=11)
    return figure


@mpl.rc_context(STYLE)
def compared(
    truth: dict[str, Any], models: dict[str, dict[str, Any]], panels: dict[str, str], boundary: tuple[float, ...]
) -> Figure:
    """Quantities against the condition: reference values with errors, and one line a model.

    Args:
        truth: By quantity, (conditions, values, errors).
        models: By label, the same; a label without a quantity is left out of its panel.
        panels: Quantity to axis label, one panel each.
        boundary: Conditions with data.

    The axes show the reference values with room around them; a line that leaves them is far off.
    """
    palette = mpl.colormaps["tab10"].colors  # pyright: ignore
    figure, axes = _figure(4.6 * 2, 3.2 * -(-len(panels) // 2), nrows=-(-len(panels) // 2), ncols=2, sharex=True)
    for letter, axis, (quantity, label) in zip("ABCDEFGH", axes.flat, panels.items(), strict=False):
        for i, (name, series) in enumerate(models.items()):
            colour = palette[i % len(palette)]
            if quantity in series:
                c, value, error = series[quantity]
                axis.errorbar(c, value, yerr=error, color=colour, lw=1.5, label=name)
        c, value, error = truth[quantity]
        axis.errorbar(c, value, yerr=error, fmt="o", ms=4, color="black", label="HMC", zorder=3)
        for wall in boundary:
            axis.axvline(wall, color=GREY, ls=":", lw=1)
        room = 0.25 * (np.max(value) - np.min(value))
        axis.set_ylim(np.min(value) - room, np.max(value) + room)
        axis.set_title(letter, loc="left", fontweight="bold")
        axis.set_ylabel(label)
    for axis in axes[-1]:
        axis.set_xlabel("κ")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return figure


@mpl.rc_context(STYLE)
def fields(rows: dict[str, list[np.ndarray]], conditions: list[float]) -> Figure:
    """Field configurations, one row a source and one column a condition, on a common colour scale."""
    size = max(float(np.abs(f).max()) for row in rows.values() for f in row)
    columns = len(conditions)
    figure, axes = _figure(1.3 * columns + 1.2, 1.45 * len(rows) + 0.3, nrows=len(rows), ncols=columns, squeeze=False)
    for i, (label, row) in enumerate(rows.items()):
        for j, field in enumerate(row):
            axis = axes[i, j]
            axis.imshow(field, cmap="RdBu_r", vmin=-size, vmax=size)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(visible=False)
            if i == 0:
                axis.set_title(f"κ = {conditions[j]:g}", fontsize=10)
        axes[i, 0].set_ylabel(_wrapped(label), fontsize=8)
    figure.colorbar(axes[0, 0].images[0], ax=axes, shrink=0.8, label="φ")
    return figure


@mpl.rc_context(STYLE)
def calibration(panels: dict[float, dict[str, Any]]) -> Figure:
    """Observed against nominal coverage, one panel a condition and one line a method, with 95 % bands."""
    figure, axes = _figure(3.6 * len(panels), 3.9, ncols=len(panels), squeeze=False, sharey=True)
    for axis, (c, curves) in zip(axes[0], panels.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="#999999", lw=1.0, ls=":")
        for name, curve in curves.items():
            (line,) = axis.plot(curve.nominal, curve.observed, lw=1.4, label=name)
            axis.fill_between(curve.nominal, curve.low, curve.high, color=line.get_color(), alpha=0.25, lw=0)
        axis.set_title(f"c = {c:g}", fontsize=10)
        axis.set_xlabel("nominal coverage")
    axes[0, 0].set_ylabel("observed coverage")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


@mpl.rc_context(STYLE)
def scatter(rows: dict[str, list[np.ndarray]], conditions: list[float]) -> Figure:
    """Points in the plane, one row a source and one column a condition, all on the same axes."""
    everything = next(iter(rows.values()))[0]  # the truth where it is widest
    low, high = everything.min(axis=0) - 0.1, everything.max(axis=0) + 0.1
    figure, axes = _figure(
        2.1 * len(conditions) + 0.6, 2.1 * len(rows) + 0.3, nrows=len(rows), ncols=len(conditions), squeeze=False
    )
    for i, (label, row) in enumerate(rows.items()):
        for j, points in enumerate(row):
            axis = axes[i, j]
            axis.plot(points[:, 0], points[:, 1], ".", ms=1.2, color="#333333" if i == 0 else BLUE)
            axis.set_xlim(low[0], high[0])
            axis.set_ylim(low[1], high[1])
            axis.set_aspect("equal")
            axis.grid(visible=False)
            if i == 0:
                axis.set_title(f"c = {conditions[j]:g}", fontsize=10)
            if i < len(rows) - 1:
                axis.set_xticklabels([])
            if j > 0:
                axis.set_yticklabels([])
        axes[i, 0].set_ylabel(_wrapped(label), fontsize=8)
    return figure


def _wrapped(name: str) -> str:
    """A name in kebab case on lines that fit beside a small panel."""
    return "\n".join(textwrap.wrap(name, 20))


@mpl.rc_context(STYLE)
def training(metrics: list[dict[str, Any]]) -> Figure:
    """Loss terms and ESS over the training steps; thin lines are single seeds."""
    losses = [k for k in NAMES if any(k in row for row in metrics)]
    shown = ess_columns(metrics)
    panels = len(losses) + bool(shown)
    figure, axes = _figure(4.2 * max(panels, 1), 3.5, ncols=max(panels, 1), squeeze=False)
    for axis, name in zip(axes[0], losses, strict=False):
        steps, values = _series(metrics, name)
        active = values[:, 0] != 0.0 if name in LATER else np.ones(len(values), bool)
        if not active.all():  # the first mean of a term that began later is partly over zeros
            active[np.argmax(active)] = False
        axis.plot(steps[active], values[active], color=BLUE, lw=0.8 if values.shape[1] > 1 else 1.4)
        if name == "gradient" and np.all(values[active] > 0):
            axis.set_yscale("log")
        axis.set(title=NAMES[name], xlabel="step")
    if shown:
        axis = axes[0, -1]
        for name, colour in zip(shown, (BLUE, ORANGE, GREEN, RED, GREY), strict=False):
            steps, values = _series(metrics, name)
            axis.plot(steps, np.nanmean(values, axis=1), "o-", ms=3, color=colour, label=f"c = {name[4:]}")
        axis.set(title="effective sample size", xlabel="step", ylim=(0.0, 1.03))
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        axis.legend()
    return figure


@mpl.rc_context(STYLE)
def free_energy(
    curves: dict[str, FreeEnergy], exact: tuple[np.ndarray, np.ndarray] | None, *, log: bool = True
) -> Figure:
    """log Z(c) - log Z(c0) by each method, beside the exact curve where there is one."""
    figure, axes = _figure(
        6.4,
        5.0 if exact else 3.8,
        nrows=2 if exact else 1,
        squeeze=False,
        sharex=True,
        **({"height_ratios": (3, 1.4)} if exact else {}),
    )
    top = axes[0, 0]
    if exact:
        top.plot(*exact, color="black", lw=1.2, label="exact")
    for (label, curve), colour, marker in zip(curves.items(), (BLUE, ORANGE), "os", strict=False):
        _with_errors(top, curve, curve.log_z, marker, colour, label)
        if exact:
            chart = np.log if log else np.asarray
            difference = curve.log_z - CubicSpline(chart(exact[0]), exact[1])(chart(curve.c))
            _with_errors(axes[1, 0], curve, difference, marker, colour, label)
    reference = next(iter(curves.values())).reference
    top.set(ylabel=f"log Z(c) - log Z({reference:g})")
    top.legend()
    if exact:
        axes[1, 0].axhline(0.0, color="black", lw=1.0)
        axes[1, 0].set(ylabel="minus exact (±2σ)")
    _condition_axis(axes[-1, 0], log=log)
    return figure


def _with_errors(axis: Axes, curve: FreeEnergy, values: np.ndarray, marker: str, colour: str, label: str) -> None:
    """Points with two standard errors; hollow ones where the error is infinite."""
    known = np.isfinite(curve.error)
    style = {"ms": 3.5, "color": colour, "lw": 1}
    axis.errorbar(curve.c[known], values[known], 2 * curve.error[known], fmt=marker, label=label, **style)
    if not known.all():
        more = f"{label}, error not known"
        axis.plot(curve.c[~known], values[~known], marker, mfc="white", label=more, **style)


def _series(metrics: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    rows = [r for r in metrics if r.get(name) is not None]
    values = np.array([[np.nan if v is None else v for v in r[name]] for r in rows], dtype=float)
    return np.array([r["step"] for r in rows]), values

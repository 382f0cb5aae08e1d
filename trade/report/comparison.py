"""Figures of several runs of one target side by side, with what was measured of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from trade.condition import check_condition
from trade.errors import UnknownError
from trade.experiments.results import by_method
from trade.report import figures
from trade.report.grids import density_grid, range_of, squared
from trade.run import Run


def write_comparison(
    place: Path, runs: dict[str, Run], results: dict[str, Any], panels: Sequence[float]
) -> dict[str, Path]:
    """Draw densities, accuracy, training and log Z of runs of one target as PNG files.

    Args:
        place: The directory for them.
        runs: Method to its run, by the names that the results have; training and log Z are those of the first.
        results: In the form of ``results.json``, with ``labels`` for the names of methods and metrics.
        panels: Conditions at which densities in the plane are drawn.

    Returns:
        The files by name.
    """
    first = next(iter(runs.values()))
    condition = check_condition(first.model.condition, single="figures against it")
    log = condition.scale == "log"
    labels, (conditions, methods) = results.get("labels", {}), by_method(results)
    series = {labels.get(m, m): table for m, table in methods.items()}
    curves = {
        "importance sampling": first.log_partition(points=17),
        "integral of d log Z/du": first.log_partition(method="integral", samples=2000),
    }
    drawn = {
        "conditions": figures.against_condition(series, conditions, condition.boundary, log=log, labels=labels),
        "training": figures.training(first.metrics),
        "free_energy": figures.free_energy(curves, _exact_log_z(first), log=log),
    }
    if first.model.shape == (2,):
        drawn["densities"] = _densities(runs, results, panels)
    place.mkdir(exist_ok=True)
    for name, figure in drawn.items():
        figure.savefig(place / f"{name}.png")
    return {name: place / f"{name}.png" for name in drawn}


def _densities(runs: dict[str, Run], results: dict[str, Any], panels: Sequence[float]) -> Figure:
    """The target first, then one row a run, on the range of the first run's samples."""
    first = next(iter(runs.values()))
    labels, (conditions, methods) = results.get("labels", {}), by_method(results)
    shown = [c for c in panels if c in conditions]
    # A part of the broadest density lies outside: else the narrow ones could not be seen.
    samples = np.concatenate([first.model.sample(jax.random.key(0), 2000, c) for c in shown])
    ranges = squared([range_of(v, 0.02, 0.25) for v in samples.T])
    rows = {} if first.target is None else {"target": [density_grid(first.target, c, ranges) for c in shown]}
    rows |= {labels.get(m, m): [density_grid(run.model, c, ranges) for c in shown] for m, run in runs.items()}
    kl = {
        labels.get(m, m): [methods[m]["kl"][conditions.index(c)] for c in shown]
        for m in runs
        if "kl" in methods.get(m, {})
    }
    return figures.densities(rows, shown, ranges, kl, first.model.condition.boundary)


def _exact_log_z(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    if run.target is None:
        return None
    condition, reference = run.model.condition, run.model.condition.reference
    grid = np.unique(np.append(condition.grid(17), reference))
    try:
        values = np.array([run.target.log_partition(c) for c in grid])
    except UnknownError:
        return None
    return grid, values - values[int(np.argmin(np.abs(grid - reference)))]

"""The report of a run directory: draws what the run and its target allow."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trade import files
from trade.errors import TradeError
from trade.files import read_json, write_bytes
from trade.model import Model
from trade.report import figures, html
from trade.run import Run, load
from trade.sampling.importance import log_density_batch, weighted_samples
from trade.target import AbstractTarget

LABELS = {"trade-continuous": "TRADE", "maximum-likelihood": "maximum likelihood"}
PANELS = [4.8330, 1.8330, 1.0, 0.5456, 0.2069]


def write_report(directory: Path, run: Run | None = None) -> Path:
    """Draw the figures of a run and gather them in ``report.html``; returns its path.

    Args:
        directory: The run directory.
        run: The run in it, if it was loaded with a target or a flow of one's own.
    """
    run = load(directory) if run is None else run
    beside, told = directory / files.BASELINE, directory / files.RESULTS
    baseline = load(beside) if files.is_run(beside) else None
    results = read_json(told) if told.exists() else None
    drawn = directory / files.FIGURES
    drawn.mkdir(exist_ok=True)
    sections = []
    if run.told or run.target is not None:
        told = run.verdict
        sections.append(html.verdict(told.level, told.summary, told.reasons, told.advice))
    if results is not None:
        sections.append(results_table(results))

    def add(name: str, figure: Any, title: str, caption: str) -> None:
        figure.savefig(drawn / f"{name}.png")
        sections.append(html.figure(drawn / f"{name}.png", title, caption))

    condition, log = run.model.condition, run.model.condition.scale == "log"
    if run.target is not None and run.target.shape == (2,) and results is not None:
        add(
            "densities",
            _densities(run, baseline, results),
            "Densities",
            "Target and models at five conditions; data was given at c = 1 alone. The colour scale is the density"
            " to the power 0.4.",
        )
    if run.target is not None and run.model.observation_shape is None:
        add(
            "conditions",
            _against_condition(run, results),
            "Accuracy against the condition",
            "Exact KL divergence and relative effective sample size of importance weights.",
        )
    add("training", figures.training(run.metrics), "Training", "Loss terms and effective sample size over the steps.")
    if run.target is not None and run.model.observation_shape is None:
        curves = {
            "importance sampling": run.log_partition(points=17),
            "integral of d log Z/du": run.log_partition(method="integral", samples=2000),
        }
        add(
            "free_energy",
            figures.free_energy(curves, _exact_log_z(run), log=log),
            "Partition function",
            "log Z(c) relative to the boundary, by two independent routes, with two standard errors.",
        )
    settings = {k: v for k, v in run.settings.items() if k != "target"}
    sections.append(html.preformatted("Settings", json.dumps(settings, indent=2)))
    lead = (
        f"{run.settings['steps']} steps, {run.settings['parameters']:,} numbers in the model, condition in"
        f" [{condition.low:g}, {condition.high:g}], data at c = {', '.join(f'{c:g}' for c in condition.boundary)}."
    )
    path = directory / files.REPORT
    write_bytes(path, html.page(f"TRADE run {directory.name}", lead, sections).encode())
    return path


def numbers(results: dict[str, Any]) -> dict[str, Any]:
    """Results with NaN for null, as which a file has what is not finite."""

    def filled(row: dict[str, Any]) -> dict[str, Any]:
        return row | {k: np.nan for k in ("mean", "std") if row[k] is None}

    return results | {"rows": [filled(r) for r in results["rows"]]}


def by_method(results: dict[str, Any]) -> tuple[list[float], dict[str, dict[str, list[float]]]]:
    """Conditions in falling order, and method -> metric -> values at them."""
    conditions = sorted({r["condition"] for r in results["rows"]}, reverse=True)
    table: dict[str, dict[str, dict[float, float]]] = {}
    for r in numbers(results)["rows"]:
        table.setdefault(r["method"], {}).setdefault(r["metric"], {})[r["condition"]] = r["mean"]
    return conditions, {m: {k: [v[c] for c in conditions] for k, v in t.items()} for m, t in table.items()}


def results_table(results: dict[str, Any]) -> str:
    """Every method's KL and ESS at every condition, as a section of the page."""
    conditions, methods = by_method(results)
    header = ["c", *[f"{LABELS.get(m, m)} {k.upper()}" for m, t in methods.items() for k in t]]
    rows = [
        [
            f"{c:g}",
            *[f"{100 * v[i]:.1f} %" if k == "ess" else f"{v[i]:.4f}" for t in methods.values() for k, v in t.items()],
        ]
        for i, c in enumerate(conditions)
    ]
    first = len(next(iter(methods.values())))
    note = (
        f"{results['command']}; {results['hardware']}; JAX {results['jax']}; commit {results['commit']};"
        f" {results['wall_seconds']:g} s"
    )
    return html.table("Results", header, rows, best=range(1, 1 + first), note=note)


def density_grids(density: Model | AbstractTarget, conditions: list[float], points: int = 240) -> list[np.ndarray]:
    """The density of a 2-D model or target on the square of the figures, one array a condition."""
    axis = np.linspace(-figures.EXTENT, figures.EXTENT, points)
    x = jnp.asarray(np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2), dtype=float)
    grids = []
    for c in conditions:
        if isinstance(density, Model):
            log_p = np.asarray(density.log_prob(x, c))
        else:
            log_p = np.asarray(log_density_batch(density, x, jnp.asarray(c, dtype=float))) - density.log_partition(c)
        grids.append(np.exp(log_p).reshape(points, points))
    return grids


def _densities(run: Run, baseline: Run | None, results: dict[str, Any]) -> Any:
    assert run.target is not None
    conditions, methods = by_method(results)
    panels = [c for c in PANELS if c in conditions]
    rows = {"target": density_grids(run.target, panels), "TRADE": density_grids(run.model, panels)}
    if baseline is not None:
        rows["maximum likelihood"] = density_grids(baseline.model, panels)
    kl = {LABELS[m]: [t["kl"][conditions.index(c)] for c in panels] for m, t in methods.items() if m in LABELS}
    return figures.densities(rows, panels, figures.EXTENT, kl)


def _against_condition(run: Run, results: dict[str, Any] | None) -> Any:
    assert run.target is not None
    condition = run.model.condition
    if results is not None:
        conditions, methods = by_method(results)
        series = {LABELS.get(m, m): t for m, t in methods.items()}
    else:
        conditions = condition.grid(11).tolist()
        key = jax.random.key(0)
        ess = [weighted_samples(run.model, run.target, key, 5000, c).ess for c in conditions]
        series = {"model": {"ess": ess}}
    return figures.against_condition(series, conditions, condition.boundary, log=condition.scale == "log")


def _exact_log_z(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    assert run.target is not None
    condition = run.model.condition
    reference = condition.boundary[-1] if condition.boundary else condition.high
    grid = np.unique(np.append(condition.grid(17), reference))
    try:
        values = np.array([run.target.log_partition(c) for c in grid])
    except TradeError:
        return None
    return grid, values - values[int(np.argmin(np.abs(grid - reference)))]

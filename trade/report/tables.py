"""A reproduced experiment: its table beside the paper's numbers, and its figures."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from trade.abstract_target import AbstractTarget
from trade.condition import check_condition
from trade.evaluation.calibration import coverage, ranks
from trade.experiments.results import numbers
from trade.files import write_bytes
from trade.model import Model
from trade.report import figures, molecules
from trade.report.grids import density_grid, range_of, squared
from trade.run import Run, load
from trade.targets import TwoMoons
from trade.targets.two_moons import radius_and_parameters, sample_posterior, tempered_pairs

UP = ("ess",)  # metrics of which more is better
# Metrics of which neither more nor less is.
NEITHER = ("d_hist_floor", "phi_positive", "energy", "energy_leapfrog", "log_z_difference", "exchange")
SHOWN = {
    "kl": "exact KL",
    "kl_final": "exact KL, final model",
    "kl_samples": "KL on samples",
    "nll": "NLL",
    "nll_gap": "NLL above that of the exact model",
    "nll_leapfrog": "NLL on data of the leapfrog integrator",
    "nll_gap_leapfrog": "NLL above that of the exact model, on data of the leapfrog integrator",
    "d_hist": "D_hist of (φ, ψ)",
    "d_hist_floor": "D_hist of a perfect model, from as many samples",
    "ess": "ESS",
    "phi_positive": "population of 0 < φ < 130°",
    "d_chirality": "part of the wrong chirality",
    "energy": "mean energy, kJ/mol",
    "energy_leapfrog": "mean energy of the leapfrog integrator, kJ/mol",
    "log_z_difference": "log Z(300 K) - log Z(600 K)",
    "exchange": "part of the exchanges accepted, with the next temperature",
    "coverage_error": "largest error of the coverage of r",
    "sbc_1": "distance of the ranks of ψ1 to uniform",
    "sbc_2": "distance of the ranks of ψ2 to uniform",
    "c2st": "classifier two-sample test",
}

LATTICE_PANELS = {
    "magnetisation": "⟨|m|⟩",
    "action": "action per site",
    "susceptibility": "susceptibility",
    "binder": "Binder cumulant",
}


Runs = Callable[[], dict[str, Run]]


def write_reproduction(target: AbstractTarget, names: tuple[str, ...], results: dict[str, Any], out: Path) -> str:
    """Write ``table.md`` and ``figures/``; returns the table.

    Args:
        target: What the experiment is about.
        names: The figures it asks for beside KL and ESS, by their names in ``FIGURES``.
        results: The content of ``results.json``.
        out: The directory of the experiment, with its models.
    """
    results = numbers(results)
    text = table(results)
    write_bytes(out / "table.md", text.encode())
    drawn = out / "figures"
    drawn.mkdir(exist_ok=True)
    runs = cache(lambda: {name: load(out / name) for name in results["methods"]})  # only if a figure wants them
    condition = check_condition(target.condition, single="figures against it")
    measured = {r["metric"] for r in results["rows"]}
    for metric in [m for m in ("kl", "ess") if m in measured]:
        figure = figures.methods_against_condition(
            results["rows"], metric, SHOWN[metric], condition.boundary, log=condition.scale == "log"
        )
        figure.savefig(drawn / f"{metric}.png")
    for name in names:
        FIGURES[name](target, runs, results).savefig(drawn / f"{name}.png")
    return text


def table(results: dict[str, Any]) -> str:
    """Markdown: one table a metric, ours with the paper's number in brackets, the best in bold."""
    parts = [
        f"# {results['experiment']}",
        f"`{results['command']}`, {results['hardware']}, JAX {results['jax']}, commit {results['commit']},"
        f" {results['wall_seconds']:g} s. Mean ± standard deviation over seeds; in brackets the paper's number.",
    ]
    for metric, title in SHOWN.items():
        rows = [r for r in results["rows"] if r["metric"] == metric]
        if not rows:
            continue
        conditions = list(dict.fromkeys(r["condition"] for r in rows))
        found = {c: [r["mean"] for r in rows if r["condition"] == c] for c in conditions}
        best = {} if metric in NEITHER else {c: _best(values, metric) for c, values in found.items()}
        lines = ["| method | " + " | ".join(f"{c:g}" for c in conditions) + " |", "|---" * (len(conditions) + 1) + "|"]
        for name in dict.fromkeys(r["method"] for r in rows):
            own = {r["condition"]: r for r in rows if r["method"] == name}
            cells = [_cell(own[c], metric, bold=own[c]["mean"] == best.get(c)) if c in own else "" for c in conditions]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        parts += [f"## {title}", "\n".join(lines)]
    if methods := results.get("methods"):
        parts += ["## What the rows cost", _costs(methods)]
    return "\n\n".join(parts) + "\n"


def _costs(methods: dict[str, dict[str, Any]]) -> str:
    """Of each method, per seed: steps and evaluations of the density in training; how it was judged, where it ran."""
    head = ("method", "seeds", "steps", "energies", "seconds", "commit", "hardware", "verdict")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, about in methods.items():
        energies = "" if about.get("evaluations") is None else f"{about['evaluations']:,}"
        took = f"{about['ended'] - about['began']:.0f}" if "ended" in about else ""
        levels = ", ".join(dict.fromkeys(v.split(";")[0] for v in about.get("verdicts", ())))
        cells = (about["seeds"], about.get("steps", ""), energies, took, about["commit"][:7], about["hardware"], levels)
        lines.append(f"| {name} | " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _best(values: list[float], metric: str) -> float:
    """The best of those that are finite."""
    return (max if metric in UP else min)((v for v in values if np.isfinite(v)), default=np.nan)


def _cell(row: dict[str, Any], metric: str, *, bold: bool) -> str:
    def show(value: float) -> str:
        if not np.isfinite(value):
            return "not finite"
        return f"{100 * value:.1f} %" if metric == "ess" else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"

    text = f"**{show(row['mean'])}**" if bold else show(row["mean"])
    if row["seeds"] > 1:
        text += f" ± {show(row['std'])}"
    return text if row["paper"] is None else f"{text} ({show(row['paper'])})"


def _densities(target: AbstractTarget, runs: Runs, results: dict[str, Any], *, kind: str, metric: str) -> Figure:
    """Panels as in the paper's figures: the target first, then one row per method, of the first seed."""
    found = sorted({r["condition"] for r in results["rows"]}, reverse=True)
    panels = [found[i] for i in np.linspace(0, len(found) - 1, 5).round().astype(int)]

    def model_of(run: Run) -> Model:
        return (run.best if kind == "best" else run.final)[0]

    drawn = np.concatenate([target.sample(jax.random.key(0), 2000, c) for c in panels])
    ranges = squared([range_of(v, 0.02, 0.25) for v in drawn.T])

    def grids(density: Model | AbstractTarget) -> list[np.ndarray]:
        return [density_grid(density, c, ranges) for c in panels]

    rows = {"A  target": grids(target)}
    kl = {}
    for letter, (name, run) in zip("BCDEFGHIJKLMNOP", runs().items(), strict=False):
        label = f"{letter}  {name}"
        rows[label] = grids(model_of(run))
        means = {r["condition"]: r["mean"] for r in results["rows"] if r["method"] == name and r["metric"] == metric}
        kl[label] = [means[c] for c in panels]
    return figures.densities(rows, panels, ranges, kl, target.condition.boundary)


def _observables(target: AbstractTarget, runs: Runs, results: dict[str, Any]) -> Figure:
    """Panels A to D as in the paper: HMC, and each method raw; our best one also weighted."""

    def series(method: str, suffix: str) -> dict[str, Any]:
        rows = [r for r in results["rows"] if r["method"] == method]
        found = {}
        for quantity in LATTICE_PANELS:
            values = {r["condition"]: r["mean"] for r in rows if r["metric"] == quantity + suffix}
            errors = {r["condition"]: r["mean"] for r in rows if r["metric"] == f"{quantity}{suffix}_error"}
            if values:
                found[quantity] = (list(values), list(values.values()), [errors[c] for c in values])
        return found

    models = {name: series(name, "_raw") for name in results["methods"]}
    ours = [name for name in results["methods"] if name.startswith("trade")]
    if ours:
        ess = {n: [r["mean"] for r in results["rows"] if r["method"] == n and r["metric"] == "ess"] for n in ours}
        best = max(ours, key=lambda name: np.mean(ess[name]))
        models = {f"{best}, weighted": series(best, "_weighted")} | models
    return figures.compared(series("hmc", ""), models, LATTICE_PANELS, target.condition.boundary)


def _fields(target: AbstractTarget, runs: Runs, results: dict[str, Any]) -> Figure:
    """One configuration of each method at some conditions, from the same random numbers."""
    kappas = [float(c) for c in target.condition.grid(6).round(3)]
    key = jax.random.key(3)
    rows = {name: [np.asarray(run.model.sample(key, 1, c)[0]) for c in kappas] for name, run in runs().items()}
    return figures.fields(rows, kappas)


def _calibration(target: AbstractTarget, runs: Runs, results: dict[str, Any]) -> Figure:
    """Coverage of the radius r at three powers, of the first seed, on fewer pairs than the table."""
    assert isinstance(target, TwoMoons)
    powers, n, key = _powers(target), 20_000, jax.random.key(4)
    panels = {}
    for c in powers:
        x, y = tempered_pairs(jax.random.key(5), n, c, target.prior)
        found = {n: ranks(run.final[0], radius_and_parameters, x, y, key, 200, c) for n, run in runs().items()}
        panels[c] = {name: coverage(f[:, 0]) for name, f in found.items()}
    return figures.calibration(panels)


def _posteriors(target: AbstractTarget, runs: Runs, results: dict[str, Any]) -> Figure:
    """Samples of each method beside exact ones, at three powers, for the observation y = 0."""
    assert isinstance(target, TwoMoons)
    powers, n, y = _powers(target), 2000, jnp.zeros(2)
    key = jax.random.key(6)
    rows = {"exact": [np.asarray(sample_posterior(key, y, c, n, target.prior)) for c in powers]}
    for name, run in runs().items():
        rows[name] = [np.asarray(run.final[0].sample(key, n, c, y)) for c in powers]
    return figures.scatter(rows, powers)


def _powers(target: TwoMoons) -> list[float]:
    condition = check_condition(target.condition, single="figures against it")
    return [condition.low, *condition.boundary, condition.high]


def _marginals(target: AbstractTarget, runs: Runs, results: dict[str, Any]) -> Figure:
    """The first coordinate of each method's samples at the far end of the range, beside the target's."""
    condition = check_condition(target.condition, single="figures against it")
    far = condition.low if condition.boundary and condition.boundary[0] > condition.low else condition.high
    key, n = jax.random.key(0), 50_000
    samples = {name: np.asarray(run.final[0].sample(key, n, far)[:, 0]) for name, run in runs().items()}
    return figures.marginals(np.asarray(target.sample(key, n, far)[:, 0]), samples, far)


def _molecule(target: AbstractTarget, runs: Runs, results: dict[str, Any], *, c: float) -> Figure:
    return molecules.ramachandran(results["curves"], c)


FIGURES: dict[str, Callable[[AbstractTarget, Runs, dict[str, Any]], Figure]] = {
    "densities_best": partial(_densities, kind="best", metric="kl"),
    "densities_final": partial(_densities, kind="final", metric="kl_final"),
    "marginals": _marginals,
    "observables": _observables,
    "fields": _fields,
    "calibration": _calibration,
    "posteriors": _posteriors,
    "ramachandran_300": partial(_molecule, c=300.0),
    "ramachandran_600": partial(_molecule, c=600.0),
}

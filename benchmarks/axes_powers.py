"""Powers of prior and likelihood of the eight schools and of the O-rings, beside Markov chains and ArviZ's psense."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from jax import Array

import trade
from benchmarks.one_by_one import Options, trained
from examples import o_rings
from trade import Axes, Condition
from trade.sampling.mcmc import MarkovChains

mpl.use("Agg")
import matplotlib.pyplot as plt


def eight_schools() -> tuple[Any, int, dict[str, Any]]:
    """Not centred: μ, log τ and eight standard normals. α is the power of the prior of μ and τ."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_prior(x: Array) -> Array:  # of μ and τ, half normal
        return -0.5 * (x[0] / 5.0) ** 2 - 0.5 * (jnp.exp(x[1]) / 10.0) ** 2

    def log_likelihood(x: Array) -> Array:
        return jnp.sum(-0.5 * ((y - x[0] - jnp.exp(x[1]) * x[2:]) / error) ** 2)

    def log_base(x: Array) -> Array:  # the schools given μ and τ, and log τ for τ
        return -0.5 * jnp.sum(x[2:] ** 2) + x[1]

    shown = {"mu": lambda x: x[0], "tau": lambda x: jnp.exp(x[1]), "theta_1": lambda x: x[0] + jnp.exp(x[1]) * x[2]}
    return (log_prior, log_likelihood, log_base), 10, shown


def rings() -> tuple[Any, int, dict[str, Any]]:
    """Logistic regression with two coefficients; α is the power of its prior."""
    shown = {name: (lambda x, i=i: o_rings.quantities(x)[i]) for i, name in enumerate(o_rings.QUANTITIES)}
    return (o_rings.log_prior, o_rings.log_likelihood, lambda x: jnp.zeros(())), 2, shown


def powers(make: Callable[[], Any], name: str, options: Options) -> dict[str, Any]:
    """(α, β) ∈ [0.5, 2]², data at (1, 1): means, deviations and derivatives of log Z at five points."""
    (log_prior, log_likelihood, log_base), d, shown = make()
    axes = Axes({"alpha": Condition(0.5, 2.0), "beta": Condition(0.5, 2.0)}, boundary=(1.0, 1.0))

    def log_density(x: Array, c: Any) -> Array:
        return log_base(x) + c.alpha * log_prior(x) + c.beta * log_likelihood(x)

    target = trade.Target(log_density, (d,), axes)
    chains = MarkovChains(chains=400, pilot=1_000, integration_steps=60)
    data = {(1.0, 1.0): chains.sample(target, jax.random.key(0), 40_000, (1.0, 1.0))[0]}
    run, about = trained(name, target, data, options)
    places = [(1.0, 1.0), (0.5, 0.5), (0.5, 2.0), (2.0, 0.5), (2.0, 2.0)]
    checks, worst = [], 0.0
    for i, c in enumerate(places):
        samples, mixing = chains.sample(target, jax.random.key(10 + i), 100_000, c)
        weighted = run.weighted(jax.random.key(20 + i), 100_000, c)
        functions = shown | {"d log Z/d alpha": log_prior, "d log Z/d beta": log_likelihood}
        row: dict[str, Any] = {"c": c, "ess": weighted.ess, "rhat": mixing.rhat, "quantities": {}}
        for label, function in functions.items():
            own = mean_and_deviation(jax.vmap(function)(weighted.x), weighted.log_weight, len(samples))
            truth = mean_and_deviation(jax.vmap(function)(samples), None, mixing.effective)
            sigmas = [(a[0] - b[0]) / np.hypot(a[1], b[1]) for a, b in zip(own, truth, strict=True)]
            row["quantities"][label] = {"model": own, "hmc": truth, "sigmas": sigmas}
            worst = max(worst, *map(abs, sigmas))
        checks.append(row)
    found = {"checks": checks, "sigmas_most": worst, "numbers": len(places) * 2 * len(functions)}
    found["sensitivity"] = _sensitivity(run, target, shown, options.out / f"{name}.png", log_prior, log_likelihood)
    return about | found


def mean_and_deviation(values: Any, log_weight: Any, effective: float) -> list[tuple[float, float]]:
    """Mean and standard deviation of weighted samples, each with its error."""
    v = np.asarray(values, np.float64)
    w = np.full(len(v), 1.0 / len(v))
    if log_weight is not None:
        w = np.exp(np.asarray(log_weight, np.float64) - float(np.max(log_weight)))
        w = w / w.sum()
    mean = w @ v
    square = w @ (v - mean) ** 2
    more = 1.0 if log_weight is not None else len(v) / effective
    error = np.sqrt(more * np.sum((w * (v - mean)) ** 2))
    of_square = np.sqrt(more * np.sum((w * ((v - mean) ** 2 - square)) ** 2))
    return [(float(mean), float(error)), (float(np.sqrt(square)), float(of_square / (2.0 * np.sqrt(square))))]


def _sensitivity(
    run: trade.Run, target: trade.Target, shown: dict[str, Any], path: Path, log_prior: Any, log_likelihood: Any
) -> dict[str, Any]:
    """Means over the whole square, and the local numbers at (1, 1): ours, and ArviZ's."""
    lines = np.geomspace(0.5, 2.0, 13)
    maps = {label: np.zeros((13, 13)) for label in shown}
    for i, alpha in enumerate(lines):
        for j, beta in enumerate(lines):
            weighted = run.weighted(jax.random.key(5), 10_000, (alpha, beta))
            for label, function in shown.items():
                maps[label][i, j] = float(weighted.mean(function))
    figure, panels = plt.subplots(1, len(shown), figsize=(4.2 * len(shown), 3.6), constrained_layout=True)
    for axis, (label, values) in zip(panels, maps.items(), strict=True):
        drawn = axis.contourf(lines, lines, values, 14)
        axis.contour(drawn, colors="w", linewidths=0.4)
        axis.plot([1.0], [1.0], "w+", ms=9)
        axis.set(xscale="log", yscale="log", xlabel="power β of the likelihood", title=f"posterior mean of {label}")
        axis.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
        axis.set_yticks([0.5, 1, 2], ["0.5", "1", "2"])
        axis.minorticks_off()
        figure.colorbar(drawn, ax=axis)
    panels[0].set_ylabel("power α of the prior")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    weighted = run.weighted(jax.random.key(6), 40_000, (1.0, 1.0))
    x = weighted.resample(jax.random.key(7), 20_000)
    scores = {"alpha": jax.vmap(log_prior)(x), "beta": jax.vmap(log_likelihood)(x)}
    local = {
        label: {axis: float(np.cov(np.asarray(jax.vmap(f)(x)), np.asarray(s))[0, 1]) for axis, s in scores.items()}
        for label, f in shown.items()
    }
    return {
        "alpha_and_beta": lines.tolist(),
        "means": {n: m.tolist() for n, m in maps.items()},
        "slopes_at_1_1": local,
        "psense": _psense(x, shown, scores),
    }


def _psense(x: Array, shown: dict[str, Any], scores: dict[str, Array]) -> dict[str, Any] | None:
    """ArviZ's power-scaling sensitivity, of the same samples."""
    if importlib.util.find_spec("arviz_stats") is None:
        return None
    arviz_base, arviz_stats = (importlib.import_module(name) for name in ("arviz_base", "arviz_stats"))

    tree = arviz_base.from_dict(
        {
            "posterior": {n: np.asarray(jax.vmap(f)(x))[None] for n, f in shown.items()},
            "log_prior": {"prior": np.asarray(scores["alpha"])[None]},
            "log_likelihood": {"likelihood": np.asarray(scores["beta"])[None]},
        }
    )
    table = arviz_stats.psense_summary(tree, round_to=6)
    return {
        str(n): {"prior": float(row["prior"]), "likelihood": float(row["likelihood"])} for n, row in table.iterrows()
    }

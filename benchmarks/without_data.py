"""Without any sample of the target: posteriors from their priors, densities by the bridge.

``python -m benchmarks.without_data``: ten random linear regressions, whose evidence is known in closed form; the
32-dimensional many-well of the FAB paper (Midgley et al., arXiv 2208.01893) and a mixture of 40 Gaussians drawn as
theirs are, each by the bridge from a Gaussian; alanine dipeptide at 300 K from a minimum of its energy; and the moving
ring from data at its smallest radius. Nothing is chosen.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array
from scipy.special import logsumexp

import trade
from benchmarks.one_by_one import Options, Problems, run_missing, trained
from benchmarks.zoo import Options as ZooOptions
from benchmarks.zoo import chosen, measured
from trade.evaluation.free_energy import log_mean_weight
from trade.experiments.alanine_dipeptide import left_handed
from trade.experiments.reproduce import evaluations
from trade.objectives import default_objective
from trade.targets.molecule import AlanineDipeptide, Around
from trade.targets.molecule.alanine_dipeptide import ROTORS

CLASH = 400.0  # nats below the minimum
REGRESSIONS = (3, 4, 5, 6, 7, 8, 3, 5, 6, 8)  # coefficients of each


def regression(index: int, options: Options) -> dict[str, Any]:
    """Normal prior, normal noise: log p(y) in closed form."""
    d, rng = REGRESSIONS[index], np.random.default_rng(100 + index)
    rows = 2 * d + 4
    design, noise = rng.normal(size=(rows, d)), 0.5
    y = design @ rng.normal(size=d) + noise * rng.normal(size=rows)
    covariance = design @ design.T + noise**2 * np.eye(rows)
    exact = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2.0 * np.pi * covariance)[1])

    def log_likelihood(psi: Array) -> Array:
        return jax.scipy.stats.norm.logpdf(y, design @ psi, noise).sum()

    def log_prior(psi: Array) -> Array:
        return jax.scipy.stats.norm.logpdf(psi).sum()

    powers = trade.Condition(0.0, 1.0, scale="linear", boundary=0.0)
    target = trade.targets.PowerPosterior(log_prior, log_likelihood, shape=(d,), condition=powers)
    prior = jax.random.normal(jax.random.key(index), (50_000, d))
    run, about = trained(f"regression-{index}", target, {0.0: prior}, options)
    found = run.evidence()
    ess = run.weighted(jax.random.key(7), options.samples, 1.0).ess
    error = {"evidence": found.value, "exact": exact, "error": found.value - exact, "sigma": found.error}
    return about | {"d": d, "ess": ess} | error


def many_well(options: Options) -> dict[str, Any]:
    """Sixteen pairs of -x₁⁴ + 6x₁² + ½x₁ - ½x₂²: 65,536 modes."""
    pairs = 16

    def one(x: Any) -> Any:
        return -(x**4) + 6.0 * x**2 + 0.5 * x

    def log_density(x: Array) -> Array:
        return jnp.sum(one(x[:pairs])) - 0.5 * jnp.sum(x[pairs:] ** 2)

    line = np.linspace(-5.0, 5.0, 200_001)
    log_cell = one(line) + np.log(line[1] - line[0])
    exact = pairs * (logsumexp(log_cell) + 0.5 * np.log(2.0 * np.pi))
    right = np.exp(logsumexp(log_cell[line > 0]) - logsumexp(log_cell))
    run, about = trained("many-well", trade.bridge(log_density, 1.7, shape=(2 * pairs,)), None, options)
    weighted = run.weighted(jax.random.key(7), options.samples, 1.0)
    value, sigma = log_mean_weight(weighted.log_weight)
    shares = np.asarray(weighted.mean(lambda x: (x[:pairs] > 0).astype(float)))
    raw = np.asarray((weighted.x[:, :pairs] > 0).mean(axis=0))
    return about | {
        "ess": weighted.ess,
        "log_z": value,
        "exact": float(exact),
        "error": value - exact,
        "sigma": sigma,
        "right_wells_exact": float(right),
        "right_wells_worst": float(np.abs(shares - right).max()),
        "right_wells_worst_without_weights": float(np.abs(raw - right).max()),
    }


def forty_modes(options: Options) -> dict[str, Any]:
    """Forty Gaussians of standard deviation log(1 + e), their means uniform in a square of side 80."""
    mean = np.random.default_rng(0).uniform(-40.0, 40.0, size=(40, 2))
    scale = np.log1p(np.e)

    def log_density(x: Array) -> Array:
        return jax.nn.logsumexp(jax.scipy.stats.norm.logpdf(x, mean, scale).sum(axis=1)) - jnp.log(40.0)

    run, about = trained("forty-modes", trade.bridge(log_density, 30.0, shape=(2,)), None, options)
    weighted = run.weighted(jax.random.key(7), options.samples, 1.0)
    value, sigma = log_mean_weight(weighted.log_weight)
    which = jnp.argmin(jnp.sum((weighted.x[:, None] - mean) ** 2, axis=-1), axis=1)
    near = jnp.min(jnp.sum((weighted.x[:, None] - mean) ** 2, axis=-1), axis=1) < (3.0 * scale) ** 2
    raw = np.bincount(np.asarray(which[near]), minlength=40) / len(which)
    drawn = np.random.default_rng(1).integers(0, 40, options.samples)
    x = mean[drawn] + scale * np.random.default_rng(2).normal(size=(options.samples, 2))
    exact = np.asarray(jax.vmap(log_density)(jnp.asarray(x, float)))
    kl = float(np.mean(exact - np.asarray(run.model.log_prob(x, 1.0))))
    return about | {
        "ess": weighted.ess,
        "error": value,
        "sigma": sigma,
        "kl": kl,
        "least_share_of_a_mode": float(raw.min() * 40),
        "modes_lost": int((raw * 40 < 0.1).sum()),
    }


def alanine_dipeptide(options: Options) -> dict[str, Any]:
    """At 300 K, from a minimum of its energy: independent bonds and angles, torsions that turn freely all round."""
    molecule, temperature = AlanineDipeptide(), 300.0
    minimum, rotors = molecule.minimum(), tuple(molecule.torsions[i] for i in ROTORS)
    least = molecule.log_density(minimum, jnp.asarray(temperature))

    def log_density(z: Array) -> Array:
        depth = least - molecule.log_density(z, jnp.asarray(temperature))
        # Clashes have no end: what has no weight at 300 K is made less steep, so that the path there is not.
        return -jnp.where(depth > CLASH, CLASH + jnp.log1p(jnp.minimum(depth - CLASH, 1e30)), depth)

    base = Around(molecule, temperature, minimum, rotors)
    target = trade.bridge(log_density, base, angles=molecule.torsions)
    run, about = trained("alanine-dipeptide", target, None, options)
    weighted = run.weighted(jax.random.key(7), options.samples, 1.0)
    weights = np.asarray(jax.nn.softmax(weighted.log_weight), np.float64)
    clipped = np.minimum(weights, np.quantile(weights, 1.0 - 1e-4))
    own = left_handed(molecule, np.asarray(weighted.x))
    mean = weights @ own
    objective = default_objective(target, 1)
    return about | {
        "ess": weighted.ess,
        "ess_clipped": float(clipped.sum() ** 2 / np.sum(clipped**2) / len(clipped)),
        "phi_positive": float(own.mean()),
        "phi_positive_weighted": float(mean),
        "phi_positive_error": float(np.sqrt(np.sum((weights * (own - mean)) ** 2))),
        "evaluations": evaluations(objective, about["steps"], run.settings["steps"]),
    }


def ring(options: Options) -> dict[str, Any]:
    """The ring of the zoo, on its own clock."""
    problem = chosen(("ring",))[0]
    target = problem.make()
    run, about = trained("ring", target, problem.data(target, jax.random.key(1000)), options)
    return about | measured(problem, run, ZooOptions(samples=options.samples))


PROBLEMS: Problems = {
    "ring": ring,
    "alanine-dipeptide": alanine_dipeptide,
    "many-well": many_well,
    "forty-modes": forty_modes,
    **{f"regression-{i}": lambda options, i=i: regression(i, options) for i in range(len(REGRESSIONS))},
}


if __name__ == "__main__":
    run_missing(PROBLEMS, tyro.cli(Options, default=replace(Options(), out=Path("runs/without_data"))))

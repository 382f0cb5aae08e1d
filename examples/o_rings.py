"""How much does a posterior depend on its likelihood? The O-rings of the Space Shuttle, by logistic regression.

23 flights before the Challenger accident: the temperature at launch, and whether an O-ring showed distress (Dalal,
Fowlkes and Hoadley, J. Am. Stat. Assoc. 84, 945, 1989). Draws of the prior, at β = 0, are the only data; TRADE carries
them to every power β of the likelihood up to 2, and the evidence comes with it. Means and 90 % intervals of both
coefficients, and of the risk at 31 °F, the temperature of the last launch, are drawn against β, beside HMC at three of
them.

    python examples/o_rings.py --out runs/o_rings
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import tyro
from jax import Array

import trade
from trade.experiments.results import record, row
from trade.sampling.mcmc import MarkovChains

mpl.use("Agg")
import matplotlib.pyplot as plt

FAHRENHEIT = np.array([66, 70, 69, 68, 67, 72, 73, 70, 57, 63, 70, 78, 67, 53, 67, 75, 70, 81, 76, 79, 75, 76, 58])
DISTRESS = np.array([0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1])
CENTRE, SCALE, CHALLENGER = 70.0, 7.0, 31.0
QUANTITIES = ("intercept", "slope", "risk")
LOWEST = 0.25  # power of the likelihood that is drawn


def log_prior(w: Array) -> Array:
    """Weak: N(0, 2.5²) for the log odds at 70 °F and for their change over 7 °F."""
    return jax.scipy.stats.norm.logpdf(w, scale=2.5).sum()


def log_likelihood(w: Array) -> Array:
    """Of all 23 flights."""
    log_odds = w[0] + w[1] * (FAHRENHEIT - CENTRE) / SCALE
    return -jax.nn.softplus(jnp.where(DISTRESS == 1, -log_odds, log_odds)).sum()


def quantities(w: Array) -> Array:
    """Intercept, slope, and the probability of distress at 31 °F."""
    return jnp.stack([w[0], w[1], jax.nn.sigmoid(w[0] + w[1] * (CHALLENGER - CENTRE) / SCALE)])


@dataclass(frozen=True)
class Options:
    """The posterior of the O-rings at every power of its likelihood.

    Args:
        out: Where the numbers and the figure go.
        steps: Training steps.
        samples: Samples at each power.
    """

    out: Path = Path("runs/o_rings")
    steps: int = 2000
    samples: int = 20_000


def main(options: Options) -> None:
    """From the prior to every power; HMC at three of them, to check."""
    start, key = time.perf_counter(), jax.random.key(0)
    powers = trade.Condition(0.0, 2.0, scale="linear", boundary=(0.0,))
    target = trade.targets.PowerPosterior(log_prior, log_likelihood, shape=(2,), condition=powers)
    run = trade.fit(target, {0.0: 2.5 * jax.random.normal(key, (50_000, 2))}, steps=options.steps)

    found = {}
    for beta in np.geomspace(LOWEST, powers.high, 13):
        weighted = run.weighted(key, options.samples, float(beta))
        found[float(beta)] = {"ess": weighted.ess, **summary(weighted.resample(key, options.samples))}
    chains, checks = MarkovChains(chains=200), {}
    for beta in (LOWEST, 1.0, powers.high):
        samples, mixing = chains.sample(target, key, 20_000, beta)
        checks[beta] = summary(samples)
        print(f"HMC at β = {beta:g}: R̂ = {mixing.rhat:.3f}, acceptance {mixing.acceptance:.2f}")
    evidence = run.evidence()
    print(f"log evidence {evidence.value:.3f} ± {evidence.error:.3f}")
    for beta, at in list(found.items())[::3]:
        interval = f"{at['risk_low']:.3f} to {at['risk_high']:.3f}"
        print(f"β = {beta:.2f}  ESS {at['ess']:.1%}  risk at 31 °F {at['risk']:.3f} ({interval})")

    rows = [
        row(method, metric, beta, [value])
        for method, table in (("trade", found), ("hmc", checks))
        for beta, values in table.items()
        for metric, value in values.items()
    ]
    rows += [
        row("trade", name, 1.0, [value]) for name, value in zip(("evidence", "evidence_error"), evidence, strict=True)
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    results = record("o-rings", rows, time.perf_counter() - start)
    (options.out / "results.json").write_text(json.dumps(results, indent=1))
    draw(options.out / "sensitivity.png", found, checks)


def summary(w: Array) -> dict[str, float]:
    """Mean and 90 % interval of each quantity."""
    values = np.asarray(jax.vmap(quantities)(w))
    low, high = np.quantile(values, [0.05, 0.95], axis=0)
    table = {"": values.mean(axis=0), "_low": low, "_high": high}
    return {q + end: float(v) for end, numbers in table.items() for q, v in zip(QUANTITIES, numbers, strict=True)}


def draw(path: Path, found: dict[float, dict[str, float]], checks: dict[float, dict[str, float]]) -> None:
    """Every quantity against β: mean, 90 % interval, HMC at three powers."""
    labels = ("log odds at 70 °F", "change of log odds over 7 °F", "probability of distress at 31 °F")
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), constrained_layout=True)
    for axis, name, label in zip(axes, QUANTITIES, labels, strict=True):

        def columns(table: dict[float, dict[str, float]], name: str = name) -> np.ndarray:
            return np.array([[c, *(at[name + end] for end in ("", "_low", "_high"))] for c, at in table.items()]).T

        beta, mean, low, high = columns(found)
        axis.fill_between(beta, low, high, alpha=0.2, label="90 % interval")
        axis.plot(beta, mean, label="posterior mean")
        beta, mean, low, high = columns(checks)
        axis.errorbar(beta, mean, [mean - low, high - mean], fmt="k.", capsize=3, label="HMC")
        axis.axvline(1.0, color="0.7", lw=0.8, zorder=0)
        axis.set(xscale="log", xlabel="power β of the likelihood", title=label)
        axis.set_xticks([0.25, 0.5, 1, 2], ["0.25", "0.5", "1", "2"])
        axis.minorticks_off()
    axes[2].legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(tyro.cli(Options))

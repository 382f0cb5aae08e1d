"""φ⁴ with a coupling of order one on larger lattices: one flow for all hopping parameters.

``python -m benchmarks.lattices``: ESS at couplings on the line of Gerdes et al. (2022) and between, susceptibility and
log Z beside Markov chains. Flow, objective and the end of training are those of ``fit``.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import trade
from benchmarks.one_by_one import Options, Problems, run_missing, trained
from trade import Condition
from trade.evaluation.free_energy import bennett
from trade.evaluation.observables import observables
from trade.sampling.mcmc import MarkovChains
from trade.targets import ScalarField

BOUNDARY = (0.29, 0.32)
CHECKED = (0.29, 0.30, 0.3151, 0.32, 0.3307)  # the chains of each are an independent truth


def phi_four(length: int, options: Options) -> dict[str, Any]:
    """One lattice: data at two hopping parameters, all from 0.2887 to 0.3372."""
    target = ScalarField(length, 0.5, condition=Condition(0.2887, 0.3372, boundary=BOUNDARY))
    chains = MarkovChains(chains=500, pilot=max(400, 400 * length**2 // 64))
    data = {c: chains.sample(target, jax.random.key(i), 50_000, c)[0] for i, c in enumerate(BOUNDARY)}
    run, about = trained(target, data, options)
    grid = sorted({*CHECKED, 0.2887, 0.31, 0.3225, 0.3372})
    ess = [run.weighted(jax.random.key(i), 10_000, c).ess for i, c in enumerate(grid)]
    checks: list[dict[str, Any]] = []
    before: Any = None
    for i, c in enumerate(CHECKED):
        samples, mixing = chains.sample(target, jax.random.key(100 + i), 10_000, c)
        weighted = run.weighted(jax.random.key(200 + i), 20_000, c)
        own = observables(target, weighted.x, c, weighted.log_weight)["susceptibility"]
        truth = observables(target, samples, c)["susceptibility"]
        log_z = trade.evaluation.quality(weighted.log_weight)
        row = {"c": c, "ess": weighted.ess, "rhat": mixing.rhat}
        row |= {"susceptibility": tuple(own), "susceptibility_hmc": tuple(truth)}
        if before is not None:
            c0, samples0, log_z0 = before
            there, here = (jax.vmap(lambda x, a=a: target.log_density(x, jnp.asarray(a))) for a in (c, c0))
            bar = bennett(there(samples0) - here(samples0), there(samples) - here(samples))
            value, error = log_z.log_z - log_z0.log_z, np.hypot(log_z.log_z_error, log_z0.log_z_error)
            row |= {"log_z_step": (value, error), "log_z_bennett": tuple(bar)}
        checks.append(row)
        before = c, samples, log_z
    return about | {"conditions": grid, "ess": ess, "checks": checks}


PROBLEMS: Problems = {
    f"phi-four-{length}": lambda options, length=length: phi_four(length, options) for length in (8, 16, 32, 64)
}


if __name__ == "__main__":
    run_missing("lattices", PROBLEMS, tyro.cli(Options, default=replace(Options(), out=Path("runs/lattices"))))

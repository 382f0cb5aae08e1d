"""φ⁴ with a coupling of order one on larger lattices: one flow for all hopping parameters.

``python -m benchmarks.lattices``: ESS at couplings on the line of Gerdes et al. (2022) and between, observables and
log Z beside Markov chains. Flow, objective and the end of training are those of ``fit``.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import tyro

from benchmarks.fields import beside_chains
from benchmarks.one_by_one import Options, Problems, run_missing, trained
from trade import Condition
from trade.sampling.mcmc import MarkovChains
from trade.targets import ScalarField

BOUNDARY = (0.29, 0.32)
CHECKED = (0.29, 0.30, 0.3151, 0.32, 0.3307)  # the chains of each are an independent truth


def phi_four(length: int, options: Options) -> dict[str, Any]:
    """One lattice: data at two hopping parameters, all from 0.2887 to 0.3372."""
    target = ScalarField(length, 0.5, condition=Condition(0.2887, 0.3372, boundary=BOUNDARY))
    chains = MarkovChains(chains=500, pilot=max(400, 400 * length**2 // 64))
    data = {c: chains.sample(target, jax.random.key(i), 50_000, c)[0] for i, c in enumerate(BOUNDARY)}
    run, about = trained(f"phi-four-{length}", target, data, options)
    grid = sorted({*CHECKED, 0.2887, 0.31, 0.3225, 0.3372})
    ess = [run.weighted(jax.random.key(i), 10_000, c).ess for i, c in enumerate(grid)]
    return about | {"conditions": grid, "ess": ess, "checks": beside_chains(run, target, chains, list(CHECKED))}


PROBLEMS: Problems = {
    f"phi-four-{length}": lambda options, length=length: phi_four(length, options) for length in (8, 16, 32, 64)
}


if __name__ == "__main__":
    run_missing(PROBLEMS, tyro.cli(Options, default=replace(Options(), out=Path("runs/lattices"))))

"""A run of the lattice action beside Markov chains: observables, and log Z from each condition to the next."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import trade
from trade.evaluation.free_energy import bennett
from trade.evaluation.observables import NAMES, observables
from trade.sampling.mcmc import MarkovChains
from trade.targets import ScalarField


def beside_chains(
    run: trade.Run, target: ScalarField, chains: MarkovChains, conditions: list[Any]
) -> list[dict[str, Any]]:
    """Weighted observables against those of chains at each condition, steps of log Z against Bennett's."""
    checks, previous = [], None
    for i, c in enumerate(conditions):
        samples, mixing = chains.sample(target, jax.random.key(100 + i), 20_000, c)
        weighted = run.weighted(jax.random.key(200 + i), 20_000, c)
        own, truth = observables(target, weighted.x, c, weighted.log_weight), observables(target, samples, c)
        row = {
            "c": c,
            "ess": weighted.ess,
            "rhat": mixing.rhat,
            "sigmas": {n: (own[n].value - truth[n].value) / np.hypot(own[n].error, truth[n].error) for n in NAMES},
        }
        row |= {"model": {n: tuple(own[n]) for n in NAMES}, "hmc": {n: tuple(truth[n]) for n in NAMES}}
        log_z = trade.evaluation.quality(weighted.log_weight)
        if previous is not None:
            c0, samples0, log_z0 = previous
            there, here = (jax.vmap(lambda x, a=a: target.log_density(x, jnp.asarray(a))) for a in (c, c0))
            bar = bennett(there(samples0) - here(samples0), there(samples) - here(samples))
            value, error = log_z.log_z - log_z0.log_z, np.hypot(log_z.log_z_error, log_z0.log_z_error)
            row |= {
                "log_z_step": (value, error),
                "log_z_bennett": tuple(bar),
                "log_z_sigmas": (value - bar.value) / np.hypot(error, bar.error),
            }
        checks.append(row)
        previous = c, samples, log_z
    return checks

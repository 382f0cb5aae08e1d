"""φ⁴ over κ and λ, and a Lennard-Jones crystal over temperature and pressure, beside Markov chains."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import trade
from benchmarks.axes_powers import mean_and_deviation
from benchmarks.fields import beside_chains
from benchmarks.one_by_one import Options, trained
from trade import Axes, Condition, check
from trade.sampling.mcmc import MarkovChains


def phi_four(options: Options) -> dict[str, Any]:
    """8x8 over κ and λ, data at two points; 6 x 6 conditions, and Markov chains at nine."""
    axes = Axes(
        {"kappa": Condition(0.22, 0.32), "coupling": Condition(0.015, 0.03)}, boundary=[(0.25, 0.02), (0.29, 0.02)]
    )
    target = trade.targets.ScalarField(8, condition=axes)
    chains = MarkovChains(chains=500)
    data = {c: chains.sample(target, jax.random.key(i), 20_000, c)[0] for i, c in enumerate(axes.boundary)}
    run, about = trained("phi-four", target, data, options)
    grid = [tuple(c) for c in axes.grid(6)]
    ess = [run.weighted(jax.random.key(i), 10_000, c).ess for i, c in enumerate(grid)]
    found: dict[str, Any] = {"conditions": grid, "ess": ess, "ess_mean": np.mean(ess), "ess_least": min(ess)}
    order = [tuple(c) for c in axes.grid(3)]
    snake = [order[j] for j in (0, 1, 2, 5, 4, 3, 6, 7, 8)]  # neighbours follow each other
    return about | found | {"checks": beside_chains(run, target, chains, snake)}


def crystal(cells: tuple[int, int, int], options: Options) -> dict[str, Any]:
    """Particles of a crystal over a rectangle of temperature and pressure, data at its middle."""
    target = trade.targets.LennardJones(cells)
    axes, chains = target.condition, MarkovChains(chains=250)
    (middle,), corners = axes.boundary, [tuple(c) for c in axes.grid(2)]
    data = chains.sample(target, jax.random.key(0), 40_000, middle)[0]
    simulated = [chains.sample(target, jax.random.key(100 + i), 10_000, c) for i, c in enumerate(corners)]
    mbar = _mbar(target, [middle, *corners], [data[:10_000], *(x for x, _ in simulated)])
    run, about = trained(f"crystal-{4 * math.prod(cells)}", target, {middle: data}, options)
    grid = [tuple(c) for c in axes.grid(5)]
    ess = [run.weighted(jax.random.key(i), 10_000, c).ess for i, c in enumerate(grid)]
    found = {"conditions": grid, "ess": ess, "ess_least": min(ess), "ess_mean": np.mean(ess)}
    checks, logs = [], []
    for i, (c, (kept, mixing)) in enumerate(zip(corners, simulated, strict=True)):
        weighted = run.weighted(jax.random.key(200 + i), 40_000, c)
        row: dict[str, Any] = {"c": c, "ess": weighted.ess, "rhat": mixing.rhat}
        for name, function in (("volume", target.volume), ("energy", target.energy)):
            own = mean_and_deviation(jax.vmap(function)(weighted.x), weighted.log_weight, 1.0)[0]
            truth = mean_and_deviation(jax.vmap(function)(kept), None, mixing.effective)[0]
            row[name] = {"model": own, "hmc": truth, "sigmas": (own[0] - truth[0]) / np.hypot(own[1], truth[1])}
        checks.append(row)
        logs.append(trade.evaluation.quality(weighted.log_weight))
    differences = []
    for i in range(1, len(corners)):
        own, error = logs[i].log_z - logs[0].log_z, np.hypot(logs[i].log_z_error, logs[0].log_z_error)
        value, sigma = (mbar[k][1, 1 + i] for k in ("log_z", "error"))
        between = {"from": corners[0], "to": corners[i], "model": (own, error), "mbar": (value, sigma)}
        differences.append(between | {"sigmas": (own - value) / np.hypot(error, sigma)})
    return about | found | {"checks": checks, "log_z": differences}


def _mbar(target: Any, places: list[Any], samples: list[Array]) -> dict[str, np.ndarray]:
    """log Z of each place less that of each other, by MBAR over simulations at all of them, and errors."""
    pymbar = check.library("pymbar")
    everything = jnp.concatenate([jnp.asarray(s) for s in samples])
    u = np.stack(
        [-np.asarray(jax.vmap(lambda x, c=c: target.log_density(x, jnp.asarray(c)))(everything)) for c in places]
    )
    with jax.enable_x64(True):
        mbar = pymbar.MBAR(u.astype(np.float64), [len(s) for s in samples], initialize="BAR")
        found = mbar.compute_free_energy_differences()
    return {"log_z": -np.asarray(found["Delta_f"]), "error": np.asarray(found["dDelta_f"])}

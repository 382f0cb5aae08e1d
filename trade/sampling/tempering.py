"""Replica exchange: HMC at a ladder of conditions at once, neighbours exchanged after every trajectory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from trade.errors import TradeError, check_integers
from trade.sampling.mcmc import hmc, tune
from trade.target import AbstractTarget


class Exchanged(NamedTuple):
    """Samples of a ladder, and how it moved.

    Args:
        samples: For each wanted condition, of shape (ensembles, draws, ...): split them by ensemble.
        ladder: The conditions.
        acceptance: Mean acceptance probability of HMC at each.
        exchange: Part of the exchanges accepted, between each and the next.
    """

    samples: dict[float, Array]
    ladder: np.ndarray
    acceptance: np.ndarray
    exchange: np.ndarray


@dataclass(frozen=True)
class ReplicaExchange:
    """Settings of the ladder.

    Args:
        rungs: Conditions from one end of the range to the other, evenly spaced in the chart.
        ensembles: Independent ladders side by side.
        integration_steps: Most leapfrog steps of a trajectory; their number is drawn at random.
        thermalisation: Trajectories dropped at the start.
        thinning: Trajectories between two samples that are kept.
    """

    rungs: int = 7
    ensembles: int = 100
    integration_steps: int = 20
    thermalisation: int = 1000
    thinning: int = 10

    def __post_init__(self) -> None:
        check_integers(self, rungs=2, ensembles=1, integration_steps=1, thermalisation=0, thinning=1)

    def sample(self, target: AbstractTarget, key: Array, n: int, at: Sequence[float], start: ArrayLike) -> Exchanged:
        """At least n samples at each of the wanted conditions.

        Args:
            target: The family of densities.
            key: A JAX random key.
            n: How many samples at each condition, over all ensembles.
            at: Wanted conditions; they must be rungs of the ladder, such as both ends of the range.
            start: One state from which all chains begin.
        """
        ladder = target.condition.grid(self.rungs)
        rungs = [int(np.argmin(np.abs(ladder - c))) for c in at]
        for c, i in zip(at, rungs, strict=True):
            if not np.isclose(ladder[i], c, rtol=1e-6):
                rest = ", ".join(f"{v:.6g}" for v in ladder)
                raise TradeError(f"The condition {c:g} is no rung of the ladder ({rest}).")
        x = jnp.asarray(start, float)
        if x.shape != target.shape:
            raise TradeError(f"start must be one state of shape {target.shape}, got {x.shape}.")
        keys = jax.random.split(key, 3)
        c = jnp.asarray(ladder, float)
        tuned = _tune(target, c, x, jax.random.split(keys[0], self.rungs), self.integration_steps)
        states = jnp.broadcast_to(x, (self.ensembles, self.rungs, *x.shape))
        run = _Run(target, c, tuned, self.integration_steps)
        states, _ = _sweeps(run, states, keys[1], 1, jnp.asarray(self.thermalisation), tuple(rungs))
        draws = -(-n // self.ensembles)
        _, (kept, moved, exchanged) = _sweeps(run, states, keys[2], draws, jnp.asarray(self.thinning), tuple(rungs))
        samples = {float(c): jnp.swapaxes(kept[:, :, k], 0, 1) for k, c in enumerate(at)}
        return Exchanged(samples, ladder, np.asarray(moved.mean(axis=0)), np.asarray(exchanged.mean(axis=0)))


class _Run(NamedTuple):
    target: AbstractTarget
    ladder: Array
    tuned: tuple[Array, Array]
    longest: int


@eqx.filter_jit
def _tune(target: AbstractTarget, ladder: Array, start: Array, keys: Array, longest: int) -> tuple[Array, Array]:
    """At every rung, each on a chain of its own."""
    return jax.vmap(lambda c, k: tune(lambda v: target.log_density(v, c), start, k, longest, steps=1000))(ladder, keys)


@eqx.filter_jit
def _sweeps(
    run: _Run, states: Array, key: Array, kept: int, thinning: Array, rungs: tuple[int, ...]
) -> tuple[Array, tuple[Array, Array, Array]]:
    """``kept`` times ``thinning`` sweeps; the last state of each lot is kept at some rungs."""
    target, ladder, tuned, longest = run
    count = len(ladder)

    def move(x: Array, c: Array, tuned: tuple[Array, Array], key: Array) -> tuple[Array, Array]:
        kernel = hmc(lambda v: target.log_density(v, c), tuned, longest)
        one, two = jax.random.split(key)
        state, info = kernel.step(two, kernel.init(x, one))
        return state.position, info.acceptance_rate  # pyright: ignore

    def swap(x: Array, key: Array) -> tuple[Array, Array]:
        """Of one ensemble: even rungs with the next ones up, or odd ones, at random."""
        key_parity, key_chance = jax.random.split(key)
        rung = jnp.arange(count)
        partner = jnp.where((rung - jax.random.randint(key_parity, (), 0, 2)) % 2 == 0, rung + 1, rung - 1)
        partner = jnp.where((partner < 0) | (partner >= count), rung, partner)
        own = jax.vmap(target.log_density)(x, ladder)
        other = jax.vmap(target.log_density)(x, ladder[partner])
        gain = (other - own) + (other - own)[partner]
        chance = jax.random.uniform(key_chance, (count,))[jnp.minimum(rung, partner)]
        accepted = (jnp.log(chance) < gain) & (partner != rung)
        # Each gap of the ladder is tried half of the times.
        return jnp.where(_wide(accepted, x), x[partner], x), 2.0 * (accepted & (partner > rung))[:-1]

    def sweep(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, key, moved, exchanged = carry
        key, key_move, key_swap = jax.random.split(key, 3)
        keys = jax.random.split(key_move, x.shape[:2])
        x, rate = jax.vmap(jax.vmap(move), in_axes=(0, None, None, 0))(x, ladder, tuned, keys)
        x, swapped = jax.vmap(swap)(x, jax.random.split(key_swap, len(x)))
        return x, key, moved + rate.mean(axis=0), exchanged + swapped.mean(axis=0)

    def lot(x: Array, key: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        start = (x, key, jnp.zeros(count), jnp.zeros(count - 1))
        x, _, moved, exchanged = jax.lax.fori_loop(0, thinning, sweep, start)
        return x, (x[:, np.array(rungs)], moved / thinning, exchanged / thinning)

    return jax.lax.scan(lot, states, jax.random.split(key, kept))


def _wide(mask: Array, x: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (x.ndim - 1))

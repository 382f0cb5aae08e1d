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

from trade import check
from trade.abstract_target import AbstractTarget, check_target
from trade.condition import check_condition
from trade.errors import TradeError
from trade.sampling.mcmc import tune

TUNING = 5  # chains on which a rung is tuned


class Exchanged(NamedTuple):
    """Samples of a ladder, and how it moved.

    Args:
        samples: For each wanted condition, of shape (ensembles, draws, ...): split them by ensemble.
        ladder: The conditions.
        acceptance: Mean acceptance probability of HMC at each.
        exchange: Part of the exchanges accepted, between each and the next.
        jumped: Part of the jumps accepted at each.
    """

    samples: dict[float, Array]
    ladder: np.ndarray
    acceptance: np.ndarray
    exchange: np.ndarray
    jumped: np.ndarray


@dataclass(frozen=True)
class ReplicaExchange:
    """Settings of the ladder.

    Args:
        rungs: Conditions from one end of the range to the other, evenly spaced in the chart.
        ensembles: Independent ladders side by side.
        integration_steps: Most leapfrog steps of a trajectory; their number is drawn at random for all chains.
        thermalisation: Trajectories dropped at the start.
        thinning: Trajectories between two samples that are kept.
        jumps: Coordinates that are angles in radians. After every trajectory one of them is drawn anew on the whole
            circle, and taken by Metropolis's rule: so a torsion crosses barriers that no trajectory does.
    """

    rungs: int = 7
    ensembles: int = 100
    integration_steps: int = 20
    thermalisation: int = 1000
    thinning: int = 10
    jumps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check.integers(self, rungs=2, ensembles=1, integration_steps=1, thermalisation=0, thinning=1)
        check.instance(self.jumps, (tuple, list, range), "ReplicaExchange jumps", "a tuple of coordinates")
        jumps = tuple(check.integer(i, "An entry of ReplicaExchange jumps", 0) for i in self.jumps)
        object.__setattr__(self, "jumps", jumps)

    def sample(self, target: AbstractTarget, key: Array, n: int, at: Sequence[float], start: ArrayLike) -> Exchanged:
        """At least n samples at each of the wanted conditions.

        Args:
            target: The family of densities.
            key: A JAX random key.
            n: How many samples at each condition, over all ensembles.
            at: Wanted conditions; they must be rungs of the ladder, such as both ends of the range.
            start: One state from which all chains begin.

        Returns:
            The samples by condition, and how the ladder moved.
        """
        check_target(target, observed=False)
        key, n = check.random_key(key), check.count(n, target.shape)
        check.instance(at, (tuple, list, np.ndarray), "at", "a tuple of conditions")
        at = [target.condition.check(c) for c in at]
        if not at:
            raise TradeError("at must hold one condition or more, got none.")
        ladder = check_condition(target.condition, single="a ladder").grid(self.rungs)
        rungs = [int(np.argmin(np.abs(ladder - c))) for c in at]
        for c, i in zip(at, rungs, strict=True):
            if not np.isclose(ladder[i], c, rtol=1e-6):
                rest = ", ".join(f"{v:.6g}" for v in ladder)
                raise TradeError(f"The condition {c:g} is no rung of the ladder ({rest}).")
        x = jnp.asarray(check.array(start, "start", finite=True), float)
        if x.shape != target.shape:
            raise TradeError(f"start must be one state of shape {target.shape}, got {x.shape}.")
        if not all(0 <= i < x.size for i in self.jumps):
            raise TradeError(f"jumps must be coordinates of a state with {x.size}, got {self.jumps}.")
        keys = jax.random.split(key, 3)
        c = jnp.asarray(ladder, float)
        tuned = _tune(target, c, x, jax.random.split(keys[0], (self.rungs, TUNING)), self.integration_steps)
        states = jnp.broadcast_to(x, (self.ensembles, self.rungs, *x.shape))
        run = _Run(target, c, tuned, self.integration_steps, self.jumps)
        states, _ = _sweeps(run, states, keys[1], 1, jnp.asarray(self.thermalisation), tuple(rungs))
        draws = -(-n // self.ensembles)
        _, (kept, rates) = _sweeps(run, states, keys[2], draws, jnp.asarray(self.thinning), tuple(rungs))
        samples = {float(c): jnp.swapaxes(kept[:, :, k], 0, 1) for k, c in enumerate(at)}
        return Exchanged(samples, ladder, *(np.asarray(r.mean(axis=0)) for r in rates))


class _Run(NamedTuple):
    target: AbstractTarget
    ladder: Array
    tuned: tuple[Array, Array]
    longest: int
    jumps: tuple[int, ...]


class _Rates(NamedTuple):
    """Parts accepted, in the order of ``Exchanged``: one number per rung, or per gap between two."""

    moved: Array
    exchanged: Array
    jumped: Array


@eqx.filter_jit
def _tune(target: AbstractTarget, ladder: Array, start: Array, keys: Array, longest: int) -> tuple[Array, Array]:
    """At every rung, each on a few chains of its own: a single one is at times far off."""

    def at(c: Array, keys: Array) -> tuple[Array, Array]:
        sizes, masses = jax.vmap(lambda k: tune(lambda v: target.log_density(v, c), start, k, longest, 1000))(keys)
        return jnp.median(sizes), jnp.median(masses, axis=0)

    return jax.vmap(at)(ladder, keys)


@eqx.filter_jit
def _sweeps(
    run: _Run, states: Array, key: Array, kept: int, thinning: Array, rungs: tuple[int, ...]
) -> tuple[Array, tuple[Array, _Rates]]:
    """``kept`` times ``thinning`` sweeps; the last state of each lot is kept at some rungs."""
    import blackjax  # noqa: PLC0415  its import takes seconds

    target, ladder, tuned, longest, jumps = run
    count = len(ladder)

    def move(x: Array, c: Array, tuned: tuple[Array, Array], key: Array, length: Array) -> tuple[Array, Array]:
        kernel = blackjax.hmc(lambda v: target.log_density(v, c), *tuned, length)  # pyright: ignore
        state, info = kernel.step(key, kernel.init(x))  # pyright: ignore
        return state.position, info.acceptance_rate  # pyright: ignore

    def jump(x: Array, c: Array, key: Array) -> tuple[Array, Array]:
        key_which, key_angle, key_chance = jax.random.split(key, 3)
        angle = jax.random.uniform(key_angle, minval=-jnp.pi, maxval=jnp.pi)
        other = x.at[jax.random.choice(key_which, np.array(jumps))].set(angle)
        gain = target.log_density(other, c) - target.log_density(x, c)
        accepted = jnp.log(jax.random.uniform(key_chance)) < gain
        return jnp.where(accepted, other, x), accepted.astype(x.dtype)

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

    def sweep(_: Array, carry: tuple[Array, Array, _Rates]) -> tuple[Array, Array, _Rates]:
        x, key, rates = carry
        key, key_move, key_length, key_jump, key_swap = jax.random.split(key, 5)
        keys = jax.random.split(key_move, x.shape[:2])
        # One length for all: side by side, every trajectory takes as long as the longest.
        length = jax.random.randint(key_length, (), 1, longest + 1)
        over_rungs = jax.vmap(move, in_axes=(0, 0, 0, 0, None))
        x, moved = jax.vmap(over_rungs, in_axes=(0, None, None, 0, None))(x, ladder, tuned, keys, length)
        jumped = jnp.zeros_like(moved)
        if jumps:
            keys = jax.random.split(key_jump, x.shape[:2])
            x, jumped = jax.vmap(jax.vmap(jump), in_axes=(0, None, 0))(x, ladder, keys)
        x, swapped = jax.vmap(swap)(x, jax.random.split(key_swap, len(x)))
        new = _Rates(moved, swapped, jumped)
        return x, key, jax.tree.map(lambda total, rate: total + rate.mean(axis=0), rates, new)

    def lot(x: Array, key: Array) -> tuple[Array, tuple[Array, _Rates]]:
        none = _Rates(jnp.zeros(count), jnp.zeros(count - 1), jnp.zeros(count))
        x, _, rates = jax.lax.fori_loop(0, thinning, sweep, (x, key, none))
        return x, (x[:, np.array(rungs)], jax.tree.map(lambda total: total / thinning, rates))

    return jax.lax.scan(lot, states, jax.random.split(key, kept))


def _wide(mask: Array, x: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (x.ndim - 1))

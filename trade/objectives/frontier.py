"""Where in c, decided by the model's own weights: the part of the range that anything is asked of grows outward."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.objectives.condition_samplers import Seen
from trade.objectives.term import Clock, Problem, State

_AT_END = 1e-4  # of the chart


class FrontierState(NamedTuple):
    """An interval around each boundary value, and how well the model follows.

    Args:
        ends: Chart coordinates of the two ends of each interval, of shape (W, 2).
        ess: Running ESS at the ends.
        home: Running ESS at the boundary values, of shape (W,).
    """

    ends: Array
    ess: Array
    home: Array


@dataclass(frozen=True)
class Frontier:
    """Uniform on intervals around the boundary values, whose ends move outward while the weights there are good.

    A model that is asked for conditions it cannot follow yet has states where the target is nearly zero: their
    residuals say nothing, and drown what is already learned. So at every step each end is one of the conditions, and
    moves on if its running ESS is above ``threshold``, and back a little if it is not. Intervals of neighbouring
    boundary values grow towards each other until they meet.

    Args:
        crossing: Part of the term's own time in which an end would cross the whole range if nothing held it.
        threshold: The ESS that lets an end move on.
        retreat: Speed of an end that moves back, as a part of its speed outward.
        memory: Weight of the old value in the running ESS.
    """

    crossing: float = 0.4
    threshold: float = 0.3
    retreat: float = 0.25
    memory: float = 0.9

    def __post_init__(self) -> None:
        check.numbers(self, "threshold", "memory", low=0, high=1, open_low=True, open_high=True)
        check.numbers(self, "crossing", low=0, open_low=True)
        check.numbers(self, "retreat", low=0)

    def init(self, problem: Problem) -> State:
        """Every interval is its boundary value; the ESS begins at the threshold, neither good nor bad."""
        boundaries = problem.condition.boundary_chart()
        good = jnp.full((len(boundaries), 2), self.threshold, boundaries.dtype)  # a weak type would compile twice
        return FrontierState(jnp.stack([boundaries, boundaries], axis=1), good, jnp.zeros_like(boundaries))

    def sample(self, state: FrontierState, key: Array, n: int, problem: Problem, clock: Clock) -> Array:
        """The boundary values, the ends that can move, and the rest uniform over the intervals."""
        boundaries, moving = problem.condition.boundary_chart(), _moving(problem)
        fixed = jnp.concatenate([boundaries, state.ends[moving]])
        if n <= len(fixed):
            raise TradeError(
                f"Frontier needs more than {len(fixed)} conditions a step for"
                f" {len(boundaries)} boundary values, got {n}."
            )
        upto = jnp.cumsum(state.ends[:, 1] - state.ends[:, 0])
        along = upto[-1] * jax.random.uniform(key, (n - len(fixed),))
        which = jnp.minimum(jnp.searchsorted(upto, along, side="right"), len(boundaries) - 1)
        return jnp.concatenate([fixed, state.ends[which, 1] - (upto[which] - along)])

    def update(self, state: FrontierState, u: Array, seen: Seen, problem: Problem, clock: Clock) -> FrontierState:
        """Average the ESS, and move the ends."""
        moving = _moving(problem)
        count, rows = len(state.home), len(moving[0])
        found = jnp.nan_to_num(seen.ess[: count + rows])  # no weight at all is no success
        home = self.memory * state.home + (1.0 - self.memory) * found[:count]
        ess = state.ess.at[moving].set(self.memory * state.ess[moving] + (1.0 - self.memory) * found[count:])
        step = 2.0 / max(self.crossing * (clock.total - clock.start), 1.0)
        pace = jnp.where(ess > self.threshold, step, -self.retreat * step)
        return FrontierState(self._moved(state.ends, pace, problem), ess, home)

    def _moved(self, ends: Array, pace: Array, problem: Problem) -> Array:
        """Each end by its pace, no farther than its boundary value inward and its neighbour or the range outward."""
        boundaries = problem.condition.boundary_chart()
        around = jnp.concatenate([-jnp.ones(1), boundaries, jnp.ones(1)])
        low = jnp.clip(ends[:, 0] - pace[:, 0], around[:-2], boundaries)
        high = jnp.clip(ends[:, 1] + pace[:, 1], boundaries, around[2:])
        # Neighbours that would cross meet halfway.
        meet = jnp.clip(0.5 * (high[:-1] + low[1:]), boundaries[:-1], boundaries[1:])
        crossed = low[1:] < high[:-1]
        low = low.at[1:].set(jnp.where(crossed, meet, low[1:]))
        high = high.at[:-1].set(jnp.where(crossed, meet, high[:-1]))
        return jnp.clip(jnp.stack([low, high], axis=1), -1.0, 1.0)

    def notes(self, state: FrontierState, problem: Problem) -> dict[str, Array]:
        """How much of the range is reached, and the ESS at the boundary values."""
        reached = (state.ends[:, 1] - state.ends[:, 0]).sum() / 2.0
        return {"reached": reached, "boundary_ess": state.home.min()}


def _moving(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the ends that have somewhere to go: not those of a boundary value at the end of the range."""
    boundaries = problem.condition.boundary_u
    last = len(boundaries) - 1
    free = [(i, 0) for i, u in enumerate(boundaries) if i > 0 or u > -1.0 + _AT_END]
    free += [(i, 1) for i, u in enumerate(boundaries) if i < last or u < 1.0 - _AT_END]
    rows, sides = np.array(free, int).reshape(-1, 2).T
    return rows, sides

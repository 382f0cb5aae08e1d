"""Where in c, decided by the model's own weights: the part of the range that anything is asked of grows outward."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.objectives.condition_samplers import Seen
from trade.objectives.rays import Rays
from trade.objectives.term import Clock, Problem, State


class FrontierState(NamedTuple):
    """How far each ray is reached, and how well the model follows.

    Args:
        reach: The part of each ray that is asked of the model, of shape (rays,).
        ess: Running ESS at the tips.
        home: Running ESS at the boundary values, of shape (W,).
    """

    reach: Array
    ess: Array
    home: Array


@dataclass(frozen=True)
class Frontier:
    """Uniform on a region around the boundary values, which grows wherever the weights at its edge are good.

    A model that is asked for conditions it cannot follow yet has states where the target is nearly zero: their
    residuals say nothing, and drown what is already learned. So rays go out from every boundary value, on one axis two
    of them, on several axes to points all over the surface of the range. The tips of rays are among the conditions of
    every step, and each moves on if its running ESS is above ``threshold``, and back a little if it is not: one
    direction does not wait for another. With several boundary values, rays go no farther than abreast of the next.

    Args:
        crossing: Part of the term's own time in which a tip would cross the whole range if nothing held it.
        threshold: The ESS that lets a tip move on.
        retreat: Speed of a tip that moves back, as a part of its speed outward.
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
        """Nothing is reached but the boundary values; the ESS begins at the threshold, neither good nor bad."""
        boundaries = problem.condition.boundary_chart()
        rays = Rays.of(problem.condition)
        dtype = boundaries.dtype  # a weak type would compile twice
        good = jnp.full(len(rays.home), self.threshold, dtype)
        return FrontierState(jnp.zeros(len(rays.home), dtype), good, jnp.zeros(len(boundaries), dtype))

    def sample(self, state: FrontierState, key: Array, n: int, problem: Problem, clock: Clock) -> Array:
        """The boundary values, tips of rays, and the rest over the region that is reached."""
        rays = Rays.of(problem.condition)
        tips = self._tips(n, rays, clock)
        fixed = [jnp.asarray(rays.boundary, state.reach.dtype), rays.at(tips, state.reach[tips])]
        inside = rays.inside(state.reach, key, n - sum(map(len, fixed)))
        return jnp.concatenate([*fixed, inside]).reshape(n, *problem.condition.u_shape)

    def _tips(self, n: int, rays: Rays, clock: Clock) -> Array:
        """Which rays have their tip among n conditions: all of them where these are enough, or in turn."""
        homes, count = len(rays.boundary), len(rays.home)
        if n < homes + 2:
            raise TradeError(
                f"Frontier needs more than {homes + 1} conditions a step for {homes} boundary values, got {n}."
            )
        at_once = min(count, max(n - homes - max(n // 4, 1), 1))
        first = 0 if at_once == count else (clock.step * at_once) % count
        return (first + jnp.arange(at_once)) % count

    def update(self, state: FrontierState, u: Array, seen: Seen, problem: Problem, clock: Clock) -> FrontierState:
        """Average the ESS, and move the tips."""
        rays = Rays.of(problem.condition)
        tips, homes = self._tips(len(u), rays, clock), len(state.home)
        found = jnp.nan_to_num(seen.ess[: homes + len(tips)])  # no weight at all is no success
        home = self.memory * state.home + (1.0 - self.memory) * found[:homes]
        ess = state.ess.at[tips].set(self.memory * state.ess[tips] + (1.0 - self.memory) * found[homes:])
        step = 2.0 / max(self.crossing * (clock.total - clock.start), 1.0) / np.abs(rays.span).max(axis=1)
        pace = jnp.where(ess > self.threshold, step, -self.retreat * step)
        return FrontierState(jnp.clip(state.reach + pace, 0.0, 1.0), ess, home)

    def notes(self, state: FrontierState, problem: Problem) -> dict[str, Array]:
        """How much of the range is reached, and the ESS at the boundary values."""
        reached = Rays.of(problem.condition).part(state.reach)
        return {"reached": reached, "boundary_ess": state.home.min()}

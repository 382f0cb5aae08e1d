"""Where in c a term is evaluated, in the chart u: the p_grad(c) of the gradient residual.

The contract is ``ConditionSampler``.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.condition import Condition
from trade.errors import TradeError
from trade.objectives.term import Clock, Problem, State


class Seen(NamedTuple):
    """What the gradient term saw at each of its conditions, in the order in which they were drawn.

    Args:
        loss: Mean penalty of the residual.
        ess: Effective sample size of the model's own states, weighted to the target.
    """

    loss: Array
    ess: Array


class ConditionSampler(Protocol):
    """What draws the conditions of a term, and may learn from what was seen there."""

    def init(self, problem: Problem) -> State:
        """The state before the first step.

        Args:
            problem: Target, boundary values and data.

        Returns:
            The state, a pytree of arrays.
        """
        ...

    def sample(self, state: State, key: Array, n: int, problem: Problem, clock: Clock) -> Array:
        """Conditions for one step.

        Args:
            state: The state.
            key: A JAX random key.
            n: How many.
            problem: Target, boundary values and data.
            clock: Where training stands.

        Returns:
            Chart coordinates, with first axis n.
        """
        ...

    def update(self, state: State, u: Array, seen: Seen, problem: Problem, clock: Clock) -> State:
        """Take notice of what was seen at each sampled u.

        Args:
            state: The state.
            u: The chart coordinates that ``sample`` gave.
            seen: What was seen there.
            problem: Target, boundary values and data.
            clock: Where training stands.

        Returns:
            The new state.
        """
        ...

    def notes(self, state: State, problem: Problem) -> dict[str, Array]:
        """Numbers worth reporting; most members have none.

        Args:
            state: The state.
            problem: Target, boundary values and data.

        Returns:
            Scalars by name.
        """
        ...


def check_conditions(conditions: object, owner: str) -> None:
    """Refuse what is no member of this axis."""
    takes = "a sampler of conditions such as Frontier()"
    check.member(conditions, f"{owner} conditions", takes, "init", "sample", "update", "notes")


class _Silent:
    def notes(self, state: State, problem: Problem) -> dict[str, Array]:
        """Nothing to report."""
        return {}


class _Stateless(_Silent):
    def init(self, problem: Problem) -> State:
        """No state."""
        return ()

    def update(self, state: State, u: Array, seen: Seen, problem: Problem, clock: Clock) -> State:
        """Nothing to learn."""
        return state


@dataclass(frozen=True)
class Widening(_Stateless):
    """Concentrated around c0 at first, moving outward with time (Appendix B.2).

    With several boundary values, one of them is drawn at random for each condition; with several axes, each of them
    is drawn by itself.

    Args:
        s_min: Skew ζ at the start; 0 would be a point mass at c0.
        s_max: Skew at the end; 1 is uniform in the chart, more leans to the ends.
    """

    s_min: float = 0.01
    s_max: float = 1.5

    def __post_init__(self) -> None:
        check.numbers(self, "s_min", "s_max", low=0, open_low=True)
        if not self.s_min <= self.s_max:
            raise TradeError(f"Widening needs 0 < s_min <= s_max, got {self.s_min!r} and {self.s_max!r}.")

    def sample(self, state: State, key: Array, n: int, problem: Problem, clock: Clock) -> Array:
        """The four lines of Appendix B.2, written in the chart."""
        key_r, key_w, key_b = jax.random.split(key, 3)
        boundaries = problem.condition.boundary_chart()
        u0 = boundaries[jax.random.randint(key_b, (n,), 0, len(boundaries))]
        r = jax.random.uniform(key_r, u0.shape)
        up = jax.random.uniform(key_w, u0.shape) < (1.0 - u0) / 2.0
        zeta = self.skew(clock)
        return u0 + (1.0 - r**zeta) * jnp.where(up, 1.0 - u0, -1.0 - u0)

    def skew(self, clock: Clock) -> Array:
        """ζ, geometric in time from ``s_min`` to ``s_max``.

        Args:
            clock: Where training stands.

        Returns:
            A scalar.
        """
        low, high = jnp.log(self.s_min), jnp.log(self.s_max)
        return jnp.exp(low + clock.progress * (high - low))


@dataclass(frozen=True)
class GrowingInterval(_Stateless):
    """Uniform on an interval (a box) around c0 whose ends move linearly to the full range (Appendix C.3).

    Args:
        full_at: Fraction of the time at which the full range is reached; 0 starts with it.
    """

    full_at: float = 1.0

    def __post_init__(self) -> None:
        check.numbers(self, "full_at", low=0, high=1)

    def sample(self, state: State, key: Array, n: int, problem: Problem, clock: Clock) -> Array:
        """Uniform in the chart between the current ends."""
        shape = problem.condition.u_shape
        boundaries = problem.condition.boundary_chart() if self.full_at > 0 else jnp.zeros((1, *shape))
        reach = jnp.minimum(clock.progress / self.full_at, 1.0) if self.full_at > 0 else 1.0
        least, most = boundaries.min(axis=0), boundaries.max(axis=0)
        low, high = least + reach * (-1.0 - least), most + reach * (1.0 - most)
        return jax.random.uniform(key, (n, *shape), minval=low, maxval=high)


def one_axis_grid(condition: AbstractCondition, points: int, owner: str) -> Array:
    """Chart coordinates of a grid with the boundary values in it, refused where the condition has several axes."""
    if not isinstance(condition, Condition):
        names = ", ".join(condition.names)
        raise TradeError(f"{owner} is a grid on one axis, and the condition has {names}: use Frontier() or Widening().")
    return jnp.asarray(condition.grid_with_boundary(points))


@dataclass(frozen=True)
class CausalGrid(_Silent):
    """A grid in c, sampled by causality weights (Section 4.3.2, Appendices B.6 and C.3).

    A grid point is drawn with probability ∝ exp(-ε Σ L_grad) over the grid points from the
    nearest boundary up to it: conditions are learned outward, as fast as the loss allows.

    Args:
        points: Number of grid points, boundary values included.
        epsilon: Strength ε of the weights; 0 draws uniformly.
        decay: Final ratio of ε to its first value, reached exponentially.
        between: Factor on ε between two boundary values.
        ema: Weight of the old value in the running loss of a grid point.
        initial: Loss that an unvisited grid point is taken to have.
    """

    points: int = 50
    epsilon: float = 1.0
    decay: float = 1.0
    between: float = 1.0
    ema: float = 0.9
    initial: float = 1.0

    def __post_init__(self) -> None:
        check.integers(self, points=2)
        check.numbers(self, "epsilon", "between", "initial", low=0)
        check.numbers(self, "decay", low=0, open_low=True)
        check.numbers(self, "ema", low=0, high=1, open_high=True)

    def grid(self, problem: Problem) -> Array:
        """The chart coordinates of the grid.

        Args:
            problem: Gives the condition.

        Returns:
            Chart coordinates, increasing.
        """
        return one_axis_grid(problem.condition, self.points, "CausalGrid")

    def init(self, problem: Problem) -> State:
        """The running loss at every grid point."""
        return jnp.full(len(self.grid(problem)), self.initial, dtype=float)  # a weak type would compile twice

    def sample(self, state: State, key: Array, n: int, problem: Problem, clock: Clock) -> Array:
        """n grid points drawn by the causality weights."""
        logits = self.log_weights(state, problem, clock)
        return self.grid(problem)[jax.random.categorical(key, logits, shape=(n,))]

    def log_weights(self, losses: Array, problem: Problem, clock: Clock) -> Array:
        """Eq. 22: -ε Σ L_grad(c_i) over the grid points in [c0, c], for the cheapest c0.

        Args:
            losses: The running loss at every grid point.
            problem: Target, boundary values and data.
            clock: Where training stands.

        Returns:
            Unnormalised log weights, one per grid point.
        """
        grid, boundaries = self.grid(problem), problem.condition.boundary_chart()
        slack = 1e-5  # of grid points that are boundary values, up to rounding
        inside = (grid > boundaries.min() + slack) & (grid < boundaries.max() - slack)
        strength = self.epsilon * self.decay**clock.progress * jnp.where(inside, self.between, 1.0)
        low, high = jnp.minimum(grid[:, None], boundaries), jnp.maximum(grid[:, None], boundaries)
        passed = (grid >= low[..., None] - slack) & (grid <= high[..., None] + slack)
        accumulated = jnp.sum(jnp.where(passed, strength * losses, 0.0), axis=-1)
        return -accumulated.min(axis=-1)

    def update(self, state: State, u: Array, seen: Seen, problem: Problem, clock: Clock) -> State:
        """Exponential average of the loss, at the visited grid points only."""
        grid = self.grid(problem)
        hits = jnp.argmin(jnp.abs(u[:, None] - grid), axis=1)[:, None] == jnp.arange(len(grid))
        count = hits.sum(axis=0)
        mean = jnp.where(hits, seen.loss[:, None], 0.0).sum(axis=0) / jnp.maximum(count, 1)
        return jnp.where(count > 0, self.ema * state + (1.0 - self.ema) * mean, state)

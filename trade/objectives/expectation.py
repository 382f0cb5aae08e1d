"""Ē(u) = E_{p(x|u)}[∂_u log q(x|u)] = d log Z/du, by self-normalised importance sampling.

Two axes meet here: the *base* the samples come from, and whether the expectation is
estimated on each batch or kept on a grid (Section 4.3.4).
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.objectives.condition_samplers import one_axis_grid
from trade.objectives.density import Density
from trade.objectives.points import at_points, model_states
from trade.objectives.term import Clock, Problem, State


def self_normalised(log_q: Array, log_base: Array, values: Array) -> Array:
    """Eq. 25: Σ w v / Σ w with w = q/p_base, along the last axis; both may be unnormalised."""
    return jnp.sum(jax.nn.softmax(log_q - log_base, axis=-1) * values, axis=-1)


class Snapshot(NamedTuple):
    """What stays as it is while an expectation is estimated.

    Args:
        flow: The flow, with no gradient through it.
        problem: Target, boundary values and data.
        density: What q is.
    """

    flow: AbstractDistribution
    problem: Problem
    density: Density

    def evaluate(self, x: Array, at: "Where") -> tuple[Array, Array]:
        """log q of states at the conditions, and its derivative along the directions there.

        Args:
            x: States of shape (C, P, *shape).
            at: C conditions.

        Returns:
            Two arrays of shape (C, P).
        """
        return at_points(lambda v, *w: self.density.evaluate(self.flow, self.problem, v, *w), x, *at)


class Where(NamedTuple):
    """Conditions, the observations that belong to them, and the directions in which derivatives are taken there.

    Args:
        u: Chart coordinates, with first axis C.
        y: One observation per condition, with first axis C; None where the target takes none.
        direction: One tangent of u per condition, of the same shape: all ones where the condition has one axis.
    """

    u: Array
    y: Array | None
    direction: Array


def _estimate(snapshot: Snapshot, at: Where, x: Array, log_base: Array) -> Array:
    """Ē at each of the conditions, from states of their own."""
    log_q, score = snapshot.evaluate(x, at)
    return self_normalised(log_q, log_base, score)


class Base(Protocol):
    """The distribution that the expectation is sampled from."""

    reuses_points: bool
    evaluations: int  # of q, to know the base density of one state

    def draw(self, snapshot: Snapshot, at: Where, n: int, key: Array) -> tuple[Array, Array]:
        """States for each of the conditions, and their log base density up to a constant.

        Args:
            snapshot: Flow, problem and density.
            at: C conditions.
            n: States for each of them.
            key: A JAX random key.

        Returns:
            States of shape (C, n, *shape), and log densities of shape (C, n).
        """
        ...


def check_base(base: object, owner: str) -> None:
    """Refuse what is no base."""
    check.member(base, f"{owner} base", "a base such as FromModel()", "draw")


@dataclass(frozen=True)
class FromModel:
    """p_base = p_θ(x|c): the model at the condition itself."""

    reuses_points = True
    evaluations = 0

    def draw(self, snapshot: Snapshot, at: Where, n: int, key: Array) -> tuple[Array, Array]:
        """n states of p_θ(x|u)."""
        return model_states(snapshot.flow, at.u, at.y, n, key)


@dataclass(frozen=True)
class FromBoundaryModel:
    """p_base = p_θ(x|c0): the model at the nearest boundary."""

    reuses_points = False
    evaluations = 0

    def draw(self, snapshot: Snapshot, at: Where, n: int, key: Array) -> tuple[Array, Array]:
        """n states of p_θ(x|u0)."""
        condition = snapshot.problem.condition
        u0 = condition.boundary_chart()[condition.nearest_boundary(at.u)]
        return model_states(snapshot.flow, u0, at.y, n, key)


@dataclass(frozen=True)
class FromData:
    """p_base = p(x|c0): the data at the nearest boundary, scored by q(x|c0)."""

    reuses_points = False
    evaluations = 1

    def draw(self, snapshot: Snapshot, at: Where, n: int, key: Array) -> tuple[Array, Array]:
        """n data points of the nearest boundary."""
        problem, count = snapshot.problem, len(at.u)
        if problem.target.observation_shape is not None:
            raise TradeError("FromData cannot serve targets with an observation: use FromModel.")
        nearest = problem.condition.nearest_boundary(at.u)
        u0 = problem.condition.boundary_chart()[nearest]
        batches = [problem.batch(key, i, count * n)[0] for i in range(len(problem.condition.boundary))]
        x = jnp.stack(batches).reshape(-1, count, n, *problem.target.shape)[nearest, jnp.arange(count)]
        return x, snapshot.evaluate(x, Where(u0, None, at.direction))[0]


class Drawn(NamedTuple):
    """States already drawn at each condition, and what is known of them.

    Args:
        x: The states, of shape (C, P, *shape).
        log_base: Log density of what they were drawn from, of shape (C, P).
        log_q: log q of each, of shape (C, P).
        score: ∂_u log q of each, of shape (C, P).
    """

    x: Array
    log_base: Array
    log_q: Array
    score: Array


class Expectation(Protocol):
    """How Ē(u) = E[∂_u log q] is estimated."""

    def evaluations(self, conditions: int, points: int) -> float:
        """States at which q is evaluated each step, on average, beside those already drawn.

        Args:
            conditions: How many conditions each step.
            points: How many states are drawn at each of them.

        Returns:
            Their number.
        """
        ...

    def init(self, problem: Problem) -> State:
        """The state before the first step.

        Args:
            problem: Target, boundary values and data.

        Returns:
            The state, a pytree of arrays.
        """
        ...

    def refresh(self, state: State, snapshot: Snapshot, clock: Clock, key: Array) -> State:
        """Bring the stored values up to date, when that is due.

        Args:
            state: The state.
            snapshot: Flow, problem and density.
            clock: Where training stands.
            key: A JAX random key.

        Returns:
            The new state.
        """
        ...

    def estimate(self, state: State, snapshot: Snapshot, at: Where, drawn: Drawn, key: Array) -> Array:
        """Ē at each of the conditions.

        Args:
            state: The state.
            snapshot: Flow, problem and density.
            at: C conditions.
            drawn: States already drawn at each of them.
            key: A JAX random key.

        Returns:
            The estimates, of shape (C,).
        """
        ...


def check_expectation(expectation: object, owner: str) -> None:
    """Refuse what is no member of this axis."""
    takes = "an expectation such as BatchExpectation()"
    check.member(expectation, f"{owner} expectation", takes, "init", "refresh", "estimate")


@dataclass(frozen=True)
class BatchExpectation:
    """Ē estimated anew on every batch.

    Args:
        base: Where the samples come from.
        samples: How many per condition; None reuses the evaluation points where the base
            allows it, and draws as many otherwise.
    """

    base: Base = field(default_factory=FromModel)
    samples: int | None = None

    def __post_init__(self) -> None:
        check_base(self.base, "BatchExpectation")
        if self.samples is not None:
            check.integers(self, samples=2)

    def evaluations(self, conditions: int, points: int) -> float:
        """None where the states already drawn serve."""
        if self.samples is None and self.base.reuses_points:
            return 0.0
        return conditions * (self.samples or points) * (1 + self.base.evaluations)

    def init(self, problem: Problem) -> State:
        """No state."""
        return ()

    def refresh(self, state: State, snapshot: Snapshot, clock: Clock, key: Array) -> State:
        """Nothing is stored."""
        return state

    def estimate(self, state: State, snapshot: Snapshot, at: Where, drawn: Drawn, key: Array) -> Array:
        """From the states already drawn, or from fresh ones of the base."""
        if self.samples is None and self.base.reuses_points:
            return self_normalised(drawn.log_q, drawn.log_base, drawn.score)
        return _estimate(snapshot, at, *self.base.draw(snapshot, at, self.samples or drawn.x.shape[1], key))


class GridState(NamedTuple):
    """Ē at the grid points, and whether they were ever estimated."""

    values: Array
    filled: Array


@dataclass(frozen=True)
class GridExpectation:
    """Ē kept on a grid: refreshed now and then from many samples, averaged, interpolated.

    Args:
        points: Grid points, boundary values included (the same rule as ``CausalGrid``).
        every: Steps between two refreshes.
        samples: Samples per grid point and refresh.
        ema: Weight of the old value in the running average.
        base: Where the samples come from.
    """

    points: int = 50
    every: int = 100
    samples: int = 1000
    ema: float = 0.75
    base: Base = field(default_factory=FromModel)

    def __post_init__(self) -> None:
        check.integers(self, points=2, every=1, samples=2)
        check.numbers(self, "ema", low=0, high=1, open_high=True)
        check_base(self.base, "GridExpectation")

    def grid(self, problem: Problem) -> Array:
        """The chart coordinates of the grid.

        Args:
            problem: Gives the condition.

        Returns:
            Chart coordinates, increasing.
        """
        return one_axis_grid(problem.condition, self.points, "GridExpectation")

    def evaluations(self, conditions: int, points: int) -> float:
        """Those of a refresh, shared out over the steps to the next."""
        return self.points * self.samples * (1 + self.base.evaluations) / self.every

    def init(self, problem: Problem) -> State:
        """Zeros, replaced by the first refresh."""
        if problem.target.observation_shape is not None:
            raise TradeError("GridExpectation cannot serve targets with an observation: use BatchExpectation.")
        return GridState(jnp.zeros(len(self.grid(problem))), jnp.zeros((), bool))

    def refresh(self, state: State, snapshot: Snapshot, clock: Clock, key: Array) -> State:
        """Every ``every`` steps, fold a fresh estimate into the running average."""

        def fresh(state: GridState) -> GridState:
            def one(start: tuple[Array, Array]) -> Array:
                at = Where(start[0][None], None, jnp.ones(1))
                return _estimate(snapshot, at, *self.base.draw(snapshot, at, self.samples, start[1]))[0]

            grid = self.grid(snapshot.problem)
            keys = jax.random.split(key, len(grid))
            values = jax.lax.map(one, (grid, keys), batch_size=max(1, 16384 // self.samples))
            old_weight = jnp.where(state.filled, self.ema, 0.0)
            return GridState(old_weight * state.values + (1.0 - old_weight) * values, jnp.ones((), bool))

        return jax.lax.cond(clock.due(self.every), fresh, lambda s: s, state)

    def estimate(self, state: State, snapshot: Snapshot, at: Where, drawn: Drawn, key: Array) -> Array:
        """The stored values, interpolated linearly in u."""
        return jnp.interp(at.u, self.grid(snapshot.problem), state.values)

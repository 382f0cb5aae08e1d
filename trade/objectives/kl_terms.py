"""The terms that learn a density: from data (Eq. 2), from q (Eq. 3), from reweighted data (Eq. 4).

Each serves as the boundary term of TRADE or, over the whole range, as a baseline.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.model import draw, log_prob
from trade.objectives.condition_samplers import ConditionSampler, GrowingInterval, check_conditions
from trade.objectives.density import TrueDensity
from trade.objectives.expectation import Base, FromData, Snapshot, Where, check_base
from trade.objectives.points import at_points, each
from trade.objectives.term import Clock, Outcome, Problem, State, Term, first_non_finite, held_fixed


@dataclass(frozen=True)
class ForwardKL(Term):
    """Eq. 2: the negative log-likelihood of the data at every boundary value.

    Args:
        batch: States each step, shared out over the boundary values.
        symmetries: Apply a random symmetry of the target to each state.
        at_once: States whose gradient is computed at once, where memory has no room for all of them.
    """

    batch: int = 512
    symmetries: bool = False
    at_once: int | None = None
    name = "forward_kl"

    def __post_init__(self) -> None:
        check.integers(self, batch=1)
        check.flags(self, "symmetries")
        if self.at_once is not None:
            check.integers(self, at_once=1)

    def loss(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """Mean over the boundary values of -E[log p_θ(x|c0)]."""
        boundaries = problem.condition.boundary_chart()
        n = max(self.batch // len(boundaries), 1)
        losses = []
        for i, k in enumerate(jax.random.split(key, len(boundaries))):
            key_batch, key_symmetry = jax.random.split(k)
            x, y = problem.batch(key_batch, i, n)
            if self.symmetries:
                x = jax.vmap(problem.target.symmetry)(jax.random.split(key_symmetry, n), x)
            log_p = each(lambda v, w, u=boundaries[i]: log_prob(flow, v, u, w), x, y, at_once=self.at_once)
            losses.append(-jnp.mean(log_p))
        values = jnp.stack(losses)
        return values.mean(), Outcome(state, first_non_finite(values, problem.condition.unchart(boundaries)))


@dataclass(frozen=True)
class ReverseKL(Term):
    """Eq. 3: E_{p_θ}[log p_θ - log q], differentiated through the samples.

    Args:
        at: Conditions to train at, numbers or (with several axes) tuples; None draws them from ``conditions``.
        conditions: Where in c, when ``at`` is None; the full range by default.
        batch: States each step.
    """

    at: tuple[Any, ...] | None = None
    conditions: ConditionSampler = field(default_factory=lambda: GrowingInterval(full_at=0.0))
    batch: int = 512
    name = "reverse_kl"

    def __post_init__(self) -> None:
        check.integers(self, batch=1)
        check_conditions(self.conditions, "ReverseKL")
        if self.at is not None:
            several = (
                isinstance(self.at, Iterable) and not isinstance(self.at, str | bytes) and getattr(self.at, "ndim", 1)
            )
            at = tuple(self.at) if several else (self.at,)  # pyright: ignore
            object.__setattr__(self, "at", tuple(_number_or_point(c) for c in at))
            if not at:
                raise TradeError("ReverseKL at must hold one condition or more, got none.")

    @property
    def evaluations(self) -> float:
        """One a state."""
        return self.batch

    def init(self, key: Array, problem: Problem) -> State:
        """State of the condition sampler."""
        for c in self.at or ():
            problem.condition.check(c, "ReverseKL condition")
        return self.conditions.init(problem)

    def loss(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """Mean of log p_θ(x|u) - log q(x|u) over model samples."""
        key_u, key_y, key_x = jax.random.split(key, 3)
        if self.at is None:
            u = self.conditions.sample(state, key_u, self.batch, problem, clock)
        else:
            u = problem.condition.chart(jnp.resize(jnp.asarray(self.at), (self.batch, *problem.condition.u_shape)))
        y = problem.draw_observations(key_y, self.batch)

        def one(key: Array, u: Array, y: Array | None) -> Array:
            x, log_p = draw(flow, key, u, y)
            return log_p - problem.target.log_density_at(x, u, y)

        values = each(one, jax.random.split(key_x, self.batch), u, y)
        return values.mean(), Outcome(state, first_non_finite(values, problem.condition.unchart(u)))


@dataclass(frozen=True)
class Reweighted(Term):
    """Eq. 4: the forward KL at other conditions, on samples reweighted by q(x|c) / p_base(x).

    With the data as base this is the paper's baseline. With ``FromModel()`` the model learns from
    its own samples, which refines one that is already close and needs no data at the condition.

    Args:
        conditions: Where in c; the full range by default.
        base: Where the samples come from.
        conditions_per_step: How many conditions each step.
        points_per_condition: Samples at each of them.
        truncate: Largest weight, as a multiple of the mean weight; None leaves the weights alone.
    """

    conditions: ConditionSampler = field(default_factory=lambda: GrowingInterval(full_at=0.0))
    base: Base = field(default_factory=FromData)
    conditions_per_step: int = 8
    points_per_condition: int = 64
    truncate: float | None = None
    name = "reweighted"

    def __post_init__(self) -> None:
        check_conditions(self.conditions, "Reweighted")
        check_base(self.base, "Reweighted")
        check.integers(self, conditions_per_step=1, points_per_condition=1)
        if self.truncate is not None:
            check.numbers(self, "truncate", low=1)

    @property
    def evaluations(self) -> float:
        """One a state for its weight, and what the base needs."""
        return self.conditions_per_step * self.points_per_condition * (1 + self.base.evaluations)

    def init(self, key: Array, problem: Problem) -> State:
        """State of the condition sampler."""
        return self.conditions.init(problem)

    def loss(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """Weighted negative log-likelihood, with weights normalised at each condition."""
        key_u, key_y, key_x = jax.random.split(key, 3)
        n, snapshot = self.points_per_condition, Snapshot(held_fixed(flow), problem, TrueDensity())
        u = self.conditions.sample(state, key_u, self.conditions_per_step, problem, clock)
        at = Where(u, problem.draw_observations(key_y, len(u)), jnp.ones_like(u))
        x, log_base = jax.lax.stop_gradient(self.base.draw(snapshot, at, n, key_x))
        log_q = at_points(problem.target.log_density_at, x, u, at.y)
        weights = jax.nn.softmax(log_q - log_base, axis=1)
        if self.truncate is not None:
            weights = jnp.minimum(weights, self.truncate / n)
            weights = weights / weights.sum(axis=1, keepdims=True)
        values = -jnp.sum(weights * at_points(lambda v, *c: log_prob(flow, v, *c), x, u, at.y), axis=1)
        return values.mean(), Outcome(state, first_non_finite(values, problem.condition.unchart(u)))


def _number_or_point(c: Any) -> Any:
    if isinstance(c, tuple | list):
        return tuple(check.number(v, "ReverseKL at") for v in c)
    return check.number(c, "ReverseKL at")

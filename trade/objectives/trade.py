"""The full objective: a boundary term, and a term that carries it to other conditions."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.errors import TradeError
from trade.objectives.balance import Balance, Fixed
from trade.objectives.boundary import ForwardKL
from trade.objectives.gradient import Gradient
from trade.objectives.term import Clock, Outcome, Problem, Report, State, Term, gradient_of


@dataclass(frozen=True)
class Trade:
    """Eq. 20: L = L_boundary + λ E[L_grad].

    With another ``propagation`` term, such as ``ReverseKL()`` or ``Reweighted()``, the
    same frame holds the paper's baselines.

    Args:
        propagation: What carries the boundary to other conditions.
        boundary: What is learned at the boundary values.
        balance: The weight λ.
        start: When the propagation term begins: a fraction of the run (below 1) or a step. The
            boundary must be learned before it can be carried on: from a bad one, training runs away.
    """

    propagation: Term = field(default_factory=Gradient)
    boundary: Term = field(default_factory=ForwardKL)
    balance: Balance = field(default_factory=Fixed)
    start: float = 0.2

    def __post_init__(self) -> None:
        for name in ("propagation", "boundary"):
            if not isinstance(getattr(self, name), Term):
                raise TradeError(f"Trade {name} must be a loss term, got {getattr(self, name)!r}.")
        if isinstance(self.start, bool) or not isinstance(self.start, int | float) or self.start < 0:
            raise TradeError(f"Trade start must be a fraction of the run or a step number, got {self.start!r}.")

    def first_step(self, total: int) -> int:
        """The first step of the propagation term in a run of ``total`` steps."""
        return int(self.start * total) if self.start < 1 else int(self.start)

    def init(self, key: Array, problem: Problem) -> State:
        """States of both terms and of the balance."""
        one, two = jax.random.split(key)
        return self.boundary.init(one, problem), self.propagation.init(two, problem), self.balance.init()

    def value_and_grad(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Report, Any, State]:
        """Both terms; before ``start`` the boundary alone, at its own price."""
        first = self.first_step(clock.total)
        if first == 0:
            return self._both(flow, state, problem, clock, key)
        return jax.lax.cond(
            clock.step < first,
            lambda: self._boundary_only(flow, state, problem, clock, key),
            lambda: self._both(flow, state, problem, clock, key),
        )

    def _boundary_only(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Report, Any, State]:
        key_boundary, _ = jax.random.split(key)
        run = gradient_of(lambda f: self.boundary.loss(f, state[0], problem, clock, key_boundary))
        (value, outcome), grads = run(flow)
        zero = jnp.zeros_like(value)
        idle = Outcome(state[1], jnp.full_like(outcome.suspect, jnp.nan), (zero,) * len(self.propagation.parts))
        report = self._report(self.boundary.report(value, outcome), self.propagation.report(zero, idle), zero)
        return report, grads, (outcome.state, *state[1:])

    def _both(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Report, Any, State]:
        key_boundary, key_second = jax.random.split(key)
        later = clock._replace(start=self.first_step(clock.total))

        def boundary(f: AbstractDistribution) -> tuple[Array, Any]:
            return self.boundary.loss(f, state[0], problem, clock, key_boundary)

        def second(f: AbstractDistribution) -> tuple[Array, Any]:
            return self.propagation.loss(f, state[1], problem, later, key_second)

        def norms() -> tuple[Array, Array]:
            lengths = [optax.global_norm(gradient_of(term)(flow)[1]) for term in (boundary, second)]
            return lengths[0], lengths[1]

        balance = self.balance.update(state[2], later, norms)
        weight = self.balance.weight(balance, later)

        def total(f: AbstractDistribution) -> tuple[Array, Any]:
            (one, out_one), (two, out_two) = boundary(f), second(f)
            return one + weight * two, (one, two, out_one, out_two)

        (_, (one, two, out_one, out_two)), grads = gradient_of(total)(flow)
        reports = self.boundary.report(one, out_one), self.propagation.report(two, out_two)
        report = self._report(*reports, jnp.asarray(weight, one.dtype))
        return report, grads, (out_one.state, out_two.state, balance)

    def _report(self, boundary: Report, propagation: Report, weight: Array) -> Report:
        losses = {**boundary.losses, **propagation.losses, "lambda": weight}
        return Report(losses, {**boundary.suspects, **propagation.suspects})

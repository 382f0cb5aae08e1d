"""The full objective: a boundary term, and a term that carries it to other conditions."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.objectives.balance import Balance, Ramp, StepBack, check_balance
from trade.objectives.gradient import Gradient
from trade.objectives.kl_terms import ForwardKL
from trade.objectives.term import Clock, Outcome, Problem, Report, State, Term, from_step, gradient_of, no_loss


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
    balance: Balance = field(default_factory=lambda: Ramp(StepBack(), over=0.06))
    start: float = 0.15

    def __post_init__(self) -> None:
        for name in ("propagation", "boundary"):
            check.instance(getattr(self, name), Term, f"Trade {name}", "a loss term such as ForwardKL()")
        check_balance(self.balance, "Trade balance")
        check.numbers(self, "start", low=0, takes="a fraction of the run or a step number")

    def first_step(self, total: int) -> int:
        """The first step of the propagation term.

        Args:
            total: Number of steps of the run.

        Returns:
            The step.
        """
        return int(self.start * total) if self.start < 1 else int(self.start)

    def init(self, key: Array, problem: Problem) -> State:
        """States of both terms and of the balance."""
        one, two = jax.random.split(key)
        return self.boundary.init(one, problem), self.propagation.init(two, problem), self.balance.init()

    def value_and_grad(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Report, Any, State]:
        """Both terms; before ``start`` the boundary alone, at the cost of it alone."""
        key_boundary, key_second = jax.random.split(key)
        first = self.first_step(clock.total)
        later = clock._replace(start=first)

        def boundary(f: AbstractDistribution) -> tuple[Array, Outcome]:
            return self.boundary.loss(f, state[0], problem, clock, key_boundary)

        def second(f: AbstractDistribution) -> tuple[Array, Outcome]:
            return self.propagation.loss_in_parts(f, state[1], problem, later, key_second)

        # Each term by itself: the balance needs both gradients, and the first has one compilation.
        (one, out_one), grads = gradient_of(boundary)(flow)

        def act() -> tuple[Outcome, Any, State, Array]:
            (_, outcome), grads_two = gradient_of(second)(flow)
            norms = optax.tree.norm(grads), optax.tree.norm(grads_two)
            balance = self.balance.update(state[2], later, lambda: norms, outcome.notes)
            weight = jnp.asarray(later.trust * self.balance.weight(balance, later), one.dtype)
            return outcome, jax.tree.map(lambda g, h: g + weight * h, grads, grads_two), balance, weight

        def wait() -> tuple[Outcome, Any, State, Array]:
            return no_loss(lambda: second(flow), state[1])[1], grads, state[2], jnp.zeros_like(one)

        out_two, grads, balance, weight = from_step(first, clock, act, wait)
        reports = self.boundary.report(one, out_one), self.propagation.report(out_two.parts[0], out_two)
        losses = {**reports[0].losses, **reports[1].losses, "lambda": weight}
        report = Report(losses, {**reports[0].suspects, **reports[1].suspects})
        return report, grads, (out_one.state, out_two.state, balance)

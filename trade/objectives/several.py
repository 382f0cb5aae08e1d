"""Several terms as one, and one term after another."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.errors import TradeError
from trade.objectives.boundary import Reweighted
from trade.objectives.expectation import FromModel
from trade.objectives.gradient import Gradient
from trade.objectives.term import Clock, Outcome, Problem, State, Term


@dataclass(frozen=True)
class Sum(Term):
    """A weighted sum of terms, each from its own time on.

    Args:
        terms: The terms.
        weights: Their weights; 1 by default.
        starts: Fraction of this term's own time at which each begins; 0 by default.
    """

    terms: tuple[Term, ...]
    weights: tuple[float, ...] | None = None
    starts: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("weights", "starts"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.terms):
                raise TradeError(f"Sum has {len(self.terms)} terms but {len(values)} {name}.")

    @property
    def name(self) -> str:
        """The names of the terms, joined."""
        return "+".join(self.parts)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the terms."""
        return tuple(name for term in self.terms for name in term.parts)

    def init(self, key: Array, problem: Problem) -> State:
        """The states of the terms."""
        keys = jax.random.split(key, len(self.terms))
        return tuple(term.init(k, problem) for term, k in zip(self.terms, keys, strict=True))

    def loss(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """Σ weight · loss over the terms that have begun."""
        total, outcomes = jnp.zeros(()), []
        for i, (term, k) in enumerate(zip(self.terms, jax.random.split(key, len(self.terms)), strict=True)):
            weight = 1.0 if self.weights is None else self.weights[i]
            begin = 0.0 if self.starts is None else self.starts[i]
            own = clock._replace(start=clock.start + int(begin * (clock.total - clock.start)))

            def act(term: Term = term, old: State = state[i], own: Clock = own, k: Array = k) -> tuple[Array, Outcome]:
                value, outcome = term.loss(flow, old, problem, own, k)
                return value, outcome._replace(parts=outcome.parts or (value,))

            def wait(term: Term = term, old: State = state[i]) -> tuple[Array, Outcome]:
                nothing = jnp.zeros(())
                return nothing, Outcome(old, jnp.full((), jnp.nan), (nothing,) * len(term.parts))

            value, outcome = act() if own.start == clock.start else jax.lax.cond(clock.step < own.start, wait, act)
            total = total + weight * value
            outcomes.append(outcome)
        found = jnp.stack([o.suspect for o in outcomes])
        suspect = found[jnp.argmax(jnp.isfinite(found))]
        parts = tuple(part for o in outcomes for part in o.parts)
        return total, Outcome(tuple(o.state for o in outcomes), suspect, parts)


def refined(gradient: Gradient, start: float = 0.3) -> Sum:
    """The gradient term, and from ``start`` of its time on also the model's own samples, reweighted.

    Args:
        gradient: The gradient term; its conditions and numbers of points serve both.
        start: Fraction of the time at which the samples come in: the model must be close by then.
    """
    conditions, points = gradient.conditions_per_step, gradient.points_per_condition
    return Sum(
        (gradient, Reweighted(gradient.conditions, FromModel(), conditions, points, truncate=10.0)), starts=(0.0, start)
    )

"""Several terms as one, and one term after another."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.errors import TradeError
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
        return "+".join(term.name for term in self.terms)

    def init(self, key: Array, problem: Problem) -> State:
        """The states of the terms."""
        keys = jax.random.split(key, len(self.terms))
        return tuple(term.init(k, problem) for term, k in zip(self.terms, keys, strict=True))

    def loss(
        self, flow: AbstractDistribution, state: State, problem: Problem, clock: Clock, key: Array
    ) -> tuple[Array, Outcome]:
        """Σ weight · loss over the terms that have begun."""
        total, states, suspects = jnp.zeros(()), [], []
        keys = jax.random.split(key, len(self.terms))
        for i, term in enumerate(self.terms):
            weight = 1.0 if self.weights is None else self.weights[i]
            first = clock.start + int((0.0 if self.starts is None else self.starts[i]) * (clock.total - clock.start))
            own = clock._replace(start=first)

            def act(term: Term = term, i: int = i, own: Clock = own) -> tuple[Array, Outcome]:
                return term.loss(flow, state[i], problem, own, keys[i])

            def wait(i: int = i) -> tuple[Array, Outcome]:
                return jnp.zeros(()), Outcome(state[i], jnp.full((), jnp.nan))

            value, outcome = act() if first == clock.start else jax.lax.cond(clock.step < first, wait, act)
            total = total + weight * value
            states.append(outcome.state)
            suspects.append(outcome.suspect)
        found = jnp.stack(suspects)
        first_bad = found[jnp.argmax(jnp.isfinite(found))]
        return total, Outcome(tuple(states), first_bad)

"""Several terms as one, each from its own time on."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.objectives.term import Clock, Outcome, Problem, State, Term, from_step, no_loss


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
        terms = self.terms if isinstance(self.terms, tuple | list) else ()
        if not terms or not all(isinstance(term, Term) for term in terms):
            raise TradeError(f"Sum terms must be loss terms in a tuple, got {check.shown(self.terms)}.")
        object.__setattr__(self, "terms", tuple(terms))
        for name, low, high in (("weights", None, None), ("starts", 0, 1)):
            values = getattr(self, name)
            if values is None:
                continue
            check.instance(values, (tuple, list), f"Sum {name}", "a tuple of numbers, one for each term")
            if len(values) != len(terms):
                raise TradeError(f"Sum has {len(terms)} terms but {len(values)} {name}.")
            found = tuple(check.number(v, f"An entry of Sum {name}", low, high) for v in values)
            object.__setattr__(self, name, found)

    @property
    def name(self) -> str:
        """The names of the terms, joined."""
        return "+".join(self.parts)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the terms."""
        return tuple(name for term in self.terms for name in term.parts)

    @property
    def evaluations(self) -> float:
        """Those of all terms, once all have begun."""
        return sum(term.evaluations for term in self.terms)

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
                return term.loss_in_parts(flow, old, problem, own, k)

            def wait(act: Callable[[], tuple[Array, Outcome]] = act, old: State = state[i]) -> tuple[Array, Outcome]:
                return no_loss(act, old)

            value, outcome = from_step(own.start, clock, act, wait)
            total = total + weight * value
            outcomes.append(outcome)
        found = jnp.stack([o.suspect for o in outcomes])
        suspect = found[jnp.argmax(jnp.isfinite(found))]
        parts = tuple(part for o in outcomes for part in o.parts)
        notes = {name: note for o in outcomes for name, note in o.notes.items()}
        return total, Outcome(tuple(o.state for o in outcomes), suspect, parts, notes)

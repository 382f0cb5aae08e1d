"""The weight λ of the second term in the full loss (Eq. 20, Appendix B.1).

The contract is ``Balance``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.objectives.term import Clock, State

Norms = Callable[[], tuple[Array, Array]]
Notes = Mapping[str, Array]


class Balance(Protocol):
    """The weight λ, which may follow what both terms do."""

    def init(self) -> State:
        """The state before the first step.

        Returns:
            The state, a pytree of arrays.
        """
        ...

    def update(self, state: State, clock: Clock, norms: Norms, notes: Notes) -> State:
        """Take notice of both gradients, and of what the second term reports.

        Args:
            state: The state.
            clock: Where training stands.
            norms: Function that gives the gradient norms of the boundary and the second term; called only when needed.
            notes: What the second term reports, by name.

        Returns:
            The new state.
        """
        ...

    def weight(self, state: State, clock: Clock) -> Array:
        """The weight λ.

        Args:
            state: The state.
            clock: Where training stands.

        Returns:
            A scalar.
        """
        ...


def check_balance(balance: object, name: str) -> None:
    """Refuse what is no member of this axis."""
    check.member(balance, name, "a balance such as Fixed(1.0)", "init", "update", "weight")


@dataclass(frozen=True)
class Fixed:
    """A constant λ.

    Args:
        value: The constant.
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        check.numbers(self, "value", low=0)

    def init(self) -> State:
        """No state."""
        return ()

    def update(self, state: State, clock: Clock, norms: Norms, notes: Notes) -> State:
        """Nothing to learn."""
        return state

    def weight(self, state: State, clock: Clock) -> Array:
        """The constant."""
        return jnp.asarray(self.value)


@dataclass(frozen=True)
class Ramp:
    """Another balance, reached gradually: its λ times a factor that grows from 0 to 1.

    At its start the second term finds a model that is arbitrary away from the boundary, and Adam's
    moments small: at full weight the first steps can throw the model out of reach of its data.

    Args:
        balance: What is reached; λ = 1 by default.
        over: Part of the second term's own time on which it grows.
    """

    balance: Balance = field(default_factory=Fixed)
    over: float = 0.25

    def __post_init__(self) -> None:
        check_balance(self.balance, "Ramp balance")
        takes = "a fraction of the term's time in (0, 1]"
        check.numbers(self, "over", low=0, high=1, open_low=True, takes=takes)

    def init(self) -> State:
        """The state of the balance."""
        return self.balance.init()

    def update(self, state: State, clock: Clock, norms: Norms, notes: Notes) -> State:
        """That of the balance."""
        return self.balance.update(state, clock, norms, notes)

    def weight(self, state: State, clock: Clock) -> Array:
        """λ · min(1, progress / over)."""
        return self.balance.weight(state, clock) * jnp.minimum(clock.progress / self.over, 1.0)


@dataclass(frozen=True)
class StepBack:
    """λ that grows from 1 to ``most`` as far as the model's own weights at the boundary values allow.

    Data are finite, and a model memorises them; its own states are new at every step, and weighted by the true
    density. Data find the modes, the density shapes them: once the ESS at the boundary is good, data step back. It is
    heard from the second term as the note ``boundary_ess``; without one λ stays 1.

    Args:
        most: The largest λ.
        over: Part of the second term's own time on which the largest λ is reached, if the ESS allows it.
        low: ESS up to which λ stays 1.
        high: ESS from which it may be ``most``.
    """

    most: float = 10.0
    over: float = 0.4
    low: float = 0.5
    high: float = 0.9

    def __post_init__(self) -> None:
        check.numbers(self, "most", low=1)
        check.numbers(self, "over", low=0, high=1, open_low=True)
        check.numbers(self, "low", "high", low=0, high=1)
        if not self.low < self.high:
            raise TradeError(f"StepBack needs low < high, got low={self.low:g}, high={self.high:g}.")

    def init(self) -> State:
        """The ESS at the boundary, not known yet."""
        return jnp.zeros(())

    def update(self, state: State, clock: Clock, norms: Norms, notes: Notes) -> State:
        """Remember the ESS."""
        return jnp.asarray(notes.get("boundary_ess", state), state.dtype)

    def weight(self, state: State, clock: Clock) -> Array:
        """λ, geometric between 1 and ``most``."""
        allowed = jnp.clip((state - self.low) / (self.high - self.low), 0.0, 1.0)
        return self.most ** (allowed * jnp.minimum(clock.progress / self.over, 1.0))


class NormState(NamedTuple):
    """Running λ̂ of both terms, and whether there is one yet."""

    boundary: Array
    gradient: Array
    filled: Array


@dataclass(frozen=True)
class GradientNorm:
    """λ that makes the gradients of both terms equally long (Appendix B.1).

    Args:
        factor: Fixed relative weight, multiplied with the adaptive λ.
        every: Steps between two measurements.
        ema: Weight of the old value in the running averages of both λ̂.
    """

    factor: float = 1.0
    every: int = 100
    ema: float = 0.9

    def __post_init__(self) -> None:
        check.numbers(self, "factor", low=0)
        check.integers(self, every=1)
        check.numbers(self, "ema", low=0, high=1, open_high=True)

    def init(self) -> State:
        """λ = factor until the first measurement."""
        return NormState(jnp.ones(()), jnp.ones(()), jnp.zeros((), bool))

    def update(self, state: State, clock: Clock, norms: Norms, notes: Notes) -> State:
        """λ̂ = (sum of both norms) / own norm, averaged."""

        def measure(state: NormState) -> NormState:
            boundary, gradient = norms()
            total = boundary + gradient
            keep = jnp.where(state.filled, self.ema, 0.0)
            tiny = jnp.finfo(total.dtype).tiny

            def average(old: Array, norm: Array) -> Array:
                return keep * old + (1.0 - keep) * total / jnp.maximum(norm, tiny)

            return NormState(average(state.boundary, boundary), average(state.gradient, gradient), jnp.ones((), bool))

        return jax.lax.cond(clock.due(self.every), measure, lambda s: s, state)

    def weight(self, state: State, clock: Clock) -> Array:
        """λ = factor · λ̂_grad / λ̂_boundary."""
        return self.factor * state.gradient / state.boundary

"""How a residual is measured."""

from dataclasses import dataclass
from typing import Protocol

import jax.numpy as jnp
from jax import Array

from trade.errors import TradeError


class Norm(Protocol):
    """A member of this axis: elementwise, non-negative."""

    def __call__(self, residual: Array) -> Array:
        """The loss of each residual."""
        ...


@dataclass(frozen=True)
class Squared:
    """r² (Eq. 19)."""

    def __call__(self, residual: Array) -> Array:
        """r²."""
        return residual**2


@dataclass(frozen=True)
class Huber:
    """r²/2 up to |r| = δ, linear beyond: δ(|r| - δ/2) (Appendices B.6, C.3).

    Args:
        delta: The threshold δ, in units of the residual in the chart.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        if not self.delta > 0:
            raise TradeError(f"Huber delta must be positive, got {self.delta!r}.")

    def __call__(self, residual: Array) -> Array:
        """Quadratic inside, linear outside."""
        size = jnp.abs(residual)
        inside = jnp.minimum(size, self.delta)
        return inside * (size - 0.5 * inside)

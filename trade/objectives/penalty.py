"""What a residual costs: elementwise penalties."""

from dataclasses import dataclass
from typing import Protocol

import jax.numpy as jnp
from jax import Array

from trade import check

_LARGEST = 1e15  # its square is a float32


class Penalty(Protocol):
    """What a residual costs: elementwise, non-negative."""

    def __call__(self, residual: Array) -> Array:
        """The loss of each residual.

        Args:
            residual: Residuals, of any shape.

        Returns:
            Losses, of the same shape.
        """
        ...


@dataclass(frozen=True)
class Squared:
    """r² (Eq. 19)."""

    def __call__(self, residual: Array) -> Array:
        """r²."""
        return residual**2


@dataclass(frozen=True)
class _Robust:
    delta: float = 1.0

    def __post_init__(self) -> None:
        check.numbers(self, "delta", low=0, open_low=True)


@dataclass(frozen=True)
class Huber(_Robust):
    """r²/2 up to |r| = δ, linear beyond: δ(|r| - δ/2) (Appendices B.6, C.3).

    Args:
        delta: The threshold δ, in units of the residual in the chart.
    """

    def __call__(self, residual: Array) -> Array:
        """Quadratic inside, linear outside."""
        size = jnp.abs(residual)
        inside = jnp.minimum(size, self.delta)
        return inside * (size - 0.5 * inside)


@dataclass(frozen=True)
class Cauchy(_Robust):
    """δ²/2 · log(1 + (r/δ)²): as r²/2 up to about δ, then ever flatter.

    A state far out, whose residual and its derivatives are both huge, pulls no more than others; Huber
    bounds the pull of the residual alone.

    Args:
        delta: The scale δ, in units of the residual in the chart.
    """

    def __call__(self, residual: Array) -> Array:
        """Quadratic near zero, logarithmic far away; what would overflow when squared pulls no more."""
        ratio = jnp.clip(residual / self.delta, -_LARGEST, _LARGEST)
        return 0.5 * self.delta**2 * jnp.log1p(ratio**2)

"""What q(x|c) is taken to be: the target's own density, or one rebuilt from the flow."""

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.model import log_prob
from trade.objectives.term import Problem


class Density(Protocol):
    """What q is taken to be, for one state."""

    known: bool  # whether q is known apart from the flow, so that weights to it are a judgement of the flow

    def evaluate(
        self, flow: AbstractDistribution, problem: Problem, x: Array, u: Array, y: Array | None, direction: Array
    ) -> tuple[Array, Array]:
        """log q(x|u), and its derivative in u along a direction.

        Args:
            flow: The flow, with no gradient through it.
            problem: Target, boundary values and data.
            x: One state.
            u: The chart coordinate.
            y: The observation, where the target takes one.
            direction: A tangent of u.

        Returns:
            Two scalars.
        """
        ...


def check_density(density: object, owner: str) -> None:
    """Refuse what is no member of this axis."""
    check.member(density, f"{owner} density", "a density, TrueDensity() or EnergyFree()", "evaluate")


@dataclass(frozen=True)
class TrueDensity:
    """The target's own log density."""

    known = True

    def evaluate(
        self, flow: AbstractDistribution, problem: Problem, x: Array, u: Array, y: Array | None, direction: Array
    ) -> tuple[Array, Array]:
        """log q(x|u) and ∂_u log q(x|u), which outside the support is taken for zero."""
        log_q = problem.target.log_density_at(x, u, y)
        return log_q, jnp.where(jnp.isneginf(log_q), 0.0, problem.target.score(x, u, y, direction))


@dataclass(frozen=True)
class EnergyFree:
    """q rebuilt from the flow's own log p_θ(x|c0), held fixed (Section 4.3.5).

    The target's ``rebuild`` rule says how, e.g. ``trade.targets.boltzmann``.
    """

    known = False

    def evaluate(
        self, flow: AbstractDistribution, problem: Problem, x: Array, u: Array, y: Array | None, direction: Array
    ) -> tuple[Array, Array]:
        """log q(x|u) and ∂_u log q(x|u), from log p_θ at the nearest boundary."""
        condition = problem.condition
        u0 = condition.boundary_chart()[condition.nearest_boundary(u)]
        c0 = condition.unchart(u0)
        log_p0 = jax.lax.stop_gradient(log_prob(flow, x, u0, y))

        def log_q(v: Array) -> Array:
            return problem.target.rebuild(log_p0, x, condition.unchart(v), c0, y)

        return jax.jvp(log_q, (u,), (direction,))

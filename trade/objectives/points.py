"""Where in x the gradient residual is evaluated: p_grad(x|c)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.model import draw
from trade.objectives.term import Problem


def at_points(function: Callable[..., Any], x: Array, *of_conditions: Any) -> Any:
    """The function of every state x, of shape (C, P, ...), and of what belongs to its condition, of leading axis C.

    All points are one batch: with two batch axes a CPU copies what a product's derivative needs into another order
    first, which takes as long as the product.
    """
    conditions, points = x.shape[:2]
    repeated = jax.tree.map(lambda v: jnp.repeat(v, points, axis=0), of_conditions)
    found = jax.vmap(function)(x.reshape(-1, *x.shape[2:]), *repeated)
    return jax.tree.map(lambda v: v.reshape(conditions, points, *v.shape[1:]), found)


def model_states(flow: AbstractDistribution, u: Array, y: Array | None, n: int, key: Array) -> tuple[Array, Array]:
    """n states of p_θ(x|u) at each of the conditions u, and their log density: of shapes (C, n, ...) and (C, n)."""
    return at_points(lambda k, v, w: draw(flow, k, v, w), jax.random.split(key, (len(u), n)), u, y)


@dataclass(frozen=True)
class ModelPoints:
    """States from the model itself, perturbed (Section 4.3.3).

    Args:
        noise: Standard deviation of Gaussian noise added to each state.
        symmetries: Apply a random symmetry of the target to each state.
    """

    noise: float = 0.0
    symmetries: bool = False

    @property
    def moves(self) -> bool:
        """Whether ``perturb`` does anything."""
        return self.symmetries or self.noise > 0.0

    def draw(self, flow: AbstractDistribution, u: Array, y: Array | None, n: int, key: Array) -> tuple[Array, Array]:
        """n states at each of the conditions u, and their log density."""
        return model_states(flow, u, y, n, key)

    def perturb(self, x: Array, problem: Problem, key: Array) -> Array:
        """One state with noise and a random symmetry."""
        key_noise, key_symmetry = jax.random.split(key)
        if self.symmetries:
            x = problem.target.symmetry(key_symmetry, x)
        if self.noise > 0.0:
            x = x + self.noise * jax.random.normal(key_noise, x.shape, x.dtype)
        return x

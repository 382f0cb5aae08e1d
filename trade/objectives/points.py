"""Where in x the gradient residual is evaluated: p_grad(x|c)."""

from dataclasses import dataclass

import jax
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.model import draw
from trade.objectives.term import Problem


@dataclass(frozen=True)
class ModelPoints:
    """States from the model itself, perturbed (Section 4.3.3).

    Args:
        noise: Standard deviation of Gaussian noise added to each state.
        symmetries: Apply a random symmetry of the target to each state.
    """

    noise: float = 0.0
    symmetries: bool = False

    def draw(self, flow: AbstractDistribution, u: Array, y: Array | None, n: int, key: Array) -> tuple[Array, Array]:
        """n states of p_θ(x|u) and their log density."""
        return jax.vmap(lambda k: draw(flow, k, u, y))(jax.random.split(key, n))

    def perturb(self, x: Array, problem: Problem, key: Array) -> Array:
        """One state with noise and a random symmetry."""
        key_noise, key_symmetry = jax.random.split(key)
        if self.symmetries:
            x = problem.target.symmetry(key_symmetry, x)
        if self.noise > 0.0:
            x = x + self.noise * jax.random.normal(key_noise, x.shape, x.dtype)
        return x

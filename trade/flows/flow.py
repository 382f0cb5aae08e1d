"""A flow, and the plain data it is built from."""

from abc import ABC, abstractmethod

import equinox as eqx
from flowjax.bijections import AbstractBijection
from flowjax.distributions import AbstractDistribution, AbstractTransformed
from jax import Array


class Recipe(ABC):
    """Plain data from which a flow is built, so that a saved run can name it: subclasses are frozen dataclasses."""

    @abstractmethod
    def build(self, key: Array) -> "Flow":
        """Make the flow.

        Args:
            key: A JAX random key.

        Returns:
            The flow.
        """

    def __call__(self, key: Array) -> "Flow":
        """The same as ``build``: a recipe is a function from a key to a flow.

        Args:
            key: A JAX random key.

        Returns:
            The flow.
        """
        return self.build(key)


class Flow(AbstractTransformed):
    """A flowjax distribution that remembers the recipe it was built from.

    Args:
        base_dist: The latent p(z|c).
        bijection: From latent to data.
        recipe: What it was built from.
    """

    base_dist: AbstractDistribution
    bijection: AbstractBijection
    recipe: Recipe = eqx.field(static=True)

    def __init__(self, base_dist: AbstractDistribution, bijection: AbstractBijection, recipe: Recipe) -> None:
        self.base_dist, self.bijection, self.recipe = base_dist, bijection, recipe

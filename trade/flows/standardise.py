"""The affine layer next to the data, set once from the data and never trained."""

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from flowjax.distributions import AbstractDistribution
from jax import Array
from paramax import NonTrainable, non_trainable


class Standardise(AbstractBijection):
    """x = location + scale * z, with all data inside ``reach`` in z.

    The scale is the standard deviation, or larger where outliers would otherwise leave
    the interval on which the splines act: this is how the interval is set from data.

    Args:
        shape: Shape of the states.
        reach: Where the farthest state comes to lie in z.
        shared: One scale for all coordinates and no shift, so that a field keeps its symmetries.
    """

    location: Array | NonTrainable
    scale: Array | NonTrainable
    shape: tuple[int, ...] = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    cond_shape = None

    def __init__(self, shape: tuple[int, ...], reach: float, *, shared: bool = False) -> None:
        self.location = non_trainable(jnp.zeros(shape))
        self.scale = non_trainable(jnp.ones(shape))
        self.shape, self.reach, self.shared = shape, float(reach), shared

    def adapted(self, data: Array) -> "Standardise":
        """The layer with location and scale measured on data of shape (n, *shape)."""
        location = jnp.zeros(self.shape) if self.shared else data.mean(axis=0)
        spread = jnp.abs(data - location)
        over = None if self.shared else 0
        scale = jnp.maximum(jnp.sqrt(jnp.mean(spread**2, axis=over)), spread.max(axis=over) / self.reach)
        scale = jnp.broadcast_to(scale, self.shape)
        scale = jnp.where(scale > 0, scale, 1.0)
        values = (non_trainable(location), non_trainable(scale))
        return eqx.tree_at(lambda m: (m.location, m.scale), self, values, is_leaf=_is_frozen)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        return self.location + self.scale * x, jnp.log(self.scale).sum()  # pyright: ignore

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        return (y - self.location) / self.scale, -jnp.log(self.scale).sum()  # pyright: ignore


def _is_frozen(node: object) -> bool:
    return isinstance(node, NonTrainable)


def adapt_to_data(flow: AbstractDistribution, data: Array) -> AbstractDistribution:
    """Set every ``Standardise`` layer of a flow from data; other flows come back unchanged."""

    def is_layer(node: object) -> bool:
        return isinstance(node, Standardise)

    return jax.tree.map(lambda n: n.adapted(data) if is_layer(n) else n, flow, is_leaf=is_layer)

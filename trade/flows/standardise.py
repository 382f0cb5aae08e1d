"""The affine layer next to the data, set once from the data and never trained."""

from abc import abstractmethod
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection, Chain
from flowjax.distributions import AbstractDistribution
from jax import Array
from jax.typing import ArrayLike
from paramax import NonTrainable, non_trainable, unwrap

from trade import check
from trade.flows.spline import wrapped
from trade.states import as_shape, check_angles


class SetFromData(AbstractBijection):
    """A layer whose arrays are measured on data before training, and frozen."""

    @abstractmethod
    def adapted(self, data: Array) -> Self:
        """The layer, measured on data.

        Args:
            data: States of shape (n, *shape), as the layer sees them.

        Returns:
            The layer with its arrays set, and frozen.
        """

    def _set(self, **values: ArrayLike) -> Self:
        frozen = tuple(non_trainable(jnp.asarray(v)) for v in values.values())
        return eqx.tree_at(lambda m: tuple(getattr(m, name) for name in values), self, frozen, is_leaf=_is_frozen)


class Standardise(SetFromData):
    """x = location + scale * z, with all data inside ``reach`` in z.

    The scale is the standard deviation, or larger where outliers would otherwise leave
    the interval on which the splines act: this is how the interval is set from data.

    Args:
        shape: Shape of the states.
        reach: Where the farthest state comes to lie in z.
        shared: One scale for all coordinates and no shift, so that a field keeps its symmetries.
        angles: Coordinates of a vector that are angles in radians: not moved, and scaled to the circle.
        half_circle: What π becomes in z.
        cut: Angles in radians that stay near one value: taken as the distance from it, on the line. What they do half
            a circle away is not periodic.
    """

    location: Array | NonTrainable
    scale: Array | NonTrainable
    shape: tuple[int, ...] = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    shared: bool = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)
    half_circle: float = eqx.field(static=True)
    cut: tuple[int, ...] = eqx.field(static=True)
    cond_shape = None

    def __init__(
        self,
        shape: tuple[int, ...],
        reach: float,
        *,
        shared: bool = False,
        angles: tuple[int, ...] = (),
        half_circle: float = jnp.pi,
        cut: tuple[int, ...] = (),
    ) -> None:
        self.shape, self.shared = as_shape("Standardise shape", shape), check.flag(shared, "Standardise shared")
        self.reach = check.number(reach, "Standardise reach", 0, open_low=True)
        self.half_circle = check.number(half_circle, "Standardise half_circle", 0, open_low=True)
        self.angles = check_angles(angles, self.shape, "Standardise angles")
        self.cut = check_angles(cut, self.shape, "Standardise cut")
        self.location = non_trainable(jnp.zeros(self.shape))
        self.scale = non_trainable(self._turned(jnp.ones(self.shape), jnp.pi / self.half_circle))

    def _turned(self, values: Array, of_angles: float) -> Array:
        return values.at[np.array(self.angles)].set(of_angles) if self.angles else values

    def adapted(self, data: Array) -> Self:
        """Location and scale from the data; all of them come to lie within ``reach``."""
        location = jnp.zeros(self.shape) if self.shared else data.mean(axis=0)
        if self.cut:  # the mean on the circle, then that of the distances from it
            turned = jnp.arctan2(jnp.sin(data).mean(axis=0), jnp.cos(data).mean(axis=0))
            data = self._unrolled(data, turned)
            location = data.mean(axis=0)
        spread = jnp.abs(data - location)
        over = None if self.shared else 0
        scale = jnp.maximum(jnp.sqrt(jnp.mean(spread**2, axis=over)), spread.max(axis=over) / self.reach)
        scale = jnp.broadcast_to(scale, self.shape)
        scale = self._turned(jnp.where(scale > 0, scale, 1.0), jnp.pi / self.half_circle)
        return self._set(location=self._turned(location, 0.0), scale=scale)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: location + scale * x."""
        return self.location + self.scale * x, jnp.log(self.scale).sum()  # pyright: ignore

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent; angles that are cut are first taken within half a circle of the location."""
        y = self._unrolled(y, self.location)  # pyright: ignore
        return (y - self.location) / self.scale, -jnp.log(self.scale).sum()  # pyright: ignore

    def _unrolled(self, y: Array, centre: Array) -> Array:
        """Angles that are cut, within half a circle of a centre."""
        if not self.cut:
            return y
        return jnp.where(np.isin(np.arange(self.shape[0]), self.cut), centre + wrapped(y - centre, jnp.pi), y)


def _is_frozen(node: object) -> bool:
    return isinstance(node, NonTrainable)


def adapt_to_data(flow: AbstractDistribution, data: Array) -> AbstractDistribution:
    """Set every ``SetFromData`` layer of a flow from data; other flows come back unchanged.

    Layers next to the data come last in a chain: each is set from the data as it sees them.

    Args:
        flow: A flowjax distribution.
        data: States of shape (n, *shape).

    Returns:
        The flow with these layers set.
    """
    check.instance(flow, (AbstractDistribution, AbstractBijection), "flow", "a flowjax distribution")
    data = jnp.asarray(check.array(data, "data", (-1, *flow.shape), finite=True))

    def is_layer(node: object) -> bool:
        return isinstance(node, SetFromData)

    def has_layers(node: object) -> bool:
        return any(is_layer(n) for n in jax.tree.leaves(node, is_leaf=is_layer))

    def adapted(node: Any, data: Array) -> Any:
        return jax.tree.map(lambda n: n.adapted(data) if is_layer(n) else n, node, is_leaf=is_layer)

    bijection = getattr(flow, "bijection", None)
    if not isinstance(bijection, Chain):
        return adapted(flow, data)
    layers = list(bijection.bijections)
    for i in reversed(range(len(layers))):
        layers[i] = adapted(layers[i], data)
        if not any(has_layers(layer) for layer in layers[:i]):
            break
        data = jax.vmap(lambda x, layer=layers[i]: unwrap(layer).inverse_and_log_det(x)[0])(data)
    return eqx.tree_at(lambda f: f.bijection, flow, Chain(layers))

"""Which half of the coordinates each layer of a stack changes, and which it leaves as they are.

Two halves that only change places never see what is within them: a coordinate can follow another of its own half by a
detour at best. So two layers change one half and then the other, and the next two divide the coordinates anew.
"""

import jax
import jax.numpy as jnp
from jax import Array

FEW = 4  # with fewer coordinates there is one way to take turns


def layer_orders(key: Array, dim: int, layers: int) -> Array:
    """The coordinates in the order in which each layer takes them: the first ``dim // 2`` pass, the others change.

    Every second layer passes what was just changed. The others divide anew, each set of coordinates that no division
    has parted yet as evenly as can be: after log₂(dim) divisions any two have been on different sides.

    Args:
        key: A JAX random key.
        dim: Number of coordinates.
        layers: Number of layers.

    Returns:
        Integers of shape (layers, dim); those of the first layer are 0, 1, 2, ...
    """
    passive, order = dim // 2, jnp.arange(dim)
    together = _changed(order, passive)  # coordinates of the same number have not been parted
    enough, divisions, orders = (dim - 1).bit_length(), 1, [order]
    for i, k in enumerate(jax.random.split(key, layers)[1:], start=1):
        if i % 2 or dim < FEW:
            just_changed = jax.random.permutation(k, order[passive:])
            order = jnp.concatenate([just_changed[:passive], order[:passive], just_changed[passive:]])
        else:
            if divisions == enough:
                together, divisions = _changed(order, passive), 1
            ranked = jnp.lexsort((jax.random.uniform(k, (dim,)), together))
            order = jnp.concatenate([ranked[1::2], ranked[::2]])
            together, divisions = 2 * together + _changed(order, passive), divisions + 1
        orders.append(order)
    return jnp.stack(orders)


def _changed(order: Array, passive: int) -> Array:
    """For each coordinate 1 if it is among those that change, 0 if it passes."""
    return jnp.zeros(order.shape, int).at[order[passive:]].set(1)


def permutations(orders: Array) -> Array:
    """The matrices that bring what one layer gives into the order of the next; after the last, into that of the first.

    Args:
        orders: As from ``layer_orders``.

    Returns:
        Matrices of zeros and ones, of shape (layers, dim, dim).
    """
    places = jnp.argsort(orders, axis=1)  # of each coordinate
    following = jnp.roll(orders, -1, axis=0)
    return jnp.eye(orders.shape[1])[jnp.take_along_axis(places, following, axis=1)]

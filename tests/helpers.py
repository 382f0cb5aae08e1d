"""What several test files share: noise on trainable arrays, Gaussian families, small flows."""

from contextlib import AbstractContextManager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from paramax import NonTrainable

from trade import Condition, Target
from trade.flows import MLP, SplineFlow

KEY = jax.random.key(0)
TINY = MLP(width=8, depth=1)


def precision(dtype) -> AbstractContextManager:
    """Everything built inside has this dtype."""
    return jax.enable_x64(dtype == np.float64)


def noisy(tree, key=KEY, scale=0.3):
    """The tree with noise on its trainable arrays; permutations and Standardise stay as they are."""

    def is_frozen(node):
        return isinstance(node, NonTrainable)

    leaves, structure = jax.tree.flatten(tree, is_leaf=is_frozen)
    keys = jax.random.split(key, len(leaves))
    moved = [
        leaf + scale * jax.random.normal(k, leaf.shape) if eqx.is_inexact_array(leaf) else leaf
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, moved)


def small_flow(shape, condition, **options):
    """A flow of few small blocks, as built: the identity up to a permutation."""
    options = {"blocks": 2, "bins": 4, "network": TINY, **options}
    return SplineFlow(shape, condition, **options).build(jax.random.key(1))


def gaussian_family(d=1, low=0.5, high=2.0, **options):
    """log q(x|c) = -|x|²/(2c): a normal with variance c and log Z = d/2 log(2πc)."""

    def sample(key, n, c):
        return jnp.sqrt(c) * jax.random.normal(key, (n, d))

    def log_z(c):
        return 0.5 * d * np.log(2 * np.pi * c)

    condition = Condition(low, high, boundary=(1.0,))
    return Target(
        lambda x, c: -jnp.sum(x**2) / (2.0 * c), (d,), condition, sampler=sample, log_partition=log_z, **options
    )


def all_finite(tree) -> bool:
    """Whether every number of a pytree is finite."""
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))

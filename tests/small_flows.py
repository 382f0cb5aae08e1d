"""What several test files share: noise on trainable arrays, Gaussian families, small flows."""

from contextlib import AbstractContextManager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from paramax import NonTrainable

from trade import Condition, Target
from trade.flows import MLP, SplineFlow

KEY = jax.random.key(0, impl="rbg")  # compiles much faster than the default
TINY = MLP(width=8, depth=1)


def precision(dtype) -> AbstractContextManager:
    """Everything built inside has this dtype."""
    return jax.enable_x64(dtype == np.float64)


def noisy(tree, scale=0.15, seed=0):
    """The tree with noise on its trainable arrays; permutations and Standardise stay as they are."""
    rng = np.random.default_rng(seed)

    def move(leaf):
        trainable = eqx.is_inexact_array(leaf)
        return jnp.asarray(leaf + scale * rng.standard_normal(leaf.shape), leaf.dtype) if trainable else leaf

    return jax.tree.map(move, tree, is_leaf=lambda node: isinstance(node, NonTrainable))


def cast(tree, dtype):
    """The tree with its floating-point arrays in another precision."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def small_flow(shape, condition, **options):
    """A flow of few small blocks, as built: the identity up to a permutation."""
    options = {"blocks": 2, "bins": 4, "network": TINY, **options}
    return SplineFlow(shape, condition, **options).build(KEY)


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

"""Classifier two-sample test: how well a small network tells two samples apart; 0.5 if not at all."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.flows.conditioner import MLP, Network, check_network


class _Fold(NamedTuple):
    """What one classifier learns from, and what it is tested on."""

    x: Array
    label: Array
    x_test: Array
    label_test: Array


def c2st(
    one: Array,
    two: Array,
    key: Array,
    *,
    network: MLP = MLP(20, 2, "relu"),  # noqa: B008
    folds: int = 5,
    steps: int = 4000,
    batch: int = 256,
) -> float:
    """Accuracy on held-out samples, averaged over folds.

    Args:
        one: Samples of one distribution, one state per row.
        two: As many of the other.
        key: A JAX random key.
        network: The classifier; by default ten units per dimension, for two dimensions, in two layers.
        folds: Parts of the data, each held out once.
        steps: Adam steps of each fold.
        batch: Samples per step.

    Returns:
        The accuracy: about 0.5 where the two cannot be told apart, 1 where they always can.
    """
    one, two = (jnp.asarray(check.array(v, name), float) for v, name in ((one, "one"), (two, "two")))
    key, folds = check.random_key(key), check.integer(folds, "folds", 2)
    steps, batch = check.integer(steps, "steps"), check.integer(batch, "batch")
    check_network(network, "network")
    if one.shape != two.shape or one.ndim != 2 or len(one) < folds:
        raise TradeError(
            f"c2st needs two arrays of one shape (n, d), at least {folds} states each, got {one.shape} and {two.shape}."
        )
    if not bool(jnp.isfinite(one).all() & jnp.isfinite(two).all()):
        raise TradeError("c2st needs finite samples, got NaN or infinite ones.")
    x = jnp.concatenate([one, two])
    x = (x - one.mean(axis=0)) / jnp.maximum(one.std(axis=0), 1e-12)
    label = jnp.repeat(jnp.array([0.0, 1.0]), len(one))
    key_order, key_fit = jax.random.split(key)
    order = np.asarray(jax.random.permutation(key_order, len(x)))[: len(x) // folds * folds].reshape(folds, -1)
    rest = np.stack([np.delete(order, i, axis=0).ravel() for i in range(folds)])
    data = _Fold(x[rest], label[rest], x[order], label[order])
    return float(jnp.mean(_accuracy(data, jax.random.split(key_fit, folds), network, steps, batch)))


@eqx.filter_jit
def _accuracy(folds: _Fold, keys: Array, spec: MLP, steps: int, batch: int) -> Array:
    """Held-out accuracy of every fold."""
    optimiser = optax.adam(optax.cosine_decay_schedule(5e-3, steps))

    def logit(network: Network, x: Array) -> Array:
        return network(x)[0]

    def one(fold: _Fold, key: Array) -> Array:
        key_net, key_steps = jax.random.split(key)
        network = spec.build(key_net, fold.x.shape[-1], 1)
        arrays, static = eqx.partition(network, eqx.is_array)

        def loss(arrays: Network, index: Array) -> Array:
            logits = jax.vmap(lambda v: logit(eqx.combine(arrays, static), v))(fold.x[index])
            return optax.sigmoid_binary_cross_entropy(logits, fold.label[index]).mean()

        def step(carry: tuple[Network, optax.OptState], key: Array) -> tuple[tuple[Network, optax.OptState], None]:
            arrays, state = carry
            grads = jax.grad(loss)(arrays, jax.random.randint(key, (batch,), 0, len(fold.x)))
            updates, state = optimiser.update(grads, state)
            return (optax.apply_updates(arrays, updates), state), None  # pyright: ignore

        start = (arrays, optimiser.init(arrays))  # pyright: ignore
        (arrays, _), _ = jax.lax.scan(step, start, jax.random.split(key_steps, steps))
        logits = jax.vmap(lambda v: logit(eqx.combine(arrays, static), v))(fold.x_test)
        return jnp.mean((logits > 0) == (fold.label_test > 0.5))

    return jax.vmap(one)(folds, keys)

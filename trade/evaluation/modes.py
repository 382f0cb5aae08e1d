"""Modes of the density that a model has no states in: its own weights cannot see them, so they are looked for."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade.abstract_target import AbstractTarget
from trade.model import Model, log_prob

FACTORS = (1.0, 2.0, 4.0, 8.0)  # how far out climbs begin, in standard deviations of the model
CLIMBS = 32  # from each of them
STEPS = 200
LARGEST = 400  # coordinates beyond which no Hessian is formed
UNKNOWN = 5.0  # nats by which the density exceeds the model's there
SHARE = 0.01  # of all mass that is worth mentioning


class Mode(NamedTuple):
    """A maximum of the density that the model does not know.

    Args:
        x: Where it is.
        share: Its mass, by a Gaussian of the same curvature, as a part of the mass that the model has.
    """

    x: np.ndarray
    share: float


def unknown_modes(
    model: Model, target: AbstractTarget, c: float, states: Array, log_z: float, key: Array
) -> list[Mode]:
    """Climb the density from states far out, and keep the maxima with much mass where the model has next to none.

    Args:
        model: The model.
        target: Its target, without an observation.
        c: The condition.
        states: States of the model at c, for their scale.
        log_z: log Z(c), as far as the model knows.
        key: A JAX random key.

    Returns:
        The modes, those of the largest density first; none for states too large to form a Hessian of.
    """
    d = int(np.prod(target.shape))
    if d > LARGEST or not np.isfinite(log_z):
        return []
    flat = np.asarray(states, np.float64).reshape(len(states), -1)
    finite = flat[np.isfinite(flat).all(axis=1)]
    if len(finite) < 2:
        return []
    centre, scale = np.median(finite, axis=0), np.maximum(finite.std(axis=0), 1e-12)
    box = jnp.asarray(_box(target, d), float)
    c_ = jnp.asarray(c, float)
    x, log_q = _climb(target, jnp.asarray(centre, float), jnp.asarray(scale, float), box, c_, key)
    u = model.condition.chart(c_)
    log_p = _log_p(model.flow, x.reshape(-1, *target.shape), u)
    excess = np.nan_to_num(np.asarray(log_q - log_p, np.float64) - log_z, nan=-np.inf, posinf=-np.inf)
    ends = np.asarray(x, np.float64)
    modes: list[Mode] = []
    tried: list[np.ndarray] = []
    for i in np.argsort(-np.nan_to_num(np.asarray(log_q, np.float64), nan=-np.inf)):
        if excess[i] < UNKNOWN or not np.isfinite(ends[i]).all():
            continue
        if any(np.abs((ends[i] - other) / scale).max() < 0.1 for other in tried):
            continue
        if len(tried) == 8:
            break
        tried.append(ends[i])
        share = _share(target, ends[i], scale, c_, log_z)
        if share > SHARE:
            modes.append(Mode(ends[i].reshape(target.shape), share))
    return modes


def _box(target: AbstractTarget, d: int) -> np.ndarray:
    """The support, coordinate by coordinate."""
    ends = [b or (None, None) for b in target.bounds] or [(None, None)] * d
    return np.array([[-np.inf if a is None else a, np.inf if b is None else b] for a, b in ends]).T


@eqx.filter_jit
def _climb(
    target: AbstractTarget, centre: Array, scale: Array, box: Array, c: Array, key: Array
) -> tuple[Array, Array]:
    """Where Adam, in units of the model's scale, ends from Gaussian states around its centre."""
    shape = (len(FACTORS), CLIMBS, len(centre))
    z = (jnp.asarray(FACTORS)[:, None, None] * jax.random.normal(key, shape)).reshape(-1, len(centre))
    inside = 1e-3 * jnp.where(jnp.isfinite(box[1] - box[0]), box[1] - box[0], scale)

    def place(z: Array) -> Array:
        return jnp.clip(centre + scale * z, box[0] + inside, box[1] - inside)

    def value(z: Array) -> Array:
        return target.log_density(place(z).reshape(target.shape), c)

    def step(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        z, mean, square = carry
        slope = jnp.nan_to_num(jax.vmap(jax.grad(value))(z), posinf=0.0, neginf=0.0)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        rate = 0.3 * 0.5 * (1.0 + jnp.cos(jnp.pi * i / STEPS)) + 1e-4
        unbiased = mean / (1.0 - 0.9 ** (i + 1.0)), square / (1.0 - 0.99 ** (i + 1.0))
        return z + rate * unbiased[0] / (jnp.sqrt(unbiased[1]) + 1e-12), mean, square

    z, _, _ = jax.lax.fori_loop(0, STEPS, step, (z, jnp.zeros_like(z), jnp.zeros_like(z)))
    return jax.vmap(place)(z), jax.vmap(value)(z)


@eqx.filter_jit
def _log_p(flow: AbstractDistribution, x: Array, u: Array) -> Array:
    return jax.vmap(lambda v: log_prob(flow, v, u))(x)


def _share(target: AbstractTarget, x: np.ndarray, scale: np.ndarray, c: Array, log_z: float) -> float:
    """The mass around a maximum as a part of Z, by Laplace's method; 0 where there is no proper maximum."""
    log_q, slope, curvature = (np.asarray(v, np.float64) for v in _expand(target, jnp.asarray(x, float), c))
    curvature = -curvature * np.outer(scale, scale)
    slope = slope * scale
    if not np.isfinite(curvature).all() or not np.isfinite(slope).all():
        return 0.0
    least = np.linalg.eigvalsh(curvature)
    if least[0] <= 1e-4 * max(least[-1], 1.0):
        return 0.0
    gain = 0.5 * slope @ np.linalg.solve(curvature, slope)  # from here to the top
    if gain > 0.5:
        return 0.0
    volume = 0.5 * len(x) * np.log(2.0 * np.pi) - 0.5 * np.log(least).sum() + np.log(scale).sum()
    return float(np.exp(min(log_q + gain + volume - log_z, 50.0)))


@eqx.filter_jit
def _expand(target: AbstractTarget, x: Array, c: Array) -> tuple[Array, Array, Array]:
    def value(v: Array) -> Array:
        return target.log_density(v.reshape(target.shape), c)

    return value(x), jax.grad(value)(x), jax.hessian(value)(x)

"""Monotone rational-quadratic splines with identity tails, as pure functions.

Durkan et al. 2019, Eqs. 4-8. Everything acts elementwise on ``x`` of shape ``(n,)``
with raw parameters of shape ``(n, 3 * bins - 1)``; raw zeros give the identity.

Warning:
    A spline acts only on (-interval, interval). Outside it is the identity: data must
    be scaled into the interval (``flows.Standardise`` does this).
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

MIN_BIN = 1e-2  # smallest width and height of a bin, as a fraction of the interval
MIN_SLOPE = 1e-3
_SLOPE_SHIFT = math.log(math.expm1(1.0 - MIN_SLOPE))  # softplus(shift) + MIN_SLOPE = 1


def parameter_count(bins: int) -> int:
    """Number of raw parameters of one spline: widths, heights and inner slopes."""
    return 3 * bins - 1


def forward(x: Array, raw: Array, interval: float) -> tuple[Array, Array]:
    """The spline and the logarithm of its derivative, elementwise."""
    widths, heights, slopes = _constrain(raw, interval)
    # Clamp first: no branch, used or not, ever sees a point outside the interval.
    inside = jnp.abs(x) < interval
    clamped = jnp.clip(x, -interval, interval)
    x0, y0, w, h, d0, d1 = _bin(clamped, widths, heights, slopes, interval)
    s, t = h / w, (clamped - x0) / w
    y, log_slope = _evaluate(t, y0, h, s, d0, d1)
    return jnp.where(inside, y, x), jnp.where(inside, log_slope, 0.0)


def inverse(y: Array, raw: Array, interval: float) -> tuple[Array, Array]:
    """The inverse spline and the logarithm of the *inverse's* derivative, elementwise."""
    widths, heights, slopes = _constrain(raw, interval)
    inside = jnp.abs(y) < interval
    clamped = jnp.clip(y, -interval, interval)
    y0, x0, h, w, d0, d1 = _bin(clamped, heights, widths, slopes, interval)
    s, rise = h / w, clamped - y0
    excess = rise * (d1 + d0 - 2.0 * s)
    a = h * (s - d0) + excess
    b = h * d0 - excess
    c = -s * rise
    # Floored above zero: the square root must have a finite derivative there.
    discriminant = jnp.maximum(b * b - 4.0 * a * c, jnp.finfo(y.dtype).tiny)
    t = jnp.clip(2.0 * c / (-b - jnp.sqrt(discriminant)), 0.0, 1.0)
    _, log_slope = _evaluate(t, y0, h, s, d0, d1)
    return jnp.where(inside, x0 + w * t, y), jnp.where(inside, -log_slope, 0.0)


def _constrain(raw: Array, interval: float) -> tuple[Array, Array, Array]:
    bins = (raw.shape[-1] + 1) // 3
    widths, heights, slopes = raw[..., :bins], raw[..., bins : 2 * bins], raw[..., 2 * bins :]

    def sizes(logits: Array) -> Array:
        return 2.0 * interval * (MIN_BIN + (1.0 - MIN_BIN * bins) * jax.nn.softmax(logits, axis=-1))

    inner = MIN_SLOPE + jax.nn.softplus(slopes + _SLOPE_SHIFT)
    padding = [(0, 0)] * (inner.ndim - 1) + [(1, 1)]
    return sizes(widths), sizes(heights), jnp.pad(inner, padding, constant_values=1.0)


def _bin(x: Array, own: Array, other: Array, slopes: Array, interval: float) -> tuple[Array, ...]:
    """The bin that holds x by its ``own`` sizes: left edges, sizes (own, other), end slopes."""
    own_edges = jnp.cumsum(own, axis=-1) - own - interval
    other_edges = jnp.cumsum(other, axis=-1) - other - interval
    index = jnp.sum(x[..., None] >= own_edges[..., 1:], axis=-1, keepdims=True)
    values = (own_edges, other_edges, own, other, slopes[..., :-1], slopes[..., 1:])
    return tuple(_pick(v, index) for v in values)


def _pick(values: Array, index: Array) -> Array:
    """values[index] along the last axis: a gather on the CPU, a fused masked sum elsewhere."""
    if jax.default_backend() == "cpu":
        return jnp.take_along_axis(values, index, axis=-1)[..., 0]
    mask = index == jnp.arange(values.shape[-1])
    return jnp.sum(jnp.where(mask, values, 0.0), axis=-1)


def _evaluate(t: Array, y0: Array, h: Array, s: Array, d0: Array, d1: Array) -> tuple[Array, Array]:
    """Durkan et al. Eqs. 4 and 5 inside one bin: value and log derivative at t in [0, 1]."""
    mixed = t * (1.0 - t)
    denominator = s + (d1 + d0 - 2.0 * s) * mixed
    y = y0 + h * (s * t * t + d0 * mixed) / denominator
    numerator = d1 * t * t + 2.0 * s * mixed + d0 * (1.0 - t) ** 2
    return y, 2.0 * jnp.log(s) + jnp.log(numerator) - 2.0 * jnp.log(denominator)

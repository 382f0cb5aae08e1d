"""Monotone rational-quadratic splines with identity tails, as pure functions.

Durkan et al. 2019, Eqs. 4-8. Everything acts elementwise on ``x`` of shape ``(n,)``
with raw parameters of shape ``(n, 3 * bins - 1)``: the logits of the widths, those of the
heights, and the inner slopes. Raw zeros give the identity.

Only what the bin of a point needs is ever normalised: the softmax and the softplus are taken
of sums and values that were picked from the raw parameters, not of all of them.

Warning:
    A spline acts only on (-interval, interval). Outside it is the identity: data must
    be scaled into the interval (``flows.Standardise`` does this).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.flows.apart import compiled_apart

Four = tuple[Array, Array, Array, Array]
MIN_BIN = 1e-3  # smallest width and height of a bin, as a fraction of the interval
MIN_SLOPE = 1e-3
MAX_LOGIT = 30.0  # of a width or height; no spline comes near it
_SLOPE_SHIFT = math.log(math.expm1(1.0 - MIN_SLOPE))  # softplus(shift) + MIN_SLOPE = 1


class _Bin(NamedTuple):
    """Of one bin: left edge, size and end slopes. Own coordinate is the one given, other the one sought."""

    own_edge: Array
    other_edge: Array
    own_size: Array
    other_size: Array
    left_slope: Array
    right_slope: Array


def parameter_count(bins: int) -> int:
    """Number of raw parameters of one spline: widths, heights and inner slopes."""
    return 3 * bins - 1


def wrapped(x: Array, interval: float) -> Array:
    """The same point of the circle, in [-interval, interval)."""
    return x - 2.0 * interval * jnp.floor((x + interval) / (2.0 * interval))


def forward(
    x: Array,
    raw: Array,
    interval: float,
    periodic: Array | None = None,
    power: Array | None = None,
    least: float = MIN_BIN,
) -> tuple[Array, Array]:
    """The spline and the logarithm of its derivative, elementwise.

    Args:
        x: Points.
        raw: Raw parameters along the last axis: ``parameter_count`` of them, and one more if any spline is periodic.
        interval: It acts on (-interval, interval), and is the identity outside.
        periodic: Where true, the interval is a circle: points are wrapped, and both ends have one learned slope.
        power: Steer the spline: its derivative becomes about this power of itself, times a constant that keeps
            the interval (Dibak et al. 2022, Appendix B; exact at the knots and in the mean of each bin).
        least: The smallest width and height of a bin, as a fraction of the interval.
    """
    if periodic is not None:
        x = jnp.where(periodic, wrapped(x, interval), x)
    # Clamp first: no branch, used or not, ever sees a point outside the interval.
    inside = jnp.abs(x) < interval
    clamped = jnp.clip(x, -interval, interval)
    x0, y0, w, h, d0, d1 = _bin(clamped, raw, interval, periodic, power, least, own=0)
    per_width = _reciprocal(w)
    t = (clamped - x0) * per_width
    t = jnp.where(t < 0.0, 0.0, jnp.where(t > 1.0, 1.0, t))  # an edge is rounded, and of a narrow bin that is much
    fraction, log_slope = _rational_quadratic(t, h * per_width, d0, d1)
    return jnp.where(inside, y0 + h * fraction, x), jnp.where(inside, log_slope, 0.0)


def inverse(
    y: Array,
    raw: Array,
    interval: float,
    periodic: Array | None = None,
    power: Array | None = None,
    least: float = MIN_BIN,
) -> tuple[Array, Array]:
    """The inverse spline and the logarithm of the *inverse's* derivative, elementwise."""
    if periodic is not None:
        y = jnp.where(periodic, wrapped(y, interval), y)
    inside = jnp.abs(y) < interval
    clamped = jnp.clip(y, -interval, interval)
    y0, x0, h, w, d0, d1 = _bin(clamped, raw, interval, periodic, power, least, own=1)
    s, rise = h / w, clamped - y0
    excess = rise * (d1 + d0 - 2.0 * s)
    a = h * (s - d0) + excess
    b = h * d0 - excess
    c = -s * rise
    # Floored above zero: the square root must have a finite derivative there.
    discriminant = jnp.maximum(b * b - 4.0 * a * c, jnp.finfo(y.dtype).tiny)
    t = jnp.clip(2.0 * c / (-b - jnp.sqrt(discriminant)), 0.0, 1.0)
    _, log_slope = _rational_quadratic(t, s, d0, d1)
    return jnp.where(inside, x0 + w * t, y), jnp.where(inside, -log_slope, 0.0)


def _bin(
    v: Array, raw: Array, interval: float, periodic: Array | None, power: Array | None, least: float, *, own: int
) -> _Bin:
    """The bin that holds v by its widths (own = 0) or by its heights (own = 1)."""
    bins = (raw.shape[-1] + 1) // 3
    logits, slopes = jnp.split(raw, [2 * bins], axis=-1)
    # Unnormalised sizes: a bin is ``least + scale * size``, with both axes side by side.
    sizes = jnp.exp(jnp.clip(logits, -MAX_LOGIT, MAX_LOGIT)).reshape(*v.shape, 2, bins)
    least, rest = 2.0 * interval * least, 2.0 * interval * (1.0 - least * bins)
    if power is not None:
        sizes = _steered(least + rest * sizes / jnp.sum(sizes, axis=-1, keepdims=True), power)
        least, rest = 0.0, 2.0 * interval
    ends = _cumulative(sizes)  # of each bin
    knots = jax.lax.stop_gradient(rest * ends[..., own, :-1] / ends[..., own, -1:])
    knots = knots + least * np.arange(1, bins) - interval
    index = jnp.sum(v[..., None] >= knots, axis=-1)

    both = index[..., None]
    before, size, total = _around(sizes, ends, both)
    scale = rest * _reciprocal(total)
    edge = least * both - interval + scale * before
    size = least + scale * size
    left, right = _pick(slopes, index - 1), _pick(slopes, index)
    if periodic is not None:  # the last slope is that of both ends
        outer = jnp.where(periodic, slopes[..., -1], 0.0)
        left, right = jnp.where(index == 0, outer, left), jnp.where(index == bins - 1, outer, right)
    d0, d1 = (MIN_SLOPE + jax.nn.softplus(slope + _SLOPE_SHIFT) for slope in (left, right))
    if power is not None:
        d0, d1 = (slope**power * scale[..., 1] for slope in (d0, d1))
    other = 1 - own
    return _Bin(edge[..., own], edge[..., other], size[..., own], size[..., other], d0, d1)


def _steered(sizes: Array, power: Array) -> Array:
    """Widths, and heights before normalisation such that the mean slope of each bin is a power of what it was."""
    widths, heights = sizes[..., 0, :], sizes[..., 1, :]
    return jnp.stack([widths, widths * (heights / widths) ** power], axis=-2)


def _cumulative(sizes: Array) -> Array:
    """Running sums along the last axis, as a product: XLA's cumulative sum is slow on the CPU."""
    return jnp.matmul(sizes, np.triu(np.ones((sizes.shape[-1],) * 2, sizes.dtype)), precision=jax.lax.Precision.HIGHEST)


def _around(sizes: Array, ends: Array, index: Array) -> tuple[Array, Array, Array]:
    """Sums of the sizes before bin ``index``, in it, and in all bins."""
    if _gathers():
        return _pick(ends, index - 1), _pick(sizes, index), ends[..., -1]
    before = np.arange(sizes.shape[-1]) < index[..., None]
    return jnp.sum(jnp.where(before, sizes, 0.0), axis=-1), _pick(sizes, index), jnp.sum(sizes, axis=-1)


def _pick(values: Array, index: Array) -> Array:
    """values[index] along the last axis, and 0 where there is no such index."""
    n = values.shape[-1]
    index = jnp.broadcast_to(index, values.shape[:-1])[..., None]
    if _gathers():
        found = jnp.take_along_axis(values, jnp.clip(index, 0, n - 1), axis=-1)
        return jnp.where((index >= 0) & (index < n), found, 0.0)[..., 0]
    return jnp.sum(jnp.where(index == np.arange(n), values, 0.0), axis=-1)


def _gathers() -> bool:
    """On the CPU a gather is cheap and a sum over few values is not; on a GPU a masked sum fuses."""
    return jax.default_backend() == "cpu"


@jax.custom_jvp
def _reciprocal(x: Array) -> Array:
    """1 / x, whose derivatives of all orders are products of itself."""
    return 1.0 / x


@_reciprocal.defjvp
def _reciprocal_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverted = _reciprocal(*primals)
    return inverted, -inverted * inverted * tangents[0]


@jax.custom_jvp
def _rational_quadratic(t: Array, s: Array, d0: Array, d1: Array) -> tuple[Array, Array]:
    """Durkan et al. Eqs. 4 and 5 at t in [0, 1] of a bin: the fraction of its height, and the log of the slope.

    The bin has mean slope s and end slopes d0 and d1.
    """
    fraction, numerator, shrink = _parts(t, d0 / s, d1 / s)
    return fraction, jnp.log(s * numerator * shrink * shrink)


def _parts(t: Array, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Fraction of the height, numerator of the slope, and 1 / denominator, for end slopes in units of the mean."""
    mixed = t * (1.0 - t)
    shrink = _reciprocal(1.0 + (a + b - 2.0) * mixed)
    return (t * t + a * mixed) * shrink, b * t * t + 2.0 * mixed + a * (1.0 - t) ** 2, shrink


@_rational_quadratic.defjvp
@compiled_apart
def _rational_quadratic_jvp(primals: Four, tangents: Four) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """By hand, with three divisions: automatic derivatives of first and second order would have many."""
    (t, s, d0, d1), (dt, ds, dd0, dd1) = primals, tangents
    per_s = _reciprocal(s)
    a, b = d0 * per_s, d1 * per_s
    da, db = (dd0 - a * ds) * per_s, (dd1 - b * ds) * per_s
    fraction, numerator, shrink = _parts(t, a, b)
    mixed = t * (1.0 - t)
    d_numerator = 2.0 * (b * t + 1.0 - 2.0 * t - a * (1.0 - t)) * dt + (1.0 - t) ** 2 * da + t * t * db
    d_denominator = (a + b - 2.0) * (1.0 - 2.0 * t) * dt + mixed * (da + db)
    d_fraction = numerator * shrink * shrink * dt + mixed * shrink * ((1.0 - fraction) * da - fraction * db)
    d_log_slope = ds * per_s + d_numerator * _reciprocal(numerator) - 2.0 * d_denominator * shrink
    return (fraction, _rational_quadratic(t, s, d0, d1)[1]), (d_fraction, d_log_slope)

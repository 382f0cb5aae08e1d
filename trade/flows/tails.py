"""Tails that fall like an exponential, next to the data: the shape of logarithms of scales."""

from typing import NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array
from paramax import NonTrainable, non_trainable

from trade import check
from trade.errors import TradeError
from trade.flows.standardise import SetFromData
from trade.states import as_shape

LEAST_GAIN = 0.02  # nats that a coordinate must gain: splines learn weaker ones by themselves
LONG = 3.6  # standard deviations: where a thousandth of the data lie beyond on one side, the side is long (normal: 3.1)
_LONGEST = 4.0  # of a side: next to nothing of a Gaussian is left
_VALUES = 2e6  # of all coordinates together, to fit


class Tails(SetFromData):
    """x = location + scale t(z) for each coordinate, where t(z) = z (1 + k z²)^(1/2), with a k for either side.

    The logarithm of a scale has a long tail on one side, where it falls like an exponential. Splines end where data are
    few, and beyond them a Gaussian falls much faster: states out there are rare, but each has the weight of hundreds,
    and no likelihood of finite data tells. With k = 0 a side is as in z; where k z² is large, x is a square of z, and
    its density the exponential of one. Sides that are not ``LONG`` and coordinates that are not at least ``LEAST_GAIN``
    nats likelier stay as they are.

    Args:
        shape: Shape of the states, a vector.
        reach: Where all but a thousandth of the data lie in z; where unit variance is not small enough for it, less.
    """

    location: Array | NonTrainable
    scale: Array | NonTrainable
    low: Array | NonTrainable
    high: Array | NonTrainable
    shape: tuple[int, ...] = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    cond_shape = None

    def __init__(self, shape: tuple[int, ...], *, reach: float = 3.2) -> None:
        self.shape = as_shape("Tails shape", shape)
        if len(self.shape) != 1:
            raise TradeError(f"Tails needs a vector, got shape {self.shape}.")
        self.reach = check.number(reach, "Tails reach", 0, open_low=True)
        self.location, self.low, self.high = (non_trainable(jnp.zeros(self.shape)) for _ in range(3))
        self.scale = non_trainable(jnp.ones(self.shape))

    def adapted(self, data: Array) -> Self:
        """Location, scale and both tails of each coordinate, by maximum likelihood."""
        states = np.array(data, np.float64)
        some = states[:: max(int(states.size / _VALUES), 1)]
        location, scale, low, high = np.array([fitted_tails(x) for x in some.T]).T
        z = _latent((states - location) / scale, low, high)
        closer = np.maximum(np.quantile(np.abs(z), 0.999, axis=0) / self.reach, 1.0)
        return self._set(location=location, scale=scale * closer, low=low * closer**2, high=high * closer**2)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data."""
        tail = jnp.where(x < 0, self.low, self.high) * x**2  # pyright: ignore
        y = self.location + self.scale * x * jnp.sqrt(1.0 + tail)  # pyright: ignore
        return y, self._log_slope(tail)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent."""
        t = (y - self.location) / self.scale  # pyright: ignore
        tail = jnp.where(t < 0, self.low, self.high) * t**2  # pyright: ignore
        z = t * jnp.sqrt(2.0 / (1.0 + jnp.sqrt(1.0 + 4.0 * tail)))
        return z, -self._log_slope(jnp.where(z < 0, self.low, self.high) * z**2)  # pyright: ignore

    def _log_slope(self, tail: Array) -> Array:
        """log of the derivative over all coordinates, where k z² is ``tail``."""
        return jnp.sum(jnp.log(self.scale) + jnp.log1p(2.0 * tail) - 0.5 * jnp.log1p(tail))  # pyright: ignore


class _Fit(NamedTuple):
    location: float
    scale: float
    low: float
    high: float


def _latent(t: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    tail = np.where(t < 0, low, high) * t**2
    return t * np.sqrt(2.0 / (1.0 + np.sqrt(1.0 + 4.0 * tail)))


def fitted_tails(x: np.ndarray) -> _Fit:
    """The location, scale and tails of long sides that make a coordinate most likely, if they gain ``LEAST_GAIN``.

    Args:
        x: Values of shape (n,).

    Returns:
        Location and scale, and k of the lower and the upper side; both zero of a Gaussian.
    """
    mean, deviation = float(x.mean()), float(x.std()) or 1.0
    white = (x - mean) / deviation
    ends = np.quantile(white, [0.001, 0.999])
    largest = [_LONGEST if end > LONG else 0.0 for end in (-ends[0], ends[1])]
    if not any(largest):
        return _Fit(mean, deviation, 0.0, 0.0)

    def nll(p: np.ndarray) -> float:
        z = _latent((white - p[0]) * np.exp(-p[1]), p[2], p[3])
        tail = np.where(z < 0, p[2], p[3]) * z**2
        return float(np.mean(0.5 * z**2 + np.log1p(2.0 * tail) - 0.5 * np.log1p(tail)) + p[1])

    bounds = [(-2.0, 2.0), (-2.0, 1.0), *((0.0, k) for k in largest)]
    start = np.array([0.0, 0.0, *(min(0.05, k) for k in largest)])
    found = scipy.optimize.minimize(nll, start, method="L-BFGS-B", bounds=bounds)
    if found.fun >= 0.5 - LEAST_GAIN:  # that of the Gaussian
        return _Fit(mean, deviation, 0.0, 0.0)
    shift, log_scale, low, high = map(float, found.x)
    return _Fit(mean + deviation * shift, deviation * float(np.exp(log_scale)), low, high)


def has_tails(data: np.ndarray) -> bool:
    """Whether a coordinate of the data falls like an exponential on a side, rather than like a Gaussian.

    Args:
        data: States of shape (n, d).

    Returns:
        Whether one does.
    """
    fits = [fitted_tails(x) for x in np.array(data, np.float64).T]
    return any(max(fit.low, fit.high) > 0.0 for fit in fits)

"""Whitening next to the data: a linear map to mean zero and covariance one, angles cut open first."""

from math import pi
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from paramax import NonTrainable, non_trainable, unwrap

from trade import check
from trade.errors import TradeError
from trade.flows.spline import wrapped
from trade.flows.standardise import SetFromData
from trade.states import as_shape, check_angles

MIN_EIGENVALUE = 1e-6  # of the correlations, which are shrunk by as much: float32 could not invert smaller ones
_EDGE = 1.0 - 1e-6  # of a window: beyond it float32 knows no distance to the end
_BINS, _SHARPNESS = 72, 50.0  # of the histogram of an angle; its kernel is eight degrees wide


class Whiten(SetFromData):
    """x = location + root z, with z of mean zero and covariance one over the data.

    An angle is cut where the data are rarest: its window is [centre - π, centre + π). From data to latent
    angles are wrapped into it, so that one that sits at ±π is not torn apart, and the window is stretched to
    the whole line: centre + π tanh(t/π) for t on the line.

    Warning:
        Without the stretching the layer keeps volume, but the density is one on the line: nothing is wrapped in
        sampling, and a state outside the window (see ``covers``) is none of the circle. The NLL is then an upper
        bound, and weights of such states must be taken for zero.

    Args:
        shape: Shape of the states, a vector.
        angles: Which coordinates are angles in radians.
        stretched: Whether windows are stretched to the line.
        reach: Where all but a thousandth of the data lie in z; where unit variance is not small enough for it, less.
    """

    location: Array | NonTrainable
    root: Array | NonTrainable  # lower triangular: a Cholesky factor of the covariance
    centre: Array | NonTrainable
    shape: tuple[int, ...] = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)
    stretched: bool = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    cond_shape = None

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        angles: tuple[int, ...] = (),
        stretched: bool = True,
        reach: float = float("inf"),
    ) -> None:
        self.shape, self.stretched = as_shape("Whiten shape", shape), check.flag(stretched, "Whiten stretched")
        if len(self.shape) != 1:
            raise TradeError(f"Whiten needs a vector, got shape {self.shape}.")
        self.angles = check_angles(angles, self.shape, "Whiten angles")
        endless = isinstance(reach, float) and reach == np.inf
        self.reach = reach if endless else check.number(reach, "Whiten reach", 0, open_low=True)
        self.location, self.centre = (non_trainable(jnp.zeros(self.shape)) for _ in range(2))
        self.root = non_trainable(jnp.eye(self.shape[0]))

    def adapted(self, data: Array) -> Self:
        """Window, mean and covariance from the data."""
        states = np.array(data, np.float64)  # once, on the host: a covariance loses half the digits
        centre = np.zeros(self.shape)
        for i in self.angles:
            centre[i] = emptiest(states[:, i]) + pi
            away = np.mod(states[:, i] - centre[i] + pi, 2.0 * pi) - pi
            states[:, i] = centre[i] + (pi * np.arctanh(np.clip(away / pi, -_EDGE, _EDGE)) if self.stretched else away)
        location, scale = states.mean(axis=0), states.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        scaled = (states - location) / scale
        correlation = (1.0 - MIN_EIGENVALUE) * scaled.T @ scaled / len(scaled)
        np.fill_diagonal(correlation, 1.0)
        root = scale[:, None] * np.linalg.cholesky(correlation)
        away = np.quantile(np.abs(np.linalg.solve(root, (states - location).T)), 0.999, axis=1)
        return self._set(location=location, root=root * np.maximum(away / self.reach, 1.0), centre=centre)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data; the line is squeezed into the windows of angles if these are stretched."""
        y = self.location + jnp.matmul(self.root, x, precision=jax.lax.Precision.HIGHEST)  # pyright: ignore
        away = y - self.centre  # pyright: ignore
        if not self.stretched:
            return y, self._log_volume()
        part = jnp.clip(jnp.tanh(away / pi), -_EDGE, _EDGE)
        return jnp.where(self._angular, self.centre + pi * part, y), self._log_volume() + self._log_slope(part)  # pyright: ignore

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent; angles are wrapped into their windows first."""
        away = wrapped(y - self.centre, pi)  # pyright: ignore
        log_det = -self._log_volume()
        if self.stretched:
            part = jnp.clip(away / pi, -_EDGE, _EDGE)
            away, log_det = pi * jnp.arctanh(part), log_det - self._log_slope(part)
        y = jnp.where(self._angular, away + self.centre, y)  # pyright: ignore
        return solve_triangular(self.root, y - self.location, lower=True), log_det  # pyright: ignore

    def covers(self, x: Array) -> Array:
        """Whether all angles of a state are in their windows.

        Args:
            x: One state.

        Returns:
            A boolean scalar.
        """
        away = jnp.abs(x - self.centre)  # pyright: ignore
        return jnp.all(~self._angular | (away <= pi))

    @property
    def _angular(self) -> np.ndarray:
        return np.isin(np.arange(self.shape[0]), self.angles)

    def _log_slope(self, part: Array) -> Array:
        """log of the derivative of π tanh(t/π) where tanh is ``part``, over all angles."""
        return jnp.sum(jnp.where(self._angular, jnp.log1p(-part * part), 0.0))

    def _log_volume(self) -> Array:
        return jnp.log(jnp.diagonal(self.root)).sum()  # pyright: ignore


def within(flow: Any, x: Array, log_q: Array) -> Array:
    """log q of a state, or minus infinity if it lies outside a window that the flow cut an angle to.

    A layer that does not stretch its windows can leave them when sampling: such a state is none of the circle.
    """
    for layer in getattr(unwrap(getattr(flow, "bijection", None)), "bijections", ()):
        if isinstance(layer, Whiten) and layer.angles and not layer.stretched:
            log_q = jnp.where(layer.covers(x), log_q, -jnp.inf)
    return log_q


def emptiest(angles: np.ndarray) -> float:
    """Where on the circle angles are rarest.

    The histogram is smoothed by a kernel that is nowhere zero: of empty places it finds the one farthest from all data.
    """
    counts, edges = np.histogram(np.mod(angles + pi, 2.0 * pi) - pi, _BINS, (-pi, pi))
    places = edges[:-1]
    middles = places + pi / _BINS
    density = np.exp(_SHARPNESS * (np.cos(places[:, None] - middles) - 1.0)) @ counts
    return float(places[np.argmin(density)])

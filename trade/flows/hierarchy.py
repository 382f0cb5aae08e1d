"""Widths that follow other coordinates, next to the data: the shape of hierarchical models and of funnels."""

from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array
from paramax import NonTrainable, non_trainable

from trade import check
from trade.errors import TradeError
from trade.flows.standardise import SetFromData
from trade.states import as_shape, check_angles

LEAST_GAIN = 0.2  # nats a coordinate must gain: couplings learn weaker ones by themselves
_HINT = 0.02  # of the gain, by the slope at zero: pairs below it are not fitted
_STATES, _WORK = 5_000, 2e8  # states to find sources; states times squared dimension to fit
_ROUNDS, _NEWTON = 10, 25
_UNSURE = 0.3  # of a width: where a line is known less well than this, sources end
_END, _GENERIC = 0.2, 0.6  # parts of the data where sources are low and high; several weigh 1, 0.6, 0.36 ...


class Hierarchy(SetFromData):
    """z = (M x - m) exp(-s - B t), where t are a few coordinates, the sources, that pass unchanged and come first.

    In a hierarchical model the logarithm of a scale sets the widths of many coordinates, over orders of magnitude, and
    where they are narrow all of them sit on a line that has to be known to a part of that width. A coupling has its
    bounds, and only the few data in the neck to learn it from. Here directions are found whose widths follow the
    sources each by itself. Each is regressed on the sources and on those before it with weights of one over its squared
    width, and its log width on the sources, by maximum likelihood: data in the neck count most for where the line is.
    Beyond the data sources are clipped as soon as the line is not known to a part of the width.

    Args:
        shape: Shape of the states, a vector.
        sources: Coordinates that set the widths of the others; without any the layer is the identity.
        reach: Where all but a thousandth of the data lie in z; where unit variance is not small enough for it, less.
    """

    matrix: Array | NonTrainable
    inverse: Array | NonTrainable
    location: Array | NonTrainable
    log_width: Array | NonTrainable
    slopes: Array | NonTrainable
    limits: Array | NonTrainable
    shape: tuple[int, ...] = eqx.field(static=True)
    sources: tuple[int, ...] = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    cond_shape = None

    def __init__(self, shape: tuple[int, ...], sources: tuple[int, ...], *, reach: float = 3.2) -> None:
        self.shape = as_shape("Hierarchy shape", shape)
        if len(self.shape) != 1:
            raise TradeError(f"Hierarchy needs a vector, got shape {self.shape}.")
        self.sources = check_sources(sources, self.shape, "Hierarchy sources")
        self.reach = check.number(reach, "Hierarchy reach", 0, open_low=True)
        (dim,), count = self.shape, len(self.sources)
        turned = jnp.eye(dim)[np.array(self._order)]
        self.matrix, self.inverse = non_trainable(turned), non_trainable(turned.T)
        self.location, self.log_width = (non_trainable(jnp.zeros(dim)) for _ in range(2))
        self.slopes = non_trainable(jnp.zeros((dim, count)))
        self.limits = non_trainable(jnp.zeros((2, count)))

    @property
    def _order(self) -> list[int]:
        return [*self.sources, *(i for i in range(self.shape[0]) if i not in self.sources)]

    def adapted(self, data: Array) -> Self:
        """Regressions of each coordinate, and of its log width, by maximum likelihood."""
        (dim,), count = self.shape, len(self.sources)
        states = np.array(data, np.float64)[:, self._order]
        states = states[:: max(len(states) // max(int(_WORK / dim**2), _STATES), 1)]
        t = states[:, :count]
        apart = np.eye(dim)
        apart[count:, count:] = _pulled_apart(states[:, count:], t)
        states = states @ apart.T
        lower, location = np.eye(dim), np.zeros(dim)
        log_width, slopes, log_error = np.zeros(dim), np.zeros((dim, count)), np.full(dim, -np.inf)
        features = np.column_stack([np.ones(len(t)), t])
        for i in range(count, dim):
            before = np.column_stack([states[:, :i], np.ones(len(t))])
            line = _regressed(states[:, i], before, features)
            lower[i, :i], location[i], log_error[i] = -line.coefficients[:-1], line.coefficients[-1], line.log_error
            log_width[i] = line.log_width[0] + np.log(max(line.away / self.reach, 1.0))
            slopes[i] = line.log_width[1:]
        matrix = (lower @ apart)[:, np.argsort(self._order)]
        limits = _trusted(t, log_error - log_width, slopes)
        measured = {"location": location, "log_width": log_width, "slopes": slopes, "limits": limits}
        return self._set(matrix=matrix, inverse=np.linalg.inv(matrix), **measured)

    def _log_widths(self, sources: Array) -> Array:
        low, high = self.limits  # pyright: ignore
        return self.log_width + _matvec(self.slopes, jnp.clip(sources, low, high))  # pyright: ignore

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: the widths, then the regressions."""
        log_width = self._log_widths(x[: len(self.sources)])
        rest = x * jnp.exp(log_width) + self.location  # pyright: ignore
        y = _matvec(self.inverse, rest)
        return y + _matvec(self.inverse, rest - _matvec(self.matrix, y)), log_width.sum()  # what rounding left

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: what the regressions leave, then the widths."""
        rest = _matvec(self.matrix, y) - self.location  # pyright: ignore
        log_width = self._log_widths(rest[: len(self.sources)])
        return rest * jnp.exp(-log_width), -log_width.sum()


def _matvec(matrix: Array | NonTrainable, vector: Array) -> Array:
    return jnp.matmul(matrix, vector, precision=jax.lax.Precision.HIGHEST)  # pyright: ignore


def _pulled_apart(states: np.ndarray, t: np.ndarray) -> np.ndarray:
    """A matrix of determinant one to directions whose widths follow the sources each by itself, the least first.

    Where x = A z and each width of z follows t, every covariance of x given something of t is A D Aᵀ with D diagonal:
    two of them, where the sources are low and high, tell A. So the order in which coordinates came does not matter.
    """
    along = t @ _GENERIC ** np.arange(t.shape[1])
    features = np.column_stack([np.ones(len(t)), t])
    rest = states - features @ np.linalg.lstsq(features, states, rcond=None)[0]
    below, above = np.quantile(along, [_END, 1.0 - _END])
    low, high = (rest[part].T @ rest[part] for part in (along <= below, along >= above))
    high[np.diag_indices(len(high))] += 1e-8 * np.trace(high) / len(high)
    ratio, directions = scipy.linalg.eigh(low, high)
    order = np.argsort(np.abs(np.log(np.maximum(ratio, 1e-300))))
    found = directions.T[order]
    return found * np.exp(-np.linalg.slogdet(found)[1] / len(found))


class _Line(NamedTuple):
    """A regression: its coefficients, its log width in the features, where 99.9 % of the data lie, its own error."""

    coefficients: np.ndarray
    log_width: np.ndarray
    away: float
    log_error: float


def _regressed(x: np.ndarray, before: np.ndarray, features: np.ndarray) -> _Line:
    """The most likely regression with Gaussian residuals of width exp(features w): line and width take turns."""

    def line(log_width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inverse_width = np.exp(-(features @ log_width))[:, None]
        gram = (before * inverse_width).T @ (before * inverse_width)
        gram[np.diag_indices(len(gram))] *= 1.0 + 1e-10  # two coordinates may be the same
        return np.linalg.solve(gram, before.T @ (x[:, None] * inverse_width**2))[:, 0], gram

    log_width = np.zeros(features.shape[1])
    for _ in range(_ROUNDS):
        log_width = log_linear_width(features, x - before @ line(log_width)[0])
    coefficients, gram = line(log_width)
    rest = x - before @ coefficients
    unsure = np.einsum("ni,ij,nj->n", before, np.linalg.inv(gram), before, optimize=True).mean()
    away = float(np.quantile(np.abs(rest * np.exp(-(features @ log_width))), 0.999))
    return _Line(coefficients, log_width, away, 0.5 * float(np.log(unsure)))


def _trusted(t: np.ndarray, log_error: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """How far sources may go: as long as the error of every line is a part of the width there, half a range at most."""
    ends, middle = np.stack([t.min(axis=0), t.max(axis=0)]), t.mean(axis=0)
    found = ends.copy()
    for k in range(t.shape[1]):
        for end, beyond in enumerate(0.5 * (ends[1, k] - ends[0, k]) * np.array([-1.0, 1.0])):
            for part in np.linspace(1.0, 0.0, 21):
                found[end, k] = ends[end, k] + part * beyond
                there = middle.copy()
                there[k] = found[end, k]
                if np.max(log_error - slopes @ there) < np.log(_UNSURE):
                    break
    return found


def log_linear_width(features: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The w that makes ``rest`` most likely as Gaussian of width exp(features w): a convex problem, by Newton's method.

    Args:
        features: Of shape (n, k), the first of them one.
        rest: Of shape (n,), or (n, m) for m problems with the same features.

    Returns:
        Of shape (k,), or (k, m).
    """
    squares = np.atleast_2d(rest.T**2)  # (m, n)
    squares = squares / np.maximum(squares.mean(axis=1, keepdims=True), 1e-300)
    w = np.zeros((len(squares), features.shape[1]))
    for _ in range(_NEWTON):
        part = squares * np.exp(np.clip(-2.0 * w @ features.T, -60.0, 60.0))
        slope = (1.0 - part) @ features / len(features)
        curvature = 2.0 * np.einsum("mn,ni,nj->mij", part, features, features, optimize=True) / len(features)
        curvature += 1e-9 * np.eye(w.shape[1])
        w -= np.clip(np.linalg.solve(curvature, slope[..., None])[..., 0], -1.0, 1.0)
    w[:, 0] += 0.5 * np.log(np.maximum(np.atleast_2d(rest.T**2).mean(axis=1), 1e-300))
    return w[0] if rest.ndim == 1 else w.T


def sources_of_widths(data: np.ndarray) -> tuple[int, ...]:
    """Coordinates whose values set the widths of others, by at least ``LEAST_GAIN`` nats for one of them.

    What all the others leave of a coordinate, by linear regression, is Gaussian of one width in a Gaussian density. How
    much more likely is it with a log width linear in another coordinate? A source's own width follows none.

    Args:
        data: States of shape (n, d), whitened.

    Returns:
        The indices of sources, the strongest first.
    """
    states = np.array(data, np.float64)
    states = states[:: max(len(states) // _STATES, 1)]
    n, dim = states.shape
    if dim < 2 or n < 20 * dim:
        return ()
    states = (states - states.mean(axis=0)) / np.maximum(states.std(axis=0), 1e-12)
    rest = states @ np.linalg.pinv(np.cov(states.T))
    rest /= np.maximum(rest.std(axis=0), 1e-12)
    slope = states.T @ (rest**2 - 1.0) / n  # (source, of whose width)
    gain = np.zeros((dim, dim))
    for j in range(dim):
        hinted = np.flatnonzero((0.25 * slope[j] ** 2 > _HINT) & (np.arange(dim) != j))
        if len(hinted):
            features = np.column_stack([np.ones(n), states[:, j]])
            log_width = features @ log_linear_width(features, rest[:, hinted])
            likely = -log_width - 0.5 * rest[:, hinted] ** 2 * np.exp(-2.0 * log_width)
            gain[j, hinted] = likely.mean(axis=0) + 0.5
    found: list[int] = []
    for j in np.argsort(-gain.sum(axis=1)):
        follows = any(gain[s, j] > LEAST_GAIN for s in found)
        alone = np.delete(gain[j], found).max(initial=0.0)  # of coordinates that are no sources themselves
        if alone > LEAST_GAIN and not follows:
            found.append(int(j))
    return tuple(found)


def check_sources(sources: object, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Indices of some of a vector's coordinates, as a sorted tuple."""
    found = check_angles(sources, shape, name)
    if found and len(found) == shape[0]:
        raise TradeError(f"{name} must leave coordinates whose widths they set, got all {shape[0]}.")
    return found

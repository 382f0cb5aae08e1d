"""Powers of a Gaussian mixture, q(x|c) = p(x)^c, with an exact sampler and exact log Z."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array
from numpy.typing import ArrayLike

from trade import check
from trade.abstract_target import AbstractTarget
from trade.condition import Condition, check_condition
from trade.errors import TradeError
from trade.targets.energy_free import power


class GaussianMixture(AbstractTarget):
    """q(x|c) = (Σ_i w_i N(x; μ_i, Σ_i))^c: large c is narrow, small c is broad (Appendix C.1).

    Args:
        means: Shape (modes, d).
        covariances: Shape (modes, d, d).
        condition: Range of the power c, with c0 = 1 as its boundary by default.
        weights: Weights of the modes at c = 1; equal by default.
    """

    means: Array
    precisions: Array
    log_amplitudes: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    condition: Condition = eqx.field(static=True)
    parameters: tuple = eqx.field(static=True)

    def __init__(
        self,
        means: ArrayLike,
        covariances: ArrayLike,
        condition: Condition = Condition(0.16238, 6.15848, scale="log", boundary=(1.0,)),  # noqa: B008
        weights: ArrayLike | None = None,
    ) -> None:
        check_condition(condition, positive="a power")
        mu, sigma = (
            np.asarray(check.array(v, f"GaussianMixture {name}"), np.float64)
            for v, name in ((means, "means"), (covariances, "covariances"))
        )
        if mu.ndim != 2 or sigma.shape != (*mu.shape, mu.shape[1]):
            raise TradeError(
                f"GaussianMixture needs means (modes, d) and covariances (modes, d, d), got {mu.shape} and"
                f" {sigma.shape}."
            )
        if not mu.size or not np.isfinite(mu).all():
            raise TradeError(f"GaussianMixture means must be finite, and one or more, got {check.shown(means)}.")
        w = np.ones(len(mu)) if weights is None else np.asarray(check.array(weights, "GaussianMixture weights"), float)
        if w.shape != (len(mu),) or not np.all((w > 0) & np.isfinite(w)):
            raise TradeError(f"GaussianMixture weights must be {len(mu)} positive numbers, got {check.shown(weights)}.")
        if not np.allclose(sigma, sigma.transpose(0, 2, 1)) or np.any(np.linalg.eigvalsh(sigma) <= 0):
            raise TradeError("GaussianMixture covariances must be symmetric and positive definite.")
        w = w / w.sum()
        log_norm = np.log(w) - 0.5 * np.linalg.slogdet(2.0 * np.pi * sigma)[1]
        self.means = jnp.asarray(mu, dtype=float)
        self.precisions = jnp.asarray(np.linalg.inv(sigma), dtype=float)
        self.log_amplitudes = jnp.asarray(log_norm, dtype=float)
        self.shape, self.condition = (mu.shape[1],), condition
        self.parameters = (_nested(mu), _nested(sigma), _nested(w))

    def config(self) -> dict:
        """The constructor's arguments, with the weights normalised."""
        mu, sigma, w = self.parameters
        return {"means": mu, "covariances": sigma, "condition": self.condition, "weights": w}

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """c log Σ_i w_i N(x; μ_i, Σ_i)."""
        return c * self._log_mixture(x)

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_c log q = log p(x)."""
        return self._log_mixture(x)

    def _log_mixture(self, x: Array) -> Array:
        offset = x - self.means
        distance = jnp.einsum("mi,mij,mj->m", offset, self.precisions, offset, precision=jax.lax.Precision.HIGHEST)
        return jax.nn.logsumexp(self.log_amplitudes - 0.5 * distance)

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        """log q = (c/c0) log p0."""
        return power(log_p0, x, c, c0, y)

    def sample(self, key: Array, n: int, c: float) -> Array:
        """n exact samples by rejection from Σ_i a_i^c, which is again a Gaussian mixture.

        With π_i = a_i/Σa the ratio of densities is R = 1/Σ π_i^c. It is at most 1 for c <= 1;
        for c > 1 its largest value is searched for, and raised if a proposal ever exceeds it.
        """
        key, n, c = self.check_sampling(key, n, c)
        mu, sigma, w = (np.asarray(p) for p in self.parameters)
        rng = np.random.default_rng(np.asarray(_key_data(key)).tolist())
        roots = np.linalg.cholesky(sigma / c)
        log_mass = c * np.log(w) - 0.5 * (c - 1.0) * np.linalg.slogdet(2.0 * np.pi * sigma)[1]
        log_mass = log_mass - 0.5 * self.shape[0] * np.log(c)
        modes = np.exp(log_mass - scipy.special.logsumexp(log_mass))
        bound = 0.0 if c <= 1.0 else self._log_bound(c, mu)
        kept: list[np.ndarray] = []
        while sum(map(len, kept)) < n:
            size = max(4 * n, 4096)
            mode = rng.choice(len(mu), size, p=modes)
            x = mu[mode] + np.einsum("nij,nj->ni", roots[mode], rng.standard_normal((size, self.shape[0])))
            ratio = self._log_ratio(x, c)
            if ratio.max() > bound:  # an envelope that was too low: start over with a valid one
                bound, kept = float(ratio.max()) + 0.1, []
                continue
            kept.append(x[np.log(rng.uniform(size=size)) < ratio - bound])
        return jnp.asarray(np.concatenate(kept)[:n], dtype=float)

    def _log_terms(self, x: np.ndarray) -> np.ndarray:
        mu, sigma, w = (np.asarray(p) for p in self.parameters)
        offset = x[:, None] - mu
        distance = np.einsum("nmi,mij,nmj->nm", offset, np.linalg.inv(sigma), offset)
        return np.log(w) - 0.5 * np.linalg.slogdet(2.0 * np.pi * sigma)[1] - 0.5 * distance

    def _log_ratio(self, x: np.ndarray, c: float) -> np.ndarray:
        terms = self._log_terms(x)
        return c * _log_sum(terms) - _log_sum(c * terms)

    def _log_bound(self, c: float, mu: np.ndarray) -> float:
        """The largest log R on the segments between means, where modes meet, with a margin."""
        t = np.linspace(0.0, 1.0, 201)[:, None]
        points = [a + t * (b - a) for i, a in enumerate(mu) for b in mu[:i]]
        return (float(self._log_ratio(np.concatenate(points), c).max()) if points else 0.0) + 0.2

    def log_partition(self, c: float) -> float:
        """log ∫ p(x)^c dx, by quadrature in one or two dimensions."""
        c = self.condition.check(c)
        if self.shape[0] > 2:
            raise TradeError(f"GaussianMixture knows log Z for d = 1 and 2 only, got d = {self.shape[0]}.")
        mu, sigma, _ = (np.asarray(p) for p in self.parameters)
        reach = 9.0 * np.sqrt(np.diagonal(sigma, axis1=1, axis2=2) / c)
        low, high = (mu - reach).min(axis=0), (mu + reach).max(axis=0)
        # The trapezoid rule converges exponentially once the narrowest direction is resolved.
        finest = np.sqrt(np.linalg.eigvalsh(sigma).min() / max(c, 1.0))
        axes = [np.linspace(a, b, int((b - a) / (0.8 * finest)) + 2) for a, b in zip(low, high, strict=True)]
        cell = np.prod([a[1] - a[0] for a in axes])
        rest = axes[1][:, None] if len(axes) == 2 else np.zeros((1, 0))
        rows = []
        for value in axes[0]:
            x = np.concatenate([np.full((len(rest), 1), value), rest], axis=1)
            rows.append(scipy.special.logsumexp(c * _log_sum(self._log_terms(x))))
        return float(scipy.special.logsumexp(rows) + np.log(cell))


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Logsumexp along the last axis, without SciPy's generality: it is called millions of times."""
    top = terms.max(axis=-1)
    return top + np.log(np.exp(terms - top[..., None]).sum(axis=-1))


def _key_data(key: Array) -> Array:
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def _nested(array: np.ndarray) -> tuple:
    return tuple(_nested(a) if a.ndim else float(a) for a in array)


def six_modes() -> GaussianMixture:
    """The six-mode 2-D mixture of Appendix C.1 (with Σ₃ as it must be; the paper prints it wrong).

    Returns:
        The target.
    """
    means = [[-1.0, 2.0], [3.0, 7.0], [-4.0, 2.0], [-2.0, -4.0], [0.0, 4.0], [5.0, -2.0]]
    covariances = [
        [[0.2778, 0.4797], [0.4797, 0.8615]],
        [[0.8958, -0.0249], [-0.0249, 0.1001]],
        [[1.3074, 0.9223], [0.9223, 0.7744]],
        [[0.0305, 0.0142], [0.0142, 0.4409]],
        [[0.0463, 0.0294], [0.0294, 0.3441]],
        [[0.1500, 0.0294], [0.0294, 1.5000]],
    ]
    return GaussianMixture(means, covariances)

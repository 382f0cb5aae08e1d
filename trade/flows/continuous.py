"""A continuous flow of a lattice field: an ordinary differential equation that commutes with translations and sign."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jax import Array

from trade.flows.apart import compiled_apart
from trade.flows.conditioner import Network, NetworkSpec
from trade.flows.fourier import convolved, squared_momenta

PROPAGATORS = (1.0, 0.1)  # squared masses of the kernels that reach far
STIFFNESS = 0.125  # most that a step may stretch: beyond, training gains likelihood from errors of the integration
GENTLE = 0.1  # what the network gives is taken so much smaller: the first steps of training are not to be violent


class ContinuousField(AbstractBijection):
    """A field that follows dφ/dt = Σ_a K_a(t, c) * h_a(φ), from t = 0, the latent, to t = 1 (Gerdes et al. 2022).

    The features h_a of each site are φ itself and sin(aπφ/interval) for a = 1, 2, ... The kernels K_a are convolutions,
    so that the flow commutes with translations, and, odd as features are, with a change of sign; it commutes with
    mirrors too. None of the weights depends on the length. The logarithm of the determinant is the integral of the
    divergence, Σ_a K_a(0) Σ_x h_a'(φ_x): no determinant is ever formed.

    Warning:
        The equation is solved by Runge-Kutta in a fixed number of steps, and so the two directions are inverse to each
        other only up to its error. To keep it small, kernels whose field would change too fast for a step are scaled
        down.

    Args:
        key: A JAX random key.
        shape: The lattice.
        cond_dim: Length of the condition vector.
        network: Gives the kernels' coefficients for each condition.
        interval: Half a wavelength of the first sine.
        waves: Number of sines.
        hops: Sites that the local kernels reach; two propagators go farther.
        times: Functions of time that a kernel is a sum of.
        steps: Steps of the integration.
    """

    network: Network
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    interval: float = eqx.field(static=True)
    waves: int = eqx.field(static=True)
    hops: int = eqx.field(static=True)
    times: int = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        shape: tuple[int, ...],
        cond_dim: int,
        *,
        network: NetworkSpec,
        interval: float = 6.0,
        waves: int = 8,
        hops: int = 3,
        times: int = 4,
        steps: int = 12,
    ) -> None:
        self.shape, self.cond_shape, self.interval = shape, (cond_dim,), float(interval)
        self.waves, self.hops, self.times, self.steps = waves, hops, times, steps
        self.network = network.build(key, cond_dim, times * (waves + 1) * len(self._kernels()))

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: forward in time."""
        return self._integrated(x, self._coefficients(condition))

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: back in time."""
        return self._integrated(y, -self._coefficients(condition)[::-1])

    def _kernels(self) -> np.ndarray:
        """What kernels are sums of, in Fourier space, of shape (kernels, *lattice)."""
        return kernels([1.0 - 0.5 * squared_momenta((n,)) for n in self.shape], self.hops)

    def _coefficients(self, condition: Array | None) -> Array:
        """Of every half step how much of each feature goes into each kernel: (2 steps + 1, kernels, waves + 1)."""
        assert condition is not None
        raw = GENTLE * self.network(condition).reshape(self.times, -1, self.waves + 1)
        moments = np.linspace(0.0, 1.0, 2 * self.steps + 1)
        in_time = np.cos(np.pi * moments[:, None] * np.arange(self.times)).astype(raw.dtype)
        coefficients = jnp.tensordot(in_time, raw, axes=1, precision=jax.lax.Precision.HIGHEST)
        # No slope of a feature is beyond one: the field stretches no faster than the largest entries of the kernels.
        # Momenta are the same for all lattices: else a field and its periodic copies would go different ways.
        bases = kernels([np.linspace(-1.0, 1.0, 5)] * len(self.shape), self.hops)
        bases = bases.reshape(len(bases), -1).astype(raw.dtype)
        entries = jnp.einsum("tka,kn->tan", coefficients, bases, precision=jax.lax.Precision.HIGHEST)
        rates = jnp.sum(jnp.max(jnp.abs(entries), axis=2), axis=1)
        most = STIFFNESS * self.steps
        return coefficients * (most / jnp.maximum(rates, most))[:, None, None]

    def _integrated(self, x: Array, coefficients: Array) -> tuple[Array, Array]:
        """Runge-Kutta of fourth order, for the field and the logarithm of the determinant."""
        width = 1.0 / self.steps
        stages = jnp.stack([coefficients[:-1:2], coefficients[1::2], coefficients[2::2]], axis=1)

        def step(carry: tuple[Array, Array], stage: Array) -> tuple[tuple[Array, Array], None]:
            x, log_det = carry
            one, d_one = self._velocity(x, stage[0])
            two, d_two = self._velocity(x + 0.5 * width * one, stage[1])
            three, d_three = self._velocity(x + 0.5 * width * two, stage[1])
            four, d_four = self._velocity(x + width * three, stage[2])
            x = x + width / 6.0 * (one + 2.0 * (two + three) + four)
            return (x, log_det + width / 6.0 * (d_one + 2.0 * (d_two + d_three) + d_four)), None

        return jax.lax.scan(jax.checkpoint(step), (x, jnp.zeros((), x.dtype)), stages)[0]

    def _velocity(self, x: Array, coefficients: Array) -> tuple[Array, Array]:
        """dφ/dt, and its divergence."""
        features, slopes = self._features(x)
        bases = self._kernels()
        channels = jnp.matmul(coefficients, features, precision=jax.lax.Precision.HIGHEST)
        velocity = convolved(channels.reshape(-1, *self.shape), bases, self.shape)
        at_zero = bases.reshape(len(bases), -1).mean(axis=1).astype(x.dtype)  # their values at distance zero
        return velocity, jnp.sum(at_zero[:, None] * coefficients * slopes)

    def _features(self, x: Array) -> tuple[Array, Array]:
        """Features of every site, (waves + 1, sites), and the sums of their slopes over the sites."""
        scale, x = self.interval / math.pi, x.reshape(-1)
        sines, cosines = _waves(x / scale, self.waves)
        features = jnp.concatenate([x[None], scale / _numbers(self.waves, x.dtype) * sines])
        # A sum as a product: XLA would compute sines again for every sum of their own.
        slopes = jnp.matmul(cosines, np.ones(x.size, x.dtype), precision=jax.lax.Precision.HIGHEST)
        return features, jnp.concatenate([jnp.full(1, x.size, x.dtype), slopes])


def kernels(cosines: list[np.ndarray], hops: int) -> np.ndarray:
    """Even functions of momentum: the site itself, its neighbours along each axis, sites farther away, propagators.

    Args:
        cosines: Cosines of the momenta along each axis.
        hops: Degree of the Chebyshev polynomials of the Laplacian.

    Returns:
        An array of shape (kernels, *momenta), none of whose entries is beyond one.
    """
    along = np.meshgrid(*cosines, indexing="ij")
    mean = np.clip(sum(along) / len(along), -1.0, 1.0)
    momenta = 2.0 * len(along) * (1.0 - mean)
    beyond = [np.cos(n * np.arccos(mean)) for n in range(2, hops + 1)]
    far = [mass / (momenta + mass) for mass in PROPAGATORS]
    return np.stack([np.ones_like(mean), *along, *beyond, *far])


def _numbers(waves: int, dtype: Any) -> np.ndarray:
    return np.arange(1, waves + 1, dtype=dtype)[:, None]


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _waves(angle: Array, waves: int) -> tuple[Array, Array]:
    """Sines and cosines of 1, 2, ... times the angles, along a new first axis."""
    sine, cosine = _sine_and_cosine(angle)
    sines, cosines = [sine], [cosine]
    for _ in range(waves - 1):
        s, c = sines[-1], cosines[-1]
        sines.append(s * cosine + c * sine)
        cosines.append(c * cosine - s * sine)
    return jnp.stack(sines), jnp.stack(cosines)


@_waves.defjvp
def _waves_jvp(waves: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Any, Any]:
    """Each other, times their numbers."""
    sines, cosines = _waves(*primals, waves)
    change = _numbers(waves, sines.dtype) * tangents[0]
    return (sines, cosines), (cosines * change, -sines * change)


@compiled_apart
def _sine_and_cosine(angle: Array) -> tuple[Array, Array]:
    return jnp.sin(angle), jnp.cos(angle)

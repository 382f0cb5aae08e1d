"""Bijections for fields on a periodic lattice. None of their weights depends on the lattice's length."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jax import Array

from trade.flows import spline
from trade.flows.conditioner import MLP, Network
from trade.flows.convolution import Convolutional, ConvolutionalNetwork
from trade.flows.coupling import MAX_LOG_SCALE, bounded
from trade.flows.fourier import from_modes, squared_momenta, to_modes

Split = Literal["checkerboard", "channels"]
LEAST_GAP = 1e-5  # of the interval: far from the transition hardly any field has a mean near zero
_UNIT_MASS = math.log(math.expm1(1.0))  # softplus of this is 1


class LatticeCoupling(AbstractBijection):
    """Half of a field of shape (channels, *lattice), splined and scaled by what the other half and c say.

    The halves are the two colours of a checkerboard, after which the field is shifted by one site so
    that the colours change roles, or the two halves of the channels, after which those are exchanged.

    Args:
        key: A JAX random key.
        shape: (channels, *lattice).
        cond_dim: Length of the condition vector.
        network: The conditioner.
        bins: Bins of each spline.
        interval: Splines act on (-interval, interval).
        split: ``"checkerboard"`` or ``"channels"``.
        odd: Make the layer commute with a change of sign of the field.
    """

    network: ConvolutionalNetwork
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    bins: int = eqx.field(static=True)
    interval: float = eqx.field(static=True)
    split: Split = eqx.field(static=True)
    odd: bool = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        shape: tuple[int, ...],
        cond_dim: int,
        *,
        network: Convolutional,
        bins: int,
        interval: float,
        split: Split = "checkerboard",
        odd: bool = False,
    ) -> None:
        self.shape, self.cond_shape = shape, (cond_dim,)
        self.bins, self.interval, self.split, self.odd = bins, float(interval), split, odd
        channels = shape[0] if split == "checkerboard" else shape[0] // 2
        outputs = channels * (spline.parameter_count(bins) + 2)
        self.network = network.build(key, channels + cond_dim, outputs, len(shape) - 1)

    def _halves(self, x: Array) -> tuple[Array, Array]:
        """The entries that pass, and those that are transformed."""
        if self.split == "channels":
            passive, active = jnp.split(x, 2)
            return passive, active
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        return self._colour(pairs, 0), self._colour(pairs, 1)

    def _colour(self, pairs: Array, colour: int) -> Array:
        """Of neighbours along the last axis the one of this colour: even (0) or odd (1) sum of indices."""
        return jnp.where(self._even_rows, pairs[..., colour], pairs[..., 1 - colour])

    def _join(self, passive: Array, active: Array) -> Array:
        if self.split == "channels":
            return jnp.concatenate([passive, active])
        halves = jnp.stack([passive, active], axis=-1)
        return jnp.stack([self._colour(halves, 0), self._colour(halves, 1)], axis=-1).reshape(self.shape)

    @property
    def _even_rows(self) -> np.ndarray:
        return np.indices(self.shape[1:-1]).sum(axis=0)[..., None] % 2 == 0

    def _swap(self, x: Array, *, back: bool) -> Array:
        """Exchange the roles of the halves."""
        axis, shift = (1, 1) if self.split == "checkerboard" else (0, self.shape[0] // 2)
        return jnp.roll(x, -shift if back else shift, axis)

    def _raw(self, passive: Array, condition: Array) -> Array:
        """Outputs of the network for each entry that is transformed, (channels, *sites, parameters)."""
        seen = bounded(passive, self.interval)
        if self.split == "channels":
            where = None
        else:
            seen = self._join(seen, jnp.zeros_like(seen))
            where = self._active_sites
        h = jnp.moveaxis(seen, 0, -1)
        h = jnp.concatenate([h, jnp.broadcast_to(condition, (*h.shape[:-1], len(condition)))], axis=-1)
        raw = self.network(h, where)
        return jnp.moveaxis(raw.reshape(*raw.shape[:-1], len(seen), -1), -2, 0)

    def _active_sites(self, h: Array) -> Array:
        """Of features (*lattice, features) those of the active colour."""
        return jnp.moveaxis(self._halves(jnp.moveaxis(h, -1, 0))[1], 0, -1)

    def _parameters(self, passive: Array, condition: Array | None) -> tuple[Array, Array, Array]:
        assert condition is not None
        raw = self._raw(passive, condition)
        if self.odd:
            raw = raw + reflected(self._raw(-passive, condition), self.bins)
        count = spline.parameter_count(self.bins)
        raw, log_scale, shift = jnp.split(raw, [count, count + 1], axis=-1)
        return raw, bounded(log_scale[..., 0], MAX_LOG_SCALE), bounded(shift[..., 0], self.interval)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: the splines, then the halves exchange their roles."""
        passive, active = self._halves(y)
        raw, log_scale, shift = self._parameters(passive, condition)
        active, log_slope = spline.forward(active, raw, self.interval)
        z = self._join(passive, active * jnp.exp(log_scale) + shift)
        return self._swap(z, back=False), jnp.sum(log_slope + log_scale)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: the halves exchanged back, then the inverse splines."""
        passive, active = self._halves(self._swap(x, back=True))
        raw, log_scale, shift = self._parameters(passive, condition)
        active, log_slope = spline.inverse((active - shift) * jnp.exp(-log_scale), raw, self.interval)
        return self._join(passive, active), jnp.sum(log_slope - log_scale)


class DownSampled(AbstractBijection):
    """A bijection of (4, rows/2, columns/2) acting on a field of (rows, columns), each 2x2 block as four channels."""

    bijection: AbstractBijection
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(self, bijection: AbstractBijection) -> None:
        _, rows, columns = bijection.shape
        self.bijection, self.shape, self.cond_shape = bijection, (2 * rows, 2 * columns), bijection.cond_shape

    def _down(self, x: Array) -> Array:
        rows, columns = self.shape
        return x.reshape(rows // 2, 2, columns // 2, 2).transpose(1, 3, 0, 2).reshape(self.bijection.shape)

    def _up(self, x: Array) -> Array:
        rows, columns = self.shape
        return x.reshape(2, 2, rows // 2, columns // 2).transpose(2, 0, 3, 1).reshape(self.shape)

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """That of the bijection, on blocks as channels."""
        y, log_det = self.bijection.transform_and_log_det(self._down(x), condition)
        return self._up(y), log_det

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """That of the bijection, on blocks as channels."""
        x, log_det = self.bijection.inverse_and_log_det(self._down(y), condition)
        return self._up(x), log_det


def reflected(raw: Array, bins: int) -> Array:
    """Raw parameters of the spline -f(-x), followed by those of its scale and shift."""
    widths, heights, slopes, scale, shift = jnp.split(raw, [bins, 2 * bins, 3 * bins - 1, 3 * bins], axis=-1)
    return jnp.concatenate([widths[..., ::-1], heights[..., ::-1], slopes[..., ::-1], scale, -shift], axis=-1)


class ZeroMode(AbstractBijection):
    """The mean of the field through an odd spline and a scale that follow c; the rest of it stays.

    This is where one mode becomes two: a broken phase is one spline of one number.
    """

    network: Network
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    bins: int = eqx.field(static=True)
    interval: float = eqx.field(static=True)

    def __init__(
        self, key: Array, shape: tuple[int, ...], cond_dim: int, *, width: int, bins: int, interval: float
    ) -> None:
        self.shape, self.cond_shape, self.bins, self.interval = shape, (cond_dim,), bins, float(interval)
        self.network = MLP(width, 2).build(key, cond_dim, spline.parameter_count(bins) + 2)

    def _parameters(self, condition: Array | None) -> tuple[Array, Array]:
        assert condition is not None
        raw = self.network(condition)
        raw = raw + reflected(raw, self.bins)  # an odd function has no shift
        return raw[None, :-2], raw[-2] - 0.5 * math.log(math.prod(self.shape))

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: the spline of the mean, then its scale."""
        raw, log_scale = self._parameters(condition)
        mean = y.mean()
        new, log_slope = spline.forward(mean[None], raw, self.interval, least=LEAST_GAP)
        return y + (new[0] * jnp.exp(log_scale) - mean), log_slope[0] + log_scale

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: the scale of the mean undone, then the inverse spline."""
        raw, log_scale = self._parameters(condition)
        mean = x.mean()
        new, log_slope = spline.inverse(mean[None] * jnp.exp(-log_scale), raw, self.interval, least=LEAST_GAP)
        return x + (new[0] - mean), log_slope[0] - log_scale


class Spectrum(AbstractBijection):
    """Every Fourier mode but the zero mode, scaled by a propagator that follows c and the mean of the field.

    Mode k is divided by its width a / sqrt(k̂² + M²) · exp(b k̂²), with k̂² = Σ_μ (2 - 2 cos k_μ), so that a free
    field becomes white noise.
    """

    network: Network
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)

    def __init__(self, key: Array, shape: tuple[int, ...], cond_dim: int, *, width: int) -> None:
        self.shape, self.cond_shape = shape, (cond_dim,)
        self.network = MLP(width, 2).build(key, cond_dim + 1, 3)

    def _log_widths(self, mean: Array, condition: Array | None) -> Array:
        assert condition is not None
        scale, mass, slope = self.network(jnp.concatenate([condition, jnp.square(bounded(mean, 4.0))[None]]))
        momenta = squared_momenta(self.shape)
        # The typical k̂² is 2 in each dimension: there the width is one before training.
        typical = 2.0 * len(self.shape)
        tilt = slope * (momenta / typical - 1.0)
        log_widths = scale + tilt + 0.5 * jnp.log((typical + 1.0) / (momenta + jax.nn.softplus(mass + _UNIT_MASS)))
        return jnp.where(momenta > 0, log_widths, 0.0)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From data to latent: modes divided by their widths."""
        log_widths = self._log_widths(y.mean(), condition)
        return from_modes(to_modes(y, self.shape) * jnp.exp(-log_widths), self.shape), -log_widths.sum()

    def transform_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """From latent to data: modes multiplied by their widths."""
        log_widths = self._log_widths(x.mean(), condition)
        return from_modes(to_modes(x, self.shape) * jnp.exp(log_widths), self.shape), log_widths.sum()

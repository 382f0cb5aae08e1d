"""Real Fourier modes of fields on a periodic lattice of any dimension and length."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

DENSE = 256  # sites whose modes are one product: for more, one along each axis is cheaper


def to_modes(x: Array, shape: tuple[int, ...]) -> Array:
    """Fields in the orthonormal real Fourier basis.

    Args:
        x: Fields, of shape (..., *shape).
        shape: The lattice.

    Returns:
        Their modes, in an array of the same shape.
    """
    return _along_axes(x, shape, lambda n: real_modes(n).T)


def from_modes(x: Array, shape: tuple[int, ...]) -> Array:
    """Fields from their modes: the inverse of ``to_modes``.

    Args:
        x: Modes, of shape (..., *shape).
        shape: The lattice.

    Returns:
        The fields, in an array of the same shape.
    """
    return _along_axes(x, shape, real_modes)


def convolved(x: Array, kernels: np.ndarray, shape: tuple[int, ...]) -> Array:
    """The sum of fields, each convolved with a kernel of its own.

    Args:
        x: Fields, of shape (kernels, *shape).
        kernels: The kernels in Fourier space, of the same shape.
        shape: The lattice.

    Returns:
        One field.
    """
    if math.prod(shape) > DENSE:
        return from_modes(jnp.sum(kernels.astype(x.dtype) * to_modes(x, shape), axis=0), shape)
    modes = _all(shape, real_modes)
    together = np.concatenate([modes.T @ (k.reshape(-1, 1) * modes) for k in kernels])
    return _times(x.reshape(-1), together).reshape(shape)


def _along_axes(x: Array, shape: tuple[int, ...], matrix: Callable[[int], np.ndarray]) -> Array:
    """Every axis of the lattice multiplied by its matrix from the right."""
    lead = x.shape[: x.ndim - len(shape)]
    if math.prod(shape) <= DENSE:
        return _times(x.reshape(*lead, -1), _all(shape, matrix)).reshape(x.shape)
    for axis, n in enumerate(shape, start=len(lead)):
        x = jnp.moveaxis(_times(jnp.moveaxis(x, axis, -1), matrix(n)), -1, axis)
    return x


def _all(shape: tuple[int, ...], matrix: Callable[[int], np.ndarray]) -> np.ndarray:
    """The matrices of all axes as one, for fields whose sites are numbered in order."""
    together = np.ones((1, 1))
    for n in shape:
        together = np.kron(together, matrix(n))
    return together


def _times(x: Array, matrix: np.ndarray) -> Array:
    return jnp.matmul(x, matrix.astype(x.dtype), precision=jax.lax.Precision.HIGHEST)


def real_modes(n: int) -> np.ndarray:
    """The orthonormal real Fourier basis of n sites, one mode per row, in the order of ``_wave_numbers``."""
    sites = np.arange(n)
    rows = []
    for k, wave in enumerate(_wave_numbers(n)):
        angle = 2.0 * np.pi * wave * sites / n
        row = np.cos(angle) if k == 0 or k % 2 == 1 else np.sin(angle)
        rows.append(row / np.linalg.norm(row))
    return np.stack(rows)


def _wave_numbers(n: int) -> np.ndarray:
    """0, 1, 1, 2, 2, ..., n/2: cosine and sine of each."""
    return (np.arange(n) + 1) // 2


def squared_momenta(shape: tuple[int, ...]) -> np.ndarray:
    """k̂² = Σ_μ (2 - 2 cos k_μ) of every real Fourier mode of a lattice."""
    per_axis = [2.0 - 2.0 * np.cos(2.0 * np.pi * _wave_numbers(n) / n) for n in shape]
    return np.sum(np.meshgrid(*per_axis, indexing="ij"), axis=0)

"""Rays in the chart, from the boundary values to the ends of the range: the shape of what a frontier has reached."""

import itertools
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array

from trade.abstract_condition import AbstractCondition

AT_END = 1e-4  # of the chart


class Rays(NamedTuple):
    """Where rays begin and end in the chart; and test points of the range, to say how much of it is reached.

    Args:
        boundary: The boundary values, of shape (W, axes).
        home: Index of the boundary value that each ray begins at, of shape (rays,).
        span: From there to where it ends, of shape (rays, axes).
        tests: Points spread evenly over the range, of shape (points, axes).
        test_ray: For each boundary value and test point, the ray whose cone it lies in, of shape (W, points).
        test_part: At which part of the way to the end of that cone; above 1 beyond it.
    """

    boundary: np.ndarray
    home: np.ndarray
    span: np.ndarray
    tests: np.ndarray
    test_ray: np.ndarray
    test_part: np.ndarray

    @classmethod
    def of(cls, condition: AbstractCondition) -> "Rays":
        """The rays of a condition with boundary values."""
        condition.boundary_chart()  # refused where there are none
        return _rays(condition)

    def at(self, ray: Array, reach: Array) -> Array:
        """The points of some rays at parts of their way."""
        start, span = (jnp.asarray(v, reach.dtype)[ray] for v in (self.boundary[self.home], self.span))
        return start + reach[..., None] * span

    def inside(self, reach: Array, key: Array, n: int) -> Array:
        """n conditions, uniform over what is reached: test points by their cone's volume, shrunk towards their home."""
        key_choice, key_place = jax.random.split(key)
        axes = self.boundary.shape[1]
        part = reach[self.test_ray]
        within = (self.test_part <= part).sum(axis=0)  # a point that several boundary values have reached counts once
        # A cone that is reached to a part s has s^axes of its volume.
        size = jnp.where(self.test_part <= 1.0, jnp.maximum(part, 1e-6) ** axes, 0.0) / jnp.maximum(within, 1)
        upto = jnp.cumsum(size.ravel())
        chosen = jnp.searchsorted(upto, upto[-1] * jax.random.uniform(key_choice, (n,)), side="right")
        home, point = jnp.divmod(jnp.minimum(chosen, upto.size - 1), len(self.tests))
        cell = len(self.tests) ** (-1.0 / axes)
        place = jnp.asarray(self.tests, reach.dtype)[point] + cell * jax.random.uniform(
            key_place, (n, axes), minval=-1.0, maxval=1.0
        )
        origin = jnp.asarray(self.boundary, reach.dtype)[home]
        return origin + part[home, point][:, None] * (jnp.clip(place, -1.0, 1.0) - origin)

    def part(self, reach: Array) -> Array:
        """How much of the range is reached: the part of the test points that lie in a region."""
        return jnp.mean((self.test_part <= reach[self.test_ray]).any(axis=0), dtype=reach.dtype)


@cache
def _rays(condition: AbstractCondition) -> Rays:
    boundary = condition.boundary_u.reshape(len(condition.boundary), -1)
    count, axes = boundary.shape
    home, span = [], []
    for i, start in enumerate(boundary):
        found: list[np.ndarray] = []
        for aim in _surface(axes) - start:
            size = np.linalg.norm(aim)
            if size > AT_END and not any(f @ aim / size > 1.0 - 1e-6 for f in found):
                found.append(aim / size)
        ends = [direction * _length(start, direction, boundary) for direction in found]
        ends = [end for end in ends if np.abs(end).max() > AT_END]
        home += [i] * len(ends)
        span += ends
    spans, homes = np.array(span).reshape(-1, axes), np.array(home, int)
    even = np.arange(1024)[:, None] / 1024
    cells = even if axes == 1 else scipy.stats.qmc.Sobol(axes, scramble=False).random(512)
    points = 2.0 * (cells + 0.5 / len(cells)) - 1.0
    test_ray, test_part = np.zeros((count, len(points)), int), np.zeros((count, len(points)))
    unit = spans / np.linalg.norm(spans, axis=1, keepdims=True)
    for i, start in enumerate(boundary):
        for j, point in enumerate(points):
            size = np.linalg.norm(point - start)
            if size > AT_END:
                direction = (point - start) / size
                test_ray[i, j] = np.argmax(np.where(homes == i, unit @ direction, -np.inf))
                test_part[i, j] = size / max(_length(start, direction, boundary), 1e-12)
    return Rays(boundary, homes, spans, points, test_ray, test_part)


def _surface(axes: int) -> np.ndarray:
    """Points on the surface of the chart [-1, 1]ᵏ that rays aim at."""
    if axes > 3:  # corners and middles of faces
        corners = np.array(list(itertools.product([-1.0, 1.0], repeat=axes)))
        return np.concatenate([corners, np.eye(axes), -np.eye(axes)])
    line = np.linspace(-1.0, 1.0, 5 if axes == 2 else 3)
    grid = np.stack(np.meshgrid(*[line] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
    return grid[np.abs(grid).max(axis=1) == 1.0]


def _length(start: np.ndarray, direction: np.ndarray, boundary: np.ndarray) -> float:
    """How far a ray goes: to the end of the range, and no farther than other boundary values lie in its direction."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = (np.sign(direction) - start) / direction
        to_others = boundary - start
        walls = np.sum(to_others**2, axis=1) / (to_others @ direction)
    found = np.concatenate([ends[np.abs(direction) > 1e-12], walls[(to_others @ direction) > 1e-9]])
    return float(max(found.min(), 0.0))

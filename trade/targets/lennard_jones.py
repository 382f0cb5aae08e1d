"""A Lennard-Jones crystal in a periodic box whose volume fluctuates: temperature and pressure."""

from functools import cache
from itertools import permutations, product
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget
from trade.axes import Axes, check_axes
from trade.condition import Condition, check_condition
from trade.errors import TradeError

WIDTH = 0.02  # unit of log V; that of displacements is twice as many cubic cells: states are of order one
LARGEST, WALL = 0.3, 1e4  # displacement without a wall, in cubic cells, and how hard the wall is
SOLID = Axes({"T": Condition(0.3, 0.6), "P": Condition(1.0, 5.0, scale="linear")}, boundary=(0.45, 3.0))


def _fcc(cells: tuple[int, int, int]) -> np.ndarray:
    """Sites in cubic cells."""
    basis = np.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])
    corners = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), axis=-1).reshape(-1, 1, 3)
    return (corners + basis).reshape(-1, 3)


@cache
def _crystal_symmetries(cells: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Turns of the box onto itself, as matrices; where they take each site; and where each translation does."""
    sites, box = _fcc(cells), np.array(cells)
    index = {tuple(s): i for i, s in enumerate(np.round(2 * sites).astype(int))}

    def found(places: np.ndarray) -> list[int]:
        return [index[tuple(p)] for p in np.round(2 * places).astype(int) % (2 * box)]

    turns = [
        np.diag(signs) @ np.eye(3)[list(order)]
        for order in permutations(range(3))
        for signs in product((1.0, -1.0), repeat=3)
        if all(box[order[i]] == box[i] for i in range(3))
    ]
    turned = np.array([found(sites @ turn.T) for turn in turns])
    return np.array(turns), turned, np.array([found(sites + step) for step in sites])


class LennardJones(AbstractTarget):
    """q(s, V|T, P) = V^(N+1) exp(-(U + P V)/T): N particles near the sites of a face-centred cubic crystal.

    A state has the displacements of all particles but the last from their sites, in units of 0.04 cubic cells, then
    log V less its value at density one, in units of 0.02. The last particle stays at its site: that takes out
    translations, and N + 1 powers of the volume remain, one of them of log V as the coordinate. Particles have
    names, and keep their sites: one phase. Those whose sites are within one and a half cubic cells interact
    by 4 (r⁻¹² - r⁻⁶), in reduced units: a choice by sites leaves the energy smooth. A wall keeps each of them within
    0.3 cubic cells of its site, well before it could change places, as seen from their common centre.

    Every translation, rotation and reflection that takes the crystal in its box to itself is a symmetry: with it 32
    particles have 1,536 states for each one that was simulated.

    Args:
        cells: Cubic cells along each side of the box, one number or three; there are four particles in each.
        condition: ``trade.Axes`` with the names ``T`` and ``P``, or a temperature alone at the given pressure.
        pressure: Where it is not part of the condition.
    """

    cells: tuple[int, int, int] = eqx.field(static=True)
    condition: AbstractCondition = eqx.field(static=True)
    pressure: float = eqx.field(static=True)

    def __init__(
        self,
        cells: int | tuple[int, int, int] = 2,
        condition: AbstractCondition = SOLID,
        pressure: float = 1.0,
    ) -> None:
        sides = tuple(cells) if isinstance(cells, tuple | list) else (cells,) * 3
        if len(sides) != 3:
            raise TradeError(f"LennardJones cells must be one integer or three, got {check.shown(cells)}.")
        one, two, three = (check.integer(n, "LennardJones cells") for n in sides)
        self.cells = one, two, three
        check_axes(condition, "LennardJones", "T", "P")
        check_condition(condition["T"] if isinstance(condition, Axes) else condition, positive="a temperature")
        self.pressure = check.number(pressure, "LennardJones pressure")
        self.condition = condition

    @property
    def particles(self) -> int:
        """N."""
        return 4 * prod(self.cells)

    @property
    def shape(self) -> tuple[int, ...]:
        """Three coordinates of all particles but one, and one for the volume."""
        return (3 * (self.particles - 1) + 1,)

    @property
    def sites(self) -> np.ndarray:
        """Where the particles of the perfect crystal are, in cubic cells, of shape (N, 3)."""
        return _fcc(self.cells)

    def bonds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which particles interact, each pair once, images among them.

        Returns:
            Both particles of each pair, and the step from the second site to the first in cubic cells, (n, 3).
        """
        images = np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
        step = self.sites[:, None, None] - self.sites[None, :, None] + images * np.array(self.cells)
        first, second, image = np.nonzero(np.linalg.norm(step, axis=-1) <= 1.5 + 1e-9)
        # A particle and its own image: one of two opposite ones.
        once = (first < second) | ((first == second) & (image > len(images) // 2))
        return first[once], second[once], step[first, second, image][once]

    @property
    def has_symmetry(self) -> bool:
        """Those of the crystal."""
        return True

    def symmetry(self, key: Array, x: Array) -> Array:
        """A random translation, then a rotation or reflection, that takes all sites to sites."""
        n, (turns, turned, moved) = self.particles, _crystal_symmetries(self.cells)
        one, two = jax.random.split(key)
        turn, step = jax.random.randint(one, (), 0, len(turns)), jax.random.randint(two, (), 0, n)
        away = jnp.concatenate([x[:-1].reshape(n - 1, 3), jnp.zeros((1, 3), x.dtype)])
        to = jnp.asarray(turned)[turn][jnp.asarray(moved)[step]]  # the site that each particle comes to
        away = jnp.zeros_like(away).at[to].set(away @ jnp.asarray(turns, x.dtype)[turn].T, unique_indices=True)
        return jnp.concatenate([(away - away[-1])[:-1].reshape(-1), x[-1:]])

    def config(self) -> dict:
        """The constructor's arguments."""
        return {"cells": self.cells, "condition": self.condition, "pressure": self.pressure}

    def volume(self, x: Array) -> Array:
        """V of a state.

        Args:
            x: One state.

        Returns:
            A scalar, in reduced units.
        """
        return self.particles * jnp.exp(WIDTH * x[-1])

    def energy(self, x: Array) -> Array:
        """U of a state.

        Args:
            x: One state.

        Returns:
            A scalar, in reduced units.
        """
        n = self.particles
        moved = jnp.concatenate([2.0 * WIDTH * x[:-1].reshape(n - 1, 3), jnp.zeros((1, 3), x.dtype)])
        first, second, step = self.bonds()
        away = jnp.asarray(step, x.dtype) + moved[first] - moved[second]
        inverse = (4.0 * self.volume(x) / n) ** (-2.0 / 3.0) / jnp.maximum(jnp.sum(away**2, axis=-1), 1e-6)
        sixth = jnp.minimum(inverse, 4.0) ** 3  # a clash is a large but finite energy
        outside = jnp.maximum(jnp.abs(moved - moved.mean(axis=0)) - LARGEST, 0.0)
        return 4.0 * jnp.sum(sixth * (sixth - 1.0)) + WALL * jnp.sum(outside**2)

    def _parameters(self, c: Array) -> tuple[Array, Array | float]:
        """Temperature and pressure of a condition."""
        at = self.condition.point(c)
        return (at.T, at.P) if isinstance(self.condition, Axes) else (at, self.pressure)

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """-(U + P V)/T + (N + 1) log V, up to a constant."""
        temperature, pressure = self._parameters(c)
        enthalpy = self.energy(x) + pressure * self.volume(x)
        return -enthalpy / temperature + (self.particles + 1) * WIDTH * x[-1]

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_T log q = (U + P V)/T², and ∂_P log q = -V/T."""
        temperature, pressure = self._parameters(c)
        volume = self.volume(x)
        by_temperature = (self.energy(x) + pressure * volume) / temperature**2
        if not isinstance(self.condition, Axes):
            return by_temperature
        found = {"T": by_temperature, "P": -volume / temperature}
        return jnp.stack([found[name] for name in self.condition.names])

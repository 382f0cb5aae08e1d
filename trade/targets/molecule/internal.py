"""Internal coordinates of a molecule by a Z-matrix: bonds, angles and torsions, both ways."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.errors import TradeError
from trade.targets.molecule.force_field import angle, torsion


class Internal(NamedTuple):
    """Internal coordinates; those of the three reference atoms come first.

    Args:
        bonds: Lengths in nm, one less than atoms.
        angles: In radians, two less.
        torsions: In (-π, π], three less.
    """

    bonds: Array
    angles: Array
    torsions: Array


@dataclass(frozen=True)
class ZMatrix:
    """How each atom is placed by three others.

    Args:
        reference: Three atoms a, b, c, whose bonds a-b and b-c and angle a-b-c come first.
        rows: For every other atom (atom, bonded, angle, torsion): its distance to the second, the angle with the
            third, the torsion with the fourth. In any order in which it can be resolved.
    """

    reference: tuple[int, int, int]
    rows: tuple[tuple[int, int, int, int], ...]
    _levels: tuple[np.ndarray, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        atoms = [*self.reference, *(row[0] for row in self.rows)]
        if sorted(atoms) != list(range(len(atoms))):
            raise TradeError(f"ZMatrix must place every atom from 0 to {len(atoms) - 1} once, got {sorted(atoms)}.")
        placed, waiting, levels = set(self.reference), list(range(len(self.rows))), []
        while waiting:
            ready = [i for i in waiting if placed.issuperset(self.rows[i][1:])]
            if not ready:
                stuck = [self.rows[i] for i in waiting]
                raise TradeError(f"ZMatrix rows {stuck} need each other: no order of placing atoms resolves them.")
            placed.update(self.rows[i][0] for i in ready)
            waiting = [i for i in waiting if i not in ready]
            levels.append(np.array(ready))
        object.__setattr__(self, "_levels", tuple(levels))

    @property
    def atoms(self) -> int:
        """Number of atoms."""
        return len(self.rows) + 3

    @property
    def bonded(self) -> np.ndarray:
        """Both atoms of every bond, in the order of ``Internal.bonds``."""
        a, b, c = self.reference
        return np.array([(a, b), (b, c), *(row[:2] for row in self.rows)])

    def to_internal(self, x: Array) -> Internal:
        """Bonds, angles and torsions of positions of shape (atoms, 3)."""
        if x.shape != (self.atoms, 3):
            raise TradeError(f"Positions must have shape ({self.atoms}, 3), got {x.shape}.")
        a, b, c = (x[i] for i in self.reference)
        i, j, k, m = (x[np.array(column, int)] for column in zip(*self.rows, strict=True))
        ends = x[self.bonded[:, 1]] - x[self.bonded[:, 0]]
        bonds = jnp.sqrt(jnp.sum(ends**2, axis=-1))
        angles = jnp.concatenate([angle(a, b, c)[None], angle(i, j, k)])
        return Internal(bonds, angles, torsion(i, j, k, m))

    def to_positions(self, internal: Internal) -> Array:
        """Positions with the first reference atom at the origin, the second on the x axis, the third in the plane."""
        bonds, angles, torsions = internal
        _, b, c = self.reference
        x = jnp.zeros((self.atoms, 3), bonds.dtype)
        x = x.at[b, 0].set(bonds[0])
        x = x.at[c, 0].set(bonds[0] - bonds[1] * jnp.cos(angles[0]))
        x = x.at[c, 1].set(bonds[1] * jnp.sin(angles[0]))
        for level in self._levels:  # atoms that need only those of levels before, all at once
            atom, j, k, m = np.array([self.rows[i] for i in level]).T
            placed = _place(x[j], x[k], x[m], bonds[level + 2], angles[level + 1], torsions[level])
            x = x.at[atom].set(placed)
        return x

    def log_det(self, internal: Internal) -> Array:
        """log |∂ positions / ∂ internal|, up to the volume of rigid motions: 2 Σ log b + Σ log sin θ."""
        # Finite also where no molecule is.
        bonds = jnp.maximum(jnp.abs(internal.bonds), 1e-6)
        sines = jnp.maximum(jnp.abs(jnp.sin(internal.angles)), 1e-6)
        return 2.0 * jnp.sum(jnp.log(bonds)) + jnp.sum(jnp.log(sines))


def _place(bonded: Array, second: Array, third: Array, bond: Array, theta: Array, phi: Array) -> Array:
    """The point at a distance, an angle and a torsion from three others."""
    along = _unit(second - bonded)
    normal = _unit(jnp.cross(third - second, along))
    across = jnp.cross(along, normal)
    bond, theta, phi = bond[:, None], theta[:, None], phi[:, None]
    aside = across * jnp.cos(phi) + normal * jnp.sin(phi)
    return bonded + bond * (jnp.cos(theta) * along + jnp.sin(theta) * aside)


def _unit(v: Array) -> Array:
    return v / jnp.sqrt(jnp.sum(v * v, axis=-1, keepdims=True))

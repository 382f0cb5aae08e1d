"""Internal coordinates of a molecule by a Z-matrix: bonds, angles and torsions, both ways."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
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
        object.__setattr__(self, "reference", _atoms(self.reference, 3, "ZMatrix reference"))
        check.instance(self.rows, (tuple, list), "ZMatrix rows", "a tuple of rows (atom, bonded, angle, torsion)")
        object.__setattr__(self, "rows", tuple(_atoms(row, 4, "A row of a ZMatrix") for row in self.rows))
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
            levels.append(np.array(ready, np.int32))  # the same index with 64 bits and without
        object.__setattr__(self, "_levels", tuple(levels))

    @classmethod
    def from_bonds(cls, bonds: Iterable[tuple[int, int]], chain: Sequence[int] = ()) -> "ZMatrix":
        """A Z-matrix of any connected molecule, placed from the middle of a long chain outwards.

        Beyond every bond, the atom with most others behind it has the torsion about that bond. The others there are
        turned against it (by about 120° or 180°), so that torsions are nearly independent. Atoms with one bond, such as
        hydrogens, have the last rows.

        Warning: A ring leaves out one of its bonds, far from the middle; this cannot be a constrained one. Where three
        bonded atoms are on a line, as in a nitrile, torsions have no meaning.

        Args:
            bonds: Pairs of atoms, numbered from 0. Of an OpenMM topology,
                ``[(i.index, j.index) for i, j in topology.bonds()]``.
            chain: A main chain, such as the backbone of a peptide, in its order: it is placed from its own middle, and
                has the torsions about all its bonds, whatever else is bonded to it. None by default.

        Example:
            >>> ZMatrix.from_bonds([(0, 1), (1, 2), (2, 3), (3, 4)])
            ZMatrix(reference=(1, 2, 3), rows=((0, 1, 2, 3), (4, 3, 2, 1)))
        """
        neighbours = _neighbours(bonds)
        main = _main_chain(chain, neighbours)
        a, b = main[len(main) // 2 - 1 : len(main) // 2 + 1] if main else _middle_bond(neighbours)
        before = _reached(neighbours, {b: a, a: b})  # b first, so that it has atoms beyond it
        behind: Counter[int] = Counter()
        for atom in reversed(before):
            if atom not in (a, b):
                behind[before[atom]] += 1 + behind[atom]
        first: dict[int, int] = {}
        for atom in sorted(before, key=lambda i: (i not in main, -behind[i], i)):
            if atom not in (a, b):
                first.setdefault(before[atom], atom)

        def row(atom: int) -> tuple[int, int, int, int]:
            bonded, second = before[atom], before[before[atom]]
            onwards = first[b] if bonded == a else before[second]
            return atom, bonded, second, onwards if atom == first[bonded] else first[bonded]

        reference = (a, b, first[b])
        rest = sorted((i for i in before if i not in reference), key=lambda i: len(neighbours[i]) == 1)
        return cls(reference, tuple(row(i) for i in rest))

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
        x = jnp.asarray(check.array(x, "Positions", (self.atoms, 3)))
        a, b, c = (x[i] for i in self.reference)
        i, j, k, m = (x[column] for column in np.array(self.rows, int).reshape(-1, 4).T)
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
            atom, j, k, m = np.array([self.rows[i] for i in level], np.int32).T
            placed = _place(x[j], x[k], x[m], bonds[level + 2], angles[level + 1], torsions[level])
            x = x.at[atom].set(placed)
        return x

    def log_det(self, internal: Internal) -> Array:
        """log |∂ positions / ∂ internal|, up to the volume of rigid motions: 2 Σ log b + Σ log sin θ."""
        # Finite also where no molecule is.
        bonds = jnp.maximum(jnp.abs(internal.bonds), 1e-6)
        sines = jnp.maximum(jnp.abs(jnp.sin(internal.angles)), 1e-6)
        return 2.0 * jnp.sum(jnp.log(bonds)) + jnp.sum(jnp.log(sines))


def _atoms(values: Any, many: int, name: str) -> tuple:
    """Numbers of so many different atoms."""
    if not isinstance(values, tuple | list) or len(values) != many:
        raise TradeError(f"{name} must be {many} atoms, got {check.shown(values)}.")
    found = tuple(check.integer(i, f"An atom of {name[0].lower() + name[1:]}", 0) for i in values)
    if len(set(found)) != many:
        raise TradeError(f"{name} must be {many} different atoms, got {check.shown(values)}.")
    return found


def _neighbours(bonds: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The atoms bonded to each atom."""
    try:
        pairs = {(check.integer(i, "An atom", 0), check.integer(j, "An atom", 0)) for i, j in bonds}
    except (TypeError, ValueError) as error:
        raise TradeError(f"ZMatrix.from_bonds takes pairs of atoms, numbered from 0: {check.reason(error)}.") from error
    if any(i == j for i, j in pairs):
        raise TradeError("ZMatrix.from_bonds takes pairs of different atoms, numbered from 0.")
    atoms = 1 + max((max(pair) for pair in pairs), default=-1)
    if atoms < 3:
        raise TradeError("ZMatrix.from_bonds needs the bonds of three atoms or more.")
    neighbours: list[set[int]] = [set() for _ in range(atoms)]
    for i, j in pairs:
        neighbours[i].add(j)
        neighbours[j].add(i)
    return [sorted(n) for n in neighbours]


def _main_chain(chain: Any, neighbours: list[list[int]]) -> list[int]:
    """The atoms of a main chain, each bonded to the next."""
    check.instance(chain, (tuple, list), "ZMatrix.from_bonds chain", "atoms in the order of a chain")
    found = [check.integer(i, "An atom of the chain", 0, len(neighbours) - 1) for i in chain]
    broken = [(i, j) for i, j in pairwise(found) if j not in neighbours[i]]
    if broken or len(set(found)) < len(found) or len(found) == 1:
        what = f"{broken[0][0]} and {broken[0][1]} are not bonded" if broken else "two or more different ones"
        raise TradeError(f"ZMatrix.from_bonds chain must be atoms that are bonded one to the next: {what}.")
    return found


def _reached(neighbours: list[list[int]], start: dict[int, int]) -> dict[int, int]:
    """All atoms by breadth from a few, and the one before each."""
    before, queue = dict(start), list(start)
    for i in queue:
        new = [j for j in neighbours[i] if j not in before]
        before.update((j, i) for j in new)
        queue.extend(new)
    return before


def _middle_bond(neighbours: list[list[int]]) -> tuple[int, int]:
    """Two atoms in the middle of a longest chain (roughly so in a molecule with rings)."""
    from_first = list(_reached(neighbours, {0: 0}))
    if len(from_first) < len(neighbours):
        missing = min(set(range(len(neighbours))).difference(from_first))
        raise TradeError(f"The molecule is in pieces: no chain of bonds leads from atom 0 to atom {missing}.")
    end = from_first[-1]
    before = _reached(neighbours, {end: end})
    chain = [list(before)[-1]]
    while chain[-1] != end:
        chain.append(before[chain[-1]])
    return chain[len(chain) // 2 - 1], chain[len(chain) // 2]


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

"""What is shown of a state: its coordinates, or, of a field, its mean and the mean of its square."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trade.abstract_target import AbstractTarget
from trade.report.grids import range_of
from trade.targets.molecule.alanine_dipeptide import PHI, PSI, AlanineDipeptide
from trade.targets.molecule.boltzmann import Molecule

MOST = 6  # quantities that a page shows
BINS = 40  # of the histograms by which they are chosen


class Quantity(NamedTuple):
    """A number of a state.

    Args:
        name: How it is called.
        index: Which coordinate of the flattened state; or, of a field, which power of it is averaged.
        angle: Whether it is an angle, shown in degrees from -180 to 180.
        field: Whether it is a mean over a field.
    """

    name: str
    index: int
    angle: bool = False
    field: bool = False

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Its values for states along the first axis."""
        flat = np.asarray(x, np.float64).reshape(len(x), -1)
        if self.field:
            return (flat**self.index).mean(axis=1)
        value = flat[:, self.index]
        return (np.rad2deg(value) + 180.0) % 360.0 - 180.0 if self.angle else value


def is_field(target: AbstractTarget | None, shape: tuple[int, ...]) -> bool:
    """Whether states are shown as pictures: a lattice, or an array of some width in both directions."""
    return (target is not None and target.lattice) or (len(shape) == 2 and min(shape) >= 4)


def quantities(target: AbstractTarget | None, shape: tuple[int, ...]) -> list[Quantity]:
    """All that may be shown.

    Args:
        target: The target, if at hand: it knows which coordinates are angles, and what they are called.
        shape: Shape of one state.

    Returns:
        One quantity a coordinate, or two of a field.
    """
    if is_field(target, shape):
        return [
            Quantity("magnetisation (mean of the field)", 1, field=True),
            Quantity("mean square of the field", 2, field=True),
        ]
    angles = set(() if target is None else target.angles)
    names = [f"x[{', '.join(map(str, at))}]" if at else "x" for at in np.ndindex(*shape)]
    inner = getattr(target, "inner", target)  # of a target with further coordinates
    if isinstance(inner, Molecule):
        for i in range(inner.shape[0]):
            kind = "bond" if i < len(inner.free) else "torsion" if i in inner.torsions else "angle"
            names[i] = f"{kind} {names[i]}"
    if isinstance(inner, AlanineDipeptide):
        names[inner.torsions[PHI]], names[inner.torsions[PSI]] = "φ", "ψ"
    return [Quantity(name, i, i in angles) for i, name in enumerate(names)]


def torsion_pair(of: Sequence[Quantity], x: np.ndarray) -> tuple[Quantity, Quantity] | None:
    """φ and ψ, or else the two angles that turn most; None without two angles.

    Args:
        of: The quantities of a state.
        x: States.
    """
    angles = [q for q in of if q.angle]
    if len(angles) < 2:
        return None
    known = {q.name: q for q in angles}
    if "φ" in known and "ψ" in known:
        return known["φ"], known["ψ"]
    length = [abs(np.mean(np.exp(1j * np.deg2rad(q(x))))) for q in angles]  # one where an angle never changes
    one, two = sorted(np.argsort(length)[:2])
    return angles[one], angles[two]


def most_changing(values: np.ndarray, weights: np.ndarray, home: int, most: int = MOST) -> list[int]:
    """Which quantities have marginals that change most with c.

    Args:
        values: Shape (conditions, samples, quantities).
        weights: Shape (conditions, samples), each row with sum one.
        home: The condition to compare with.
        most: How many are wanted.

    Returns:
        Their indices, in increasing order.
    """
    if values.shape[2] <= most:
        return list(range(values.shape[2]))
    change = []
    for k in range(values.shape[2]):
        edges = np.linspace(*range_of(values[..., k]), BINS + 1)
        shares = np.array([np.histogram(v, edges, weights=w)[0] for v, w in zip(values[..., k], weights, strict=True)])
        change.append(float(np.abs(shares - shares[home]).sum(axis=1).max()))
    return sorted(int(i) for i in np.argsort(change)[::-1][:most])

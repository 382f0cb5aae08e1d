"""Alanine dipeptide, ACE-ALA-NME: 22 atoms in Amber's order, amber99sb-ildn with OBC implicit solvent."""

from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from jax import Array

from trade.condition import Condition
from trade.targets.molecule.boltzmann import Molecule
from trade.targets.molecule.force_field import ForceField
from trade.targets.molecule.internal import ZMatrix

# Name of each atom and of its residue.
ATOMS = {
    "ACE": ("HH31", "CH3", "HH32", "HH33", "C", "O"),
    "ALA": ("N", "H", "CA", "HA", "CB", "HB1", "HB2", "HB3", "C", "O"),
    "NME": ("N", "H", "CH3", "HH31", "HH32", "HH33"),
}
Z_MATRIX = ZMatrix(
    (14, 8, 6),
    (
        (0, 1, 4, 6),
        (1, 4, 6, 8),
        (2, 1, 4, 0),
        (3, 1, 4, 0),
        (4, 6, 8, 14),
        (5, 4, 6, 8),
        (7, 6, 8, 4),
        (11, 10, 8, 6),
        (12, 10, 8, 11),
        (13, 10, 8, 11),
        (15, 14, 8, 16),
        (16, 14, 8, 6),
        (17, 16, 14, 15),
        (18, 16, 14, 8),
        (19, 18, 16, 14),
        (20, 18, 16, 19),
        (21, 18, 16, 19),
        (9, 8, 6, 14),
        (10, 8, 14, 6),
    ),
)
# By row of the Z-matrix: the backbone's torsions, that of HA, whose sign is the chirality, and all about which a part
# of the molecule turns freely (the backbone's two, and those of the methyl groups).
PHI, PSI, HA = 4, 11, 17
ROTORS = (0, PHI, 7, PSI, 14)
# An extended structure of the L form, in degrees; it is rough, and has no clash.
_TORSIONS = (180, 180, 120, -120, -145, 0, 180, 60, 120, -120, 180, 160, 180, 180, 180, 120, -120, 120, 120)
_BOND, _ANGLE = 0.145, 1.95


@cache
def force_field() -> ForceField:
    """The parameters that are shipped, read off OpenMM's system by ``trade.targets.molecule.openmm``."""
    return ForceField.load(Path(str(files("trade.targets.molecule") / "alanine_dipeptide.json")))


class AlanineDipeptide(Molecule):
    """The molecule from 300 K to 600 K, with data at 600 K: 9 free bonds, 20 angles, 19 torsions."""

    def __init__(self) -> None:
        super().__init__(force_field(), Z_MATRIX, Condition(300.0, 600.0, scale="log", boundary=(600.0,)))

    @property
    def residues(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """ACE, ALA and NME, with the names of their atoms."""
        return tuple(ATOMS.items())

    def config(self) -> dict:
        """No arguments, for saving."""
        return {}

    def minimum(self) -> Array:
        """A minimum of the energy, with both halves of the backbone extended."""
        bonds, angles = np.full(len(self.free), _BOND), np.full(len(self.z_matrix.rows) + 1, _ANGLE)
        return self.minimised(np.concatenate([bonds, angles, np.deg2rad(_TORSIONS)]))

"""Alanine dipeptide, ACE-ALA-NME: 22 atoms in Amber's order, amber99sb-ildn with OBC implicit solvent."""

from functools import cache
from importlib.resources import files
from pathlib import Path

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
PHI, PSI = 4, 11  # torsions of the backbone, by row of the Z-matrix


@cache
def force_field() -> ForceField:
    """The parameters that are shipped, read off OpenMM's system by ``trade.targets.molecule.openmm``."""
    return ForceField.load(Path(str(files("trade.targets.molecule") / "alanine_dipeptide.json")))


def alanine_dipeptide() -> Molecule:
    """The molecule from 300 K to 600 K, with data at 600 K: 9 free bonds, 20 angles, 19 torsions."""
    return Molecule(force_field(), Z_MATRIX, Condition(300.0, 600.0, scale="log", boundary=(600.0,)))

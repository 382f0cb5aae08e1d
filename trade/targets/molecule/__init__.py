"""Molecules: energies in JAX, internal coordinates, and alanine dipeptide."""

from trade.targets.molecule.alanine_dipeptide import AlanineDipeptide
from trade.targets.molecule.around import Around
from trade.targets.molecule.boltzmann import Molecule
from trade.targets.molecule.force_field import ForceField
from trade.targets.molecule.internal import ZMatrix
from trade.targets.molecule.langevin import LeapfrogLangevin
from trade.targets.molecule.pdb import write_pdb
from trade.targets.molecule.peptides import Peptide, peptide
from trade.targets.molecule.trajectory import read_trajectory, write_trajectory

__all__ = [
    "AlanineDipeptide",
    "Around",
    "ForceField",
    "LeapfrogLangevin",
    "Molecule",
    "Peptide",
    "ZMatrix",
    "peptide",
    "read_trajectory",
    "write_pdb",
    "write_trajectory",
]

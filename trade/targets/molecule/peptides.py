"""Peptides by their sequence, ACE-...-NME: amber99sb-ildn with OBC implicit solvent. Needs the extra ``[md]``."""

from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.condition import Condition
from trade.errors import TradeError
from trade.targets.molecule.boltzmann import Molecule
from trade.targets.molecule.force_field import ForceField
from trade.targets.molecule.internal import ZMatrix
from trade.targets.molecule.openmm import from_system

# Amino acids without a ring: a Z-matrix would leave out one of its bonds.
LETTERS = {
    **{"A": "ALA", "C": "CYS", "D": "ASP", "E": "GLU", "G": "GLY", "I": "ILE", "K": "LYS", "L": "LEU"},
    **{"M": "MET", "N": "ASN", "Q": "GLN", "R": "ARG", "S": "SER", "T": "THR", "V": "VAL"},
}
_BACKBONE = {"ACE": ("CH3", "C"), "NME": ("N", "CH3")}
# Centres whose first three neighbours, seen with the fourth behind, turn against the clock.
_CENTRES = {"CA": ("N", "C", "CB")}
_SIDE_CENTRES = {"ILE": {"CB": ("CA", "CG1", "CG2")}, "THR": {"CB": ("CA", "OG1", "CG2")}}
TEMPERATURES = Condition(300.0, 600.0, scale="log", boundary=(600.0,))

Residues = tuple[tuple[str, tuple[str, ...]], ...]


@cache
def _built(sequence: str, solvent: str) -> tuple[ForceField, ZMatrix, Residues]:
    """Topology from the templates of the force field, which have the atoms and bonds of every residue."""
    app = check.library("openmm.app", "md")
    forces = app.ForceField("amber99sbildn.xml", solvent)
    topology = app.Topology()
    chain, atoms, backbone, residues = topology.addChain(), [], [], []
    for name in ("ACE", *(LETTERS[letter] for letter in sequence), "NME"):
        template = forces._templates[name]
        residue, first = topology.addResidue(name, chain), len(atoms)
        atoms += [topology.addAtom(a.name, a.element, residue) for a in template.atoms]
        for i, j in template.bonds:
            topology.addBond(atoms[first + i], atoms[first + j])
        names = tuple(a.name for a in template.atoms)
        if backbone:
            topology.addBond(atoms[backbone[-1]], atoms[first + names.index("N")])
        backbone += [first + names.index(a) for a in _BACKBONE.get(name, ("N", "CA", "C"))]
        residues.append((name, names))
    system = forces.createSystem(topology, nonbondedMethod=app.NoCutoff, constraints=app.HBonds)
    z_matrix = ZMatrix.from_bonds([(i.index, j.index) for i, j in topology.bonds()], backbone)
    return from_system(system), z_matrix, tuple(residues)


class Peptide(Molecule):
    """A peptide between an acetyl and an N-methyl group, of L amino acids, from 300 K to 600 K with data at 600 K.

    Args:
        sequence: Letters of amino acids without a ring, such as ``"AAA"``: any of ACDEGIKLMNQRSTV.
        condition: Temperatures in kelvin.
        solvent: The file of OpenMM that has the implicit solvent.

    Example:
        >>> target = Peptide("AAA")  # doctest: +SKIP
        >>> ReplicaExchange(jumps=target.rotors).sample(
        ...     target, key, 10_000, (300.0, 600.0), target.extended())  # doctest: +SKIP
    """

    sequence: str = eqx.field(static=True)
    solvent: str = eqx.field(static=True)
    _residues: Residues = eqx.field(static=True)

    def __init__(
        self, sequence: str, condition: AbstractCondition = TEMPERATURES, solvent: str = "amber99_obc.xml"
    ) -> None:
        if not isinstance(sequence, str) or not sequence or any(letter not in LETTERS for letter in sequence):
            raise TradeError(
                f"Peptide takes letters of amino acids without a ring ({''.join(LETTERS)}), such as 'AAA', got"
                f" {check.shown(sequence)}."
            )
        check.instance(solvent, str, "Peptide solvent", "the name of a file of OpenMM, such as 'amber99_obc.xml'")
        try:
            field, z_matrix, self._residues = _built(sequence, solvent)
        except (OSError, ValueError) as error:
            raise TradeError(f"OpenMM cannot build this peptide: {check.reason(error)}.") from error
        super().__init__(field, z_matrix, condition)
        self.sequence, self.solvent = sequence, solvent

    @property
    def residues(self) -> Residues:
        """ACE, the amino acids and NME, with the names of their atoms."""
        return self._residues

    def config(self) -> dict:
        """The constructor's arguments."""
        return {"sequence": self.sequence, "condition": self.condition, "solvent": self.solvent}

    def atom(self, residue: int, name: str) -> int:
        """The number of an atom.

        Args:
            residue: Number of its residue: 0 is ACE, 1 the first amino acid.
            name: Its name there, such as ``"CA"``.

        Returns:
            Its place among all atoms.
        """
        residue = check.integer(residue, "residue", 0, len(self._residues) - 1)
        names = self._residues[residue][1]
        if name not in names:
            raise TradeError(f"Residue {residue} has no atom {name!r}; it has {', '.join(names)}.")
        return sum(len(r[1]) for r in self._residues[:residue]) + names.index(name)

    @property
    def ramachandran(self) -> tuple[tuple[int, int], ...]:
        """Which coordinates of a state are φ and ψ of each amino acid."""

        def coordinate(*atoms: tuple[int, str]) -> int:
            wanted = tuple(self.atom(*a) for a in atoms)
            return self.torsions[next(i for i, r in enumerate(self.z_matrix.rows) if r in (wanted, wanted[::-1]))]

        return tuple(
            (
                coordinate((i - 1, "C"), (i, "N"), (i, "CA"), (i, "C")),
                coordinate((i, "N"), (i, "CA"), (i, "C"), (i + 1, "N")),
            )
            for i in range(1, len(self.sequence) + 1)
        )

    @property
    def rotors(self) -> tuple[int, ...]:
        """Coordinates about which a part of the molecule turns freely: torsions of bonds that are not partly double."""
        return tuple(
            self.torsions[i]
            for i, row in enumerate(self.z_matrix.rows)
            if self._turns(row) and {self._neighbours(row[1]), self._neighbours(row[2])} != {3}
        )

    def _neighbours(self, atom: int) -> int:
        return int(np.sum(self.z_matrix.bonded == atom))

    def _turns(self, row: tuple[int, int, int, int]) -> bool:
        """Whether a torsion is along a chain of bonds; others say how an atom is turned against its sibling."""
        return bool((np.sort(self.z_matrix.bonded) == np.sort(row[2:])).all(axis=1).any())

    def extended(self) -> Array:
        """A minimum of the energy, near a stretched chain of L amino acids.

        Returns:
            One state, from which a simulation can begin.
        """
        field, z = self.force_field, self.z_matrix
        lengths = {tuple(sorted(b)): r for b, r in zip(field.bonds.atoms.tolist(), field.bonds.rest, strict=True)}
        opened = {tuple(a): t for a, t in zip(field.angles.atoms.tolist(), field.angles.rest, strict=True)}

        def angle_of(i: int, j: int, k: int) -> float:
            return opened.get((i, j, k), opened.get((k, j, i), 1.95))

        bonds = [lengths[tuple(sorted(z.bonded[i].tolist()))] for i in self.free]
        angles = [angle_of(*z.reference), *(angle_of(*row[:3]) for row in z.rows)]
        torsions, sides = [], {}
        for row in z.rows:
            if self._turns(row) or self._neighbours(row[1]) == 3:
                torsions.append(np.pi)
            else:  # the second and the third of three siblings, to both sides of the first
                sides[row[1]] = -sides.get(row[1], -1.0)
                torsions.append(sides[row[1]] * 2.0 * np.pi / 3.0)
        state = np.concatenate([bonds, angles, torsions])
        return self.minimised(self._left_handed(state))

    def _centres(self) -> list[tuple[int, ...]]:
        """Chiral atoms, each with three neighbours that turn against the clock as seen with the fourth behind."""
        found = []
        for i, (name, names) in enumerate(self._residues):
            for centre, around in ({**_CENTRES, **_SIDE_CENTRES.get(name, {})}).items():
                if set(around) <= set(names):
                    found.append(tuple(self.atom(i, a) for a in (centre, *around)))
        return found

    def handedness(self, z: Array) -> Array:
        """For each chiral atom, whether it is as in L amino acids.

        Args:
            z: One state.

        Returns:
            Triple products of the bonds about each, positive for the L form.
        """
        centre, one, two, three = np.array(self._centres()).reshape(-1, 4).T
        x = self.to_positions(z)
        return jnp.sum((x[one] - x[centre]) * jnp.cross(x[two] - x[centre], x[three] - x[centre]), axis=-1)

    def _left_handed(self, state: np.ndarray) -> np.ndarray:
        """The state with every chiral atom that is not turned into the L form mirrored."""
        wrong = np.asarray(self.handedness(jnp.asarray(state, float))) < 0
        mirrored = {centre for is_wrong, (centre, *_) in zip(wrong, self._centres(), strict=True) if is_wrong}
        state = state.copy()
        for i, row in enumerate(self.z_matrix.rows):
            if row[1] in mirrored and not self._turns(row):
                state[self.torsions[i]] *= -1.0
        return state


def peptide(sequence: str) -> Peptide:
    """A peptide between an acetyl and an N-methyl group, from 300 K to 600 K with data at 600 K: see ``Peptide``.

    Args:
        sequence: Letters of amino acids, such as ``"AAA"``.

    Returns:
        The target.
    """
    return Peptide(sequence)

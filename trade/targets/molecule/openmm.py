"""Parameters read off an OpenMM system. Needs the extra ``[md]``: ``pip install 'trade-flows[md]'``."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from trade.errors import TradeError
from trade.targets.molecule.alanine_dipeptide import ATOMS, Z_MATRIX
from trade.targets.molecule.force_field import Constraints, ForceField, HarmonicTerms, Pairs, Solvent, Torsions

_NEGLIGIBLE = ("CMMotionRemover",)


def from_system(system: Any) -> ForceField:
    """The same energy in JAX.

    Args:
        system: An ``openmm.System`` without a periodic box, of harmonic bonds and angles, periodic torsions,
            ``NonbondedForce`` without a cutoff, and ``GBSAOBCForce`` or no solvent.
    """
    from openmm import unit  # noqa: PLC0415

    found: dict[str, Any] = {}
    for force in system.getForces():
        name = type(force).__name__
        if name in _NEGLIGIBLE:
            continue
        if name not in _READERS:
            raise TradeError(f"from_system cannot read a {name}; it takes {', '.join(_READERS)}.")
        if name in found:
            raise TradeError(f"from_system takes one {name}, and this system has more.")
        if name in ("NonbondedForce", "GBSAOBCForce") and force.getNonbondedMethod() != force.NoCutoff:
            raise TradeError(f"from_system takes a {name} without a cutoff.")
        found[name] = _READERS[name](force, unit.md_unit_system)
    masses = [system.getParticleMass(i).value_in_unit(unit.dalton) for i in range(system.getNumParticles())]
    for i, mass in enumerate(masses):
        if system.isVirtualSite(i) or mass <= 0.0:
            raise TradeError(f"from_system takes atoms that move: particle {i} is a virtual site or has no mass.")
    return ForceField(
        found.get("HarmonicBondForce", _harmonic([], 2)),
        found.get("HarmonicAngleForce", _harmonic([], 3)),
        found.get("PeriodicTorsionForce", _torsions([])),
        found.get("NonbondedForce", Pairs(*np.zeros((3, len(masses), len(masses))))),
        found.get("GBSAOBCForce"),
        _constraints(system, unit.md_unit_system),
        np.array(masses),
    )


def _constraints(system: Any, units: Any) -> Constraints:
    rows = [_numbers(system.getConstraintParameters(i), units) for i in range(system.getNumConstraints())]
    table = np.array(rows, float).reshape(-1, 3)
    return Constraints(table[:, :2].astype(int), table[:, 2])


def _numbers(values: Any, units: Any) -> list[float]:
    return [v.value_in_unit_system(units) if hasattr(v, "value_in_unit_system") else v for v in values]


def _harmonic(rows: list[list[float]], atoms: int) -> HarmonicTerms:
    table = np.array(rows, float).reshape(-1, atoms + 2)
    return HarmonicTerms(table[:, :atoms].astype(int), table[:, atoms], table[:, atoms + 1])


def _torsions(rows: list[list[float]]) -> Torsions:
    table = np.array(rows, float).reshape(-1, 7)
    return Torsions(table[:, :4].astype(int), table[:, 4], table[:, 5], table[:, 6])


def _read_bonds(force: Any, units: Any) -> HarmonicTerms:
    return _harmonic([_numbers(force.getBondParameters(i), units) for i in range(force.getNumBonds())], 2)


def _read_angles(force: Any, units: Any) -> HarmonicTerms:
    return _harmonic([_numbers(force.getAngleParameters(i), units) for i in range(force.getNumAngles())], 3)


def _read_torsions(force: Any, units: Any) -> Torsions:
    return _torsions([_numbers(force.getTorsionParameters(i), units) for i in range(force.getNumTorsions())])


def _read_pairs(force: Any, units: Any) -> Pairs:
    """The mixing rules of Lorentz and Berthelot, then the exceptions."""
    if force.getNumParticleParameterOffsets() or force.getNumExceptionParameterOffsets():
        raise TradeError("from_system takes a NonbondedForce without parameter offsets.")
    n = force.getNumParticles()
    charge, sigma, epsilon = np.array([_numbers(force.getParticleParameters(i), units) for i in range(n)]).T
    table = np.stack([np.outer(charge, charge), 0.5 * np.add.outer(sigma, sigma), np.sqrt(np.outer(epsilon, epsilon))])
    for k in range(force.getNumExceptions()):
        i, j, *values = force.getExceptionParameters(k)
        table[:, i, j] = table[:, j, i] = _numbers(values, units)
    table[:, np.arange(n), np.arange(n)] = 0.0
    return Pairs(*table)


def _read_solvent(force: Any, units: Any) -> Solvent:
    rows = [_numbers(force.getParticleParameters(i), units) for i in range(force.getNumParticles())]
    charge, radius, scale = np.array(rows).T
    (surface,) = _numbers([force.getSurfaceAreaEnergy()], units)
    return Solvent(charge, radius, scale, force.getSoluteDielectric(), force.getSolventDielectric(), surface)


def alanine_dipeptide() -> tuple[Any, Any]:
    """Topology and system of ACE-ALA-NME: amber99sb-ildn, OBC solvent, bonds to hydrogen constrained."""
    from openmm import app  # noqa: PLC0415

    topology = app.Topology()
    chain = topology.addChain()
    atoms = []
    for name, names in ATOMS.items():
        residue = topology.addResidue(name, chain)
        atoms += [topology.addAtom(a, app.Element.getBySymbol(a[0]), residue) for a in names]
    for i, j in Z_MATRIX.bonded:  # the molecule has no rings: these are all its bonds
        topology.addBond(atoms[i], atoms[j])
    forces = app.ForceField("amber99sbildn.xml", "amber96_obc.xml")
    return topology, forces.createSystem(topology, nonbondedMethod=app.NoCutoff, constraints=app.HBonds)


_READERS = {
    "HarmonicBondForce": _read_bonds,
    "HarmonicAngleForce": _read_angles,
    "PeriodicTorsionForce": _read_torsions,
    "NonbondedForce": _read_pairs,
    "GBSAOBCForce": _read_solvent,
}


if __name__ == "__main__":
    # python -m trade.targets.molecule.openmm OUT.json [SYSTEM.xml]: alanine dipeptide, or any serialised system.
    target = Path(sys.argv[1])
    if len(sys.argv) > 2:
        from openmm import XmlSerializer

        read = XmlSerializer.deserialize(Path(sys.argv[2]).read_text())
    else:
        read = alanine_dipeptide()[1]
    from_system(read).save(target)

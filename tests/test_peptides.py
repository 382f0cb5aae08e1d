"""Peptides by their sequence: energies of OpenMM, the L form, torsions of MDTraj, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import openmm
import pytest
from openmm import app, unit
from small_problems import precision

from trade import Condition, TradeError
from trade.config import describe_target, from_json
from trade.targets.molecule import AlanineDipeptide, Peptide, ZMatrix, peptide, write_pdb
from trade.targets.molecule.trajectory import topology_of

KEY = jax.random.key(0)


@pytest.fixture(scope="module", params=["AAA", "GT", "I"])
def built(request):
    """A peptide and its stretched state."""
    target = peptide(request.param)
    return target, target.extended()


def test_energies_are_those_of_openmm(built, tmp_path):
    """Of states about the stretched one; OpenMM reads the atoms from a file, and finds the bonds itself."""
    target, start = built
    write_pdb(tmp_path / "one.pdb", target.to_positions(start), target.residues)
    topology = app.PDBFile(str(tmp_path / "one.pdb")).topology
    forces = app.ForceField("amber99sbildn.xml", "amber99_obc.xml")
    system = forces.createSystem(topology, nonbondedMethod=app.NoCutoff, constraints=app.HBonds)
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference"))
    with precision(np.float64):
        for i in range(3):
            z = jnp.asarray(start, float) + 0.02 * i * jax.random.normal(jax.random.key(i), target.shape)
            context.setPositions(np.asarray(target.to_positions(z)))
            energy = context.getState(getEnergy=True).getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
            np.testing.assert_allclose(target.energy(z), energy, rtol=1e-5, atol=1e-3)


def test_amino_acids_are_left_handed(built):
    """As that of alanine dipeptide, whose states are known."""
    target, start = built
    assert np.all(np.asarray(target.handedness(start)) > 1e-3)
    assert len(target.handedness(start)) == {"AAA": 3, "GT": 2, "I": 2}[target.sequence]
    dipeptide = AlanineDipeptide()
    x = dipeptide.to_positions(dipeptide.minimum())
    same = peptide("A")
    assert same.handedness(same.to_internal(x))[0] > 1e-3
    mirrored = same.to_internal(x * jnp.array([1.0, 1.0, -1.0]))
    assert same.handedness(mirrored)[0] < -1e-3


def test_torsions_of_the_backbone_are_those_of_mdtraj(built):
    mdtraj = pytest.importorskip("mdtraj")
    target, start = built
    frame = mdtraj.Trajectory(np.array(target.to_positions(start)), topology_of(target))
    found = np.array([[start[i] for i in pair] for pair in target.ramachandran])
    for i, compute in enumerate((mdtraj.compute_phi, mdtraj.compute_psi)):
        turn = found[:, i] - compute(frame)[1][0]
        np.testing.assert_allclose(np.sin(turn / 2), 0.0, atol=1e-3)


def test_parts_turn_freely_about_single_bonds_alone(built):
    """φ and ψ do, peptide bonds and the angles between siblings do not."""
    target, _ = built
    assert {i for pair in target.ramachandran for i in pair} <= set(target.rotors)
    rows = [target.z_matrix.rows[target.torsions.index(i)] for i in target.rotors]
    for i, (_, atoms) in enumerate(target.residues[1:], 1):
        if "CA" in atoms:
            bond = {target.atom(i - 1, "C"), target.atom(i, "N")}
            assert all(set(row[1:3]) != bond for row in rows)
    assert len(peptide("A").rotors) == 5  # the backbone's two, and three methyl groups


def test_it_is_saved_by_its_arguments():
    target = Peptide("G", Condition(250.0, 500.0), solvent="amber96_obc.xml")
    again = from_json(describe_target(target))
    assert (again.sequence, again.solvent, again.condition) == ("G", "amber96_obc.xml", target.condition)
    assert again.shape == target.shape


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: peptide(""), "letters of amino acids"),
        (lambda: peptide("AXA"), "letters of amino acids"),
        (lambda: peptide("aa"), "letters of amino acids"),
        (lambda: peptide("P"), "without a ring"),
        (lambda: peptide(3), "letters of amino acids"),
        (lambda: Peptide("A", solvent="water"), "OpenMM cannot build"),
        (lambda: Peptide("A", solvent=None), "Peptide solvent"),
        (lambda: Peptide("A", Condition(-1.0, 1.0, scale="linear")), "temperature"),
        (lambda: peptide("A").atom(1, "CG"), "no atom 'CG'"),
        (lambda: peptide("A").atom(3, "N"), "residue must be"),
        (lambda: ZMatrix.from_bonds([(0, 1), (1, 2), (2, 3)], [0, 2]), "0 and 2 are not bonded"),
        (lambda: ZMatrix.from_bonds([(0, 1), (1, 2), (2, 3)], [1]), "two or more"),
        (lambda: ZMatrix.from_bonds([(0, 1), (1, 2), (2, 3)], "chain"), "chain"),
    ],
)
def test_what_is_no_peptide_gets_one_sentence(make, sentence):
    with pytest.raises(TradeError, match=sentence):
        make()

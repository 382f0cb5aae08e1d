"""The energy of a molecule against OpenMM's Reference platform, and its internal coordinates against autodiff."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import openmm
import pytest
from openmm import app, unit
from small_problems import precision

from trade import TradeError, bridge
from trade.data import check_periods
from trade.targets.molecule import alanine_dipeptide as alanine
from trade.targets.molecule.alanine_dipeptide import PHI, PSI, Z_MATRIX, force_field
from trade.targets.molecule.around import Around
from trade.targets.molecule.boltzmann import Molecule
from trade.targets.molecule.force_field import ForceField, angle, torsion
from trade.targets.molecule.internal import Internal, ZMatrix
from trade.targets.molecule.openmm import alanine_dipeptide, from_system
from trade.targets.molecule.pdb import write_pdb

CONFIGURATIONS = 200


@pytest.fixture(scope="module")
def simulated():
    """Positions at 300 K, at 600 K and perturbed ones, with OpenMM's energies and forces."""
    topology, system = alanine_dipeptide()
    integrator = openmm.LangevinMiddleIntegrator(300, 5, 0.001)
    simulation = app.Simulation(topology, system, integrator, openmm.Platform.getPlatformByName("Reference"))
    integrator.setRandomNumberSeed(1)
    degrees = [180, 180, 120, -120, -145, 0, 180, 60, 120, -120, 180, 160, 180, 180, 180, 120, -120, 120, 120]
    rough = Internal(jnp.full(21, 0.14), jnp.full(20, 1.95), jnp.deg2rad(jnp.array(degrees, float)))
    simulation.context.setPositions(np.asarray(Z_MATRIX.to_positions(rough), float))
    simulation.minimizeEnergy(tolerance=1e-3)
    random, minimum = np.random.default_rng(0), positions(simulation)
    found = []
    for i in range(CONFIGURATIONS):
        if i % 100 == 0:
            integrator.setTemperature(300 if i == 0 else 600)
            simulation.step(500)
        simulation.step(20)
        x = positions(simulation)
        found.append(x + 0.02 * random.normal(size=x.shape) if i % 4 == 3 else x)
    values = [energy_and_forces(simulation, x) for x in [minimum, *found]]
    return np.array([minimum, *found]), np.array([v[0] for v in values]), np.array([v[1] for v in values])


energy_and_gradient = jax.jit(jax.value_and_grad(force_field()))
DIPEPTIDE = alanine.AlanineDipeptide()
to_positions = eqx.filter_jit(DIPEPTIDE.to_positions)
log_density_and_slope = jax.jit(jax.vmap(jax.value_and_grad(lambda z: DIPEPTIDE.log_density(z, jnp.asarray(300.0)))))


def positions(simulation):
    state = simulation.context.getState(getPositions=True)
    return state.getPositions(asNumpy=True).value_in_unit(unit.nanometer)


def distances(x):
    x = np.asarray(x)
    return np.linalg.norm(x[..., :, None, :] - x[..., None, :, :], axis=-1)


def energy_and_forces(simulation, x):
    simulation.context.setPositions(x)
    state = simulation.context.getState(getEnergy=True, getForces=True)
    per_length = unit.kilojoule_per_mole / unit.nanometer
    forces = state.getForces(asNumpy=True).value_in_unit(per_length)
    return state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole), forces


def test_energy_and_forces_are_those_of_openmm(simulated):
    x, energies, forces = simulated
    with precision(np.float64):
        found, slopes = map(np.asarray, jax.jit(jax.vmap(jax.value_and_grad(force_field())))(jnp.asarray(x)))
    assert np.max(np.abs(found - energies) / np.maximum(1.0, np.abs(energies))) < 1e-8
    scale = np.maximum(1.0, np.abs(forces).max(axis=(1, 2)))
    assert np.max(np.abs(slopes + forces).max(axis=(1, 2)) / scale) < 1e-6
    # The perturbed ones are far from equilibrium: this is no test of one point.
    assert energies.max() - energies.min() > 1000.0


def test_energy_in_single_precision_near_equilibrium(simulated):
    x, energies, _ = simulated
    near = energies < energies[0] + 150.0
    assert near.sum() > 50
    found = jax.jit(jax.vmap(force_field()))(jnp.asarray(x[near], jnp.float32))
    assert np.max(np.abs(np.asarray(found, np.float64) - energies[near])) < 5e-3


def test_minimum_is_the_known_one(simulated):
    """-133.770 kJ/mol at φ, ψ = -145°, 159°, term by term; the molecule is the L form."""
    x, energies, _ = simulated
    np.testing.assert_allclose(energies[0], -133.770, atol=2e-3)
    with precision(np.float64):
        parts = force_field().parts(jnp.asarray(x[0]))
        torsions = np.rad2deg(Z_MATRIX.to_internal(jnp.asarray(x[0])).torsions)
    known = {"bonds": 2.062, "angles": 3.223, "torsions": 35.221, "pairs": -127.775, "solvent": -46.502}
    assert {k: round(float(v), 1) for k, v in parts.items()} == {k: round(v, 1) for k, v in known.items()}
    np.testing.assert_allclose([torsions[PHI], torsions[PSI]], [-145.0, 159.0], atol=1.0)


def test_shipped_parameters_are_those_of_the_system():
    _, system = alanine_dipeptide()
    read, shipped = from_system(system), force_field()
    for a, b in zip(jax.tree.leaves(read), jax.tree.leaves(shipped), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert (len(read.bonds.rest), len(read.angles.rest), len(read.torsions.phase)) == (9, 36, 42)
    assert system.getNumConstraints() == 12


@pytest.mark.parametrize("where", ["all at one point", "on a line", "two at one point"])
def test_clashes_have_finite_energies_and_gradients(where, simulated):
    x = jnp.asarray(simulated[0][0], jnp.float32)
    if where == "all at one point":
        x = jnp.zeros_like(x)
    elif where == "on a line":
        x = jnp.zeros_like(x).at[:, 0].set(0.1 * jnp.arange(len(x)))
    else:
        x = x.at[5].set(x[21])
    value, slope = energy_and_gradient(x)
    assert np.isfinite(value)
    assert np.isfinite(slope).all()
    assert value > 1000.0


def test_systems_that_cannot_be_read_are_refused():
    system = openmm.System()
    system.addParticle(1.0)
    system.addForce(openmm.CustomExternalForce("x"))
    with pytest.raises(TradeError, match="cannot read a CustomExternalForce"):
        from_system(system)
    system = openmm.System()
    force = openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.PME)
    system.addForce(force)
    with pytest.raises(TradeError, match="NonbondedForce without a cutoff"):
        from_system(system)
    with pytest.raises(TradeError, match=r"must have shape \(22, 3\), got \(3, 22\)"):
        force_field()(jnp.zeros((3, 22)))


def test_particles_that_are_no_atoms_and_offsets_are_refused():
    system, pair = openmm.System(), openmm.NonbondedForce()
    system.addParticle(0.0)
    with pytest.raises(TradeError, match="particle 0 is a virtual site or has no mass"):
        from_system(system)
    system.setParticleMass(0, 1.0)
    pair.addParticle(0.0, 0.3, 0.1)
    pair.addGlobalParameter("scale", 1.0)
    pair.addParticleParameterOffset("scale", 0, 0.5, 0.0, 0.0)
    system.addForce(pair)
    with pytest.raises(TradeError, match="without parameter offsets"):
        from_system(system)


def test_another_molecule_without_solvent_reads_and_saves(tmp_path):
    """Three atoms with one bond, one angle and one pair: the energy by hand, before and after a file."""
    system, bond, bend, pair = (
        openmm.System(),
        openmm.HarmonicBondForce(),
        openmm.HarmonicAngleForce(),
        openmm.NonbondedForce(),
    )
    for _ in range(3):
        system.addParticle(1.0)
        pair.addParticle(0.5, 0.2, 0.3)
    bond.addBond(0, 1, 0.1, 100.0)
    bend.addAngle(0, 1, 2, 2.0, 50.0)
    pair.addException(0, 1, 0.0, 1.0, 0.0)
    pair.addException(1, 2, 0.0, 1.0, 0.0)
    for force in (bond, bend, pair):
        system.addForce(force)
    x = np.array([[0.12, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.3, 0.0]])
    r = np.hypot(0.12, 0.3)
    expected = 50.0 * 0.02**2 + 25.0 * (np.pi / 2 - 2.0) ** 2
    expected += 1.2 * ((0.2 / r) ** 12 - (0.2 / r) ** 6) + 138.93545764438198 * 0.25 / r
    from_system(system).save(tmp_path / "three.json")
    with precision(np.float64):
        for field in (from_system(system), ForceField.load(tmp_path / "three.json")):
            np.testing.assert_allclose(field(jnp.asarray(x)), expected, rtol=1e-10)


def test_angle_and_torsion_of_known_points():
    a, b, c = jnp.array([1.0, 0.0, 0.0]), jnp.zeros(3), jnp.array([0.0, 0.0, 2.0])
    np.testing.assert_allclose(angle(a, b, c), np.pi / 2, rtol=1e-6)
    for phi in (-2.5, -0.3, 0.0, 1.0, 3.0):
        d = c + jnp.array([jnp.cos(phi), jnp.sin(phi), 0.5])
        np.testing.assert_allclose(torsion(a, b, c, d), phi, atol=1e-6)


def test_coordinates_go_round_and_their_volume_is_that_of_autodiff():
    with precision(np.float64):
        x = jnp.asarray(np.random.default_rng(0).normal(size=(22, 3)))
        internal = Z_MATRIX.to_internal(x)
        placed = Z_MATRIX.to_positions(internal)
        for one, two in zip(internal, Z_MATRIX.to_internal(placed), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-10)
        np.testing.assert_allclose(distances(x), distances(placed), atol=1e-10)

        def moved(p):
            """Placed, then moved and turned by a little: all 66 degrees of freedom."""
            bonds, angles, torsions = jnp.split(p[6:], [21, 41])
            y = Z_MATRIX.to_positions(Internal(bonds, angles, torsions))
            return (y + jnp.cross(p[3:6], y) + p[:3]).ravel()

        jacobian = jax.jit(jax.jacfwd(moved))(jnp.concatenate([jnp.zeros(6), *internal]))
        np.testing.assert_allclose(Z_MATRIX.log_det(internal), jnp.linalg.slogdet(jacobian)[1], atol=1e-9)


def test_boltzmann_distribution_of_a_molecule(simulated):
    """-U/kT and the volume of all coordinates; the constrained bonds have the lengths that the simulation has."""
    x, energies, _ = simulated
    with precision(np.float64):
        target = alanine.AlanineDipeptide()
        assert target.shape == (48,)
        z = target.to_internal(jnp.asarray(x[1]))
        np.testing.assert_allclose(target.energy(z), energies[1], atol=0.02)  # OpenMM's constraints hold to 1e-5
        expected = -float(target.energy(z)) / (0.00831446261815324 * 450.0)
        expected += float(Z_MATRIX.log_det(Z_MATRIX.to_internal(target.to_positions(z))))
        np.testing.assert_allclose(target.log_density(z, jnp.float64(450.0)), expected, rtol=1e-10)
        by_autodiff = jax.grad(lambda t: target.log_density(z, t))(jnp.float64(450.0))
        np.testing.assert_allclose(target.condition_derivative(z, jnp.float64(450.0)), by_autodiff, rtol=1e-9)
        turned = z.at[-19:].add(2 * np.pi)
        np.testing.assert_allclose(target.energy(turned), target.energy(z), rtol=1e-9)
        # From its own normalised density at 600 K, the rule gives the family up to a constant.
        other = target.to_internal(jnp.asarray(x[2]))
        found = [
            target.rebuild(target.log_density(v, 600.0) - 5.0, v, jnp.float64(300.0), jnp.float64(600.0))
            for v in (z, other)
        ]
        exact = [target.log_density(v, jnp.float64(300.0)) for v in (z, other)]
        np.testing.assert_allclose(found[0] - found[1], exact[0] - exact[1], rtol=1e-9)


@pytest.mark.parametrize("where", ["bond", "angle", "angle below zero"])
def test_positions_have_one_state(where):
    """An angle above π, or a negative length, is another name for positions that have a state: no mass lies there."""
    molecule = DIPEPTIDE
    z = np.array(molecule.minimum(), np.float32)
    at, row = len(molecule.free) + 5, molecule.torsions[4]  # an angle, and the torsion of the same row
    other = z.copy()
    if where == "bond":
        other[2] = -other[2]
    else:
        other[at] = 2 * np.pi - z[at] if where == "angle" else -z[at]
        other[row] += np.pi
        one, two = (distances(to_positions(v)) for v in (z, other))
        np.testing.assert_allclose(one, two, atol=1e-5)
    (first, second), slopes = log_density_and_slope(jnp.stack([z, other]))
    assert np.isfinite(first) and second == -np.inf
    assert np.isfinite(slopes).all()


def test_molecules_that_do_not_fit_are_refused():
    condition = alanine.AlanineDipeptide().condition
    with pytest.raises(TradeError, match="has 22 atoms, the Z-matrix places 4"):
        Molecule(force_field(), ZMatrix((0, 1, 2), ((3, 0, 1, 2),)), condition)
    rows = (*(row for row in Z_MATRIX.rows if row[0] != 7), (7, 4, 8, 6))
    with pytest.raises(TradeError, match=r"constrained bond \(7, 6\) is none of the Z-matrix"):
        Molecule(force_field(), ZMatrix(Z_MATRIX.reference, rows), condition)


def test_pdb_is_read_by_others(tmp_path, simulated):
    x = simulated[0][:3]
    write_pdb(tmp_path / "frames.pdb", x, tuple(alanine.ATOMS.items()))
    read = app.PDBFile(str(tmp_path / "frames.pdb"))
    assert read.getNumFrames() == 3
    for i in range(3):
        found = read.getPositions(asNumpy=True, frame=i).value_in_unit(unit.nanometer)
        np.testing.assert_allclose(found, x[i], atol=6e-5)
    names = [(a.residue.name, a.element.symbol) for a in read.topology.atoms()]
    assert names == [(r, a[0]) for r, atoms in alanine.ATOMS.items() for a in atoms]  # OpenMM has its own atom names
    with pytest.raises(TradeError, match=r"shape \(frames, 22, 3\), got \(3, 21, 3\)"):
        write_pdb(tmp_path / "wrong.pdb", x[:, :21], tuple(alanine.ATOMS.items()))
    with pytest.raises(TradeError, match="finite positions"):
        write_pdb(tmp_path / "wrong.pdb", x * np.nan, tuple(alanine.ATOMS.items()))
    assert not (tmp_path / "wrong.pdb").exists()


def test_rows_may_come_in_any_order_and_must_resolve():
    shuffled = ZMatrix((0, 1, 2), ((4, 3, 0, 1), (3, 0, 1, 2)))
    x = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)), jnp.float32)
    internal = shuffled.to_internal(x)
    again = shuffled.to_internal(shuffled.to_positions(internal))
    for one, two in zip(internal, again, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)
    with pytest.raises(TradeError, match="need each other"):
        ZMatrix((0, 1, 2), ((4, 3, 0, 1), (3, 4, 1, 2)))
    with pytest.raises(TradeError, match="every atom from 0 to 4 once"):
        ZMatrix((0, 1, 2), ((3, 0, 1, 2), (3, 0, 1, 2)))
    with pytest.raises(TradeError, match="must have shape"):
        shuffled.to_internal(jnp.zeros((4, 3)))


def test_z_matrix_from_the_bonds_of_alanine_dipeptide(simulated):
    """It has the torsions that chemists name, and leads back to the same positions and energies."""
    x, energies, _ = simulated
    field = force_field()
    z_matrix = ZMatrix.from_bonds(np.concatenate([field.bonds.atoms, field.constraints.atoms]))
    molecule = Molecule(field, z_matrix, alanine.AlanineDipeptide().condition)
    assert (len(molecule.free), len(z_matrix.rows) + 1, len(molecule.torsions)) == (9, 20, 19)
    assert {(4, 6, 8, 14), (16, 14, 8, 6), (1, 4, 6, 8), (18, 16, 14, 8)} <= set(z_matrix.rows)  # φ, ψ and both ω
    assert min(field.masses[row[0]] for row in z_matrix.rows[:5]) > 2.0  # hydrogens come later

    def round_trip(x):
        internal = z_matrix.to_internal(x)
        placed = z_matrix.to_positions(internal)
        return internal, placed, z_matrix.to_internal(placed), field(placed)

    with precision(np.float64):
        internal, placed, again, energy = jax.jit(jax.vmap(round_trip))(jnp.asarray(x))
    for one, two in zip(internal, again, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-10)
    np.testing.assert_allclose(distances(placed), distances(x), atol=1e-10)
    np.testing.assert_allclose(energy, energies, rtol=1e-8, atol=1e-8)
    # Hydrogens of a methyl group are turned against the first one, whatever the rest does.
    near = energies < energies[0] + 150.0
    siblings = [i for i, row in enumerate(z_matrix.rows) if row[0] in (2, 3, 12, 13, 20, 21)]
    turned = np.rad2deg(np.abs(np.asarray(internal.torsions)[near][:, siblings]))
    assert turned.mean(axis=0) == pytest.approx(120.0, abs=5.0)
    assert turned.std(axis=0).max() < 15.0


BENZENE = [(i, (i + 1) % 6) for i in range(6)] + [(i, i + 6) for i in range(6)]
SOME_BONDS = {
    "a chain": [(i, i + 1) for i in range(8)],
    "methane": [(0, i) for i in range(1, 5)],
    "water": [(0, 1), (0, 2)],
    "benzene": BENZENE,
    "two rings": [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 2)],
}


@pytest.mark.parametrize("name", SOME_BONDS)
def test_z_matrix_from_other_bonds(name):
    """Rings lose a bond each, other molecules none; what follows from the coordinates are the positions."""
    bonds = {frozenset(b) for b in SOME_BONDS[name]}
    z_matrix = ZMatrix.from_bonds(SOME_BONDS[name])
    used = {frozenset(b) for b in z_matrix.bonded.tolist()}
    assert used <= bonds
    assert len(used) == z_matrix.atoms - 1
    left_out = bonds - used
    assert len(left_out) == {"benzene": 1, "two rings": 2}.get(name, 0)
    if name == "benzene":
        assert max(*left_out) < 6  # a bond between carbons
    with precision(np.float64):
        x = jnp.asarray(np.random.default_rng(0).normal(size=(z_matrix.atoms, 3)))
        internal = jax.jit(z_matrix.to_internal)(x)
        placed = jax.jit(z_matrix.to_positions)(internal)
    assert [len(v) for v in internal] == [z_matrix.atoms - i for i in (1, 2, 3)]
    np.testing.assert_allclose(distances(placed), distances(x), atol=1e-10)


def test_a_chain_is_placed_from_its_middle():
    """Every torsion is that of four neighbours, and few levels are placed one after the other."""
    z_matrix = ZMatrix.from_bonds(SOME_BONDS["a chain"])
    assert z_matrix.reference == (3, 4, 5)
    for row in z_matrix.rows:
        assert abs(np.diff(row)).tolist() == [1, 1, 1]
    assert len(z_matrix._levels) == 3


@pytest.mark.parametrize(
    ("bonds", "message"),
    [
        ([(0, 1), (1, 2), (3, 4)], "in pieces: no chain of bonds leads from atom 0 to atom 3"),
        ([(0, 1), (1, 2), (2, 4)], "in pieces: no chain of bonds leads from atom 0 to atom 3"),
        ([(0, 1)], "three atoms or more"),
        ([], "three atoms or more"),
        ([(0, 1), (1, 2), (2, 2)], "pairs of different atoms"),
        ([(-1, 1), (1, 2)], "numbered from 0"),
    ],
)
def test_bonds_without_a_z_matrix_are_refused(bonds, message):
    with pytest.raises(TradeError, match=message):
        ZMatrix.from_bonds(bonds)


def test_around_a_minimum_samples_what_it_scores_and_turns():
    """Its mean log density is minus the entropy of its parts; an angle turned once round is the same angle."""
    molecule = alanine.AlanineDipeptide()
    rotors = tuple(molecule.torsions[i] for i in alanine.ROTORS)
    base = Around(molecule, 300.0, molecule.minimum(), rotors)
    x = base.sample(jax.random.key(0), (4000,))
    others = np.setdiff1d(np.arange(48), rotors)
    entropy = np.log(np.asarray(base.width)[others]).sum() + 0.5 * len(others) * np.log(2.0 * np.pi * np.e)
    mean = float(base.log_prob(x).mean())
    assert mean == pytest.approx(-entropy - len(rotors) * np.log(2.0 * np.pi), abs=0.5)
    turned = np.array(molecule.torsions)
    np.testing.assert_allclose(base.log_prob(x.at[:, turned].add(2.0 * np.pi)), base.log_prob(x), atol=2e-2)
    assert np.abs(np.asarray(x)[:, turned]).max() <= np.pi
    check_periods(bridge(lambda z: molecule.log_density(z, jnp.asarray(300.0)), base, angles=molecule.torsions), x[:64])
    spread = np.asarray(x)[:, np.array(rotors)]
    assert np.abs(np.exp(1j * spread).mean(axis=0)).max() < 0.06
    with pytest.raises(TradeError, match="rotors must be torsions of the molecule"):
        Around(molecule, 300.0, molecule.minimum(), (0,))
    crowded = molecule.minimum().at[molecule.torsions[2]].add(0.6 * np.pi)  # a hydrogen on another
    with pytest.raises(TradeError, match="no minimum of the energy"):
        Around(molecule, 300.0, crowded, rotors)

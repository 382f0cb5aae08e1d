"""The leapfrog integrator: its constraints, its bias against the formula, and its steps against OpenMM's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import KEY, precision

from trade import Condition, TradeError
from trade.targets.molecule.alanine_dipeptide import AlanineDipeptide
from trade.targets.molecule.boltzmann import GAS_CONSTANT, Molecule
from trade.targets.molecule.force_field import Constraints, ForceField, HarmonicTerms, Pairs, Torsions
from trade.targets.molecule.internal import ZMatrix
from trade.targets.molecule.langevin import LeapfrogLangevin

MASS, STIFFNESS, LENGTH, ANGLE = 2.0, 5e5, 0.2, 1.9
START = np.array([LENGTH] * 3 + [ANGLE] * 2 + [2.0])
# Alanine dipeptide with all bonds and all angles alike: no clash, and strong forces.
TORSIONS = (180, 180, 120, -120, -145, 0, 180, 60, 120, -120, 180, 160, 180, 180, 180, 120, -120, 120, 120)
STRAINED = np.concatenate([np.full(9, 0.145), np.full(20, 1.95), np.deg2rad(TORSIONS)])


def star(**changed):
    """Three light atoms on stiff bonds to a heavy one, which they do not feel through it."""
    none = np.zeros(0)
    field = {
        "bonds": HarmonicTerms(np.array([[0, 1], [1, 2], [3, 1]]), np.full(3, LENGTH), np.full(3, STIFFNESS)),
        "angles": HarmonicTerms(np.array([[0, 1, 2], [0, 1, 3], [2, 1, 3]]), np.full(3, ANGLE), np.full(3, 100.0)),
        "torsions": Torsions(np.zeros((0, 4), int), none, none, none),
        "pairs": Pairs(np.zeros((4, 4)), np.ones((4, 4)), np.zeros((4, 4))),
        "solvent": None,
        "constraints": Constraints(np.zeros((0, 2), int), none),
        "masses": np.array([MASS, 1e5, MASS, MASS]),
    }
    return Molecule(ForceField(**(field | changed)), ZMatrix((0, 1, 2), ((3, 1, 0, 2),)), Condition(200.0, 600.0))


@pytest.mark.parametrize(("dtype", "largest"), [(np.float32, 2e-5), (np.float64, 1e-6)])
def test_constraints_hold(dtype, largest):
    with precision(dtype):
        molecule = AlanineDipeptide()
        x = jnp.repeat(jax.jit(jax.vmap(molecule.to_positions))(STRAINED.astype(dtype)[None]), 4, axis=0)
        langevin = LeapfrogLangevin(friction=10.0, thermalisation=200, thinning=20)
        frames = langevin.positions(molecule.force_field, KEY, x, 20, 600.0)
        states = np.asarray(jax.jit(jax.vmap(molecule.to_internal))(frames[:, -1]))
    assert frames.shape == (4, 20, 22, 3)
    assert frames.dtype == dtype
    fixed = molecule.force_field.constraints
    ends = np.asarray(frames, np.float64)[:, :, fixed.atoms]
    found = np.linalg.norm(ends[:, :, :, 0] - ends[:, :, :, 1], axis=-1)
    assert np.max(np.abs(found / fixed.length - 1.0)) < largest
    # Everything else moves, and each chain on its own.
    assert states.std(axis=0).min() > 1e-4


def test_stiff_bonds_are_too_hot_by_the_formula():
    """Var = kT/k / (1 - (ω Δt)²/4), here 4/3 of what it should be; half the step takes most of it away."""
    inflation = {}
    for step in (0.002, 0.001):
        assert STIFFNESS / MASS * step**2 == pytest.approx((step / 0.002) ** 2)
        langevin = LeapfrogLangevin(step, friction=20.0, thermalisation=200, thinning=100)
        states = langevin.sample(star(), KEY, np.tile(START, (1000, 1)), 8, 300.0)
        assert states.shape == (1000, 8, 6)
        bonds = np.asarray(states, np.float64)[..., :3].reshape(-1)
        inflation[step] = bonds.var() / (GAS_CONSTANT * 300.0 / STIFFNESS)
    error = np.sqrt(2.0 / bonds.size)
    assert inflation[0.002] == pytest.approx(4.0 / 3.0, rel=4 * error)
    assert inflation[0.001] == pytest.approx(16.0 / 15.0, rel=4 * error)
    assert 4 * error < 0.04


def test_steps_are_those_of_openmm():
    """Without noise, from a strained structure at rest: OpenMM does the same update, with its own constraints."""
    pytest.importorskip("openmm")
    with precision(np.float64):
        molecule = AlanineDipeptide()
        starts = STRAINED + np.append(np.zeros(29), np.sin(np.arange(19.0))) * np.array([[0.1], [0.2], [0.3], [0.0]])
        every = LeapfrogLangevin(friction=5.0, thermalisation=0, thinning=1)
        found = np.asarray(every.sample(molecule, KEY, starts, 20, 0.0))
        second = LeapfrogLangevin(friction=5.0, thermalisation=5, thinning=2)
        late = second.sample(molecule, KEY, starts, 20, 0.0)
        expected = openmm_states(molecule, STRAINED, steps=20)
    assert np.abs(apart(found[-1], expected)[:, :9]).max() < 1e-9
    assert np.abs(apart(found[-1], expected)).max() < 1e-7
    # It has moved, by far more than the two differ; and frames are kept where they should be.
    assert np.abs(apart(found[-1, -1], STRAINED)).max() > 0.05
    assert np.abs(apart(late[:, :7], found[:, 6:19:2])).max() < 1e-7


def apart(one, two):
    """Differences, torsions wrapped."""
    return (np.asarray(one) - np.asarray(two) + np.pi) % (2 * np.pi) - np.pi


def openmm_states(molecule, z, steps):
    """After each step of 0.002 ps with a friction of 5/ps, from rest and without noise."""
    import openmm
    from openmm import unit

    from trade.targets.molecule.openmm import alanine_dipeptide

    integrator = openmm.CustomIntegrator(0.002)
    integrator.addGlobalVariable("a", np.exp(-0.01))
    integrator.addPerDofVariable("before", 0)
    integrator.addUpdateContextState()
    integrator.addComputePerDof("v", "a*v + (1 - a)/5*f/m")
    integrator.addComputePerDof("before", "x")
    integrator.addComputePerDof("x", "x + dt*v")
    integrator.addConstrainPositions()
    integrator.addComputePerDof("v", "(x - before)/dt")
    integrator.setConstraintTolerance(1e-10)
    _, system = alanine_dipeptide()
    kinds = [type(force).__name__ for force in system.getForces()]
    system.removeForce(kinds.index("CMMotionRemover"))
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(np.asarray(jax.jit(jax.vmap(molecule.to_positions))(z[None])[0]))
    x = []
    for _ in range(steps):
        integrator.step(1)
        state = context.getState(getPositions=True)
        x.append(state.getPositions(asNumpy=True).value_in_unit(unit.nanometer))
    return jax.jit(jax.vmap(molecule.to_internal))(jnp.asarray(np.array(x)))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"step": 0.0}, "step must be a positive number, got 0.0"),
        ({"step": "2 fs"}, "step must be a positive number, got '2 fs'"),
        ({"friction": -1.0}, "friction must be a positive number, got -1.0"),
        ({"friction": np.inf}, "friction must be a positive number, got inf"),
        ({"thermalisation": -1}, "thermalisation must be an integer of at least 0, got -1"),
        ({"thinning": 0}, "thinning must be an integer of at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, reason):
    with pytest.raises(TradeError, match=reason):
        LeapfrogLangevin(**settings)


@pytest.mark.parametrize(
    ("start", "draws", "temperature", "reason"),
    [
        (START, 1, 300.0, r"start must be states of shape \(chains, 6\), got \(6,\)"),
        (np.zeros((0, 6)), 1, 300.0, r"got \(0, 6\)"),
        (START[None], 0, 300.0, "draws must be a positive integer, got 0"),
        (START[None], 1, -1.0, "temperature must be a number that is not negative, got -1.0"),
        (START[None], 1, np.nan, "temperature must be a number that is not negative, got nan"),
    ],
)
def test_bad_calls_are_refused(start, draws, temperature, reason):
    with pytest.raises(TradeError, match=reason):
        LeapfrogLangevin().sample(star(), KEY, start, draws, temperature)


def test_unstable_motion_is_refused():
    with pytest.raises(TradeError, match=r"unstable with a step of 0\.005 ps: take a shorter one"):
        LeapfrogLangevin(step=0.005, thermalisation=500).sample(star(), KEY, START[None], 1, 300.0)

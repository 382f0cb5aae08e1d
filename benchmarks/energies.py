"""Energies a second of alanine dipeptide: batched in JAX, and one by one from OpenMM's CPU platform."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trade.targets.molecule.alanine_dipeptide import AlanineDipeptide

BATCH, ONE_BY_ONE = 16_384, 2_000


def measure_energies(rounds: int) -> dict[str, Any]:
    """Median rates, in turns, and their ratio; without OpenMM only ours."""
    molecule = AlanineDipeptide()
    state = jnp.concatenate([jnp.full(9, 0.14), jnp.full(20, 1.95), jnp.linspace(-3.0, 3.0, 19)])
    states = state + 0.01 * jax.random.normal(jax.random.key(0), (BATCH, 48))
    x = jax.vmap(molecule.to_positions)(states)
    energy = jax.jit(jax.vmap(molecule.force_field))
    energy(x).block_until_ready()
    one_by_one = _openmm(np.asarray(x[:ONE_BY_ONE], float))
    ours, theirs = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        energy(x).block_until_ready()
        ours.append(BATCH / (time.perf_counter() - start))
        if one_by_one is not None:
            start = time.perf_counter()
            one_by_one()
            theirs.append(ONE_BY_ONE / (time.perf_counter() - start))
    found: dict[str, Any] = {"batch": BATCH, "per_second": round(float(np.median(ours)))}
    if theirs:
        rate = float(np.median(theirs))
        found |= {"openmm_per_second": round(rate), "ratio": round(float(np.median(ours)) / rate, 1)}
    return found


def _openmm(x: np.ndarray) -> Any:
    """A function that takes all energies, one by one, or None without OpenMM."""
    try:
        import openmm  # noqa: PLC0415
    except ImportError:
        return None
    from trade.targets.molecule.openmm import alanine_dipeptide as topology_and_system  # noqa: PLC0415

    system = topology_and_system()[1]
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("CPU"))

    def take() -> None:
        for positions in x:
            context.setPositions(positions)
            context.getState(getEnergy=True).getPotentialEnergy()

    return take

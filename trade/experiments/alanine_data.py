"""Data of alanine dipeptide, made here: replica exchange from 300 K to 600 K, and the old leapfrog integrator's."""

from dataclasses import dataclass
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from trade.experiments.cache import Arrays, cached
from trade.flows.spline import wrapped
from trade.sampling.tempering import ReplicaExchange
from trade.targets.molecule.alanine_dipeptide import ROTORS, AlanineDipeptide
from trade.targets.molecule.langevin import LeapfrogLangevin

COLD, HOT = 300.0, 600.0
TRAINING, VALIDATION = 0.7, 0.02  # parts of the ensembles; the rest is for evaluation


@dataclass(frozen=True)
class Simulation:
    """How much is simulated.

    Args:
        ladder: Replica exchange; its ensembles are what the data are split by.
        draws: Frames of each ensemble and temperature.
        leapfrog: The integrator whose known bias the paper's data have.
        leapfrog_chains: Its trajectories at each temperature, begun at frames for evaluation.
        leapfrog_draws: Frames of each.
        seed: Of both.
    """

    ladder: ReplicaExchange
    draws: int
    leapfrog: LeapfrogLangevin
    leapfrog_chains: int
    leapfrog_draws: int
    seed: int = 0


def _ladder(rungs: int, ensembles: int, thermalisation: int, thinning: int) -> ReplicaExchange:
    jumps = tuple(AlanineDipeptide().torsions[i] for i in ROTORS)
    return ReplicaExchange(rungs, ensembles, 20, thermalisation, thinning, jumps)


def full() -> Simulation:
    """A million frames at each temperature, for a GPU; with another seed than all that settings were chosen on."""
    return Simulation(_ladder(7, 3000, 2500, 14), 350, LeapfrogLangevin(), 10_000, 20, seed=1)


def small() -> Simulation:
    """Minutes on two processor cores."""
    leapfrog = LeapfrogLangevin(thermalisation=1000, thinning=250)
    return Simulation(_ladder(3, 150, 150, 5), 250, leapfrog, 50, 10)


@dataclass(frozen=True)
class Frames:
    """Frames by temperature, and what was seen on the way.

    Args:
        by_temperature: Of shape (ensembles, draws, 48) at 300 K and 600 K, torsions in [-π, π).
        ladder: All temperatures.
        energies: U of shape (rungs, ensembles, draws), kJ/mol.
        rates: Parts of trajectories, exchanges and jumps accepted.
    """

    by_temperature: dict[float, np.ndarray]
    ladder: np.ndarray
    energies: np.ndarray
    rates: dict[str, np.ndarray]

    def training(self) -> np.ndarray:
        """At 600 K, of the first ensembles."""
        return self._part(HOT, 0.0, TRAINING)

    def validation(self) -> np.ndarray:
        """At 600 K, of the next ones."""
        return self._part(HOT, TRAINING, TRAINING + VALIDATION)

    def evaluation(self, temperature: float) -> np.ndarray:
        """The ensembles of which training saw no frame; (ensembles, draws, 48)."""
        frames = self.by_temperature[temperature]
        return frames[round((TRAINING + VALIDATION) * len(frames)) :]

    def _part(self, temperature: float, begin: float, end: float) -> np.ndarray:
        frames = self.by_temperature[temperature]
        chosen = frames[round(begin * len(frames)) : round(end * len(frames))]
        return chosen.reshape(-1, chosen.shape[-1])


@lru_cache(maxsize=1)
def frames(simulation: Simulation) -> Frames:
    """The simulation's frames; made once, then kept."""
    molecule = AlanineDipeptide()

    def make() -> Arrays:
        ladder = simulation.ladder
        wanted = [float(c) for c in molecule.condition.grid(ladder.rungs)]
        n = ladder.ensembles * simulation.draws
        found = ladder.sample(molecule, jax.random.key(simulation.seed), n, wanted, molecule.minimum())
        found_energies = [np.asarray(energies(molecule, found.samples[c])) for c in wanted]
        ends = {f"frames_{c:g}": _folded(molecule, found.samples[w]) for c, w in ((COLD, wanted[0]), (HOT, wanted[-1]))}
        rates = {"acceptance": found.acceptance, "exchange": found.exchange, "jumped": found.jumped}
        return ends | rates | {"ladder": found.ladder, "energies": np.stack(found_energies)}

    settings = {"ladder": simulation.ladder, "draws": simulation.draws, "seed": simulation.seed}
    arrays = cached("alanine-dipeptide", settings, make)
    return Frames(
        {c: arrays[f"frames_{c:g}"] for c in (COLD, HOT)},
        arrays["ladder"],
        arrays["energies"],
        {name: arrays[name] for name in ("acceptance", "exchange", "jumped")},
    )


@lru_cache(maxsize=1)
def leapfrog_frames(simulation: Simulation) -> dict[float, np.ndarray]:
    """Frames of the leapfrog integrator at both temperatures, (chains, draws, 48), begun at frames for evaluation.

    The starts have the right populations, which the short trajectories keep; stiff modes take on the integrator's bias.
    """
    molecule = AlanineDipeptide()

    def make() -> Arrays:
        made = {}
        for i, c in enumerate((COLD, HOT)):
            starts = frames(simulation).evaluation(c).reshape(-1, molecule.shape[0])
            chosen = starts[np.linspace(0, len(starts) - 1, simulation.leapfrog_chains).astype(int)]
            key = jax.random.key(1000 * simulation.seed + i)
            found = simulation.leapfrog.sample(molecule, key, jnp.asarray(chosen), simulation.leapfrog_draws, c)
            made[f"frames_{c:g}"] = _folded(molecule, found)
        return made

    arrays = cached("alanine-dipeptide-leapfrog", {"simulation": simulation}, make)
    return {c: arrays[f"frames_{c:g}"] for c in (COLD, HOT)}


def _folded(molecule: AlanineDipeptide, states: jax.Array) -> np.ndarray:
    """Torsions without their multiples of 2π."""
    torsions = np.array(molecule.torsions)
    return np.asarray(states.at[..., torsions].set(wrapped(states[..., torsions], np.pi)), np.float32)


@eqx.filter_jit
def energies(molecule: AlanineDipeptide, states: ArrayLike) -> jax.Array:
    """U in kJ/mol of states of shape (ensembles, draws, 48), an ensemble at a time."""
    return jax.lax.map(jax.vmap(molecule.energy), states)

"""Alanine dipeptide over temperature and the strength of one torsion, beside replica exchange."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import trade
from benchmarks.one_by_one import Options, trained
from trade import Axes, Condition
from trade.evaluation.free_energy import bennett, by_ladder
from trade.experiments.alanine_dipeptide import left_handed
from trade.sampling.importance import log_density_batch
from trade.sampling.tempering import ReplicaExchange
from trade.targets.molecule.alanine_dipeptide import ROTORS, Z_MATRIX, AlanineDipeptide, force_field
from trade.targets.molecule.boltzmann import GAS_CONSTANT, Molecule

COLD, HOT = 300.0, 600.0
SCALES = (0.5, 1.0, 1.5)
ABOUT_PHI = (4, 6, 8, 10)  # C-N-CA-CB, the strongest torsion about φ
LADDER = ReplicaExchange(4, 250, 20, 400, 10, tuple(AlanineDipeptide().torsions[i] for i in ROTORS))
DRAWS = 200  # of each ensemble
TRAINING = 0.7  # part of the ensembles at 600 K and scale 1; the rest is for evaluation


def dipeptide(options: Options) -> dict[str, Any]:
    """Frames at 600 K and scale 1 alone; the model at the corners, on frames of replica exchange at each scale."""
    whole = force_field()
    axes = Axes(
        {"T": Condition(COLD, HOT), "scale": Condition(SCALES[0], SCALES[-1], scale="linear")}, boundary=(HOT, 1.0)
    )
    molecule = Molecule(whole, Z_MATRIX, axes, whole.torsions_about(*ABOUT_PHI))
    simulated = {s: _simulated(molecule, s, i) for i, s in enumerate(SCALES)}
    apart = round(TRAINING * LADDER.ensembles)
    data = simulated[1.0]["frames"][HOT][:apart].reshape(-1, *molecule.shape)
    run, about = trained("dipeptide", molecule, {(HOT, 1.0): data}, options)
    grid = [tuple(c) for c in axes.grid(5)]
    ess = [run.weighted(jax.random.key(i), 10_000, c).ess for i, c in enumerate(grid)]
    found: dict[str, Any] = {"conditions": grid, "ess": ess, "ess_least": min(ess), "ess_mean": np.mean(ess)}
    checks = []
    for s in SCALES:
        log_z = {}
        for t in (COLD, HOT):
            frames = simulated[s]["frames"][t][apart if (t, s) == (HOT, 1.0) else 0 :]
            row, log_z[t] = _checked(run, molecule, (t, s), frames, options)
            checks.append(row)
        checks[-1] |= {"log_z_cold_hot": log_z[COLD] - log_z[HOT], "by_ladder": simulated[s]["log_z"]}
    return about | found | {"frames": len(data), "checks": checks}


def _simulated(molecule: Molecule, scale: float, seed: int) -> dict[str, Any]:
    """Replica exchange in temperature with one strength of the torsion."""
    target = trade.Target(
        lambda x, t: molecule.log_density(x, jnp.stack([t, jnp.full_like(t, scale)])),
        molecule.shape,
        Condition(COLD, HOT),
    )
    found = LADDER.sample(
        target,
        jax.random.key(seed),
        LADDER.ensembles * DRAWS,
        list(target.condition.grid(LADDER.rungs)),
        AlanineDipeptide().minimum(),
    )

    @jax.jit
    def energies(x: Array) -> Array:  # with the volume it has no temperature
        at = jnp.array([HOT, scale])
        energy = jax.vmap(lambda v: molecule.log_volume(v) - molecule.log_density(v, at))
        return GAS_CONSTANT * HOT * jax.lax.map(energy, x)

    each = [np.asarray(energies(x)) for x in found.samples.values()]
    cold, *_, hot = (np.asarray(x) for x in found.samples.values())
    beta = 1.0 / (GAS_CONSTANT * found.ladder)
    parts = [by_ladder(beta, np.stack([e[g] for e in each])) for g in np.array_split(np.arange(LADDER.ensembles), 10)]
    log_z = (float(np.mean(parts)), float(np.std(parts, ddof=1) / np.sqrt(len(parts))))
    return {"frames": {COLD: cold, HOT: hot}, "log_z": log_z}


def _checked(
    run: trade.Run, molecule: Molecule, c: tuple[float, float], frames: np.ndarray, options: Options
) -> tuple[dict[str, Any], float]:
    """At one condition: the NLL above that of the exact model, and the populations of φ > 0; and log Z."""
    weighted = run.weighted(jax.random.key(7), options.samples, c)
    flat = jnp.asarray(frames.reshape(-1, *molecule.shape)[:: max(frames.shape[0] * frames.shape[1] // 20_000, 1)])
    on_frames = np.asarray(log_density_batch(molecule, flat, jnp.asarray(c)) - run.model.log_prob(flat, c), np.float64)
    log_z = bennett(weighted.log_weight, on_frames)
    left = np.array([left_handed(molecule, x).mean() for x in frames])
    own = left_handed(molecule, np.asarray(weighted.x))
    weights = np.asarray(jax.nn.softmax(weighted.log_weight), np.float64)
    row = {
        "c": c,
        "ess": weighted.ess,
        "nll_gap": float(on_frames.mean() - log_z.value),
        "nll_gap_error": float(np.hypot(on_frames.std(ddof=1) / np.sqrt(len(on_frames)), log_z.error)),
        "phi_positive": float(own.mean()),
        "phi_positive_weighted": float(weights @ own),
        "phi_positive_exchange": (float(left.mean()), float(left.std(ddof=1) / np.sqrt(len(left)))),
    }
    return row, log_z.value

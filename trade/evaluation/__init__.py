"""How good a model is, and how far it can be trusted: verdicts, divergences, log Z, calibration, observables."""

from trade.evaluation import (
    calibration,
    classifier,
    divergence,
    free_energy,
    observables,
    ramachandran,
    reduced_potentials,
    surface,
    verdict,
    weights,
)
from trade.evaluation.belonging import check_data_belongs
from trade.evaluation.calibration import coverage, ranks, uniformity_error
from trade.evaluation.classifier import c2st
from trade.evaluation.divergence import Estimate, forward_kl, grid_kl, negative_log_likelihood
from trade.evaluation.examination import judge
from trade.evaluation.free_energy import FreeEnergy, bennett, thermodynamic_integration
from trade.evaluation.modes import unknown_modes
from trade.evaluation.reduced_potentials import ReducedPotentials
from trade.evaluation.surface import FreeEnergySurface, along_path
from trade.evaluation.verdict import Verdict, Witness
from trade.evaluation.weights import Quality, quality

__all__ = [
    "Estimate",
    "FreeEnergy",
    "FreeEnergySurface",
    "Quality",
    "ReducedPotentials",
    "Verdict",
    "Witness",
    "along_path",
    "bennett",
    "c2st",
    "calibration",
    "check_data_belongs",
    "classifier",
    "coverage",
    "divergence",
    "forward_kl",
    "free_energy",
    "grid_kl",
    "judge",
    "negative_log_likelihood",
    "observables",
    "quality",
    "ramachandran",
    "ranks",
    "reduced_potentials",
    "surface",
    "thermodynamic_integration",
    "uniformity_error",
    "unknown_modes",
    "verdict",
    "weights",
]

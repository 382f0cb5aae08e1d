"""The paper's experiments, composed of what the other rooms offer."""

from collections.abc import Callable

from trade.experiments.alanine_dipeptide import AlanineDipeptideExperiment
from trade.experiments.gaussian_mixture import GaussianMixtureAblation, GaussianMixtureExperiment
from trade.experiments.multiwell import MultiWellAblation, MultiWellExperiment
from trade.experiments.reproduce import Experiment
from trade.experiments.scalar_field import ScalarFieldExperiment
from trade.experiments.two_moons import TwoMoonsExperiment
from trade.targets import ScalarField

EXPERIMENTS: dict[str, Callable[[], Experiment]] = {
    "alanine-dipeptide": AlanineDipeptideExperiment,
    "gaussian-mixture": GaussianMixtureExperiment,
    "gaussian-mixture-ablation": GaussianMixtureAblation,
    "multiwell": MultiWellExperiment,
    "multiwell-ablation": MultiWellAblation,
    "scalar-field": ScalarFieldExperiment,
    "scalar-field-16": lambda: ScalarFieldExperiment(ScalarField(16), "scalar-field-16"),
    "two-moons": TwoMoonsExperiment,
    "two-moons-uniform": lambda: TwoMoonsExperiment("uniform", "two-moons-uniform"),
}

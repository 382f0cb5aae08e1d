"""The targets that are shipped: most of them with exact samplers and exact log Z."""

from trade.targets.augmented import Augmented
from trade.targets.gaussian_mixture import GaussianMixture, six_modes
from trade.targets.multiwell import MultiWell
from trade.targets.power_posterior import PowerPosterior
from trade.targets.scalar_field import ScalarField

__all__ = ["Augmented", "GaussianMixture", "MultiWell", "PowerPosterior", "ScalarField", "six_modes"]

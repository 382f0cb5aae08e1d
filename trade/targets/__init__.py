"""The targets that are shipped: most of them with exact samplers and exact log Z."""

from trade.targets.augmented import Augmented
from trade.targets.gaussian_mixture import GaussianMixture, six_modes
from trade.targets.multiwell import MultiWell
from trade.targets.scalar_field import ScalarField

__all__ = ["Augmented", "GaussianMixture", "MultiWell", "ScalarField", "six_modes"]

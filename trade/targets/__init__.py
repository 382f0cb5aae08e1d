"""Targets with exact samplers and exact log Z, to test and to demonstrate with."""

from trade.targets.augmented import Augmented
from trade.targets.gaussian_mixture import GaussianMixture, six_modes
from trade.targets.multiwell import MultiWell

__all__ = ["Augmented", "GaussianMixture", "MultiWell", "six_modes"]

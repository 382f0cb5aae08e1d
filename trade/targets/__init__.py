"""The targets that are shipped; some of them have exact samplers and an exact log Z."""

from trade.targets.augmented import Augmented
from trade.targets.bridge import Bridge, bridge
from trade.targets.energy_free import boltzmann, power
from trade.targets.gaussian_mixture import GaussianMixture, six_modes
from trade.targets.lennard_jones import LennardJones
from trade.targets.multiwell import MultiWell
from trade.targets.power_posterior import PowerPosterior
from trade.targets.scalar_field import ScalarField
from trade.targets.two_moons import TwoMoons

__all__ = [
    "Augmented",
    "Bridge",
    "GaussianMixture",
    "LennardJones",
    "MultiWell",
    "PowerPosterior",
    "ScalarField",
    "TwoMoons",
    "boltzmann",
    "bridge",
    "power",
    "six_modes",
]

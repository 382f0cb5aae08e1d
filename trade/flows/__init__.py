"""Conditional flows on flowjax's interfaces."""

from trade.flows.adapter import Adapter
from trade.flows.affine import AffineCoupling, VolumePreservingCoupling
from trade.flows.bounded import Bounded
from trade.flows.circular import CircularCoupling
from trade.flows.circular_recipes import CircularFlow
from trade.flows.conditioner import MLP, NetworkSpec, ResidualMLP, Steep
from trade.flows.continuous import ContinuousField
from trade.flows.convolution import Convolutional
from trade.flows.coupling import Coupling, SplineCoupling, Stack
from trade.flows.default import default_flow
from trade.flows.flow import Flow, Recipe
from trade.flows.hierarchy import Hierarchy
from trade.flows.latent import LatentSpec, Normal, PowerScaled, PowerScaledNormal
from trade.flows.lattice_recipes import ContinuousLatticeFlow, ConvolutionalFlow, LatticeFlow, on_lattice
from trade.flows.recipes import AffineFlow, SplineFlow, VolumePreservingFlow, spline_flow
from trade.flows.rescale import Rescale
from trade.flows.standardise import Standardise, adapt_to_data
from trade.flows.steerable import SteerableCoupling
from trade.flows.tails import Tails
from trade.flows.whiten import Whiten

__all__ = [
    "MLP",
    "Adapter",
    "AffineCoupling",
    "AffineFlow",
    "Bounded",
    "CircularCoupling",
    "CircularFlow",
    "ContinuousField",
    "ContinuousLatticeFlow",
    "Convolutional",
    "ConvolutionalFlow",
    "Coupling",
    "Flow",
    "Hierarchy",
    "LatentSpec",
    "LatticeFlow",
    "NetworkSpec",
    "Normal",
    "PowerScaled",
    "PowerScaledNormal",
    "Recipe",
    "Rescale",
    "ResidualMLP",
    "SplineCoupling",
    "SplineFlow",
    "Stack",
    "Standardise",
    "Steep",
    "SteerableCoupling",
    "Tails",
    "VolumePreservingCoupling",
    "VolumePreservingFlow",
    "Whiten",
    "adapt_to_data",
    "default_flow",
    "on_lattice",
    "spline_flow",
]

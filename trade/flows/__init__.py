"""Conditional flows on flowjax's interfaces."""

from trade.flows.affine import AffineCoupling, VolumePreservingCoupling
from trade.flows.circular import CircularCoupling
from trade.flows.circular_recipes import CircularFlow
from trade.flows.conditioner import MLP, ResidualMLP
from trade.flows.convolution import Convolutional
from trade.flows.coupling import Coupling, SplineCoupling, Stack
from trade.flows.latent import Normal, PowerScaled, PowerScaledNormal
from trade.flows.lattice_recipes import ConvolutionalFlow, LatticeFlow, on_lattice
from trade.flows.recipes import AffineFlow, Flow, SplineFlow, VolumePreservingFlow, spline_flow
from trade.flows.rescale import Rescale
from trade.flows.standardise import Standardise, adapt_to_data
from trade.flows.steerable import SteerableCoupling
from trade.flows.whiten import Whiten

__all__ = [
    "MLP",
    "AffineCoupling",
    "AffineFlow",
    "CircularCoupling",
    "CircularFlow",
    "Convolutional",
    "ConvolutionalFlow",
    "Coupling",
    "Flow",
    "LatticeFlow",
    "Normal",
    "PowerScaled",
    "PowerScaledNormal",
    "Rescale",
    "ResidualMLP",
    "SplineCoupling",
    "SplineFlow",
    "Stack",
    "Standardise",
    "SteerableCoupling",
    "VolumePreservingCoupling",
    "VolumePreservingFlow",
    "Whiten",
    "adapt_to_data",
    "on_lattice",
    "spline_flow",
]

"""Conditional flows on flowjax's interfaces."""

from trade.flows.affine import VolumePreservingCoupling
from trade.flows.circular import CircularCoupling, CircularFlow
from trade.flows.conditioner import MLP, ResidualMLP
from trade.flows.convolution import Convolutional
from trade.flows.coupling import SplineCoupling, Stack
from trade.flows.latent import Normal, PowerScaled, PowerScaledNormal
from trade.flows.lattice_recipes import ConvolutionalFlow, LatticeFlow, on_lattice
from trade.flows.recipes import Flow, SplineFlow, VolumePreservingFlow, spline_flow
from trade.flows.rescale import Rescale
from trade.flows.standardise import Standardise, adapt_to_data

__all__ = [
    "MLP",
    "CircularCoupling",
    "CircularFlow",
    "Convolutional",
    "ConvolutionalFlow",
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
    "VolumePreservingCoupling",
    "VolumePreservingFlow",
    "adapt_to_data",
    "on_lattice",
    "spline_flow",
]

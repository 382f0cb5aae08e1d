"""Conditional flows on flowjax's interfaces."""

from trade.flows.conditioner import MLP, ResidualMLP
from trade.flows.coupling import SplineCoupling, Stack
from trade.flows.latent import Normal, PowerScaled, PowerScaledNormal
from trade.flows.recipes import Flow, SplineFlow, spline_flow
from trade.flows.standardise import Standardise, adapt_to_data

__all__ = [
    "MLP",
    "Flow",
    "Normal",
    "PowerScaled",
    "PowerScaledNormal",
    "ResidualMLP",
    "SplineCoupling",
    "SplineFlow",
    "Stack",
    "Standardise",
    "adapt_to_data",
    "spline_flow",
]

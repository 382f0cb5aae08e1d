"""Samples of the target: weighted or corrected from the flow's own, or by Markov chains and replica exchange."""

from trade.sampling.correction import Chain, integrated_autocorrelation, metropolis
from trade.sampling.importance import Weighted, weighted_samples
from trade.sampling.mcmc import MarkovChains, Mixing
from trade.sampling.tempering import Exchanged, ReplicaExchange

__all__ = [
    "Chain",
    "Exchanged",
    "MarkovChains",
    "Mixing",
    "ReplicaExchange",
    "Weighted",
    "integrated_autocorrelation",
    "metropolis",
    "weighted_samples",
]

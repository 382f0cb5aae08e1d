"""Reduced potentials of samples at several conditions, in the convention of pymbar."""

from collections.abc import Iterable
from dataclasses import dataclass

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from trade import check
from trade.abstract_condition import ConditionLike
from trade.abstract_target import AbstractTarget
from trade.errors import TradeError
from trade.model import Model
from trade.sampling.importance import check_pair, log_target


@dataclass(frozen=True)
class ReducedPotentials:
    """Samples of a flow at K conditions, and what pymbar's ``MBAR(u_kn, N_k)`` makes free energies of.

    Samples of the flow at c are not samples of q(·|c), and MBAR needs the density that each sample was drawn from. So
    there are 2K states, and u is minus the logarithm of their density, normalised or not:

    - 0 to K-1 are the flows, u = -log p_θ(x|c_k), with n samples each. They are normalised: their free energies are
      zero, and how far MBAR's differ from it is a check.
    - K to 2K-1 are the targets, u = -log q(x|c_k), with no samples. Their free energies are -log Z(c_k), whatever
      the flows are; bad ones only make the errors large. Every sample counts at every condition.

    Warning:
        MBAR solves in JAX with 64 bits, and leaves it so: call it under ``with jax.enable_x64(True):``.

    Args:
        u_kn: Reduced potentials of all samples in all states, of shape (2K, K n); infinite where a density is zero.
        N_k: Number of samples that were drawn from each state, of shape (2K,): n for flows, 0 for targets.
        conditions: The K conditions.
        x: The samples, of shape (K n, ...): first those of the flow at the first condition.
    """

    u_kn: np.ndarray
    N_k: np.ndarray
    conditions: np.ndarray
    x: np.ndarray

    @property
    def targets(self) -> np.ndarray:
        """Which of the states are targets, in the order of the conditions."""
        return np.arange(len(self.conditions), len(self.N_k))

    @property
    def log_weight(self) -> np.ndarray:
        """log q - log p_θ of each sample at the condition it was drawn at, of shape (K, n)."""
        k = len(self.conditions)
        own = self.u_kn.reshape(2, k, k, -1)[:, np.arange(k), np.arange(k)]
        return own[0] - own[1]


def reduced_potentials(
    model: Model,
    target: AbstractTarget,
    key: Array,
    n: int,
    conditions: ConditionLike | Iterable[ConditionLike],
    observation: ArrayLike | None = None,
) -> ReducedPotentials:
    """Draw samples of a model at several conditions, and evaluate model and target on all of them at each.

    Args:
        model: The model.
        target: The family of densities.
        key: A JAX random key.
        n: Samples at each condition.
        conditions: The conditions, no two alike.
        observation: The observation, for a model that takes one.

    Returns:
        Samples and reduced potentials.
    """
    check_pair(model, target)
    if not target.has_density:
        raise TradeError("reduced_potentials needs a target with a density.")
    c = model.condition.check_all(conditions)
    n = check.count(n, (len(c), *model.shape))
    drawn = [
        model.sample_and_log_prob(k, n, value, observation)
        for k, value in zip(jax.random.split(check.random_key(key), len(c)), c, strict=True)
    ]
    u = np.empty((2, len(c), len(c), n))
    for k, value in enumerate(c):
        for j, (x, log_prob) in enumerate(drawn):
            u[0, k, j] = -(log_prob if j == k else model.log_prob(x, value, observation))
            u[1, k, j] = -log_target(model, target, x, value, observation)
    if np.isnan(u).any() or np.isneginf(u).any():
        raise TradeError(f"A log density is NaN or infinite at {int((~(u > -np.inf)).sum())} of {u.size} samples.")
    counts = np.repeat([n, 0], len(c))
    samples = np.concatenate([np.asarray(x) for x, _ in drawn])
    return ReducedPotentials(u.reshape(2 * len(c), -1), counts, np.array(c), samples)

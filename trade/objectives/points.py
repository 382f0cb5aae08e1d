"""Where in x the gradient residual is evaluated: p_grad(x|c)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.devices import shared_out
from trade.model import draw, draw_from_mixture
from trade.objectives.term import Problem


def each(function: Callable[..., Any], *arrays: Any, at_once: int | None = None) -> Any:
    """The function of every entry along a first axis: one batch, shared out among the devices there are.

    Args:
        function: Of one entry of each of the arrays.
        arrays: Trees of arrays with a common first axis.
        at_once: Of more entries than these, so many at a time: derivatives are computed for each lot by itself and
            added up, so that the memory does not grow with the number, at the price of one more pass forward.

    Returns:
        The results, along a first axis.
    """

    def lot(entries: Any) -> Any:
        return jax.vmap(function)(*shared_out(entries))

    n = len(jax.tree.leaves(arrays)[0])
    if at_once is None or n <= at_once:
        return lot(arrays)
    lots, rest = divmod(n, at_once)
    first = jax.tree.map(lambda a: a[: lots * at_once].reshape(lots, at_once, *a.shape[1:]), arrays)
    found = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), jax.lax.map(jax.checkpoint(lot), first))
    if not rest:
        return found
    last = jax.checkpoint(lot)(jax.tree.map(lambda a: a[lots * at_once :], arrays))
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), found, last)


def at_points(function: Callable[..., Any], x: Any, *of_conditions: Any, at_once: int | None = None) -> Any:
    """The function of every state x, with leading axes (C, P), and of what belongs to its condition, of leading axis C.

    All points are one batch: with two batch axes a CPU copies what a product's derivative needs into another order
    first, which takes as long as the product. See ``each`` for ``at_once``.
    """
    conditions, points = jax.tree.leaves(x)[0].shape[:2]
    repeated = jax.tree.map(lambda v: jnp.repeat(v, points, axis=0), of_conditions)
    flat = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), x)
    found = each(function, flat, *repeated, at_once=at_once)
    return jax.tree.map(lambda v: v.reshape(conditions, points, *v.shape[1:]), found)


def model_states(flow: AbstractDistribution, u: Array, y: Array | None, n: int, key: Array) -> tuple[Array, Array]:
    """n states of p_θ(x|u) at each of the conditions u, and their log density: of shapes (C, n, ...) and (C, n)."""
    return at_points(lambda k, v, w: draw(flow, k, v, w), jax.random.split(key, (len(u), n)), u, y)


class Points(NamedTuple):
    """States at each condition, of shape (C, P, …), and what is known of them, (C, P).

    Args:
        x: The states.
        log_prob: log p_θ(x|u).
        log_base: Log density of what they were drawn from.
        own: How many of each condition's states, the first ones, are of p_θ itself.
    """

    x: Array
    log_prob: Array
    log_base: Array
    own: int


@dataclass(frozen=True)
class ModelPoints:
    """States from the model itself, perturbed (Section 4.3.3), some of them from a wider latent.

    A model whose tails are too short does not see what it misses: it has no states there, and its weights look good.
    So a part of the states comes from a latent that is a little wider. All are weighted as of the mixture.

    Args:
        noise: Standard deviation of Gaussian noise added to each state.
        symmetries: Apply a random symmetry of the target to each state.
        wider: Part of the states from a wider latent; 0 for none.
        excess: How much wider: KL divergence of the wider from the latent itself, in nats, whatever the dimension.
    """

    noise: float = 0.0
    symmetries: bool = False
    wider: float = 0.25
    excess: float = 0.3

    def __post_init__(self) -> None:
        check.numbers(self, "wider", low=0, high=1, open_high=True)
        check.numbers(self, "excess", "noise", low=0)
        check.flags(self, "symmetries")

    @property
    def moves(self) -> bool:
        """Whether ``perturb`` does anything."""
        return self.symmetries or self.noise > 0.0

    def draw(self, flow: AbstractDistribution, u: Array, y: Array | None, n: int, key: Array) -> Points:
        """States at each of the conditions, and their log density.

        Args:
            flow: The flow that is sampled.
            u: Chart coordinates, of shape (C,).
            y: The observation of each condition, with first axis C, or None.
            n: States at each of them.
            key: A JAX random key.

        Returns:
            The states, of shape (C, n, *shape), and what is known of them.
        """
        own = n - int(self.wider * n)
        if own == n:
            x, log_p = model_states(flow, u, y, n, key)
            return Points(x, log_p, log_p, n)
        # KL(N(0, f²) || N(0, 1)) is about (f - 1)² for each coordinate.
        factor = jnp.asarray(1.0 + (self.excess / prod(flow.shape)) ** 0.5)
        wide = jnp.broadcast_to(jnp.arange(n) >= own, (len(u), n))

        def one(start: tuple[Array, Array], u: Array, y: Array | None) -> tuple[Array, Array, Array]:
            return draw_from_mixture(flow, start[0], u, y, start[1], factor)

        x, log_p, log_ratio = at_points(one, (jax.random.split(key, (len(u), n)), wide), u, y)
        part = 1.0 - own / n
        return Points(x, log_p, log_p + jnp.logaddexp(jnp.log(1.0 - part), jnp.log(part) + log_ratio), own)

    def perturb(self, x: Array, problem: Problem, key: Array) -> Array:
        """One state with noise and a random symmetry, as far as they are asked for.

        Args:
            x: One state.
            problem: Gives the target and its symmetry.
            key: A JAX random key.

        Returns:
            The state, moved.
        """
        key_noise, key_symmetry = jax.random.split(key)
        if self.symmetries:
            x = problem.target.symmetry(key_symmetry, x)
        if self.noise > 0.0:
            x = x + self.noise * jax.random.normal(key_noise, x.shape, x.dtype)
        return x

"""The two moons of simulation-based inference (Greenberg et al. 2019), with its exact power posteriors."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade.errors import TradeError
from trade.targets.power_posterior import PowerPosterior

RADIUS, WIDTH = 0.1, 0.01
PRIOR_SCALE = 0.3
IMPOSSIBLE = -1e4  # log likelihood of what no α gives; finite, so that residuals stay so
Prior = Literal["normal", "uniform"]


def log_normal_prior(x: Array) -> Array:
    """N(0, 0.3²) in both parameters."""
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, scale=PRIOR_SCALE))


def log_uniform_prior(x: Array) -> Array:
    """Uniform on [-1, 1]²."""
    return jnp.where(jnp.max(jnp.abs(x)) <= 1.0, -jnp.log(4.0), IMPOSSIBLE)


def centre(x: Array) -> Array:
    """The centre of the half circle on which the observations of ψ lie."""
    return jnp.stack([0.25 - jnp.abs(x[0] + x[1]) / np.sqrt(2.0), (x[1] - x[0]) / np.sqrt(2.0)])


def moon(y: Array, x: Array) -> tuple[Array, Array]:
    """The (r, α) that leads from ψ to y."""
    along, across = y - centre(x)
    # Off the origin, where neither the radius nor the angle has a derivative.
    square = jnp.maximum(along**2 + across**2, 1e-12)
    return jnp.sqrt(square), jnp.arctan2(across, jnp.where(square > 1e-12, along, 1.0))


def log_likelihood(y: Array, x: Array) -> Array:
    """p(y|ψ) = N(r; 0.1, 0.01²) / (π r) for |α| < π/2."""
    r, angle = moon(y, x)
    inside = jax.scipy.stats.norm.logpdf(r, RADIUS, WIDTH) - jnp.log(jnp.pi * r)
    return jnp.where(jnp.abs(angle) < 0.5 * jnp.pi, inside, IMPOSSIBLE)


def simulate(key: Array, x: Array) -> Array:
    """One observation for one ψ (Eqs. 29-32, with the sum under the modulus that the task has)."""
    key_r, key_angle = jax.random.split(key)
    r = RADIUS + WIDTH * jax.random.normal(key_r)
    angle = jax.random.uniform(key_angle, minval=-0.5 * jnp.pi, maxval=0.5 * jnp.pi)
    return centre(x) + r * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def two_moons(prior: Prior = "normal", *, likelihood: bool = True) -> PowerPosterior:
    """The task as a target, with or without its likelihood."""
    priors = {"normal": log_normal_prior, "uniform": log_uniform_prior}
    if prior not in priors:
        raise TradeError(f"two_moons prior must be 'normal' or 'uniform', got {prior!r}.")
    return PowerPosterior(priors[prior], log_likelihood if likelihood else None, shape=(2,), observation_shape=(2,))


def pairs(key: Array, n: int, prior: Prior = "normal") -> tuple[Array, Array]:
    """n parameters from the prior and an observation of each: the data at β = 1."""
    key_x, key_y = jax.random.split(key)
    if prior == "normal":
        x = PRIOR_SCALE * jax.random.normal(key_x, (n, 2))
    else:
        x = jax.random.uniform(key_x, (n, 2), minval=-1.0, maxval=1.0)
    return x, jax.vmap(simulate)(jax.random.split(key_y, n), x)

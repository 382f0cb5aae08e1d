"""The two moons of simulation-based inference (Greenberg et al. 2019), with its exact power posteriors."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.targets.power_posterior import IMPOSSIBLE, PowerPosterior

RADIUS, WIDTH = 0.1, 0.01
PRIOR_SCALE = 0.3
Prior = Literal["normal", "uniform"]


def log_normal_prior(x: Array) -> Array:
    """N(0, 0.3²) in both parameters."""
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, scale=PRIOR_SCALE))


def log_uniform_prior(x: Array) -> Array:
    """Uniform on [-1, 1]²."""
    return jnp.where(jnp.max(jnp.abs(x)) <= 1.0, -jnp.log(4.0), -jnp.inf)


_PRIORS: dict[str, Callable[[Array], Array]] = {"normal": log_normal_prior, "uniform": log_uniform_prior}


def centre(x: Array) -> Array:
    """The centre of the half circle on which the observations of ψ lie."""
    return jnp.stack([0.25 - jnp.abs(x[0] + x[1]) / np.sqrt(2.0), (x[1] - x[0]) / np.sqrt(2.0)])


def moon(y: Array, x: Array) -> tuple[Array, Array]:
    """The (r, α) that leads from ψ to y."""
    along, across = y - centre(x)
    # Off the origin, where neither the radius nor the angle has a derivative.
    square = jnp.maximum(along**2 + across**2, 1e-12)
    return jnp.sqrt(square), jnp.arctan2(across, jnp.where(square > 1e-12, along, 1.0))


def radius_and_parameters(x: Array, y: Array) -> Array:
    """What calibration looks at: r, ψ1 and ψ2."""
    return jnp.concatenate([moon(y, x)[0][None], x])


def log_likelihood(y: Array, x: Array) -> Array:
    """p(y|ψ) = N(r; 0.1, 0.01²) / (π r) for |α| < π/2."""
    r, angle = moon(y, x)
    return jnp.where(jnp.abs(angle) < 0.5 * jnp.pi, _log_on_moon(r), IMPOSSIBLE)


def _log_on_moon(r: Array) -> Array:
    return jax.scipy.stats.norm.logpdf(r, RADIUS, WIDTH) - jnp.log(jnp.pi * r)


def simulate(key: Array, x: Array) -> Array:
    """One observation for one ψ (Eqs. 29-32, with the sum under the modulus that the task has)."""
    key_r, key_angle = jax.random.split(key)
    r = RADIUS + WIDTH * jax.random.normal(key_r)
    angle = jax.random.uniform(key_angle, minval=-0.5 * jnp.pi, maxval=0.5 * jnp.pi)
    return _observed(x, r, angle)


def _observed(x: Array, r: Array, angle: Array) -> Array:
    return centre(x) + r * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


class TwoMoons(PowerPosterior):
    """The task as a target.

    Args:
        prior: ``"normal"``, N(0, 0.3²) as in the paper, or ``"uniform"`` on [-1, 1]² as in the sbibm benchmark.
        likelihood: False hides the likelihood: then only energy-free training can use it.
    """

    prior: Prior = eqx.field(static=True)

    def __init__(self, prior: Prior = "normal", *, likelihood: bool = True) -> None:
        check.choice(prior, "TwoMoons prior", *_PRIORS)
        self.prior = prior
        known = log_likelihood if check.flag(likelihood, "TwoMoons likelihood") else None
        super().__init__(_PRIORS[prior], known, shape=(2,), observation_shape=(2,))


def pairs(key: Array, n: int, prior: Prior = "normal") -> tuple[Array, Array]:
    """n parameters from the prior and an observation of each: the data at β = 1."""
    key_x, key_y = jax.random.split(check.random_key(key))
    n = check.count(n, (2,))
    x = _from_prior(key_x, n, prior)
    return x, jax.vmap(simulate)(jax.random.split(key_y, n), x)


def _from_prior(key: Array, n: int, prior: Prior) -> Array:
    check.choice(prior, "prior", *_PRIORS)
    if prior == "normal":
        return PRIOR_SCALE * jax.random.normal(key, (n, 2))
    return jax.random.uniform(key, (n, 2), minval=-1.0, maxval=1.0)


def tempered_pairs(key: Array, n: int, beta: float, prior: Prior = "normal") -> tuple[Array, Array]:
    """n pairs whose ψ has the exact power posterior p(ψ|y, β): ψ from the prior, y from p(y|ψ)^β, normalised.

    The norm of p(y|ψ)^β over y is the same for all ψ, so that no approximation is needed.
    """
    key_x, key_r, key_angle = jax.random.split(check.random_key(key), 3)
    n, beta = check.count(n, (2,)), check.number(beta, "beta", 0, open_low=True)
    x = _from_prior(key_x, n, prior)
    # In polar coordinates r has the density N(r)^β r^(1-β): its quantiles, on a fine grid.
    grid = np.linspace(*_radii(beta), 20_001)
    log_density = -0.5 * beta * ((grid - RADIUS) / WIDTH) ** 2 + (1.0 - beta) * np.log(grid)
    cumulative = np.cumsum(np.exp(log_density - log_density.max()))
    r = jnp.interp(jax.random.uniform(key_r, (n,)), jnp.asarray(cumulative / cumulative[-1]), jnp.asarray(grid))
    angle = jax.random.uniform(key_angle, (n,), minval=-0.5 * jnp.pi, maxval=0.5 * jnp.pi)
    return x, jax.vmap(_observed)(x, r, angle)


def _radii(beta: float) -> tuple[float, float]:
    """Where all but 1e-11 of the radii lie at the power β."""
    reach = 7.0 * WIDTH / np.sqrt(beta)
    return max(RADIUS - reach, 1e-4), RADIUS + reach


class GridPosterior(NamedTuple):
    """The exact posterior of one observation on a grid in (r, α), both branches of |ψ1 + ψ2|.

    Args:
        x: The parameters at the centres of the cells.
        weight: Probability of each cell.
        log_prob: Exact log density of ψ there.
    """

    x: Array
    weight: Array
    log_prob: Array


def grid_posterior(y: Array, beta: float, prior: Prior = "normal", radii: int = 64, angles: int = 128) -> GridPosterior:
    """p(ψ|y, β) by quadrature: the truth that models are compared with."""
    y, beta = jnp.asarray(check.array(y, "y", (2,)), float), check.number(beta, "beta", 0, open_low=True)
    check.choice(prior, "prior", *_PRIORS)
    radii, angles = check.integer(radii, "radii"), check.integer(angles, "angles")
    low, high = _radii(beta)
    dr, da = (high - low) / radii, np.pi / angles
    r, angle = np.meshgrid(
        low + dr * (np.arange(radii) + 0.5), -0.5 * np.pi + da * (np.arange(angles) + 0.5), indexing="ij"
    )
    return _grid_posterior(y, jnp.asarray(beta), jnp.asarray(r.ravel()), jnp.asarray(angle.ravel()), dr * da, prior)


@partial(jax.jit, static_argnames="prior")
def _grid_posterior(y: Array, beta: Array, r: Array, angle: Array, cell: float, prior: Prior) -> GridPosterior:
    along, across = _parameters(y, r, angle)
    x = jnp.concatenate([_from_diagonal(s * along, across) for s in (1.0, -1.0)])
    r, possible = jnp.tile(r, 2), jnp.tile(along >= 0.0, 2)
    log_joint = jax.vmap(_PRIORS[prior])(x) + beta * _log_on_moon(r)
    log_cell = jnp.where(possible, log_joint + jnp.log(r * cell), -jnp.inf)
    log_z = jax.nn.logsumexp(log_cell)
    return GridPosterior(x, jnp.exp(log_cell - log_z), log_joint - log_z)


def _parameters(y: Array, r: Array, angle: Array) -> tuple[Array, Array]:
    """|ψ1 + ψ2| / √2 and (ψ2 - ψ1) / √2 of the ψ that lead to y by (r, α)."""
    return 0.25 - y[0] + r * jnp.cos(angle), y[1] - r * jnp.sin(angle)


def _from_diagonal(along: Array, across: Array) -> Array:
    return jnp.stack([along - across, along + across], axis=-1) / np.sqrt(2.0)


def sample_posterior(key: Array, y: Array, beta: float, n: int, prior: Prior = "normal") -> Array:
    """n samples of the exact posterior: of a fine grid, each moved within its cell."""
    radii, angles = 400, 800
    key_cell, key_r, key_angle = jax.random.split(check.random_key(key), 3)
    n = check.count(n, (2,))
    grid = grid_posterior(y, beta, prior, radii, angles)
    cell = jax.random.choice(key_cell, len(grid.weight), (n,), p=grid.weight)
    sign, cell = jnp.where(cell < radii * angles, 1.0, -1.0), cell % (radii * angles)
    low, high = _radii(beta)
    r = low + (high - low) * (cell // angles + jax.random.uniform(key_r, (n,))) / radii
    angle = jnp.pi * ((cell % angles + jax.random.uniform(key_angle, (n,))) / angles - 0.5)
    along, across = _parameters(y, r, angle)
    return _from_diagonal(sign * along, across)

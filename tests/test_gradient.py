"""The gradient term (Eq. 19) and what makes it vanish (Theorem 4.1, Eq. 10)."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussians import At, LinearGaussian, clock_at, data_at, family, problem_of, tiny_spline

from trade import BatchExpectation, CausalGrid, Gradient, ModelPoints, Squared, TradeError, Widening
from trade.flows import PowerScaled
from trade.objectives.gradient import residual
from trade.objectives.points import at_points

KEY = jax.random.key(11)
D = 2
TARGET = family(0.25, 1.0, d=D)  # log q = -|x|²/(2c): p(x|c) = N(0, c)
PROBLEM = problem_of(TARGET, data_at(1.0, d=D))
SLOPE = np.log(2.0)  # d log c / du
CLOCK = clock_at(50)


@dataclass(frozen=True)
class ExactExpectation(BatchExpectation):
    """d log Z/du = (d/2) d log c/du, known for this family."""

    def estimate(self, state, flow, density, problem, u, y, drawn, key):
        return jnp.full(len(u), 0.5 * D * SLOPE)


@eqx.filter_jit
def loss_of(term, flow, problem):
    """Loss and outcome of one evaluation."""
    return term.loss(flow, term.init(KEY, problem), problem, CLOCK, KEY)


def spline_loss(exponent, expectation, conditions):
    """Eq. 19 of an untrained conditional spline flow whose latent has variance c^exponent."""
    flow = tiny_spline((D,), TARGET.condition, latent=PowerScaled(exponent))
    term = Gradient(conditions, expectation=expectation, norm=Squared(), points_per_condition=500)
    return float(loss_of(term, flow, PROBLEM)[0])


def test_residual_by_hand():
    """Eq. 19: ∂ log p_θ - ∂ log q + E[∂ log q]."""
    assert residual(1.0, 2.5, 1.2) == pytest.approx(-0.3)


def test_residual_vanishes_for_the_exact_density():
    """Theorem 4.1 (Eq. 10): N(0, c) solves the equation at every c and x."""
    assert spline_loss(1.0, ExactExpectation(), Widening()) < 1e-9


def test_residual_of_the_exact_density_is_the_sampling_error_of_the_expectation():
    """Eqs. 10, 19, 25: what is left is (Ē - E)², on average Var/n, here (d/2) slope²/n."""
    exact = LinearGaussian(log_scale=-0.5 * SLOPE, rate=0.5 * SLOPE, d=D)  # N(0, c), as c = 2^(u-1)
    term = Gradient(expectation=BatchExpectation(samples=5000), norm=Squared())
    value = float(loss_of(term, exact, PROBLEM)[0])
    assert 0.0 < value < 5.0 * 0.5 * D * SLOPE**2 / 5000


@pytest.mark.parametrize("c", [0.35])
def test_residual_of_a_wrong_density_by_hand(c):
    """Eq. 19 for p_θ = N(0, 1/c): the residual is slope Σ_i (1 - a z_i²) with a = (1 + 1/c²)/2, z normal.

    Its mean square is slope² (d² (1-a)² + 2 d a²).
    """
    value = spline_loss(-1.0, ExactExpectation(), At((float(TARGET.condition.chart(c)),)))
    a = 0.5 * (1.0 + c**-2)
    np.testing.assert_allclose(value, SLOPE**2 * (D**2 * (1.0 - a) ** 2 + 2.0 * D * a**2), rtol=0.15)


@dataclass(frozen=True)
class Quantiles(ModelPoints):
    """The model's own points mean + deviation · z, for fixed z: they move with its parameters."""

    z: tuple[float, ...] = (-1.0, 0.5, 2.0)

    def draw(self, flow, u, y, n, key):
        x = flow.location(u[0]) + flow.deviation(u[0]) * jnp.asarray(self.z)[:, None]
        return x[None], jax.vmap(lambda v: flow._log_prob(v, u))(x)[None]


def test_value_and_gradient_by_hand():
    """Eq. 19: only ∂_u log p_θ is differentiated; points, ∂_u log q and its mean are held fixed.

    For N(m + b u, s²) with s = exp(l + r u) and z = (x - m - b u)/s, ∂_u log p = b z/s + r (z² - 1).
    """
    m, b, log_s, r, u, c = 0.4, 0.3, -0.2, 0.25, -0.4, 2.0**-1.4
    target = family(0.25, 1.0)
    term = Gradient(At((u,)), Quantiles(), norm=Squared(), conditions_per_step=1, points_per_condition=3)
    flow = LinearGaussian(m, b, log_s, r)
    run = eqx.filter_jit(lambda f: term.value_and_grad(f, ((), ()), problem_of(target), CLOCK, KEY)[:2])
    report, grads = run(flow)

    z, s = np.array([-1.0, 0.5, 2.0]), np.exp(log_s + r * u)
    x = m + b * u + s * z
    log_p = -0.5 * z**2 - np.log(s)
    weights = np.exp(-(x**2) / (2 * c) - log_p)
    target_score = SLOPE * x**2 / (2 * c)
    left = b * z / s + r * (z**2 - 1.0) - target_score + weights @ target_score / weights.sum()
    np.testing.assert_allclose(report.losses["gradient"], np.mean(left**2), rtol=1e-4)

    d_z = -(b / s + 2.0 * r * z)  # of ∂_u log p_θ, for z falling by one at fixed x
    by_hand = {
        "mean": d_z / s,
        "slope": z / s + u * d_z / s,
        "log_scale": -b * z / s + z * d_z,
        "rate": z**2 - 1.0 + u * (-b * z / s + z * d_z),
    }
    for name, derivative in by_hand.items():
        np.testing.assert_allclose(getattr(grads, name)[0], np.mean(2.0 * left * derivative), rtol=1e-3)


def test_loss_is_fed_back_to_the_condition_sampler():
    """Section 4.3.2: one condition a step; its grid point averages the loss seen there, the others stay."""
    term = Gradient(CausalGrid(6, ema=0.9), conditions_per_step=1, points_per_condition=16)
    problem = problem_of(family(0.25, 1.0))
    before = term.init(KEY, problem)
    loss, outcome = loss_of(term, LinearGaussian(0.2), problem)
    changed = np.flatnonzero(np.asarray(outcome.state[0] != before[0]))
    assert len(changed) == 1
    np.testing.assert_allclose(outcome.state[0][changed[0]], 0.9 * 1.0 + 0.1 * float(loss), rtol=1e-5)


def test_noise_and_symmetries_move_the_evaluation_points():
    """Section 4.3.3: Gaussian noise of the given deviation, and a random symmetry of the target."""
    x, keys = jnp.full((4000, 1), 3.0), jax.random.split(KEY, 4000)
    problem = problem_of(family(symmetry=lambda key, x: jnp.where(jax.random.bernoulli(key), x, -x)))

    def moved(points):
        return np.asarray(jax.vmap(lambda v, k: points.perturb(v, problem, k))(x, keys))

    np.testing.assert_array_equal(moved(ModelPoints()), x)
    np.testing.assert_allclose(moved(ModelPoints(noise=0.2)).std(), 0.2, rtol=0.06)
    np.testing.assert_allclose(moved(ModelPoints(noise=0.2)).mean(), 3.0, atol=0.02)
    flipped = moved(ModelPoints(symmetries=True))
    np.testing.assert_array_equal(np.abs(flipped), x)
    assert abs(np.mean(flipped > 0) - 0.5) < 0.04


def test_first_bad_condition_is_named():
    """A density that is NaN below c = 1/2 puts the blame on a condition there."""
    problem = problem_of(
        family().__class__(lambda x, c: jnp.where(c < 0.5, jnp.nan, -(x**2).sum() / c), (1,), TARGET.condition)
    )
    term = Gradient(At((0.8, -0.6, -0.9)), conditions_per_step=3, points_per_condition=4)
    _, outcome = loss_of(term, LinearGaussian(), problem)
    np.testing.assert_allclose(outcome.suspect, 2.0**-1.6, rtol=1e-5)
    healthy = Gradient(At((0.8,)), conditions_per_step=3, points_per_condition=4)
    assert np.isnan(loss_of(healthy, LinearGaussian(), problem)[1].suspect)


@pytest.mark.parametrize("option", ["conditions_per_step", "points_per_condition"])
def test_gradient_refuses_counts_below_one(option):
    with pytest.raises(TradeError, match=option):
        Gradient(**{option: 0})


def test_every_point_meets_what_belongs_to_its_condition():
    """Also where there is no observation."""
    x, u = jax.random.normal(KEY, (3, 4, 2)), jnp.array([0.1, 0.2, 0.3])
    scaled, shifted = at_points(lambda x, u, y: (x.sum() * u, x - u), x, u, None)
    np.testing.assert_allclose(scaled, x.sum(axis=2) * u[:, None], rtol=1e-6)
    np.testing.assert_allclose(shifted, x - u[:, None, None], rtol=1e-6)

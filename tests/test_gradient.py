"""The gradient term (Eq. 19) and what makes it vanish (Theorem 4.1, Eq. 10)."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import At, LinearGaussian, all_finite, clock_at, data_at, family, noisy, problem_of, small_flow

from trade import Target, TradeError
from trade.flows import PowerScaled
from trade.model import log_prob
from trade.objectives import BatchExpectation, CausalGrid, Gradient, ModelPoints, Squared, Widening
from trade.objectives.condition_samplers import Seen
from trade.objectives.gradient import balanced_pulls, residual, truncated
from trade.objectives.points import Points, at_points
from trade.objectives.term import gradient_of

KEY = jax.random.key(11)
D = 2
TARGET = family(0.25, 1.0, d=D)  # log q = -|x|²/(2c): p(x|c) = N(0, c)
PROBLEM = problem_of(TARGET, data_at(1.0, d=D))
SLOPE = np.log(2.0)  # d log c / du
CLOCK = clock_at(50)


@dataclass(frozen=True)
class ExactExpectation(BatchExpectation):
    """d log Z/du = (d/2) d log c/du, known for this family."""

    def estimate(self, state, snapshot, at, drawn, key):
        return jnp.full(len(at.u), 0.5 * D * SLOPE)


@eqx.filter_jit
def loss_of(term, flow, problem):
    """Loss and outcome of one evaluation."""
    return term.loss(flow, term.init(KEY, problem), problem, CLOCK, KEY)


def residual_alone(conditions, **options):
    """The term of the paper: nothing but the residual, at states of the model itself."""
    options = {"points": ModelPoints(wider=0.0), "conditions_per_step": 8, "reweighted": 0.0, **options}
    return Gradient(conditions, **options)


def spline_loss(exponent, expectation, conditions):
    """Eq. 19 of an untrained conditional spline flow whose latent has variance c^exponent."""
    flow = small_flow((D,), TARGET.condition, latent=PowerScaled(exponent))
    term = residual_alone(conditions, expectation=expectation, penalty=Squared(), points_per_condition=500)
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
    term = residual_alone(Widening(), expectation=BatchExpectation(samples=5000), penalty=Squared())
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
    own: int = 3

    def draw(self, flow, u, y, n, key):
        def at(v):
            x = flow.location(v) + flow.deviation(v) * jnp.asarray(self.z)[:, None]
            return x, jax.vmap(lambda w: flow._log_prob(w, v[None]))(x)

        x, log_p = jax.vmap(at)(u)
        return Points(x, log_p, log_p, self.own)


def test_value_and_gradient_by_hand():
    """Eq. 19: only ∂_u log p_θ is differentiated; points, ∂_u log q and its mean are held fixed.

    For N(m + b u, s²) with s = exp(l + r u) and z = (x - m - b u)/s, ∂_u log p = b z/s + r (z² - 1).
    """
    m, b, log_s, r, u, c = 0.4, 0.3, -0.2, 0.25, -0.4, 2.0**-1.4
    target = family(0.25, 1.0)
    term = residual_alone(
        At((u,)), points=Quantiles(), penalty=Squared(), conditions_per_step=1, points_per_condition=3
    )
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
    _, outcome = loss_of(term, LinearGaussian(0.2), problem)
    changed = np.flatnonzero(np.asarray(outcome.state[0] != before[0]))
    assert len(changed) == 1
    np.testing.assert_allclose(outcome.state[0][changed[0]], 0.9 * 1.0 + 0.1 * float(outcome.parts[0]), rtol=1e-5)


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


# --- The forward KL that the same pass gives (Eq. 4, with the model as base)


def by_hand(z=(-1.0, 0.5, 2.0), u=-0.4, flow=(0.4, 0.3, -0.2, 0.25)):
    """States of N(m + b u, s²), their log density, and weights to N(0, c), in NumPy."""
    m, b, log_s, rate = flow
    s, c = np.exp(log_s + rate * u), 2.0 ** (u - 1.0)
    x = m + b * u + s * np.asarray(z)
    log_p = -0.5 * np.asarray(z) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)
    weights = np.exp(-(x**2) / (2 * c) - log_p)
    return x, log_p, weights / weights.sum()


def both(u, z, **options):
    """The residual and the forward KL at given states."""
    options = {"conditions_per_step": len(u), "points_per_condition": len(z), **options}
    return Gradient(At(u), Quantiles(z=z, own=len(z)), penalty=Squared(), **options)


def test_forward_kl_of_the_models_own_states_by_hand():
    """-Σ w log p_θ with w ∝ q/p_θ at each condition, averaged over two of them, beside the residual."""
    z, us = (-1.0, 0.5, 2.0), (-0.4, 0.3)
    loss, outcome = loss_of(both(us, z, reweighted=0.7), LinearGaussian(0.4, 0.3, -0.2, 0.25), problem_of(family()))
    forward = [-(w @ log_p) for _, log_p, w in (by_hand(z, u) for u in us)]
    np.testing.assert_allclose(outcome.parts[1], np.mean(forward), rtol=1e-4)
    np.testing.assert_allclose(loss, outcome.parts[0] + 0.7 * outcome.parts[1], rtol=1e-5)
    alone, same = loss_of(both(us, z, reweighted=0.0), LinearGaussian(0.4, 0.3, -0.2, 0.25), problem_of(family()))
    np.testing.assert_allclose(alone, outcome.parts[0], rtol=1e-6)
    assert same.parts == (alone,)


def test_large_weights_are_truncated():
    """No weight above twice the mean, then all to a sum of one."""
    z = (-1.0, 0.0, 1.0, 4.0)
    flow = (0.4, 0.3, -1.5, 0.25)
    _, log_p, weights = by_hand(z, -0.4, flow)
    assert weights.max() > 0.7
    cut = np.minimum(weights, 2.0 / 4.0)
    _, outcome = loss_of(both((-0.4,), z, truncate=2.0), LinearGaussian(*flow), problem_of(family()))
    np.testing.assert_allclose(outcome.parts[1], -(cut @ log_p) / cut.sum(), rtol=1e-4)
    np.testing.assert_allclose(truncated(jnp.log(jnp.asarray(weights)), 2.0), cut / cut.sum(), rtol=1e-5)
    np.testing.assert_allclose(truncated(jnp.log(jnp.asarray(weights)), 4.0), weights, rtol=1e-5)


def grads_of(term, flow, problem):
    """Report and gradient, compiled."""
    run = eqx.filter_jit(lambda f: term.value_and_grad(f, term.init(KEY, problem), problem, CLOCK, KEY)[:2])
    return run(flow)


def test_gradient_of_the_shared_pass_is_that_of_both_terms_apart():
    """On a spline flow, with states of a wider latent: neither states nor weights are differentiated."""
    us, n, weight = (-0.8, 0.1, 0.9), 32, 1.7
    flow = noisy(small_flow((D,), TARGET.condition), 0.2)
    term = Gradient(At(us), conditions_per_step=3, points_per_condition=n, reweighted=weight)
    u, points = jnp.asarray(us), term.points.draw(flow, jnp.asarray(us), None, n, jax.random.split(KEY, 6)[2])
    log_q = at_points(TARGET.log_density_at, points.x, u)
    weights = truncated(log_q - points.log_base, term.truncate)
    pulls = balanced_pulls(log_q, points.log_prob, points.log_base, weight, 1.0)
    assert float(jnp.abs(points.log_base - points.log_prob).max()) > 0.05

    def forward(f):
        log_p = at_points(lambda v, *c: log_prob(f, v, *c), points.x, u)
        value, pulled = (-jnp.sum(w * log_p, axis=1).mean() for w in (weights, pulls))
        return value + (pulled - jax.lax.stop_gradient(pulled)) / weight, jnp.zeros(())

    (value, _), apart = eqx.filter_jit(gradient_of(forward))(flow)
    report, shared = grads_of(term, flow, PROBLEM)
    residual_report, of_residual = grads_of(replace(term, reweighted=0.0), flow, PROBLEM)
    np.testing.assert_allclose(report.losses["reweighted"], value, rtol=1e-4)
    np.testing.assert_allclose(report.losses["gradient"], residual_report.losses["gradient"], rtol=1e-4)
    leaves = [jax.tree.leaves(tree) for tree in (shared, of_residual, apart)]
    assert max(float(jnp.abs(leaf).max()) for leaf in leaves[2]) > 0.05
    for total, one, two in zip(*leaves, strict=True):
        np.testing.assert_allclose(total, one + weight * two, rtol=2e-3, atol=2e-4)


def test_pulls_by_hand():
    """Of the model's own states: minus the constant of the forward KL, plus centred logarithms of weights, bounded."""
    log_own, log_q = jnp.log(jnp.array([[0.5, 0.2, 0.1, 0.1]])), jnp.log(jnp.array([[1.0, 0.8, 0.4, 1e-9]]))
    weights = np.array([2.0, 4.0, 4.0, 1e-8])
    logs = np.maximum(np.log(weights / weights.mean()), -3.0)
    found = balanced_pulls(log_q, log_own, log_own, 0.7, 2.0)[0]
    np.testing.assert_allclose(found, (2.0 * (logs - logs.mean()) - 0.7) / 4.0, rtol=1e-4)
    np.testing.assert_allclose(found.sum(), -0.7, rtol=1e-5)
    assert float(found[3]) < -0.7  # too much mass there, by far: pushed down by more than its number
    outside = balanced_pulls(log_q.at[0, 3].set(-jnp.inf), log_own, log_own, 0.7, 2.0)[0]
    np.testing.assert_allclose(outside, found, rtol=1e-4)


def test_divergences_of_wider_states_have_the_mean_of_own_ones():
    """With many states, the pulls' gradient is that of forward and reverse KL of two Gaussians, wherever drawn from."""
    u, n = -0.4, 200_000
    variance, flow = 2.0 ** (u - 1.0), LinearGaussian(0.3, 0.0, -0.4, 0.0)
    term = Gradient(At((u,)), conditions_per_step=1, points_per_condition=n, truncate=1e9)
    problem = problem_of(family())
    found = {}
    for wider in (0.0, 0.25):
        for reverse in (0.0, 1.0):
            used = replace(term, points=ModelPoints(wider=wider), reverse=reverse)
            alone = replace(used, reweighted=1e-6, reverse=0.0)  # the residual
            found[wider, reverse] = grads_of(used, flow, problem)[1].mean - grads_of(alone, flow, problem)[1].mean
    forward, both = 0.3 / np.exp(-0.8), 0.3 / np.exp(-0.8) + 0.3 / variance
    for wider in (0.0, 0.25):
        np.testing.assert_allclose(found[wider, 0.0], forward, rtol=0.05)
        np.testing.assert_allclose(found[wider, 1.0], both, rtol=0.05)


def test_a_model_that_is_right_is_left_alone_state_by_state():
    """Not only on average: there is no noise in the gradient at the optimum."""
    flow, term = LinearGaussian(), Gradient(conditions_per_step=4, points_per_condition=16)
    target = Target(lambda x, c: -0.5 * jnp.sum(x**2) + 0.0 * c, (1,), TARGET.condition)
    problem = problem_of(target)
    for pulled, least, most in ((term, 0.0, 1e-5), (replace(term, points=ModelPoints(symmetries=True)), 1e-3, 1.0)):
        size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(grads_of(pulled, flow, problem)[1]))
        assert least <= size <= most


def test_forward_kl_estimates_that_of_the_target():
    """At c = 2^(u-1), with many states of a wide model, it is -E[log p_θ] over N(0, c)."""
    flow, u = LinearGaussian(log_scale=0.1), -0.4
    c, variance = 2.0 ** (u - 1.0), np.exp(0.2)
    term = Gradient(At((u,)), conditions_per_step=1, points_per_condition=20_000, truncate=1e9)
    _, outcome = loss_of(term, flow, problem_of(family()))
    exact = 0.5 * c / variance + 0.5 * np.log(2 * np.pi * variance)
    np.testing.assert_allclose(outcome.parts[1], exact, rtol=0.01)


def test_symmetries_move_the_states_and_not_their_weights():
    """A model that has the symmetry itself sees no difference; one that has not learns from the mirrored states."""
    problem = problem_of(family(symmetry=lambda key, x: -x))
    found = {}
    for mean in (0.0, 0.4):
        for symmetries in (False, True):
            term = replace(both((-0.4, 0.5), (-1.0, 0.5, 2.0)), points=Quantiles(symmetries=symmetries))
            _, outcome = loss_of(term, LinearGaussian(mean, mean, rate=0.25), problem)
            found[mean, symmetries] = np.asarray(outcome.parts)
    np.testing.assert_allclose(found[0.0, True], found[0.0, False], rtol=1e-5)
    assert np.all(np.abs(found[0.4, True] - found[0.4, False]) > 0.01)


# --- What the condition sampler hears


@dataclass(frozen=True)
class Recorded(At):
    """Remembers what was seen at its conditions."""

    def init(self, problem):
        return Seen(jnp.zeros(len(self.u)), jnp.zeros(len(self.u)))

    def update(self, state, u, seen, problem, clock):
        return seen

    def notes(self, state, problem):
        return {"least": state.ess.min()}


@pytest.mark.parametrize("own", [4, 3])
def test_sampler_hears_the_loss_and_the_ess_of_the_models_own_states(own):
    """By hand: Kish's ESS of the first ``own`` states alone; the rest were drawn from something wider."""
    z, us = (-1.0, 0.5, 2.0, -2.5), (-0.4, 0.3)
    term = replace(both(us, z), conditions=Recorded(us), points=Quantiles(z=z, own=own))
    _, outcome = loss_of(term, LinearGaussian(0.4, 0.3, -0.2, 0.25), problem_of(family()))
    heard = outcome.state[0]
    for i, u in enumerate(us):
        weights = by_hand(z, u)[2][:own]
        np.testing.assert_allclose(heard.ess[i], weights.sum() ** 2 / (weights**2).sum() / own, rtol=1e-4)
    np.testing.assert_allclose(heard.loss.mean(), outcome.parts[0], rtol=1e-5)
    np.testing.assert_allclose(outcome.notes["least"], heard.ess.min(), rtol=1e-6)


# --- Outside the support


def half_line(x, c):
    """A density on the positive half line."""
    return jnp.where(x[0] > 0.0, -(x**2).sum() / (2.0 * c), -jnp.inf)


HALF = problem_of(Target(half_line, (1,), TARGET.condition))
PARTS = [0.0, 1.0]


@pytest.mark.parametrize("reweighted", PARTS)
def test_states_outside_the_support_are_no_part_of_the_loss(reweighted):
    """Loss and gradient are finite. The residual knows nothing of them; the divergences push mass away from there."""
    found = []
    for outside in (-0.3, -2.0):
        term = both((-0.4, 0.3), (outside, 0.8, outside - 0.5, 1.5), reweighted=reweighted)
        found.append(grads_of(term, LinearGaussian(0.0, 0.0, -0.2, 0.25), HALF))
        assert all_finite(found[-1][0].losses) and all_finite(found[-1][1])
    (report, grads), (other, same) = found
    for name, value in report.losses.items():
        np.testing.assert_allclose(other.losses[name], value, rtol=1e-5)
    if reweighted:
        assert float(grads.mean[0]) < -0.1  # up, away from the negative half line
    else:
        for one, two in zip(jax.tree.leaves(grads), jax.tree.leaves(same), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
        assert float(jnp.abs(grads.log_scale[0])) > 1e-3  # those inside do


@pytest.mark.parametrize("reweighted", PARTS)
def test_a_condition_without_a_state_in_the_support_does_not_pull(reweighted):
    """Nothing is known there; the other conditions are learned from as if it had not been drawn."""
    flow, z = LinearGaussian(0.0, 0.0, -0.2, 0.25), (0.3, 0.8, 1.5)
    shifted = eqx.tree_at(lambda f: f.slope, flow, jnp.full(1, 8.0))  # at u = -0.5 all states are near -4
    term = both((-0.5, 0.0), z, reweighted=reweighted)
    report, grads = grads_of(term, shifted, HALF)
    assert all_finite(report.losses), report.losses
    assert all_finite(grads)
    alone = grads_of(both((0.0,), z, reweighted=reweighted), shifted, HALF)
    for name in term.parts:
        np.testing.assert_allclose(report.losses[name], 0.5 * alone[0].losses[name], rtol=1e-4)
    np.testing.assert_allclose(grads.log_scale, 0.5 * alone[1].log_scale, rtol=1e-4)


@pytest.mark.parametrize("reweighted", PARTS)
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_density_that_is_not_a_number_is_not_hidden(reweighted, bad):
    """One of six states, beside some outside the support: the loss is not finite, and the condition is named."""

    def broken(x, c):
        return jnp.where((x[0] > 1.0) & (c < 0.5), bad, half_line(x, c))

    problem = problem_of(Target(broken, (1,), TARGET.condition))
    term = both((0.4, -0.3), (-0.5, 0.8, 2.0), reweighted=reweighted)
    loss, outcome = loss_of(term, LinearGaussian(), problem)
    assert not np.isfinite(loss)
    np.testing.assert_allclose(outcome.suspect, 2.0**-1.3, rtol=1e-5)


def broken_beyond(limit, bad):
    """N(0, c), and no number beyond some distance."""

    def log_density(x, c):
        return jnp.where(jnp.abs(x[0]) > limit, bad, -(x**2).sum() / (2.0 * c))

    return problem_of(Target(log_density, (1,), TARGET.condition))


@pytest.mark.parametrize("reweighted", PARTS)
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_few_states_whose_density_is_no_number_are_taken_for_outside_and_counted(reweighted, bad):
    """One of twelve, far out: loss and gradient are those of a density that is zero there."""
    z, us = (0.1, -0.5, 0.8, -1.1, 0.4, -5.0), (0.4, -0.3)
    term, flow = both(us, z, reweighted=reweighted), LinearGaussian(rate=0.2)
    limit = 4.9  # at u = 0.4 the last state lies at -5.4, at u = -0.3 at -4.7
    found, grads = grads_of(term, flow, broken_beyond(limit, bad))
    expected, same = grads_of(term, flow, broken_beyond(limit, -jnp.inf))
    np.testing.assert_allclose(found.losses.pop("invalid"), 1.0 / 12.0, rtol=1e-5)
    assert float(expected.losses.pop("invalid")) == 0.0
    for name, value in found.losses.items():
        np.testing.assert_allclose(value, expected.losses[name], rtol=1e-5)
    for one, two in zip(jax.tree.leaves(grads), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_a_derivative_that_is_no_number_is_taken_for_outside_too():
    """log q is finite, and its derivative with respect to c is not."""

    def derivative(x, c):
        return jnp.where(jnp.abs(x[0]) > 4.9, jnp.nan, (x**2).sum() / (2.0 * c**2))

    problem = problem_of(
        Target(lambda x, c: -(x**2).sum() / (2 * c), (1,), TARGET.condition, condition_derivative=derivative)
    )
    term = both((0.4, -0.3), (0.1, -0.5, 0.8, -1.1, 0.4, -5.0))
    report, grads = grads_of(term, LinearGaussian(rate=0.2), problem)
    expected, same = grads_of(term, LinearGaussian(rate=0.2), broken_beyond(4.9, -jnp.inf))
    np.testing.assert_allclose(report.losses["gradient"], expected.losses["gradient"], rtol=1e-5)
    np.testing.assert_allclose(report.losses["reweighted"], expected.losses["reweighted"], rtol=1e-5)
    np.testing.assert_allclose(grads.rate, same.rate, rtol=1e-4)


# --- What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reweighted": -0.1}, "reweighted must be a number that is not negative"),
        ({"truncate": 0.5}, "truncate must be a number of at least 1"),
        ({"truncate": float("nan")}, "truncate must be a number of at least 1"),
        ({"points": ModelPoints(noise=0.1)}, "without noise"),
        (
            {"points_per_condition": 1, "expectation": BatchExpectation(samples=8)},
            "several states at each condition",
        ),
    ],
)
def test_gradient_refuses_what_cannot_be_weighted(options, message):
    with pytest.raises(TradeError, match=message):
        Gradient(**options)
    if "points" in options or "points_per_condition" in options:
        Gradient(**options, reweighted=0.0)


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

"""The terms that learn a density: forward KL (Eq. 2), backward KL (Eq. 3), reweighted (Eq. 4)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import (
    At,
    LinearGaussian,
    clock_at,
    data_at,
    family,
    is_close_mean,
    log_normal,
    noisy,
    problem_of,
    small_flow,
)

from trade import Trade, TradeError
from trade.objectives import ForwardKL, FromModel, GrowingInterval, ReverseKL, Reweighted, Sum
from trade.objectives.term import split_trainable

KEY = jax.random.key(7)
CLOCK = clock_at()
FLOW = LinearGaussian(mean=0.4, slope=0.3, log_scale=-0.2, rate=0.1)
TARGET = family(0.25, 1.0)


def model_at(u):
    """Mean and variance of FLOW at u."""
    return 0.4 + 0.3 * u, np.exp(2.0 * (-0.2 + 0.1 * u))


def loss_of(term, problem, flow=FLOW, key=KEY):
    return float(term.loss(flow, term.init(key, problem), problem, CLOCK, key)[0])


# --- Eq. 2


def test_forward_kl_is_the_negative_log_likelihood_of_the_data():
    """Eq. 2, up to the entropy of the data: -E[log p_θ(x|c0)] with c0 at u = 1."""
    data = data_at(1.0)
    nll = -log_normal(data, *model_at(1.0))
    value = loss_of(ForwardKL(batch=4000), problem_of(TARGET, data))
    assert is_close_mean(value, nll.mean(), nll.std(), 4000)


def test_forward_kl_and_its_gradient_on_one_point():
    """Eq. 2 by hand: value and derivatives with respect to mean, slope, log scale and its rate."""
    problem = problem_of(TARGET, [[1.5]])
    report, grads, _ = ForwardKL(batch=8).value_and_grad(FLOW, (), problem, CLOCK, KEY)
    mean, variance = model_at(1.0)
    np.testing.assert_allclose(report.losses["forward_kl"], -log_normal(1.5, mean, variance), rtol=1e-5)
    pull, stretch = -(1.5 - mean) / variance, 1.0 - (1.5 - mean) ** 2 / variance
    got = [float(g[0]) for g in (grads.mean, grads.slope, grads.log_scale, grads.rate)]
    np.testing.assert_allclose(got, [pull, pull, stretch, stretch], rtol=1e-5)


def test_forward_kl_weighs_all_boundaries_equally():
    """The mean over two boundary values, however many points each has."""
    target = family(0.25, 1.0, boundary=(0.25, 1.0))
    value = loss_of(ForwardKL(batch=8), problem_of(target, [[0.5]], [[1.5], [1.5], [1.5]]))
    expected = -0.5 * (log_normal(0.5, *model_at(-1.0)) + log_normal(1.5, *model_at(1.0)))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_forward_kl_applies_symmetries_when_asked():
    target = family(symmetry=lambda key, x: jnp.where(jax.random.bernoulli(key), x, -x))
    problem = problem_of(target, [[2.0]])
    ends = -log_normal([2.0, -2.0], *model_at(1.0))
    np.testing.assert_allclose(loss_of(ForwardKL(batch=4000), problem), ends[0], rtol=1e-5)
    flipped = loss_of(ForwardKL(batch=4000, symmetries=True), problem)
    assert is_close_mean(flipped, ends.mean(), ends.std(), 4000)


@pytest.mark.parametrize("batch", [0, -1, 2.5])
def test_forward_kl_refuses_a_bad_batch(batch):
    with pytest.raises(TradeError, match="batch"):
        ForwardKL(batch=batch)


def test_terms_on_data_refuse_a_problem_without_any():
    for term in (ForwardKL(), Reweighted(conditions=At((0.0,)))):
        with pytest.raises(TradeError, match="needs data"):
            loss_of(term, problem_of(TARGET))


# --- Eq. 3


@pytest.mark.parametrize("c", [0.25, 0.5, 1.0])
def test_reverse_kl_and_its_gradient_between_gaussians(c):
    """Eq. 3: KL(N(m, s²) ‖ N(0, c)) up to log Z(c); its derivatives are m/c and s²/c - 1."""
    problem = problem_of(TARGET)
    u = float(TARGET.condition.chart(c))
    mean, variance = model_at(u)
    term, n = ReverseKL(at=c, batch=20_000), 20_000
    report, grads, _ = term.value_and_grad(FLOW, (), problem, CLOCK, KEY)
    kl = 0.5 * ((variance + mean**2) / c - 1.0 - np.log(variance / c))
    exact = kl - TARGET.log_partition(c)
    assert is_close_mean(report.losses["reverse_kl"], exact, variance / c + abs(mean) * np.sqrt(variance) / c + 1.0, n)
    pull, stretch = mean / c, variance / c - 1.0
    got = [float(g[0]) for g in (grads.mean, grads.slope, grads.log_scale, grads.rate)]
    # Standard errors: the pathwise derivatives are linear and quadratic in the noise.
    slack = 4.5 * (np.sqrt(variance) / c * abs(mean) + 1.5 * variance / c + np.sqrt(variance) / c) / np.sqrt(n)
    np.testing.assert_allclose(got, [pull, pull * u, stretch, stretch * u], atol=slack)


def test_reverse_kl_at_several_conditions_averages_over_them():
    problem = problem_of(TARGET)
    both = loss_of(ReverseKL(at=(0.25, 1.0), batch=20_000), problem)
    each = [loss_of(ReverseKL(at=c, batch=20_000), problem) for c in (0.25, 1.0)]
    assert abs(both - np.mean(each)) < 0.1
    assert abs(each[0] - each[1]) > 0.5


def test_reverse_kl_draws_conditions_from_its_sampler():
    """Without ``at`` the conditions come from ``conditions``: here always u = 0, c = 1/2."""
    problem = problem_of(TARGET)
    sampled = loss_of(ReverseKL(conditions=At((0.0,)), batch=20_000), problem)
    np.testing.assert_allclose(sampled, loss_of(ReverseKL(at=0.5, batch=20_000), problem), rtol=1e-5)


def test_reverse_kl_covers_the_full_range_by_default_and_needs_no_boundary():
    assert ReverseKL().conditions == GrowingInterval(full_at=0.0)
    assert np.isfinite(loss_of(ReverseKL(batch=50), problem_of(family(boundary=()))))


def test_reverse_kl_refuses_a_condition_out_of_range():
    with pytest.raises(TradeError, match="ReverseKL condition 3"):
        ReverseKL(at=3.0).init(KEY, problem_of(TARGET))


@pytest.fixture(scope="module")
def spline_reverse_kl():
    """Eq. 3 on a spline flow at c = 1/2: one compilation for value and gradient."""
    problem, term = problem_of(TARGET), ReverseKL(at=0.5, batch=2000)

    @eqx.filter_jit
    def run(flow, key):
        report, grads, _ = term.value_and_grad(flow, (), problem, CLOCK, key)
        return report.losses["reverse_kl"], grads

    return run


def test_reverse_kl_of_an_untrained_spline_flow(spline_reverse_kl):
    """Eq. 3: the untrained flow is N(0, 1), so the value is E[log N(x; 0, 1)] + E[x²]/(2c)."""
    value, _ = spline_reverse_kl(small_flow((1,), TARGET.condition), KEY)
    assert is_close_mean(value, -0.5 * np.log(2.0 * np.pi) - 0.5 + 1.0, np.sqrt(0.5), 2000)


def test_reverse_kl_gradient_of_a_spline_flow_is_that_of_its_value(spline_reverse_kl):
    """Eq. 3 is differentiated through the samples: with the noise held, against a finite difference."""
    params, static = split_trainable(noisy(small_flow((1,), TARGET.condition), 0.3))
    _, grads = spline_reverse_kl(eqx.combine(params, static), KEY)
    direction = noisy(jax.tree.map(jnp.zeros_like, params), scale=1.0, seed=1)

    def value(step):
        moved = jax.tree.map(lambda p, d: p + step * d, params, direction)
        return float(spline_reverse_kl(eqx.combine(moved, static), KEY)[0])

    products = jax.tree.map(lambda g, d: jnp.sum(g * d), grads, direction)
    slope = float(sum(jax.tree.leaves(products)))
    assert abs(slope) > 0.05
    np.testing.assert_allclose((value(3e-3) - value(-3e-3)) / 6e-3, slope, rtol=0.02)


# --- Eq. 4


def test_reweighted_weights_by_hand():
    """Eq. 4 on two data points: weights q(x|c)/q(x|c0), normalised, at c = 1/2 and c0 = 1."""
    points, n = np.array([0.5, 1.5]), 20_000
    term = Reweighted(conditions=At((0.0,)), conditions_per_step=1, points_per_condition=n)
    value = loss_of(term, problem_of(TARGET, points[:, None]))
    weights = np.exp(-(points**2) / (2 * 0.5) + points**2 / 2)
    weights /= weights.sum()
    nll = -log_normal(points, *model_at(0.0))
    assert abs(weights[0] - 0.5) > 0.2  # far from a plain mean
    # The share of each point among the draws varies: delta method.
    error = 2.0 * weights[0] * weights[1] * abs(nll[0] - nll[1]) / np.sqrt(n)
    assert abs(value - weights @ nll) < 4.5 * error


def test_reweighted_data_stand_in_for_samples_of_the_target():
    """Eq. 4: at c = 1/2 the loss is -E over N(0, 1/2), though the data are N(0, 1)."""
    term = Reweighted(conditions=At((0.0,)), conditions_per_step=1, points_per_condition=20_000)
    value = loss_of(term, problem_of(TARGET, data_at(1.0, n=50_000)))
    mean, variance = model_at(0.0)
    exact = 0.5 * (0.5 + mean**2) / variance + 0.5 * np.log(2.0 * np.pi * variance)
    np.testing.assert_allclose(value, exact, rtol=0.03)


def test_reweighted_takes_the_data_of_the_nearest_boundary():
    target = family(0.25, 1.0, boundary=(0.25, 1.0))
    problem = problem_of(target, [[0.3]], [[1.7]])
    for u, x in ((-0.6, 0.3), (0.6, 1.7)):
        term = Reweighted(conditions=At((u,)), conditions_per_step=2, points_per_condition=4)
        np.testing.assert_allclose(loss_of(term, problem), -log_normal(x, *model_at(u)), rtol=1e-5)


def test_reweighted_refuses_an_observation():
    class Observed(type(TARGET)):
        @property
        def observation_shape(self):
            return (1,)

    target = Observed(lambda x, c: -(x**2).sum() / c, (1,), TARGET.condition)
    with pytest.raises(TradeError, match="observation"):
        loss_of(Reweighted(conditions=At((0.0,))), problem_of(target, data_at(1.0)))


# --- The model's own samples, weighted


def self_weighted(u=-1.0, n=20_000, **options):
    return Reweighted(At((u,)), FromModel(), conditions_per_step=1, points_per_condition=n, **options)


def test_self_weighted_samples_stand_in_for_samples_of_the_target():
    """At c = 1/4 the loss is -E[log p_θ] over N(0, 1/4), though the samples are the model's."""
    mean, variance = model_at(-1.0)
    exact = 0.5 * (0.25 + mean**2) / variance + 0.5 * np.log(2.0 * np.pi * variance)
    own = 0.5 + 0.5 * np.log(2.0 * np.pi * variance)  # with no weights: the entropy of the model
    assert abs(own - exact) > 0.2
    np.testing.assert_allclose(loss_of(self_weighted(), problem_of(TARGET)), exact, rtol=0.02)


def test_self_weighted_gradient_is_that_of_the_forward_kl():
    """∂/∂mean of -E_q[log p_θ] is (mean - E_q[x]) / variance: no gradient flows through samples or weights."""
    _, grads, _ = self_weighted().value_and_grad(FLOW, (), problem_of(TARGET), CLOCK, KEY)
    mean, variance = model_at(-1.0)
    np.testing.assert_allclose(float(grads.mean[0]), mean / variance, atol=0.03)
    np.testing.assert_allclose(float(grads.log_scale[0]), 1.0 - (0.25 + mean**2) / variance, atol=0.03)


def test_self_weighted_truncates_large_weights():
    """A model much narrower than the target: a few samples in the tail would carry all the weight."""
    narrow = LinearGaussian(log_scale=-2.0)
    values = [loss_of(self_weighted(u=1.0, n=64, truncate=t), problem_of(TARGET), narrow) for t in (1.0, 1e9)]
    assert values[1] > values[0] + 0.3


# --- Sums of terms


def test_sum_adds_weighted_terms_and_reports_each():
    problem = problem_of(TARGET, [[1.5]])
    one, two = ForwardKL(batch=8), ReverseKL(at=(0.5,), batch=8)
    both = Sum((one, two), weights=(1.0, 3.0))
    report, grads, _ = both.value_and_grad(FLOW, both.init(KEY, problem), problem, CLOCK, KEY)
    assert list(report.losses) == ["forward_kl", "reverse_kl"]
    keys = jax.random.split(KEY, 2)
    terms = zip((one, two), keys, strict=True)
    parts = [t.value_and_grad(FLOW, t.init(KEY, problem), problem, CLOCK, k) for t, k in terms]
    for part, name in zip(parts, report.losses, strict=True):
        np.testing.assert_allclose(report.losses[name], part[0].losses[name], rtol=1e-5)
    expected = parts[0][1].mean + 3.0 * parts[1][1].mean
    np.testing.assert_allclose(grads.mean, expected, rtol=1e-4)


def test_sum_waits_for_the_start_of_a_term():
    problem = problem_of(TARGET, [[1.5]])
    term = Sum((ForwardKL(batch=8), ReverseKL(at=(0.5,), batch=8)), starts=(0.0, 0.5))
    state = term.init(KEY, problem)
    before, after = (term.loss(FLOW, state, problem, clock_at(step), KEY) for step in (49, 50))
    assert float(before[1].parts[1]) == 0.0
    np.testing.assert_allclose(before[0], before[1].parts[0])
    assert float(after[1].parts[1]) != 0.0
    np.testing.assert_allclose(after[0], sum(after[1].parts), rtol=1e-6)


def test_sum_inside_trade_reports_zeros_before_its_start():
    problem = problem_of(TARGET, data_at(1.0))
    objective = Trade(Sum((ReverseKL(batch=4), self_weighted(n=8))), ForwardKL(batch=4), start=0.5)
    state = objective.init(KEY, problem)
    for step, silent in ((10, True), (60, False)):
        report, *_ = objective.value_and_grad(FLOW, state, problem, clock_at(step), KEY)
        assert set(report.losses) == {"forward_kl", "reverse_kl", "reweighted", "lambda"}
        assert (float(report.losses["reweighted"]) == 0.0) is silent


def test_sum_names_the_condition_of_a_non_finite_term():
    class Broken(LinearGaussian):
        def _log_prob(self, x, condition=None):
            return jnp.where(condition[0] < 0.9, jnp.nan, super()._log_prob(x, condition))

    problem = problem_of(TARGET, data_at(1.0))
    term = Sum((ForwardKL(batch=4), self_weighted(n=8)))
    _, outcome = term.loss(Broken(), term.init(KEY, problem), problem, CLOCK, KEY)
    np.testing.assert_allclose(outcome.suspect, 0.25, rtol=1e-5)


def test_sum_refuses_a_wrong_number_of_weights():
    with pytest.raises(TradeError, match="2 terms but 1 weights"):
        Sum((ForwardKL(), ReverseKL()), weights=(1.0,))

"""Power posteriors, with and without a likelihood, on the two moons."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import TINY, noisy, precision

from trade import Adam, Condition, Model, Trade, TradeError, fit
from trade.data import make_problem
from trade.evaluation.calibration import uniformity_error
from trade.flows import MLP, spline_flow
from trade.objectives import EnergyFree, ForwardKL, Gradient
from trade.targets import PowerPosterior
from trade.targets.two_moons import (
    TwoMoons,
    grid_posterior,
    log_likelihood,
    log_normal_prior,
    moon,
    pairs,
    sample_posterior,
    simulate,
    tempered_pairs,
)

KEY = jax.random.key(0)
PSI, Y = jnp.array([0.2, -0.1]), jnp.array([0.28, -0.22])


def test_derivative_in_the_power_is_the_log_likelihood():
    with precision(np.float64):
        target, psi, y = TwoMoons(), jnp.array([0.2, -0.1]), jnp.array([0.28, -0.22])
        for beta in (0.5, 1.0, 2.0):
            by_autodiff = jax.grad(lambda b: target.log_density(psi, b, y))(beta)
            np.testing.assert_allclose(target.condition_derivative(psi, beta, y), by_autodiff, rtol=1e-10)
            np.testing.assert_allclose(by_autodiff, log_likelihood(y, psi), rtol=1e-10)


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_rebuilt_from_its_own_posterior_it_is_the_same_family(beta):
    """With log p0 = log prior + log likelihood - log Z, the rule gives log q up to a constant of ψ."""
    target, log_z, power = TwoMoons(), 1.7, jnp.float32(beta)
    psi = jnp.asarray(np.random.default_rng(0).normal(0.0, 0.2, (50, 2)), jnp.float32)
    y = simulate(KEY, psi[0])
    log_likelihoods = jax.vmap(lambda p: log_likelihood(y, p))(psi)
    possible = np.asarray(log_likelihoods) > -1000
    assert possible.sum() > 5
    log_p0 = jax.vmap(log_normal_prior)(psi) + log_likelihoods - log_z
    rebuilt = jax.vmap(lambda p, x: target.rebuild(p, x, power, jnp.float32(1.0), y))(log_p0, psi)
    exact = jax.vmap(lambda x: target.log_density(x, power, y))(psi)
    np.testing.assert_allclose(np.asarray(rebuilt - exact)[possible], -beta * log_z, atol=2e-3)


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_outside_the_support_of_the_prior_the_rebuilt_density_is_zero_at_every_power(beta):
    """A flow leaks over the edge of a bounded prior; p0/prior is infinite there, and must not count."""
    target, power, outside = TwoMoons("uniform", likelihood=False), jnp.float32(beta), jnp.array([1.01, 0.0])

    def log_q(b):
        return target.rebuild(jnp.float32(-3.0), outside, b, jnp.float32(1.0), Y)

    value, slope = jax.value_and_grad(log_q)(power)
    assert value <= -9999.0
    assert slope == 0.0
    inside = target.rebuild(jnp.float32(-3.0), 0.9 * outside, power, jnp.float32(1.0), Y)
    np.testing.assert_allclose(inside, -np.log(4.0) + beta * (-3.0 + np.log(4.0)), rtol=1e-6)


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_where_the_prior_is_less_than_at_any_of_the_data_nothing_is_rebuilt(beta):
    """A flow's tails fall more slowly than a normal prior: over it they would be all the likelihood there is."""
    target = PowerPosterior(lambda p: -0.5 * (p**2).sum(), shape=(1,))
    seen = target.prepared((jnp.array([[-3.0], [0.5]]), jnp.array([[2.0]])))
    tail, c, c0 = jnp.float32(-8.0), jnp.float32(beta), jnp.float32(1.0)  # of the flow, the same everywhere
    for x, known in ((0.0, True), (-3.0, True), (3.5, True), (3.7, False), (9.0, False)):
        before, after = (t.rebuild(tail, jnp.array([x]), c, c0) for t in (target, seen))
        assert np.isfinite(before)
        assert (after == before) if known else np.isneginf(after)
        slope = jax.grad(lambda b, x=x: seen.rebuild(tail, jnp.array([x]), b, c0))(c)
        assert np.isfinite(slope) and (known or slope == 0.0)
    problem = make_problem(target, {1.0: np.array([[-3.0], [0.5], [2.0]])})
    assert np.isneginf(problem.target.rebuild(tail, jnp.array([9.0]), c, c0))


def test_one_fixed_data_set_needs_no_observation():
    """The family of a coin: q(ψ|β) = N(ψ; 0, 1) σ(ψ)^(3β), and its derivative."""
    coin = PowerPosterior(lambda p: -0.5 * (p**2).sum(), lambda p: 3 * jax.nn.log_sigmoid(p).sum(), shape=(1,))
    assert coin.observation_shape is None
    x, c = jnp.array([0.7]), jnp.float32(1.5)
    expected = -0.5 * 0.49 + 4.5 * np.log(1 / (1 + np.exp(-0.7)))
    np.testing.assert_allclose(coin.log_density(x, c), expected, rtol=1e-5)
    np.testing.assert_allclose(coin.condition_derivative(x, c), 3 * np.log(1 / (1 + np.exp(-0.7))), rtol=1e-5)


def test_likelihood_is_normalised_and_is_that_of_the_simulator():
    """∫ p(y|ψ) dy = 1 on a grid, and the mean of -log p over simulations is the entropy of (r, α) in y."""
    axis = np.linspace(-0.2, 0.2, 801)
    grid = np.stack(np.meshgrid(axis + 0.25 - 0.1 / np.sqrt(2), axis - 0.3 / np.sqrt(2)), -1).reshape(-1, 2)
    density = np.exp(np.asarray(jax.vmap(lambda y: log_likelihood(y, PSI))(jnp.asarray(grid, jnp.float32)), np.float64))
    np.testing.assert_allclose(density.sum() * (axis[1] - axis[0]) ** 2, 1.0, rtol=5e-3)

    y = jax.vmap(lambda k: simulate(k, PSI))(jax.random.split(KEY, 20_000))
    surprise = -np.asarray(jax.vmap(lambda v: log_likelihood(v, PSI))(y), np.float64)
    r = np.random.default_rng(0).normal(0.1, 0.01, 100_000)
    entropy = 0.5 * np.log(2 * np.pi * np.e * 0.01**2) + np.log(np.pi) + np.log(r).mean()
    np.testing.assert_allclose(surprise.mean(), entropy, atol=0.03)


def test_pairs_lie_on_their_moons():
    x, y = pairs(KEY, 2000)
    r, angle = jax.vmap(moon)(y, x)
    np.testing.assert_allclose(np.mean(r), 0.1, atol=1e-3)
    np.testing.assert_allclose(np.std(r), 0.01, rtol=0.1)
    assert np.abs(np.asarray(angle)).max() < np.pi / 2
    np.testing.assert_allclose(np.std(np.asarray(x)), 0.3, rtol=0.05)
    uniform = np.asarray(pairs(KEY, 2000, "uniform")[0])
    assert np.abs(uniform).max() <= 1.0
    np.testing.assert_allclose(uniform.std(), 1 / np.sqrt(3), rtol=0.05)


def test_impossible_observations_have_finite_gradients():
    for psi in (PSI, PSI + 10.0, jnp.zeros(2)):
        for y in (Y, jnp.array([0.25, 0.0]), jnp.array([-50.0, 3.0])):
            value, slope = jax.value_and_grad(lambda p, y=y: log_likelihood(y, p))(psi)
            assert np.isfinite(value)
            assert np.isfinite(slope).all()


def test_without_a_likelihood_it_trains_energy_free_and_says_so_otherwise():
    target = TwoMoons(likelihood=False)
    assert not target.has_density
    data = {1.0: pairs(KEY, 200)}
    gradient = Gradient(density=EnergyFree(), conditions_per_step=4, points_per_condition=4)

    def small(key):
        return spline_flow(key, target, blocks=2, bins=4, network=TINY)

    objective = Trade(gradient, ForwardKL(16), start=0)
    run = fit(target, data, flow=small, objective=objective, steps=3, progress=False)
    x = run.model.sample(KEY, 5, 2.0, observation=Y)
    assert x.shape == (5, 2)
    with pytest.raises(TradeError, match="has no likelihood: train with"):
        fit(target, data, flow=small, objective=Trade(Gradient(), ForwardKL(16)), steps=3, progress=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PowerPosterior(None, shape=(2,), observation_shape=(2,)), "log_prior must be a function"),
        (lambda: PowerPosterior(log_normal_prior, 3.0, shape=(2,), observation_shape=(2,)), "log_likelihood must be"),
        (lambda: PowerPosterior(log_normal_prior, shape="two", observation_shape=(2,)), "shape must be a tuple"),
        (lambda: TwoMoons("cauchy"), "prior must be 'normal' or 'uniform'"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(TradeError, match=message):
        make()


@pytest.mark.parametrize("prior", ["normal", "uniform"])
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_grid_posterior_is_normalised_and_has_the_density_of_the_target(prior, beta):
    y = simulate(KEY, PSI)
    grid = grid_posterior(y, beta, prior, radii=100, angles=200)
    np.testing.assert_allclose(grid.weight.sum(), 1.0, rtol=1e-5)
    target = TwoMoons(prior)
    log_q = jax.vmap(lambda v: target.log_density(v, jnp.float32(beta), y))(grid.x)
    constant = np.asarray(log_q - grid.log_prob)[np.asarray(grid.weight) > 1e-9]
    assert np.ptp(constant) < 1e-2 and len(constant) > 1000
    # Integrated over a square around it, the density is one: the cells are as large as they say.
    axis = np.linspace(-0.6, 0.6, 1201)
    square = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    density = jax.vmap(lambda v: target.log_density(v, jnp.float32(beta), y))(jnp.asarray(square, jnp.float32))
    total = np.exp(np.asarray(density, np.float64) - constant.mean()).sum() * (axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(total, 1.0, rtol=0.02)


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_samples_of_the_exact_posterior_follow_its_grid(beta):
    y = simulate(KEY, PSI)
    grid, x = grid_posterior(y, beta), np.asarray(sample_posterior(KEY, y, beta, 20_000))
    for power in (1, 2):
        expected = np.asarray(grid.weight, np.float64) @ np.asarray(grid.x, np.float64) ** power
        np.testing.assert_allclose((x**power).mean(axis=0), expected, atol=4 * (x**power).std() / np.sqrt(20_000))


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_tempered_pairs_have_the_exact_power_posterior(beta):
    """The rank of ψ in its own posterior is uniform, for pairs drawn at that power."""
    x, y = tempered_pairs(KEY, 400, beta)
    ranks = []
    for psi, seen in zip(x, y, strict=True):
        grid = grid_posterior(seen, beta, radii=24, angles=48)
        ranks.append(float(grid.weight @ (grid.x[:, 0] < psi[0])))
    assert uniformity_error(np.array(ranks)) < 1.36 / np.sqrt(400)  # the 5 % point of Kolmogorov's distribution
    r = np.asarray(jax.vmap(moon)(y, x)[0])
    np.testing.assert_allclose(r.std(), 0.01 / np.sqrt(beta), rtol=0.15)


def test_flow_may_see_the_observation_and_not_the_power():
    flow = spline_flow(KEY, TwoMoons(), network=TINY, blocks=2, conditional=False, adapter=4)
    model = Model(noisy(flow, scale=0.3), TwoMoons().condition, (2,))
    x = jnp.array([[0.1, 0.2], [-0.3, 0.1]])
    one, two = (np.asarray(model.log_prob(x, c, Y)) for c in (0.5, 2.0))
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - np.asarray(model.log_prob(x, 0.5, -Y))).min() > 1e-3


@pytest.mark.slow
def test_evidence_of_a_linear_model_for_twenty_data_sets():
    """Four coefficients, six measurements: within 0.02 nats, and twice its own error, of the closed form."""
    random = np.random.default_rng(0)
    design, noise, n = random.normal(size=(6, 4)), 0.7, 20_000

    def log_likelihood(y, psi):
        return jax.scipy.stats.norm.logpdf(y, jnp.asarray(design, psi.dtype) @ psi, noise).sum()

    def log_prior(psi):
        return jax.scipy.stats.norm.logpdf(psi).sum()

    def simulated(n):
        psi = random.normal(size=(n, 4))
        return psi, psi @ design.T + noise * random.normal(size=(n, 6))

    powers = Condition(0.0, 1.0, scale="linear")
    target = PowerPosterior(log_prior, log_likelihood, shape=(4,), observation_shape=(6,), condition=powers)
    psi, y = simulated(n)
    data = {0.0: (random.normal(size=(n, 4)), y), 1.0: (psi, y)}
    flow = spline_flow(KEY, target, blocks=4, network=MLP(32), adapter=32)
    run = fit(target, data, flow=flow, steps=2000, optimiser=Adam(5e-3), progress=False)

    covariance = design @ design.T + noise**2 * np.eye(6)
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    deviations = []
    for seen in simulated(20)[1]:
        value, error = run.evidence(seen)
        deviation = abs(value + 0.5 * (seen @ np.linalg.solve(covariance, seen) + log_det))
        assert deviation < 2 * error < 0.1
        deviations.append(deviation)
    print("largest deviation", max(deviations))
    assert max(deviations) < 0.02

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.distributions import StandardNormal
from small_problems import KEY, cast, gaussian_family, noisy, precision, small_flow

from trade import Condition, Model, TradeError
from trade import model as module
from trade.flows import PowerScaled
from trade.model import draw, log_prob, log_prob_and_score

LOG = Condition(0.25, 4.0, boundary=(1.0,))
LINEAR = Condition(-1.0, 7.0, scale="linear")
X = np.random.default_rng(0).standard_normal((12, 2))


@pytest.fixture(scope="module")
def flow():
    return noisy(small_flow((2,), LOG), scale=0.3)


@pytest.fixture(scope="module")
def model(flow):
    return Model(flow, LOG)


@pytest.fixture(scope="module")
def observing():
    flow = noisy(small_flow((2,), LOG, observation_size=4), scale=0.3)
    return Model(flow, LOG, observation_shape=(2, 2))


# ∂_u log p


def test_condition_score_agrees_with_finite_differences(flow):
    with precision(np.float64):
        double, u, h = cast(flow, np.float64), jnp.array(0.2), 1e-6
        value, score = jax.jit(jax.vmap(lambda x: log_prob_and_score(double, x, u)))(jnp.asarray(X))
        density = jax.jit(jax.vmap(lambda x, v: log_prob(double, x, v), (0, None)))
        difference = (density(X, u + h) - density(X, u - h)) / (2 * h)
        assert score.dtype == np.float64
        np.testing.assert_allclose(value, density(X, u), rtol=1e-12)
        assert np.abs(score).max() > 0.05
        np.testing.assert_allclose(score, difference, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("condition", [LOG, LINEAR], ids=["log", "linear"])
def test_model_score_is_in_the_unit_of_c(flow, condition):
    with precision(np.float64):
        model, c, h = Model(cast(flow, np.float64), condition), 1.7, 1e-6
        difference = (model.log_prob(X, c + h) - model.log_prob(X, c - h)) / (2 * h)
        np.testing.assert_allclose(model.condition_score(X, c), difference, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("exponent", [-1.0, 1.0])
def test_score_sees_the_latent(exponent):
    # p = N(0, c^e): ∂_u log p = slope e (x²/c^e - 1)/2
    flow = small_flow((1,), LOG, conditional=False, latent=PowerScaled(exponent))
    x, c = jnp.array([1.3]), 2.0
    expected = LOG.slope * exponent * (1.3**2 / c**exponent - 1.0) / 2
    np.testing.assert_allclose(log_prob_and_score(flow, x, LOG.chart(c))[1], expected, rtol=1e-4)


def test_score_of_the_model_is_the_score_of_the_target_minus_its_mean():
    # log q = -x²/(2c) and p = N(0, c): ∂_u log q = slope x²/(2c), with mean slope/2 = d log Z/du.
    target = gaussian_family()
    condition = target.condition
    with precision(np.float64):
        flow = cast(small_flow((1,), condition, conditional=False, latent=PowerScaled(1.0)), np.float64)
        x = jnp.asarray([[0.0], [0.7], [-2.0]])
        nodes, weights = np.polynomial.hermite_e.hermegauss(8)
        score_q = jax.jit(jax.vmap(target.score, (0, None)))
        score_p = jax.jit(jax.vmap(lambda x, u: log_prob_and_score(flow, x, u)[1], (0, None)))
        for c in (0.6, 1.0, 1.9):
            u = condition.chart(c)
            closed = condition.slope * np.asarray(x[:, 0]) ** 2 / (2 * c)
            np.testing.assert_allclose(score_q(x, u), closed, rtol=1e-10)
            mean = weights @ np.asarray(score_q(np.sqrt(c) * nodes[:, None], u)) / weights.sum()
            np.testing.assert_allclose(mean, condition.slope / 2, rtol=1e-10)
            h = 1e-5
            log_z = [target.log_partition(float(condition.unchart(u + s))) for s in (h, -h)]
            np.testing.assert_allclose(mean, (log_z[0] - log_z[1]) / (2 * h), rtol=1e-6)
            np.testing.assert_allclose(score_p(x, u), closed - mean, atol=1e-10)


def test_unconditional_flow_has_no_score():
    model = Model(StandardNormal((2,)), LOG)
    np.testing.assert_array_equal(model.condition_score(X, 1.0), np.zeros(12))


# The batched methods


def test_batched_methods_are_the_plain_functions_of_one_state(model):
    u, one_log_prob = LOG.chart(0.8), eqx.filter_jit(log_prob)
    alone = one_log_prob(model.flow, jnp.asarray(X[5], jnp.float32), u)
    np.testing.assert_allclose(model.log_prob(X, 0.8)[5], alone, rtol=1e-4)
    one, one_log_p = eqx.filter_jit(draw)(model.flow, jax.random.split(KEY, 12)[3], u)
    assert one.shape == (2,)
    np.testing.assert_allclose(one_log_prob(model.flow, one, u), one_log_p, rtol=1e-4)


def test_samples_are_scored_as_drawn(model):
    x, log_p = model.sample_and_log_prob(KEY, 12, 0.8)
    np.testing.assert_array_equal(model.sample(KEY, 12, 0.8), x)
    np.testing.assert_allclose(model.log_prob(x, 0.8), log_p, atol=1e-4)
    assert len(np.unique(np.asarray(x)[:, 0])) == 12


def test_leading_axes_are_kept(model):
    flat = model.log_prob(X, 1.0)
    np.testing.assert_array_equal(model.log_prob(X.reshape(3, 4, 2), 1.0), flat.reshape(3, 4))
    np.testing.assert_allclose(model.log_prob(X[0], 1.0), flat[0], rtol=1e-5)
    assert model.log_prob(X[0], 1.0).shape == ()
    assert model.log_prob(X[:0], 1.0).shape == (0,)


def test_chunks_give_what_one_batch_gives(monkeypatch):
    model = Model(StandardNormal((2,)), LOG)
    key = jax.random.key(0)
    whole = model.sample_and_log_prob(key, 12, 1.0)
    monkeypatch.setattr(module, "CHUNK", 5)
    chunked = model.sample_and_log_prob(key, 12, 1.0)
    assert chunked[0].shape == (12, 2)
    np.testing.assert_array_equal(chunked[0], whole[0])
    np.testing.assert_allclose(chunked[1], whole[1], rtol=1e-6)
    np.testing.assert_allclose(model.log_prob(chunked[0], 1.0), whole[1], rtol=1e-6)


# Observations


def test_observation_is_part_of_the_condition(observing):
    y = np.arange(4.0).reshape(2, 2) / 4
    base = np.asarray(observing.log_prob(X, 1.0, y))
    x, log_p = observing.sample_and_log_prob(KEY, 12, 1.0, y)
    np.testing.assert_allclose(observing.log_prob(x, 1.0, y), log_p, atol=1e-4)
    for changed in np.eye(4).reshape(4, 2, 2):  # every entry matters
        assert np.abs(np.asarray(observing.log_prob(X, 1.0, y + changed)) - base).max() > 1e-3
    assert np.abs(np.asarray(observing.log_prob(X, 3.0, y)) - base).max() > 1e-3


def test_bad_observations_are_refused(model, observing):
    with pytest.raises(TradeError, match="takes no observation"):
        model.log_prob(X, 1.0, np.zeros(2))
    with pytest.raises(TradeError, match=r"needs an observation of shape \(2, 2\)"):
        observing.sample(KEY, 3, 1.0)
    with pytest.raises(TradeError, match=r"must have shape \(2, 2\), got \(4,\)"):
        observing.log_prob(X, 1.0, np.zeros(4))


# Bad input


@pytest.mark.parametrize("n", [0, -1, 2.5, "many"])
def test_bad_sample_size_is_refused(model, n):
    with pytest.raises(TradeError, match="n must be an integer of at least 1"):
        model.sample(KEY, n, 1.0)


@pytest.mark.parametrize("c", [0.1, 5.0, float("nan"), None, "hot"])
def test_conditions_outside_the_range_are_refused(model, c):
    for method in (lambda: model.sample(KEY, 3, c), lambda: model.log_prob(X, c), lambda: model.condition_score(X, c)):
        with pytest.raises(TradeError, match="condition"):
            method()


@pytest.mark.parametrize("shape", [(3,), (4, 3), ()])
def test_states_of_the_wrong_shape_are_refused(model, shape):
    with pytest.raises(TradeError, match="x must have shape"):
        model.log_prob(np.zeros(shape), 1.0)


def test_flows_of_another_kind_are_refused(flow, observing):
    with pytest.raises(TradeError, match="must be a flowjax distribution, got int"):
        Model(3, LOG)
    with pytest.raises(TradeError, match=r"shape \(1,\) \(the condition\), got cond_shape \(5,\)"):
        Model(observing.flow, LOG)
    with pytest.raises(TradeError, match=r"shape \(4,\) \(the condition and the observation\), got cond_shape \(1,\)"):
        Model(flow, LOG, observation_shape=(3,))

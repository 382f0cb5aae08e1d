"""Where in x: states of the model, some of them from a wider latent, all weighted as of the mixture."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, norm
from small_problems import TINY, LinearGaussian, noisy, small_flow

from trade import Condition, TradeError
from trade.flows import CircularFlow, PowerScaled
from trade.model import draw_from_mixture, log_prob
from trade.objectives import ModelPoints
from trade.objectives.points import at_points, each

KEY = jax.random.key(29)
CONDITION = Condition(0.25, 4.0, boundary=(1.0,))
U = jnp.array([-0.7, 0.4])
C = np.asarray(CONDITION.unchart(U), np.float64)
N = 4000


@cache
def flow_of(name):
    """Flows whose latents are a normal, one that follows c, and one on the circle beside one on the line."""
    if name == "not a transformed latent":
        return LinearGaussian(0.3, 0.2, -0.1, 0.2)
    if name in ("angle and length", "angles alone"):
        angles = (0,) if name == "angle and length" else (0, 1)
        return noisy(CircularFlow((2,), CONDITION, angles, blocks=2, bins=4, network=TINY).build(KEY), 0.2)
    latent = {"latent": PowerScaled(1.0)} if name == "power" else {}
    return noisy(small_flow((2,), CONDITION, **latent), 0.2)


FLOWS = ["normal", "power", "angle and length", "angles alone", "not a transformed latent"]
WIDENED = FLOWS[:3]  # the others have nothing that could be wider


@eqx.filter_jit
def draw(points, flow, n=N):
    return points.draw(flow, U, None, n, KEY)


@cache
def drawn(name, wider=0.25):
    return draw(ModelPoints(wider=wider), flow_of(name))


scored = eqx.filter_jit(lambda flow, x: at_points(lambda v, u: log_prob(flow, v, u), x, U))


def mean_and_error(values):
    return values.mean(axis=1), values.std(axis=1) / np.sqrt(values.shape[1])


@pytest.mark.parametrize("name", FLOWS)
def test_states_come_with_their_log_density(name):
    flow, points = flow_of(name), drawn(name)
    np.testing.assert_allclose(points.log_prob, scored(flow, points.x), atol=2e-3)
    assert points.own == 3000
    different = float(jnp.abs(points.log_base - points.log_prob).max())
    assert (different > 0.1) == (name in WIDENED)


@pytest.mark.parametrize("name", FLOWS)
def test_weights_of_the_mixture_integrate_the_model_to_one(name):
    """∫ p_θ dx = 1 and ∫ p_θ log p_θ dx, by states of the mixture, against states of the model alone."""
    points, plain = drawn(name), drawn(name, wider=0.0)
    weights = np.exp(np.asarray(points.log_prob - points.log_base, np.float64))
    total, error = mean_and_error(weights)
    assert np.all(np.abs(total - 1.0) < 4.5 * error + 1e-4)
    entropy, own_error = mean_and_error(-np.asarray(plain.log_prob, np.float64))
    weighted, error = mean_and_error(-weights * np.asarray(points.log_prob, np.float64))
    assert np.all(np.abs(weighted - entropy) < 4.5 * np.hypot(error, own_error))
    if name in WIDENED:  # and without weights they would not
        unweighted = -np.asarray(points.log_prob, np.float64).mean(axis=1)
        assert np.all(unweighted - entropy > 4.5 * np.hypot(error, own_error))


@pytest.mark.parametrize("wider", [0.0, 0.25, 0.9])
def test_weights_integrate_a_known_density(wider):
    """∫ N(x; 0, 1/4) dx = 1 and its second moment, in two dimensions: the model is only what states come from."""
    points = drawn("normal", wider)
    x = np.asarray(points.x, np.float64)
    weights = np.exp(norm.logpdf(x, scale=0.5).sum(axis=-1) - np.asarray(points.log_base, np.float64))
    for values, exact in ((weights, 1.0), (weights * (x**2).sum(axis=-1), 0.5)):
        mean, error = mean_and_error(values)
        assert np.all(np.abs(mean - exact) < 4.5 * error)
        assert np.all(error < 0.1 * exact)


def test_the_first_states_are_the_models_own_and_the_last_are_wider():
    """On an untrained flow the states are the latent's: N(0, c), and N(0, c f²) with f = 1 + (0.3/2)^(1/2)."""
    flow = small_flow((2,), CONDITION, latent=PowerScaled(1.0))
    points = draw(ModelPoints(), flow)
    factor = 1.0 + np.sqrt(0.3 / 2.0)
    for x, c in zip(np.asarray(points.x, np.float64), C, strict=True):
        assert kstest(x[:3000].ravel(), norm(scale=np.sqrt(c)).cdf).pvalue > 1e-3
        assert kstest(x[3000:].ravel(), norm(scale=factor * np.sqrt(c)).cdf).pvalue > 1e-3
        assert kstest(x[3000:].ravel(), norm(scale=np.sqrt(c)).cdf).pvalue < 1e-6


def test_density_of_the_mixture_by_hand():
    """log(3/4 N(x; 0, c) + 1/4 N(x; 0, c f²)) for the same flow."""
    points = draw(ModelPoints(), small_flow((2,), CONDITION, latent=PowerScaled(1.0)))
    factor = 1.0 + np.sqrt(0.3 / 2.0)
    for x, found, c in zip(np.asarray(points.x, np.float64), points.log_base, C, strict=True):
        parts = [norm.logpdf(x, scale=f * np.sqrt(c)).sum(axis=-1) for f in (1.0, factor)]
        np.testing.assert_allclose(found, np.logaddexp(np.log(0.75) + parts[0], np.log(0.25) + parts[1]), atol=2e-3)


@pytest.mark.parametrize("d", [1, 2, 10, 1000])
def test_the_excess_is_a_divergence_whatever_the_dimension(d):
    """KL(N(0, f²) || N(0, 1)) summed over d coordinates is about 0.3 nats."""
    flow = LinearGaussian(d=d)
    factors = []

    def remember(flow, key, u, y, wide, factor):
        factors.append(float(factor))
        return jnp.zeros(d), jnp.zeros(()), jnp.zeros(())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trade.objectives.points.draw_from_mixture", remember)
        ModelPoints(excess=0.3).draw(flow, U, None, 8, KEY)
    f = factors[0]
    np.testing.assert_allclose(d * (0.5 * (f**2 - 1.0) - np.log(f)), 0.3, rtol=0.15)


@pytest.mark.parametrize(
    ("wider", "n", "own"), [(0.0, 64, 64), (0.25, 64, 48), (0.25, 3, 3), (0.5, 5, 3), (0.9, 10, 1)]
)
def test_so_many_are_of_the_model_itself(wider, n, own):
    points = ModelPoints(wider=wider).draw(LinearGaussian(), U, None, n, KEY)
    assert points.own == own
    assert points.x.shape == (2, n, 1)
    if own == n:
        np.testing.assert_array_equal(points.log_base, points.log_prob)


def test_angles_are_not_widened():
    """They are uniform on the circle, and stay on it; the length beside them is."""
    flow = CircularFlow((2,), CONDITION, (0,), blocks=2, bins=4, network=TINY).build(KEY)
    x = np.asarray(draw(ModelPoints(), flow).x, np.float64)[:, 3000:].reshape(-1, 2)
    assert kstest(x[:, 0], "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 1e-3
    assert kstest(x[:, 1], norm(scale=1.0 + np.sqrt(0.3 / 2.0)).cdf).pvalue > 1e-3


def test_a_state_is_wider_only_if_asked():
    """The ratio of the densities is that of the same state under both latents."""
    flow, factor = flow_of("normal"), jnp.asarray(1.5)
    run = eqx.filter_jit(lambda wide: draw_from_mixture(flow, KEY, U[0], None, wide, factor))
    for wide, size in ((False, 1.0), (True, 1.5)):
        x, log_p, log_ratio = run(jnp.asarray(wide))
        np.testing.assert_allclose(log_p, log_prob(flow, x, U[0]), atol=1e-3)
        z = size * np.asarray(jax.random.normal(KEY, (2,)), np.float64)
        expected = (norm.logpdf(z, scale=1.5) - norm.logpdf(z)).sum()
        np.testing.assert_allclose(log_ratio, expected, atol=1e-4)


@pytest.mark.parametrize("options", [{"wider": 1.0}, {"wider": -0.1}, {"excess": -1.0}, {"noise": -1.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(TradeError, match="ModelPoints"):
        ModelPoints(**options)


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_in_lots_values_and_gradients_are_the_same(at_once):
    """Whatever is left over; of several arrays, one of them absent."""
    x, u = jax.random.normal(KEY, (24, 2)), jnp.linspace(-0.5, 0.5, 24)
    flow = flow_of("normal")

    @eqx.filter_jit
    @partial(eqx.filter_value_and_grad, has_aux=True)
    def total(flow, at_once):
        found = each(lambda v, w, y: (log_prob(flow, v, w, y), v[0]), x, u, None, at_once=at_once)
        return (found[0] ** 2).sum(), found

    (value, found), slope = total(flow, None)
    (again, in_lots), slopes = total(flow, at_once)
    np.testing.assert_allclose(again, value, rtol=1e-6)
    np.testing.assert_allclose(in_lots[0], found[0], rtol=1e-6)
    np.testing.assert_array_equal(in_lots[1], x[:, 0])
    for one, two in zip(jax.tree.leaves(slope), jax.tree.leaves(slopes), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)


def test_in_lots_a_gradient_takes_less_memory():
    """That of activations does not grow with the number of points."""
    x = jnp.zeros((4096, 2))

    def memory(at_once):
        def total(flow):
            return each(lambda v: log_prob(flow, v, jnp.zeros(())), x, at_once=at_once).sum()

        compiled = eqx.filter_jit(eqx.filter_grad(total)).lower(flow_of("normal")).compile()
        return compiled.compiled.memory_analysis().temp_size_in_bytes

    assert memory(64) < 0.25 * memory(None)

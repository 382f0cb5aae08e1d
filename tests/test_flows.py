"""Whole flows: what one samples is what it scores, and recipes say what is built."""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.bijections import Chain
from paramax import unwrap
from scipy.stats import norm
from small_problems import KEY, TINY, noisy, small_flow

from trade import Condition, Model, Target, TradeError, fit, load
from trade.flows import (
    Adapter,
    AffineFlow,
    Bounded,
    Normal,
    PowerScaled,
    ResidualMLP,
    SplineFlow,
    Stack,
    Standardise,
    VolumePreservingFlow,
    Whiten,
    adapt_to_data,
    spline_flow,
)
from trade.objectives import ForwardKL

CONDITION = Condition(0.25, 4.0, boundary=(1.0,))


# What a flow samples is what it scores

SAMPLES = 40_000  # = 200², so that one compiled log_prob serves samples and grid
FLOWS = {
    "normal": ((2,), {"latent": Normal()}),
    "power": ((2,), {"latent": PowerScaled(-1.0)}),
    "temperature": ((2,), {"latent": PowerScaled(1.0)}),
    "latent alone": ((2,), {"latent": PowerScaled(-1.0), "conditional": False}),
    "one dimension": ((1,), {}),
    "one dimension, latent alone": ((1,), {"latent": PowerScaled(1.0), "conditional": False}),
    "embedding": ((2,), {"embedding": 3}),
    "residual": ((2,), {"network": ResidualMLP(8)}),
    "adapter": ((2,), {"adapter": 4, "latent": PowerScaled(-1.0)}),
    "whitened": ((2,), {"adapter": 4, "whiten": True, "embedding": 2, "steep": True}),
    "steep": ((2,), {"adapter": 4, "steep": True, "squares": True}),
    "volume preserving": VolumePreservingFlow((2,), CONDITION, blocks=3, network=TINY, latent=PowerScaled(1.0)),
    "volume by mean": VolumePreservingFlow((2,), CONDITION, blocks=2, network=TINY, volume="mean"),
    "affine": AffineFlow((2,), CONDITION, blocks=3, network=TINY, latent=PowerScaled(-1.0)),
    "affine by mean": AffineFlow((2,), CONDITION, blocks=3, network=TINY, volume="mean", latent=PowerScaled(1.0)),
    "affine in one dimension": AffineFlow((1,), CONDITION, blocks=2, network=TINY, latent=PowerScaled(-1.0)),
    "matrix": ((2, 2), {"latent": PowerScaled(1.0)}),
}
CONDITIONS = (0.3, 1.0, 3.5)


@pytest.fixture(scope="module", params=FLOWS)
def fresh(request):
    spec = FLOWS[request.param]
    if not isinstance(spec, tuple):
        return Model(spec.build(KEY), CONDITION)
    shape, options = spec
    return Model(small_flow(shape, CONDITION, **options), CONDITION)


@pytest.fixture(scope="module")
def model(fresh):
    scale = np.arange(1.0, 1 + np.prod(fresh.shape)).reshape(fresh.shape)  # location and scale that matter
    data = scale + 0.5 * scale * np.random.default_rng(0).standard_normal((100, *fresh.shape))
    return Model(adapt_to_data(noisy(fresh.flow), jnp.asarray(data, jnp.float32)), CONDITION)


@pytest.mark.parametrize("c", CONDITIONS)
def test_fresh_flow_is_its_latent(fresh, c):
    latent = fresh.flow.recipe.latent
    variance = c**latent.exponent if isinstance(latent, PowerScaled) else 1.0
    x = np.random.default_rng(0).standard_normal((SAMPLES, *fresh.shape))
    expected = norm.logpdf(x, scale=np.sqrt(variance)).reshape(SAMPLES, -1).sum(axis=1)
    np.testing.assert_allclose(fresh.log_prob(x, c), expected, atol=1e-4, rtol=1e-5)


def drawn(model, c):
    x, log_p = model.sample_and_log_prob(KEY, SAMPLES, c)
    return np.asarray(x, np.float64), np.asarray(log_p, np.float64)


@pytest.mark.parametrize("c", CONDITIONS)
def test_samples_are_scored_as_drawn(model, c):
    x, log_p = drawn(model, c)
    assert x.shape == (SAMPLES, *model.shape)
    np.testing.assert_allclose(model.log_prob(x, c), log_p, atol=2e-3)
    other = 0.5 if c != 0.5 else 2.0
    assert np.abs(np.asarray(model.log_prob(x, other)) - log_p).max() > 0.01  # and c matters


def grid(x):
    """A grid of as many points as samples over seven deviations, and its cell."""
    d = x.shape[1]
    points = round(SAMPLES ** (1 / d))
    axes = [np.linspace(m - 7 * s, m + 7 * s, points) for m, s in zip(x.mean(axis=0), x.std(axis=0), strict=True)]
    cell = np.prod([a[1] - a[0] for a in axes])
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d), cell


def proposal(x):
    """Points from a normal broader than the samples, with one over their density."""
    flat = x.reshape(len(x), -1)
    mean, root = flat.mean(axis=0), 1.4 * np.linalg.cholesky(np.cov(flat.T))
    z = np.random.default_rng(0).standard_normal(flat.shape)
    log_density = norm.logpdf(z).sum(axis=1) - np.linalg.slogdet(root)[1]
    return (mean + z @ root.T).reshape(x.shape), np.exp(-log_density) / len(x)


@pytest.mark.parametrize("c", CONDITIONS)
def test_density_is_normalised_and_has_the_moments_of_the_samples(model, c):
    x, _ = drawn(model, c)
    by_grid = x.ndim == 2
    points, cell = grid(x) if by_grid else proposal(x)
    mass = np.exp(np.asarray(model.log_prob(points, c), np.float64)) * cell
    noise = 0.0 if by_grid else np.sqrt(np.sum((mass - mass.mean()) ** 2))
    assert abs(mass.sum() - 1.0) < 3e-3 + 5 * noise

    flat, at = x.reshape(SAMPLES, -1), points.reshape(SAMPLES, -1)
    weight = mass[:, None] / mass.sum()
    mean = (weight * at).sum(axis=0)
    for power in (1, 2):
        samples, values = (flat - mean) ** power, (at - mean) ** power
        expected = (weight * values).sum(axis=0)
        variance = samples.var(axis=0) / SAMPLES
        if not by_grid:
            variance = variance + np.sum((weight * (values - expected)) ** 2, axis=0)
        assert np.all(np.abs(samples.mean(axis=0) - expected) < 5 * np.sqrt(variance))


# Flows between boundaries

WALLS = ((0.0, 1.0), (2.0, None))


@pytest.fixture(scope="module")
def between_walls():
    random = np.random.default_rng(0)
    data = np.stack([random.beta(2.0, 1.0, 300), 2.0 + random.gamma(2.0, 1.0, 300)], axis=1)
    flow = noisy(small_flow((2,), CONDITION, bounds=WALLS, whiten=True, adapter=4))
    return Model(adapt_to_data(flow, jnp.asarray(data, jnp.float32)), CONDITION)


@pytest.mark.parametrize("c", CONDITIONS)
def test_flow_between_walls_stays_there_and_is_normalised(between_walls, c):
    """Samples are inside and scored as drawn; the density integrates to one over the box, and has their means."""
    x, log_p = drawn(between_walls, c)
    assert np.all((x[:, 0] >= 0.0) & (x[:, 0] <= 1.0) & (x[:, 1] >= 2.0))
    apart = np.min(np.stack([x[:, 0], 1.0 - x[:, 0], x[:, 1] - 2.0]), axis=0) > 1e-4  # float32 sees no less
    assert apart.mean() > 0.99
    np.testing.assert_allclose(np.asarray(between_walls.log_prob(x, c))[apart], log_p[apart], atol=0.02)
    # Evenly in the logit and the logarithm, where the density is smooth.
    s, t = np.linspace(-12.0, 12.0, 200), np.linspace(-10.0, 8.0, 200)
    first, second = 1.0 / (1.0 + np.exp(-s)), np.exp(t)
    cell = (s[1] - s[0]) * (t[1] - t[0]) * np.multiply.outer(first * (1 - first), second).ravel()
    points = np.stack(np.meshgrid(first, 2.0 + second, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = np.exp(np.asarray(between_walls.log_prob(points, c), np.float64)) * cell
    assert abs(mass.sum() - 1.0) < 5e-3
    for function in (lambda v: v[:, 0], lambda v: np.log(v[:, 1] - 2.0 + 1e-6)):
        error = function(x).std() / np.sqrt(SAMPLES)
        assert abs(function(x).mean() - mass @ function(points) / mass.sum()) < 5 * error + 2e-3


def test_a_flow_between_walls_is_saved_with_them(between_walls, tmp_path):
    """The recipe names the boundaries, one of them None."""
    target = Target(lambda x, c: jnp.log(x[0]) - (x[1] - 2.0) / c, (2,), CONDITION, bounds=WALLS)
    data = between_walls.sample(KEY, 300, 1.0)
    recipe = SplineFlow((2,), CONDITION, blocks=2, bins=4, network=TINY, bounds=WALLS, whiten=True, adapter=4)
    options = {"evaluation_samples": 32, "progress": False, "out": tmp_path / "run"}
    run = fit(target, {1.0: data}, flow=recipe, objective=ForwardKL(32), steps=2, **options)
    again = load(tmp_path / "run", target=target).model
    assert again.flow.recipe.bounds == WALLS
    np.testing.assert_array_equal(again.log_prob(data, 0.5), run.model.log_prob(data, 0.5))


# Recipes


def test_recipe_builds_the_same_flow_from_the_same_key():
    recipe = SplineFlow((2,), CONDITION, blocks=2, bins=4, network=TINY)
    assert eqx.tree_equal(recipe.build(KEY), recipe.build(KEY))
    assert recipe.build(KEY).recipe == recipe


def test_spline_flow_reads_the_target():
    target = Target(lambda x, c, y: -jnp.sum(x**2) / c + y.sum(), (2, 3), CONDITION, observation_shape=(2, 2))
    flow = eqx.filter_eval_shape(lambda key: spline_flow(key, target, blocks=1, bins=4, network=TINY), KEY)
    assert (flow.shape, flow.cond_shape) == ((2, 3), (5,))
    assert flow.recipe.condition == CONDITION
    first = flow.bijection.bijections[0].bijection.layers.network.layers[0]
    assert first.weight.shape == (1, 3 + 5, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": 0}, "blocks must be an integer of at least 1"),
        ({"blocks": 2.0}, "blocks must be an integer"),
        ({"bins": 1}, "bins must be an integer of at least 2"),
        ({"bins": 1000}, "bins"),
        ({"embedding": -1}, "embedding"),
        ({"observation_size": -1}, "observation_size"),
        ({"interval": 0.0}, "interval must be a positive number"),
        ({"interval": float("nan")}, "interval must be a positive number"),
        ({"adapter": -1}, "adapter"),
        ({"reach": 0.0}, r"reach must be a number in \(0, 1\]"),
        ({"shape": (2, 2), "whiten": True}, "whiten vectors only"),
        ({"angles": (0,)}, "angles are for whiten=True"),
        ({"angles": (2,), "whiten": True}, "angles must be coordinates from 0 to 1"),
        ({"bounds": ((0.0, 1.0),)}, "bounds must be one"),
        ({"bounds": ((0.0, 1.0), (2.0, 1.0))}, r"bounds\[1\] must have low < high"),
        ({"bounds": ((0.0, 1.0), 3.0)}, r"bounds\[1\] must be \(low, high\)"),
    ],
)
def test_bad_recipe_is_refused(options, message):
    with pytest.raises(TradeError, match=message):
        SplineFlow(**{"shape": (2,), "condition": CONDITION, **options})


@pytest.mark.parametrize("options", [{"shape": (1,)}, {"shape": (2, 2)}, {"blocks": 0}, {"volume": "none"}])
def test_bad_volume_preserving_recipe_is_refused(options):
    with pytest.raises(TradeError, match="VolumePreservingFlow"):
        VolumePreservingFlow(**{"shape": (2,), "condition": CONDITION, **options})


@pytest.mark.parametrize("recipe", [VolumePreservingFlow, partial(AffineFlow, volume="mean")], ids=["gin", "mean"])
def test_a_volume_preserving_flow_is_a_power_of_one_density(recipe):
    """With a power-scaled latent, log p(x|c) = c log p(x|1) up to a constant: the steerable property."""
    flow = recipe((3,), CONDITION, blocks=3, network=TINY, latent=PowerScaled(-1.0)).build(KEY)
    model = Model(noisy(flow), CONDITION)
    x = np.random.default_rng(0).standard_normal((50, 3))
    one, three = (np.asarray(model.log_prob(x, c), np.float64) for c in (1.0, 3.0))
    np.testing.assert_allclose(three - three.mean(), 3.0 * (one - one.mean()), atol=1e-3)
    assert one.std() > 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (2, 2)}, "needs a vector"),
        ({"angles": (2,)}, "coordinates from 0 to 1"),
        ({"blocks": 0}, "blocks must be an integer of at least 1"),
        ({"volume": "gin"}, "volume must be 'free' or 'mean'"),
        ({"interval": 0.0}, "interval must be a positive number"),
    ],
)
def test_bad_affine_recipe_is_refused(options, message):
    with pytest.raises(TradeError, match=f"AffineFlow .*{message}"):
        AffineFlow(**{"shape": (2,), "condition": CONDITION, **options})


@pytest.mark.parametrize("volume", ["free", "mean"])
def test_an_affine_flow_of_angles_is_saved_with_its_whitening(volume, tmp_path):
    target = Target(lambda x, c: (2.0 * jnp.cos(x[1] - 3.0) - 10.0 * jnp.sum((x[::2] - 1.0) ** 2)) / c, (3,), CONDITION)
    random = np.random.default_rng(0)
    angle = np.mod(random.vonmises(3.0, 2.0, 500) + np.pi, 2 * np.pi) - np.pi
    data = np.insert(1.0 + 0.2 * random.standard_normal((500, 2)), 1, angle, axis=1)
    recipe = AffineFlow((3,), CONDITION, angles=(1,), blocks=2, network=TINY, volume=volume, latent=PowerScaled(1.0))
    options = {"evaluation_samples": 32, "progress": False, "out": tmp_path / "run"}
    run = fit(target, {1.0: data}, flow=recipe, objective=ForwardKL(32), steps=2, **options)
    layer = unwrap(run.model.flow.bijection.bijections[-1])
    assert isinstance(layer, Whiten)
    assert abs(float(layer.centre[1]) - 3.0) < 0.6
    again = load(tmp_path / "run", target=target).model
    np.testing.assert_array_equal(again.log_prob(data, 0.5), run.model.log_prob(data, 0.5))
    np.testing.assert_allclose(
        again.log_prob(data + np.array([0, 2 * np.pi, 0]), 1.0), again.log_prob(data, 1.0), atol=1e-3
    )


def test_bad_spline_flow_arguments_are_refused():
    target = Target(lambda x, c: -jnp.sum(x**2) / c, (2,), CONDITION)
    with pytest.raises(TradeError, match="no option 'layers'"):
        spline_flow(KEY, target, layers=3)
    with pytest.raises(TradeError, match="no option 'shape'"):
        spline_flow(KEY, target, shape=(3,))
    with pytest.raises(TradeError, match=r"must be a trade\.Target"):
        spline_flow(KEY, lambda x, c: 0.0)


def test_flow_is_a_chain_of_couplings_then_standardisation():
    chain = small_flow((2,), CONDITION, interval=5.0).bijection
    assert isinstance(chain, Chain)
    assert [type(b) for b in chain.bijections] == [Stack, Standardise]
    assert chain.bijections[1].reach == 0.8 * 5.0


def test_next_to_the_data_come_the_adapter_the_whitening_and_the_walls():
    chain = small_flow((2,), CONDITION, interval=5.0, adapter=4, whiten=True, bounds=WALLS).bijection
    assert [type(b) for b in chain.bijections] == [Chain, Whiten, Bounded]
    assert [type(b) for b in chain.bijections[0].bijections] == [Stack, Adapter]
    assert chain.bijections[1].reach == 0.8 * 5.0


@pytest.mark.parametrize(("shape", "turning"), [((2,), True), ((64,), True), ((65,), False), ((2, 2), False)])
def test_an_adapter_turns_vectors_that_are_not_too_long(shape, turning):
    """Its matrix has the square of their length."""
    flow = eqx.filter_eval_shape(lambda key: SplineFlow(shape, CONDITION, blocks=1, adapter=4).build(key), KEY)
    chain = flow.bijection.bijections[0]
    adapter = (chain.bijection if shape == (2, 2) else chain).bijections[1]
    assert adapter.turning is turning

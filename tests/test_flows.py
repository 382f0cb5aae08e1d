from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.bijections import Chain
from paramax import unwrap
from scipy.stats import norm
from small_flows import KEY, TINY, all_finite, cast, noisy, precision, small_flow

from trade import Condition, Model, Target, TradeError
from trade.flows import (
    MLP,
    Normal,
    PowerScaled,
    Rescale,
    ResidualMLP,
    SplineCoupling,
    SplineFlow,
    Stack,
    Standardise,
    VolumePreservingCoupling,
    VolumePreservingFlow,
    adapt_to_data,
    spline_flow,
)
from trade.flows.conditioner import Embedding, Linear
from trade.flows.coupling import _alternating_permutation

CONDITION = Condition(0.25, 4.0, boundary=(1.0,))
INTERVAL, BINS, N = 4.0, 4, 64


# Bijections: inverse, log-determinant, gradients


@cache
def coupling(d):
    return SplineCoupling(KEY, d, 1, network=TINY, bins=BINS, interval=INTERVAL)


@cache
def stack():
    def layer(key):
        return SplineCoupling(key, 2, 1, network=TINY, bins=BINS, interval=INTERVAL)

    return Stack(eqx.filter_vmap(layer)(jax.random.split(KEY, 3)))


@cache
def standardise():
    data = np.array([5.0, 0.0, -2.0]) + np.array([0.1, 1.0, 30.0]) * np.random.default_rng(0).normal(size=(50, 3))
    return Standardise((3,), reach=3.0).adapted(jnp.asarray(data, jnp.float32))


FRESH = {"coupling 1": partial(coupling, 1), "coupling 2": partial(coupling, 2), "coupling 5": partial(coupling, 5)}
FRESH["stack"] = stack
BIJECTIONS = {name: lambda build=build: noisy(build()) for name, build in FRESH.items()}
BIJECTIONS["standardise"] = standardise


@cache
def volume_preserving(d, volume):
    def layer(key):
        return VolumePreservingCoupling(key, d, network=TINY, volume=volume)

    return Stack(eqx.filter_vmap(layer)(jax.random.split(KEY, 3)))


BIJECTIONS["gin 2"] = lambda: noisy(volume_preserving(2, "gin"))
BIJECTIONS["gin 5"] = lambda: noisy(volume_preserving(5, "gin"))
BIJECTIONS["volume by mean"] = lambda: noisy(volume_preserving(5, "mean"))
BIJECTIONS["rescale"] = lambda: noisy(Rescale(KEY, 3, 1, width=4))
BIJECTIONS["constant rescale"] = lambda: noisy(Rescale(KEY, 3, None, width=1))


@pytest.fixture(scope="module", params=BIJECTIONS)
def built(request):
    return BIJECTIONS[request.param]()


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    with precision(request.param):
        yield request.param


@pytest.fixture
def bijection(built, dtype):
    return cast(built, dtype)


class Way(NamedTuple):
    """One direction at N states: images, log-determinants and the derivatives of both."""

    image: jax.Array
    log_det: jax.Array
    by_x: jax.Array  # the Jacobian, then a row for the log-determinant
    by_parameters: Any


@partial(eqx.filter_jit, compiler_options={"xla_backend_optimization_level": 0})
def audit(bijection, x, u=jnp.float32(0.3)):  # noqa: B008
    """Data to latent and latent to data, at each state."""
    parameters, static = eqx.partition(bijection, eqx.is_inexact_array)

    def one_way(name, v):
        def apply(p, v):
            image, log_det = getattr(eqx.combine(p, static), name)(v, jnp.reshape(u, (1,)).astype(x.dtype))
            return jnp.append(image, log_det)

        out, pull = jax.vjp(apply, parameters, v)
        by_parameters, by_x = jax.vmap(pull)(jnp.eye(len(out), dtype=out.dtype))
        return Way(out[:-1], out[-1], by_x, by_parameters)

    names = ("inverse_and_log_det", "transform_and_log_det")
    return jax.vmap(lambda v: [one_way(name, v) for name in names])(x)


def states(d, dtype=np.float32):
    """N states, a tenth of their coordinates outside the interval."""
    return jnp.asarray(2.5 * np.random.default_rng(3).standard_normal((N, d)), dtype)


def test_bijection_inverts_and_knows_its_determinant(bijection, dtype):
    x = states(*bijection.shape, dtype)
    tight, loose = (1e-4, 1e-3) if dtype == np.float32 else (1e-9, 1e-8)
    for way, there in enumerate(audit(bijection, x)):
        assert there.image.dtype == there.log_det.dtype == dtype
        assert np.abs(np.sort(there.image) - np.sort(x)).max() > 0.1  # more than a permutation
        np.testing.assert_allclose(there.log_det, np.linalg.slogdet(there.by_x[:, :-1])[1], atol=loose)
        back = audit(bijection, there.image)[1 - way]
        np.testing.assert_allclose(back.image, x, atol=tight)
        np.testing.assert_allclose(back.log_det, -there.log_det, atol=loose)


def test_bijection_has_finite_gradients_everywhere(bijection, dtype):
    d = bijection.shape[0]
    edges = [INTERVAL, -INTERVAL, np.nextafter(dtype(INTERVAL), dtype(0)), 1e4, -1e4, 0.0, 1e15]
    mixed = np.random.default_rng(0).choice(edges, (N - len(edges), d))
    x = jnp.asarray(np.concatenate([np.tile(np.array(edges)[:, None], d), mixed]), dtype)
    assert all_finite(audit(bijection, x))


@pytest.mark.parametrize("volume", ["gin", "mean"])
@pytest.mark.parametrize("d", [2, 5])
def test_volume_preserving_blocks_report_exactly_zero_and_have_it(d, volume):
    bijection = noisy(volume_preserving(d, volume))
    for way in audit(bijection, states(d)):
        assert np.all(np.asarray(way.log_det) == 0.0)
        np.testing.assert_allclose(np.linalg.slogdet(way.by_x[:, :-1])[1], 0.0, atol=1e-4)
    if d == 5:  # it does scale: the log scales are not all zero
        one = jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, bijection.layers)
        log_scale = one._parameters(jnp.ones(2))[0]
        assert float(jnp.abs(log_scale).max()) > 0.01
        assert abs(float(log_scale.sum())) < 1e-6


def test_rotation_of_a_block_is_orthogonal():
    one = jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, noisy(volume_preserving(5, "gin")).layers)
    np.testing.assert_allclose(one.rotation() @ one.rotation().T, np.eye(5), atol=1e-5)


def test_rescale_follows_the_condition():
    layer = noisy(Rescale(KEY, 2, 1, width=4), scale=0.5)
    x = jnp.ones(2)
    images = [layer.transform_and_log_det(x, jnp.array([u])) for u in (-1.0, 1.0)]
    assert float(jnp.abs(images[0][0] - images[1][0]).max()) > 0.01
    assert float(jnp.abs(images[0][1] - images[1][1])) > 0.01


@pytest.mark.parametrize("name", FRESH)
def test_fresh_bijection_is_the_identity_up_to_a_permutation(name):
    fresh = FRESH[name]()
    x = states(*fresh.shape)
    for way in audit(fresh, x):
        np.testing.assert_allclose(np.sort(way.image), np.sort(x), atol=1e-5)
        np.testing.assert_allclose(way.log_det, 0.0, atol=1e-5)


@pytest.mark.parametrize("d", [1, 2])
def test_fresh_layer_has_finite_gradients_on_its_knots(d):
    knots = np.linspace(-INTERVAL, INTERVAL, BINS + 1)  # evenly spaced while the network gives zero
    x = np.stack(np.meshgrid(*[knots] * d), -1).reshape(-1, d)
    assert all_finite(audit(coupling(d), jnp.asarray(np.resize(x, (N, d)), jnp.float32)))


def test_only_the_network_gets_a_gradient():
    for way in audit(noisy(coupling(5)), states(5)):
        assert not np.any(jax.tree.leaves(way.by_parameters.permutation)[0])
        assert all(np.any(leaf) for leaf in jax.tree.leaves(way.by_parameters.network))
    for way in audit(standardise(), states(3)):
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(way.by_parameters))


def test_double_precision_builds_double_precision():
    with precision(np.float64):
        layer = SplineCoupling(KEY, 1, None, network=TINY, bins=2)
    assert {leaf.dtype for leaf in jax.tree.leaves(eqx.filter(layer, eqx.is_array))} == {np.dtype(np.float64)}


# Couplings, stacks and permutations


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_every_passive_coordinate_was_active_in_the_layer_before(d):
    for key in jax.random.split(KEY, 4):
        matrix = np.asarray(_alternating_permutation(key, d, d // 2))
        source = matrix.argmax(axis=1)  # from data to latent, output i is input source[i]
        np.testing.assert_array_equal(matrix, np.eye(d)[source])
        assert sorted(source) == list(range(d))
        assert np.all(source[: d // 2] >= d // 2)


def test_layers_of_a_stack_alternate():
    matrices = np.asarray(unwrap(stack()).layers.permutation)
    np.testing.assert_array_equal(matrices, np.tile(np.eye(2)[::-1], (3, 1, 1)))


def test_stack_is_its_layers_one_after_the_other():
    layers, x = noisy(stack()), states(2)
    for way, order in enumerate([(0, 1, 2), (2, 1, 0)]):
        image, log_det = x, 0.0
        for i in order:
            one = jax.tree.map(lambda leaf, i=i: leaf[i] if eqx.is_array(leaf) else leaf, layers.layers)
            step = audit(one, image)[way]
            image, log_det = step.image, log_det + step.log_det
        scanned = audit(layers, x)[way]
        np.testing.assert_allclose(scanned.image, image, atol=1e-5)
        np.testing.assert_allclose(scanned.log_det, log_det, atol=1e-5)


def test_coupling_passes_the_first_half_and_depends_on_it_and_on_the_condition():
    layer, x = noisy(coupling(5)), jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (N, 5)), jnp.float32)
    back = np.asarray(unwrap(layer).permutation).T
    there, elsewhere = audit(layer, x)[0], audit(layer, x, jnp.float32(-0.8))[0]
    jacobian = back @ np.asarray(there.by_x)[:, :-1]  # the permutation of the outputs undone
    np.testing.assert_array_equal(jacobian[:, :2], np.broadcast_to(np.eye(5)[:2], (N, 2, 5)))
    assert np.all(jacobian[:, 2:, :2] != 0.0)
    np.testing.assert_array_equal(jacobian[:, 2:, 2:] * (1 - np.eye(3)), 0.0)
    moved = np.asarray(there.image - elsewhere.image) @ back.T
    assert np.all(moved[:, :2] == 0.0)
    assert np.all(moved[:, 2:] != 0.0)


def test_tails_have_a_bounded_slope_and_shift():
    layer = noisy(coupling(2), scale=30.0)
    x = jnp.asarray(np.random.default_rng(0).choice([-1e6, -1e4, 0.0, 1e4, 1e6], (N, 2)), jnp.float32)
    there = audit(layer, x)[0]
    moved = np.asarray(there.image @ unwrap(layer).permutation)[:, 1]  # the permutation undone
    outside = np.abs(x[:, 1]) > INTERVAL
    assert np.all(np.abs(moved) <= 1.001 * (np.e * np.maximum(np.abs(x[:, 1]), INTERVAL) + INTERVAL))
    assert np.all(np.abs(there.log_det[outside]) <= 1.001)


# Conditioners


def test_mlp_is_a_multilayer_perceptron():
    network = noisy(MLP(width=6, depth=2, activation="relu").build(KEY, 3, 5))
    assert [layer.weight.shape for layer in network.layers] == [(3, 6), (6, 6), (6, 5)]
    h = np.array([0.3, -1.0, 2.0])
    weights = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in network.layers]
    for weight, bias in weights[:-1]:
        h = np.maximum(h @ weight + bias, 0.0)
    expected = h @ weights[-1][0] + weights[-1][1]
    np.testing.assert_allclose(network(jnp.array([0.3, -1.0, 2.0])), expected, rtol=1e-5)


def test_residual_mlp_adds_its_blocks():
    network = noisy(ResidualMLP(width=6, blocks=2, activation="relu").build(KEY, 3, 5))
    assert [layer.weight.shape for layer in network.layers] == [(3, 6), *[(6, 6)] * 4, (6, 5)]
    first, a, b, c, d, last = [
        lambda h, layer=layer: h @ np.asarray(layer.weight) + np.asarray(layer.bias) for layer in network.layers
    ]

    def relu(h):
        return np.maximum(h, 0.0)

    h = first(np.array([0.3, -1.0, 2.0]))
    h = h + b(relu(a(relu(h))))
    h = h + d(relu(c(relu(h))))
    np.testing.assert_allclose(network(jnp.array([0.3, -1.0, 2.0])), last(relu(h)), rtol=1e-5)


@pytest.mark.parametrize("spec", [MLP(8, 3), ResidualMLP(8, 2)])
@pytest.mark.parametrize("inputs", [0, 3])
def test_fresh_networks_give_zero_and_start_from_xavier_weights(spec, inputs):
    network = spec.build(KEY, inputs, 4)
    np.testing.assert_array_equal(network(jnp.ones(inputs)), np.zeros(4))
    assert all(np.any(layer.weight) for layer in network.layers[1:-1])
    assert all(not np.any(layer.bias) for layer in network.layers)


def test_weights_have_xavier_variance():
    weight = Linear(KEY, 100, 300).weight
    np.testing.assert_allclose(np.std(weight), np.sqrt(2.0 / 400.0), rtol=0.02)


def test_fresh_embedding_repeats_the_condition():
    embedding = Embedding(KEY, 2, 3, width=8)
    np.testing.assert_array_equal(embedding(jnp.array([0.5, -2.0])), [0.5, 0.5, 0.5, -2.0, -2.0, -2.0])
    assert np.std(np.asarray(noisy(embedding)(jnp.array([0.5, -2.0])))[:3]) > 0.01


# Latents


@pytest.mark.parametrize("exponent", [-1.0, 1.0])
@pytest.mark.parametrize("c", [0.3, 1.0, 3.5])
def test_power_scaled_normal_has_the_variance_it_says(exponent, c):
    latent = PowerScaled(exponent, reference=2.0).build((3,), 1, CONDITION)
    u = CONDITION.chart(c)[None]
    variance = (c / 2.0) ** exponent
    x = jnp.array([0.4, -1.7, 0.1])
    np.testing.assert_allclose(
        latent._log_prob(x, u), norm.logpdf(np.asarray(x), scale=np.sqrt(variance)).sum(), rtol=1e-5
    )
    draws = np.asarray(jax.vmap(lambda k: latent._sample(k, u))(jax.random.split(KEY, 4000)))
    assert abs(draws.var() / variance - 1.0) < 5 * np.sqrt(2.0 / draws.size)
    assert abs(draws.mean()) < 5 * np.sqrt(variance / draws.size)


# Standardise


def test_standardise_centres_and_scales_data():
    data = jnp.array([5.0, 0.0]) + jnp.array([0.1, 30.0]) * jax.random.uniform(KEY, (200, 2))
    z = np.asarray(jax.vmap(Standardise((2,), reach=3.2).adapted(data).inverse)(data))
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(z.std(axis=0), 1.0, rtol=1e-4)


def test_standardise_keeps_outliers_within_reach():
    data = jax.random.normal(KEY, (200, 2)).at[7, 1].set(500.0)
    z = np.asarray(jax.vmap(Standardise((2,), reach=3.2).adapted(data).inverse)(data))
    np.testing.assert_allclose(z[7, 1], 3.2, rtol=1e-4)
    assert np.abs(z).max() <= 3.2 * (1 + 1e-5)


def test_standardise_leaves_a_constant_coordinate_unscaled():
    layer = unwrap(Standardise((2,), reach=3.2).adapted(jnp.stack([jnp.full(8, 2.0), jnp.arange(8.0)], axis=1)))
    assert float(layer.scale[0]) == 1.0
    assert float(layer.location[0]) == 2.0


def test_adapt_to_data_sets_only_the_standardisation():
    flow = small_flow((2,), CONDITION)
    data = 7.0 + 3.0 * jax.random.normal(KEY, (100, 2))
    adapted = adapt_to_data(flow, data)
    before, after = flow.bijection.bijections, adapted.bijection.bijections
    assert eqx.tree_equal(before[0], after[0])
    np.testing.assert_allclose(unwrap(after[1]).location, data.mean(axis=0), rtol=1e-6)
    assert adapted.recipe == flow.recipe
    assert eqx.tree_equal(adapt_to_data(before[0], data), before[0])


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
    "rescale": ((2,), {"rescale": 4, "latent": PowerScaled(-1.0)}),
    "volume preserving": VolumePreservingFlow((2,), CONDITION, blocks=3, network=TINY, latent=PowerScaled(1.0)),
    "volume by mean": VolumePreservingFlow((2,), CONDITION, blocks=2, network=TINY, volume="mean"),
    "matrix": ((2, 2), {"latent": PowerScaled(1.0)}),
}
CONDITIONS = (0.3, 1.0, 3.5)


@pytest.fixture(scope="module", params=FLOWS)
def fresh(request):
    spec = FLOWS[request.param]
    if isinstance(spec, VolumePreservingFlow):
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
        ({"bins": 100}, "bins"),
        ({"embedding": -1}, "embedding"),
        ({"observation_size": -1}, "observation_size"),
        ({"interval": 0.0}, "interval must be positive"),
        ({"interval": float("nan")}, "interval must be positive"),
    ],
)
def test_bad_recipe_is_refused(options, message):
    with pytest.raises(TradeError, match=message):
        SplineFlow((2,), CONDITION, **options)


@pytest.mark.parametrize("options", [{"shape": (1,)}, {"shape": (2, 2)}, {"blocks": 0}, {"volume": "none"}])
def test_bad_volume_preserving_recipe_is_refused(options):
    with pytest.raises(TradeError, match="VolumePreservingFlow"):
        VolumePreservingFlow(**{"shape": (2,), "condition": CONDITION, **options})


def test_a_volume_preserving_flow_is_a_power_of_one_density():
    """With a power-scaled latent, log p(x|c) = c log p(x|1) up to a constant: the steerable property."""
    recipe = VolumePreservingFlow((2,), CONDITION, blocks=3, network=TINY, latent=PowerScaled(-1.0))
    model = Model(noisy(recipe.build(KEY)), CONDITION)
    x = np.random.default_rng(0).standard_normal((50, 2))
    one, three = (np.asarray(model.log_prob(x, c), np.float64) for c in (1.0, 3.0))
    np.testing.assert_allclose(three - three.mean(), 3.0 * (one - one.mean()), atol=1e-3)
    assert one.std() > 0.3


def test_bad_spline_flow_arguments_are_refused():
    target = Target(lambda x, c: -jnp.sum(x**2) / c, (2,), CONDITION)
    with pytest.raises(TradeError, match="no option 'layers'"):
        spline_flow(KEY, target, layers=3)
    with pytest.raises(TradeError, match="no option 'shape'"):
        spline_flow(KEY, target, shape=(3,))
    with pytest.raises(TradeError, match=r"needs a trade\.Target"):
        spline_flow(KEY, lambda x, c: 0.0)


def test_flow_is_a_chain_of_couplings_then_standardisation():
    chain = small_flow((2,), CONDITION, interval=5.0).bijection
    assert isinstance(chain, Chain)
    assert [type(b) for b in chain.bijections] == [Stack, Standardise]
    assert chain.bijections[1].reach == 0.8 * 5.0

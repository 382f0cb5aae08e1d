"""What bijections and flows are made of: conditioners, latents and the standardisation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paramax import unwrap
from scipy.stats import norm
from small_problems import KEY, cast, noisy, precision, small_flow

from trade import Condition
from trade.flows import (
    MLP,
    Hierarchy,
    PowerScaled,
    ResidualMLP,
    Standardise,
    Tails,
    Whiten,
    adapt_to_data,
)
from trade.flows.conditioner import Embedding, Linear, Steep
from trade.flows.coupling import LONG_RUN, LONGEST_PIECE, Stack, in_one_piece
from trade.flows.hierarchy import sources_of_widths
from trade.flows.tails import has_tails
from trade.flows.whiten import emptiest

CONDITION = Condition(0.25, 4.0, boundary=(1.0,))
LONG = LONG_RUN[jax.default_backend()]


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


def test_steep_views_are_appended_and_end_at_one():
    """By hand at u = -1, 0, 1, with an observation beside u; the slope of the first view is 3 in the middle."""
    seen = np.asarray(jax.vmap(Steep())(jnp.array([[-1.0, 5.0], [0.0, 5.0], [1.0, 5.0]])))
    np.testing.assert_allclose(seen[:, :2], [[-1.0, 5.0], [0.0, 5.0], [1.0, 5.0]])
    np.testing.assert_allclose(seen[:, 2], [-np.tanh(3.0), 0.0, np.tanh(3.0)], rtol=1e-6)
    np.testing.assert_allclose(seen[:, 3], [-1.0, 0.0, 1.0], rtol=1e-6)
    slope = jax.jacobian(lambda u: Steep()(jnp.array([u, 5.0])))(0.0)
    np.testing.assert_allclose(slope, [1.0, 0.0, 3.0, 3.0 / np.sinh(3.0)], rtol=1e-6)


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


@pytest.mark.parametrize("whiten", [True, False])
def test_layers_are_measured_on_the_data_as_they_see_them(whiten):
    """Data between boundaries: their logits have mean zero and deviation one, and not they themselves."""
    random = np.random.default_rng(0)
    z = np.array([3.0, -1.0]) + random.standard_normal((2000, 2)) @ np.array([[0.5, 1.2], [0.0, 0.9]])
    data = np.stack([1.0 / (1.0 + np.exp(-z[:, 0])), 5.0 + np.exp(z[:, 1])], axis=1)
    flow = small_flow((2,), CONDITION, bounds=((0.0, 1.0), (5.0, None)), whiten=whiten, adapter=4)
    adapted = adapt_to_data(flow, jnp.asarray(data, jnp.float32))
    inner, layer, box = adapted.bijection.bijections
    assert eqx.tree_equal((inner, box), (flow.bijection.bijections[0], flow.bijection.bijections[2]))
    seen = jax.vmap(lambda x: unwrap(layer).inverse(box.inverse(x)))(jnp.asarray(data, jnp.float32))
    np.testing.assert_allclose(np.mean(seen, axis=0), 0.0, atol=0.01)
    assert np.all((np.std(seen, axis=0) > 0.75) & (np.std(seen, axis=0) < 1.001))  # less where the reach is short
    np.testing.assert_allclose(unwrap(layer).location, z.mean(axis=0), atol=0.02)
    if whiten:
        assert abs(np.corrcoef(np.asarray(seen).T)[0, 1]) < 0.01
        assert np.corrcoef(z.T)[0, 1] > 0.5
    assert adapted.recipe == flow.recipe


# Whiten


def torsions(n=2000):
    """A length, an angle at ±π that follows it, and one with two basins; all wrapped into [-π, π)."""
    random = np.random.default_rng(0)
    length = 1.4 + 0.002 * random.standard_normal(n)
    peptide = np.pi + 50.0 * (length - 1.4) + 0.1 * random.standard_normal(n)
    basins = np.where(random.random(n) < 0.6, -2.9, 1.2) + 0.3 * random.standard_normal(n)
    wrapped = np.mod(np.stack([peptide, basins], axis=1) + np.pi, 2 * np.pi) - np.pi
    return np.column_stack([length, wrapped])


def test_whitened_data_have_mean_zero_and_covariance_one_across_the_edge_of_an_angle():
    data = jnp.asarray(torsions(), jnp.float32)
    assert data[:, 1].std() > 2.0  # torn apart by ±π
    layer = Whiten((3,), angles=(1, 2)).adapted(data)
    z = np.asarray(jax.vmap(layer.inverse)(data), np.float64)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(np.cov(z.T), np.eye(3), atol=2e-3)
    np.testing.assert_allclose(jax.vmap(layer.inverse)(data + jnp.array([0.0, 2 * np.pi, -4 * np.pi])), z, atol=1e-3)
    back = np.asarray(jax.vmap(layer.transform)(jnp.asarray(z, jnp.float32)))
    assert abs(back[:, 1].std() - 0.14) < 0.01  # in its window and not wrapped
    np.testing.assert_allclose(np.cos(back[:, 1:]), np.cos(data[:, 1:]), atol=1e-4)


def test_stretched_windows_hold_all_samples_and_know_their_volume():
    """The line goes onto the window and no farther: a density on the circle, which sums to one there."""
    layer = Whiten((3,), angles=(1, 2)).adapted(jnp.asarray(torsions(), jnp.float32))
    z = 4.0 * jax.random.normal(KEY, (500, 3))
    x = jax.vmap(layer.transform)(z)
    assert bool(jax.vmap(unwrap(layer).covers)(x).all())
    with precision(np.float64):
        wide = cast(layer, np.float64)
        x = jax.vmap(wide.transform)(jnp.asarray(z[:20], float))
        np.testing.assert_allclose(jax.vmap(wide.inverse)(x), z[:20], atol=1e-6)
        for v, w in zip(x, z[:20], strict=True):
            _, there = jnp.linalg.slogdet(jax.jacfwd(wide.transform)(jnp.asarray(w, float)))
            _, back = jnp.linalg.slogdet(jax.jacfwd(wide.inverse)(v))
            found = wide.transform_and_log_det(jnp.asarray(w, float))[1], wide.inverse_and_log_det(v)[1]
            np.testing.assert_allclose(found, [there, back], atol=1e-5)


def test_windows_that_are_not_stretched_keep_volume_and_say_what_they_cover():
    layer = Whiten((3,), angles=(1, 2), stretched=False).adapted(jnp.asarray(torsions(), jnp.float32))
    z = 4.0 * jax.random.normal(KEY, (500, 3))
    x, log_det = jax.vmap(layer.transform_and_log_det)(z)
    assert float(jnp.ptp(log_det)) == 0.0
    inside = np.asarray(jax.vmap(unwrap(layer).covers)(x))
    assert 0.2 < inside.mean() < 0.95
    moved = np.abs(np.asarray(jax.vmap(layer.inverse)(x)) - np.asarray(z)).max(axis=1)
    assert moved[inside].max() < 0.01 < moved[~inside].min()


def test_whitened_data_lie_within_reach():
    """A heavy tail along one direction: all but a thousandth come to lie within 3; the others keep unit variance."""
    random = np.random.default_rng(0)
    heavy = random.standard_t(2.0, 20_000)
    data = np.stack([random.standard_normal(20_000), heavy], axis=1) @ np.array([[1.0, 0.5], [0.0, 2.0]])
    plain, within = (Whiten((2,), reach=r).adapted(jnp.asarray(data, jnp.float32)) for r in (np.inf, 3.0))
    z, scaled = (np.asarray(jax.vmap(layer.inverse)(jnp.asarray(data, jnp.float32))) for layer in (plain, within))
    far = np.quantile(np.abs(z), 0.999, axis=0)
    assert far[0] > 3.0 and far[1] > 6.0  # a Gaussian goes to 3.3
    np.testing.assert_allclose(np.quantile(np.abs(scaled), 0.999, axis=0), 3.0, rtol=1e-2)
    np.testing.assert_allclose(
        scaled / z, np.broadcast_to(3.0 / far, z.shape), rtol=1e-2
    )  # each latent direction alone
    _, log_det = within.inverse_and_log_det(jnp.zeros(2))
    _, plain_log_det = plain.inverse_and_log_det(jnp.zeros(2))
    np.testing.assert_allclose(log_det - plain_log_det, np.log(3.0 / far).sum(), atol=1e-2)


def test_a_reach_that_is_far_enough_changes_nothing():
    data = jax.random.normal(KEY, (500, 2))
    plain, within = (Whiten((2,), reach=r).adapted(data) for r in (np.inf, 5.0))
    assert eqx.tree_equal(plain.root, within.root)


def test_whitening_guards_dependent_and_constant_coordinates():
    x = np.random.default_rng(0).standard_normal(100)
    layer = Whiten((3,)).adapted(jnp.asarray(np.stack([x, 2.0 * x, np.full(100, 3.0)], axis=1), jnp.float32))
    assert float(unwrap(layer).root[2, 2]) == 1.0
    assert np.isfinite(layer.inverse_and_log_det(jnp.ones(3))[0]).all()


# Hierarchy


def schools(n=20_000):
    """Effects around a common mean with a common width, whose logarithm is the last coordinate; scales far from one."""
    random = np.random.default_rng(0)
    log_width = random.standard_normal(n)
    mean = 5.0 * random.standard_normal(n)
    effects = [mean + np.exp(log_width) * random.standard_normal(n) for _ in range(3)]
    return np.stack([*effects, mean, log_width], axis=1)


def test_a_hierarchy_becomes_a_standard_normal():
    """The effects keep no trace of their mean, nor their widths of the source, also in the neck; others pass."""
    data = schools()
    layer = unwrap(Hierarchy((5,), (4,), reach=5.0).adapted(jnp.asarray(data, jnp.float32)))
    z, log_det = (np.asarray(v) for v in jax.vmap(layer.inverse_and_log_det)(jnp.asarray(data, jnp.float32)))
    np.testing.assert_array_equal(z[:, 0], data[:, 4].astype(np.float32))
    np.testing.assert_allclose(np.cov(z.T), np.eye(5), atol=0.05)
    neck = data[:, 4] < -2.0
    assert neck.sum() > 300
    np.testing.assert_allclose(z[neck].std(axis=0)[1:], 1.0, atol=0.15)
    # Of the effects given mean and width the density is known: the layer has it with a standard normal behind it.
    given = -0.5 * (z[:, 1:] ** 2).sum(axis=1) + log_det
    residuals = (data[:, :3] - data[:, 3:4]) * np.exp(-data[:, 4:])
    exact = -0.5 * (residuals**2).sum(axis=1) - 3.0 * data[:, 4] - 0.5 * (data[:, 3] / 5.0) ** 2 - np.log(5.0)
    assert abs((exact - given).mean()) < 2e-3


def test_sources_are_clipped_beyond_the_data():
    """Half a range beyond them widths stay as they are: no exponential of a far state."""
    layer = Hierarchy((2,), (0,)).adapted(
        jnp.asarray(np.stack([schools()[:, 4], schools()[:, 0]], axis=1), jnp.float32)
    )
    far, farther = (layer.transform_and_log_det(jnp.array([t, 1.0]))[1] for t in (50.0, 5000.0))
    assert far == farther < 12.0


def test_sources_are_found_where_widths_follow_a_coordinate():
    assert sources_of_widths(schools()) == (4,)
    random = np.random.default_rng(1)
    other = random.standard_normal((20_000, 2))
    funnels = np.column_stack([other[:, 0], np.exp(other) * random.standard_normal((20_000, 2)), other[:, 1]])
    assert sorted(sources_of_widths(funnels)) == [0, 3]


@pytest.mark.parametrize("name", ["correlated", "heavy", "modes", "curved", "ring", "constant", "few"])
def test_data_that_are_no_hierarchy_have_no_sources(name):
    random = np.random.default_rng(0)
    x = random.standard_normal((5_000, 4))
    angle = random.uniform(-np.pi, np.pi, 5_000)
    ring = (2.0 + 0.1 * x[:, 0])[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    data = {
        "correlated": x @ random.standard_normal((4, 4)),
        "heavy": random.standard_t(3.0, (5_000, 4)),
        "modes": x + 4.0 * random.integers(2, size=(5_000, 1)),
        "curved": np.column_stack([x[:, 0], 0.5 * x[:, 0] ** 2 + x[:, 1], x[:, 2:]]),
        "ring": ring,
        "constant": np.column_stack([x, np.ones(5_000)]),
        "few": schools(50),
    }
    assert sources_of_widths(data[name]) == ()


@pytest.mark.parametrize(("mode", "cut"), [(0.0, np.pi), (np.pi, 0.0), (-2.0, np.pi - 2.0)])
def test_an_angle_is_cut_far_from_its_data(mode, cut):
    angles = mode + 0.2 * np.random.default_rng(0).standard_normal(500)
    assert abs(np.sin(0.5 * (emptiest(angles) - cut))) < 0.1


def test_layers_unrolled_as_a_whole_are_the_same_flow():
    """Without the loop nothing is recomputed; density and gradient stay what they are."""

    def density(unroll):
        flow = noisy(small_flow((3,), CONDITION, blocks=3, unroll=unroll))
        x = jax.random.normal(KEY, (3,))
        return eqx.filter_value_and_grad(lambda f: unwrap(f)._log_prob(x, jnp.array([0.3])))(flow)

    (one, slope_one), (three, slope_three) = density(1), density(3)
    np.testing.assert_allclose(one, three, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(slope_one), jax.tree.leaves(slope_three), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("blocks", "asked", "steps", "taken"),
    [(3, 0, LONG, 3), (3, 0, LONG - 1, 0), (3, 1, LONG, 1), (LONGEST_PIECE + 1, 0, LONG, 0)],
)
def test_long_runs_train_layers_in_one_piece_unless_told_otherwise(blocks, asked, steps, taken):
    flow = in_one_piece(small_flow((3,), CONDITION, blocks=blocks, unroll=asked), steps)
    found = jax.tree.leaves(flow, is_leaf=lambda node: isinstance(node, Stack))
    assert [node.unroll for node in found if isinstance(node, Stack)] == [taken]


# Tails


def test_the_logarithm_of_a_scale_has_its_tail():
    """The log of a half-normal falls like an exponential below: the layer is near it far beyond all data."""
    x = np.log(np.abs(np.random.default_rng(0).standard_normal((20_000, 1))))
    layer = unwrap(Tails((1,)).adapted(jnp.asarray(x, jnp.float32)))

    def missing(x):
        """log of the density over that of the layer with a standard normal behind it."""
        z, log_det = (np.asarray(v, np.float64) for v in jax.vmap(layer.inverse_and_log_det)(jnp.asarray(x, float)))
        exact = 0.5 * np.log(2.0 / np.pi) - 0.5 * np.exp(2.0 * x[:, 0]) + x[:, 0]
        return exact - (-0.5 * (z**2).sum(axis=1) - 0.5 * np.log(2.0 * np.pi) + log_det)

    assert missing(x).mean() < 0.03
    assert x.min() > -12.0
    assert abs(missing(np.array([[-12.0]]))) < 3.0
    gaussian = 0.5 * ((-12.0 - x.mean()) / x.std()) ** 2 + np.log(x.std()) + 0.5 * np.log(2.0 * np.pi)
    assert gaussian - 12.0 > 20.0  # without the layer
    assert float(layer.low[0]) > 0.3 and float(layer.high[0]) < 1e-3


def test_coordinates_without_such_tails_stay_as_they_are():
    """Normal, between two modes, constant: standardised, and nothing else."""
    random = np.random.default_rng(0)
    normal, modes = random.normal(3.0, 2.0, 5_000), random.normal(4.0 * random.integers(2, size=5_000))
    x = np.stack([normal, modes, np.full(5_000, 7.0)], axis=1)
    layer = unwrap(Tails((3,), reach=10.0).adapted(jnp.asarray(x, jnp.float32)))
    assert not np.any(layer.low) and not np.any(layer.high)
    np.testing.assert_allclose(layer.location, x.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(layer.scale, [normal.std(), modes.std(), 1.0], rtol=1e-5)


def test_tails_are_found_where_there_are_some():
    random = np.random.default_rng(0)
    normal, angle = random.standard_normal((5_000, 2)), random.uniform(-np.pi, np.pi, 5_000)
    assert not has_tails(normal)
    assert not has_tails(np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.1 * normal)
    for more in (random.gumbel(size=5_000), random.exponential(size=5_000), random.laplace(size=5_000)):
        assert has_tails(np.column_stack([normal, more]))

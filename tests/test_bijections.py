"""Bijections: they invert, know their determinant, have finite gradients, and do what their names say."""

from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.bijections import Reshape
from paramax import unwrap
from small_problems import KEY, TINY, all_finite, cast, noisy, precision

from trade.flows import (
    Adapter,
    AffineCoupling,
    Bounded,
    Convolutional,
    Hierarchy,
    Rescale,
    SplineCoupling,
    Stack,
    Standardise,
    Tails,
    VolumePreservingCoupling,
    Whiten,
)
from trade.flows.adapter import _inverse
from trade.flows.coupling import MAX_LOG_SCALE
from trade.flows.lattice import DownSampled, LatticeCoupling, Spectrum, ZeroMode

INTERVAL, BINS, N = 4.0, 4, 64


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
FRESH["squares"] = lambda: SplineCoupling(KEY, 5, 1, network=TINY, bins=BINS, squares=True, interval=INTERVAL)
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


@cache
def affine(d, cond_dim, volume):
    def layer(key):
        return AffineCoupling(key, d, cond_dim, network=TINY, interval=INTERVAL, volume=volume)

    return Stack(eqx.filter_vmap(layer)(jax.random.split(KEY, 3)))


@cache
def whiten():
    mixing = np.array([[0.5, 0.0, 0.0], [0.5, 1.0, 0.0], [-2.0, 1.0, 3.0]])
    data = np.array([5.0, 0.0, -2.0]) + np.random.default_rng(0).normal(size=(50, 3)) @ mixing.T
    return Whiten((3,)).adapted(jnp.asarray(data, jnp.float32))


FRESH |= {"affine 1": partial(affine, 1, 1, "free"), "affine 5": partial(affine, 5, 1, "free")}
FRESH["affine by mean"] = partial(affine, 5, None, "mean")
for name in ("affine 1", "affine 5", "affine by mean"):
    BIJECTIONS[name] = lambda build=FRESH[name]: noisy(build())
BIJECTIONS["whiten"] = whiten


@cache
def hierarchy():
    t, *rest = np.random.default_rng(0).normal(size=(3, 500))
    data = np.stack([0.1 * t + np.exp(0.5 * t) * rest[0], t, 2.0 - t + np.exp(-0.3 * t) * rest[1]], axis=1)
    with precision(np.float64):  # a matrix and its inverse, each to all digits
        return Hierarchy((3,), (1,)).adapted(jnp.asarray(data))


BIJECTIONS["hierarchy"] = hierarchy


@cache
def tails():
    x = np.random.default_rng(0).gumbel(size=(500, 3)) * np.array([1.0, -0.1, 0.0]) + np.array([0.0, 3.0, 1.0])
    return Tails((3,)).adapted(jnp.asarray(x, jnp.float32))


BIJECTIONS["tails"] = tails


@cache
def adapter(d, *, turning=True):
    return Adapter(KEY, d, 1, 4, turning=turning)


FRESH |= {"adapter 1": partial(adapter, 1), "adapter 5": partial(adapter, 5)}
FRESH["adapter that does not turn"] = partial(adapter, 3, turning=False)
for name in ("adapter 1", "adapter 5", "adapter that does not turn"):
    BIJECTIONS[name] = lambda build=FRESH[name]: noisy(build())
BIJECTIONS["rescale"] = lambda: noisy(Rescale(KEY, (3,), 1, width=4))
BIJECTIONS["constant rescale"] = lambda: noisy(Rescale(KEY, (3,), None, width=1))
BIJECTIONS["shared rescale"] = lambda: noisy(Rescale(KEY, (3,), 1, width=4, shared=True))


@cache
def lattice_coupling(shape, split, *, odd):
    network = Convolutional((4,), (3,))
    return LatticeCoupling(KEY, shape, 1, network=network, bins=BINS, interval=INTERVAL, split=split, odd=odd)


def flat(bijection, scale=0.15):
    return Reshape(noisy(bijection, scale), (int(np.prod(bijection.shape)),))


BIJECTIONS["checkerboard"] = lambda: flat(lattice_coupling((1, 2, 2), "checkerboard", odd=False))
BIJECTIONS["odd checkerboard"] = lambda: flat(lattice_coupling((1, 4), "checkerboard", odd=True))
BIJECTIONS["channels"] = lambda: flat(lattice_coupling((2, 2), "channels", odd=False))
# On a single site all nine weights of a convolution see the same value: less noise makes as much of a bend.
BIJECTIONS["down-sampled"] = lambda: flat(DownSampled(lattice_coupling((4, 1, 1), "channels", odd=False)), 0.1)
BIJECTIONS["zero mode"] = lambda: flat(ZeroMode(KEY, (2, 2), 1, width=4, bins=BINS, interval=INTERVAL))
BIJECTIONS["spectrum"] = lambda: flat(Spectrum(KEY, (2, 4), 1, width=4))


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


@pytest.mark.parametrize("d", [2, 5])
def test_affine_layers_by_mean_keep_volume(d):
    bijection = noisy(affine(d, None, "mean"), scale=0.5)
    for way in audit(bijection, states(d)):
        np.testing.assert_allclose(way.log_det, 0.0, atol=1e-5)
        np.testing.assert_allclose(np.linalg.slogdet(way.by_x[:, :-1])[1], 0.0, atol=1e-4)
    one = jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, bijection.layers)
    log_scale, _ = one._parameters(jnp.ones(d // 2), None)
    assert (float(jnp.abs(log_scale).max()) > 0.1) == (d == 5)  # of one coordinate the mean is all there is


def test_rotation_of_a_block_is_orthogonal():
    one = jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, noisy(volume_preserving(5, "gin")).layers)
    np.testing.assert_allclose(one.rotation() @ one.rotation().T, np.eye(5), atol=1e-5)


def test_rescale_follows_the_condition():
    layer = noisy(Rescale(KEY, (2,), 1, width=4), scale=0.5)
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
    for frozen in (standardise(), whiten()):
        for way in audit(frozen, states(3)):
            assert not any(np.any(leaf) for leaf in jax.tree.leaves(way.by_parameters))


def test_double_precision_builds_double_precision():
    with precision(np.float64):
        layer = SplineCoupling(KEY, 1, None, network=TINY, bins=2)
    assert {leaf.dtype for leaf in jax.tree.leaves(eqx.filter(layer, eqx.is_array))} == {np.dtype(np.float64)}


# Couplings, stacks and permutations


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


def test_tails_have_a_bounded_slope_and_a_shift_that_grows_ever_slower():
    """Outside the interval the map is e^s x + t: s bounded, t as far as a curved density needs, like a logarithm."""
    layer = noisy(coupling(2), scale=30.0)
    x = jnp.asarray(np.random.default_rng(0).choice([-1e6, -1e4, 0.0, 1e4, 1e6], (N, 2)), jnp.float32)
    there = audit(layer, x)[0]
    moved = np.asarray(there.image @ unwrap(layer).permutation)[:, 1]  # the permutation undone
    seen = INTERVAL * jnp.tanh(x[:, :1] / INTERVAL)
    raw = jax.vmap(unwrap(layer).network)(jnp.concatenate([seen, jnp.full((N, 1), 0.3)], axis=1))
    log_scale, shift = np.asarray(raw[:, -2]), np.asarray(raw[:, -1])
    assert np.abs(shift).max() > 10 * INTERVAL
    log_scale = MAX_LOG_SCALE * np.tanh(log_scale / MAX_LOG_SCALE)
    shift = INTERVAL * np.arcsinh(shift / INTERVAL)
    assert np.abs(shift).max() > INTERVAL  # farther than the interval is long
    outside = np.abs(x[:, 1]) > INTERVAL
    expected = np.exp(log_scale) * np.asarray(x[:, 1]) + shift
    np.testing.assert_allclose(moved[outside], expected[outside], rtol=1e-3)
    np.testing.assert_allclose(there.log_det[outside], log_scale[outside], atol=1e-3)
    assert np.all(np.abs(there.log_det[outside]) <= 1.001 * MAX_LOG_SCALE)


# The adapter: where a density is, how wide, how turned, how long its tails


def set_to(layer, **values):
    """The adapter with a network that gives these numbers, whatever the condition."""
    (d,) = layer.shape
    below = d * (d - 1) // 2 if layer.turning else 0
    sizes = {"shift": d, "log_scale": d, "log_tail": d, "tilt": d, "below": below}
    bias = np.concatenate([np.broadcast_to(values.get(name, 0.0), n) for name, n in sizes.items()])
    return eqx.tree_at(lambda m: m.network.layers[-1].bias, layer, jnp.asarray(bias, jnp.float32))


def test_adapter_by_hand():
    """z = sinh(asinh(v) / δ - ε) + sinh ε with v = A diag(1/s) (y - m), A triangular with ones on its diagonal."""
    m, log_s = np.array([0.5, -1.0, 2.0]), np.array([0.3, -0.2, 0.1])
    log_tail, tilt, below = np.array([0.4, 0.0, -0.3]), np.array([0.0, 0.5, -0.2]), np.array([0.7, -0.4, 0.2])
    raw = {"log_tail": np.arctanh(log_tail), "tilt": np.arctanh(tilt)}
    layer = set_to(adapter(3), shift=m, log_scale=log_s, below=below, **raw)
    matrix = np.eye(3)
    matrix[np.tril_indices(3, -1)] = below
    y = np.asarray(states(3), np.float64)
    v = ((y - m) * np.exp(-log_s)) @ matrix.T
    z = np.sinh(np.arcsinh(v) * np.exp(-log_tail) - tilt) + np.sinh(tilt)
    there, _ = audit(layer, states(3))
    np.testing.assert_allclose(there.image, z, rtol=1e-3, atol=1e-3)
    origin = layer.inverse_and_log_det(jnp.asarray(m, jnp.float32), jnp.zeros(1))[0]
    np.testing.assert_allclose(origin, 0.0, atol=1e-5)  # tails turn around the place of the density


@pytest.mark.parametrize(("log_tail", "longer"), [(1.0, True), (-1.0, False)])
def test_adapter_makes_tails_longer_or_shorter(log_tail, longer):
    """For δ > 1 a Gaussian latent becomes a density with longer tails: far out, y grows like a power of z."""
    layer = set_to(adapter(1), log_tail=log_tail)
    z = jnp.array([[1e3], [1e4]])
    y = np.asarray(jax.vmap(lambda v: layer.transform_and_log_det(v, jnp.zeros(1))[0])(z))[:, 0]
    power = np.log(y[1] / y[0]) / np.log(10.0)
    np.testing.assert_allclose(power, np.exp(np.tanh(log_tail)), rtol=0.02)
    assert (power > 1.0) == longer


def test_adapter_follows_the_condition():
    layer, x = noisy(adapter(3), scale=0.5), states(3)
    one, two = audit(layer, x)[0], audit(layer, x, jnp.float32(-0.8))[0]
    assert np.all(np.abs(np.asarray(one.image - two.image)).max(axis=0) > 0.01)
    assert np.abs(np.asarray(one.log_det - two.log_det)).max() > 0.01


@pytest.mark.parametrize("turning", [True, False])
def test_gradients_reach_every_parameter_of_an_adapter(turning):
    """At the start those of the last layer, each of its outputs; then all."""
    for way in audit(adapter(3, turning=turning), states(3)):
        last = way.by_parameters.network.layers[-1]
        assert np.all(np.any(last.bias, axis=(0, 1)))
        assert np.any(last.weight)
    for way in audit(noisy(adapter(3, turning=turning)), states(3)):
        assert all(np.any(leaf) for leaf in jax.tree.leaves(way.by_parameters))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 9, 64])
def test_inverse_of_a_triangular_matrix(d):
    """By products alone, against a solver."""
    matrix = np.eye(d) + np.tril(np.random.default_rng(0).normal(size=(d, d)) / d, -1)
    found = _inverse(jnp.asarray(matrix, jnp.float32))
    np.testing.assert_allclose(found, np.linalg.inv(matrix), atol=1e-4)


# Bounded: the whole space onto a box

BOUNDS = ((0.1, 0.7), (2.0, None), None, (None, -3.0), (-1000.0, 1000.0))


@pytest.fixture(scope="module")
def box():
    return Bounded(BOUNDS)


def inside(n=N):
    """States in the box, some of them close to a wall."""
    random = np.random.default_rng(4)
    part = random.uniform(0.001, 0.999, (n, 5))
    away = np.exp(random.normal(0.0, 2.0, (n, 5)))
    first, last = 0.1 + 0.6 * part[:, 0], 2e3 * part[:, 4] - 1e3
    return np.stack([first, 2.0 + away[:, 1], away[:, 2] - 1, -3.0 - away[:, 3], last], axis=1)


def test_bounded_inverts_and_knows_its_determinant(box, dtype):
    tight, loose = (1e-3, 1e-3) if dtype == np.float32 else (1e-9, 1e-8)
    y = jnp.asarray(inside(), dtype)
    there, _ = audit(box, y)
    assert there.image.dtype == there.log_det.dtype == dtype
    np.testing.assert_allclose(there.log_det, np.linalg.slogdet(there.by_x[:, :-1])[1], atol=loose)
    back = audit(box, there.image)[1]
    np.testing.assert_allclose(back.image, y, rtol=tight, atol=tight)
    np.testing.assert_allclose(back.log_det, -there.log_det, atol=2 * loose)
    np.testing.assert_allclose(back.log_det, np.linalg.slogdet(back.by_x[:, :-1])[1], atol=loose)


def test_bounded_by_hand(box):
    """A logistic function between two walls, an exponential from one, nothing where there is none."""
    z = np.array([0.4, -1.0, 7.0, 0.5, 2.0])
    y, log_det = box.transform_and_log_det(jnp.asarray(z, jnp.float32))
    s = 1.0 / (1.0 + np.exp(-z))
    expected = [0.1 + 0.6 * s[0], 2.0 + np.exp(-1.0), 7.0, -3.0 - np.exp(0.5), -1e3 + 2e3 * s[4]]
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    slopes = [0.6 * s[0] * (1 - s[0]), np.exp(-1.0), 1.0, np.exp(0.5), 2e3 * s[4] * (1 - s[4])]
    np.testing.assert_allclose(log_det, np.log(slopes).sum(), rtol=1e-5)


def test_images_stay_in_the_box_and_everything_is_finite(box, dtype):
    """However far out the latent is, and on the walls themselves; float32 may put a state on a wall, not beyond it."""
    far = np.array([-1e15, -1e4, -100.0, -20.0, -5.0, 0.0, 5.0, 20.0, 60.0, 100.0, 1e4, 1e15])
    z = jnp.asarray(np.resize(np.concatenate([np.tile(far[:, None], 5), 10 * np.asarray(states(5))]), (N, 5)), dtype)
    image = audit(box, z)[1].image
    low = np.array([-np.inf if b is None or b[0] is None else b[0] for b in BOUNDS], dtype)
    high = np.array([np.inf if b is None or b[1] is None else b[1] for b in BOUNDS], dtype)
    assert np.all(image >= low), (np.asarray(image) - low).min(axis=0)
    assert np.all(image <= high), (np.asarray(image) - high).max(axis=0)
    assert all_finite(audit(box, z)[1])
    walls = np.array([[0.1, 2.0, 0.0, -3.0, -1000.0], [0.7, 2.0, 0.0, -3.0, 1000.0]])
    assert all_finite(audit(box, jnp.asarray(np.resize(walls, (N, 5)), dtype)))

"""Flows of a lattice field: symmetric to rounding, scored as drawn, the same weights on every lattice."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import KEY, cast, noisy, precision

from trade import Condition, Model, TradeError
from trade.flows import (
    MLP,
    ContinuousField,
    ContinuousLatticeFlow,
    Convolutional,
    ConvolutionalFlow,
    LatticeFlow,
    adapt_to_data,
    fourier,
    on_lattice,
)
from trade.flows.continuous import _waves
from trade.flows.convolution import Convolution
from trade.flows.fourier import convolved, from_modes, squared_momenta, to_modes
from trade.targets import ScalarField

CONDITION = Condition(0.22, 0.32, boundary=(0.25,))
SMALL = Convolutional((4,), (3,))


def lattice_model(shape=(4, 4), scale=0.15):
    flow = LatticeFlow(shape, CONDITION, blocks=4, bins=4, network=SMALL, width=4, zero_mode_bins=4).build(KEY)
    return Model(noisy(flow, scale=scale), CONDITION)


def continuous_model(shape=(4, 4), scale=0.3):
    recipe = ContinuousLatticeFlow(shape, CONDITION, waves=3, steps=4, network=MLP(4, 1), width=4, zero_mode_bins=4)
    return Model(noisy(recipe.build(KEY), scale=scale), CONDITION)


def paper_model(shape=(4, 4)):
    flow = ConvolutionalFlow(shape, CONDITION, blocks=1, bins=4, network=SMALL).build(KEY)
    return Model(noisy(flow, scale=0.1), CONDITION)


@pytest.fixture(scope="module")
def model():
    return lattice_model()


def fields(n=8, shape=(4, 4)):
    return jnp.asarray(2.0 * np.random.default_rng(0).standard_normal((n, *shape)), jnp.float32)


@pytest.mark.parametrize("shift", [(1, 1), (2, 0), (0, 2), (3, 1)])
def test_lattice_flow_commutes_with_the_sign_and_with_even_translations(model, shift):
    for x in (fields(), 5.0 * fields()):
        expected = np.asarray(model.log_prob(x, 0.3))
        np.testing.assert_allclose(model.log_prob(-x, 0.3), expected, rtol=1e-5)
        np.testing.assert_allclose(model.log_prob(jnp.roll(x, shift, (1, 2)), 0.3), expected, rtol=1e-5)


def test_what_is_scored_depends_on_everything_it_may_depend_on(model):
    x = fields()
    there = np.asarray(model.log_prob(x, 0.3))
    assert np.abs(there - np.asarray(model.log_prob(x, 0.23))).min() > 1e-3
    odd = np.asarray(model.log_prob(jnp.roll(x, 1, 1), 0.3))  # the colours of the checkerboard change roles
    assert np.abs(there - odd).max() > 1e-3


@pytest.fixture(scope="module")
def continuous():
    return continuous_model()


IMAGES = {"sign": lambda x: -x, "translation": lambda x: jnp.roll(x, (1, 2), (1, 2)), "mirror": lambda x: x[:, ::-1]}


@pytest.mark.parametrize("image", IMAGES.values(), ids=IMAGES)
def test_continuous_flow_commutes_with_sign_translations_and_mirrors(continuous, image):
    x = fields()
    there = np.asarray(continuous.log_prob(x, 0.3))
    np.testing.assert_allclose(continuous.log_prob(image(x), 0.3), there, rtol=1e-5)
    assert np.abs(there - np.asarray(continuous.log_prob(x, 0.23))).min() > 1e-3
    # Neighbours along each axis have a kernel of their own: couplings may differ.
    assert np.abs(there - np.asarray(continuous.log_prob(x.swapaxes(1, 2), 0.3))).max() > 1e-3


@pytest.mark.parametrize("build", [lattice_model, continuous_model, paper_model])
def test_flow_scores_as_drawn_and_is_normalised(build):
    """∫ g dx = E_p[g/p] = 1 for a Gaussian g: holds only if samples follow the density that is reported."""
    model = build((2, 2))
    x, log_p = model.sample_and_log_prob(KEY, 40_000, 0.26)
    np.testing.assert_allclose(model.log_prob(x, 0.26), log_p, atol=5e-3)
    log_g = -0.5 * np.sum(np.asarray(x, np.float64) ** 2, axis=(1, 2)) - 2.0 * np.log(2 * np.pi)
    w = np.exp(log_g - np.asarray(log_p, np.float64))
    error = w.std() / np.sqrt(len(w))
    assert error < 0.1
    assert abs(w.mean() - 1.0) < 4 * error


FREE = {
    "couplings": LatticeFlow((4, 4), CONDITION, blocks=2, network=SMALL),
    "continuous": ContinuousLatticeFlow((4, 4), CONDITION, steps=2),
    "continuous, of odd lengths": ContinuousLatticeFlow((3, 5), CONDITION, steps=2),
}


@pytest.mark.parametrize("recipe", FREE.values(), ids=FREE)
def test_fresh_flow_is_a_free_field(recipe):
    """Before training, the variance of mode k is proportional to 1 / (k̂² + 1), and that of the mean is one."""
    flow, shape = recipe.build(KEY), recipe.shape
    sites = np.prod(shape)
    zero = jnp.full(sites, 0.05)  # not on a knot of the spline, where the fields of all other modes have mean zero

    def transform(z):
        return flow.bijection.transform(z.reshape(shape), jnp.zeros(1)).ravel()

    jacobian = jax.jit(jax.jacfwd(transform))(zero)
    variances = np.sort(np.linalg.eigvalsh(jacobian @ jacobian.T))
    momenta = squared_momenta(shape).ravel()
    typical = 1.0 + 2.0 * len(shape)
    expected = np.where(momenta > 0, typical / (momenta + 1.0), sites)
    np.testing.assert_allclose(variances, np.sort(expected), rtol=1e-4)


def test_same_weights_serve_every_even_length():
    flow = adapt_to_data(lattice_model().flow, fields(100))
    larger = on_lattice(flow, (8, 8))
    assert larger.shape == (8, 8)
    back = on_lattice(larger, (4, 4))
    x = fields()
    np.testing.assert_array_equal(Model(back, CONDITION).log_prob(x, 0.3), Model(flow, CONDITION).log_prob(x, 0.3))
    # A field that repeats itself is transformed, by what is local, into one that repeats itself.
    small, large = (f.bijection.bijections[2].bijection for f in (flow, larger))
    image = small.inverse_and_log_det(x[:1], jnp.array([0.3]))
    tiled = large.inverse_and_log_det(jnp.tile(x[:1], (1, 2, 2)), jnp.array([0.3]))
    np.testing.assert_allclose(tiled[0], jnp.tile(image[0], (1, 2, 2)), atol=1e-5)
    np.testing.assert_allclose(tiled[1], 4 * image[1], rtol=1e-5)
    with pytest.raises(TradeError, match="Only a LatticeFlow or"):
        on_lattice(paper_model().flow, (8, 8))


def test_a_continuous_flow_fits_other_lattices_of_any_lengths():
    flow = continuous_model().flow
    x = fields()
    larger = on_lattice(flow, (8, 12))
    small, large = (f.bijection.bijections[2] for f in (flow, larger))
    image = small.inverse_and_log_det(x[0], jnp.array([0.3]))
    tiled = large.inverse_and_log_det(jnp.tile(x[0], (2, 3)), jnp.array([0.3]))
    np.testing.assert_allclose(tiled[0], jnp.tile(image[0], (2, 3)), atol=1e-4)
    assert np.isfinite(Model(on_lattice(flow, (3, 5)), CONDITION).log_prob(fields(shape=(3, 5)), 0.3)).all()


def field_of(steps):
    layer = ContinuousField(KEY, (3, 4), 1, network=MLP(4, 1), waves=3, steps=steps)
    return cast(noisy(layer, scale=0.15), np.float64)


def test_determinant_is_the_integral_of_the_divergence():
    """Against the determinant of the automatic Jacobian, and the way back: errors of fourth order in the step."""
    with precision(np.float64):
        x, c = jnp.asarray(np.random.default_rng(1).normal(size=(3, 4))), jnp.array([0.3])
        errors = []
        for steps in (4, 8):
            layer = field_of(steps)
            y, log_det = layer.transform_and_log_det(x, c)
            jacobian = jax.jacfwd(lambda v, layer=layer: layer.transform(v.reshape(3, 4), c).ravel())(x.ravel())
            back, log_back = layer.inverse_and_log_det(y, c)
            assert np.abs(y - x).max() > 0.05
            determinant = abs(np.linalg.slogdet(np.asarray(jacobian))[1] - log_det)
            errors.append([determinant, np.abs(back - x).max(), abs(log_det + log_back)])
    assert np.all(np.array(errors[1]) < 1e-4)
    assert np.all(np.array(errors[1]) < np.array(errors[0]) / 8)


def test_stiff_weights_gain_nothing_from_errors_of_the_integration():
    """However large the weights, what a step may stretch is bounded, and with it the error of the determinant."""
    x, c = jnp.asarray(np.random.default_rng(1).normal(size=(3, 4)), jnp.float32), jnp.array([0.3])
    layer = noisy(ContinuousField(KEY, (3, 4), 1, network=MLP(4, 1)), scale=100.0)
    y, log_det = layer.transform_and_log_det(x, c)
    jacobian = jax.jacfwd(lambda v: layer.transform(v.reshape(3, 4), c).ravel())(x.ravel())
    assert np.abs(y - x).max() > 0.1
    assert abs(log_det) > 0.1
    np.testing.assert_allclose(np.linalg.slogdet(np.asarray(jacobian))[1], log_det, atol=2e-3)
    np.testing.assert_allclose(layer.inverse_and_log_det(y, c)[0], x, atol=1e-3)


def test_sines_know_their_derivatives_of_all_orders():
    x = jnp.linspace(-7.0, 7.0, 20)

    def plain(x):
        numbers = jnp.arange(1.0, 4.0)[:, None]
        return jnp.sin(numbers * x), jnp.cos(numbers * x)

    def twice(rule):
        def first(v):
            return jax.jvp(rule, (v,), (jnp.ones_like(v),))[1]

        return [rule(x), first(x), jax.jvp(first, (x,), (jnp.ones_like(x),))[1]]

    for ours, theirs in zip(jax.tree.leaves(twice(lambda v: _waves(v, 3))), jax.tree.leaves(twice(plain)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-4)


@pytest.mark.parametrize("shape", [(5,), (4, 6), (3, 4, 2)])
def test_modes_are_orthonormal_and_kernels_convolve(shape, monkeypatch):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, *shape)), jnp.float32)
    momenta = squared_momenta(shape)
    kernels = np.stack([2.0 * len(shape) - momenta, np.ones(shape)])  # the sum of all neighbours, and the site
    neighbours = sum(jnp.roll(x[0], s, axis) for axis in range(len(shape)) for s in (1, -1))
    for dense in (1, 10_000):  # a product along each axis, or one
        monkeypatch.setattr(fourier, "DENSE", dense)
        modes = to_modes(x, shape)
        np.testing.assert_allclose(jnp.sum(modes**2), jnp.sum(x**2), rtol=1e-5)
        np.testing.assert_allclose(from_modes(modes, shape), x, atol=1e-5)
        np.testing.assert_allclose(convolved(x, kernels, shape), neighbours + x[1], atol=1e-5)


def test_convolution_is_circular_and_local():
    layer = noisy(Convolution(KEY, 1, 1, 3, 2))
    jacobian = jax.jacobian(lambda v: layer(v[..., None])[..., 0])(jnp.zeros((5, 5)))
    row, column = np.nonzero(np.asarray(jacobian[0, 0]))
    assert set(zip(row.tolist(), column.tolist(), strict=True)) == {(i, j) for i in (4, 0, 1) for j in (4, 0, 1)}
    np.testing.assert_allclose(jacobian[2, 3], jnp.roll(jacobian[0, 0], (2, 3), (0, 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LatticeFlow((3, 4), CONDITION), "even lengths"),
        (lambda: LatticeFlow((4, 4), CONDITION, blocks=3), "blocks must be an even number"),
        (lambda: ContinuousLatticeFlow((4, 4), CONDITION, hops=0), "hops"),
        (lambda: ContinuousLatticeFlow((4, 4), CONDITION, network=8), "network"),
        (lambda: ConvolutionalFlow((4, 4, 4), CONDITION), "two-dimensional lattice"),
    ],
)
def test_bad_recipes_are_refused(make, message):
    with pytest.raises(TradeError, match=message):
        make()


def test_shared_scale_keeps_the_symmetries():
    flow = adapt_to_data(lattice_model().flow, fields(200) + 1.0)
    layer = flow.bijection.bijections[-1]
    location, scale = (np.unique(np.asarray(a.tree)) for a in (layer.location, layer.scale))
    np.testing.assert_array_equal(location, [0.0])
    assert len(scale) == 1
    data = np.asarray(fields(200) + 1.0)
    np.testing.assert_allclose(scale[0], max(np.sqrt((data**2).mean()), np.abs(data).max() / layer.reach), rtol=1e-5)


def test_gradients_are_finite_far_outside(model):
    target = ScalarField(4)
    assert target.shape == model.shape
    x = jnp.full((4, 4), 1e6)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda f: f.log_prob(x, jnp.array([0.2]))))(model.flow)
    assert all(bool(jnp.isfinite(a).all()) for a in jax.tree.leaves(gradient))

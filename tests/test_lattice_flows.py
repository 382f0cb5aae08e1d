"""Flows of a lattice field: symmetric to rounding, scored as drawn, the same weights on every lattice."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import KEY, noisy

from trade import Condition, Model, TradeError
from trade.flows import Convolutional, ConvolutionalFlow, LatticeFlow, adapt_to_data, on_lattice
from trade.flows.convolution import Convolution
from trade.flows.lattice import squared_momenta
from trade.targets import ScalarField

CONDITION = Condition(0.22, 0.32, boundary=(0.25,))
SMALL = Convolutional((4,), (3,))


def lattice_model(shape=(4, 4), scale=0.15):
    flow = LatticeFlow(shape, CONDITION, blocks=4, bins=4, network=SMALL, width=4, zero_mode_bins=4).build(KEY)
    return Model(noisy(flow, scale=scale), CONDITION)


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


@pytest.mark.parametrize("build", [lattice_model, paper_model])
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


def test_fresh_flow_is_a_free_field():
    """Before training, the variance of mode k is proportional to 1 / (k̂² + 1), and that of the mean is one."""
    flow = LatticeFlow((4, 4), CONDITION, blocks=2, network=SMALL).build(KEY)
    zero = jnp.full(16, 0.05)  # not on a knot of the spline, where the fields of all other modes have mean zero

    def transform(z):
        return flow.bijection.transform(z.reshape(4, 4), jnp.zeros(1)).ravel()

    jacobian = jax.jit(jax.jacfwd(transform))(zero)
    variances = np.sort(np.linalg.eigvalsh(jacobian @ jacobian.T))
    momenta = squared_momenta((4, 4)).ravel()
    expected = np.where(momenta > 0, 5.0 / (momenta + 1.0), 16.0)
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
    with pytest.raises(TradeError, match="Only a LatticeFlow fits other lattices"):
        on_lattice(paper_model().flow, (8, 8))


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

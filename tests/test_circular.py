"""Flows with angles among their coordinates: periodic densities, scored as drawn, and TRADE on a circle."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paramax import unwrap
from small_problems import KEY, TINY, cast, noisy, precision

from trade import Adam, Condition, Model, Target, Trade, TradeError, fit, load
from trade.flows import CircularCoupling, CircularFlow, PowerScaled, SteerableCoupling, adapt_to_data
from trade.flows.circular import moebius
from trade.objectives import ForwardKL, Gradient

CONDITION = Condition(0.5, 1.0, boundary=(1.0,))
INTERVAL, ANGULAR = 4.0, jnp.array([False, True, True, False, True])


fast = partial(eqx.filter_jit, compiler_options={"xla_backend_optimization_level": 0})


def modulo(x, angular, circle):
    """Zero where two states are the same point."""
    return np.where(angular, x - circle * np.round(x / circle), x)


OPTIONS = {"network": TINY, "bins": 4, "interval": INTERVAL}
COUPLINGS = {
    "circular": lambda: CircularCoupling(KEY, ANGULAR, 1, **OPTIONS),
    "moebius": lambda: CircularCoupling(KEY, ANGULAR, 1, moebius=True, squares=True, **OPTIONS),
    "steerable": lambda: SteerableCoupling(KEY, ANGULAR, CONDITION, PowerScaled(1.0), **OPTIONS),
}


def test_moebius_is_the_map_of_complex_numbers():
    """The image of every angle, its slope, and the way back; the identity for a vector of zero."""
    rng = np.random.default_rng(0)
    angle, w = rng.uniform(-np.pi, np.pi, 50), rng.uniform(-0.69, 0.69, (50, 2))
    z, v = np.exp(1j * angle), w[:, 0] + 1j * w[:, 1]
    with precision(np.float64):
        image, log_slope = moebius(jnp.asarray(angle), jnp.asarray(w))
        home, back = moebius(image, jnp.asarray(-w))
        same, none = moebius(jnp.asarray(angle), jnp.zeros((50, 2)))
    np.testing.assert_allclose(np.exp(1j * np.asarray(image)), (z + v) / (1.0 + v.conj() * z), atol=1e-12)
    np.testing.assert_allclose(log_slope, np.log((1.0 - np.abs(v) ** 2) / np.abs(1.0 + v.conj() * z) ** 2), atol=1e-12)
    np.testing.assert_allclose(modulo(np.asarray(home) - angle, True, 2.0 * np.pi), 0.0, atol=1e-12)
    np.testing.assert_allclose(back, -log_slope, atol=1e-12)
    np.testing.assert_allclose(same, angle, atol=1e-12)
    np.testing.assert_allclose(none, 0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", COUPLINGS)
def test_coupling_inverts_on_the_circle_and_knows_its_determinant(kind, dtype):
    tight, loose = (1e-4, 2e-3) if dtype == np.float32 else (1e-9, 1e-8)
    layer = noisy(COUPLINGS[kind](), scale=0.3)
    with precision(dtype):
        layer = cast(layer, dtype)
        x = jnp.asarray(np.random.default_rng(0).uniform(-1.5 * INTERVAL, 1.5 * INTERVAL, (40, 5)), dtype)
        c = jnp.array([0.3], dtype)
        passes = {}
        for name in ("inverse", "transform"):

            def apply(v, name=name):
                return getattr(layer, f"{name}_and_log_det")(v, c)

            passes[name] = fast(jax.vmap(lambda v, f=apply: (*f(v), jax.jacfwd(lambda w: f(w)[0])(v))))
        # On the side of the latent the coordinates come in another order.
        orders = {"inverse": ANGULAR, "transform": np.asarray(layer.permutation.unwrap() @ ANGULAR > 0)}
        for there, back in (("inverse", "transform"), ("transform", "inverse")):
            image, log_det, jacobian = passes[there](x)
            home, other, slopes = passes[back](image)
            missed = np.abs(modulo(np.asarray(home - x), orders[there], 2 * INTERVAL))
            # An image is rounded, and the way back stretches that.
            assert np.all(missed <= tight * np.maximum(np.abs(slopes).sum(axis=-1) / 2, 1.0)), missed.max()
            np.testing.assert_allclose(log_det, -other, atol=loose)
            np.testing.assert_allclose(log_det, np.linalg.slogdet(np.asarray(jacobian))[1], atol=loose)
            assert np.abs(log_det).max() > 0.1


def test_an_angle_is_turned_by_less_than_half_a_circle_and_not_scaled():
    """Whatever the network says; the others are scaled, and shifted ever slower."""
    layer, angular = COUPLINGS["circular"](), np.asarray(ANGULAR[2:])
    shifts, found = np.array([-1e6, -30.0, -3.0, 0.0, 3.0, 30.0, 1e6]), []
    for shift in shifts:
        log_scale, placed = layer._placed(jnp.full(3, 0.5), jnp.full(3, shift))
        assert np.all(np.abs(np.asarray(placed)[angular]) <= INTERVAL)
        np.testing.assert_array_equal(np.asarray(log_scale)[angular], 0.0)
        assert np.all(np.asarray(log_scale)[~angular] > 0.4)
        np.testing.assert_allclose(np.asarray(placed)[~angular], INTERVAL * np.arcsinh(shift / INTERVAL), rtol=1e-5)
        found.append(np.asarray(placed)[angular])
    assert np.all(np.diff(found, axis=0) >= 0.0)
    assert np.all(np.abs(found[1]) > 0.8 * INTERVAL)


MODELS = {
    "conditional": {},
    "moebius": {"moebius": True},
    "latent alone": {"conditional": False},
    "steerable": {"steerable": 1.0},
    "rescale": {"rescale": 4},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """An angle and a length of 3 ± 0.2."""
    options = {"blocks": 3, "bins": 4, "network": TINY, "latent": PowerScaled(1.0), **MODELS[request.param]}
    recipe = CircularFlow((2,), CONDITION, angles=(0,), **options)
    data = np.stack([np.linspace(-3, 3, 100), 3 + 0.2 * np.random.default_rng(0).standard_normal(100)], axis=1)
    return Model(adapt_to_data(noisy(recipe.build(KEY), scale=0.3), jnp.asarray(data, jnp.float32)), CONDITION)


@pytest.mark.parametrize("c", [0.5, 1.0])
def test_samples_are_scored_as_drawn_and_the_density_is_normalised(model, c):
    x, log_p = (np.asarray(a, np.float64) for a in model.sample_and_log_prob(KEY, 40_000, c))
    assert np.abs(x[:, 0]).max() <= np.pi + 1e-5
    np.testing.assert_allclose(model.log_prob(x, c), log_p, atol=5e-3)
    phi = np.linspace(-np.pi, np.pi, 201)[:-1]
    b = np.linspace(x[:, 1].min() - 0.5, x[:, 1].max() + 0.5, 200)
    points = np.stack(np.meshgrid(phi, b, indexing="ij"), -1).reshape(-1, 2)
    mass = np.exp(np.asarray(model.log_prob(points, c), np.float64)) * (phi[1] - phi[0]) * (b[1] - b[0])
    np.testing.assert_allclose(mass.sum(), 1.0, atol=5e-3)
    for function in (lambda v: np.cos(v[:, 0]), lambda v: np.sin(v[:, 0]), lambda v: v[:, 1] * np.cos(v[:, 0])):
        error = function(x).std() / np.sqrt(len(x))
        assert abs(function(x).mean() - mass @ function(points) / mass.sum()) < 5 * error + 1e-3


def test_angles_alone():
    """No coordinate on the line: uniform as built, normalised on the torus, and scored as drawn."""
    recipe = CircularFlow((2,), CONDITION, angles=(0, 1), blocks=3, bins=4, network=TINY)
    x = np.random.default_rng(0).uniform(-3, 3, (40_000, 2))
    np.testing.assert_allclose(Model(recipe.build(KEY), CONDITION).log_prob(x, 0.7), -2 * np.log(2 * np.pi), atol=1e-4)
    model = Model(noisy(recipe.build(KEY), scale=0.3), CONDITION)
    x, log_p = (np.asarray(a, np.float64) for a in model.sample_and_log_prob(KEY, 40_000, 0.5))
    np.testing.assert_allclose(model.log_prob(x, 0.5), log_p, atol=5e-3)
    phi = np.linspace(-np.pi, np.pi, 201)[:-1]
    points = np.stack(np.meshgrid(phi, phi, indexing="ij"), -1).reshape(-1, 2)
    mass = np.exp(np.asarray(model.log_prob(points, 0.5), np.float64)) * (phi[1] - phi[0]) ** 2
    np.testing.assert_allclose(mass.sum(), 1.0, atol=5e-3)
    for function in (lambda v: np.cos(v[:, 0]), lambda v: np.sin(v[:, 1]), lambda v: np.cos(v[:, 0] - v[:, 1])):
        error = function(x).std() / np.sqrt(len(x))
        assert abs(function(x).mean() - mass @ function(points) / mass.sum()) < 5 * error + 1e-3
    assert np.abs(log_p + 2 * np.log(2 * np.pi)).max() > 0.1  # and not uniform any more


def test_one_angle_alone():
    """Uniform as built; then a periodic density on the circle, which sums to one and is scored as drawn."""
    recipe = CircularFlow((1,), CONDITION, angles=(0,), blocks=2, bins=4, network=TINY)
    phi = np.linspace(-np.pi, np.pi, 401)[:-1, None]
    np.testing.assert_allclose(Model(recipe.build(KEY), CONDITION).log_prob(phi, 0.7), -np.log(2 * np.pi), atol=1e-4)
    model = Model(noisy(recipe.build(KEY), scale=0.3), CONDITION)
    log_p = np.asarray(model.log_prob(phi, 0.7), np.float64)
    np.testing.assert_allclose(np.exp(log_p).sum() * 2 * np.pi / 400, 1.0, atol=2e-3)
    assert np.ptp(log_p) > 0.1
    np.testing.assert_allclose(model.log_prob(phi + 2 * np.pi, 0.7), log_p, atol=2e-3)
    x, drawn = model.sample_and_log_prob(KEY, 400, 0.7)
    np.testing.assert_allclose(model.log_prob(x, 0.7), drawn, atol=2e-3)


def test_density_is_periodic_in_angles_alone(model):
    x = model.sample(KEY, 200, 0.7)
    turned = np.asarray(model.log_prob(x + jnp.array([2 * np.pi, 0.0]), 0.7))
    np.testing.assert_allclose(turned, model.log_prob(x, 0.7), atol=5e-3)
    assert np.abs(turned - np.asarray(model.log_prob(x + jnp.array([0.0, 0.3]), 0.7))).max() > 0.1


def test_fresh_flow_is_uniform_on_the_circle_and_its_latent_beside():
    recipe = CircularFlow((3,), CONDITION, angles=(1,), blocks=2, bins=4, network=TINY, latent=PowerScaled(1.0))
    fresh = Model(recipe.build(KEY), CONDITION)
    x = np.random.default_rng(0).uniform(-3, 3, (50, 3))
    normal = -0.5 * (x[:, [0, 2]] ** 2).sum(axis=1) / 0.5 - np.log(2 * np.pi * 0.5)
    np.testing.assert_allclose(fresh.log_prob(x, 0.5), normal - np.log(2 * np.pi), atol=1e-4)


def test_a_steered_coupling_at_its_reference_is_one_that_sees_no_condition():
    """In its angles; the others are scaled and shifted, keep volume, and do not depend on the condition."""
    steered = noisy(COUPLINGS["steerable"](), scale=0.3)
    plain = noisy(CircularCoupling(KEY, ANGULAR, None, **OPTIONS), scale=0.3)
    x = jnp.asarray(np.random.default_rng(0).uniform(-INTERVAL, INTERVAL, (20, 5)), jnp.float32)
    active, angular = np.arange(5) >= 2, np.asarray(ANGULAR)
    permutation = np.asarray(plain.permutation.unwrap())

    def image(layer, c):
        inverse = fast(jax.vmap(lambda v: layer.inverse_and_log_det(v, CONDITION.chart(c)[None])))
        return np.asarray(inverse(x)[0]) @ permutation  # which undoes it

    reference, colder = image(steered, 1.0), image(steered, 0.5)
    np.testing.assert_allclose(reference[:, angular], image(plain, 1.0)[:, angular], atol=1e-4)
    np.testing.assert_allclose(reference[:, ~angular], colder[:, ~angular], atol=1e-5)
    assert np.abs(reference - colder)[:, active & angular].max() > 0.05
    log_scale = steered._parameters(x[0, :2], jnp.zeros(1))[1]
    np.testing.assert_allclose(log_scale[~angular[2:]].sum(), 0.0, atol=1e-6)


def test_a_steered_flow_at_its_reference_is_the_flow_that_leaves_c_to_its_latent():
    """One coupling, whose active half are angles."""
    angles, dim = (0, 2, 3), 4

    def log_prob(c, **options):
        recipe = CircularFlow((dim,), CONDITION, angles, blocks=1, **OPTIONS, latent=PowerScaled(1.0), **options)
        flow = recipe.build(KEY)
        coupling = noisy(flow.bijection.bijections[0], scale=0.5)
        return Model(eqx.tree_at(lambda f: f.bijection.bijections[0], flow, coupling), CONDITION).log_prob(x, c)

    x = np.random.default_rng(0).uniform(-3, 3, (50, dim))
    plain, steered = {"conditional": False}, {"steerable": 1.0}
    np.testing.assert_allclose(log_prob(1.0, **steered), log_prob(1.0, **plain), atol=1e-4)
    assert np.abs(log_prob(0.5, **steered) - log_prob(0.5, **plain)).max() > 0.1


@pytest.mark.parametrize("T", [0.5, 0.75])
def test_a_steered_angle_has_a_power_of_its_density(T):
    """One coupling on a uniform latent: p(φ|T) is p(φ|1)^(1/T), normalised, but for the inside of the bins."""
    options = {**OPTIONS, "bins": 16}
    layer = noisy(SteerableCoupling(KEY, jnp.array([True]), CONDITION, PowerScaled(1.0), **options), scale=0.6)
    phi = jnp.linspace(-INTERVAL, INTERVAL, 801)[:-1, None]

    def log_density(c):
        inverse = fast(jax.vmap(lambda v: layer.inverse_and_log_det(v, CONDITION.chart(c)[None])))
        log_p = np.asarray(inverse(phi)[1], np.float64)
        np.testing.assert_allclose(np.mean(np.exp(log_p)), 1.0, atol=3e-3)
        return normalised(log_p)

    def normalised(log_p):
        return log_p - np.log(np.mean(np.exp(log_p)))

    exact = normalised(log_density(1.0) / T)
    steered, unsteered = (np.mean(np.exp(exact) * (exact - log_density(c))) for c in (T, 1.0))
    print("KL", steered, unsteered)
    assert unsteered > 0.03
    assert steered < 0.05 * unsteered


def energy(x, T):
    return -(-2.0 * jnp.cos(x[0]) + 2.0 * (x[1] - 0.5 * jnp.sin(x[0])) ** 2) / T


def test_trade_on_a_circle_and_its_file(tmp_path):
    """Data at T = 1, exact density at T = 0.5: the angle sharpens, and the length follows it."""
    target = Target(energy, (2,), CONDITION)
    random = np.random.default_rng(0)
    phi = random.vonmises(0.0, 2.0, 10_000)
    data = np.stack([phi, 0.5 * np.sin(phi) + 0.5 * random.standard_normal(10_000)], axis=1)
    recipe = CircularFlow((2,), CONDITION, angles=(0,), blocks=4, bins=6, network=TINY, latent=PowerScaled(1.0))
    objective = Trade(Gradient(conditions_per_step=8, points_per_condition=32))
    options = {"objective": objective, "steps": 500, "optimiser": Adam(1e-2), "progress": False}
    run = fit(target, {1.0: data}, flow=recipe, out=tmp_path / "run", **options)
    axis, b = np.linspace(-np.pi, np.pi, 161)[:-1], np.linspace(-3, 3, 161)
    points = np.stack(np.meshgrid(axis, b, indexing="ij"), -1).reshape(-1, 2)
    log_q = np.asarray(jax.vmap(lambda v: energy(v, 0.5))(jnp.asarray(points)), np.float64)
    q = np.exp(log_q - log_q.max())
    q /= q.sum() * (axis[1] - axis[0]) * (b[1] - b[0])
    kl = np.sum(q * (np.log(q) - np.asarray(run.model.log_prob(points, 0.5), np.float64)) / q.sum())
    print("KL", kl)
    assert kl < 0.03
    again = load(tmp_path / "run", target=target).model
    np.testing.assert_array_equal(again.log_prob(points[:100], 0.5), run.model.log_prob(points[:100], 0.5))


@pytest.mark.parametrize(
    ("shape", "angles", "message"),
    [
        ((2,), (2,), "coordinates from 0 to 1"),
        ((2,), (0, 0), "different coordinates"),
        ((2,), (), "at least one angle"),
        ((2, 2), (0,), "of a vector"),
    ],
)
def test_bad_angles_are_refused(shape, angles, message):
    with pytest.raises(TradeError, match=message):
        CircularFlow(shape, CONDITION, angles=angles)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steerable": 1.0}, "needs a PowerScaled latent"),
        ({"steerable": 1.0, "latent": PowerScaled(1.0, 0.5)}, "needs a PowerScaled latent of this reference"),
        ({"rescale": 4, "angles": (0, 1)}, "coordinates that are no angles, but all are"),
        ({"steerable": 1.0, "latent": PowerScaled(1.0), "angles": (0, 1)}, "coordinates that are no angles"),
        ({"rescale": 4, "conditional": False}, "rescale follows the condition"),
        ({"moebius": True, "steerable": 1.0, "latent": PowerScaled(1.0)}, "moebius has no power"),
        ({"rescale": 4, "steerable": 1.0, "latent": PowerScaled(1.0)}, "rescale follows the condition"),
    ],
)
def test_settings_that_do_not_apply_are_refused(options, message):
    with pytest.raises(TradeError, match=message):
        CircularFlow(**{"shape": (2,), "condition": CONDITION, "angles": (0,), **options})


def test_several_seeds_train_as_one_program():
    """Their permutations differ, and with them which coordinates of a layer are angles."""
    target = Target(lambda x, T: (jnp.cos(x[0]) + jnp.cos(x[2]) - x[1] ** 2) / T, (3,), CONDITION)
    recipe = CircularFlow((3,), CONDITION, (0, 2), blocks=3, network=TINY)
    x = jax.random.uniform(KEY, (64, 3), minval=-1.0)
    run = fit(target, {1.0: x}, flow=recipe, objective=ForwardKL(16), steps=2, seeds=3, progress=False)
    orders = [np.asarray(model.flow.bijection.bijections[0].layers.permutation.tree) for model in run.final]
    assert not all(np.array_equal(orders[0], order) for order in orders)
    assert all(np.isfinite(np.asarray(model.log_prob(x, 0.7))).all() for model in run.final)


def test_an_angle_that_is_cut_is_learned_across_the_edge_of_its_range():
    """Data at ±π: the layer takes them for one peak, and turns of 2π make no difference."""
    random = np.random.default_rng(0)
    peak = np.mod(3.1 + 0.2 * random.standard_normal(500) + np.pi, 2 * np.pi) - np.pi
    data = np.stack([random.uniform(-np.pi, np.pi, 500), peak, 1.0 + 0.1 * random.standard_normal(500)], axis=1)
    recipe = CircularFlow((3,), CONDITION, (0,), cut=(1,), blocks=2, network=TINY, latent=PowerScaled(1.0))
    flow = adapt_to_data(recipe.build(KEY), jnp.asarray(data, jnp.float32))
    layer = unwrap(flow.bijection.bijections[-1])
    assert abs(np.mod(float(layer.location[1]), 2 * np.pi) - 3.1) < 0.05
    assert float(layer.scale[1]) < 0.4  # and not that of the whole range
    model = Model(flow, CONDITION)
    turns = np.array([2 * np.pi, -4 * np.pi, 0.0])
    np.testing.assert_allclose(model.log_prob(data + turns, 0.7), model.log_prob(data, 0.7), atol=1e-3)
    x, log_p = model.sample_and_log_prob(KEY, 200, 0.5)
    np.testing.assert_allclose(model.log_prob(x, 0.5), log_p, atol=1e-3)
    with pytest.raises(TradeError, match="cut must be coordinates that are no angles"):
        CircularFlow((3,), CONDITION, (0,), cut=(0,))

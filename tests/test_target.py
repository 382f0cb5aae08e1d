import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import KEY, gaussian_family, precision

from trade import Condition, Target, TradeError
from trade.abstract_target import AbstractTarget
from trade.data import check_condition_dependence, check_periods, with_knee
from trade.targets import Augmented, boltzmann, power

CONDITION = Condition(0.5, 2.0, scale="log", boundary=(1.0,))
X = jnp.array([[0.3, -1.0], [1.2, 0.4], [-2.0, 0.1]])


def quartic(x, c):
    return -jnp.sum(x**4) / c


def quartic_target(**options):
    return Target(quartic, (2,), CONDITION, **options)


def test_score_is_the_derivative_in_the_chart():
    # log q = -E/c, c = exp(slope u): ∂_u log q = slope E/c
    x, c = X[0], 0.8
    expected = CONDITION.slope * float(jnp.sum(x**4)) / c
    np.testing.assert_allclose(quartic_target().score(x, CONDITION.chart(c)), expected, rtol=1e-5)


def test_score_on_a_linear_scale():
    condition = Condition(0.5, 2.5, scale="linear")
    target = Target(quartic, (2,), condition)
    expected = 1.0 * float(jnp.sum(X[0] ** 4)) / 0.8**2
    np.testing.assert_allclose(target.score(X[0], condition.chart(0.8)), expected, rtol=1e-5)


def test_score_agrees_with_finite_differences():
    with precision(np.float64):
        target = Target(lambda x, c: jnp.sum(jnp.sin(c * x) - x**2 * jnp.sqrt(c)), (2,), CONDITION)
        x, u, h = jnp.array([0.3, -1.0]), jnp.array(0.4), 1e-5
        difference = (target.log_density_at(x, u + h) - target.log_density_at(x, u - h)) / (2 * h)
        np.testing.assert_allclose(target.score(x, u), difference, rtol=1e-8)


class QuadraticForm(AbstractTarget):
    """A target of a user's own class, with a product of matrices."""

    shape = (3,)
    condition = Condition(0.5, 1.0)

    def log_density(self, x, c, y=None):
        return -c * (x @ jnp.eye(3) @ x)


@pytest.mark.parametrize(
    "target", [QuadraticForm(), Target(lambda x, c: -c * (x @ jnp.eye(3) @ x), (3,), Condition(0.5, 1.0))]
)
def test_products_in_a_density_are_exact_on_every_device(target):
    """A GPU rounds the factors of a product to ten bits by default, in a density and in its derivatives too."""
    x, c = jnp.ones(3), jnp.float32(0.7)
    for function in (target.log_density, target.score, jax.grad(target.log_density)):
        products = [e for e in jax.make_jaxpr(lambda v, t, f=function: f(v, t))(x, c).eqns if "dot" in str(e.primitive)]
        assert products
        assert all(e.params["precision"] == (jax.lax.Precision.HIGHEST,) * 2 for e in products)


def test_given_derivative_replaces_the_automatic_one():
    target = quartic_target(condition_derivative=lambda x, c: 7.0 * c)
    u = CONDITION.chart(1.5)
    np.testing.assert_allclose(target.score(X[0], u), 7.0 * 1.5 * CONDITION.slope * 1.5, rtol=1e-5)


def test_observation_reaches_density_and_derivative():
    target = Target(lambda x, c, y: -jnp.sum((x - y.sum()) ** 2) / c, (2,), CONDITION, observation_shape=(3,))
    y = jnp.array([0.1, 0.2, 0.3])
    distance = float(jnp.sum((X[0] - 0.6) ** 2))
    assert target.observation_shape == (3,)
    np.testing.assert_allclose(target.log_density(X[0], jnp.array(0.8), y), -distance / 0.8, rtol=1e-5)
    np.testing.assert_allclose(target.condition_derivative(X[0], jnp.array(0.8), y), distance / 0.64, rtol=1e-5)


def test_given_derivative_takes_the_observation():
    target = Target(
        lambda x, c, y: c * jnp.sum(x) * y[0],
        (2,),
        CONDITION,
        observation_shape=(1,),
        condition_derivative=lambda x, c, y: 3.0 * y[0],
    )
    np.testing.assert_allclose(target.condition_derivative(X[0], jnp.array(1.0), jnp.array([2.0])), 6.0)


def test_boltzmann_rebuilds_a_temperature():
    # p0 = exp(-E/T0 - log Z0): the rebuilt density differs from -E/T by a constant in x only.
    target, c, c0 = quartic_target(rebuild=boltzmann), 0.7, 1.3
    log_p0 = jax.vmap(lambda x: quartic(x, c0) - 4.2)(X)
    rebuilt = jax.vmap(lambda lp, x: target.rebuild(lp, x, c, c0))(log_p0, X)
    true = jax.vmap(lambda x: target.log_density(x, c))(X)
    np.testing.assert_allclose(rebuilt - true, np.full(3, -4.2 * 1.3 / 0.7), rtol=1e-4)


def test_power_rebuilds_a_power():
    target, c, c0 = Target(lambda x, c: c * quartic(x, 1.0), (2,), CONDITION, rebuild=power), 0.7, 1.3
    log_p0 = jax.vmap(lambda x: target.log_density(x, c0) - 4.2)(X)
    rebuilt = jax.vmap(lambda lp, x: target.rebuild(lp, x, c, c0))(log_p0, X)
    true = jax.vmap(lambda x: target.log_density(x, c))(X)
    np.testing.assert_allclose(rebuilt - true, np.full(3, -4.2 * 0.7 / 1.3), rtol=1e-4)


def test_what_was_not_given_is_refused():
    target = quartic_target()
    with pytest.raises(TradeError, match="energy-free rule"):
        target.rebuild(jnp.array(0.0), X[0], jnp.array(1.0), jnp.array(1.0))
    with pytest.raises(TradeError, match="no exact sampler"):
        target.sample(KEY, 3, 1.0)
    with pytest.raises(TradeError, match="log partition"):
        target.log_partition(1.0)


def test_sampler_and_log_partition_refuse_conditions_outside():
    target = gaussian_family()
    assert target.sample(KEY, 3, 1.0).shape == (3, 1)
    np.testing.assert_allclose(target.log_partition(2.0), 0.5 * np.log(4 * np.pi))
    with pytest.raises(TradeError, match="outside the range"):
        target.sample(KEY, 3, 3.0)
    with pytest.raises(TradeError, match="outside the range"):
        target.log_partition(3.0)


def test_symmetry_is_the_identity_unless_given():
    assert not quartic_target().has_symmetry
    np.testing.assert_array_equal(quartic_target().symmetry(KEY, X[0]), X[0])
    flipped = quartic_target(symmetry=lambda key, x: -x)
    assert flipped.has_symmetry
    np.testing.assert_array_equal(flipped.symmetry(KEY, X[0]), -X[0])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, c: -(x**2) / c, r"scalar for one state of shape \(2,\), got \(2,\)"),
        (lambda x, c: -jnp.sum(x**2, keepdims=True) / c, r"scalar .* got \(1,\)"),
        (lambda x, c: (jnp.sum(x), c), "scalar .* got tuple"),
        (lambda x, c: jnp.sum(x).astype(int), "real float that can be differentiated, got int32"),
        (lambda x, c: jnp.sum(x) + 1j, "real float that can be differentiated, got complex64"),
        (lambda x, c: 1 / 0, "could not be evaluated .* division by zero"),
        (lambda x: -jnp.sum(x), "could not be evaluated"),
        (lambda x, c: jnp.sum(x[3:4] @ jnp.ones(7)), "could not be evaluated"),
        ("energy", "log_density must be a function"),
    ],
    ids=["vector", "kept axis", "tuple", "integer", "complex", "raises", "one argument", "bad shapes", "no function"],
)
def test_bad_log_density_is_refused(function, message):
    with pytest.raises(TradeError, match=message):
        Target(function, (2,), CONDITION)


@pytest.mark.parametrize("shape", [(0,), (2, -1), [2], "ab", 1.5])
def test_bad_shape_is_refused(shape):
    with pytest.raises(TradeError, match="shape must be a tuple of positive integers"):
        Target(quartic, shape, CONDITION)


def test_bad_condition_and_observation_shape_are_refused():
    with pytest.raises(TradeError, match=r"condition must be a trade\.Condition"):
        Target(quartic, (2,), (0.5, 2.0))
    with pytest.raises(TradeError, match="observation_shape must be"):
        quartic_target(observation_shape=(0,))


def test_shape_may_be_an_integer():
    assert Target(quartic, 3, CONDITION).shape == (3,)


def test_dependence_that_changes_with_x_is_accepted():
    check_condition_dependence(quartic_target(), X)
    observed = Target(lambda x, c, y: c * y[0], (2,), CONDITION, observation_shape=(1,))
    check_condition_dependence(observed, X, jnp.array([[1.0], [2.0], [3.0]]))


@pytest.mark.parametrize(
    "function",
    [lambda x, c: -jnp.sum(x**2), lambda x, c: -jnp.sum(x**2) + 3.0 * c, lambda x, c: 1.0],
    ids=["none", "constant", "python number"],
)
def test_dependence_that_is_constant_is_refused(function):
    with pytest.raises(TradeError, match="dependence of log_density on c is constant"):
        check_condition_dependence(Target(function, (2,), CONDITION), X)


def test_derivative_that_is_never_finite_is_refused():
    target = Target(lambda x, c: jnp.sum(x**2) * jnp.sqrt(c - c), (2,), CONDITION)
    with pytest.raises(TradeError, match="not finite at any data point"):
        check_condition_dependence(target, X)


def test_derivative_that_is_sometimes_not_finite_is_refused():
    target = Target(lambda x, c: -jnp.log(x[0]) * c, (2,), CONDITION)  # NaN where x0 < 0: one state of three
    with pytest.raises(TradeError, match="not finite at 5 of 15 checked data points"):
        check_condition_dependence(target, X)


def test_derivative_that_raises_is_refused():
    def fails(x, c):
        raise RuntimeError("no derivative today")

    with pytest.raises(TradeError, match="no derivative today"):
        check_condition_dependence(quartic_target(condition_derivative=fails), X)


# What a target says of its states


def test_what_is_said_of_states_is_kept_in_one_form():
    target = Target(quartic, (3,), CONDITION, angles=[2, 0], bounds=[(0, 1), (None, None), (2.0, None)])
    assert target.angles == (0, 2)
    assert target.bounds == ((0, 1), None, (2.0, None))
    assert Target(quartic, (3,), CONDITION, angles=range(2)).angles == (0, 1)
    assert not target.lattice
    assert Target(quartic, (4, 4), CONDITION, lattice=True).lattice
    assert (quartic_target().angles, quartic_target().bounds) == ((), ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"angles": (2,)}, "angles must be coordinates from 0 to 1"),
        ({"angles": (-1,)}, "angles must be coordinates from 0 to 1"),
        ({"angles": (0, 0)}, "different coordinates of a vector"),
        ({"angles": (0.5,)}, "angles must be coordinates"),
        ({"angles": "phi"}, "angles must be coordinates"),
        ({"bounds": ((0, 1),)}, "bounds must be one"),
        ({"bounds": (0, 1)}, r"bounds\[0\] must be \(low, high\)"),
        ({"bounds": ((1, 0), None)}, r"bounds\[0\] must have low < high"),
        ({"bounds": (None, (0.0, float("nan")))}, r"bounds\[1\] must have low < high"),
    ],
)
def test_what_cannot_be_true_of_states_is_refused(options, message):
    with pytest.raises(TradeError, match=message):
        quartic_target(**options)


def test_angles_and_bounds_are_of_vectors():
    for options in ({"angles": (0,)}, {"bounds": ((0, 1), None)}):
        with pytest.raises(TradeError, match="vector"):
            Target(quartic, (2, 2), CONDITION, **options)


# The chart of a power

STATES = jax.random.normal(KEY, (2000, 2))


def power_target(low=0.0, high=50.0, boundary=(0.0,), scale="linear", **options):
    """log q = -|x|²/2 - c |x|²/2: from N(0, 1) to a narrower one."""

    def log_density(x, c):
        return -0.5 * (1.0 + c) * jnp.sum(x**2)

    return Target(log_density, (2,), Condition(low, high, scale=scale, boundary=boundary), **options)


def test_a_power_gets_a_chart_that_is_logarithmic_beyond_its_knee():
    """b = -|x|²/2 has deviation 1 in two dimensions, so that the knee is (2/2)^(1/2)/1."""
    target = power_target()
    charted = with_knee(target, target.condition, STATES)
    assert charted.knee == pytest.approx(1.0, rel=0.1)
    assert (charted.low, charted.high, charted.boundary) == (0.0, 50.0, (0.0,))


@pytest.mark.parametrize(
    "target",
    [
        power_target(1.0, 50.0, (1.0,), "log"),
        power_target(0.0, 50.0, (10.0,)),
        power_target(0.0, 50.0, (0.0, 50.0)),
        power_target(0.0, 1.5),
        Target(lambda x, c: -jnp.sum(x**2) / (1.0 + c), (2,), Condition(0.0, 50.0, scale="linear", boundary=(0.0,))),
    ],
    ids=["a logarithmic scale", "a boundary inside", "two boundaries", "a short range", "no power"],
)
def test_other_conditions_keep_their_chart(target):
    assert with_knee(target, target.condition, STATES) is target.condition


@pytest.mark.parametrize("target", [power_target(), Augmented(gaussian_family(1), 1)], ids=["own", "of another"])
def test_a_target_under_another_chart_is_the_same_density(target):
    """Also one whose condition is that of a target inside it."""
    old = target.condition
    condition = Condition(old.low, old.high, scale="linear", boundary=old.boundary[:1], knee=0.7)
    other = target.with_condition(condition)
    assert other.condition == condition
    assert target.condition is old
    c = 0.5 * (old.low + old.high)
    for one, two in zip(X[:, : target.shape[0]], X[:, : target.shape[0]], strict=True):
        u, v = old.chart(c), condition.chart(c)
        np.testing.assert_allclose(other.log_density_at(one, v), target.log_density_at(two, u), rtol=1e-4)


def test_angles_are_coordinates_in_which_the_density_is_periodic():
    """A Gaussian of an angle, cut off at ±π, has states that a flow on the circle would never find again."""
    x = jnp.array([[0.3, -1.0], [1.2, 0.4], [-2.0, 0.1]])

    def spins(x, c):
        return (jnp.cos(x[0]) + jnp.cos(2.0 * x[1] - x[0])) / c

    def springs(x, c):
        return (jnp.cos(x[0]) - 0.5 * x[1] ** 2) / c

    check_periods(Target(spins, (2,), CONDITION, angles=(0, 1)), x)
    check_periods(Target(springs, (2,), CONDITION, angles=(0,)), x)
    stiff = Target(lambda x, c: -1e6 * (1.0 - jnp.cos(x[0])) / c - x[1] ** 2, (2,), CONDITION, angles=(0,))
    check_periods(stiff, jnp.array([[1e-3, 0.0], [2e-3, 1.0]]))
    with pytest.raises(TradeError, match=r"angles names coordinate 1, but .* not periodic in it: turned once round"):
        check_periods(Target(springs, (2,), CONDITION, angles=(0, 1)), x)

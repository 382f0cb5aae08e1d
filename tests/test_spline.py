from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.bijections import RationalQuadraticSpline
from small_problems import all_finite, precision

from trade.flows import spline

INTERVAL, BINS, N = 3.0, 5, 101  # every call has N points: one compilation each
DTYPES = [np.float32, np.float64]
forward = jax.jit(partial(spline.forward, interval=INTERVAL))
inverse = jax.jit(partial(spline.inverse, interval=INTERVAL))


def random_raw(scale=1.5):
    """The same raw parameters for every point."""
    raw = scale * np.random.default_rng(0).standard_normal(3 * BINS - 1)
    return jnp.tile(jnp.asarray(raw, float), (N, 1))


def spread():
    """Points evenly over the interval and somewhat beyond."""
    return jnp.linspace(-1.2 * INTERVAL, 1.2 * INTERVAL, N)


def padded(points):
    """N points, of which the given ones are the first."""
    return jnp.zeros(N).at[: len(points)].set(jnp.asarray(points))


def constrained(raw):
    """Widths, heights and slopes of one spline as Durkan et al. define them, in NumPy."""
    raw = np.asarray(raw, np.float64)

    def sizes(logits):
        share = np.exp(logits - logits.max())
        return 2 * INTERVAL * (spline.MIN_BIN + (1 - BINS * spline.MIN_BIN) * share / share.sum())

    shift = np.log(np.expm1(1 - spline.MIN_SLOPE))
    slopes = spline.MIN_SLOPE + np.logaddexp(0.0, raw[2 * BINS :] + shift)
    return sizes(raw[:BINS]), sizes(raw[BINS : 2 * BINS]), np.concatenate([[1.0], slopes, [1.0]])


def knots(raw):
    """Positions (x, y) and slopes of all knots of one spline."""
    widths, heights, slopes = constrained(raw)
    x, y = (np.append(np.cumsum(v) - v - INTERVAL, INTERVAL).astype(raw.dtype) for v in (widths, heights))
    return x, y, slopes


@eqx.filter_jit
def gradients(function, x, raw):
    """Derivatives of the value and of the log slope with respect to x and raw."""
    _, pull = jax.vjp(function, x, raw)
    one, zero = jnp.ones_like(x), jnp.zeros_like(x)
    dx, draw = jax.vmap(pull)((jnp.stack([one, zero]), jnp.stack([zero, one])))
    return (dx[0], draw[0]), (dx[1], draw[1])


@pytest.fixture(params=DTYPES, ids=["float32", "float64"])
def dtype(request):
    with precision(request.param):
        yield request.param


def test_raw_zeros_give_the_identity(dtype):
    x = spread()
    for function in (forward, inverse):
        y, log_slope = function(x, jnp.zeros((N, 3 * BINS - 1)))
        np.testing.assert_allclose(y, x, atol=1e-5 if dtype == np.float32 else 1e-13)
        np.testing.assert_allclose(log_slope, 0.0, atol=1e-5 if dtype == np.float32 else 1e-13)


def test_inverse_undoes_forward(dtype):
    x = spread()
    raw = random_raw()
    assert x.dtype == dtype
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    y, up = forward(x, raw)
    back, down = inverse(y, raw)
    assert float(jnp.abs(y - x).max()) > 0.3  # it does something
    np.testing.assert_allclose(back, x, atol=tolerance)
    np.testing.assert_allclose(down, -up, atol=50 * tolerance)
    np.testing.assert_allclose(forward(inverse(x, raw)[0], raw)[0], x, atol=tolerance)


def test_log_slope_is_the_logarithm_of_the_derivative(dtype):
    x = spread()
    raw = random_raw()
    for function in (forward, inverse):
        slope = gradients(function, x, raw)[0][0]  # elementwise, so the gradient of the sum is the slope
        tolerance = 1e-3 if dtype == np.float32 else 1e-10
        np.testing.assert_allclose(function(x, raw)[1], np.log(slope), atol=tolerance)


def test_spline_passes_through_its_knots_with_their_slopes():
    with precision(np.float64):
        raw = random_raw()
        x, y, slopes = knots(raw[0])
        value, log_slope = (v[: BINS + 1] for v in forward(padded(x), raw))
        np.testing.assert_allclose(value, y, atol=1e-12)
        np.testing.assert_allclose(np.exp(log_slope), slopes, rtol=1e-9)
        back, log_slope = (v[: BINS + 1] for v in inverse(padded(y), raw))
        np.testing.assert_allclose(back, x, atol=1e-12)
        np.testing.assert_allclose(np.exp(-log_slope), slopes, rtol=1e-9)


def test_spline_agrees_with_flowjax_between_the_knots():
    with precision(np.float64):
        raw = random_raw()
        x, y, slopes = (jnp.asarray(v) for v in knots(raw[0]))
        peer = RationalQuadraticSpline(knots=BINS, interval=INTERVAL)
        peer = eqx.tree_at(lambda s: (s.x_pos, s.y_pos, s.derivatives), peer, (x, y, slopes))
        points = spread()
        expected, expected_log_slope = jax.vmap(peer.transform_and_log_det)(points)
        value, log_slope = forward(points, raw)
        np.testing.assert_allclose(value, expected, atol=1e-12)
        np.testing.assert_allclose(log_slope, expected_log_slope, atol=1e-11)


def test_spline_is_increasing():
    assert bool(jnp.all(jnp.diff(forward(spread(), random_raw())[0]) > 0))


def test_value_and_slope_are_continuous_across_the_edge():
    with precision(np.float64):
        for edge in (-INTERVAL, INTERVAL):
            x = edge * (1.0 + 1e-9 * jnp.linspace(-1.0, 1.0, N))
            for function in (forward, inverse):
                y, log_slope = function(x, random_raw())
                np.testing.assert_allclose(y, x, atol=1e-6)
                np.testing.assert_allclose(log_slope, 0.0, atol=1e-6)


@pytest.mark.parametrize("scale", [1.5, 100.0], ids=["mild", "extreme"])
def test_gradients_are_finite_everywhere(dtype, scale):
    raw = random_raw(scale)
    x, y, _ = knots(raw[0])
    inner = np.nextafter(dtype(INTERVAL), dtype(0))
    special = [0.0, -INTERVAL, INTERVAL, -inner, inner, 1e4, -1e4, 1e30, -1e30]
    points = padded(np.concatenate([special, x, y, np.nextafter(x, dtype(0)), np.nextafter(y, dtype(0))]))
    assert points.dtype == dtype
    for function in (forward, inverse):
        assert all_finite(function(points, raw))
        assert all_finite(gradients(function, points, raw))


def test_far_outside_nothing_depends_on_the_parameters():
    x = jnp.array([-1e4, 1e4, INTERVAL])[jnp.arange(N) % 3]
    (dx, draw), (ddx, ddraw) = gradients(forward, x, random_raw())
    np.testing.assert_array_equal(dx, 1.0)
    for zero in (draw, ddx, ddraw):
        np.testing.assert_array_equal(zero, 0.0)


def test_parameter_gradients_agree_with_finite_differences():
    with precision(np.float64):
        rng = np.random.default_rng(1)
        raw, direction = random_raw(), jnp.asarray(rng.standard_normal((N, 3 * BINS - 1)))
        x, h = jnp.linspace(-0.99 * INTERVAL, 0.98 * INTERVAL, N), 1e-6
        for function in (forward, inverse):
            for output in (0, 1):
                above, below = (function(x, raw + step * direction)[output] for step in (h, -h))
                slope = jnp.sum(gradients(function, x, raw)[output][1] * direction, axis=1)
                np.testing.assert_allclose(slope, (above - below) / (2 * h), atol=1e-5, rtol=1e-5)


def test_derivatives_by_hand_are_those_of_the_formula():
    """Durkan et al. Eqs. 4 and 5 as printed, differentiated automatically, to second order."""

    def printed(values):
        t, s, d0, d1 = values
        denominator = s + (d1 + d0 - 2 * s) * t * (1 - t)
        fraction = (s * t**2 + d0 * t * (1 - t)) / denominator
        slope = s**2 * (d1 * t**2 + 2 * s * t * (1 - t) + d0 * (1 - t) ** 2) / denominator**2
        return jnp.stack([fraction, jnp.log(slope)])

    def ours(values):
        return jnp.stack(spline._rational_quadratic(*values))

    with precision(np.float64):
        values = jnp.asarray(np.random.default_rng(1).uniform(0.05, [0.95, 3.0, 3.0, 3.0], (20, 4)))
        for of in (lambda f: f, jax.jacrev, lambda f: jax.jacrev(jax.jacfwd(f))):
            expected, found = (jax.jit(jax.vmap(of(f)))(values) for f in (printed, ours))
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


# On a circle


def circular():
    """Raw parameters of N points, every other one on a circle."""
    raw = np.random.default_rng(3).standard_normal((N, 3 * BINS))
    return jnp.asarray(raw, float), jnp.arange(N) % 2 == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_circular_splines_are_bijections_beside_others(dtype):
    with precision(dtype):
        raw, periodic = circular()
        x = spread()
        y, log_slope = spline.forward(x, raw, INTERVAL, periodic)
        back, log_inverse = spline.inverse(y, raw, INTERVAL, periodic)
        expected = np.where(periodic, spline.wrapped(x, INTERVAL), x)
        # The two ends of the interval are one point of the circle.
        apart = np.abs(np.asarray(back) - expected)
        apart = np.minimum(apart, np.where(periodic, 2 * INTERVAL - apart, np.inf))
        np.testing.assert_allclose(apart, 0.0, atol=1e-4 if dtype == np.float32 else 1e-9)
        np.testing.assert_allclose(log_slope, -log_inverse, atol=2e-3 if dtype == np.float32 else 1e-8)
        by_autodiff = jax.grad(lambda v: spline.forward(v, raw, INTERVAL, periodic)[0].sum())(x)
        np.testing.assert_allclose(log_slope, jnp.log(by_autodiff), atol=1e-3 if dtype == np.float32 else 1e-9)


def test_a_circular_spline_is_smooth_across_its_ends_and_periodic():
    with precision(np.float64):
        raw, _ = circular()
        raw, everywhere = jnp.tile(raw[0], (N, 1)), jnp.ones(N, bool)
        ends = padded([INTERVAL - 1e-9, -INTERVAL + 1e-9, INTERVAL + 1e-9, 3 * INTERVAL - 1e-9])
        y, log_slope = spline.forward(ends, raw, INTERVAL, everywhere)
        np.testing.assert_allclose(log_slope[:4], log_slope[0], atol=1e-6)
        assert abs(log_slope[0]) > 0.1  # learned, and not the one of linear tails
        np.testing.assert_allclose(y[:2], [INTERVAL, -INTERVAL], atol=1e-7)
        np.testing.assert_allclose(y[1], y[2], atol=1e-7)
        np.testing.assert_allclose(
            spline.forward(spread() + 2 * INTERVAL, raw, INTERVAL, everywhere)[0],
            spline.forward(spread(), raw, INTERVAL, everywhere)[0],
            atol=1e-9,
        )


def test_the_others_beside_circular_ones_have_linear_tails():
    """Without its last slope, a spline that is not on a circle is the one that it always was."""
    raw, _ = circular()
    never = jnp.zeros(N, bool)
    for function in (spline.forward, spline.inverse):
        beside = function(spread(), raw, INTERVAL, never)
        alone = function(spread(), raw[:, :-1], INTERVAL)
        for one, two in zip(beside, alone, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_steered_spline_has_powers_of_its_slopes_at_knots_and_over_bins():
    raw, power = random_raw(0.7), 1.7
    x, _, slopes = knots(raw[0])
    widths, heights, _ = constrained(raw[0])
    heights = widths * (heights / widths) ** power
    constant = heights.sum() / (2 * INTERVAL)
    y, log_slope = (v[1:BINS] for v in forward(padded(x), raw, power=power))
    np.testing.assert_allclose(y, np.cumsum(heights)[:-1] / constant - INTERVAL, atol=1e-4)
    np.testing.assert_allclose(np.exp(log_slope), slopes[1:-1] ** power / constant, rtol=1e-3)


def test_a_spline_steered_by_one_is_itself():
    raw = random_raw(0.7)
    for function in (forward, inverse):
        for steered, plain in zip(function(spread(), raw, power=1.0), function(spread(), raw), strict=True):
            np.testing.assert_allclose(steered, plain, atol=1e-4)

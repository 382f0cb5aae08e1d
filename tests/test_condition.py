import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import precision

from trade import Condition, TradeError

LOG = Condition(0.2, 7.0, scale="log", boundary=(1.0,))
LINEAR = Condition(-3.0, 5.0, scale="linear", boundary=(0.5,))
POWER = Condition(0.0, 1.0, scale="linear", boundary=(0.0,), knee=0.01)


@pytest.mark.parametrize("condition", [LOG, LINEAR, POWER], ids=["log", "linear", "power"])
def test_unchart_inverts_chart(condition):
    with precision(np.float64):
        c = np.linspace(condition.low, condition.high, 41)
        u = condition.chart(c)
        np.testing.assert_allclose(condition.unchart(u), c, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(u[jnp.array([0, -1])], [-1.0, 1.0], atol=1e-12)
        assert bool(jnp.all(jnp.diff(u) > 0))


def test_log_chart_is_even_in_ratios_and_linear_chart_in_differences():
    np.testing.assert_allclose(LOG.chart(np.sqrt(0.2 * 7.0)), 0.0, atol=1e-6)
    np.testing.assert_allclose(LOG.chart(jnp.array([0.4, 0.8])) @ jnp.array([-1, 1]), np.log(2) / LOG.slope, rtol=1e-5)
    np.testing.assert_allclose(LINEAR.chart(jnp.array([1.0, 3.0])), [0.0, 0.5], atol=1e-7)
    assert LINEAR.slope == 4.0
    np.testing.assert_allclose(LOG.slope, 0.5 * np.log(35.0))


@pytest.mark.parametrize("ends", [(300.0, 600.0), (1e-9, 1e-8), (1000.0, 1100.0), (1e-3, 1e6)])
def test_log_chart_keeps_single_precision(ends):
    condition = Condition(*ends)
    np.testing.assert_allclose(condition.chart(jnp.array(ends)), [-1.0, 1.0], atol=3e-7 / min(condition.slope, 1.0))
    np.testing.assert_allclose(condition.unchart(jnp.array([-1.0, 1.0])), ends, rtol=1e-6)


def test_chart_of_a_power_is_linear_up_to_its_knee_and_logarithmic_beyond():
    """asinh(c/knee), with -1 at 0 and 1 at 1; also from the upper end down."""
    width = np.arcsinh(100.0)
    c = jnp.array([0.0, 1e-4, 2e-4, 0.1, 0.2, 1.0])
    np.testing.assert_allclose(POWER.chart(c), 2.0 * np.arcsinh(np.asarray(c) / 0.01) / width - 1.0, atol=1e-6)
    u = np.asarray(POWER.chart(c), np.float64)
    np.testing.assert_allclose((u[2] - u[1]) / (u[1] - u[0]), 1.0, rtol=1e-2)
    np.testing.assert_allclose(u[4] - u[3], 2.0 * np.log(2.0) / width, rtol=1e-2)
    np.testing.assert_allclose(POWER.boundary_u, [-1.0])
    down = Condition(0.0, 1.0, scale="linear", boundary=(1.0,), knee=0.01)
    np.testing.assert_allclose(down.chart(1.0 - c), -POWER.chart(c), atol=1e-5)
    np.testing.assert_allclose(down.boundary_u, [1.0])


@pytest.mark.parametrize("condition", [LOG, LINEAR, POWER], ids=["log", "linear", "power"])
def test_grid_is_even_in_the_chart_and_ends_exactly(condition):
    grid = condition.grid(9)
    assert (grid[0], grid[-1]) == (condition.low, condition.high)
    np.testing.assert_allclose(np.diff(condition.chart(grid)), 0.25, atol=1e-5)


def test_grid_with_boundary_holds_boundaries_and_has_the_size_asked_for():
    condition = Condition(0.2, 7.0, boundary=(3.1, 0.9))
    grid = condition.grid_with_boundary(12)
    assert len(grid) == 12
    assert np.all(np.diff(grid) > 0)
    assert (grid[0], grid[-1]) == (-1.0, 1.0)
    for wall in np.asarray(condition.boundary_chart()):
        assert np.min(np.abs(grid - wall)) < 1e-6


def test_grid_without_a_boundary_is_even():
    np.testing.assert_allclose(Condition(0.2, 7.0).grid_with_boundary(5), np.linspace(-1, 1, 5))


@pytest.mark.parametrize("ends", [(300.0, 600.0), (19.032725898923, 25.457627660656), (1000.0, 1100.0)])
def test_grid_with_boundary_never_holds_a_point_twice(ends):
    for wall in ends:
        grid = Condition(*ends, boundary=(wall,)).grid_with_boundary(10)
        assert len(grid) == 9  # the wall took the place of an end
        assert np.diff(grid).min() > 0.9 * np.diff(grid).max()


def test_nearest_boundary_is_nearest_in_the_chart():
    condition = Condition(1.0, 100.0, boundary=(100.0, 1.0))
    assert condition.boundary == (1.0, 100.0)
    nearest = condition.nearest_boundary(condition.chart(jnp.array([9.0, 11.0])))  # 50 would be halfway in c
    assert nearest.tolist() == [0, 1]


def test_boundary_may_be_one_number_and_can_be_replaced():
    condition = Condition(1.0, 4.0, boundary=2)
    assert condition.boundary == (2.0,)
    assert condition.with_boundary([4.0, 1.0]) == Condition(1.0, 4.0, boundary=(1.0, 4.0))


def test_no_boundary_is_refused_where_one_is_needed():
    with pytest.raises(TradeError, match="no boundary value"):
        Condition(1.0, 2.0).boundary_chart()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low": 2.0, "high": 1.0}, "low < high"),
        ({"low": 1.0, "high": 1.0}, "low < high"),
        ({"low": 0.0, "high": 1.0}, "low > 0"),
        ({"low": None, "high": 1.0}, "low must be a finite number"),
        ({"low": "cold", "high": 1.0}, "low must be a finite number"),
        ({"low": 1.0, "high": float("nan")}, "high must be a finite number"),
        ({"low": 1.0, "high": float("inf")}, "high must be a finite number"),
        ({"low": 1.0, "high": 2.0, "scale": "cubic"}, "scale"),
        ({"low": 1.0, "high": 2.0, "boundary": (3.0,)}, "boundary value 3 lies outside"),
        ({"low": 1.0, "high": 2.0, "boundary": (float("nan"),)}, "boundary value must be a number, got nan"),
        ({"low": 1.0, "high": 2.0, "boundary": (None,)}, "boundary value must be a number"),
        ({"low": 1.0, "high": 2.0, "boundary": "warm"}, "boundary value must be a number"),
        ({"low": 1.0, "high": 2.0, "boundary": 1.0, "knee": 0.1}, "knee must be positive, on a linear scale"),
        ({"low": 1.0, "high": 2.0, "scale": "linear", "knee": 0.1}, "with one boundary value"),
        ({"low": 1.0, "high": 2.0, "scale": "linear", "boundary": 1.0, "knee": 0.0}, "knee must be positive"),
    ],
)
def test_bad_input_is_refused_by_name(arguments, message):
    with pytest.raises(TradeError, match=message):
        Condition(**arguments)


@pytest.mark.parametrize("c", [0.19, 7.1, float("nan"), "hot", None])
def test_check_refuses_what_is_not_in_the_range(c):
    with pytest.raises(TradeError, match="temperature"):
        LOG.check(c, "temperature")


def test_check_forgives_rounding_but_never_leaves_the_logarithm():
    assert LOG.check(np.float32(7.0)) == 7.0
    assert LOG.check(0.2 - 1e-9) == 0.2 - 1e-9
    with pytest.raises(TradeError, match="outside"):
        Condition(1e-9, 1.0).check(0.0)

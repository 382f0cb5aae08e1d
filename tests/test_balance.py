"""The weight λ of the second term (Eq. 20, Appendix B.1)."""

import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import clock_at

from trade import TradeError
from trade.objectives import Fixed, GradientNorm, Ramp, StepBack


def norms_of(boundary, gradient):
    return lambda: (jnp.asarray(boundary), jnp.asarray(gradient))


def never():
    raise AssertionError("a balance that needs no norms must not have them computed")


def test_fixed_is_constant_and_computes_no_norms():
    balance = Fixed(0.3)
    state = balance.update(balance.init(), clock_at(0), never, {})
    for step in (0, 7):
        np.testing.assert_allclose(balance.weight(state, clock_at(step)), 0.3)


@pytest.mark.parametrize(("step", "expected"), [(50, 0.0), (51, 0.02), (75, 0.5), (150, 2.0), (1000, 2.0)])
def test_ramp_counts_from_the_start_of_the_term(step, expected):
    """λ grows from 0 to 2 over a fifth of the 500 steps from step 50 on."""
    balance = Ramp(Fixed(2.0), over=0.2)
    state = balance.update(balance.init(), clock_at(0), never, {})
    np.testing.assert_allclose(balance.weight(state, clock_at(step, 550, start=50)), expected, rtol=1e-6)


def test_ramp_carries_the_state_of_what_it_wraps():
    inner = GradientNorm(ema=0.0)
    state = Ramp(inner, over=1.0).update(inner.init(), clock_at(0), norms_of(1.0, 4.0), {})
    np.testing.assert_allclose(Ramp(inner, over=1.0).weight(state, clock_at(50)), 0.5 * 0.25, rtol=1e-6)
    with pytest.raises(TradeError, match="Ramp balance must be a balance"):
        Ramp(2.0)


@pytest.mark.parametrize("over", [0.0, -1.0, 1.5])
def test_ramp_refuses_what_is_no_fraction(over):
    with pytest.raises(TradeError, match="Ramp over must be a fraction"):
        Ramp(over=over)


def test_before_any_measurement_the_weight_is_the_factor():
    balance = GradientNorm(factor=0.7)
    np.testing.assert_allclose(balance.weight(balance.init(), clock_at()), 0.7)


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_gradient_norm_without_smoothing_makes_both_gradients_equally_long(factor):
    """Appendix B.1: λ = λ̂_grad/λ̂_boundary = ‖g_b‖/‖g_g‖, so that λ ‖g_g‖ = ‖g_b‖."""
    balance = GradientNorm(factor=factor, every=1, ema=0.0)
    state = balance.init()
    for step, (boundary, gradient) in enumerate([(3.0, 4.0), (0.2, 50.0), (8.0, 0.1)]):
        state = balance.update(state, clock_at(step), norms_of(boundary, gradient), {})
        weight = float(balance.weight(state, clock_at(step)))
        np.testing.assert_allclose(weight * gradient, factor * boundary, rtol=1e-5)


def test_gradient_norm_averages_both_estimates():
    """Appendix B.1 by hand: λ̂ = (sum of norms)/own norm, averaged exponentially; the first one counts in full."""
    balance = GradientNorm(every=1, ema=0.9)
    state = balance.update(balance.init(), clock_at(0), norms_of(1.0, 4.0), {})
    np.testing.assert_allclose([state.boundary, state.gradient], [5.0, 1.25], rtol=1e-6)
    np.testing.assert_allclose(balance.weight(state, clock_at(0)), 0.25, rtol=1e-6)
    state = balance.update(state, clock_at(1), norms_of(3.0, 1.0), {})
    boundary, gradient = 0.9 * 5.0 + 0.1 * 4.0 / 3.0, 0.9 * 1.25 + 0.1 * 4.0
    np.testing.assert_allclose([state.boundary, state.gradient], [boundary, gradient], rtol=1e-6)
    np.testing.assert_allclose(balance.weight(state, clock_at(1)), gradient / boundary, rtol=1e-6)


def test_gradient_norm_measures_every_so_many_steps_from_the_start_of_the_term():
    balance = GradientNorm(every=10, ema=0.0)
    state = balance.init()
    changed = []
    for step in range(7, 29):
        new = balance.update(state, clock_at(step, 100, start=7), norms_of(1.0 + step, 1.0), {})
        if float(new.gradient) != float(state.gradient):
            changed.append(step)
        state = new
    assert changed == [7, 17, 27]


def test_a_vanishing_gradient_keeps_the_weight_finite():
    balance = GradientNorm(every=1, ema=0.0)
    state = balance.update(balance.init(), clock_at(0), norms_of(1.0, 0.0), {})
    assert np.isfinite(float(balance.weight(state, clock_at(0))))


# --- StepBack: data step back as far as the weights at the boundary allow


@pytest.mark.parametrize(
    ("ess", "step", "expected"),
    [
        (0.5, 1000, 1.0),  # not good enough yet
        (0.2, 1000, 1.0),
        (0.9, 1000, 16.0),  # good, and time enough
        (1.0, 1000, 16.0),
        (0.7, 1000, 4.0),  # half way: the root
        (1.0, 100, 1.0),  # at its start
        (1.0, 200, 4.0),  # half of the time it takes
        (1.0, 300, 16.0),
        (0.7, 200, 2.0),
    ],
)
def test_step_back_is_geometric_in_ess_and_time(ess, step, expected):
    """From 1 to 16 for an ESS from 0.5 to 0.9, and over a quarter of the 800 steps from step 100 on."""
    balance, clock = StepBack(16.0, over=0.25), clock_at(step, 900, start=100)
    state = balance.update(balance.init(), clock, never, {"boundary_ess": jnp.asarray(ess)})
    np.testing.assert_allclose(balance.weight(state, clock), expected, rtol=1e-5)


def test_step_back_follows_the_newest_ess_both_ways():
    balance, state, found = StepBack(10.0), StepBack(10.0).init(), []
    for ess in (0.3, 0.95, 0.3):
        state = balance.update(state, clock_at(100), never, {"boundary_ess": jnp.asarray(ess), "reached": 1.0})
        found.append(float(balance.weight(state, clock_at(100))))
    np.testing.assert_allclose(found, [1.0, 10.0, 1.0], rtol=1e-5)


def test_step_back_without_a_note_stays_at_one():
    """A propagation term that says nothing of the boundary, such as the reverse KL."""
    balance = StepBack()
    state = balance.update(balance.init(), clock_at(100), never, {})
    assert float(balance.weight(state, clock_at(100))) == 1.0


def test_ramp_passes_the_notes_on():
    balance = Ramp(StepBack(16.0, over=0.5), over=1.0)
    state = balance.update(balance.init(), clock_at(50), never, {"boundary_ess": jnp.asarray(1.0)})
    np.testing.assert_allclose(balance.weight(state, clock_at(50)), 0.5 * 16.0, rtol=1e-5)


@pytest.mark.parametrize("options", [{"most": 0.5}, {"over": 0.0}, {"over": 1.5}, {"low": 0.9}, {"high": 1.1}])
def test_step_back_refuses_bad_options(options):
    with pytest.raises(TradeError, match="StepBack"):
        StepBack(**options)

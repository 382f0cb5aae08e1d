"""Adam under a one-cycle schedule (Appendices B.6 and C.3)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trade import Adam, TradeError

PARAMS = {"a": jnp.array([1.0, -2.0]), "b": jnp.array([3.0])}


def test_one_cycle_rises_peaks_and_falls():
    """From peak/25 to the peak at 30 % of the run and down to peak/250000, without a jump."""
    schedule = Adam(learning_rate=2e-3).schedule(1000)
    rates = np.array([float(schedule(step)) for step in range(0, 1001, 10)])
    np.testing.assert_allclose(rates[[0, 30, 100]], [2e-3 / 25, 2e-3, 2e-3 / 25e4], rtol=1e-3)
    assert np.all(np.diff(rates[:31]) > 0)
    assert np.all(np.diff(rates[30:]) < 0)
    np.testing.assert_allclose(rates[15], 0.5 * (2e-3 + 2e-3 / 25), rtol=1e-3)  # cosine: half way at half time


def test_warmup_moves_the_peak():
    schedule = Adam(learning_rate=1.0, warmup=0.1).schedule(100)
    rates = [float(schedule(step)) for step in range(100)]
    assert int(np.argmax(rates)) == 10


def test_two_stages_are_two_cycles():
    """Appendix B.6: a second cycle for the second phase, with the learning rate multiplied by γ_lr."""
    schedule = Adam(learning_rate=1e-2, stages=(0.4,), stage_factor=0.1).schedule(1000)
    first, second = 1e-2, 1e-3
    expected = {
        0: first / 25,
        120: first,
        399: first / 25e4,
        400: second / 25,
        580: second,
        1000: second / 25e4,
    }
    for step, rate in expected.items():
        np.testing.assert_allclose(float(schedule(step)), rate, rtol=1e-2, atol=5e-7, err_msg=str(step))


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_short_runs_have_finite_positive_rates(steps):
    for adam in (Adam(), Adam(stages=(0.5,)), Adam(warmup=0.0)):
        rates = [float(adam.schedule(steps)(step)) for step in range(steps)]
        assert np.all(np.isfinite(rates))
        assert min(rates) > 0.0


def updates_of(adam, gradients, params=PARAMS):
    transformation = adam.transformation(100)
    state, updates = transformation.init(params), []
    for g in gradients:
        update, state = transformation.update(g, state, params)
        updates.append(update)
    return updates


def test_gradients_are_clipped_by_their_global_norm():
    """A gradient of length 50 with clip 2 acts like the same one of length 2; a short one is left alone."""
    long, short = (
        {"a": jnp.array([30.0, 0.0]), "b": jnp.array([40.0])},
        {"a": jnp.array([0.3, 0.1]), "b": jnp.array([0.4])},
    )
    clipped = jax.tree.map(lambda g: g / 25.0, long)
    got = updates_of(Adam(clip=2.0), [long, short])
    same = updates_of(Adam(clip=1e9), [clipped, short])
    other = updates_of(Adam(clip=1e9), [long, short])
    for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)
    assert abs(float(got[1]["b"][0]) / float(other[1]["b"][0]) - 1.0) > 0.02


def test_first_step_has_the_length_of_the_first_rate():
    """Adam's first update is -rate · sign(g)."""
    update = updates_of(Adam(learning_rate=0.5), [{"a": jnp.array([0.3, -0.1]), "b": jnp.array([0.2])}])[0]
    np.testing.assert_allclose(update["a"], [-0.02, 0.02], rtol=1e-4)
    np.testing.assert_allclose(update["b"], [-0.02], rtol=1e-4)


def test_weight_decay_is_decoupled():
    """With no gradient at all, every parameter shrinks by rate · decay."""
    zero = jax.tree.map(jnp.zeros_like, PARAMS)
    update = updates_of(Adam(learning_rate=0.5, weight_decay=0.1), [zero])[0]
    for name, value in PARAMS.items():
        np.testing.assert_allclose(update[name], -0.02 * 0.1 * value, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"clip": 0.0}, "clip"),
    ],
)
def test_adam_refuses_bad_options(options, name):
    with pytest.raises(TradeError, match=name):
        Adam(**options)

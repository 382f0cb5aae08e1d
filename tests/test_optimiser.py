"""Adam: a rate that the run lets fall, and the one-cycle schedule of the paper (Appendices B.6 and C.3)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from trade import Adam, TradeError
from trade.training.optimiser import Cooling, OneCycle, clip_to_usual

PARAMS = {"a": jnp.array([1.0, -2.0]), "b": jnp.array([3.0])}


def rates_of(adam, steps, at=None, begin=None, end=None):
    """The rate at steps of a budget, at all of them by default."""
    cooling = Cooling(jnp.asarray(steps if begin is None else begin), jnp.asarray(steps if end is None else end))
    at = np.arange(steps) if at is None else np.asarray(at)
    return np.asarray(jax.vmap(lambda step: adam.rate(step, steps, cooling))(jnp.asarray(at)), np.float64)


# --- A steady rate, and a fall when the run decides so


def test_rate_rises_stays_and_falls_as_a_cosine():
    """Up to the peak over the first twentieth, then the peak, then half a cosine from where cooling begins."""
    rates = rates_of(Adam(learning_rate=2e-3), 1000, begin=600, end=1000)
    np.testing.assert_allclose(rates[:50], 2e-3 * np.arange(1, 51) / 50, rtol=1e-5)
    np.testing.assert_allclose(rates[50:601], 2e-3, rtol=1e-6)
    np.testing.assert_allclose(rates[600:], 1e-3 * (1.0 + np.cos(np.pi * np.arange(400) / 400)), rtol=1e-3, atol=1e-10)
    assert 0.0 < rates[-1] < 1e-4 * 2e-3


def test_cooling_may_begin_and_end_at_any_step():
    """A run that ends at step 420 has the rate of one whose budget that was, from where it began to fall."""
    rates = rates_of(Adam(learning_rate=1.0), 1000, [299, 300, 360, 419, 420, 500], begin=300, end=420)
    expected = [1.0, 1.0, 0.5, 0.5 * (1.0 + np.cos(np.pi * 119 / 120)), 0.0, 0.0]
    np.testing.assert_allclose(rates, expected, atol=1e-6)


def test_warmup_is_a_part_of_the_budget_and_not_of_the_run():
    """Where the run ends is not known while the rate rises."""
    early, late = (rates_of(Adam(warmup=0.2), 100, range(20), begin=30, end=e) for e in (40, 100))
    np.testing.assert_array_equal(early, late)
    np.testing.assert_allclose(late[-1], 2e-3, rtol=1e-6)


# --- The one-cycle schedule


def test_one_cycle_rises_peaks_and_falls():
    """From peak/25 to the peak at 30 % of the run and down to peak/250000, without a jump."""
    rates = rates_of(OneCycle(learning_rate=2e-3), 1000, range(0, 1001, 10))
    np.testing.assert_allclose(rates[[0, 30, 100]], [2e-3 / 25, 2e-3, 2e-3 / 25e4], rtol=1e-3)
    assert np.all(np.diff(rates[:31]) > 0)
    assert np.all(np.diff(rates[30:]) < 0)
    np.testing.assert_allclose(rates[15], 0.5 * (2e-3 + 2e-3 / 25), rtol=1e-3)  # cosine: half way at half time


def test_warmup_moves_the_peak():
    assert int(np.argmax(rates_of(OneCycle(learning_rate=1.0, warmup=0.1), 100))) == 10


def test_two_stages_are_two_cycles():
    """Appendix B.6: a second cycle for the second phase, with the learning rate multiplied by γ_lr."""
    adam = OneCycle(learning_rate=1e-2, stages=(0.4,), stage_factor=0.1)
    first, second = 1e-2, 1e-3
    expected = {
        0: first / 25,
        120: first,
        399: first / 25e4,
        400: second / 25,
        580: second,
        1000: second / 25e4,
    }
    found = rates_of(adam, 1000, list(expected))
    np.testing.assert_allclose(found, list(expected.values()), rtol=1e-2, atol=5e-7)


def test_one_cycle_does_not_hear_of_cooling():
    early, late = (rates_of(OneCycle(), 100, begin=b, end=e) for b, e in ((10, 20), (100, 100)))
    np.testing.assert_array_equal(early, late)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_short_runs_have_finite_positive_rates(steps):
    """Under both schedules, with cooling as a run without an early end has it."""
    for adam in (OneCycle(), OneCycle(stages=(0.5,)), OneCycle(warmup=0.0), Adam(), Adam(warmup=0.0)):
        rates = rates_of(adam, steps, begin=int(np.ceil(0.65 * steps)))
        assert np.all(np.isfinite(rates))
        assert min(rates) > 0.0


# --- What the rate multiplies


def updates_of(adam, gradients, params=PARAMS):
    transformation = adam.transformation()
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


def norms_let_through(sizes, factor=3.0):
    transformation = clip_to_usual(factor)
    state, through = transformation.init(PARAMS), []
    direction = {"a": jnp.array([0.6, 0.0]), "b": jnp.array([-0.8])}
    for size in sizes:
        update, state = transformation.update(jax.tree.map(lambda d, s=size: s * d, direction), state)
        norm = float(optax.tree.norm(update))
        for one, two in zip(jax.tree.leaves(update), jax.tree.leaves(direction), strict=True):
            np.testing.assert_allclose(one, norm * two, rtol=1e-4, atol=1e-7)
        through.append(norm)
    return np.array(through)


def test_a_gradient_far_larger_than_usual_is_clipped_and_the_usual_may_grow():
    through = norms_let_through([0.1] * 50 + [50.0] + [0.1] * 3 + [0.25] * 3)
    np.testing.assert_allclose(through[:50], 0.1, rtol=1e-5)
    np.testing.assert_allclose(through[50], 0.3, rtol=1e-5)  # one in a thousand norms of 500 times the size
    np.testing.assert_allclose(through[51:], [0.1] * 3 + [0.25] * 3, rtol=1e-5)
    grown = norms_let_through([0.1] * 10 + [10.0] * 400)
    assert np.all(np.diff(grown[10:]) >= -1e-5)
    np.testing.assert_allclose(grown[-1], 10.0, rtol=1e-4)  # what stays is usual
    np.testing.assert_allclose(norms_let_through([0.1] * 10 + [50.0], np.inf)[-1], 50.0, rtol=1e-5)


def test_one_surge_does_not_move_adam_by_many_rates():
    small, surge = ({"a": jnp.array([s, s]), "b": jnp.array([s])} for s in (0.01, 1.0))
    usual = [small, jax.tree.map(jnp.negative, small)] * 500
    free, held = (updates_of(Adam(surge=s), [*usual, surge])[-1]["b"][0] for s in (np.inf, 3.0))
    assert float(free) > 2.0
    assert 0.0 < float(held) < 0.5


@pytest.mark.parametrize("adam", [Adam(learning_rate=0.5), OneCycle(learning_rate=0.5)], ids=["Adam", "OneCycle"])
def test_first_update_is_the_sign_of_the_gradient(adam):
    """It has no rate in it: that is the run's to say (see the first step in test_state)."""
    update = updates_of(adam, [{"a": jnp.array([0.3, -0.1]), "b": jnp.array([0.2])}])[0]
    np.testing.assert_allclose(update["a"], [1.0, -1.0], rtol=1e-4)
    np.testing.assert_allclose(update["b"], [1.0], rtol=1e-4)


def test_weight_decay_is_decoupled():
    """With no gradient at all, every parameter shrinks by rate · decay."""
    zero = jax.tree.map(jnp.zeros_like, PARAMS)
    update = updates_of(Adam(learning_rate=0.5, weight_decay=0.1), [zero])[0]
    for name, value in PARAMS.items():
        np.testing.assert_allclose(update[name], 0.1 * value, rtol=1e-4)


@pytest.mark.parametrize("kind", [Adam, OneCycle])
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"clip": 0.0}, "clip"),
        ({"surge": 0.0}, "surge"),
        ({"surge": "many"}, "surge"),
        ({"surge": np.ones(2)}, "surge"),
    ],
)
def test_bad_options_are_refused(kind, options, name):
    with pytest.raises(TradeError, match=f"{kind.__name__} {name}"):
        kind(**options)

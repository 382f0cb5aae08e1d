"""Replica exchange crosses barriers that a single chain does not, and keeps every condition's distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trade import Condition, Target, TradeError
from trade.sampling.tempering import ReplicaExchange

KEY = jax.random.key(0)


def tilted(x, T):
    """Two wells, the right one lower: barriers of 8 and 10 at T = 0.5."""
    return -(4.0 * (x**2 - 1.0) ** 2 - 0.5 * x).sum() / T


WELLS = Target(tilted, (1,), Condition(0.5, 4.0, boundary=(4.0,)))


def exact_right(T):
    x = np.linspace(-3, 3, 20001)
    weight = np.exp(-(4.0 * (x**2 - 1.0) ** 2 - 0.5 * x) / T)
    return weight[x > 0].sum() / weight.sum()


@pytest.fixture(scope="module")
def found():
    chains = ReplicaExchange(rungs=4, ensembles=100, integration_steps=8, thermalisation=300, thinning=5)
    return chains.sample(WELLS, KEY, 5000, (0.5, 4.0), -jnp.ones(1))


def test_population_of_the_other_well_is_exact_at_both_ends(found):
    """All chains begin in the left well."""
    for T in (0.5, 4.0):
        x = np.asarray(found.samples[T])
        assert x.shape == (100, 50, 1)
        right = (x > 0).mean(axis=(1, 2))
        error = right.std(ddof=1) / np.sqrt(len(right))
        assert error < 0.05
        assert abs(right.mean() - exact_right(T)) < 4 * error


def test_rates_are_reported(found):
    assert found.acceptance.shape == (4,)
    assert found.exchange.shape == (3,)
    assert np.all((found.acceptance > 0.5) & (found.acceptance <= 1.0))
    assert np.all((found.exchange > 0.2) & (found.exchange < 1.0))
    np.testing.assert_allclose(found.ladder, [0.5, 1.0, 2.0, 4.0])


def test_without_other_rungs_nothing_crosses():
    """What the exchange is for: at T = 0.5 alone the chains stay where they began."""
    cold = Target(tilted, (1,), Condition(0.5, 0.51))
    chains = ReplicaExchange(rungs=2, ensembles=100, integration_steps=8, thermalisation=300, thinning=5)
    x = np.asarray(chains.sample(cold, KEY, 1000, (0.5,), -jnp.ones(1)).samples[0.5])
    assert (x > 0).mean() < 0.3 < exact_right(0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ReplicaExchange(rungs=1), "rungs must be an integer of at least 2, got 1"),
        (lambda: ReplicaExchange(rungs=4).sample(WELLS, KEY, 10, (0.7,), jnp.ones(1)), "0.7 is no rung of the ladder"),
        (
            lambda: ReplicaExchange().sample(WELLS, KEY, 10, (0.5,), jnp.ones(2)),
            r"one state of shape \(1,\), got \(2,\)",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(TradeError, match=message):
        call()


def test_jumps_of_an_angle_cross_barriers_and_keep_the_density():
    """Two unequal wells of an angle, 30 kT apart; the second coordinate leans on the first."""

    def density(x, T):
        return (-30.0 * jnp.sin(x[0]) ** 2 + 0.5 * jnp.cos(x[0]) - 0.5 * (x[1] - jnp.cos(x[0])) ** 2) / T

    target = Target(density, (2,), Condition(1.0, 1.2))
    settings = {"rungs": 2, "ensembles": 200, "integration_steps": 8, "thermalisation": 100, "thinning": 10}
    found = ReplicaExchange(**settings, jumps=(0,)).sample(target, KEY, 4000, (1.0,), jnp.zeros(2))
    x = np.asarray(found.samples[1.0])
    right = (np.cos(x[..., 0]) > 0).mean(axis=1)
    angle = np.linspace(-np.pi, np.pi, 20001)
    weight = np.exp(-30.0 * np.sin(angle) ** 2 + 0.5 * np.cos(angle))
    exact = weight[np.cos(angle) > 0].sum() / weight.sum()
    error = right.std(ddof=1) / np.sqrt(len(right))
    assert error < 0.02
    assert abs(right.mean() - exact) < 4 * error
    np.testing.assert_allclose((x[..., 1] - np.cos(x[..., 0])).mean(), 0.0, atol=0.06)
    assert np.all((found.jumped > 0.05) & (found.jumped < 0.9))
    stuck = ReplicaExchange(**settings).sample(target, KEY, 400, (1.0,), jnp.zeros(2))
    assert np.all(np.cos(np.asarray(stuck.samples[1.0])[..., 0]) > 0)
    assert np.all(stuck.jumped == 0)


def test_jumps_must_be_coordinates():
    with pytest.raises(TradeError, match=r"jumps must be coordinates of a state with 1, got \(3,\)"):
        ReplicaExchange(jumps=(3,)).sample(WELLS, KEY, 10, (0.5,), jnp.ones(1))

"""Observables of a field, plain and weighted, with errors that are right."""

import jax.numpy as jnp
import numpy as np
import pytest

from trade import Axes, Condition, TradeError
from trade.evaluation.observables import NAMES, jackknife, observables
from trade.targets import ScalarField

TARGET = ScalarField(2)


def fields(n=2000, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(0.3, 1.0, (n, 2, 2)), jnp.float32)


def test_observables_are_their_definitions():
    """Appendix B.6: ⟨|m|⟩, ⟨S⟩/N, N(⟨m²⟩ - ⟨|m|⟩²), 1 - ⟨m⁴⟩/(3⟨m²⟩²)."""
    x = fields()
    m = np.abs(np.asarray(x, np.float64).mean(axis=(1, 2)))
    action = np.array([float(TARGET.action(v, 0.27)) for v in x[:50]])
    found = observables(TARGET, x, 0.27)
    assert tuple(found) == NAMES
    np.testing.assert_allclose(found["magnetisation"].value, m.mean(), rtol=1e-5)
    np.testing.assert_allclose(found["susceptibility"].value, 4 * (np.mean(m**2) - m.mean() ** 2), rtol=1e-4)
    np.testing.assert_allclose(found["binder"].value, 1 - np.mean(m**4) / (3 * np.mean(m**2) ** 2), rtol=1e-4)
    few = observables(TARGET, jnp.tile(x[:50], (4, 1, 1)), 0.27)["action"].value
    np.testing.assert_allclose(few, action.mean() / 4, rtol=1e-5)


def test_error_of_a_mean_is_its_standard_error_and_weights_count_samples():
    x = fields()
    m = np.abs(np.asarray(x, np.float64).mean(axis=(1, 2)))
    plain = observables(TARGET, x, 0.27)["magnetisation"]
    np.testing.assert_allclose(plain.error, m.std() / np.sqrt(len(m)), rtol=0.25)
    half = jnp.where(jnp.arange(2000) % 2 == 0, 0.0, -jnp.inf)  # every other sample has no weight
    weighted = observables(TARGET, x, 0.27, half)["magnetisation"]
    np.testing.assert_allclose(weighted.value, m[::2].mean(), rtol=1e-5)
    np.testing.assert_allclose(weighted.error, m[::2].std() / np.sqrt(1000), rtol=0.25)


def test_jackknife_of_a_nonlinear_function_covers_the_truth():
    """The square of a mean of one: within two errors for about 95 % of 200 data sets."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(200):
        value, error = jackknife(rng.normal(1.0, 1.0, (400, 1)), np.ones(400), lambda m: m**2, blocks=40)
        hits += abs(value[0] - 1.0) < 2 * error[0]
    assert 180 <= hits <= 199


def test_too_few_samples_are_refused():
    with pytest.raises(TradeError, match="needs at least 200 samples, got 50"):
        observables(TARGET, fields(50), 0.27)


def test_observables_of_a_field_with_two_parameters():
    """At a point of the plane they are those of the field whose coupling is fixed there."""
    plane = ScalarField(4, condition=Axes({"kappa": Condition(0.2, 0.3), "coupling": Condition(0.01, 0.05)}))
    x = 0.1 * np.arange(16 * 240, dtype=float).reshape(240, 4, 4) % 1.7
    one, two = observables(plane, x, {"coupling": 0.03, "kappa": 0.25}), observables(ScalarField(4, 0.03), x, 0.25)
    assert one.keys() == two.keys()
    for name, (value, error) in two.items():
        np.testing.assert_allclose(one[name], (value, error), rtol=1e-5)
    with pytest.raises(TradeError, match="coupling"):
        observables(plane, x, 0.25)

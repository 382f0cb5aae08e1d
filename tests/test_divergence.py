import numpy as np
import pytest
from small_problems import KEY, gaussian_family, small_flow

from trade import Model, TradeError
from trade.evaluation.divergence import bootstrap, forward_kl, grid_kl, negative_log_likelihood

TARGET = gaussian_family(d=2)
SAMPLES = 20_000
CONDITIONS = [0.5, 1.0, 1.8]


def exact_kl(c):
    """KL(N(0, c) | N(0, 1)) in two dimensions."""
    return c - 1.0 - np.log(c)


@pytest.fixture(scope="module")
def model():
    """The standard normal at every condition."""
    return Model(small_flow((2,), TARGET.condition, conditional=False), TARGET.condition)


def test_bootstrap_error_of_a_mean_is_the_standard_error():
    values = 3.0 + 2.0 * np.random.default_rng(1).standard_normal(500)
    estimate = bootstrap(values, sets=400)
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.error == pytest.approx(values.std() / np.sqrt(500), rel=4 / np.sqrt(2 * 400))


def test_bootstrap_of_another_statistic():
    values = np.random.default_rng(1).standard_normal(2000)
    estimate = bootstrap(values, statistic=lambda v: np.median(v, axis=0), sets=400)
    assert estimate.value == pytest.approx(np.median(values))
    assert estimate.error == pytest.approx(np.sqrt(np.pi / 2 / 2000), rel=0.25)


def test_bootstrap_is_reproducible():
    values = np.random.default_rng(1).standard_normal(50)
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values).error != bootstrap(values, seed=1).error


@pytest.mark.parametrize("c", CONDITIONS)
def test_forward_kl_is_the_known_one(model, c):
    estimate = forward_kl(model, TARGET, TARGET.sample(KEY, SAMPLES, c), c)
    assert abs(estimate.value - exact_kl(c)) < 4 * estimate.error + 1e-6
    if c != 1.0:  # log p - log p_θ = (1 - 1/c)|x|²/2 + const, and |x|²/c has variance 4
        assert estimate.error == pytest.approx(abs(c - 1) / np.sqrt(SAMPLES), rel=0.3)


@pytest.mark.parametrize("c", CONDITIONS)
def test_negative_log_likelihood_is_kl_plus_entropy(model, c):
    estimate = negative_log_likelihood(model, TARGET.sample(KEY, SAMPLES, c), c)
    entropy = 1.0 + np.log(2 * np.pi * c)
    assert abs(estimate.value - exact_kl(c) - entropy) < 4 * estimate.error
    assert estimate.error == pytest.approx(c / np.sqrt(SAMPLES), rel=0.3)


@pytest.mark.parametrize("c", CONDITIONS)
def test_grid_kl_is_the_known_one(model, c):
    assert grid_kl(model, TARGET, c, extent=9.0, points=101) == pytest.approx(exact_kl(c), abs=1e-4)


def test_grid_kl_visits_only_cells_with_mass(model):
    visited = []

    class Spy:
        def log_prob(self, x, c):
            visited.append(len(x))
            return model.log_prob(x, c)

    for dropped in (0.0, 1e-7, 1e-2):
        value = grid_kl(Spy(), TARGET, 0.5, extent=9.0, points=101, dropped=dropped)
        assert value == pytest.approx(exact_kl(0.5), abs=max(1e-4, 5 * dropped))
    assert visited[0] > 2 * visited[1] > 2 * visited[2]


def test_grid_kl_is_for_two_dimensions(model):
    with pytest.raises(TradeError, match=r"shape \(2,\), got \(3,\)"):
        grid_kl(model, gaussian_family(d=3), 1.0, extent=9.0, points=11)

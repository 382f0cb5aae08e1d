"""Histograms on the torus and their distance."""

import numpy as np

from trade.evaluation.ramachandran import floor, histogram, histogram_kl

RANDOM = np.random.default_rng(0)


def test_histogram_counts_every_angle_once_whatever_its_turns():
    phi, psi = RANDOM.uniform(-np.pi, np.pi, (2, 1000))
    counts = histogram(phi, psi, 10)
    assert counts.sum() == 1000
    np.testing.assert_array_equal(counts, histogram(phi + 4 * np.pi, psi - 2 * np.pi, 10))
    expected, _, _ = np.histogram2d(phi, psi, 10, range=[[-np.pi, np.pi]] * 2)
    np.testing.assert_array_equal(counts, expected)


def test_the_seam_belongs_to_a_cell():
    assert histogram(np.array([np.pi, -np.pi, -np.pi - 1e-17]), np.zeros(3), 10).sum() == 3


def test_kl_by_hand():
    """Two cells: 0.75 log(0.75/0.5) + 0.25 log(0.25/0.5); cells without counts are left out."""
    value = histogram_kl(np.array([[30, 10, 0]]), np.array([[20, 20, 0]]))
    np.testing.assert_allclose(value, 0.75 * np.log(1.5) + 0.25 * np.log(0.5))


def test_floor_is_what_exact_samples_have():
    share = RANDOM.dirichlet(np.full(100, 5.0))
    parts = np.array([RANDOM.multinomial(2000, share).reshape(10, 10) for _ in range(50)])
    for samples in (20_000, 500_000):
        exact = [RANDOM.multinomial(samples, share).reshape(10, 10) for _ in range(40)]
        found = np.mean([histogram_kl(counts, parts.sum(axis=0)) for counts in exact])
        np.testing.assert_allclose(floor(parts, samples), found, rtol=0.35)
        np.testing.assert_allclose(found, 99 / 2 * (1 / 100_000 + 1 / samples), rtol=0.35)

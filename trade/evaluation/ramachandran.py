"""Distances of the distribution of two torsions, as histograms on the torus."""

import numpy as np

from trade import check
from trade.errors import TradeError

BINS = 50


def histogram(phi: np.ndarray, psi: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Counts on bins x bins equal cells of [-π, π)²; angles may have any multiple of 2π.

    Args:
        phi: One torsion in radians, of any shape.
        psi: The other, of the same shape.
        bins: Cells along each axis.

    Returns:
        Counts of shape (bins, bins), φ along the first axis.
    """
    bins = check.integer(bins, "bins")
    phi = np.asarray(check.array(phi, "phi", finite=True), np.float64)
    psi = np.asarray(check.array(psi, "psi", phi.shape, finite=True), np.float64)
    cells = [np.floor((v / (2.0 * np.pi) + 0.5) % 1.0 * bins).astype(int) for v in (phi, psi)]
    one, two = (np.minimum(c, bins - 1) for c in cells)  # a tiny negative angle is 1.0 after the modulo
    return np.bincount(one.ravel() * bins + two.ravel(), minlength=bins * bins).reshape(bins, bins)


def histogram_kl(model: np.ndarray, reference: np.ndarray) -> float:
    """D_hist = KL(model || reference) of two histograms of counts, over the cells that both have visited.

    Warning:
        A cell that either has never visited is left out, as in the paper: a lost mode is not seen, and the value can
        be negative. Look at populations as well.

    Args:
        model: Counts of the model's samples.
        reference: Counts of the reference, of the same shape.

    Returns:
        The divergence in nats.
    """
    counts = [np.asarray(check.array(v, k, finite=True)) for v, k in ((model, "model"), (reference, "reference"))]
    if counts[0].shape != counts[1].shape or any((v < 0).any() or not v.sum() > 0 for v in counts):
        raise TradeError("histogram_kl needs two histograms of one shape, of counts that are not all zero.")
    p, q = (v / v.sum() for v in counts)
    both = (p > 0) & (q > 0)
    return float(np.sum(p[both] * np.log(p[both] / q[both])))


def floor(parts: np.ndarray, samples: int) -> float:
    """D_hist of a perfect model against the sum of all parts: what is left is that both are finite.

    Args:
        parts: Histograms of independent simulations, of shape (simulations, bins, bins): their scatter counts
            correlated frames for what they are worth.
        samples: Number of samples of the model.

    Returns:
        The divergence in nats.
    """
    parts, samples = np.asarray(check.array(parts, "parts", finite=True)), check.integer(samples, "samples")
    if parts.ndim < 2 or len(parts) < 2:
        raise TradeError(f"parts must be histograms of two simulations or more, got shape {parts.shape}.")
    half = len(parts) // 2
    one, two = parts[:half].sum(axis=0), parts[half : 2 * half].sum(axis=0)
    # Each sample adds (cells - 1)/2 over its size. Between halves there are two of half the size: four times too much.
    between = 0.5 * (histogram_kl(one, two) + histogram_kl(two, one))
    return 0.25 * between + 0.5 * (np.count_nonzero(parts.sum(axis=0)) - 1) / samples

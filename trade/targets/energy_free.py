"""Rules that rebuild q(x|c) from p(x|c0) alone, for energy-free training (Section 4.3.5)."""

from jax import Array


def boltzmann(log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
    """Energy-free rule for a temperature: E(x) = -T0 log p(x|T0), so log q = (T0/T) log p0.

    Args:
        log_p0: log p(x|T0), a scalar.
        x: The state; not used.
        c: The temperature T.
        c0: The temperature T0.
        y: The observation; not used.

    Returns:
        log q(x|T) up to a constant, a scalar.
    """
    return log_p0 * c0 / c


def power(log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
    """Energy-free rule for a power of the density: log q = (c/c0) log p0.

    Args:
        log_p0: log p(x|c0), a scalar.
        x: The state; not used.
        c: The power.
        c0: The power at which log p0 is known.
        y: The observation; not used.

    Returns:
        log q(x|c) up to a constant, a scalar.
    """
    return log_p0 * c / c0

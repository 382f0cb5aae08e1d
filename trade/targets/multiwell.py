"""The multi-dimensional double well (Section 5.1): separable, so everything about it is exact."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array

from trade import check
from trade.abstract_target import AbstractTarget
from trade.condition import Condition, check_condition
from trade.targets.energy_free import boltzmann


class MultiWell(AbstractTarget):
    """q(x|T) = exp(-E(x)/T) with E(x) = Σ_i a x_i + b x_i² + c x_i⁴ (Eq. 26).

    Args:
        d: Dimension.
        a: Linear coefficient.
        b: Quadratic coefficient.
        c: Quartic coefficient, positive.
        condition: Range of the temperature T, with T0 = 1 as its boundary by default.
    """

    d: int = eqx.field(static=True)
    a: float = eqx.field(static=True)
    b: float = eqx.field(static=True)
    c: float = eqx.field(static=True)
    condition: Condition = eqx.field(static=True)

    def __init__(
        self,
        d: int = 5,
        a: float = 0.0,
        b: float = -4.0,
        c: float = 1.0,
        condition: Condition = Condition(0.5, 1.0, scale="log", boundary=(1.0,)),  # noqa: B008
    ) -> None:
        check_condition(condition, positive="a temperature")
        self.d, self.condition = check.integer(d, "MultiWell d"), condition
        self.a, self.b = check.number(a, "MultiWell a"), check.number(b, "MultiWell b")
        takes = "positive for the density to be normalisable"
        self.c = check.number(c, "MultiWell c", 0, open_low=True, takes=takes)

    @property
    def shape(self) -> tuple[int, ...]:
        """(d,)."""
        return (self.d,)

    def config(self) -> dict:
        """The constructor's arguments."""
        return {"d": self.d, "a": self.a, "b": self.b, "c": self.c, "condition": self.condition}

    def energy(self, x: Array) -> Array:
        """E(x).

        Args:
            x: One state, of shape (d,).

        Returns:
            A scalar.
        """
        return jnp.sum(self.a * x + self.b * x**2 + self.c * x**4)

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """-E(x)/T."""
        return -self.energy(x) / c

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_T log q = E(x)/T² (Eq. 11)."""
        return self.energy(x) / c**2

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        """log q = (T0/T) log p0."""
        return boltzmann(log_p0, x, c, c0, y)

    def _reach(self, temperature: float) -> float:
        """|x| beyond which exp(-E/T) is below 1e-30 of its peak."""
        x = np.linspace(0.0, 200.0, 400_001)
        energy = np.minimum(self._energy_1d(x), self._energy_1d(-x))
        return float(x[np.flatnonzero(energy - energy.min() < 70.0 * temperature)[-1]]) + 1e-2

    def _energy_1d(self, x: np.ndarray) -> np.ndarray:
        return self.a * x + self.b * x**2 + self.c * x**4

    def sample(self, key: Array, n: int, c: float) -> Array:
        """n exact samples, by the inverse of the one-dimensional distribution function."""
        key, n, temperature = self.check_sampling(key, n, c)
        reach = self._reach(temperature)
        x = np.linspace(-reach, reach, 100_001)
        energy = self._energy_1d(x)
        density = np.exp(-(energy - energy.min()) / temperature)
        cdf = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        u = np.asarray(jax.random.uniform(key, (n, self.d)))
        u = u.astype(np.float64) + 0.5 * np.finfo(u.dtype).eps  # never exactly zero, the end of the table
        return jnp.asarray(np.interp(u, cdf / cdf[-1], x), dtype=float)

    def log_partition(self, c: float) -> float:
        """d times the logarithm of a one-dimensional integral."""
        temperature = self.condition.check(c)
        reach = self._reach(temperature)
        x = np.linspace(-reach, reach, 100_001)
        lowest = float(self._energy_1d(x).min())

        def integrand(v: float) -> float:
            return float(np.exp(-(self._energy_1d(np.asarray(v)) - lowest) / temperature))

        value = scipy.integrate.quad(integrand, -reach, reach, limit=500, epsabs=1e-12, epsrel=1e-12)[0]
        return self.d * (float(np.log(value)) - lowest / temperature)

    def entropy(self, c: float) -> float:
        """The exact entropy, log Z + ⟨E⟩/T: the floor of the NLL.

        Args:
            c: The temperature T.

        Returns:
            The entropy in nats.
        """
        temperature = self.condition.check(c)
        reach = self._reach(temperature)
        x = np.linspace(-reach, reach, 100_001)
        energy = self._energy_1d(x)
        weight = np.exp(-(energy - energy.min()) / temperature)
        mean = float((weight * energy).sum() / weight.sum())
        return self.log_partition(temperature) + self.d * mean / temperature

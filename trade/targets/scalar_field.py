"""The scalar field theory on a periodic lattice (Section 5.4): one action, every hopping parameter κ."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget
from trade.axes import Axes, check_axes
from trade.condition import Condition
from trade.errors import TradeError


class ScalarField(AbstractTarget):
    """q(φ|κ) = exp(-S) with S = Σ_x [-2κ Σ_μ φ_x φ_{x+μ} + (1 - 2λ) φ_x² + λ φ_x⁴] (Eq. 34).

    Args:
        length: Sites along each side of the lattice, an even number.
        coupling: The quartic coupling λ, positive, where it is not part of the condition.
        dimensions: Dimensions of the lattice.
        condition: Range of κ, with data on both sides of the transition by default; or ``trade.Axes`` with the names
            ``kappa`` and ``coupling``.
    """

    length: int = eqx.field(static=True)
    coupling: float = eqx.field(static=True)
    dimensions: int = eqx.field(static=True)
    condition: AbstractCondition = eqx.field(static=True)

    def __init__(
        self,
        length: int = 8,
        coupling: float = 0.02,
        dimensions: int = 2,
        condition: AbstractCondition = Condition(0.22, 0.32, scale="log", boundary=(0.25, 0.29)),  # noqa: B008
    ) -> None:
        check_axes(condition, "ScalarField", "kappa", "coupling")
        even, positive = "an even number of at least 2", "positive for the density to be normalisable"
        self.length = check.integer(length, "ScalarField length", 2, takes=even)
        if self.length % 2:
            raise TradeError(f"ScalarField length must be {even}, got {length!r}.")
        self.dimensions = check.integer(dimensions, "ScalarField dimensions", takes="a positive integer")
        self.coupling = check.number(coupling, "ScalarField coupling", 0, open_low=True, takes=positive)
        self.condition = condition
        if isinstance(condition, Axes) and not condition["coupling"].low > 0:
            raise TradeError(f"ScalarField coupling must be {positive}, got low={condition['coupling'].low:g}.")

    def _parameters(self, c: Array) -> tuple[Array, Array | float]:
        """κ and λ of a condition."""
        at = self.condition.point(c)
        return (at.kappa, at.coupling) if isinstance(self.condition, Axes) else (at, self.coupling)

    @property
    def shape(self) -> tuple[int, ...]:
        """One axis per dimension."""
        return (self.length,) * self.dimensions

    @property
    def sites(self) -> int:
        """Number of lattice sites."""
        return self.length**self.dimensions

    @property
    def lattice(self) -> bool:
        """Always: states are fields on a periodic lattice."""
        return True

    @property
    def has_symmetry(self) -> bool:
        """Always: sign, mirrors, exchanged axes, translations."""
        return True

    def config(self) -> dict:
        """The constructor's arguments."""
        return {
            "length": self.length,
            "coupling": self.coupling,
            "dimensions": self.dimensions,
            "condition": self.condition,
        }

    def hopping(self, x: Array) -> Array:
        """Σ_x Σ_μ φ_x φ_{x+μ}, each bond of the periodic lattice once.

        Args:
            x: One field φ, of shape ``shape``.

        Returns:
            A scalar.
        """
        return sum((jnp.sum(x * jnp.roll(x, -1, axis)) for axis in range(x.ndim)), jnp.zeros((), x.dtype))

    def action(self, x: Array, c: Array) -> Array:
        """S(φ, κ).

        Args:
            x: One field φ, of shape ``shape``.
            c: The condition: κ, or κ and λ in the order of the axes.

        Returns:
            A scalar.
        """
        square, (kappa, coupling) = x * x, self._parameters(c)
        return -2.0 * kappa * self.hopping(x) + jnp.sum((1.0 - 2.0 * coupling) * square + coupling * square * square)

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """-S(φ, c)."""
        return -self.action(x, c)

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_κ log q = 2 Σ_x Σ_μ φ_x φ_{x+μ}, and ∂_λ log q = Σ_x (2 φ_x² - φ_x⁴)."""
        hopping = 2.0 * self.hopping(x)
        if not isinstance(self.condition, Axes):
            return hopping
        found = {"kappa": hopping, "coupling": jnp.sum(2.0 * x**2 - x**4)}
        return jnp.stack([found[name] for name in self.condition.names])

    def drift(self, x: Array, c: Array) -> Array:
        """∂_φ log q, the drift of Langevin dynamics.

        Args:
            x: One field φ, of shape ``shape``.
            c: The condition: κ, or κ and λ in the order of the axes.

        Returns:
            An array of the same shape.
        """
        kappa, coupling = self._parameters(c)
        neighbours = sum((jnp.roll(x, s, axis) for axis in range(x.ndim) for s in (-1, 1)), jnp.zeros_like(x))
        return 2.0 * kappa * neighbours - 2.0 * (1.0 - 2.0 * coupling) * x - 4.0 * coupling * x**3

    def symmetry(self, key: Array, x: Array) -> Array:
        """A random sign, mirror of each axis, order of the axes and translation."""
        signs, mirrors, order, shifts = jax.random.split(key, 4)
        x = jnp.where(jax.random.bernoulli(signs), x, -x)
        mirrored = jax.random.bernoulli(mirrors, shape=(x.ndim,))
        shift = jax.random.randint(shifts, (x.ndim,), 0, self.length)
        for axis in range(x.ndim):
            x = jnp.roll(jnp.where(mirrored[axis], jnp.flip(x, axis), x), shift[axis], axis)
        if x.ndim == 1:
            return x
        # A random rotation of the axes and, half the time, an exchange of the first two: all orders for two and three.
        turns = [jnp.moveaxis(x, range(x.ndim), [(i + turn) % x.ndim for i in range(x.ndim)]) for turn in range(x.ndim)]
        turns += [jnp.swapaxes(v, 0, 1) for v in turns] if x.ndim > 2 else []
        return jnp.stack(turns)[jax.random.randint(order, (), 0, len(turns))]

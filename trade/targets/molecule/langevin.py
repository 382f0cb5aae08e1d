"""Langevin dynamics of a molecule as OpenMM had it before version 8: for data with the bias that such data have."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from trade import check
from trade.errors import TradeError
from trade.targets.molecule.boltzmann import GAS_CONSTANT, Molecule
from trade.targets.molecule.force_field import ForceField

ITERATIONS = 6  # of the constraints; each leaves a fifteenth of the error, in alanine dipeptide at 600 K
LOOSE = 1e-4  # relative deviation of a constrained bond that is refused


@dataclass(frozen=True)
class LeapfrogLangevin:
    """v ← a v + (1-a)/γ f/m + √(kT (1-a²)/m) ξ with a = exp(-γ Δt), x ← x + Δt v, then constrained bonds put back.

    Warning: a harmonic mode of frequency ω has the variance kT/k / (1 - (ω Δt)²/4). Stiff bonds stay too hot,
    however long it runs; take ``ReplicaExchange`` for samples of the density itself.

    Args:
        step: Δt in ps.
        friction: γ in 1/ps.
        thermalisation: Steps dropped at the start.
        thinning: Steps between two frames that are kept.
    """

    step: float = 0.002
    friction: float = 1.0
    thermalisation: int = 2500
    thinning: int = 500

    def __post_init__(self) -> None:
        check.integers(self, thermalisation=0, thinning=1)
        check.numbers(self, "step", "friction", low=0, open_low=True)

    def sample(self, molecule: Molecule, key: Array, start: ArrayLike, draws: int, temperature: float) -> Array:
        """States of shape (chains, draws, ...), from velocities drawn at the temperature.

        Args:
            molecule: Whose energy, masses and constraints.
            key: A JAX random key.
            start: One state a chain.
            draws: Frames kept of every chain.
            temperature: In kelvin; at 0 the motion begins at rest and has no noise.
        """
        check.instance(molecule, Molecule, "molecule", "a trade.targets.molecule.Molecule")
        z = jnp.asarray(check.array(start, "start"), float)
        if z.shape[1:] != molecule.shape or not len(z):
            raise TradeError(f"start must be states of shape (chains, {molecule.shape[0]}), got {z.shape}.")
        x = jax.jit(jax.vmap(molecule.to_positions))(z)
        frames = self.positions(molecule.force_field, key, x, draws, temperature)
        return jax.jit(jax.vmap(jax.vmap(molecule.to_internal)))(frames)

    def positions(self, field: ForceField, key: Array, x: Array, draws: int, temperature: float) -> Array:
        """The same from positions of shape (chains, atoms, 3), as positions: (chains, draws, atoms, 3)."""
        check.instance(field, ForceField, "field", "a trade.targets.molecule.ForceField")
        draws = check.integer(draws, "draws", takes="a positive integer")
        temperature, key = check.number(temperature, "The temperature", 0), check.random_key(key)
        x = check.array(x, "x")
        if x.ndim != 3 or not len(x) or x.shape[1:] != (len(field.masses), 3):
            raise TradeError(f"x must have shape (chains, {len(field.masses)}, 3), got {x.shape}.")
        lots = np.full(draws, self.thinning)
        lots[0] += self.thermalisation
        scalars = (jnp.asarray(v, float) for v in (self.step, self.friction, GAS_CONSTANT * temperature))
        # As JAX arrays, in the precision that is on when they are used.
        field = jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, field)
        frames, deviation = _frames(field, jnp.asarray(x, float), key, jnp.asarray(lots), *scalars)
        if not float(deviation) < LOOSE:
            raise TradeError(
                f"The motion at {temperature:g} K is unstable with a step of {self.step:g} ps: take a shorter one, or"
                " start nearer to a minimum of the energy."
            )
        return frames


@eqx.filter_jit
def _frames(
    field: ForceField, x: Array, key: Array, lots: Array, dt: Array, friction: Array, kT: Array
) -> tuple[Array, Array]:
    """Positions after each lot of steps, and the largest deviation of the constraints; NaN if any is not finite."""
    masses = jnp.asarray(field.masses, x.dtype)[:, None]
    keep, thermal = jnp.exp(-friction * dt), jnp.sqrt(kT / masses)
    push, noise = -jnp.expm1(-friction * dt) / friction / masses, jnp.sqrt(-jnp.expm1(-2.0 * friction * dt)) * thermal
    gradient, shake = jax.vmap(jax.grad(field)), _Shake(field, x.dtype)

    def lot(carry: tuple[Array, Array], given: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        (x, v), (steps, key) = carry, given
        x = x - x.mean(axis=1, keepdims=True)  # far from the origin positions have fewer digits
        inverse = jax.vmap(shake.inverse)(x)

        def move(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x, v = carry
            xi = jax.random.normal(jax.random.fold_in(key, i), x.shape, x.dtype)
            v = keep * v - push * gradient(x) + noise * xi
            v = v + jax.vmap(shake.correction)(x, dt * v, inverse) / dt  # (x' - x)/Δt with all its digits
            return x + dt * v, v

        x, v = jax.lax.fori_loop(0, steps, move, (x, v))
        return (x, v), x

    key_start, key_run = jax.random.split(key)
    v = thermal * jax.random.normal(key_start, x.shape, x.dtype)
    with jax.default_matmul_precision("highest"):
        _, frames = jax.lax.scan(lot, (x, v), (lots, jax.random.split(key_run, len(lots))))
        deviation = jnp.where(jnp.isfinite(frames).all(), shake.deviation(frames), jnp.nan)
    return jnp.swapaxes(frames, 0, 1), deviation


class _Shake:
    """Puts all constrained bonds back at once, along where they were before the step, by inverse masses.

    The matrix that couples bonds with a common atom is inverted at one geometry, near enough to those that follow.
    """

    def __init__(self, field: ForceField, dtype: Any) -> None:
        ends = jax.nn.one_hot(field.constraints.atoms, len(field.masses), dtype=dtype)
        self.difference = ends[:, 0] - ends[:, 1]  # times positions, the bonds
        self.pull = (self.difference / jnp.asarray(field.masses, dtype)).T
        self.length = jnp.asarray(field.constraints.length, dtype)

    def inverse(self, x: Array) -> Array:
        bonds = self.difference @ x
        return jnp.linalg.inv((self.difference @ self.pull) * (bonds @ bonds.T) / jnp.sum(bonds**2, axis=1)[:, None])

    def correction(self, x: Array, moved: Array, inverse: Array) -> Array:
        """What to add to positions that moved from x."""
        old = self.difference @ x
        bonds, force = old + self.difference @ moved, jnp.zeros_like(self.length)
        for _ in range(ITERATIONS):
            missing = 0.5 * (self.length**2 - jnp.sum(bonds**2, axis=1)) / jnp.sum(bonds * old, axis=1)
            more = inverse @ missing
            bonds, force = bonds + (self.difference @ self.pull) @ (more[:, None] * old), force + more
        return self.pull @ (force[:, None] * old)

    def deviation(self, x: Array) -> Array:
        found = jnp.linalg.norm(self.difference @ x, axis=-1)
        return jnp.max(jnp.abs(found / self.length - 1.0), initial=0.0)

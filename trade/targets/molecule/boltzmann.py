"""The Boltzmann distribution of a molecule over its internal coordinates, at every temperature."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import Array
from jax.typing import ArrayLike

from trade import check
from trade.abstract_condition import AbstractCondition
from trade.abstract_target import AbstractTarget
from trade.axes import Axes, check_axes
from trade.condition import check_condition
from trade.errors import TradeError
from trade.targets.molecule.force_field import ForceField
from trade.targets.molecule.internal import Internal, ZMatrix

GAS_CONSTANT = 0.00831446261815324  # kJ/mol/K


class Molecule(AbstractTarget):
    """q(z|T) = exp(-U(x(z))/kT) |∂x/∂z|, rigid motions and constrained bonds left out; or with a part of U scaled.

    Dynamics with constraints has one more factor in its density, by the masses, that is left out here: it is nearly
    constant where only bonds to hydrogen are constrained.

    A state z has the free bonds in nm, then the angles, then the torsions, in radians. Torsions are periodic: any
    multiple of 2π may be added.

    Args:
        force_field: The energy, in kJ/mol.
        z_matrix: How the atoms are placed.
        condition: Temperatures in kelvin; or ``trade.Axes`` with the names ``T`` and ``scale``.
        scaled: The part of the energy that ``scale`` multiplies, such as ``force_field.torsions_about(4, 6, 8, 14)``:
            the energy is U + (scale - 1) U_scaled.
    """

    force_field: ForceField
    z_matrix: ZMatrix = eqx.field(static=True)
    condition: AbstractCondition = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    free: np.ndarray
    lengths: np.ndarray
    scaled: ForceField | None

    def __init__(
        self,
        force_field: ForceField,
        z_matrix: ZMatrix,
        condition: AbstractCondition,
        scaled: ForceField | None = None,
    ) -> None:
        check.instance(force_field, ForceField, "Molecule force_field", "a ForceField")
        check.instance(z_matrix, ZMatrix, "Molecule z_matrix", "a ZMatrix")
        check_axes(condition, "Molecule", "T", "scale")
        several = isinstance(condition, Axes)
        check_condition(condition["T"] if several else condition, positive="a temperature")
        if several != (scaled is not None):
            raise TradeError("Molecule scaled and an axis named scale belong together: give both, or neither.")
        if scaled is not None:
            check.instance(scaled, ForceField, "Molecule scaled", "a ForceField")
        self.scaled = scaled
        if len(force_field.masses) != z_matrix.atoms:
            raise TradeError(
                f"The force field has {len(force_field.masses)} atoms, the Z-matrix places {z_matrix.atoms}."
            )
        self.force_field, self.z_matrix, self.condition = force_field, z_matrix, condition
        bonded = [tuple(sorted(pair)) for pair in z_matrix.bonded.tolist()]
        self.lengths = np.zeros(len(bonded))
        for pair, length in zip(force_field.constraints.atoms.tolist(), force_field.constraints.length, strict=True):
            if tuple(sorted(pair)) not in bonded:
                raise TradeError(f"The constrained bond {tuple(pair)} is none of the Z-matrix.")
            self.lengths[bonded.index(tuple(sorted(pair)))] = length
        self.free = np.flatnonzero(self.lengths == 0.0).astype(np.int32)
        self.shape = (len(self.free) + 2 * z_matrix.atoms - 5,)

    @property
    def angles(self) -> tuple[int, ...]:
        """The torsions."""
        return self.torsions

    @property
    def torsions(self) -> tuple[int, ...]:
        """Which coordinates of a state are torsions, by row of the Z-matrix."""
        return tuple(range(self.shape[0] - len(self.z_matrix.rows), self.shape[0]))

    @property
    def residues(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Names of the residues, in order, and of the atoms of each, as ``write_pdb`` takes them."""
        return (("MOL", tuple(f"A{i}" for i in range(1, self.z_matrix.atoms + 1))),)

    def to_internal(self, x: Array) -> Array:
        """The state of positions of shape (atoms, 3)."""
        internal = self.z_matrix.to_internal(x)
        return jnp.concatenate([internal.bonds[self.free], internal.angles, internal.torsions])

    def to_positions(self, z: Array) -> Array:
        """Positions in nm of shape (atoms, 3), in a frame of their own."""
        return self.z_matrix.to_positions(self._internal(z))

    def energy(self, z: Array) -> Array:
        """U in kJ/mol."""
        return self.force_field(self.to_positions(z))

    def log_volume(self, z: Array) -> Array:
        """log |∂x/∂z| over all bonds and angles."""
        return self.z_matrix.log_det(self._internal(z))

    def minimised(self, z: ArrayLike) -> Array:
        """The nearest minimum of the energy, roughly."""
        z = np.asarray(check.array(z, "z", self.shape, finite=True), np.float64)
        slope = jax.jit(jax.value_and_grad(self.energy))

        def energy(v: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = slope(jnp.asarray(v, float))
            return float(value), np.asarray(gradient, np.float64)

        found = scipy.optimize.minimize(energy, z, jac=True, method="L-BFGS-B")
        return jnp.asarray(found.x, float)

    def log_density(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """-U/kT + log |∂x/∂z|; -inf with an angle above π, say: a second name for positions that have a state."""
        energy, part, (temperature, scale) = *self._energies(x), self._parameters(c)
        log_q = -(energy + (scale - 1.0) * part) / (GAS_CONSTANT * temperature) + self.log_volume(x)
        bonds, angles, _ = self._internal(x)
        named = jnp.all(bonds > 0.0) & jnp.all((angles > 0.0) & (angles < jnp.pi))
        return jnp.where(named, log_q, -jnp.inf)

    def _energies(self, z: Array) -> tuple[Array, Array | float]:
        """The energy at scale one, and the part of it that is scaled."""
        x = self.to_positions(z)
        return self.force_field(x), 0.0 if self.scaled is None else self.scaled(x)

    def _parameters(self, c: Array) -> tuple[Array, Array | float]:
        """Temperature and scale of a condition."""
        at = self.condition.point(c)
        return (at.T, at.scale) if isinstance(self.condition, Axes) else (at, 1.0)

    def condition_derivative(self, x: Array, c: Array, y: Array | None = None) -> Array:
        """∂_T log q = U/(kT²), and by the scale -U_scaled/kT."""
        energy, part, (temperature, scale) = *self._energies(x), self._parameters(c)
        by_temperature = (energy + (scale - 1.0) * part) / (GAS_CONSTANT * temperature**2)
        if not isinstance(self.condition, Axes):
            return by_temperature
        found = {"T": by_temperature, "scale": -jnp.asarray(part) / (GAS_CONSTANT * temperature)}
        return jnp.stack([found[name] for name in self.condition.names])

    def rebuild(self, log_p0: Array, x: Array, c: Array, c0: Array, y: Array | None = None) -> Array:
        """The energy from the flow's own density at T0, its volume taken out; a scaled part is known, and changed."""
        volume, (temperature, scale), (temperature0, scale0) = (
            self.log_volume(x),
            self._parameters(c),
            self._parameters(c0),
        )
        energy = -GAS_CONSTANT * temperature0 * (log_p0 - volume)
        if self.scaled is not None:
            energy = energy + (scale - scale0) * self.scaled(self.to_positions(x))
        return volume - energy / (GAS_CONSTANT * temperature)

    def _internal(self, z: Array) -> Internal:
        z = jnp.asarray(check.array(z, "z", self.shape))
        n, angles = len(self.free), self.z_matrix.atoms - 2
        bonds = jnp.asarray(self.lengths, z.dtype).at[self.free].set(z[:n])
        return Internal(bonds, z[n : n + angles], z[n + angles :])

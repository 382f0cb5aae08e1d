"""A distribution around one structure of a molecule: where a bridge can begin, without any simulation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax import Array

from trade import check
from trade.errors import TradeError
from trade.states import check_angles
from trade.targets.molecule.boltzmann import GAS_CONSTANT, Molecule


class Around(AbstractDistribution):
    """Independent coordinates: Gaussians as wide as the curvature of the energy says, and rotors all round the circle.

    Torsions that are no rotors are taken as the distance from the structure, the shorter way round.

    Args:
        molecule: The molecule.
        temperature: That of the widths, in kelvin.
        structure: A state at a minimum of the energy.
        rotors: Coordinates of torsions about which a part of the molecule turns freely.
        wider: Factor on all widths: coordinates that lean on each other move farther than each by itself.
    """

    location: Array
    width: Array
    rotors: tuple[int, ...] = eqx.field(static=True)
    torsions: tuple[int, ...] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape = None

    def __init__(
        self,
        molecule: Molecule,
        temperature: float,
        structure: Array,
        rotors: tuple[int, ...],
        wider: float = 1.5,
    ) -> None:
        check.instance(molecule, Molecule, "Around molecule", "a Molecule")
        temperature = check.number(temperature, "Around temperature", 0, open_low=True)
        wider = check.number(wider, "Around wider", 0, open_low=True)
        state = jnp.asarray(check.array(structure, "Around structure", molecule.shape, finite=True), float)
        self.shape, self.torsions = molecule.shape, molecule.torsions
        self.rotors = check_angles(rotors, self.shape, "Around rotors")
        if not set(self.rotors) <= set(self.torsions):
            raise TradeError(f"Around rotors must be torsions of the molecule, got {check.shown(rotors)}.")

        def energy(z: Array) -> Array:
            return molecule.energy(z) / (GAS_CONSTANT * temperature) - molecule.log_volume(z)

        stiff = np.array(jnp.diagonal(eqx.filter_jit(jax.hessian(energy))(state)), np.float64)
        stiff[np.array(self.rotors, int)] = 1.0
        if not (stiff > 0).all():
            i = int(np.argmin(stiff))
            raise TradeError(f"Around structure is at no minimum of the energy: coordinate {i} has no restoring force.")
        self.location, self.width = state, jnp.asarray(wider / np.sqrt(stiff), float)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        away = jnp.where(self._among(self.torsions), _nearest(x - self.location), x - self.location)
        each = jax.scipy.stats.norm.logpdf(away, scale=self.width)
        return jnp.sum(jnp.where(self._among(self.rotors), -jnp.log(2.0 * jnp.pi), each))

    def _sample(self, key: Array, condition: Array | None = None) -> Array:
        one, two = jax.random.split(key)
        x = self.location + self.width * jax.random.normal(one, self.shape)
        turned = jax.random.uniform(two, self.shape, minval=-jnp.pi, maxval=jnp.pi)
        x = jnp.where(self._among(self.rotors), turned, x)
        return jnp.where(self._among(self.torsions), _nearest(x), x)

    def _among(self, coordinates: tuple[int, ...]) -> np.ndarray:
        return np.isin(np.arange(self.shape[0]), coordinates)


def _nearest(angle: Array) -> Array:
    """The same angle in [-π, π)."""
    return jnp.mod(angle + jnp.pi, 2.0 * jnp.pi) - jnp.pi

"""The energy of one molecule in JAX: bonds, angles, torsions, pairs, and an implicit solvent."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trade import check
from trade.errors import TradeError

COULOMB = 138.93545764438198  # 1/(4πε0) in kJ/mol nm/e²
CLOSEST = 1e-3  # nm; nearer pairs are taken to be this far apart, so that a clash is a large but finite energy
NOTHING = 1e-12  # nm or nm²: what is smaller is zero, and has no derivative
PROBE, OFFSET = 0.14, 0.009  # nm; of the solvent, and between the two radii of an atom (OBC)


class HarmonicTerms(eqx.Module):
    """k/2 (v - v0)² of bonds or of angles.

    Args:
        atoms: Atoms of each, (n, 2) or (n, 3).
        rest: Lengths in nm, or angles in radians.
        stiffness: k in kJ/mol per nm² or per radian².
    """

    atoms: np.ndarray
    rest: np.ndarray
    stiffness: np.ndarray


class Torsions(eqx.Module):
    """k (1 + cos(n φ - φ0)).

    Args:
        atoms: Four atoms of each.
        periodicity: n.
        phase: φ0 in radians.
        stiffness: k in kJ/mol.
    """

    atoms: np.ndarray
    periodicity: np.ndarray
    phase: np.ndarray
    stiffness: np.ndarray


class Pairs(eqx.Module):
    """Lennard-Jones and Coulomb between all pairs of atoms, exceptions among them: symmetric matrices.

    Args:
        charge: Products of the charges, e²; 0 where there is no interaction, and on the diagonal.
        sigma: σ in nm.
        epsilon: ε in kJ/mol; 0 like the charge.
    """

    charge: np.ndarray
    sigma: np.ndarray
    epsilon: np.ndarray


class Solvent(eqx.Module):
    """Generalised Born with the radii of Onufriev, Bashford and Case (OBC II), and a surface term (ACE).

    Args:
        charge: Of each atom, e.
        radius: Of each atom, nm.
        scale: By which an atom screens others.
        inside: Dielectric constant of the molecule.
        outside: That of the solvent.
        surface: Surface energy in kJ/mol/nm².
    """

    charge: np.ndarray
    radius: np.ndarray
    scale: np.ndarray
    inside: float
    outside: float
    surface: float


class Constraints(eqx.Module):
    """Bonds of fixed length.

    Args:
        atoms: Both atoms of each.
        length: In nm.
    """

    atoms: np.ndarray
    length: np.ndarray


class ForceField(eqx.Module):
    """U(x) of one molecule in kJ/mol, x in nm of shape (atoms, 3); batch it with ``vmap``.

    Finite and differentiable for any x, also where atoms lie on each other.

    Args:
        bonds: Bonds that are not constrained.
        angles: Angles.
        torsions: Proper and improper ones.
        pairs: What is not bonded.
        solvent: Implicit solvent, or None.
        constraints: Bonds of fixed length; they have no energy.
        masses: Of the atoms, in atomic mass units.
    """

    bonds: HarmonicTerms
    angles: HarmonicTerms
    torsions: Torsions
    pairs: Pairs
    solvent: Solvent | None
    constraints: Constraints
    masses: np.ndarray

    def __call__(self, x: Array) -> Array:
        """The energy."""
        return sum(self.parts(x).values())  # pyright: ignore

    def parts(self, x: Array) -> dict[str, Array]:
        """The energy, term by term."""
        x = jnp.asarray(check.array(x, "Positions", (len(self.masses), 3)))
        return _cast(self, x.dtype)._parts(x)

    def _parts(self, x: Array) -> dict[str, Array]:
        # All distances at once, and bonds as products: gathers, and still more their derivatives, are slower.
        square = sum((jnp.square(v[:, None] - v) for v in x.T), jnp.zeros((), x.dtype))
        r = jnp.sqrt(jnp.maximum(square, CLOSEST**2))
        found = {
            "bonds": _harmonic(self.bonds, _length(*_steps(self.bonds.atoms, x))),
            "angles": _harmonic(self.angles, _bend(*_steps(self.angles.atoms, x))),
            "torsions": self._torsions(x),
            "pairs": self._pairs(r),
        }
        return found if self.solvent is None else found | {"solvent": _solvation(self.solvent, r)}

    def _torsions(self, x: Array) -> Array:
        terms = self.torsions
        phi = _turn(*_steps(terms.atoms, x))
        return jnp.sum(terms.stiffness * (1.0 + jnp.cos(terms.periodicity * phi - terms.phase)))

    def _pairs(self, r: Array) -> Array:
        pairs = self.pairs
        sixth = (pairs.sigma / r) ** 6
        return 0.5 * jnp.sum(4.0 * pairs.epsilon * sixth * (sixth - 1.0) + COULOMB * pairs.charge / r)

    def torsions_about(self, *atoms: int) -> "ForceField":
        """Only the torsion terms of four atoms, given from either end; all other energies are left out.

        Args:
            atoms: The four atoms.

        Returns:
            A force field whose energy is a part of this one's.
        """
        rows = self.torsions.atoms
        same = [tuple(row) in (atoms, atoms[::-1]) for row in rows.tolist()]
        if not any(same):
            raise TradeError(f"The force field has no torsion of the atoms {check.shown(atoms)}.")
        torsions = Torsions(*(getattr(self.torsions, f)[np.array(same)] for f in self.torsions.__dataclass_fields__))
        pairs = Pairs(np.zeros_like(self.pairs.charge), self.pairs.sigma, np.zeros_like(self.pairs.epsilon))
        return ForceField(_no_bonds(2), _no_bonds(3), torsions, pairs, None, self.constraints, self.masses)

    def charges_only(self) -> "ForceField":
        """Only the interactions of charges, with each other and with the solvent; scaled by s, charges are by √s.

        Returns:
            A force field whose energy is a part of this one's.
        """
        torsions = Torsions(np.zeros((0, 4), int), np.zeros(0), np.zeros(0), np.zeros(0))
        pairs = Pairs(self.pairs.charge, self.pairs.sigma, np.zeros_like(self.pairs.epsilon))
        solvent = None if self.solvent is None else eqx.tree_at(lambda s: s.surface, self.solvent, 0.0)
        return ForceField(_no_bonds(2), _no_bonds(3), torsions, pairs, solvent, self.constraints, self.masses)

    def save(self, path: str | Path) -> None:
        """Write all parameters as JSON."""
        Path(path).write_text(json.dumps(_plain(self), indent=None, separators=(",", ":")))

    @staticmethod
    def load(path: str | Path) -> "ForceField":
        """Read what ``save`` wrote; runs no code from it."""
        try:
            return ForceField._read(json.loads(Path(path).read_text()))
        except (OSError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise TradeError(f"{path} is no file of ForceField.save: {check.reason(error)}.") from error

    @staticmethod
    def _read(data: Any) -> "ForceField":

        def terms(kind: type, name: str, atoms: int = 0) -> Any:
            values = {k: np.asarray(v, float) if isinstance(v, list) else v for k, v in data[name].items()}
            if atoms:
                values["atoms"] = values["atoms"].reshape(-1, atoms).astype(int)
            return kind(**values)

        return ForceField(
            terms(HarmonicTerms, "bonds", 2),
            terms(HarmonicTerms, "angles", 3),
            terms(Torsions, "torsions", 4),
            terms(Pairs, "pairs"),
            None if data["solvent"] is None else terms(Solvent, "solvent"),
            terms(Constraints, "constraints", 2),
            np.asarray(data["masses"]),
        )


def _no_bonds(atoms: int) -> HarmonicTerms:
    """No bonds, or no angles."""
    return HarmonicTerms(np.zeros((0, atoms), int), np.zeros(0), np.zeros(0))


def angle(a: Array, b: Array, c: Array) -> Array:
    """The angle a-b-c in [0, π], along the last axis."""
    return _bend(b - a, c - b)


def torsion(a: Array, b: Array, c: Array, d: Array) -> Array:
    """The torsion a-b-c-d in (-π, π], along the last axis: 0 when a and d are on the same side."""
    return _turn(b - a, c - b, d - c)


def _bend(u: Array, v: Array) -> Array:
    """The angle between two steps from atom to atom."""
    return jnp.arctan2(_length(jnp.cross(u, v)), _off_zero(-jnp.sum(u * v, axis=-1)))


def _turn(u: Array, v: Array, w: Array) -> Array:
    """The torsion of three steps from atom to atom."""
    across, over = jnp.cross(u, v), jnp.cross(v, w)
    sine = jnp.sum(u * over, axis=-1) * _length(v)
    return jnp.arctan2(sine, _off_zero(jnp.sum(across * over, axis=-1)))


def _steps(atoms: Any, x: Array) -> list[Array]:
    """The vectors from each atom of a term to the next, over all terms."""
    at = jax.nn.one_hot(atoms, len(x), dtype=x.dtype)
    return [jnp.matmul(at[:, i + 1] - at[:, i], x, precision=jax.lax.Precision.HIGHEST) for i in range(at.shape[1] - 1)]


def _length(v: Array) -> Array:
    """The norm, with a finite derivative at zero."""
    square = jnp.sum(v * v, axis=-1)
    return jnp.sqrt(jnp.maximum(square, NOTHING**2))


def _off_zero(v: Array) -> Array:
    """Away from zero, where the arc tangent of 0/0 has no derivative; all other values as they are."""
    return jnp.where(jnp.abs(v) < NOTHING, NOTHING, v)


def _harmonic(terms: HarmonicTerms, value: Array) -> Array:
    return 0.5 * jnp.sum(terms.stiffness * (value - terms.rest) ** 2)


def _solvation(solvent: Solvent, r: Array) -> Array:
    """OBC's generalised Born energy and ACE's surface energy, as OpenMM has them; r holds all distances."""
    born, charge = _born_radii(solvent, r), solvent.charge
    product, square = born[:, None] * born, jnp.where(np.eye(len(charge), dtype=bool), 0.0, r * r)
    effective = jnp.sqrt(square + product * jnp.exp(-0.25 * square / product))
    polar = -0.5 * COULOMB * (1.0 / solvent.inside - 1.0 / solvent.outside)
    area = 4.0 * np.pi * (solvent.radius + PROBE) ** 2 * (solvent.radius / born) ** 6
    return polar * jnp.sum(charge[:, None] * charge / effective) + solvent.surface * jnp.sum(area)


def _born_radii(solvent: Solvent, r: Array) -> Array:
    """Radii that grow as an atom (first axis) is covered by others (second axis)."""
    own = solvent.radius - OFFSET
    radius, other = own[:, None], (solvent.scale * own)[None]
    low = 1.0 / jnp.maximum(radius, jnp.abs(r - other))
    high = 1.0 / (r + other)
    covered = low - high + 0.25 * (r - other**2 / r) * (high**2 - low**2) + 0.5 * jnp.log(high / low) / r
    covered = covered + jnp.where(radius < other - r, 2.0 * (1.0 / radius - low), 0.0)
    counts = (radius < r + other) & ~np.eye(len(own), dtype=bool)
    psi = 0.5 * own * jnp.sum(jnp.where(counts, covered, 0.0), axis=1)
    return jnp.reciprocal(1.0 / own - jnp.tanh(psi - 0.8 * psi**2 + 4.85 * psi**3) / solvent.radius)


def _cast(tree: ForceField, dtype: Any) -> ForceField:
    """The parameters in the precision of the positions; indices with 32 bits, which are the same in either."""

    def cast(a: Any) -> Any:
        kind = a.dtype.kind if isinstance(a, np.ndarray) else ""
        return jnp.asarray(a, dtype) if kind == "f" else a.astype(np.int32) if kind == "i" else a

    return jax.tree.map(cast, tree)


def _plain(tree: Any) -> Any:
    if isinstance(tree, eqx.Module):
        return {k: _plain(v) for k, v in vars(tree).items()}
    return tree.tolist() if isinstance(tree, np.ndarray) else tree

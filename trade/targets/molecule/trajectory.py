"""Trajectories in the files of molecular dynamics (PDB, DCD, XTC), read and written by MDTraj."""

from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from trade import check, files
from trade.errors import TradeError
from trade.targets.molecule.boltzmann import Molecule

FORMATS = (".pdb", ".dcd", ".xtc")
_AT_ONCE = 4096  # frames
_SAME_MASS = 0.005  # dalton: one united atom of CH2 or a heavy hydrogen is no element
_STRETCH = 1.5  # by which no bond is longer or shorter than at rest; atoms two bonds apart are farther


def read_trajectory(path: str | Path, target: Molecule) -> Array:
    """The frames of a trajectory as states of a molecule, as ``fit`` takes them.

    Atoms must be those of the target, in its order: then no file of a topology is needed. An XTC file has positions to
    0.001 nm, a PDB file to 0.0001 nm, and states are no better than these.

    Args:
        path: A PDB, DCD or XTC file, or any other that MDTraj reads.
        target: The molecule.

    Returns:
        States, one per frame.

    Example:
        >>> data = {600.0: read_trajectory("traj.dcd", target)}  # doctest: +SKIP
    """
    place = _checked(path, target)
    mdtraj = check.library("mdtraj")
    if not place.is_file():
        raise TradeError(f"{place} does not exist: the trajectory must be a file.")
    try:
        frames = mdtraj.load(str(place), top=topology_of(target)).xyz
    except Exception as error:  # MDTraj has an exception for every kind of file
        raise TradeError(f"{place} cannot be read as a trajectory: {check.reason(error)}.") from error
    atoms = target.z_matrix.atoms
    if frames.shape[1:] != (atoms, 3) or not len(frames) or not np.isfinite(frames).all():
        raise TradeError(f"{place} must have frames of {atoms} finite positions, got an array of shape {frames.shape}.")
    _check_bonds(frames, target, place)
    centred = frames - frames.mean(axis=1, keepdims=True)  # near the origin float32 has more digits
    return _in_parts(target, Molecule.to_internal, jnp.asarray(centred, jnp.result_type(float)))


def write_trajectory(path: str | Path, states: ArrayLike, target: Molecule, topology: Any = None) -> None:
    """Write states of a molecule as Cartesian positions; the ending of the name says in which format.

    The three reference atoms of the Z-matrix are placed alike in every frame.

    Args:
        path: A file that ends in .pdb, .dcd or .xtc. One that is there is replaced.
        states: Internal coordinates, of shape (frames, *target.shape).
        target: The molecule.
        topology: Names of atoms and residues: a topology of MDTraj, or a file that has one, such as a PDB file. By
            default what is known of the molecule: its bonds, and elements where the masses tell.
    """
    place = _checked(path, target)
    files.write_bytes(place, trajectory_bytes(place.suffix, states, target, topology))


def trajectory_bytes(suffix: str, states: ArrayLike, target: Molecule, topology: Any = None) -> bytes:
    """The content of the file that ``write_trajectory`` writes.

    Args:
        suffix: The ending of its name.
        states: Internal coordinates, of shape (frames, *target.shape).
        target: The molecule.
        topology: Names of atoms and residues.

    Returns:
        The content.
    """
    if suffix not in FORMATS:
        raise TradeError(f"A trajectory must be a file that ends in {', '.join(FORMATS)}, got {suffix or 'nothing'}.")
    z = jnp.asarray(check.array(states, "states", (-1, *target.shape), finite=True))
    named = topology_of(target) if topology is None else _read_topology(topology, target)
    frames = np.asarray(_in_parts(target, Molecule.to_positions, z))
    with TemporaryDirectory() as folder:
        beside = Path(folder) / f"frames{suffix}"
        check.called("MDTraj", check.library("mdtraj").Trajectory(frames, named).save, str(beside))
        return beside.read_bytes()


def topology_of(target: Molecule) -> Any:
    """What is known of a molecule, as a topology of MDTraj.

    Args:
        target: The molecule.

    Returns:
        Its residues, atoms, elements (a virtual site where no element has the mass) and bonds.
    """
    mdtraj = check.library("mdtraj")
    topology = mdtraj.Topology()
    chain, masses, atoms = topology.add_chain(), iter(target.force_field.masses.tolist()), []
    for number, (residue, names) in enumerate(target.residues, 1):
        found = topology.add_residue(residue, chain, number)
        for name, mass in zip(names, masses, strict=False):
            element = mdtraj.element.Element.getByMass(mass)
            known = abs(element.mass - mass) < _SAME_MASS
            atoms.append(topology.add_atom(name, element if known else mdtraj.element.virtual, found))
    for i, j in {tuple(sorted(pair)) for pair in [*target.z_matrix.bonded.tolist(), *_bonds(target)[0].tolist()]}:
        topology.add_bond(atoms[i], atoms[j])
    return topology


def _checked(path: object, target: object) -> Path:
    if not isinstance(path, str | PathLike):
        raise TradeError(f"A trajectory must be the path of a file, got {check.shown(path)}.")
    check.instance(target, Molecule, "target", "a trade.targets.molecule.Molecule")
    return Path(path)


def _read_topology(topology: Any, target: Molecule) -> Any:
    mdtraj = check.library("mdtraj")
    if isinstance(topology, str | PathLike):
        try:
            topology = mdtraj.load_topology(str(topology))
        except Exception as error:
            raise TradeError(f"{topology} cannot be read as a topology: {check.reason(error)}.") from error
    check.instance(topology, mdtraj.Topology, "topology", "a topology of MDTraj, or a file that has one")
    if topology.n_atoms != target.z_matrix.atoms:
        raise TradeError(f"topology has {topology.n_atoms} atoms, the molecule has {target.z_matrix.atoms}.")
    return topology


def _bonds(target: Molecule) -> tuple[np.ndarray, np.ndarray]:
    """Both atoms of every bond of the force field, and its length at rest."""
    field = target.force_field
    atoms = np.concatenate([field.bonds.atoms.reshape(-1, 2), field.constraints.atoms.reshape(-1, 2)])
    return atoms.astype(int), np.concatenate([field.bonds.rest, field.constraints.length])


def _check_bonds(frames: np.ndarray, target: Molecule, path: Path) -> None:
    """Refuse positions in another unit or order, or of a molecule that is torn by a periodic box."""
    pairs, rest = _bonds(target)
    length = np.linalg.norm(frames[:, pairs[:, 0]] - frames[:, pairs[:, 1]], axis=-1)
    wrong = np.argwhere((length > _STRETCH * rest) | (length < rest / _STRETCH))
    if len(wrong):
        frame, bond = wrong[0]
        raise TradeError(
            f"{path} has a bond of {length[frame, bond]:.3g} nm between atoms {pairs[bond, 0]} and {pairs[bond, 1]} in"
            f" frame {frame}, where the target has {rest[bond]:.3g} nm: atoms must be whole and in the target's order."
        )


@eqx.filter_jit
def _in_parts(target: Molecule, function: Any, values: Array) -> Array:
    return jax.lax.map(lambda v: function(target, v), values, batch_size=_AT_ONCE)

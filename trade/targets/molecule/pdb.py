"""Samples as a PDB file of many models, for VMD, PyMOL or NGLView."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jax.typing import ArrayLike

from trade import check
from trade.errors import TradeError


def write_pdb(path: str | Path, positions: ArrayLike, residues: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Write one model per frame.

    Args:
        path: The file.
        positions: In nm, of shape (frames, atoms, 3) or (atoms, 3).
        residues: Names of the residues, in order, and of the atoms of each; an element is the first letter.
    """
    pairs = isinstance(residues, tuple | list) and all(isinstance(r, tuple | list) and len(r) == 2 for r in residues)
    if not pairs or not all(isinstance(names, tuple | list) for _, names in residues):
        raise TradeError(f"residues must be pairs (residue, names of its atoms), got {check.shown(residues)}.")
    frames = np.asarray(check.array(positions, "positions"), float)
    frames = frames[None] if frames.ndim == 2 else frames
    atoms = [(residue, i, name) for i, (residue, names) in enumerate(residues, 1) for name in names]
    if frames.ndim != 3 or frames.shape[1:] != (len(atoms), 3):
        raise TradeError(f"write_pdb takes positions of shape (frames, {len(atoms)}, 3), got {frames.shape}.")
    if not np.isfinite(frames).all() or np.abs(frames).max(initial=0.0) >= 1000.0:
        raise TradeError("write_pdb takes finite positions below 1000 nm: a PDB file has no room for more.")
    lines = []
    for number, frame in enumerate(frames, 1):
        lines.append(f"MODEL     {number:4d}")
        for serial, ((residue, i, name), (x, y, z)) in enumerate(zip(atoms, 10.0 * frame, strict=True), 1):
            lines.append(
                f"ATOM  {serial:5d} {name if len(name) == 4 else ' ' + name:<4s} {residue:>3s} A{i:4d}    "
                f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00          {name[0]:>2s}"
            )
        lines += ["TER", "ENDMDL"]
    try:
        Path(path).write_text("\n".join([*lines, "END", ""]))
    except (OSError, TypeError) as error:
        raise TradeError(f"write_pdb cannot write {check.shown(path)}: {check.reason(error)}.") from error

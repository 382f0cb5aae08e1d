"""What a user gives, checked by one function for each kind."""

import math
import operator
import warnings
from collections.abc import Callable
from importlib import import_module
from math import prod
from numbers import Real
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from trade.errors import TradeError

MOST_NUMBERS = 2**31  # drawn at once: more have no room, and 32-bit indices do not count them
T = TypeVar("T")


def shown(value: object) -> str:
    """A value as a message shows it: on one line, and not too long."""
    if isinstance(value, np.ndarray | Array) and value.ndim:
        return f"an array of shape {value.shape}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def reason(error: BaseException) -> str:
    """Why something failed, in the first line of its own words."""
    line = (str(error).strip().splitlines() or [""])[0].rstrip(" .") or type(error).__name__
    return line if len(line) <= 120 else f"{line[:117]}..."


def _is_real(dtype: Any) -> bool:
    """Whether entries are floats (also those that NumPy does not know, such as bfloat16) or integers."""
    return jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)


def as_real(value: object) -> float:
    """A real number as a float, and NaN for anything else."""
    if isinstance(value, np.ndarray | np.generic | Array):
        known = value.ndim == 0 and _is_real(value.dtype)
    else:
        known = isinstance(value, Real) and not isinstance(value, bool)
    try:
        return float(value) if known else math.nan  # pyright: ignore
    except (TypeError, OverflowError):  # a traced value, an integer beyond all floats
        return math.nan


def integer(value: object, name: str, least: int = 1, most: int | None = None, *, takes: str = "") -> int:
    """An integer of Python, NumPy or JAX within bounds, or one sentence on why it is none.

    Args:
        value: What was given.
        name: What the user calls it.
        least: The smallest one.
        most: The largest one.
        takes: What the sentence says is taken, in other words than those of the bounds.
    """
    try:
        found = None if isinstance(value, bool) else operator.index(value)  # pyright: ignore
    except TypeError:
        found = None
    if found is None or found < least or (most is not None and found > most):
        bounds = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"
        raise TradeError(f"{name} must be {takes or bounds}, got {shown(value)}.")
    return found


def number(
    value: object,
    name: str,
    low: float | None = None,
    high: float | None = None,
    *,
    open_low: bool = False,
    open_high: bool = False,
    takes: str = "",
) -> float:
    """A finite real number of Python, NumPy or JAX within bounds, or one sentence on why it is none.

    Args:
        value: What was given.
        name: What the user calls it.
        low: The lower bound.
        high: The upper bound.
        open_low: Whether the lower bound itself is refused.
        open_high: Whether the upper bound itself is refused.
        takes: What the sentence says is taken, in other words than those of the bounds.
    """
    found = as_real(value)
    above = low is None or found > low or (found == low and not open_low)
    below = high is None or found < high or (found == high and not open_high)
    if not (math.isfinite(found) and above and below):
        takes = takes or _takes(low, high, open_low=open_low, open_high=open_high)
        raise TradeError(f"{name} must be {takes}, got {shown(value)}.")
    return found


def _takes(low: float | None, high: float | None, *, open_low: bool, open_high: bool) -> str:
    if low is not None and high is not None:
        return f"a number in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
    if low is None:
        return "a finite number" if high is None else f"a number {'below' if open_high else 'of at most'} {high:g}"
    if low == 0:
        return "a positive number" if open_low else "a number that is not negative"
    return f"a number {'above' if open_low else 'of at least'} {low:g}"


def integers(owner: object, **least: int) -> None:
    """Integers among the attributes of a frozen dataclass, refused by the name of its class.

    Args:
        owner: Whose attributes they are.
        least: The smallest value of each.
    """
    for name, smallest in least.items():
        _keep(owner, name, integer(getattr(owner, name), _of(owner, name), smallest))


def numbers(owner: object, *names: str, **bounds: Any) -> None:
    """Numbers among the attributes of a frozen dataclass, all with the same bounds (see ``number``)."""
    for name in names:
        _keep(owner, name, number(getattr(owner, name), _of(owner, name), **bounds))


def flags(owner: object, *names: str) -> None:
    """True or False among the attributes of a frozen dataclass."""
    for name in names:
        _keep(owner, name, flag(getattr(owner, name), _of(owner, name)))


def flag(value: object, name: str) -> bool:
    """True or False, and no other thing that has a truth."""
    if not isinstance(value, bool | np.bool_):
        raise TradeError(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def choice(value: object, name: str, *options: str) -> None:
    """Refuse what is none of a few words."""
    if not isinstance(value, str) or value not in options:
        raise TradeError(f"{name} must be {' or '.join(map(repr, options))}, got {shown(value)}.")


def function(value: object, name: str, of: str = "") -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise TradeError(f"{name} must be a function{of and ' of '}{of}, got {shown(value)}.")


def instance(value: object, kind: Any, name: str, takes: str) -> None:
    """Refuse an object of another class."""
    if not isinstance(value, kind):
        raise TradeError(f"{name} must be {takes}, got {shown(value)}.")


def member(value: object, name: str, takes: str, *methods: str) -> None:
    """Refuse an object without the methods of its axis; also a class, whose parentheses were forgotten."""
    if isinstance(value, type) or not all(callable(getattr(value, m, None)) for m in methods):
        raise TradeError(f"{name} must be {takes}, got {shown(value)}.")


def array(value: object, name: str, shape: tuple[int, ...] | None = None, *, finite: bool = False) -> Any:
    """Real numbers as an array of NumPy, or of JAX where it was one: floats or integers of any size.

    Args:
        value: What was given.
        name: What the user calls it.
        shape: The shape that is taken; any by default. A first entry of -1 stands for one number or more.
        finite: Whether NaN and infinity are refused (not of a traced value, which has none yet).
    """
    try:
        found = value if isinstance(value, Array) else np.asarray(value)
    except Exception as error:
        raise TradeError(f"{name} must be an array of numbers, got {type(value).__name__}.") from error
    if not _is_real(found.dtype):
        of = "real numbers" if jnp.issubdtype(found.dtype, jnp.complexfloating) else "numbers"
        entries = f" of {found.dtype}" if found.ndim else ""
        raise TradeError(f"{name} must be an array of {of}, got {type(value).__name__}{entries}.")
    if shape is not None and not _fits(found.shape, shape):
        wanted = str(shape) if shape[:1] != (-1,) else f"(n, {', '.join(map(str, shape[1:]))})"
        raise TradeError(f"{name} must have shape {wanted}, got {found.shape}.")
    if finite and not isinstance(found, Tracer) and not bool(jnp.isfinite(found).all()):
        raise TradeError(f"{name} must be finite, got NaN or infinite values.")
    return found


def _fits(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if shape[:1] != (-1,):
        return found == shape
    return len(found) == len(shape) and found[0] > 0 and found[1:] == shape[1:]


def count(n: object, shape: tuple[int, ...], name: str = "n", least: int = 1) -> int:
    """How many states of a shape are drawn, or one sentence on why they cannot be."""
    found = integer(n, name, least)
    if found * prod(shape) > MOST_NUMBERS:
        raise TradeError(f"{name} = {found} states of shape {shape} are too many at once: draw them in parts.")
    return found


def random_key(key: Any, name: str = "key") -> Array:
    """A JAX random key, typed or raw, or one sentence on why it is none."""
    is_array = isinstance(key, Array | np.ndarray)
    if is_array and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
        return key  # pyright: ignore
    if is_array and key.dtype == np.uint32 and key.shape == jax.eval_shape(jax.random.PRNGKey, 0).shape:
        return jnp.asarray(key)
    raise TradeError(f"{name} must be a JAX random key such as jax.random.key(0), got {shown(key)}.")


def called(name: str, function: Callable[..., T], *arguments: Any) -> T:
    """What a user's function returns, or one sentence that names it and says why it failed."""
    try:
        return function(*arguments)
    except TradeError:
        raise
    except Exception as error:
        raise TradeError(f"{name} failed: {reason(error)}.") from error


def library(name: str, extra: str = "export") -> Any:
    """A library that only some users need, imported when it is used, or one sentence on how to have it.

    Args:
        name: The module, such as ``"mdtraj"``.
        extra: Which of our extras installs it.

    Returns:
        The module.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a library has to say about itself
            return import_module(name)
    except ImportError as error:
        package = name.split(".", maxsplit=1)[0]
        raise TradeError(
            f"This needs {package}, which cannot be imported ({reason(error)}): pip install 'trade-flows[{extra}]'."
        ) from error


def _of(owner: object, name: str) -> str:
    return f"{type(owner).__name__} {name}"


def _keep(owner: object, name: str, value: object) -> None:
    object.__setattr__(owner, name, value)  # the way into a frozen dataclass

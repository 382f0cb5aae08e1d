"""Every public function says what it takes and what it gives; what implements a contract is documented there."""

import inspect
import re
import subprocess
import sys
from functools import cached_property
from types import ModuleType

import pytest

import trade
from trade.flows.conditioner import NetworkSpec
from trade.flows.flow import Recipe
from trade.flows.latent import LatentSpec
from trade.objectives.balance import Balance
from trade.objectives.condition_samplers import ConditionSampler
from trade.objectives.density import Density
from trade.objectives.expectation import Base, Expectation
from trade.objectives.penalty import Penalty
from trade.objectives.term import Objective, Term

ROOMS = (
    trade,
    trade.objectives,
    trade.flows,
    trade.targets,
    trade.sampling,
    trade.evaluation,
    trade.training,
)
PROTOCOLS = (Objective, Balance, ConditionSampler, Expectation, Base, Density, Penalty, NetworkSpec, LatentSpec)
CONTRACTS = (*PROTOCOLS, Term, Recipe, trade.AbstractTarget)


def is_ours(thing):
    return str(getattr(thing, "__module__", "")).split(".")[0] == "trade"


def exported():
    """The names of every room, and what is defined in the modules that a room exports by name."""
    for room in ROOMS:
        for name in room.__all__:
            found = getattr(room, name, None)
            if is_documented(found):
                yield found
            elif isinstance(found, ModuleType) and found not in ROOMS:
                own = [v for k, v in vars(found).items() if not k.startswith("_") and is_documented(v)]
                yield from (v for v in own if v.__module__ == found.__name__)


def is_documented(thing):
    return inspect.isclass(thing) or inspect.isroutine(thing)


def members(cls):
    """Public methods and properties of a class that are written in this project, by name."""
    for base in cls.__mro__:
        for name, found in vars(base).items():
            if is_ours(base) and (not name.startswith("_") or name == "__call__"):
                member = getattr(found, "__func__", found)  # of a classmethod or staticmethod
                if isinstance(member, property | cached_property) or (inspect.isroutine(member) and is_ours(member)):
                    yield base, name, member


def collected():
    """By qualified name: what is checked; of a method also its name, the class that has it, and where it is written."""
    items = {}
    for thing in (*exported(), *CONTRACTS):
        items.setdefault(f"{thing.__module__}.{thing.__qualname__}", (thing, None, None, None))
        for base, name, member in members(thing) if inspect.isclass(thing) else ():
            items.setdefault(f"{base.__module__}.{base.__qualname__}.{name}", (member, name, thing, base))
    return items


ITEMS = collected()


def parameters(thing):
    """Names of the parameters; of a method, without the object or class that it belongs to."""
    names = list(inspect.signature(thing).parameters)
    is_method = inspect.isroutine(thing) and "." in thing.__qualname__
    return names[1:] if is_method and names[:1] in (["self"], ["cls"]) else names


def listed(doc, section):
    """The names in a section of a docstring; None without the section."""
    found = re.search(rf"^{section}:\n((?: {{4}}.*\n?|\n)*)", inspect.cleandoc(doc), re.MULTILINE)
    return None if found is None else re.findall(r"^ {4}(\w+):", found[1], re.MULTILINE)


def missing(function):
    """What the docstring of a function lacks, in words."""
    doc, names = function.__doc__, parameters(function)
    if not doc:
        return "a docstring"
    if set(listed(doc, "Args") or []) != set(names):
        return f"Args: for {', '.join(names) or 'nothing'}"
    if inspect.signature(function).return_annotation is not None and listed(doc, "Returns") is None:
        return "Returns:"
    return ""


def implements(cls, protocol):
    wanted = [name for _, name, _ in members(protocol)]
    return all(hasattr(cls, name) for name in wanted)


def has_contract(function, name, cls, written):
    """Whether a base class, or a protocol that the class fulfils, documents the method with the same parameters."""
    above = cls.__mro__[cls.__mro__.index(written) + 1 :]
    for contract in (*above, *[p for p in PROTOCOLS if implements(cls, p) and p is not cls]):
        method = getattr(contract, name, None)
        if method is None or parameters(method) != parameters(function):
            continue
        if not is_ours(contract) or not missing(method):
            return True
    return False


@pytest.mark.parametrize("item", ITEMS)
def test_says_what_it_takes_and_gives(item):
    thing, name, cls, written = ITEMS[item]
    assert thing.__doc__, f"{item} needs a docstring"
    if inspect.isclass(thing):
        takes_nothing = issubclass(thing, Exception) or thing in PROTOCOLS
        names = [] if takes_nothing else parameters(thing)
        assert set(listed(thing.__doc__, "Args") or []) == set(names), f"{item} needs Args: for {', '.join(names)}"
    elif not isinstance(thing, property | cached_property):
        assert (cls and has_contract(thing, name, cls, written)) or not missing(thing), f"{item} needs {missing(thing)}"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_exported_name_exists(room):
    assert len(set(room.__all__)) == len(room.__all__)
    for name in room.__all__:
        assert hasattr(room, name), f"{room.__name__} has no {name}"


def test_exported_modules_are_there_after_import_trade():
    modules = [
        f"{room.__name__}.{name}"
        for room in ROOMS
        for name in room.__all__
        if isinstance(getattr(room, name, None), ModuleType)
    ]
    assert "trade.evaluation.calibration" in modules
    subprocess.run([sys.executable, "-c", f"import trade; {'; '.join(modules)}"], check=True)

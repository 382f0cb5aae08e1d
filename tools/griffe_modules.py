"""For the API pages: modules of Equinox and named tuples are as dataclasses: their fields are the arguments."""

from typing import Any

from griffe import Class, Decorator, Expr, ExprName, Extension, Module

BASES = ("equinox.Module", "flowjax.", "typing.NamedTuple")


class Modules(Extension):
    """Marks classes that derive from them, directly or through others, as dataclasses."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Once all of the package is read."""
        classes = {c.canonical_path: c for c in _classes(pkg)}
        for found in classes.values():
            if _is_module(found, classes) and "__init__" not in found.members:
                found.decorators.append(Decorator(ExprName("dataclasses.dataclass"), lineno=None, endlineno=None))


def _classes(module: Module) -> list[Class]:
    own = [m for m in module.members.values() if isinstance(m, Class)]
    return own + [c for m in module.members.values() if isinstance(m, Module) for c in _classes(m)]


def _is_module(found: Class, classes: dict[str, Class]) -> bool:
    for base in found.bases:
        path = base.canonical_path if isinstance(base, Expr) else str(base)
        if path.startswith(BASES) or (path in classes and _is_module(classes[path], classes)):
            return True
    return False

"""The one exception a user sees for input that cannot be used."""


class TradeError(ValueError):
    """Bad input: one sentence that names the thing, what it got and what it takes."""


class NonFiniteError(RuntimeError):
    """Training stopped: too many steps in a row had a non-finite loss or gradient."""


def check_integers(owner: object, **least: int) -> None:
    """Refuse a setting that is no integer, or too small, by the name of its class.

    Args:
        owner: Whose attributes they are.
        least: The smallest value of each.
    """
    for name, smallest in least.items():
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
            raise TradeError(f"{type(owner).__name__} {name} must be an integer of at least {smallest}, got {value!r}.")

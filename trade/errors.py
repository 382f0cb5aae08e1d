"""The exceptions that a user sees."""


class TradeError(ValueError):
    """Bad input: one sentence that names the thing, what it got and what it takes."""


class UnknownError(TradeError):
    """A target was asked for what it does not know, such as exact samples."""


class NonFiniteError(RuntimeError):
    """Training stopped: too many steps in a row had a non-finite loss or gradient."""

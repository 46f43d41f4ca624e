"""Every method of the package, in the order in which it is listed."""

from fedadmm.algorithms import ALGORITHMS


def markdown() -> str:
    """Return the documentation of every method's class."""
    classes = "\n".join(f".. autoclass:: fedadmm.{kind.__name__}" for kind in dict.fromkeys(ALGORITHMS.values()))
    return f"```{{eval-rst}}\n{classes}\n```"

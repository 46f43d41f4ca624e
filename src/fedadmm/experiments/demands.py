"""What a method asks of the run that it is used in."""

from typing import Any

from fedadmm.core.algorithm import Algorithm
from fedadmm.core.errors import InputError
from fedadmm.core.participation import Independent, Participation, Uniform
from fedadmm.learning.task import LearningTask


def check_everyone(algorithm: Algorithm[Any, Any, Any], participation: Participation) -> None:
    """Refuse a rule that leaves clients out, where a method needs all of them; a user's function is trusted."""
    if not algorithm.needs_everyone:
        return
    shares = {Uniform: lambda rule: (rule.fraction,), Independent: lambda rule: rule.probabilities}
    found = shares[type(participation)](participation) if type(participation) in shares else ()
    if any(share < 1 for share in found):
        raise InputError(
            f"{type(algorithm).__name__} needs every client in every round, and participation is {min(found):g}; "
            "use participation = 1.0"
        )


def check_model(algorithm: Algorithm[Any, Any, Any], task: LearningTask) -> None:
    """Refuse a network for a method that takes Newton steps."""
    if algorithm.second_order and not task.is_linear:
        raise InputError(
            f"{type(algorithm).__name__} takes Newton steps, which need a convex problem, and the model is a network; "
            "use linear, logistic_regression or softmax_regression"
        )

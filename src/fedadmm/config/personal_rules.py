"""What model.personal asks of the rest: somebody has to train the parts that clients keep, and to score them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.errors import InputError
from fedadmm.core.metrics import metric_named
from fedadmm.core.optional import GradientsOnly, SecondOrder, trait
from fedadmm.training.choices import names_of
from fedadmm.training.local import LocalTraining

if TYPE_CHECKING:
    from fedadmm.config.compatibility import Options


def check_personal(algorithm: AnyAlgorithm, local: LocalTraining, personal: Sequence[str] | None) -> None:
    """Refuse personal parts that nothing would train, and keys that mean nothing without them."""
    if not personal:
        if local.personal_epochs is not None:
            raise InputError(f"personal_epochs={local.personal_epochs} has no personal parts; give model.personal")
        return
    if isinstance(personal, str):
        raise InputError(f"model.personal={personal!r} is not a list; write [{personal!r}]")
    if wrong := [pattern for pattern in personal if not isinstance(pattern, str)]:
        raise InputError(
            f"personal has {wrong[0]!r}, which is not a string; give patterns of names, such as ['head.*']"
        )
    if trait(algorithm, GradientsOnly) or trait(algorithm, SecondOrder):
        name = type(algorithm).__name__
        raise InputError(f"{name} has no local solve, which would train what model.personal keeps; use another method")
    if others := names_of(local.solver) - {"sgd"}:
        raise InputError(
            f"model.personal is trained in minibatches, and local has solver={min(others)!r}; leave one of them out"
        )


def check_personal_scores(options: Options, *, client_test: bool) -> None:
    """Refuse personal parts that nothing would score."""
    if not options.personal:
        return
    if not client_test:
        raise InputError(
            "model.personal keeps parts at each client, so no model is whole on the server, and none can be scored on "
            "common test examples; set data.client_test = 0.2, which scores each client on examples of its own"
        )
    needs_optimum = options.metric is not None and metric_named(options.metric, options.direction).needs_optimum
    for key, asked in (("metric", needs_optimum), ("certificate", options.certificate is not None)):
        if asked:
            raise InputError(
                f"{key} is about one objective of all clients, and model.personal leaves none; leave one out"
            )

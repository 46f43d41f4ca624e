"""What [privacy] asks of the rest: nothing may depend on a client, or tell of one, but by the noised sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.errors import InputError
from fedadmm.core.mean import is_float, is_number
from fedadmm.core.metrics import CLIENT_LOSS
from fedadmm.core.optional import CanOmitNumbers, SkipsCommunication, UploadsMoreThanChange, trait
from fedadmm.engine.probe import probe

if TYPE_CHECKING:
    from fedadmm.config.compatibility import Options
    from fedadmm.training.flat import FlatModel
    from fedadmm.uploads.settings import UploadSettings


def check_clipped(algorithm: AnyAlgorithm) -> None:
    """Refuse methods whose uploads cannot be clipped, or that say more than their vectors do."""
    name = type(algorithm).__name__
    if trait(algorithm, SkipsCommunication):
        raise InputError(f"{name} uploads models and not changes, which [privacy] would clip away; use another method")
    if trait(algorithm, UploadsMoreThanChange):
        raise InputError(
            f"{name} weighs what it uploads by numbers, so no state of a client fits a clipped upload; use another "
            "method with [privacy]"
        )
    upload, silenced = probe(algorithm, torch.zeros(2)).upload, trait(algorithm, CanOmitNumbers)
    numbers = [key for key, value in upload._asdict().items() if is_number(value)]
    if numbers and not (silenced is not None and silenced.uploads_only_vectors):
        remedy = "use another method" if silenced is None else silenced.how_to_omit
        raise InputError(
            f"{name} uploads numbers beside its vectors ({', '.join(numbers)}), which no noise of [privacy] hides; "
            f"{remedy}"
        )
    if whole := [key for key, value in upload._asdict().items() if not (is_number(value) or is_float(value))]:
        raise InputError(
            f"{name} uploads whole numbers ({', '.join(whole)}), to which the noise of [privacy] cannot be added; "
            "upload them as floats"
        )


def check_alone(tables: UploadSettings) -> None:
    """Refuse tables about uploads for which the noise would promise nothing."""
    problems = {
        "compression changes an upload after its norm was bounded; leave out [compression]": tables.compression,
        "a robust mean is not a sum, to which a client can add only so much; leave out [robust]": tables.robust,
        'the attack "lie" is made of the uploads of others; use another attack': tables.attack is not None
        and tables.attack.name == "lie",
    }
    if tables.secure is not None and tables.privacy is not None and tables.privacy.adaptive is not None:
        raise InputError(
            "privacy.adaptive lets each client tell whether its upload was within clip, and with [secure] the server "
            "learns sums alone; leave one of them out"
        )
    for problem, holds in problems.items():
        if holds:
            raise InputError(f"with [privacy] noise hides what one client can add to a sum, and {problem}")


def check_privacy(options: Options) -> None:
    """Refuse settings that would tell more of a client than the noised sums do."""
    problems = {
        'weighting="examples" tells how many examples clients have; use weighting = "equal"': options.weighting
        != "equal",
        f"max_norm={options.max_norm!r} is measured on other clients; use a number, or leave it out": isinstance(
            options.max_norm, str
        ),
        "a certificate is made of the clients' gradients; leave out [certificate]": options.certificate is not None,
        'metric="client_loss" is of the clients\' own data; use a metric on test examples': options.metric
        == CLIENT_LOSS.name,
        "an asynchronous server takes who comes first, and not who was drawn; leave out clock.asynchronous": (
            options.clock is not None and options.clock.asynchronous is not None
        ),
        "who meets clock.deadline would depend on how long other clients took in the rounds before; leave out "
        "clock.availability": options.clock is not None
        and options.clock.deadline is not None
        and options.clock.availability is not None,
    }
    for problem, holds in problems.items():
        if holds:
            raise InputError(f"with [privacy] a round releases a noised sum and nothing else, and {problem}")


def check_buffers(model: FlatModel) -> None:
    """Refuse a model whose buffers would travel beside the noised sums."""
    if any(part.numel() for part in model.buffers()):
        raise InputError(
            "with [privacy] a round releases a noised sum and nothing else, and the model's buffers (batch "
            "normalisation) are averages of the clients' data; use a model without them, such as with group "
            'normalisation, or let clients keep theirs: model.personal = ["*.bn*"]'
        )

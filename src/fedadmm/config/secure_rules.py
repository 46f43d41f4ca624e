"""What does not go with secure aggregation, each with the reason."""

from importlib.util import find_spec

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.errors import InputError
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.uploads.settings import UploadSettings


def check_secure(
    algorithm: AnyAlgorithm,
    tables: UploadSettings,
    *,
    max_norm: float | str | None,
    weighting: str = "equal",
    asynchronous: bool = False,
) -> None:
    """Refuse what would need an upload of its own where nobody sees one."""
    if tables.secure is None:
        return
    if find_spec("cryptography") is None:
        raise InputError('[secure] needs cryptography; pip install "fedadmm[secure]"')
    if trait(algorithm, SkipsCommunication):
        raise InputError(
            f"{type(algorithm).__name__}'s clients go on alone between communications, and [secure] keeps what was "
            "rounded off an upload that arrived; leave it out"
        )
    if tables.robust is not None:
        raise InputError(
            f'robust.name="{tables.robust.name}" compares uploads with each other, and with [secure] the server sees '
            "their sum alone; leave one of them out"
        )
    if tables.attack is not None and tables.attack.name == "lie":
        raise InputError(
            'attack.name="lie" is made of the uploads of others, and with [secure] nobody sees them; use another attack'
        )
    if tables.compression is not None:
        raise InputError(
            "[compression] gives each client scales or places of its own, and [secure] adds uploads without looking at "
            "them; leave it out, and use secure.bits = 16 for shorter uploads"
        )
    if isinstance(max_norm, str):
        raise InputError(
            f"max_norm={max_norm!r} is a multiple of the median norm, and with [secure] nobody knows the norms; give a "
            "number, which each client then keeps to"
        )
    if weighting == "examples":
        raise InputError(
            'weighting="examples" needs the number of examples of each client, and [secure] adds uploads that weigh '
            'the same; use weighting = "equal"'
        )
    if asynchronous:
        raise InputError(
            "an asynchronous server takes uploads as they come, and [secure] adds those of one round, whose clients "
            "have agreed on masks before; leave out clock.asynchronous"
        )


def check_unmasked(tables: UploadSettings, *, num_buffers: int) -> None:
    """Refuse a model whose buffers would travel beside uploads that are hidden."""
    if tables.secure is not None and num_buffers:
        raise InputError(
            f"the model has {num_buffers} numbers in buffers (batch normalisation), which would travel beside the "
            "masked uploads for all to see; use a model without buffers, such as one with group normalisation"
        )

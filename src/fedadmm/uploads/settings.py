"""The tables of an experiment that say what becomes of uploads; how a mechanism plugs in is in core/transport.py."""

from typing import Annotated, Any

from pydantic import AfterValidator, PlainSerializer

from fedadmm.core.errors import InputError, import_named, near_names
from fedadmm.core.settings import Count, Fraction, Settings

COMPRESSORS = ("bfloat16", "int8", "int4", "top_k", "random_k")
FUNCTIONS = ("compress", "decompress")


def _compressor(value: Any) -> Any:
    """Return one of our names, or what has the two functions of a compressor, found if it was named."""
    if isinstance(value, str) and ":" not in value:
        if value not in COMPRESSORS:
            raise InputError(f"name={value!r} is unknown; {near_names(value, COMPRESSORS, what='compressors')}")
        return value
    found = import_named(value, what="compressor") if isinstance(value, str) else value
    if missing := [name for name in FUNCTIONS if not callable(getattr(found, name, None))]:
        raise InputError(f"compressor {value!r} has no {' and no '.join(missing)}; a compressor is these two functions")
    return value


def name_of(compressor: Any) -> str:
    """Return a compressor as an experiment's file names it."""
    if isinstance(compressor, str):
        return compressor
    named = compressor if hasattr(compressor, "__qualname__") else type(compressor)
    return f"{named.__module__}:{named.__qualname__}" if hasattr(named, "__qualname__") else str(named.__name__)


class Compression(Settings):
    """How uploads are made shorter before they travel.

    name = "int8": "bfloat16", "int8", "int4" (rounded, with a scale for each block), "top_k" (the largest coordinates),
        "random_k" (some, drawn anew each time), or "package.module:object" with the functions compress(vector,
        generator), which returns arrays by name, and decompress(arrays, size, generator).
    error_feedback = true: what was left out is kept and added to the client's next upload. Rounding is then to the
        nearest; without it, "int8", "int4" and "random_k" are unbiased: right in the mean over their random numbers.
    block = 256: coordinates that share a scale, for "int8" and "int4".
    keep = 0.1: the share of the coordinates that is sent, for "top_k" and "random_k".
    """

    name: Annotated[Any, AfterValidator(_compressor), PlainSerializer(name_of)]
    error_feedback: bool = False
    block: Count | None = None
    keep: Fraction | None = None

    def model_post_init(self, context: Any) -> None:
        """Refuse keys that another compressor has, and ask for those that this one needs."""
        for key, owners in (("block", ("int8", "int4")), ("keep", ("top_k", "random_k"))):
            if getattr(self, key) is not None and self.name not in owners:
                raise InputError(f"{key}={getattr(self, key)} is for {' and '.join(owners)}; leave it out")
        if self.name in ("top_k", "random_k") and self.keep is None:
            raise InputError(f'name="{self.name}" needs to know how much is sent; set keep = 0.1')


# The tables, by their names in an experiment, in `simulate` and in the Flower app.
TABLES: dict[str, type[Settings]] = {"compression": Compression}


def keeps_held_back(compression: Compression | None) -> bool:
    """Return whether clients keep what was left out of their uploads."""
    return compression is not None and compression.error_feedback

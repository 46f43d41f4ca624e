"""The tables of an experiment that say what becomes of uploads; how a mechanism plugs in is in core/transport.py."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, PlainSerializer

from fedadmm.core.errors import InputError, name_of, near_names
from fedadmm.core.settings import Count, Fraction, MaxNorm, NonNegative, Positive, Probability, Settings, within
from fedadmm.secure.settings import Secure
from fedadmm.uploads.accountant import Sampling

COMPRESSORS = ("bfloat16", "int8", "int4", "top_k", "random_k")
FUNCTIONS = ("compress", "decompress")


def _compressor(value: Any) -> Any:
    """Return one of our names, the name of a user's object, which is found when it is needed, or such an object."""
    if isinstance(value, str) and ":" not in value and value not in COMPRESSORS:
        raise InputError(f"name={value!r} is unknown; {near_names(value, COMPRESSORS, what='compressors')}")
    return value if isinstance(value, str) else with_functions(value)


def with_functions(compressor: Any) -> Any:
    """Return a user's compressor; refuse one that lacks one of its two functions."""
    if missing := [name for name in FUNCTIONS if not callable(getattr(compressor, name, None))]:
        lacks = " and no ".join(missing)
        raise InputError(f"compressor {name_of(compressor)!r} has no {lacks}; a compressor is these two functions")
    return compressor


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
        _check_keys(self, {"block": ("int8", "int4"), "keep": ("top_k", "random_k")}, needed={"keep": "0.1"})


class Robust(Settings):
    """What takes the place of the mean of a round's uploads, so that a few wrong ones do little harm.

    name = "trimmed_mean": "median" (of each coordinate), "trimmed_mean" (of each coordinate, without its ends), "krum"
        (the upload whose neighbours are nearest), "geometric_median", or "norm_clip" (the mean of shortened uploads).
    trim = 0.2: of "trimmed_mean": the share of the uploads that is left out at each end.
    liars = 3: of "krum": how many of a round's uploads may be wrong; a round needs 2 liars + 3, and one of fewer is
        void.
    select = 2: of "krum": how many of the best uploads are averaged; left out, one.
    norm = 1.0: of "norm_clip": the length to which longer uploads are shortened; a number, or "1x" for a multiple of
        the median length in the round. With a number clients clip too, so that what they keep is what was sent.
    """

    name: Literal["median", "trimmed_mean", "krum", "geometric_median", "norm_clip"]
    trim: Annotated[float, within("a number from 0 to below 0.5", lambda share: 0 <= share < 0.5)] | None = None
    liars: Annotated[int, within("a whole number from 0 on", lambda count: count >= 0)] | None = None
    select: Count | None = None
    norm: MaxNorm | None = None

    def model_post_init(self, context: Any) -> None:
        """Refuse keys that another rule has, and ask for those that this one needs."""
        owners = {"trim": ("trimmed_mean",), "liars": ("krum",), "select": ("krum",), "norm": ("norm_clip",)}
        _check_keys(self, owners, needed={"trim": "0.2", "liars": "1", "norm": '"1x"'})

    @property
    def fewest(self) -> int:
        """The fewest uploads of which the rule makes something."""
        return max(1, 2 * self.liars + 3) if self.liars is not None else 1


class Attack(Settings):
    """Clients of the simulation that send something wrong, always the same ones.

    name = "sign_flip": "sign_flip" (the upload with the other sign), "scaling", "noise" (normal noise on it),
        "label_flip" (trained honestly on classes in reverse order), or "lie" (what the attackers of a round agree on:
        the mean of their uploads, shifted within their spread).
    share = 0.2: the share of the clients that attack.
    factor = 10: what the upload is multiplied by ("sign_flip": 1, "scaling": 10), how many times as long as the upload
        the noise is (10), or by how many deviations a lie is shifted (left out, as many as the paper's rule allows).
    """

    name: Literal["sign_flip", "scaling", "noise", "label_flip", "lie"]
    share: Probability
    factor: Positive | None = None

    def model_post_init(self, context: Any) -> None:
        """Refuse a factor that nothing is multiplied by."""
        _check_keys(self, {"factor": ("sign_flip", "scaling", "noise", "lie")}, needed={})


def _check_keys(settings: Any, owners: Mapping[str, tuple[str, ...]], *, needed: Mapping[str, str]) -> None:
    """Refuse keys that belong to other names, and ask for those that this name needs, with an example each."""
    for key, names in owners.items():
        value, is_own = getattr(settings, key), settings.name in names
        if value is not None and not is_own:
            raise InputError(f"{key}={value} is for {' and '.join(names)}; leave it out")
        if value is None and is_own and key in needed:
            raise InputError(f'name="{settings.name}" needs {key}; set {key} = {needed[key]}')


class AdaptiveClip(Settings):
    """A clip that follows a quantile of the norms of the clients' uploads (Andrew et al., NeurIPS 2021).

    quantile = 0.5: the share of the uploads that shall be no longer than clip.
    learning_rate = 0.2: how fast clip follows: it is multiplied by exp(0.2 x (quantile - share of uploads within it)).
    count_noise = 5: the standard deviation of the noise on the number of uploads within clip, which takes its part of
        the budget: above half of noise. Left out: a 20th of the clients of a round, or `noise` if that is more.
    """

    quantile: Probability = 0.5
    learning_rate: Positive = 0.2
    count_noise: Positive | None = None


Clip = Annotated[float, within("a number greater than 0", lambda x: x > 0)]
Delta = Annotated[float, within("a number above 0, below 1 / number of clients", lambda x: 0 < x < 1)]


class Privacy(Settings):
    """Differential privacy of clients: they clip what they send, and a round releases its noised sum (docs/PRIVACY.md).

    clip = 1.0: the norm to which a client shortens its upload, all vectors of it together.
    noise = 1.0: the standard deviation of the noise on the sum of a round's uploads, over clip. Left out: what epsilon
        needs.
    epsilon = 8: what the run may cost. With noise, it ends before the round that would cost more; without, the noise is
        such that its rounds cost this.
    delta = 1e-5: the probability with which epsilon may be exceeded: well below 1 / number of clients.
    rounds = 100: over which epsilon is spread, where noise is left out; left out too, all rounds of the experiment.
    sampling = "fixed": how a round draws its clients: each with the probability `participation` ("poisson"), or a fixed
        number ("fixed"), which costs more and protects against the replacement of a client.
    adaptive = {quantile = 0.5}: lets clip follow a quantile of the norms, from `clip` on; left out, it stays.
    """

    clip: Clip
    delta: Delta
    noise: NonNegative | None = None
    epsilon: Positive | None = None
    rounds: Count | None = None
    sampling: Sampling = "poisson"
    adaptive: AdaptiveClip | None = None

    def model_post_init(self, context: Any) -> None:
        """Refuse keys that contradict each other."""
        if self.noise is None and self.epsilon is None:
            raise InputError("privacy says neither how much noise there is nor what it may cost; set noise, or epsilon")
        if self.noise is not None and self.rounds is not None:
            raise InputError(
                f"rounds={self.rounds} is used only where the noise is found from epsilon; leave rounds or noise out"
            )
        if self.clip == math.inf and (self.noise != 0 or self.adaptive is not None):
            raise InputError("clip=inf bounds no upload, so no noise hides one; use a number such as 1.0")

    def over(self, rounds: int) -> "Privacy":
        """Return the table with the rounds of its experiment, where epsilon is spread over those."""
        return self.replace(rounds=rounds) if self.noise is None and self.rounds is None else self


# The tables, by their names in an experiment, in `simulate` and in the Flower app.
TABLES: dict[str, type[Settings]] = {
    "compression": Compression,
    "robust": Robust,
    "attack": Attack,
    "privacy": Privacy,
    "secure": Secure,
}


class UploadSettings(NamedTuple):
    """The tables about uploads, None where there is none."""

    compression: Compression | None = None
    robust: Robust | None = None
    attack: Attack | None = None
    privacy: Privacy | None = None
    secure: Secure | None = None

    @classmethod
    def of(cls, settings: Any) -> "UploadSettings":
        """Return the tables of whatever has them."""
        return cls(**{name: getattr(settings, name) for name in TABLES})

    def keep_rest(self, client: type[Any]) -> bool:
        """Return whether clients with states of this type keep what was left out of their uploads."""
        if self.compression is not None and self.compression.error_feedback:
            return True
        # Without what rounding leaves out, sums that the server keeps of states would drift from them. With noise they
        # do anyhow, and nothing may be added to what was clipped.
        return self.secure is not None and self.privacy is None and bool(client._fields)

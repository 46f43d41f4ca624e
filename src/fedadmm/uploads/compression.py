"""Compressors: a vector goes in, arrays come out, and the vector is made again of them, not quite the same.

Without error feedback a compressor should be unbiased: E[C(x)] = x. With it, a contraction: |C(x) - x| < |x|. So
rounding is stochastic without and to the nearest with it, and what random_k keeps is scaled by d / k without it alone.

QSGD (Alistarh et al., NeurIPS 2017, section 3.1): coordinate i of a bucket becomes scale sgn(x_i) xi_i, where xi_i is
l/s or (l + 1)/s, drawn so that its mean is |x_i| / scale. As in its experiments, the scale is the bucket's largest
|x_i|; s is 127 for int8 and 7 for int4.

Error feedback (Seide et al. 2014; Stich et al. 2018): c = C(u + e) is sent, and e <- u + e - c is kept. Where u is the
change of a quantity h that the server adds up, as in ADMM, u + e is h minus what the server knows of it, so this is
EF21 (Richtarik et al., NeurIPS 2021): c = C(h - g), g <- g + c.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fedadmm.core.algorithm import Message, Vector
from fedadmm.core.errors import calling, import_named, name_of
from fedadmm.core.mean import rebuilt
from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.core.state_parts import is_vector, vectors_of, with_vectors
from fedadmm.core.transport import Arrays, Sent
from fedadmm.uploads.settings import Compression, with_functions

BLOCK = 256  # coordinates that share a scale, unless the settings say otherwise


class Compressor(Protocol):
    """Two functions; the generator of the second begins where that of the first began."""

    def compress(self, vector: Vector, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """Return a vector [d] as arrays, whose dtypes and shapes depend on d alone."""

    def decompress(self, arrays: dict[str, torch.Tensor], size: int, generator: np.random.Generator) -> Vector:
        """Return the vector [size] that the arrays stand for."""


@dataclass(frozen=True)
class BFloat16:
    """The upper half of each float32, rounded to the nearest."""

    def compress(self, vector: Vector, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """Return the numbers as two bytes each; numpy knows no bfloat16, so they are called int16."""
        return {"bfloat16": vector.to(torch.bfloat16).view(torch.int16)}

    def decompress(self, arrays: dict[str, torch.Tensor], size: int, generator: np.random.Generator) -> Vector:
        """Return the numbers."""
        return arrays["bfloat16"].view(torch.bfloat16).float()


@dataclass(frozen=True)
class Quantised:
    """Whole numbers from -levels to levels, times a scale for each block."""

    levels: int  # 127: a byte each; 7: half a byte each
    block: int
    stochastic: bool

    def compress(self, vector: Vector, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """Return the whole numbers and the scales, which are the largest absolute values of the blocks."""
        blocks = _in_blocks(vector.double(), self.block)
        scale = blocks.abs().amax(dim=1).float()
        divisor = torch.where(scale > 0, scale, torch.ones_like(scale)).double()[:, None]
        numbers = (blocks / divisor * self.levels).reshape(-1)[: len(vector)]
        if self.stochastic:
            numbers = (numbers + torch.from_numpy(generator.random(len(vector)))).floor()
        whole = numbers.round().clamp(-self.levels, self.levels).to(torch.int8)
        return {"numbers": whole if self.levels > 7 else _halves(whole), "scale": scale}

    def decompress(self, arrays: dict[str, torch.Tensor], size: int, generator: np.random.Generator) -> Vector:
        """Return whole numbers times scale / levels."""
        packed = arrays["numbers"]
        whole = packed if self.levels > 7 else _whole(packed, size)
        blocks = _in_blocks(whole.double(), self.block) * (arrays["scale"].double()[:, None] / self.levels)
        return blocks.reshape(-1)[:size].float()


def _in_blocks(vector: Vector, block: int) -> torch.Tensor:
    rows = -(-len(vector) // block)
    return torch.nn.functional.pad(vector, (0, rows * block - len(vector))).view(rows, block)


def _halves(whole: torch.Tensor) -> torch.Tensor:
    """Return numbers from -8 to 7 as bytes of two."""
    pairs = torch.nn.functional.pad(whole + 8, (0, len(whole) % 2)).to(torch.uint8).view(-1, 2)
    return pairs[:, 0] | (pairs[:, 1] << 4)


def _whole(halves: torch.Tensor, size: int) -> torch.Tensor:
    pairs = torch.stack([halves & 15, halves >> 4], dim=1).reshape(-1)[:size]
    return pairs.to(torch.int8) - 8


@dataclass(frozen=True)
class TopK:
    """The coordinates of the largest absolute values; of equal ones the first."""

    keep: float

    def compress(self, vector: Vector, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """Return the values and their places: as numbers, or as a bit for each coordinate where that is shorter."""
        count = num_kept(self.keep, len(vector))
        order = vector.abs().sort(descending=True, stable=True).indices
        places = order[:count].sort().values
        if _as_bits(count, len(vector)):
            bits: npt.NDArray[np.bool_] = np.zeros(len(vector), dtype=np.bool_)
            bits[places.numpy()] = True
            return {"values": vector[places], "places": torch.from_numpy(np.packbits(bits))}
        return {"values": vector[places], "places": places.to(torch.int32)}

    def decompress(self, arrays: dict[str, torch.Tensor], size: int, generator: np.random.Generator) -> Vector:
        """Return the values in their places, and zeros; refuse places that compress would not have made."""
        values, found = arrays["values"], arrays["places"]
        count = num_kept(self.keep, size)
        if _as_bits(count, size):
            places = torch.from_numpy(np.flatnonzero(np.unpackbits(found.numpy(), count=size)))
        else:
            places = found.long()
        if (
            len(places) != count
            or bool((places.diff() <= 0).any())
            or not 0 <= int(places[0]) <= int(places[-1]) < size
        ):
            raise ValueError(f"the places of top_k are not {count} different ones of {size}")
        return values.new_zeros(size).index_copy(0, places, values)


@dataclass(frozen=True)
class RandomK:
    """Coordinates that are drawn; their places do not travel, because the server draws the same."""

    keep: float
    scaled: bool  # by d / k, which makes it unbiased

    def compress(self, vector: Vector, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """Return the values."""
        places = self._places(len(vector), generator)
        return {"values": vector[places] * (len(vector) / len(places) if self.scaled else 1.0)}

    def decompress(self, arrays: dict[str, torch.Tensor], size: int, generator: np.random.Generator) -> Vector:
        """Return the values in their places, and zeros."""
        return arrays["values"].new_zeros(size).index_copy(0, self._places(size, generator), arrays["values"])

    def _places(self, size: int, generator: np.random.Generator) -> torch.Tensor:
        drawn = generator.choice(size, size=num_kept(self.keep, size), replace=False, shuffle=False)
        return torch.from_numpy(np.sort(drawn))


def num_kept(keep: float, size: int) -> int:
    """Return how many of `size` coordinates a share is: one at least."""
    return min(size, max(1, round(keep * size)))


def _as_bits(count: int, size: int) -> bool:
    return 32 * count > size


def compressor_of(settings: Compression) -> Compressor:
    """Return the compressor that a table describes."""
    feedback, block = settings.error_feedback, settings.block or BLOCK
    if settings.name == "bfloat16":
        return BFloat16()
    if settings.name in ("int8", "int4"):
        return Quantised(127 if settings.name == "int8" else 7, block, stochastic=not feedback)
    if settings.keep is not None:
        return TopK(settings.keep) if settings.name == "top_k" else RandomK(settings.keep, scaled=not feedback)
    named = isinstance(settings.name, str)
    found: Compressor = with_functions(import_named(settings.name, what="compressor") if named else settings.name)
    return found


@dataclass(frozen=True)
class CompressionStep:
    """The step of a client that compresses the vectors of its upload, and the codec by which the server reads them."""

    settings: Compression
    seed: int
    like: Message  # an upload, for its form alone

    def __call__(self, sent: Sent, *, before: Message, assignment: Assignment) -> Sent:
        """Return the upload as the server will read it, and keep what was left out if that is sent later."""
        upload, feedback = sent.upload, self.settings.error_feedback
        if feedback and sent.held_back is not None:
            upload = with_vectors(upload, vectors_of(upload) + sent.held_back)
        wire = self._encoded(upload, client=assignment.client, round=assignment.round)
        read = self.decode(wire, client=assignment.client, round=assignment.round)
        held_back = vectors_of(upload) - vectors_of(read) if feedback else None
        return sent._replace(upload=read, held_back=held_back, wire=wire)

    def _encoded(self, upload: Message, *, client: int, round: int) -> Arrays:
        compressor, wire = compressor_of(self.settings), Arrays()
        for number, (name, field) in enumerate(zip(_names(upload), upload, strict=True)):
            if not is_vector(field):
                wire[name] = field
                continue
            with calling(f'compress of compressor "{name_of(self.settings.name)}"'):
                arrays = compressor.compress(field, self._generator(round, client, number))
            wire |= {f"{name}.{part}": array for part, array in arrays.items()}
        return wire

    def decode(self, wire: Arrays, *, client: int, round: int) -> Message:
        """Return the upload that a client sent in a round."""
        compressor, fields = compressor_of(self.settings), []
        for number, (name, like) in enumerate(zip(_names(self.like), self.like, strict=True)):
            if not is_vector(like):
                fields.append(wire[name])
                continue
            begins = f"{name}."
            arrays = {key.removeprefix(begins): array for key, array in wire.items() if key.startswith(begins)}
            with calling(f'decompress of compressor "{name_of(self.settings.name)}"'):
                found = compressor.decompress(arrays, len(like), self._generator(round, client, number))
            fields.append(found.to(like.dtype))
        return rebuilt(self.like, iter(fields))

    def form(self, upload: Message) -> Arrays:
        """Return arrays of the dtypes and shapes that an upload of this form travels in."""
        return self._encoded(upload, client=0, round=0)

    def _generator(self, round: int, client: int, field: int) -> np.random.Generator:
        return stream(self.seed, "compression", round, client, field)


def _names(message: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = message._fields
    return names

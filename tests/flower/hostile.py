"""What a hostile or broken node may send: each attack changes a true reply. It runs in the tests and on real nodes."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # flwr's dependencies announce their own removals on import
    from flwr.app import Array, ArrayRecord, Message

Attack = Callable[[Message], None]


def _upload(reply: Message) -> tuple[str, np.ndarray]:
    name = next(iter(reply.content.array_records["arrays"]))
    return name, reply.content.array_records["arrays"][name].numpy()


def sends(**changes: Any) -> Attack:
    """Return an attack that changes the fields of the first array, as they stand in the message."""

    def attack(reply: Message) -> None:
        name, upload = _upload(reply)
        true = Array(upload)
        fields = {"dtype": true.dtype, "shape": true.shape, "stype": true.stype, "data": true.data}
        made = {key: value(true.data) if callable(value) else value for key, value in changes.items()}
        reply.content.array_records["arrays"][name] = Array(**(fields | made))

    return attack


def converts(to: Callable[[np.ndarray], np.ndarray]) -> Attack:
    """Return an attack that sends another array in the place of the first."""

    def attack(reply: Message) -> None:
        name, upload = _upload(reply)
        reply.content.array_records["arrays"][name] = Array(np.asarray(to(upload.copy())))

    return attack


def says(record: str, **changes: Any) -> Attack:
    """Return an attack that changes the values of a record; None takes a value away."""

    def attack(reply: Message) -> None:
        for key, value in changes.items():
            key = key.replace("_", "-")
            if value is None:
                del reply.content[record][key]
            else:
                reply.content[record][key] = value

    return attack


def leaves_out(record: str) -> Attack:
    """Return an attack that leaves a record out."""
    return lambda reply: reply.content.pop(record)


def _npy(values: Any, dtype: str = "float32") -> bytes:
    return Array(np.asarray(values, dtype)).data


def _adds_an_array(reply: Message) -> None:
    reply.content.array_records["arrays"]["more"] = Array(np.zeros(3, np.float32))


def _renames(reply: Message) -> None:
    _, upload = _upload(reply)
    reply.content["arrays"] = ArrayRecord({"gradient": Array(upload)})


def _the_largest_numbers(upload: np.ndarray) -> np.ndarray:
    return np.full_like(upload, 3e38)


def _an_infinity(upload: np.ndarray) -> np.ndarray:
    upload[7] = np.inf
    return upload


# A trillion floats, by their header.
TRILLION = _npy(np.zeros(3)).replace(b"(3,), }          ", b"(1000000000000,), }")
assert b"1000000000000" in TRILLION

UPDATES: dict[str, Attack] = {
    "three values declared as all": sends(data=_npy([1, 2, 3])),
    "one value": converts(lambda upload: upload[:1]),
    "two rows": converts(lambda upload: np.stack([upload, upload])),
    "a scalar": converts(lambda upload: upload[0]),
    "no bytes": sends(data=b""),
    "a truncated array": sends(data=lambda data: data[:-5]),
    "more bytes than values": sends(data=lambda data: data + b"12345678"),
    "half a header": sends(data=lambda data: data[:20]),
    "the header of a trillion floats": sends(data=TRILLION),
    "a trillion floats": sends(data=TRILLION, shape=(10**12,)),
    "another header": sends(data=lambda data: data.replace(b"<f4", b"<i4", 1)),
    "another order of bytes": sends(data=lambda data: data.replace(b"<f4", b">f4", 1)),
    "another format of arrays": sends(stype="pickle"),
    "no numbers": sends(dtype="float32", data=b"x" * 5000),
    "complex numbers": converts(lambda upload: upload.astype(np.complex64)),
    "float64": converts(lambda upload: upload.astype(np.float64)),
    "bools": converts(lambda upload: upload > 0),
    "int32": converts(lambda upload: upload.astype(np.int32)),
    "an array too many": _adds_an_array,
    "an array of another name": _renames,
    "an infinity": converts(_an_infinity),
    "the largest numbers": converts(_the_largest_numbers),
    "a trillion times its update": converts(lambda upload: upload * np.float32(1e12)),
    "no arrays": leaves_out("arrays"),
    "no metrics": leaves_out("metrics"),
    "no config": leaves_out("config"),
    "infinitely many steps": says("metrics", steps=float("inf")),
    "fewer steps than none": says("metrics", steps=-1),
    "a list of steps": says("metrics", steps=[1, 2]),
    "no steps": says("metrics", steps=None),
    "a list as the loss": says("metrics", train_loss=[0.1, 0.2]),
    "finite is 2": says("metrics", finite=2),
    "an infinite client": says("config", client_id=float("inf")),
    "a client of a name": says("config", client_id="x"),
    "another client": says("config", client_id=0),
    "a client beyond all": says("config", client_id=99),
    "another request": says("config", number=7),
    "integers that are one number": says("config", integers=3),
    "an integer too many": says("config", integers=[3]),
    "integers that are words": says("config", integers=["x"]),
}


def parts(body: bytes) -> Attack:
    """Return an attack on the parts in which a reply travels: an array with another body than Flower's."""

    def attack(reply: Message) -> None:
        name, upload = _upload(reply)
        reply.content.array_records["arrays"][name] = _Array(upload, body)

    return attack


class _Array(Array):
    def __init__(self, upload: np.ndarray, body: bytes) -> None:
        super().__init__(upload)
        self.__dict__["_body"] = body

    def deflate(self) -> bytes:
        head = super().deflate().split(b"\0", 1)[0].rsplit(b" ", 1)[0]
        return head + b" %d" % len(self._body) + b"\0" + self._body


_Array.__qualname__ = "Array"  # as it is called on the wire

# Refused before they are put together, so they do nothing where nothing is taken apart: in one process.
PARTS: dict[str, Attack] = {
    "a part that is no array": parts(b"\xff"),
    "a part without its fields": parts(b"{}"),
    # 100,000 times 30 kB.
    "a chunk that is named again and again": parts(
        b'{"dtype": "float32", "shape": [7510], "stype": "numpy.ndarray", "arraychunk_ids": [%s]}'
        % b",".join([b"0"] * 100_000)
    ),
}

SCORES: dict[str, Attack] = {
    "no metrics": leaves_out("metrics"),
    "a list as the accuracy": says("metrics", accuracy=[0.1, 0.2]),
    "no number of examples": says("metrics", num_examples=None),
    "no examples": says("metrics", num_examples=0),
    "infinitely many examples": says("metrics", num_examples=float("inf")),
    "scores without end": says("metrics", **{f"score{n}": 1.0 for n in range(200)}),
}

DESCRIPTIONS: dict[str, Attack] = {
    "no config": leaves_out("config"),
    "no client": says("config", client_id=None),
    "a client of a name": says("config", client_id="x"),
    "an infinite client": says("config", client_id=float("inf")),
    "a client beyond all": says("config", client_id=99),
    "another client": says("config", client_id=0),
    "a model that is a number": says("config", model=3),
    "a model without end": says("config", model=["x"] * 1000),
    "older states that are a number": says("config", kept=3),
    "older states that are words": says("config", kept=["x"]),
    "older states without end": says("config", kept=list(range(1, 20_000))),
    "a digest instead of two": says("config", digests="x"),
    "digests without end": says("config", digests=["x"] * 1000),
}

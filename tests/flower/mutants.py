"""A true message in which some things were changed, drawn by hypothesis; its world is made once, and stays."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_grid import Array, Message

SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5), st.binary(max_size=5), st.booleans()
)
LISTS = st.one_of(*(st.lists(each, max_size=3) for each in (st.integers(-5, 5), st.floats(), st.binary(max_size=32))))


def mutants(message: Message, cases: int, check: Callable[[Message], None]) -> None:
    """Check mutants of a message, which is as it was afterwards."""
    content = message.content

    @settings(max_examples=cases, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def one(data: st.DataObject) -> None:
        message.content = type(content)({name: type(record)(dict(record)) for name, record in content.items()})
        for _ in range(data.draw(st.integers(1, 3))):
            data.draw(st.sampled_from([_a_record_goes, _a_value, _a_value, _an_array, _bytes]))(message.content, data)
        check(message)

    try:
        one()
    finally:
        message.content = content


def _a_record_goes(content: Any, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*content, "more"]))
    if name in content and data.draw(st.booleans()):
        content["more"] = content[name]
    else:
        content.pop(name, None)


def _a_value(content: Any, data: st.DataObject) -> None:
    records = [*content.metric_records.values(), *content.config_records.values()]
    if records:
        record = data.draw(st.sampled_from(records))
        key = data.draw(st.sampled_from([*record, "more"]))
        value = record.get(key)
        with suppress(TypeError, ValueError):  # Flower's records do not take everything
            if isinstance(value, list) and value and data.draw(st.booleans()):
                place = data.draw(st.integers(0, len(value) - 1))
                record[key] = [*value[:place], _other(value[place], data), *value[place + 1 :]]
            else:
                record[key] = _other(value, data) if data.draw(st.booleans()) else data.draw(st.one_of(SCALARS, LISTS))


def _other(value: Any, data: st.DataObject) -> Any:
    """Return a value of the same type and length, where that means something."""
    if isinstance(value, bytes) and value:
        place = data.draw(st.integers(0, len(value) - 1))
        return value[:place] + bytes([data.draw(st.integers(0, 255))]) + value[place + 1 :]
    return value + data.draw(st.integers(-2, 2)) if isinstance(value, int) else data.draw(SCALARS)


def _an_array(content: Any, data: st.DataObject) -> None:
    for arrays in content.array_records.values():
        shape = tuple(data.draw(st.lists(st.integers(-1, 10**12), max_size=3)))
        dtype = data.draw(st.sampled_from(["float32", "float64", "complex64", "object", "", "x"]))
        name = data.draw(st.sampled_from([*arrays, "more"]))
        arrays[name] = Array(dtype, shape, "numpy.ndarray", data.draw(st.binary(max_size=200)))


def _bytes(content: Any, data: st.DataObject) -> None:
    for arrays in content.array_records.values():
        for name, array in list(arrays.items()):
            changed = bytearray(array.data)
            for _ in range(data.draw(st.integers(1, 3)) if changed else 0):
                changed[data.draw(st.integers(0, min(len(changed) - 1, 300)))] = data.draw(st.integers(0, 255))
            arrays[name] = Array(array.dtype, array.shape, array.stype, bytes(changed))

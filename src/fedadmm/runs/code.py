"""The user's code that a run is made with: what its folder remembers of it, and whether it is still the same."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError, look_for_modules_in
from fedadmm.data.federated import PartitionedData
from fedadmm.data.fingerprint import digest_of_examples
from fedadmm.own_code.definitions import definitions
from fedadmm.own_code.values import made_of, values_of
from fedadmm.runs.assembly import Federation
from fedadmm.state.disk import DiskStore

logger = logging.getLogger(__name__)

CODE = "code"  # notes of the store
CHANGES = "changes of code"
NAME = re.compile(r"(?!hf:|python:)[^\W\d][\w.]*:[^\W\d][\w.]*")  # "package.module:function", in an experiment
SHOWN = 3  # definitions that a sentence names

Code = Mapping[str, str]  # digests, by the place of a definition, such as "own:model"


def code_of(experiment: Experiment, federation: Federation) -> dict[str, str]:
    """Return digests of all code of the user's that a run is made with, and of the values of objects from Python."""
    options, reader = federation.options, federation.task.reader
    given: dict[str, Any] = {"model": federation.task.model.module, "loss": options.loss}
    given |= {f"metrics.{name}": metric for name, metric in (options.metrics or {}).items()}
    if callable(options.participation):
        given["participation"] = options.participation
    if options.compression is not None and not isinstance(options.compression.name, str):
        given["compression"] = options.compression.name
    read = () if reader is None else (*reader.parts, reader.collate)
    used = {part for value in (*given.values(), federation.algorithm, *read) for part in made_of(value)}
    found = definitions([*used, *_named(experiment)])
    is_given = experiment.data.name.startswith("python:")
    if is_given:  # the digest that names the folder has initial weights and code, and no settings
        found |= {key: values_of(value, weights=key != "model") for key, value in given.items()}
    # Examples from Python that are in memory name the folder.
    is_lazy = reader is not None and reader.is_lazy
    if ":" in experiment.data.name and (is_lazy or not is_given) and isinstance(options.data, PartitionedData):
        found[EXAMPLES] = digest_of_examples(options.data)
    return found


def check_code(store: DiskStore, code: Code, *, size: int, accept: bool = False) -> list[str]:
    """Refuse to go on with other code than a folder's rounds were made with, unless that is accepted.

    size: the number of parameters now. Return what has changed.
    """
    noted, rounds = store.noted(CODE), len(store.records())
    if noted is None and code and rounds:
        logger.warning(
            "%s does not say with which code of yours its rounds were made; from round %d on it does",
            store.folder.parent,
            rounds + 1,
        )
    changed = [] if noted is None or not rounds else changes(json.loads(noted), code)
    if changed and not accept:
        raise has_changed(store, changed)
    if changed and (before := len(store.initial())) != size:
        raise InputError(
            f"the model in {store.folder.parent} has {before:,} parameters, and yours has {size:,} now; put it "
            "back, or give another --out"
        )
    return changed


def note_code(store: DiskStore, code: Code, changed: list[str]) -> None:
    """Remember the code that the next round is made with, and what of it has changed."""
    if changed:
        line = f"{', '.join(changed)} changed before round {len(store.records()) + 1}"
        store.note(CHANGES, "\n".join([*(store.noted(CHANGES) or "").splitlines(), line]))
    if code and json.loads(store.noted(CODE) or "{}") != code:
        store.note(CODE, json.dumps(code))


def check_same_code(store: DiskStore, code: Code) -> None:
    """Refuse to look at a run with other code than it was made with."""
    noted = store.noted(CODE)
    if noted is not None and (changed := changes(json.loads(noted), code)):
        raise has_changed(store, changed)


def changes(before: Code, now: Code) -> list[str]:
    """Return what of the user's code is another now, with the versions of packages."""
    found = sorted(place for place in before.keys() | now.keys() if before.get(place) != now.get(place))
    return [
        f"{place} ({before.get(place)} before)"
        if ":" not in place and place != EXAMPLES and place.partition(".")[0] not in VALUES
        else place
        for place in found
    ]


EXAMPLES = "the examples"
VALUES = ("model", "loss", "metrics", "participation", "compression")  # objects from Python, by their argument


def has_changed(store: DiskStore, changed: list[str]) -> InputError:
    """Return the refusal of code that has changed."""
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    told = f"the rounds in {store.folder.parent} were made with other code or data"
    return InputError(
        f"{told}: {', '.join(changed[:SHOWN])}{more} changed since; put it back, give another --out, or go on with "
        "rounds of both by --accept-code"
    )


def told_of(store: DiskStore, experiment: Experiment) -> str | None:
    """Return what there is to say of the user's code that a run was made with; None if there was none."""
    noted = store.noted(CODE)
    if noted is None:
        return None
    before = json.loads(noted)
    look_for_modules_in(Path.cwd())
    now = {place: digest for place, digest in definitions(_named(experiment)).items() if place in before}
    changed = changes({place: before[place] for place in now}, now)
    same = f"{len(now)} of {len(before)} digests are compared here"
    same += ", all as they were" if now else ""
    earlier = (store.noted(CHANGES) or "").splitlines()
    return "; ".join([f"changed since: {', '.join(changed)}" if changed else same, *earlier])


def _named(experiment: Experiment) -> Iterator[str]:
    """Yield the functions and classes that an experiment names."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):  # a solver's name is a key, too
            yield from texts([*value.keys(), *value.values()])
        elif isinstance(value, list | tuple):
            for inner in value:
                yield from texts(inner)

    yield from (text for text in texts(experiment.to_table()) if NAME.fullmatch(text))

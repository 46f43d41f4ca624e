"""The user's code that a run is made with: what its folder remembers of it, and whether it is still the same."""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
OF_A_RUN = "give another --out, or go on with rounds of both by --accept-code"  # what can be done

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
    found = definitions([*used, *named_in(experiment.to_table())])
    is_given = experiment.data.name.startswith("python:")
    if is_given:  # the digest that names the folder has initial weights and code, and no settings
        found |= {key: values_of(value, weights=key != "model") for key, value in given.items()}
    # Examples from Python that are in memory name the folder.
    is_lazy = reader is not None and reader.is_lazy
    is_own = ":" in experiment.data.name and (is_lazy or not is_given)
    if (is_own or ":" in experiment.data.partition) and isinstance(options.data, PartitionedData):
        found[EXAMPLES] = digest_of_examples(options.data)
    if not is_given and ":" in experiment.model.name:
        found[INITIAL] = _digest(federation.initial.numpy().tobytes())
    if experiment.devices is not None:
        facts = {key: np.asarray(values).tolist() for key, values in (options.devices or {}).items()}
        found[FACTS] = _digest(repr(sorted(facts.items())).encode())
    return found


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class Changes(NamedTuple):
    """What of the user's code is another than it was: the places of definitions."""

    changed: list[str]
    new: list[str]
    unused: list[str]  # that nothing uses any more; they may be as they were

    def __bool__(self) -> bool:
        return any(self)

    def told(self, when: str) -> str:
        """Return what has changed, such as "own:score changed since (new: own:half; no longer used: own:scaled)"."""
        others = {"new": self.new, "no longer used": self.unused}
        more = "; ".join(f"{what}: {_some(places)}" for what, places in others.items() if places)
        return f"{_some(self.changed) or 'what it uses'} changed {when}" + (f" ({more})" if more else "")


def check_code(store: DiskStore, code: Code, *, size: int, accept: bool = False, remedy: str = OF_A_RUN) -> Changes:
    """Refuse to go on with other code than a folder's rounds were made with, unless that is accepted.

    size: the number of parameters now. remedy: what else can be done than to put it back. Return what has changed.
    """
    noted, rounds = store.noted(CODE), len(store.records())
    if noted is None and code and rounds:
        logger.warning(
            "%s does not say with which code of yours its rounds were made; from round %d on it does",
            store.folder.parent,
            rounds + 1,
        )
    changed = changes(code if noted is None or not rounds else json.loads(noted), code)
    if changed and not accept:
        raise has_changed(store, changed, remedy=remedy)
    if changed and (before := len(store.initial())) != size:
        raise InputError(
            f"the model in {store.folder.parent} has {before:,} parameters, and yours has {size:,} now; put it "
            "back, or give another --out"
        )
    return changed


def note_code(store: DiskStore, code: Code, changed: Changes) -> None:
    """Remember the code that the next round is made with, and what of it has changed."""
    if changed:
        line = changed.told(f"before round {len(store.records()) + 1}")
        store.note(CHANGES, "\n".join([*accepted_changes(store), line]))
    if code and json.loads(store.noted(CODE) or "{}") != code:
        store.note(CODE, json.dumps(code))


def check_same_code(store: DiskStore, code: Code) -> None:
    """Refuse to look at a run with other code than it was made with."""
    noted = store.noted(CODE)
    if noted is not None and (changed := changes(json.loads(noted), code)):
        raise has_changed(store, changed)


def changes(before: Code, now: Code) -> Changes:
    """Return what of the user's code is another now, with the versions of packages."""
    changed = [_with_version(place, old) for place, old in before.items() if now.get(place, old) != old]
    return Changes(sorted(changed), sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys()))


EXAMPLES, INITIAL, FACTS = "the examples", "the initial model", "the facts of the devices"
VALUES = ("model", "loss", "metrics", "participation", "compression")  # objects from Python, by their argument


def _with_version(place: str, before: str) -> str:
    is_package = ":" not in place and place not in (EXAMPLES, INITIAL, FACTS) and place.partition(".")[0] not in VALUES
    return f"{place} ({before} before)" if is_package else place


def _some(places: list[str]) -> str:
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return f"{', '.join(places[:SHOWN])}{more}"


def has_changed(store: DiskStore, changed: Changes, *, remedy: str = OF_A_RUN) -> InputError:
    """Return the refusal of code that has changed."""
    return InputError(
        f"the rounds in {store.folder.parent} were made with other code or data: {changed.told('since')}; put it back, "
        f"{remedy}"
    )


def told_of(store: DiskStore, experiment: Experiment) -> str | None:
    """Return what there is to say of the user's code that the last round was made with; None if there was none."""
    noted = store.noted(CODE)
    if noted is None:
        return None
    before = json.loads(noted)
    look_for_modules_in(Path.cwd())
    now = {place: digest for place, digest in definitions(named_in(experiment.to_table())).items() if place in before}
    changed = changes({place: before[place] for place in now}, now)
    if changed:
        return changed.told("since the last round")
    same = ", all as they were at the last round" if now else ""
    return f"{len(now)} of {len(before)} digests are compared here{same}"


def accepted_changes(store: DiskStore) -> list[str]:
    """Return a line for each change of the user's code that rounds were made before and after."""
    return (store.noted(CHANGES) or "").splitlines()


def named_in(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the functions and classes that an experiment, or a table of it, names."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):  # a solver's name is a key, too
            yield from texts([*value.keys(), *value.values()])
        elif isinstance(value, list | tuple):
            for inner in value:
                yield from texts(inner)

    yield from (text for text in texts(dict(table)) if NAME.fullmatch(text))

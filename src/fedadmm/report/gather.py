"""Which runs a report is about: folders of run folders are searched, and what does not belong is named."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedadmm.core.errors import InputError
from fedadmm.core.files import dotted
from fedadmm.report.methods import without_repeats
from fedadmm.report.runs import RunData, read_run
from fedadmm.runs.folder import TUNING


class Gathered(NamedTuple):
    """The runs that were found, and a sentence for each folder that was left out."""

    runs: list[RunData]
    left_out: list[str]


def gather_runs(paths: Sequence[Path]) -> Gathered:
    """Return the runs in run folders and in folders of them; half-written, empty and repeated ones are left out."""
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no folder {path}; give run folders, or a folder of them such as runs")
    runs, left_out = [], []
    for folder in dict.fromkeys(folder for path in paths for folder in _run_folders(path)):
        run = _run_or_reason(folder)
        if isinstance(run, str):
            left_out.append(run)
        elif run.rounds:
            runs.append(run)
        else:
            left_out.append(f"{folder} has no finished round")
    kept, repeats = without_repeats(runs)
    left_out += [f"{run.path} repeats a run of the same method and seed" for run in repeats]
    if not kept:
        where = ", ".join(map(str, paths))
        raise InputError("; ".join([f"there is no run in {where}", *left_out, "make one with fedadmm run"]))
    return Gathered(kept, left_out)


def list_runs(folder: Path) -> Gathered:
    """Return the runs in a folder, in the order of their names; only those that cannot be read are left out."""
    files = sorted(folder.glob("*/experiment.toml"))
    found = [_run_or_reason(file.parent) for file in files if (file.parent / "rounds.jsonl").exists()]
    return Gathered([run for run in found if isinstance(run, RunData)], [r for r in found if isinstance(r, str)])


def by_setting(runs: Sequence[RunData]) -> list[list[RunData]]:
    """Return the runs that can be compared with each other (same data, metric and target), the most numerous first."""
    settings = [json.dumps(_setting(run), sort_keys=True, default=str) for run in runs]
    return [
        [run for run, own in zip(runs, settings, strict=True) if own == setting]
        for setting, _ in Counter(settings).most_common()
    ]


def differences(run: RunData, other: RunData) -> str:
    """Return in what the setting of a run is not that of another, such as data.name=mnist (not digits)."""
    mine, its = _setting(run), _setting(other)
    keys = [key for key in sorted(mine.keys() | its.keys()) if mine.get(key) != its.get(key)]
    return ", ".join(f"{key}={mine.get(key, 'none')} (not {its.get(key, 'none')})" for key in keys)


def setting_title(run: RunData) -> str:
    """Return the data and the partition of a run, as a heading."""
    data = run.experiment.get("data", {})
    clients = data.get("num_clients")
    parts = [data.get("name"), data.get("partition"), None if clients is None else f"{clients} clients"]
    return ", ".join(str(part) for part in parts if part is not None) or "runs"


def _run_or_reason(folder: Path) -> RunData | str:
    try:
        return read_run(folder)
    except InputError as error:
        return str(error)


def _setting(run: RunData) -> dict[str, Any]:
    """Return the keys that two runs must share to be compared; a partition's own key counts for that partition."""
    data = dict(run.experiment.get("data", {}))
    for key, partition in (("shards_per_client", "shards"), ("alpha", "dirichlet")):
        if data.get("partition") != partition:
            data.pop(key, None)
    return dotted({"data": data, "target": run.target, "metric": run.metric.name})


def _run_folders(path: Path) -> Iterator[Path]:
    """Yield the run folders at or below a path: also half-written and empty ones, which are to be named."""
    if not path.is_dir():
        return
    children = sorted(child for child in path.iterdir() if not child.name.startswith("."))
    if not children or any(child.name in ("experiment.toml", "rounds.jsonl", "lock") for child in children):
        yield path
        return
    for child in children:
        if child.name != TUNING:
            yield from _run_folders(child)

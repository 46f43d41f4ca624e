"""Rows that were made before gradients were clipped: they stand where a clip has nothing to change for the better."""

from collections.abc import Callable, Sequence

from fedadmm.config.experiment import Experiment
from fedadmm.runs.goal import Goal
from fedadmm.runs.records import Record


def as_made(seeds: Sequence[Experiment], read: Callable[[Experiment], Sequence[Record]]) -> Sequence[Experiment]:
    """Return the experiments of a row: without a clip if some were made so and all of those held, else as they are.

    A row is of one kind: its seeds are never mixed. One seed that diverged, collapsed or had an update refused is
    enough for all of them to be made again, with a clip.

    read: returns the rounds of an experiment that are among the results.
    """
    if all(one.local.clip is None for one in seeds):
        return seeds
    unclipped = [one.replace(local=one.local.replace(clip=None)) for one in seeds]
    made = [(one, records) for one in unclipped if (records := read(one))]
    return unclipped if made and all(_held(*run) for run in made) else seeds


def _held(experiment: Experiment, records: Sequence[Record]) -> bool:
    is_finished = Goal.of(experiment).status(records) == "finished"
    return is_finished and not any(record.refused for record in records)

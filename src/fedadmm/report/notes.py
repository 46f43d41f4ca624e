"""What is said below a table of methods: what was found, and what its marks mean."""

import json
from collections.abc import Sequence

from fedadmm.report.methods import MethodRuns, much_longer
from fedadmm.report.paired import paired_sentences
from fedadmm.report.table import family_sentence
from fedadmm.runs.records import MIXED_CODE

UNLIKE = ("learning_rate",)  # each method has its own
COLLAPSED = "Collapsed: the run ended worse than after its first round."


def findings(methods: Sequence[MethodRuns]) -> list[str]:
    """Return what the comparison amounts to: the paper's reduction, and whether the two best differ."""
    return [*filter(None, [family_sentence(methods)]), *paired_sentences(methods)[:1]]


def table_notes(methods: Sequence[MethodRuns]) -> list[str]:
    """Return what the marks in a table mean that stands alone, and which of its runs are not of one code."""
    target, metric = methods[0].runs[0].target, methods[0].metric
    notes = []
    if target is not None and not all(method.arrivals for method in methods):
        notes.append(
            f"N+ rounds: the {metric.title} did not reach {target:g} in the N rounds that there are, so no "
            'bytes are counted up to it: "-".'
        )
    if target is not None and any(0 < len(method.arrivals) < len(method.runs) for method in methods):
        notes.append("(2/3): two of three seeds arrived, and means are over those.")
    if any(run.status == "collapsed" for method in methods for run in method.runs):
        notes.append(COLLAPSED)
    return notes + unlike_runs(methods)


def unlike_runs(methods: Sequence[MethodRuns]) -> list[str]:
    """Return what makes runs harder to compare: other local work, seeds of other lengths, code of two kinds."""
    return other_local_work(methods) + other_lengths(methods) + mixed_code(methods)


def other_local_work(methods: Sequence[MethodRuns]) -> list[str]:
    """Return a sentence for each key of [local] that is not the same for all methods."""
    local = {method.name: method.runs[0].experiment.get("local", {}) for method in methods}
    notes = []
    for key in dict.fromkeys(key for table in local.values() for key in table if key not in UNLIKE):
        values: dict[str, list[str]] = {}
        for name, table in local.items():
            values.setdefault(json.dumps(table[key], default=str) if key in table else "none", []).append(name)
        *fewer, (usual, rest) = sorted(values.items(), key=lambda value: len(value[1]))
        if fewer:
            parts = [f"{value} for {', '.join(names)}" for value, names in fewer]
            others = "the others" if len(rest) > 2 else ", ".join(rest)
            notes.append(f"local.{key} is not the same for all: {'; '.join(parts)}; {usual} for {others}.")
    return notes


def other_lengths(methods: Sequence[MethodRuns]) -> list[str]:
    """Return a sentence for each method whose seeds came to the end of runs of other lengths."""
    notes = []
    for method in methods:
        whole = sorted({len(run.rounds) for run in method.runs if len(run.rounds) >= run.goal.rounds})
        if len(whole) > 1:
            lengths = f"{', '.join(map(str, whole[:-1]))} and {whole[-1]}"
            notes.append(
                f"{method.name} has seeds of {lengths} rounds: its final score is that of each one's last round."
            )
    return notes


def mixed_code(methods: Sequence[MethodRuns]) -> list[str]:
    """Return a sentence for each run whose rounds were made with different code of the user's."""
    return [
        f"{method.name}, {run.path.name}: {MIXED_CODE}: {'; '.join(run.changes_of_code)}."
        for method in methods
        for run in method.runs
        if run.changes_of_code
    ]


def page_notes(methods: Sequence[MethodRuns], *, of_clients: bool) -> list[str]:
    """Return what a reader of the page must know to read the table right, and no more."""
    target, longest = methods[0].runs[0].target, much_longer(methods)
    runs = [run for method in methods for run in method.runs]
    many_seeds = len(runs) > len(methods)
    where = dict.fromkeys(m.runs[0].published.where for m in methods if m.runs[0].published is not None)
    notes = {
        "Press a method's name, or its curve, to see the whole experiment. Drag in the chart to zoom; a double click "
        "ends it.": True,
        f"Rounds and bytes: until the {methods[0].metric.title} reached {target or 0:g}; N+ means not within the N "
        'rounds that the run, or the shortest of its seeds, lasted, and "-" that thus no bytes are counted up to it.': (
            target is not None
        ),
        "Mean ± standard deviation over seeds, which is also the band around a curve. (2/3): two of three seeds "
        "arrived and the mean is over those; a method with a miss is not compared with the others.": many_seeds,
        "Where seeds stopped at different rounds, a curve goes on with those that are left; a seed that diverged keeps "
        "its last score.": any(len({len(run.rounds) for run in method.runs}) > 1 for method in methods),
        f"{longest and longest.name} goes on beyond the chart: a double click shows all of it.": longest is not None,
        "Epsilon: what a whole run has cost in differential privacy of its clients, at its delta; the chart "
        "can show it against rounds.": any(method.epsilon is not None for method in methods),
        "Clients: the last score of each client on examples of its own, from the worst client on.": of_clients,
        "Seconds are as measured, beside whatever else the machine did.": True,
        "Refused: updates that were not finite, which leave no trace; where a whole round is refused, the run ends as "
        "diverged.": any(record.refused for run in runs for record in run.rounds),
        COLLAPSED: any(run.status == "collapsed" for run in runs),
        f"Paper: rounds to the target in {'; '.join(where)}.": bool(where),
    }
    return [note for note, holds in notes.items() if holds] + unlike_runs(methods)

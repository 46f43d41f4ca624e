"""What a person reads when a run has ended."""

from rich.console import Console

from fedadmm.report.table import format_seconds
from fedadmm.runs.records import best_of, score_text
from fedadmm.runs.runner import Run

console = Console()


def tell(ended: Run) -> None:
    """Print how a run ended, what it reached and where it is."""
    console.print(_sentence(ended), soft_wrap=True)


def _sentence(ended: Run) -> str:
    experiment, done, folder = ended.experiment, len(ended.history), ended.folder.path
    best = score_text(best_of(ended.history, experiment.metric), experiment.metric)
    reached = best and f", best {best}"
    times = [record.simulated_seconds for record in ended.history if record.simulated_seconds is not None]
    reached += f", in {format_seconds(sum(times))} of simulated time" if times else ""
    if ended.status == "diverged":
        return (
            f"Diverged in round {done}: no client's update was finite; lower local.learning_rate "
            f"({experiment.local.learning_rate}) or the server's step. {folder}"
        )
    if ended.status == "interrupted":
        return (
            f"Stopped after {done} of {experiment.rounds} rounds{reached}; the same command goes on from there. "
            f"{folder}"
        )
    if _nobody_came(ended):
        assert experiment.clock is not None
        return (
            f"Learned nothing in {done} rounds: no client ever met clock.deadline={experiment.clock.deadline:g}; "
            f"raise it, or ask for fewer epochs. {folder}"
        )
    if ended.rounds_before == done:
        return f"All {done} rounds are there already{reached}: {folder}"
    return f"Finished {done} rounds{reached}: {folder}"


def _nobody_came(ended: Run) -> bool:
    """Return whether a deadline left every round of a run empty."""
    clock, faults = ended.experiment.clock, ended.experiment.faults
    has_deadline = clock is not None and clock.deadline is not None and faults is None
    return has_deadline and all(r.lost and not r.clients and not r.refused for r in ended.history)

"""Several runs beside each other: a table, curves, and whether the best differs from the others by more than noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedadmm.api.result import Callbacks, Result, figure_of, html_of
from fedadmm.api.running import RunAll, experiment_of, session_of
from fedadmm.config.experiment import Experiment
from fedadmm.config.plans import load_plan
from fedadmm.core.calls import checked_call
from fedadmm.core.errors import InputError, near_names
from fedadmm.core.files import write_whole
from fedadmm.core.settings import check_seeds
from fedadmm.report.methods import methods_of
from fedadmm.report.notes import table_notes
from fedadmm.report.paired import paired_sentences
from fedadmm.report.runs import RunData, Section
from fedadmm.report.table import comparison_rows, markdown
from fedadmm.runs.tuning import as_tuned

if TYPE_CHECKING:
    import pandas

    from fedadmm.core.picture import Picture

Found = TypeVar("Found")
Methods = str | Path | Sequence[Experiment | Result | str] | Mapping[str, Experiment | Result]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Runs of several methods, over one seed or more. `comparison["fedavg"]` is a method's first run."""

    results: list[Result]

    @property
    def runs(self) -> list[RunData]:
        """The runs as a report takes them, none longer than it was asked for."""
        return [result.run_data.until(result.goal) for result in self.results]

    def __getitem__(self, method: str) -> Result:
        return named({result.experiment.method: result for result in reversed(self.results)}, method)

    def __len__(self) -> int:
        return len(self.results)

    @property
    def rows(self) -> list[dict[str, str]]:
        """A row for each method, as text, in the order in which they arrived."""
        return comparison_rows(self.runs)

    @property
    def noise(self) -> str:
        """Whether the best differs from each other method by more than seeds do, a line each; "" for a single seed."""
        return "\n".join(paired_sentences(methods_of(self.runs)))

    @property
    def notes(self) -> list[str]:
        """What the marks in the rows mean, and which runs have rounds of different code."""
        return table_notes(methods_of(self.runs))

    @property
    def title(self) -> str:
        """The setting, and what the table's numbers are."""
        first, run = self.results[0].experiment, self.runs[0]
        told = f"final and best {run.metric.name}"
        if run.target is not None:
            told = f"rounds and bytes to reach {run.metric.name} {run.target:g}"
        return f"{first.data.name}, {first.data.partition}, {first.rounds} rounds; {told}"

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a row for each round of each run, with its method and its seed."""
        tables = [
            result.to_pandas().reset_index().assign(method=result.experiment.method, seed=result.experiment.seed)
            for result in self.results
        ]
        import pandas  # without which the line above has said so

        return pandas.concat(tables, ignore_index=True)

    def plot(self, metric: str | None = None, *, width: float = 7.2) -> "Picture":
        """Return the curves, a band for the spread over seeds, of a metric, the runs' own if it is None."""
        return figure_of(self.runs, metric=metric, title=self.title if metric is None else "", width=width)

    def write(self, out: str | Path, *, stem: str = "comparison", remark: str = "") -> list[Path]:
        """Write the figure, the table and the page into a folder, and return their paths."""
        # Imported here because matplotlib and plotly take a second.
        from fedadmm.report.figures import save_figure
        from fedadmm.report.page import write_page

        first, folder = self.results[0].experiment, Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        picture, table = folder / f"{stem}.png", folder / f"{stem}.md"
        save_figure(self.plot(width=12), picture)
        below = [*self.noise.splitlines(), *self.notes]
        write_whole(table, markdown(self.rows) + "".join(f"\n{sentence}\n" for sentence in below))
        heading = self.title.partition(";")[0].removeprefix(f"{first.name}, ")  # the page's own says the name
        page = write_page([Section(heading, self.runs, remark)], folder / f"{stem}.html", title=first.name)
        return [picture, table, page]

    def __repr__(self) -> str:
        return "\n".join([f"{self.title}\n{markdown(self.rows)}{self.noise}".rstrip(), *self.notes])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the curves and the table."""
        return f"{html_of(self.runs)}<p>{escape(' '.join([self.noise, *self.notes]))}</p>"


@checked_call
def compare(
    methods: Methods,
    *,
    algorithms: Sequence[str] | None = None,
    changes: Mapping[str, Any] | None = None,
    seeds: int = 1,
    tuned: bool = False,
    out: str | Path = "runs",
    data_dir: str | Path | None = None,
    log_to: str | Sequence[str] = (),
    callbacks: Callbacks = (),
    progress: bool = True,
) -> Comparison:
    """Run several methods on the same clients, batches and initial model, and compare them, as `fedadmm compare` does.

    methods: experiments, presets or results of runs; by names of yours, if it is a dict. Results are not run again. Or
        a preset or a TOML file: its variants, or `algorithms`, with `changes` such as {"rounds": 10}.
    seeds: each method is run with this many seeds, from the experiment's own on.
    tuned: take the values that `tune` found and wrote to `out`.
    """
    session = session_of(out, data_dir, log_to, callbacks, progress)
    given = methods_named(methods, algorithms=algorithms, changes=changes)
    done = [method for method in given if isinstance(method, Result)]
    experiments = [method for method in given if isinstance(method, Experiment)]
    if tuned:
        experiments = as_tuned(experiments, Path(out), changes=changes or {})
    return compared(experiments, seeds=seeds, run_all=session.run_all, done=done)


def compared(
    experiments: Sequence[Experiment], *, seeds: int, run_all: RunAll, done: Sequence[Result] = ()
) -> Comparison:
    """Run experiments over seeds, and compare them with each other and with what was run before."""
    check_seeds(seeds)
    planned = [first.replace(seed=first.seed + more) for more in range(seeds) for first in experiments]
    results = run_all([(one, f"seed {one.seed}" if seeds > 1 else "") for one in planned])
    return Comparison([*done, *results])


def methods_named(
    methods: Methods, *, algorithms: Sequence[str] | None = None, changes: Mapping[str, Any] | None = None
) -> list[Experiment | Result]:
    """Return experiments and results, those of a dict under the names that it gives them."""
    if isinstance(methods, str | Path):
        return [*load_plan(str(methods)).experiments(algorithms, changes=dict(changes or {}))]
    if algorithms is not None or changes is not None:
        raise InputError("algorithms and changes are those of a preset or a file; change the experiments themselves")
    if isinstance(methods, Mapping):
        return [_labelled(method, label) for label, method in methods.items()]
    found = [method if isinstance(method, Result) else experiment_of(method) for method in methods]
    if not found:
        raise InputError("there is no method to compare; give experiments, results, or the name of a preset")
    return found


def named(found: Mapping[str, Found], method: str) -> Found:
    """Return what there is of a method; refuse a name that is not there."""
    if method not in found:
        raise InputError(f"there is no method {method!r} here; {near_names(method, found, what='methods')}")
    return found[method]


def _labelled(method: Experiment | Result | str, label: str) -> Experiment | Result:
    if isinstance(method, Result):
        return replace(method, experiment=method.experiment.replace(label=label))
    return experiment_of(method).replace(label=label)

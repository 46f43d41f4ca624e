"""The tables and figures of the paper, and studies beyond it, as studies.toml has them."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any

from fedadmm.config.algorithm_table import algorithm_from_table
from fedadmm.config.plans import Plan
from fedadmm.studies.paper.setting import Design
from fedadmm.studies.paper.study import PaperRun, Rows, Size, Study, table_of

__all__ = ["PAPER", "PaperRun", "Rows", "Size", "Study"]


@cache
def _runs_in(file: str) -> tuple[PaperRun, ...]:
    """Return a run of each method, at each learning rate, in each variant of an experiment, as a file has them.

    Where a file has variants under `crossed`, too, every variant is run with each of those.
    """
    table = dict(table_of(file))
    variants = {column: dict(variant) for column, variant in table.pop("variants").items()}
    if crossed := table.pop("crossed", None):
        variants = {f"{a} / {b}": {**one, **other} for a, one in variants.items() for b, other in crossed.items()}
    rates, methods = table.pop("learning_rates", [None]), table.pop("methods")
    rates_of = {column: variant.pop("learning_rates", rates) for column, variant in variants.items()}
    algorithms = {label: algorithm_from_table(algorithm) for label, algorithm in methods.items()}
    plan = Plan(table, variants)
    runs = []
    for column in plan.variants:
        words = column.replace(" / ", "-").replace(": ", "-").replace("/", "-").replace(", ", "-").replace(" %", "")
        name = f"{file.removesuffix('.toml')}-{words.replace(' ', '_')}"
        experiment = plan.experiment(column, changes={"name": name, "label": None})
        local_at = {rate: experiment.local.replace(learning_rate=rate) for rate in rates_of[column] if rate}
        for label, algorithm in algorithms.items():
            for rate in rates_of[column]:
                changes = {"label": f"{label}-{rate:g}", "local": local_at[rate]} if rate else {"label": label}
                runs.append(PaperRun(column, experiment.replace(algorithm=algorithm, **changes)))
    return tuple(runs)


def _worked_out(name: str) -> Callable[[], Rows]:
    """Return a function of fedadmm.studies, which is imported when it is called: it needs torch."""
    module, _, function = name.partition(":")
    return lambda: getattr(import_module(f"fedadmm.studies.{module}"), function)()


def _maker_of(runs: str | dict[str, Any]) -> Callable[[Size], Iterable[PaperRun]]:
    """Return what makes the runs of a study: of its own design, of a file, or of another study."""
    if isinstance(runs, dict):
        return Design(**runs).runs
    if runs.endswith(".toml"):
        return lambda size: _runs_in(runs)
    return _maker_of(table_of("studies.toml")[runs]["runs"])


def _study(name: str, *, runs: Any = None, table: str | None = None, **how: Any) -> Study:
    """Return a study as studies.toml describes it."""
    if table is not None:
        return Study(name, table=_worked_out(table), **how)
    return Study(name, make_runs=_maker_of(runs), **how)


PAPER: dict[str, Study] = {name: _study(name, **table) for name, table in table_of("studies.toml").items()}

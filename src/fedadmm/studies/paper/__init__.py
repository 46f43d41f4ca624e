"""The tables and figures of the paper, and studies beyond it, as studies.toml has them."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

from fedadmm.config.algorithm_table import algorithm_from_table
from fedadmm.config.plans import Plan
from fedadmm.core.files import Table
from fedadmm.studies.paper.setting import Design
from fedadmm.studies.paper.study import PaperRun, Rows, Size, Study, table_of, usual

__all__ = ["PAPER", "PaperRun", "Rows", "Size", "Study"]


@cache
def _runs_in(file: str) -> tuple[PaperRun, ...]:
    """Return a run of each method, at each learning rate, in each variant of an experiment, as a file has them.

    A method that has constants is there with each of their values, too.
    Where a file has variants under `crossed`, too, every variant is run with each of those.
    """
    table = dict(table_of(file))
    variants = {column: dict(variant) for column, variant in table.pop("variants").items()}
    if crossed := table.pop("crossed", None):
        variants = {f"{a} / {b}": {**one, **other} for a, one in variants.items() for b, other in crossed.items()}
    rates, methods = table.pop("learning_rates", [None]), table.pop("methods")
    rates_of = {column: variant.pop("learning_rates", rates) for column, variant in variants.items()}
    constants = table.pop("constants", {})
    algorithms = {
        (label, named): algorithm_from_table(algorithm)
        for label, method in methods.items()
        for named, algorithm in _with_constants(method, constants.get(label, {}))
    }
    plan = Plan(table, variants)
    runs = []
    for column in plan.variants:
        words = column.replace(" / ", "-").replace(": ", "-").replace("/", "-").replace(", ", "-").replace(" %", "")
        name = f"{file.removesuffix('.toml')}-{words.replace(' ', '_')}"
        experiment = plan.experiment(column, changes={"name": name, "label": None})
        local_at = {rate: experiment.local.replace(learning_rate=rate) for rate in rates_of[column] if rate}
        for (label, named), algorithm in algorithms.items():
            for rate in rates_of[column]:
                changes = {"label": f"{label}-{rate:g}{named}", "local": local_at[rate]} if rate else {"label": label}
                runs.append(PaperRun(column, experiment.replace(algorithm=algorithm, **changes)))
    return tuple(runs)


def _with_constants(method: Table, constants: Table) -> Iterator[tuple[str, Table]]:
    """Yield a method with each value of its own constants, and what such a row is called beside the method's name."""
    for values in product(*constants.values()):
        chosen = dict(zip(constants, values, strict=True))
        named = (f"-{name}{value:g}" for name, value in chosen.items() if value != usual(constants[name]))
        yield "".join(named), {**method, **chosen}


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
    if isinstance(runs, str) and runs.endswith(".toml"):
        how["constants"] = table_of(runs).get("constants", {})
    return Study(name, make_runs=_maker_of(runs), **how)


PAPER: dict[str, Study] = {name: _study(name, **table) for name, table in table_of("studies.toml").items()}

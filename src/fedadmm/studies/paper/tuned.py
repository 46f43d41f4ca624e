"""What tuning found: for each setting and method the values that a study's runs take."""

import tomllib
from importlib import resources
from pathlib import Path

import tomli_w

from fedadmm.config.experiment import Experiment
from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.runs.tuning import Values, with_values
from fedadmm.studies.paper.study import PaperRun

FILE = "tuned.toml"
Tuned = dict[str, dict[str, Values]]  # by the experiment's name and label


def published_values() -> Tuned:
    """Return what we found, as it ships with the package."""
    return tomllib.loads((resources.files("fedadmm.studies.paper") / FILE).read_text())


def read_tuned(folder: Path) -> Tuned:
    """Return what is published, and over it what was found in a folder."""
    found = published_values()
    for name, methods in _own_values(folder / FILE).items():
        found[name] = found.get(name, {}) | methods
    return found


def _own_values(path: Path) -> Tuned:
    """Return what was found and written to a file, nothing if it is not there."""
    try:
        tuned: Tuned = tomllib.loads(path.read_text())
        for values in (values for methods in tuned.values() for values in methods.values()):
            if not all(isinstance(value, float | int) for value in values.values()):
                raise ValueError(f"{values} holds something that is not a number")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path} cannot be read: {error}; fix or remove it") from error
    return tuned


def write_tuned(folder: Path, name: str, label: str, values: Values) -> Path:
    """Add a method's values to the file in a folder."""
    path = folder / FILE
    table = _own_values(path)
    table.setdefault(name, {})[label] = values
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, tomli_w.dumps(dict(sorted(table.items()))))
    return path


def tuned_experiment(run: PaperRun, found: Tuned) -> Experiment | None:
    """Return a run's experiment with the values found for it; None if nothing was found yet."""
    if run.tuned_as is None:
        return run.experiment
    values = values_of(run, found)
    return None if values is None else with_values(run.experiment, values)


def values_of(run: PaperRun, found: Tuned) -> Values | None:
    """Return the values found for a run; None if there are none, or it takes none."""
    return None if run.tuned_as is None else found.get(run.tuned_as.name, {}).get(run.tuned_as.label or "")

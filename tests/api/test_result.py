"""A result from Python: it goes on, is pickled, is opened again, and shows itself; mistakes are sentences."""

import inspect
import pickle
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch.nn import functional

import fedadmm
from fedadmm import Experiment, FedADMM, FedAvg, InputError, LocalTraining, Result, simulate
from fedadmm.api.progress import Bar
from fedadmm.config.compatibility import Options
from fedadmm.report.runs import read_run
from fedadmm.runs.goal import Goal
from fedadmm.training.evaluation import least_squares
from worlds import perceptron, some_data

QUICK = Experiment(
    rounds=2, engine="serial", algorithm=FedAvg(), model={"name": "softmax_regression"}, data={"num_clients": 20}
)
DEVICES = {"speed": {"distribution": "uniform", "low": 5, "high": 50}, "upload": 1e6, "download": 1e6}


def small(algorithm: Any = None, *, rounds: int = 3, **options: Any) -> Result:
    """Return five clients' run."""
    settings: dict[str, Any] = {"data": some_data([8, 10, 6, 12, 8]), "participation": 0.6, "engine": "serial"}
    settings["local"] = LocalTraining(batch_size=6)
    return simulate(algorithm or FedADMM(rho=0.1), model=perceptron, rounds=rounds, **settings | options)


def told(result: Result) -> Any:
    """Return what does not depend on the time of day."""
    return [{**record.to_json(), "seconds": 0} for record in result.history], result.theta.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"certificate": {"every": 2}},
        {"faults": {"lose_replies": 0.3, "duplicate": 0.3}},
        {"clock": {**DEVICES, "asynchronous": {"buffer": 1}}},
    ],
    ids=["plain", "certificate", "faults", "asynchronous"],
)
def test_a_run_that_is_continued_is_the_run_that_was_never_interrupted(options: dict[str, Any]) -> None:
    first = small(**options)
    before = told(first)
    assert told(first.continue_for(2).continue_for(1)) == told(small(rounds=6, **options))
    assert told(first) == before  # and goes on another way as well
    assert len(first.continue_for(1).history) == 4


def test_a_pickled_result_evaluates_and_goes_on() -> None:
    result = small()
    other = pickle.loads(pickle.dumps(result))
    assert repr(other) == repr(result)
    assert other.evaluate_clients("loss").mean == result.evaluate_clients("loss").mean
    assert told(other.continue_for(1)) == told(result.continue_for(1))
    with pytest.raises(InputError, match=r"loss=.* cannot be pickled; define it by `def` in a module"):
        pickle.dumps(small(loss=lambda outputs, targets: functional.cross_entropy(outputs, targets)))


def test_a_loss_may_have_the_name_that_it_has_in_a_file() -> None:
    named, given, usual = (small(loss=loss, rounds=1) for loss in ("least_squares", least_squares, "cross_entropy"))
    assert told(named) == told(given)
    assert told(usual) == told(small(rounds=1)) != told(named)


def test_a_run_from_python_is_that_of_its_folder(tmp_path: Path) -> None:
    result = fedadmm.run(QUICK, out=tmp_path)
    assert result.folder == tmp_path / QUICK.folder_name
    opened = fedadmm.open_run(result.folder)
    assert told(opened) == told(result)
    assert opened.evaluate() == result.evaluate()
    assert torch.equal(torch.nn.utils.parameters_to_vector(opened.model().parameters()), result.theta)
    assert fedadmm.run(QUICK, out=tmp_path).rounds_before == 2
    further = opened.continue_for(1)
    assert told(further) == told(fedadmm.run(QUICK.replace(rounds=3), out=tmp_path / "other"))
    with pytest.raises(InputError, match=r"has 3 rounds, and this result 2; open it with fedadmm.open_run"):
        opened.model()
    assert told(pickle.loads(pickle.dumps(further))) == told(further)
    with pytest.raises(InputError, match="is not a run folder: it does not exist"):
        fedadmm.open_run(tmp_path / "nowhere")


def test_a_simulation_with_a_folder_goes_on_by_the_same_call_and_another_one_has_another_folder(tmp_path: Path) -> None:
    result = small(rounds=2, out=tmp_path)
    again = small(rounds=3, out=tmp_path)
    assert (again.folder, again.rounds_before) == (result.folder, 2)
    assert told(again) == told(small(rounds=3))
    assert read_run(again.folder).label == "fedadmm"  # a report reads it
    data = some_data([8, 10, 6, 12, 8])
    data.targets[20] = (data.targets[20] + 1) % 3
    others = [
        small(rounds=2, out=tmp_path, **options)
        for options in ({"data": data}, {"loss": lambda o, t: functional.cross_entropy(o, t)}, {"seed": 1})
    ]
    assert len({again.folder, *(other.folder for other in others)}) == 4
    opened = fedadmm.open_run(again.folder)
    assert torch.equal(opened.theta, again.theta)
    with pytest.raises(InputError, match=r"were given from Python; call fedadmm.simulate again"):
        opened.model()


@pytest.mark.slow
def test_a_result_shows_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    result = small(target=0.1)
    shown = f"<Result of fedadmm: 3 of 3 rounds, finished, accuracy {result.history[-1].accuracy:.3f} "
    assert repr(result) == f"{shown}(best {result.best:.3f}), target 0.1 in round {result.rounds_to_target}>"
    html = result._repr_html_()
    assert "<img" in html
    assert "<td>fedadmm</td>" in html
    assert isinstance(result.plot(), Figure)
    table = result.to_pandas()
    assert table.index.tolist() == [1, 2, 3]
    assert table.accuracy.tolist() == [record.accuracy for record in result.history]
    assert "0 of 0 rounds" in small(rounds=0)._repr_html_()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="to_pandas needs pandas, which is not installed; pip install pandas"):
        result.to_pandas()


def test_a_run_is_drawn_by_any_number_that_its_rounds_have() -> None:
    result = small(
        metric="loss", metrics={"exact": lambda outputs, targets: (outputs.argmax(1) == targets).double().mean()}
    )
    for metric in ("loss", "accuracy", "exact", "client_loss"):
        assert isinstance(result.plot(metric), Figure)


def test_a_warning_names_the_users_line() -> None:
    with pytest.warns(fedadmm.api.result.DivergedWarning, match="diverged in round 1") as warned:
        small(local=LocalTraining(learning_rate=1e30))
    assert warned[0].filename == __file__


def test_a_target_ends_a_run_where_it_is_told_to() -> None:
    result = small(target=0.01, stop_at_target=True)
    assert (len(result.history), result.rounds_to_target, result.status) == (1, 1, "finished")
    assert len(result.continue_for(2).history) == 3


def test_patience_ends_a_run_that_has_stalled_and_it_can_go_on() -> None:
    constant = {"metrics": {"same": lambda outputs, targets: 0.5}, "metric": "same", "direction": "higher"}
    result = small(rounds=9, patience=2, **constant)
    assert (len(result.history), result.status) == (
        3,
        "finished",
    )  # the best is that of round 1, and 2 more are no better
    assert len(result.continue_for(2).history) == 5


def test_a_run_folder_from_python_has_its_label_and_its_state_and_its_logs(tmp_path: Path) -> None:
    result = small(out=tmp_path, label="mine", state={"float_type": "bfloat16"}, log_to=["tensorboard"])
    assert result.experiment.state.float_type == "bfloat16"
    assert "-mine-" in result.folder.name
    assert list((result.folder / "tensorboard").iterdir())
    for option in ({"state": {"float_type": "bfloat16"}}, {"log_to": "tensorboard"}):
        with pytest.raises(InputError, match="are about a run folder, and there is none; give out"):
            small(**option)


def test_every_option_of_a_federation_and_of_an_experiment_is_an_argument() -> None:
    named = inspect.signature(simulate).parameters
    assert {field.name for field in fields(Options)} <= set(named)
    assert set(Experiment.model_fields) <= set(named)
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in named.values())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"particpation": 0.1}, "simulate has no argument 'particpation'; did you mean participation?"),
        ({"model": None}, "model=None is not a model; use a torch.nn.Module"),
        ({"participation": None}, "participation=None is not a rule; use a fraction"),
        ({"workers": 0}, "workers=0 is out of range"),
        ({"seed": "a"}, "seed='a' is not valid; give a whole number"),
        ({"target": "high"}, "target='high' is not valid"),
    ],
)
def test_a_mistake_is_a_sentence(change: dict[str, Any], sentence: str) -> None:
    arguments = {"model": perceptron, "data": some_data([6, 6]), "rounds": 1, "participation": 0.5, "engine": "serial"}
    with pytest.raises(InputError, match=sentence):
        simulate(FedAvg(), **arguments | change)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="simulate: missing a required argument: 'rounds'; see help"):
        simulate(FedAvg(), model=perceptron, data=some_data([6, 6]))
    with pytest.raises(InputError, match=r"experiment=3 is not an experiment; give a fedadmm.Experiment"):
        fedadmm.run(3)
    with pytest.raises(InputError, match="did you mean digits"):
        fedadmm.run("digist")


def test_a_notebook_has_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(table: Any, **options: Any) -> Any:
        assert options == {"display_id": True}
        return SimpleNamespace(update=lambda table: shown.append(table._repr_mimebundle_([], [])["text/html"]))

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    bar = Bar(Goal(3), "fedadmm", console=Console(force_jupyter=True, width=120))
    assert bar.is_seen
    small(callbacks=[bar])
    assert "round 3/3" in shown[-1]
    assert "accuracy" in shown[-1]


def test_a_log_has_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    small(rounds=1)
    assert capfd.readouterr().err == ""

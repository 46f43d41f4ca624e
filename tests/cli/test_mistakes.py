"""What new users get wrong: each mistake is one sentence, found before anything is written."""

import dataclasses
import textwrap

import pytest
import torch
from torch import nn

import fedadmm
from fedadmm import FedADMM, FedAvg, InputError, LocalTraining, federate, load, make_dataset, simulate
from fedadmm.cli.progress import how_it_ended
from fedadmm.config.plans import load_plan
from fedadmm.report.runs import read_run
from fedadmm.runs.runner import run
from fedadmm.training.evaluation import accuracy

QUICK = {"rounds": 2, "model.name": "softmax_regression", "local.epochs": 1, "engine": "serial"}


@pytest.fixture(scope="module")
def data():
    return federate(load("digits"), num_clients=20, partition="iid", seed=0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"algorithm": "fedavg"}, "algorithm='fedavg' is not an algorithm; give one, such as fedadmm.FedAvg()"),
        ({"algorithm": FedAvg}, "is not an algorithm"),
        ({"data": load("digits")}, "data of type Dataset has no clients; deal it out with fedadmm.federate"),
        ({"rounds": -1}, "rounds=-1 is not a number of rounds"),
        ({"rounds": 2.5}, "rounds=2.5 is not valid; give a whole number"),
        ({"local": {"epochs": 1}}, "is not local training; use fedadmm.LocalTraining"),
        ({"callbacks": print}, "callbacks=.* is not valid; give a list"),
        ({"certificate": {"every": 0}, "algorithm": FedADMM()}, "every=0"),
        ({"participation": "0.1"}, "participation='0.1' is a string"),
        ({"engine": "fast"}, "engine='fast' is not valid; use 'workers', 'serial'"),
        ({"device": "gpu"}, 'device="gpu" cannot be used'),
        ({"loss": lambda outputs: outputs}, "the loss does not take .outputs, targets."),
        ({"metrics": {"top": lambda o, t: o}}, "the top returns 20 numbers; return the mean"),
        ({"metrics": [accuracy]}, r"metrics=\[.*\] is not valid; give a dict"),
        ({"loss": "mse"}, "loss='mse' is unknown; use least_squares, a function of torch.nn.functional or"),
        ({"loss": 3}, "loss=3 is not valid; give a text or a function"),
        ({"loss": nn.MSELoss}, "the loss is <class .*>, not a function of .outputs, targets.; give one, such as"),
        ({"metrics": {"a": "b"}}, "the a is 'b', not a function of .outputs, targets."),
        ({"participation": True}, "participation=True is not a rule"),
        ({"stop_at_target": True}, "stop_at_target is set, and there is no target"),
        ({"stop_at_target": "no", "target": 0.5}, "stop_at_target='no' is not valid; give True or False"),
        ({"patience": "3"}, "patience='3' is not valid; give a whole number"),
        ({"progress": "no"}, "progress='no' is not valid; give True or False"),
        ({"workers": True}, "workers=True is not valid; give a whole number"),
        ({"workers": 2.0}, "workers=2.0 is not valid; give a whole number"),
        ({"clock": 5}, "clock=5 is not valid; give a dict"),
        ({"log_to": 3}, "log_to=3 is not valid; give a text or a list"),
        ({"out": 3}, "out=3 is not valid; give a text or a path"),
        ({"devices": [1, 2]}, r"devices=\[1, 2\] is not valid; give a dict"),
        ({"devices": {"energy": [1, 2]}}, "devices has 'energy' with 2 values; give a number for each of 20 clients"),
        ({"devices": {"energy": ["a"] * 20}}, "devices has 'energy' with 20 values; give a number for each"),
        ({"callbacks": [lambda record: True]}, "callback .*, called with .record, simulation., fails; correct it\n"),
        ({"callbacks": [lambda record, _: 1 / 0]}, "callback .* fails; correct it\n  ZeroDivisionError: division by"),
        ({"model": nn.Sequential(nn.Flatten(), nn.LazyLinear(10))}, "the model's 1.weight has no size yet; give"),
    ],
)
def test_simulate_says_what_is_wrong(data, change, sentence):
    arguments = {"algorithm": FedAvg(), "model": "softmax_regression", "data": data, "rounds": 1} | change
    with pytest.raises(InputError, match=sentence):
        simulate(**arguments)


class Broken(torch.utils.data.Dataset):
    """Forty examples, of which one cannot be read."""

    def __len__(self):
        return 40

    def __getitem__(self, row):
        return torch.zeros(4), {17: 1 / 0}[row] if row == 17 else row % 2


NUMBERS = make_dataset((torch.rand(40, 4), torch.rand(40)))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: make_dataset(None), "there are no training examples; give a pair"),
        (lambda: make_dataset(Broken()), "Broken, read for example 17, fails; correct it\n  ZeroDivisionError"),
        (lambda: make_dataset(Broken(), collate=3), "collate=3 is not valid; give a function"),
        (lambda: deal(alpha="a"), "alpha='a' is not valid; give a number"),
        (lambda: deal(client_test="a"), "client_test='a' is not valid; give a number"),
        (lambda: deal(validation="a"), "validation='a' is not valid; give a number"),
        (lambda: deal(quantiles=0), "quantiles=0 is out of range; use a whole number from 2 on"),
        (
            lambda: federate(make_dataset((torch.rand(40, 4), torch.rand(40, 2))), num_clients=4, seed=0, quantiles=4),
            r'partition "shards" deals by quantiles of one number an example, and targets have shape \(2,\); use "iid"',
        ),
        (lambda: deal(quantiles="a"), "quantiles='a' is not valid; give a whole number"),
        (lambda: deal().client(99), "there is no client 99; use a number from 0 to 3"),
        (lambda: load(3), "name=3 is not valid; give a text"),
        (lambda: load("mnist", data_dir=3), "data_dir=3 is not valid; give a text or a path"),
        (lambda: load("digits", options={"a": 1}), 'data "digits" takes no options; they are for "hf:NAME"'),
        (lambda: fedadmm.open_run(3), "folder=3 is not valid; give a text or a path"),
        (lambda: fedadmm.compare("digits", algorithms="fedavg"), "algorithms='fedavg' is not valid; give a list"),
        (lambda: fedadmm.tune("digits", search=["a"]), r"search=\['a'\] is not valid; give a dict"),
        (lambda: fedadmm.tune("digits", search={}), "search is empty; give keys and their values"),
        (lambda: fedadmm.tune("digits", rounds="5"), "rounds='5' is not valid; give a whole number"),
        (lambda: fedadmm.Experiment(3), r"Experiment takes its keys by their names; write Experiment\(name=.*label="),
        (lambda: fedadmm.Experiment(rounds=True), "rounds=True is not valid; it is not true or false"),
        (lambda: setattr(fedadmm.Experiment(), "rounds", 3), r"rounds cannot be changed; .*: replace\(rounds=3\)"),
    ],
)
def test_python_says_what_is_wrong(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def deal(**options):
    """Deal forty numbers to four clients."""
    return federate(NUMBERS, num_clients=4, seed=0, **{"quantiles": 4, "partition": "shards"} | options)


def test_a_result_says_what_it_does_not_have(data):
    result = simulate(FedAvg(), model="softmax_regression", data=data, rounds=1, engine="serial")
    for call in (result.client_model, result.personal_model):
        with pytest.raises(InputError, match="there is no client 20; use a number from 0 to 19"):
            call(20)
    with pytest.raises(InputError, match="no round has 'f1'; the metrics are accuracy, loss"):
        result.plot("f1")


def test_tables_are_settings_as_in_a_file(data):
    result = simulate(
        FedADMM(), model="softmax_regression", data=data, rounds=2, certificate={"every": 2}, engine="serial"
    )
    assert [record.metrics["V"] is not None for record in result.history] == [True, False]


def test_examples_that_are_no_dataset_yet_are_told_how_to_be():
    pair = torch.zeros(6, 2), torch.zeros(6)
    with pytest.raises(InputError, match=r"data of type tuple is not a dataset; .* fedadmm.make_dataset"):
        federate((pair, pair), num_clients=2, partition="iid", seed=0)
    assert len(make_dataset(pair, pair).test.targets) == 6


@pytest.mark.parametrize("key", ["local.tolerance", "local.learning_rate", "algorithm.rho", "algorithm.eta"])
@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        ({"schedule": "power", "start": 1, "power": "x"}, "power='x' is not a number; use one"),
        ({"schedule": "power", "start": "x", "power": 2}, "start='x' is not a number; use one"),
        ({"schedule": "step", "before": 2, "after": 1, "at_round": 1.5}, "at_round=1.5 counts rounds; use a"),
    ],
)
def test_a_schedule_says_what_is_wrong(key, schedule, sentence):
    with pytest.raises(InputError, match=f"{key.partition('.')[2]}: {sentence}"):
        load_plan("digits").experiment("fedadmm", changes={key: schedule})


@pytest.mark.parametrize(
    ("rate", "options", "why"),
    [(1e38, {}, "finite; lower"), (0.1, {"max_norm": 1e-9}, "finite and within max_norm; lower")],
)
def test_a_run_that_diverges_warns_and_says_why(data, rate, options, why):
    local = LocalTraining(learning_rate=rate)
    with pytest.warns(UserWarning, match=f"diverged in round 1: no client's update was {why}"):
        result = simulate(FedAvg(), model="mlp", data=data, rounds=3, local=local, engine="serial", **options)
    assert (result.status, len(result.history)) == ("diverged", 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_data_with_a_number_that_is_none_is_named(value):
    inputs = torch.zeros(6, 2)
    inputs[4, 1] = value
    with pytest.raises(InputError, match="input 4 holds a NaN or an infinity"):
        make_dataset((inputs, torch.zeros(6)))
    with pytest.raises(InputError, match="target 3 holds a NaN"):
        make_dataset((torch.zeros(6, 2), torch.tensor([0.0, 1, 2, value, 4, 5])))


OWN = """
from dataclasses import dataclass
from fedadmm.algorithms.fedavg import FedAvg
import torch

@dataclass(frozen=True)
class BareTensor(FedAvg):
    def client_update(self, server, client, problem):
        return problem.solve(start=server.theta).w, client

@dataclass(frozen=True)
class NoState(FedAvg):
    def client_update(self, server, client, problem):
        return super().client_update(server, client, problem)[0]

class Forgot(fedadmm.Algorithm):
    pass

class Scaled(FedAvg):
    scale: float = 1.0

    def client_update(self, server, client, problem):
        upload, client = super().client_update(server, client, problem)
        return upload._replace(step=self.scale * upload.step), client

class Keeps(FedAvg):
    def server_update(self, server, mean, turnout):
        self.last = mean
        return super().server_update(server, mean, turnout)

def raises():
    return 1 / 0

def prices():
    return (torch.randn(20, 4), torch.randn(20, 2)), None

def line(input_shape, target_shape):
    return torch.nn.Linear(*input_shape, *target_shape)

def normalised(input_shape, num_classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_mistakes.py").write_text("import fedadmm\n" + textwrap.dedent(OWN))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"algorithm.name": "own_mistakes:BareTensor"}, "client_update returns Tensor where a message belongs"),
        ({"algorithm.name": "own_mistakes:NoState"}, r"returns Upload; return \(upload, client\)"),
        ({"algorithm.name": "own_mistakes:Forgot"}, "does not define client_update, init_server"),
        (
            {"algorithm.name": "own_mistakes:Scaled", "algorithm.scale": "big"},
            r"in \[algorithm\]: scale='big' is not a number; Scaled has `scale: float`$",
        ),
        ({"algorithm.name": "own_mistakes"}, 'is a class in it: did you mean .*"own_mistakes:Forgot"'),
        (
            {"algorithm.name": "own_mistakes:Keeps"},
            "Keeps.last cannot be assigned: an algorithm keeps nothing on itself; return what is kept as a field",
        ),
        (
            {"data.name": "own_mistakes:raises"},
            r"fails; correct it\n  ZeroDivisionError: division by zero .*own_mistakes.py, line",
        ),
        (
            {"data.name": "own_mistakes:prices", "model.name": "own_mistakes:line", "data.num_clients": 2}
            | {"data.partition": "iid", "participation": 1.0},
            'targets are numbers, such as .* the loss is cross_entropy, .* model.loss = "mse_loss"',
        ),
        (
            {"model.name": "own_mistakes:normalised", "data.num_clients": 1437, "data.partition": "iid"},
            "client 0 has 1 example, as have 1436 others, and batch normalisation cannot train on one; give each",
        ),
    ],
)
def test_a_mistake_in_ones_own_code_is_a_sentence_and_leaves_no_folder(own, tmp_path, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        run(load_plan("digits").experiment("fedavg", changes=QUICK | changes), out=tmp_path / "runs")
    assert not list((tmp_path / "runs").glob("*"))


def test_fewer_rounds_than_are_there_leave_the_record_as_it_is(tmp_path):
    plan = load_plan("digits")
    run(plan.experiment("fedavg", changes=QUICK | {"rounds": 4}), out=tmp_path)
    ended = run(plan.experiment("fedavg", changes=QUICK | {"rounds": 2}), out=tmp_path)
    result = fedadmm.run(plan.experiment("fedavg", changes=QUICK | {"rounds": 2}), out=tmp_path, progress=False)
    scores = f"accuracy {result.history[1].accuracy:.3f} after round 2, best accuracy {result.best:.3f}: "
    assert how_it_ended(result).startswith(f"4 rounds are there already, and 2 were asked for, {scores}")
    stored = read_run(ended.folder.path)
    assert (stored.experiment["rounds"], len(stored.rounds), stored.status) == (4, 4, "finished")
    # A comparison over two rounds looks at two.
    assert (len(stored.first(2).rounds), stored.first(2).status) == (2, "finished")


def test_a_run_that_collapsed_is_not_called_finished(tmp_path):
    ended = fedadmm.run(load_plan("digits").experiment("fedavg", changes=QUICK), out=tmp_path, progress=False)
    assert how_it_ended(ended).startswith("Finished")
    scores = [0.5, *[0.6] * 8, 0.4]
    ended.history[:] = [dataclasses.replace(ended.history[0], round=n, accuracy=s) for n, s in enumerate(scores, 1)]
    said = how_it_ended(ended)
    assert "best accuracy 0.600: accuracy 0.400 at the end, which is worse than 0.500 at first; lower local.l" in said


def test_functions_are_found_beside_the_file(tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "beside.py").write_text("def model():\n    raise RuntimeError('found')\n")
    (folder / "plan.toml").write_text('[model]\nname = "beside:model"\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="RuntimeError: found"):
        run(load_plan("elsewhere/plan.toml").experiment(), out=tmp_path / "runs")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty.toml").write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        load_plan(str(tmp_path / "empty.toml"))


def test_an_algorithm_of_ones_own_can_be_compared():
    experiment = load_plan("digits").experiment("fedadmm.algorithms.fedavg:FedAvg")
    assert isinstance(experiment.algorithm, fedadmm.FedAvg)

"""A mistake in an algorithm is a sentence before the first round, whoever runs it: Python or an experiment's file."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from fedadmm import Experiment, InputError, simulate
from fedadmm.core.errors import import_named
from fedadmm.engine.probe import probe
from fedadmm.runs.runner import run
from methods import METHODS
from worlds import perceptron, some_data

MISTAKES = """
from dataclasses import dataclass
from typing import NamedTuple

import torch

import fedadmm
from fedadmm.algorithms import feddyn
from fedadmm.algorithms.fedavg import FedAvg, Server, Upload
from fedadmm.algorithms.feddyn import FedDyn


class ClientInPlace(FedDyn):
    def client_update(self, server, client, problem):
        w = problem.solve(start=server.theta, dual=client.y, rho=0.1, centre=server.theta).w
        client.y.add_(0.1 * (w - server.theta))
        return feddyn.Upload(w - server.theta), client


class DownloadInPlace(FedAvg):
    def client_update(self, server, client, problem):
        w = problem.solve(start=server.theta).w
        return Upload(w - server.theta.mul_(0.9)), client


class ServerInPlace(FedAvg):
    def server_update(self, server, mean, turnout):
        server.theta.add_(mean.step)
        return server


class MeanInPlace(FedAvg):
    def server_update(self, server, mean, turnout):
        return Server(mean.step.add_(server.theta))


class ThetaInPlace(FedAvg):
    def init_server(self, theta):
        return Server(theta.mul_(0.5))


class Growing(FedDyn):
    def client_update(self, server, client, problem):
        upload, client = super().client_update(server, client, problem)
        return upload, feddyn.Client(torch.cat([client.y, client.y]))


class ShortTheta(FedAvg):
    def server_update(self, server, mean, turnout):
        return Server((server.theta + mean.step)[1:])


class ShortUpload(FedDyn):
    def client_update(self, server, client, problem):
        upload, client = super().client_update(server, client, problem)
        return (upload if problem.first_visit else feddyn.Upload(upload.step[1:])), client


class NoServer(FedAvg):
    def server_update(self, server, mean, turnout):
        server.theta + mean.step


class BareTheta(FedAvg):
    def server_update(self, server, mean, turnout):
        return server.theta + mean.step


class PlainTuple(FedAvg):
    def client_update(self, server, client, problem):
        return (problem.solve(start=server.theta).w - server.theta,), client


class OtherServer(FedAvg):
    def server_update(self, server, mean, turnout):
        return feddyn.Server(server.theta, mean.step)


class NoneInIt(FedDyn):
    def download(self, server):
        return feddyn.Server(server.theta, None)


class Late(NamedTuple):
    y: torch.Tensor
    theta: torch.Tensor


class ThetaLater(FedAvg):
    def init_server(self, theta):
        return Late(theta, theta)


class ShortModel(FedAvg):
    def model(self, server):
        return server.theta[1:]


class DoubleModel(FedAvg):
    def model(self, server):
        return server.theta.double()


class NoClient(FedAvg):
    def init_client(self, theta):
        return None


class OldSolve(FedAvg):
    def client_update(self, server, client, problem):
        w = problem.solve(start=server.theta)
        return Upload(2 * w - 2 * server.theta), client


class OldSolveKept(FedAvg):
    def client_update(self, server, client, problem):
        return Upload(problem.solve(start=server.theta)), client


@dataclass(frozen=True)
class Decorated(FedAvg):
    shift: float = 0.0


class Undecorated(FedAvg):
    shift: float = 0.0
"""

SENTENCES = {
    "ClientInPlace": "client_update changes Client.y in place; make a new vector instead",
    "DownloadInPlace": "client_update changes Server.theta in place",
    "ServerInPlace": "server_update changes Server.theta in place",
    "MeanInPlace": "server_update changes Upload.step in place",
    "ThetaInPlace": "init_server changes theta in place",
    "Growing": "client_update returns y of size [90], and its size was [45]; a vector keeps its size",
    "ShortTheta": "server_update returns theta of size [44], and its size was [45]",
    "ShortUpload": "client_update returns step of size [44]",
    "NoServer": "server_update returns NoneType where a message belongs",
    "BareTheta": "server_update returns Tensor where a message belongs; return a NamedTuple",
    "PlainTuple": "client_update returns tuple where a message belongs; return a NamedTuple",
    "OtherServer": "server_update returns Server(theta, y_sum), where Server(theta) was before",
    "NoneInIt": "download returns NoneType as y_sum; a message holds vectors and numbers",
    "ThetaLater": "init_server returns ('y', 'theta'); its first field must be theta",
    "ShortModel": "model returns no vector of theta's size and dtype",
    "DoubleModel": "model returns no vector of theta's size and dtype",
    "NoClient": "return a NamedTuple of vectors and numbers, or leave init_client out if clients keep nothing",
    "OldSolve": "problem.solve returns a Solution since 0.2; write problem.solve(...).w",
    "OldSolveKept": "problem.solve returns a Solution since 0.2; write problem.solve(...).w",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_algorithms.py").write_text(textwrap.dedent(MISTAKES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def _algorithm(name: str) -> Any:
    return import_named(f"own_algorithms:{name}", what="algorithm")()


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", SENTENCES)
def test_a_mistake_is_refused_from_python(name: str) -> None:
    with pytest.raises(InputError) as refused:
        simulate(
            _algorithm(name), model=perceptron(), data=some_data([8, 6]), rounds=1, participation=1.0, engine="serial"
        )
    size = sum(parameter.numel() for parameter in perceptron().parameters())
    sentence = SENTENCES[name].replace("45", str(size)).replace("44", str(size - 1)).replace("90", str(2 * size))
    assert sentence in str(refused.value)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", SENTENCES)
def test_a_mistake_is_refused_from_an_experiment_before_anything_is_written(name: str, tmp_path: Path) -> None:
    experiment = Experiment(
        algorithm={"name": f"own_algorithms:{name}"}, rounds=1, model={"name": "softmax_regression"}
    )
    with pytest.raises(InputError, match=name):
        run(experiment, out=tmp_path / "out")
    assert not list((tmp_path / "out").glob("*/state"))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["Decorated", "Undecorated"])
def test_an_algorithm_is_a_frozen_dataclass_with_the_decorator_and_without(name: str) -> None:
    algorithm = _algorithm(name)
    assert type(algorithm)(shift=2.0) == type(algorithm)(1.0, 2.0)
    assert hash(type(algorithm)(shift=2.0)) != hash(algorithm)
    assert str(algorithm) == f"{name}(eta=1.0, shift=0.0)"
    with pytest.raises(AttributeError, match=r"shift cannot be assigned|cannot assign to field .shift"):
        algorithm.shift = 1.0
    with pytest.raises(AttributeError, match=r"cannot be deleted|cannot delete"):
        del algorithm.shift
    probe(algorithm, torch.ones(3))


@pytest.mark.parametrize("name", METHODS)
def test_our_methods_pass(name: str) -> None:
    theta = torch.linspace(-1.0, 1.0, 7)
    forms = probe(METHODS[name], theta)
    assert torch.equal(theta, torch.linspace(-1.0, 1.0, 7))
    assert forms.download.theta.shape == theta.shape

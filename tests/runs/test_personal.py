"""`model.personal`: parts of a model stay at the client. FedPer, FedRep and FedBN, against torch's own loops."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

import fedadmm
from fedadmm import Experiment, FedADMM, FedAvg, FedProx, FedSGD, InputError, LocalTraining, Scaffold, Simulation
from fedadmm.algorithms import ALGORITHMS
from fedadmm.cli.export import export_command
from fedadmm.core.algorithm import NoState
from fedadmm.core.optional import StepsOfSGDOnly, trait
from fedadmm.core.seeds import stream
from fedadmm.core.state_parts import Personal, with_parts, without_part
from fedadmm.runs.check import findings
from fedadmm.runs.runner import run
from fedadmm.state.disk import DiskStore
from methods import ON_NETWORKS, mostly_slow
from play import identical
from ray_here import use_ray_here
from small_runs import outcome
from worlds import made

NUM_CLIENTS, BATCH, RATE, ROUNDS = 4, 5, 0.2, 3
HEAD, BN, ENGINES = ["head.*"], ["body.1.*"], ("serial", "workers")


class Network(nn.Module):
    """A body with batch normalisation, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh())
        self.head = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


def _data() -> fedadmm.PartitionedData:
    generator = torch.Generator().manual_seed(5)
    inputs, targets = torch.randn(48, 4, generator=generator), torch.randint(0, 3, (48,), generator=generator)
    dataset = fedadmm.make_dataset((inputs, targets), None)._replace(groups=np.arange(48) % NUM_CLIENTS)
    return fedadmm.federate(dataset, num_clients=None, partition="natural", seed=0, client_test=0.2)  # 10 to train on


def _simulation(
    algorithm: Any = None, *, personal: Any = HEAD, folder: Path | None = None, **options: Any
) -> Simulation:
    def on_disk(types: Any, initial: torch.Tensor) -> DiskStore:
        return DiskStore(folder, types=types, identity={}, initial=initial)

    local = LocalTraining(**{"epochs": 2, "batch_size": BATCH, "learning_rate": RATE} | options.pop("local", {}))
    usual = {"model": made(Network), "data": _data(), "participation": 1.0, "seed": 0, "engine": "serial"}
    store = on_disk if folder else None
    return Simulation(algorithm or FedAvg(), local=local, personal=personal, open_store=store, **usual | options)


def _by_hand(kept: Any, *, rho: float = 0.0, head_epochs: int | None = None) -> list[nn.Module]:
    """Return each client's network after rounds of torch's own loop; `kept` tells the names that are not averaged."""
    data, networks = _data(), [made(Network) for _ in range(NUM_CLIENTS)]
    for round in range(1, ROUNDS + 1):
        for client, module in enumerate(networks):
            inputs, targets = data.client(client)
            centre = {name: p.detach().clone() for name, p in module.named_parameters()}
            for epoch in range(2):
                if head_epochs is not None:
                    for name, parameter in module.named_parameters():
                        parameter.requires_grad_(kept(name) == (epoch < head_epochs))
                optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=RATE)
                order = torch.from_numpy(stream(0, "batches", round, client, epoch).permutation(len(targets)))
                for batch in order.split(BATCH):
                    loss = functional.cross_entropy(module(inputs[batch]), targets[batch])
                    for name, parameter in module.named_parameters():
                        if not kept(name):
                            loss = loss + rho / 2 * (parameter - centre[name]).square().sum()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        states = [module.state_dict() for module in networks]
        for name in states[0]:
            if not kept(name) and states[0][name].is_floating_point():
                mean = torch.stack([state[name] for state in states]).mean(dim=0)
                for state in states:
                    state[name].copy_(mean)
    return networks


@pytest.mark.parametrize(
    ("algorithm", "personal", "by_hand", "local"),
    [
        (FedAvg(), HEAD, {}, {}),  # FedPer
        (FedAvg(), HEAD, {"head_epochs": 1}, {"personal_epochs": 1}),  # FedRep
        (FedAvg(), BN, {}, {}),  # FedBN: parameters, running statistics and the counter
        (FedProx(rho=0.7), HEAD, {"rho": 0.7}, {}),  # whose term is of the shared parts alone
    ],
)
def test_a_clients_network_is_that_of_torchs_own_loop(algorithm: Any, personal: Any, by_hand: Any, local: Any) -> None:
    simulation = _simulation(algorithm, personal=personal, local=local)
    for _ in range(ROUNDS):
        simulation.advance()
    prefix = personal[0].removesuffix("*")
    theirs = _by_hand(lambda name: name.startswith(prefix), **by_hand)
    for client, network in enumerate(theirs):
        ours = simulation.client_model(client).state_dict()
        for name, value in network.state_dict().items():
            torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-6)
    heads = [network.state_dict()[f"{prefix}weight"] for network in theirs]
    assert not heads[0].equal(heads[1])


def test_an_optimizer_of_torchs_trains_the_personal_parts_too() -> None:
    simulation = _simulation(local={"optimizer": "adam", "personal_epochs": 1})
    simulation.advance()
    assert not simulation.client_model(0).head.weight.equal(made(Network).head.weight)


def test_personal_parts_are_never_sent_and_the_bytes_say_so() -> None:
    simulation, shared = _simulation(), _simulation(personal=None)
    head = 4 * (6 * 3 + 3)  # bytes of 21 numbers
    ours, whole = simulation.advance(), shared.advance()
    assert whole.bytes_up - ours.bytes_up == whole.bytes_down - ours.bytes_down == NUM_CLIENTS * head
    assert simulation.theta.numel() == shared.theta.numel() - 21


def test_loss_and_accuracy_are_means_over_clients_each_with_its_own_parts() -> None:
    simulation = _simulation(participation=0.5)
    for _ in range(2):
        record = simulation.advance()
    losses = []
    for client in range(NUM_CLIENTS):
        inputs, targets = simulation.task.held_out.client(client)
        losses.append(functional.cross_entropy(simulation.client_model(client).eval()(inputs), targets).item())
    assert record.loss == pytest.approx(np.mean(losses))
    assert simulation.evaluate_clients("loss").values.tolist() == pytest.approx(losses)
    assert record.value("loss_client_std") == pytest.approx(np.std(losses))


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.parametrize("name", mostly_slow(name for name in ALGORITHMS if name in ON_NETWORKS and name != "fedsgd"))
def test_every_method_keeps_a_head_that_it_does_not_send(name: str) -> None:
    method = ON_NETWORKS[name]
    options: dict[str, Any] = {"model": made(_perceptron), "personal": ["2.*"], "participation": 1.0, "workers": 2}
    if trait(method, StepsOfSGDOnly) is None:
        options["local"] = {"optimizer": "adam", "learning_rate": 0.01, "personal_epochs": 1}
    serial, workers = (outcome(_simulation(method, engine=engine, **options), rounds=2) for engine in ENGINES)
    assert identical(serial, workers)
    assert serial[0][1].theta.numel() == 4 * 6 + 6
    heads = [state.personal for state in serial[1].values()]
    assert {len(head) for head in heads} == {6 * 3 + 3}
    assert not heads[0].equal(heads[1])


def test_ray_keeps_the_same_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_here(monkeypatch, num_cpus=2)
    serial, ray = (outcome(_simulation(FedADMM(), engine=engine, workers=2), rounds=2) for engine in ("serial", "ray"))
    for client, state in serial[1].items():
        torch.testing.assert_close(ray[1][client].personal, state.personal)


@pytest.mark.slow
@pytest.mark.parametrize("folder", [False, True])
def test_workers_keep_the_same_parts_to_the_bit(folder: bool, tmp_path: Path) -> None:
    places = [tmp_path / name if folder else None for name in ENGINES]
    serial, workers = (
        outcome(_simulation(FedADMM(), engine=engine, workers=2, folder=place, participation=0.75), rounds=2)
        for engine, place in zip(ENGINES, places, strict=True)
    )
    assert identical(serial, workers)


def test_a_run_with_lost_messages_that_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    options: dict[str, Any] = {"faults": {"lose_replies": 0.3, "lose_requests": 0.2}, "participation": 0.75}
    through = outcome(_simulation(FedADMM(), folder=tmp_path / "one", **options), rounds=5)
    parts = _simulation(FedADMM(), folder=tmp_path / "two", **options)
    for _ in range(2):
        parts.advance()
    parts._store.close()
    resumed = outcome(_simulation(FedADMM(), folder=tmp_path / "two", **options), rounds=3)
    assert identical(through, resumed)
    assert any(record["lost"] for record in through[2] if "lost" in record)


def test_a_lost_upload_leaves_the_personal_parts_as_they_were() -> None:
    simulation = _simulation(faults={"lose_replies": 0.5})
    before = {client: simulation.client_model(client).head.weight.clone() for client in range(NUM_CLIENTS)}
    record = simulation.advance()
    assert record.lost
    moved = {client for client in before if not simulation.client_model(client).head.weight.equal(before[client])}
    assert moved == set(record.clients)


@pytest.mark.slow
def test_export_writes_a_clients_whole_model_and_the_servers_without_its_parts(tmp_path: Path) -> None:
    table: dict[str, Any] = {"model": {"name": "mlp", "personal": ["5.*"]}, "participation": 0.5, "engine": "serial"}
    experiment = Experiment(rounds=1, data={"num_clients": 4, "client_test": 0.2}, algorithm=FedAvg(), **table)
    ended = run(experiment, out=tmp_path)
    client = ended.history[0].clients[0]
    export_command([ended.folder.path], out=tmp_path / "theta", client=None)
    export_command([ended.folder.path], out=tmp_path / "own", client=client, personal_model=True)
    theta, own = load_file(tmp_path / "theta"), load_file(tmp_path / "own")
    assert own.keys() - theta.keys() == {"5.weight", "5.bias"}
    assert own["1.weight"].equal(theta["1.weight"])
    found = {(finding.kind, finding.name): finding.text for finding in findings(ended.folder.path)}
    assert found["fact", "model.safetensors"] == "in step, round 1"
    assert not [text for (kind, _), text in found.items() if kind == "problem"]


def test_a_state_with_parts_is_pickled_as_itself() -> None:
    state = with_parts(NoState(), Personal(torch.ones(2), torch.ones(1)))
    again = pickle.loads(pickle.dumps(state))
    assert type(again) is type(state)
    assert without_part(again, Personal)[0] == NoState()


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        (FedAvg(), {"personal": ["tail.*"]}, "has 'tail.*', and no parameter of the model has such a name"),
        (FedAvg(), {"personal": ["*"]}, "matches every trainable parameter, and clients would share nothing"),
        (FedAvg(), {"personal": "head.*"}, "model.personal='head.*' is not a list; write ['head.*']"),
        (
            FedAvg(),
            {"personal": [3]},
            "personal has 3, which is not a string; give patterns of names, such as ['head.*']",
        ),
        (FedAvg(), {"engine": "stacked"}, "a stack shares the whole model, and model.personal keeps parts of it"),
        (FedAvg(), {"local": {"solver": "gd"}}, "model.personal is trained in minibatches, and local has solver='gd'"),
        (FedAvg(), {"local": {"personal_epochs": 2}}, "personal_epochs=2 of 2 epochs leave none for the shared parts"),
        (
            FedAvg(),
            {"local": {"personal_epochs": 1, "max_steps": 1}},
            "max_steps=1 leaves none for the shared parts of client 0, whose personal_epochs=1 take",
        ),
        (FedAvg(), {"personal": None, "local": {"personal_epochs": 1}}, "has no personal parts; give model.personal"),
        (Scaffold(), {"local": {"personal_epochs": 1}}, "and local has personal_epochs=1; leave it out"),
        (FedSGD(), {}, "FedSGD has no local solve, which would train what model.personal keeps"),
        (FedADMM(), {"certificate": {}}, "certificate is about one objective of all clients"),
    ],
)
def test_what_does_not_go_with_personal_parts_is_refused(algorithm: Any, options: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        _simulation(algorithm, **options)
    assert sentence in str(caught.value)


def test_personal_parts_without_held_out_examples_are_refused_with_the_key() -> None:
    data = _data()
    whole = fedadmm.PartitionedData(data.inputs, data.targets, data.offsets, None, 3)
    with pytest.raises(InputError, match=r"set data.client_test = 0.2, which scores each client"):
        _simulation(data=whole)


def test_frozen_parameters_are_neither_kept_nor_sent() -> None:
    module = made(Network)
    module.body.requires_grad_(False)
    simulation = _simulation(model=module, personal=None)
    simulation.advance()
    assert simulation.theta.numel() == 21
    assert simulation.model().body[0].weight.equal(module.body[0].weight)
    assert [state for state in map(simulation._store.get, range(NUM_CLIENTS)) if state] == []


def test_a_result_of_python_has_each_clients_network_also_from_its_folder(tmp_path: Path) -> None:
    local = LocalTraining(batch_size=BATCH)
    options: dict[str, Any] = {"model": made(Network), "data": _data(), "personal": HEAD, "local": local}
    options |= {"rounds": 1, "participation": 1.0, "engine": "serial", "progress": False}
    memory, folder = (fedadmm.simulate(FedAvg(), **options, out=out) for out in (None, tmp_path))
    heads = [result.client_model(2).head.weight for result in (memory, folder)]
    assert heads[0].equal(heads[1])
    assert not heads[0].equal(made(Network).head.weight)
    assert folder.experiment.model.personal == tuple(HEAD)

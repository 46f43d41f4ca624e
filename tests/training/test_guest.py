"""`simulate` is a guest in the user's process: it leaves torch and the user's module as it found them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedadmm.algorithms import FedADMM, FedAvg, Scaffold
from fedadmm.api.result import Result
from fedadmm.api.simulate import simulate
from fedadmm.core.algorithm import Turnout
from fedadmm.core.errors import InputError
from fedadmm.runs.client_scores import ClientScores
from fedadmm.runs.records import Record
from fedadmm.runs.simulation import Simulation
from fedadmm.training.local import LocalTraining
from play import Watched
from worlds import made, network, some_data


def _simulate(model: Any = network, *, algorithm: Any = None, **options: Any) -> Result:
    settings: dict[str, Any] = {
        "data": some_data([8, 10, 6, 12, 8]),
        "rounds": 2,
        "participation": 0.6,
        "local": LocalTraining(batch_size=6),
        "engine": "serial",
    }
    return simulate(algorithm or FedADMM(), model=model, **settings | options)


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("engine", ["serial", "workers"])
def test_torchs_generator_and_threads_are_left_alone(engine: str) -> None:
    torch.manual_seed(17)
    before = torch.get_rng_state()
    threads: list[int] = []
    result = _simulate(engine=engine, callbacks=[lambda record, simulation: threads.append(torch.get_num_threads())])
    result.evaluate_clients()
    result.model()
    assert torch.equal(torch.get_rng_state(), before)
    assert [*threads, torch.get_num_threads()] == [2, 2, 2]


@pytest.mark.usefixtures("two_threads")
def test_an_error_leaves_the_threads_alone_too() -> None:
    with pytest.raises(InputError):
        _simulate(local=LocalTraining(batch_size=1))  # on which batch normalisation cannot train
    assert torch.get_num_threads() == 2


def test_the_users_module_is_not_changed() -> None:
    module = made(network)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    pointers = [parameter.data_ptr() for parameter in module.parameters()]
    _simulate(module)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert [parameter.data_ptr() for parameter in module.parameters()] == pointers


def test_the_returned_model_is_the_users_to_keep() -> None:
    result = _simulate(made(network))
    model, theta = result.model(), result.theta.clone()
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()).detach(), theta)
    assert torch.equal(torch.cat([model[1].running_mean, model[1].running_var]), result.buffers.floats)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    assert torch.equal(result.theta, theta)
    assert torch.equal(nn.utils.parameters_to_vector(result.model().parameters()).detach(), theta)
    assert len({parameter.untyped_storage().data_ptr() for parameter in model.parameters()}) == 6


def test_a_module_and_a_function_are_models_as_good_as_a_name() -> None:
    assert _simulate("softmax_regression").theta.numel() == 4 * 3 + 3
    assert _simulate(lambda num_classes: nn.Linear(4, num_classes)).theta.numel() == 4 * 3 + 3
    assert _simulate(nn.Linear(4, 3)).theta.numel() == 4 * 3 + 3


def test_the_initial_model_depends_on_the_seed_alone() -> None:
    one, same, other = (_simulate("mlp", rounds=0, seed=seed).theta for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_callbacks_are_called_after_every_round_with_its_record_and_the_simulation() -> None:
    calls: list[tuple[Record, Simulation]] = []
    result = _simulate(rounds=3, callbacks=[lambda *what: calls.append(what)])
    assert [record.round for record, _ in calls] == [1, 2, 3]
    assert [record for record, _ in calls] == result.history
    assert {type(simulation) for _, simulation in calls} == {Simulation}


def test_a_callback_that_returns_true_ends_the_run_after_its_round_and_it_can_go_on(tmp_path: Path) -> None:
    calls: list[int] = []
    callbacks = [lambda record, _: np.bool_(record.round == 2), lambda record, _: calls.append(record.round)]
    stopped = _simulate(rounds=4, out=tmp_path, callbacks=callbacks)
    assert (stopped.status, len(stopped.history), calls) == ("stopped", 2, [1, 2])
    resumed = _simulate(rounds=4, out=tmp_path)
    whole = _simulate(rounds=4, callbacks=[lambda *_: "any other value"])
    assert (resumed.status, whole.status, len(whole.history)) == ("finished", "finished", 4)
    assert torch.equal(resumed.theta, whole.theta)


def test_clients_are_evaluated_on_their_own_examples() -> None:
    data = some_data([8, 10, 6, 12, 8])
    result = _simulate(made(network), data=data)
    model = result.model().eval()
    expected = []
    for client in range(5):
        inputs, targets = data.client(client)
        expected.append(float((model(inputs).argmax(dim=1) == targets).double().mean()))
    scores = result.evaluate_clients()
    np.testing.assert_allclose(scores.values, expected)
    assert scores.mean == pytest.approx(np.mean(expected))
    assert result.evaluate_clients("loss").values.shape == (5,)


def test_the_worst_decile_is_the_mean_of_the_worst_tenth() -> None:
    # Of 20 clients the two worst, 0.1 and 0.3; of fewer than ten the worst one.
    assert ClientScores(np.array([0.9] * 18 + [0.3, 0.1])).worst_decile == pytest.approx(0.2)
    assert ClientScores(np.array([0.9, 0.4, 0.8])).worst_decile == 0.4


def test_a_run_ends_when_all_its_clients_are_refused() -> None:
    with pytest.warns(UserWarning, match="diverged"):
        result = _simulate("softmax_regression", rounds=5, local=LocalTraining(learning_rate=1e38, epochs=5))
    assert result.status == "diverged"
    assert result.history[-1].clients == ()
    assert len(result.history[-1].refused) == 3
    assert torch.isfinite(result.theta).all()


def test_scaffold_refuses_momentum_and_weight_decay() -> None:
    for local in (LocalTraining(momentum=0.5), LocalTraining(weight_decay=0.1)):
        with pytest.raises(InputError, match="Scaffold needs plain SGD, and local has momentum"):
            _simulate(algorithm=Scaffold(), local=local)


def test_weights_by_examples_differ_from_equal_ones_and_unknown_ones_are_refused() -> None:
    equal, weighted = (_simulate("mlp", algorithm=FedAvg(), weighting=w).theta for w in ("equal", "examples"))
    assert not torch.equal(equal, weighted)
    with pytest.raises(InputError, match="weighting='size' is not valid; use 'equal' or 'examples'"):
        _simulate(weighting="size")


def test_weighting_by_examples_weighs_the_turnout_too() -> None:
    # 8 + 10 + 6 + 12 + 8 = 44 examples in all; three clients take part in each of the two rounds.
    turnouts: list[Turnout] = []
    algorithm = Watched(FedAvg(), on_server=turnouts.append)
    result = _simulate(algorithm=algorithm, weighting="examples")
    held = np.array([8, 10, 6, 12, 8])
    first, second = ([*record.clients] for record in result.history)
    seen = [float(held[first].sum()), float(held[sorted({*first, *second})].sum())]
    expected = [(1, float(held[first].sum()), 44.0, seen[0], 3), (2, float(held[second].sum()), 44.0, seen[1], 3)]
    assert turnouts[-2:] == expected  # those before are of the probe

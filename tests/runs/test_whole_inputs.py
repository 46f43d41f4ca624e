"""Inputs that are whole numbers, such as tokens, reach a model as they are: in every engine, and in every measure."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedadmm import FedADMM, InputError, LocalTraining, federate, make_dataset, simulate
from fedadmm.config.plans import load_plan
from fedadmm.data.examples import as_examples
from fedadmm.data.generated import GeneratedData
from fedadmm.runs.runner import run
from fedadmm.runs.simulation import simulation_of
from fedadmm.training.task import LearningTask
from play import identical
from worlds import learning_task, made

OWN = '''
import torch
from torch import nn


class Bag(nn.Module):
    """Tokens, a vector for each, and scores of their mean."""

    def __init__(self, num_tokens=12, **options):
        super().__init__()
        self.embedding, self.dense = nn.Embedding(num_tokens, 4, **options), nn.Linear(4, 2)

    def forward(self, tokens):
        return self.dense(self.embedding(tokens).mean(dim=1))


def data():
    """Return sequences of five tokens of twelve; those of class 1 have token 3 in them."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 12, (300, 5), generator=generator, dtype=torch.int32)
    classes = (tokens == 3).any(dim=1).long()
    return (tokens[:200], classes[:200]), (tokens[200:], classes[200:])


def model():
    return Bag()
'''
NAMES: dict[str, Any] = {}
exec(OWN, NAMES)
Bag, pairs = NAMES["Bag"], NAMES["data"]
LOCAL = {"epochs": 2, "batch_size": 8, "learning_rate": 0.5}


def dealt(cast: Any = lambda tokens: tokens, *, cast_test: Any = None) -> Any:
    (tokens, classes), (test_tokens, test_classes) = pairs()
    test = (cast_test or cast)(test_tokens), test_classes
    dataset = make_dataset((cast(tokens), classes), test=test)
    return federate(dataset, num_clients=8, partition="iid", seed=0)


def result_of(model: nn.Module, data: Any, *, engine: str = "serial", rounds: int = 5) -> Any:
    return simulate(
        FedADMM(rho=0.1),
        model=model,
        data=data,
        rounds=rounds,
        participation=0.5,
        local=LocalTraining(**LOCAL),
        engine=engine,
    )


@pytest.mark.slow
def test_a_model_that_begins_with_an_embedding_learns_in_every_engine() -> None:
    serial, workers, stacked = (
        result_of(made(Bag), dealt(), engine=engine, rounds=12) for engine in ("serial", "workers", "stacked")
    )
    one_answer_for_all = (pairs()[1][1] == 0).double().mean()
    assert serial.history[-1].accuracy > 0.9 > 0.7 > one_answer_for_all
    assert identical(serial.theta, workers.theta)
    assert (stacked.theta - serial.theta).norm() < 1e-5 * serial.theta.norm()


@pytest.mark.slow
def test_an_experiment_trains_on_tokens_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_tokens.py").write_text(OWN)
    (tmp_path / "tokens.toml").write_text(
        'rounds = 20\nparticipation = 0.5\nengine = "serial"\n'
        '[algorithm]\nname = "fedadmm"\nrho = 0.1\n[model]\nname = "own_tokens:model"\n'
        '[data]\nname = "own_tokens:data"\nnum_clients = 8\npartition = "iid"\n'
        "[local]\nepochs = 2\nbatch_size = 8\nlearning_rate = 0.5\n"
    )
    monkeypatch.chdir(tmp_path)
    plan = load_plan("tokens.toml")
    assert run(plan.experiment(), out=tmp_path / "runs").history[-1].accuracy > 0.9
    doubled = simulation_of(plan.experiment(changes={"data.float_type": "float64"}))
    assert doubled.theta.dtype == torch.float64


def one_too_large(tokens: torch.Tensor) -> torch.Tensor:
    """Return the tokens with 12 in the last place alone."""
    return torch.cat([tokens.flatten()[:-1], tokens.new_tensor([12])]).view_as(tokens)


NONE_TAKEN = r"the inputs are whole numbers \(int64\), and the model takes none: give them as floats, inputs.float\(\)"
WHOLE_TAKEN = r"inputs are float32, and the model takes whole numbers: give them as such, inputs.long\(\)"


@pytest.mark.parametrize(
    ("model", "cast", "cast_test", "sentence"),
    [
        (lambda: nn.Linear(5, 2), None, None, NONE_TAKEN),
        (Bag, torch.Tensor.float, None, f"the {WHOLE_TAKEN}"),
        (Bag, torch.Tensor.byte, None, f"the {WHOLE_TAKEN}"),
        (Bag, None, torch.Tensor.float, f"the test {WHOLE_TAKEN}"),
        (Bag, one_too_large, None, "the model does not take inputs from 0 to 12: .*; number them from 0, and give"),
        (Bag, lambda tokens: tokens - 1, None, "the model does not take inputs from -1 to 10: "),
        (lambda: nn.Linear(4, 2), torch.Tensor.float, None, "does not take inputs of shape .2, 5.: mat1"),
    ],
)
def test_inputs_of_the_wrong_kind_are_a_sentence(model: Any, cast: Any, cast_test: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        result_of(made(model), dealt(cast or (lambda tokens: tokens), cast_test=cast_test))


@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_a_number_too_large_for_the_embedding_is_found_in_data_made_client_by_client(engine: str) -> None:
    """In a stack the row after a client's last would be the next client's first."""

    def client(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((4, 3), 13 if number == 1 else 0), torch.arange(4) % 2

    data = GeneratedData(client, num_clients=3, num_classes=2)
    with pytest.raises(InputError, match=r"to 13: index out of range.*; number them from 0"):
        result_of(made(Bag), data, engine=engine, rounds=9)


@pytest.mark.parametrize("options", [{"max_norm": 0.5}, {"sparse": True}])
def test_an_embedding_that_cannot_be_stacked_is_refused_and_auto_picks_workers(options: Any) -> None:
    with pytest.raises(InputError, match=r'embedding with max_norm or sparse .* use engine = "workers"'):
        result_of(made(lambda: Bag(**options)), dealt(), engine="stacked")
    picked = result_of(made(lambda: Bag(**options)), dealt(), engine="auto", rounds=0).federation().engine
    assert str(picked).startswith("workers")


def test_trying_a_model_leaves_its_weights_as_they_are() -> None:
    module = made(lambda: Bag(max_norm=0.1))
    before = module.embedding.weight.detach().clone()
    assert learning_task(module, dealt()).model.module.embedding.weight.equal(before)


class Sums(nn.Module):
    """A model that is linear in its parameters: the sum of what each token says for a class."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.embedding(tokens).sum(dim=1)


def counted(tokens: torch.Tensor) -> torch.Tensor:
    """Return how often each token occurs: the same model is then one dense layer."""
    return nn.functional.one_hot(tokens.long(), 12).sum(dim=1).float()


def with_l2(module: nn.Module, data: Any) -> LearningTask:
    return LearningTask(
        module, data, local=LocalTraining(), loss=nn.functional.cross_entropy, metrics={}, seed=0, l2=0.1
    )


def test_optimum_and_curvature_of_tokens_are_those_of_their_counts() -> None:
    on_tokens = with_l2(made(Sums), dealt())
    on_counts = with_l2(made(lambda: nn.Linear(12, 2, bias=False)), dealt(counted))

    def turned(vector: torch.Tensor) -> torch.Tensor:  # [token, class] as [class, token]
        return vector.view(12, 2).T.reshape(-1)

    assert on_tokens.is_linear
    assert torch.allclose(turned(on_tokens.optimum().w), on_counts.optimum().w, atol=1e-8)
    w, direction = torch.linspace(-1, 1, 24), torch.linspace(2, -1, 24)
    ours, theirs = (task.objective(3, buffers=task.buffers()) for task in (on_tokens, on_counts))
    for name, here, there in (
        ("gradient", ours.value_and_gradient(w)[1], theirs.value_and_gradient(turned(w))[1]),
        ("curvature", ours.hessian_product(w, direction), theirs.hessian_product(turned(w), turned(direction))),
    ):
        assert torch.allclose(turned(here), there, atol=1e-5), name


def test_sparse_gradients_are_those_of_a_dense_embedding() -> None:
    tasks = [learning_task(made(lambda sparse=sparse: Bag(sparse=sparse)), dealt()) for sparse in (False, True)]
    dense, sparse = (task.objective(0, buffers=task.buffers()) for task in tasks)
    w = torch.linspace(-1, 1, tasks[0].num_parameters)
    assert torch.allclose(dense.value_and_gradient(w)[1], sparse.value_and_gradient(w)[1])


def test_a_layer_without_a_second_derivative_is_a_sentence() -> None:
    task = learning_task(made(lambda: nn.EmbeddingBag(12, 2)), dealt())
    w = task.model.weights.clone()
    with pytest.raises(InputError, match="torch has no second derivative of the model"):
        task.objective(0, buffers=task.buffers()).hessian_product(w, w)


@pytest.mark.parametrize("model", [lambda: nn.Linear(5, 2), Bag])
def test_flowers_server_says_that_its_model_takes_no_whole_numbers(model: Any) -> None:
    pytest.importorskip("flwr")
    from fedadmm.flower import FederationSettings
    from fedadmm.flower.apps import OwnData, _evaluation, task_maker

    settings = FederationSettings.from_run_config({"num-clients": 4})
    make_task = task_maker(model, nn.functional.cross_entropy, {})
    _, test = pairs()
    if model is Bag:
        evaluate = _evaluation(make_task(settings, OwnData(as_examples(test))))
        task = learning_task(made(Bag), dealt())
        assert evaluate(task.model.weights, task.buffers())["loss"] > 0
    else:
        with pytest.raises(InputError, match=NONE_TAKEN):
            _evaluation(make_task(settings, OwnData(as_examples(test))))

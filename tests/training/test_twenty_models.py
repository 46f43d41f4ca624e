"""What trains in PyTorch trains here: serial and workers to the same bytes, one client to the loss of a plain loop."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import fedadmm
from methods import mostly_slow

STEPS = 8


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def classes(*shape: int, count: int = 3) -> Tensor:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(1))


IMAGES, ROWS, TOKENS = numbers(12, 2, 8, 8), numbers(12, 5), classes(12, 6, count=7)
SMALL = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


class Frozen(nn.Module):
    """A backbone that does not train, and a head that does."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = nn.Linear(5, 6).requires_grad_(False), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.backbone(inputs).tanh())


class LoRA(Frozen):
    """A frozen layer with a low-rank change of it."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(5, 2, bias=False), nn.Linear(2, 6, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head((self.backbone(inputs) + self.up(self.down(inputs))).tanh())


class Recurrent(nn.Module):
    """An LSTM over tokens, and a class for each line."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.lstm, self.last = nn.Embedding(7, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(self.lstm(self.rows(tokens))[0][:, -1])


class Transformer(nn.Module):
    """A layer of attention to the tokens before, and the scores of the next token at each place."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(7, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.last(self.layer(self.rows(tokens), src_mask=mask, is_causal=True)).transpose(1, 2)


class UNet(nn.Module):
    """Down, up, and the way past both: scores for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.up, self.leave = nn.ConvTranspose2d(4, 4, 2, stride=2), nn.Conv2d(8, 3, 1)

    def forward(self, images: Tensor) -> Tensor:
        fine = self.enter(images).relu()
        return self.leave(torch.cat([fine, self.up(self.down(fine).relu())], dim=1))


class Tied(nn.Module):
    """An embedding that is the last layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.last = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.last.weight = self.rows.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(self.rows(tokens).tanh()).transpose(1, 2)


class Named(nn.Module):
    """Two inputs by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(7, 3)

    def forward(self, row: Tensor, pair: Tensor) -> Tensor:
        return self.layer(torch.cat([row, pair], dim=1))


class Complex(nn.Module):
    """A model with complex numbers inside."""

    def __init__(self) -> None:
        super().__init__()
        self.filter, self.last = nn.Parameter(numbers(3, seed=3)), nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(torch.fft.irfft(torch.fft.rfft(inputs) * self.filter, n=5))


class Noisy(Dataset[Any]):
    """Rows with a little noise, drawn whenever one is read."""

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return ROWS[row] + 0.01 * torch.randn(5), int(classes(12)[row])


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = functional.cross_entropy(outputs, targets, reduction="none")
    return ((1 - torch.exp(-losses)) ** 2 * losses).mean()


def convolution(normal: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), normal, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


CE, MSE, BCE = functional.cross_entropy, functional.mse_loss, functional.binary_cross_entropy_with_logits
LEFT_OUT = TOKENS.clone().masked_fill_(TOKENS == 3, -100)
CASES: dict[str, Any] = {
    "batch norm 1d": (lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), *SMALL[1:]), ROWS, classes(12), CE),
    "batch norm 2d": (lambda: convolution(nn.BatchNorm2d(4)), IMAGES, classes(12), CE),
    "group norm": (lambda: convolution(nn.GroupNorm(2, 4)), IMAGES, classes(12), CE),
    "frozen backbone": (Frozen, ROWS, classes(12), CE),
    "lora": (LoRA, ROWS, classes(12), CE),
    "dropout": (lambda: nn.Sequential(*SMALL, nn.Dropout(0.01)), ROWS, classes(12), CE),
    "lstm": (Recurrent, TOKENS, classes(12), CE),
    "transformer": (Transformer, TOKENS, TOKENS.roll(-1, 1), CE),
    "ignored targets": (Transformer, TOKENS, LEFT_OUT, CE),
    "u-net": (UNet, IMAGES, classes(12, 8, 8), CE),
    "multi-label": (lambda: nn.Linear(5, 4), ROWS, classes(12, 4, count=2).float(), BCE),
    "multi-output": (lambda: nn.Linear(5, 2), ROWS, numbers(12, 2, seed=2), MSE),
    "regression": (lambda: nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)), ROWS, numbers(12, seed=2), MSE),
    "regression, a column": (lambda: nn.Linear(5, 1), ROWS, numbers(12, 1, seed=2), MSE),
    "dict": (Named, {"row": ROWS, "pair": numbers(12, 2, seed=2)}, classes(12), CE),
    "tied weights": (Tied, TOKENS, TOKENS.roll(-1, 1), CE),
    "class weights": (lambda: SMALL, ROWS, classes(12), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))),
    "label smoothing": (lambda: SMALL, ROWS, classes(12), partial(CE, label_smoothing=0.1)),
    "a loss of one's own": (lambda: SMALL, ROWS, classes(12), focal),
    "complex": (Complex, ROWS, classes(12), CE),
    "lazy and augmented": (lambda: SMALL, Noisy(), None, CE),
    "float64": (lambda: SMALL, ROWS, classes(12), CE),
    "bfloat16": (lambda: SMALL, ROWS, classes(12), CE),
}
FLOAT_TYPES = ("float64", "bfloat16")
LOOSE = {"dropout": 0.05, "lazy and augmented": 0.02, "bfloat16": 0.02}  # of the loss: chance or rounding differ


def made(name: str) -> tuple[nn.Module, Any, Any]:
    make, inputs, targets, loss = CASES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = copy.deepcopy(make())
    return module, fedadmm.make_dataset(inputs if targets is None else (inputs, targets)), loss


def simulated(name: str, *, num_clients: int, rounds: int, batch_size: int | str, engine: str = "serial") -> Any:
    module, dataset, loss = made(name)
    data = fedadmm.federate(dataset, num_clients=num_clients, partition="iid", seed=0)
    local = fedadmm.LocalTraining(batch_size=batch_size, learning_rate=0.1)
    settings: dict[str, Any] = {"rounds": rounds, "participation": 1.0, "local": local, "loss": loss, "engine": engine}
    settings["float_type"] = name if name in FLOAT_TYPES else None
    return fedadmm.simulate(fedadmm.FedAvg(), model=module, data=data, progress=False, **settings)


def plain_loop(name: str) -> float:
    """Return the loss after as many steps over all examples, in PyTorch alone."""
    module, _, loss = made(name)
    _, inputs, targets, _ = CASES[name]
    if targets is None:
        inputs, targets = ROWS, classes(12)
    if name == "float64":
        module, inputs = module.double(), inputs.double()
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)

    def value() -> Tensor:
        return loss(module(**inputs) if isinstance(inputs, dict) else module(inputs), targets)

    for _ in range(STEPS):
        optimizer.zero_grad()
        value().backward()
        optimizer.step()
    module.eval()
    with torch.no_grad():
        return float(value())


@pytest.mark.parametrize("name", mostly_slow(CASES, plain=list(CASES)[::5]))
def test_serial_and_workers_train_it_to_the_same_bytes(name):
    settings: dict[str, Any] = {"num_clients": 2, "rounds": 1, "batch_size": 4}
    one, two = (simulated(name, engine=engine, **settings) for engine in ("serial", "workers"))
    assert torch.equal(one.theta, two.theta)
    assert one.history[-1].refused == ()
    assert one.theta.dtype == (torch.float64 if name == "float64" else torch.float32)


@pytest.mark.parametrize("name", CASES)
def test_one_client_with_all_examples_reaches_the_loss_of_a_plain_loop(name):
    result = simulated(name, num_clients=1, rounds=STEPS, batch_size="full")
    found = result.evaluate_clients("loss").mean
    assert found == pytest.approx(plain_loop(name), rel=LOOSE.get(name, 1e-4))

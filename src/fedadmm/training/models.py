"""The paper's networks, its released code's, and small ones, some convex; any other comes from the user."""

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from fedadmm.core.errors import InputError, calling, import_named, name_of
from fedadmm.core.seeds import torch_seed
from fedadmm.data.examples import Tree, mapped
from fedadmm.training.flat import independent_copy


def softmax_regression(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return one dense layer, whose loss is convex."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))


def linear(
    *, input_shape: tuple[int, ...], num_classes: int, target_shape: tuple[int, ...] = (), bias: bool = True
) -> nn.Module:
    """Return one dense layer: a score for each class, or as many numbers as a target has."""
    return nn.Sequential(nn.Flatten(), *_last(math.prod(input_shape), num_classes, target_shape, bias=bias))


class AgainstZero(nn.Module):
    """A score for class 1, beside 0 for class 0: their cross entropy is the logistic loss."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(scores, (1, 0))


def logistic_regression(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return one score for two classes, whose loss is convex."""
    if num_classes != 2:
        raise InputError(
            f"logistic_regression tells two classes apart, the data has {num_classes}; list those of class 1 in "
            "data.positive, or use softmax_regression"
        )
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 1), AgainstZero())


def mlp(*, input_shape: tuple[int, ...], num_classes: int, target_shape: tuple[int, ...] = ()) -> nn.Module:
    """Return dense layers of 200 and 200."""
    hidden = [nn.Linear(math.prod(input_shape), 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, *_last(200, num_classes, target_shape))


def _last(width: int, num_classes: int, target_shape: tuple[int, ...], *, bias: bool = True) -> list[nn.Module]:
    """Return a last layer: a score for each class, or numbers in the shape of a target."""
    dense = nn.Linear(width, num_classes or math.prod(target_shape), bias=bias)
    if num_classes or len(target_shape) == 1:
        return [dense]
    return [dense, nn.Unflatten(1, target_shape) if target_shape else nn.Flatten(0)]


def small_cnn(*, input_shape: tuple[int, ...], num_classes: int, target_shape: tuple[int, ...] = ()) -> nn.Module:
    """Return convolutions of 16 and 32 channels and a dense layer, for images of any size from 4x4 on."""
    if len(input_shape) != 3 or min(input_shape[1:]) < 4:
        found = "x".join(map(str, input_shape))
        raise InputError(f"small_cnn takes images from 4x4 on, the data has inputs of shape {found}; use mlp")
    channels, height, width = input_shape
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, kernel_size=3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(16, 32, kernel_size=3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        *_last(32 * (height // 4) * (width // 4), num_classes, target_shape),
    )


def cnn1(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the paper's CNN 1, for 28x28 grey images: 1,663,370 parameters."""
    return _cnn("cnn1", input_shape, (1, 28, 28), width=512, num_classes=num_classes)


def cnn2(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the paper's CNN 2, for 32x32 colour images: 1,105,098 parameters."""
    return _cnn("cnn2", input_shape, (3, 32, 32), width=256, num_classes=num_classes)


def cnn1_released(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return CNN 1 as released: no activation after the convolutions, a softmax as its output."""
    network = _cnn("cnn1_released", input_shape, (1, 28, 28), width=512, num_classes=num_classes, released=True)
    return network.append(nn.Softmax(dim=1))


def cnn2_released(*, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return CNN 2 as released: no activation after the convolutions, a softmax as its output."""
    network = _cnn("cnn2_released", input_shape, (3, 32, 32), width=256, num_classes=num_classes, released=True)
    return network.append(nn.Softmax(dim=1))


def _cnn(
    name: str, shape: tuple[int, ...], needed: tuple[int, ...], *, width: int, num_classes: int, released: bool = False
) -> nn.Sequential:
    if tuple(shape) != needed:
        wanted, found = ("x".join(map(str, lengths)) for lengths in (needed, shape))
        raise InputError(
            f"{name} takes inputs of shape {wanted}, the data has {found}; use mlp, or a model of your own"
        )
    activation = nn.Identity if released else nn.ReLU
    channels, height, _ = needed
    # The pool comes before the activation, which is monotone: the same function, on a quarter of the numbers.
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, kernel_size=5, padding=2), nn.MaxPool2d(2), activation()),
        *(nn.Conv2d(32, 64, kernel_size=5, padding=2), nn.MaxPool2d(2), activation(), nn.Flatten()),
        *(nn.Linear(64 * (height // 4) ** 2, width), nn.ReLU(), nn.Linear(width, num_classes)),
    )


class NextToken(nn.Module):
    """A GRU over tokens: for each place, scores of what comes next."""

    def __init__(self, *, num_tokens: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.scores = nn.Linear(width, num_tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return [example, token, place], the order that torch's cross entropy takes, for tokens [example, place]."""
        hidden, _ = self.gru(self.embedding(tokens))
        return self.scores(hidden).transpose(1, 2)


def gru(*, num_classes: int, width: int = 64) -> nn.Module:
    """Return a language model over tokens of as many kinds as there are classes."""
    return NextToken(num_tokens=num_classes, width=width)


ModelFunction = Callable[..., nn.Module]

_OURS = (
    *(cnn1, cnn2, cnn1_released, cnn2_released, small_cnn, mlp, gru, linear, softmax_regression, logistic_regression),
)
MODELS: dict[str, ModelFunction] = {function.__name__: function for function in _OURS}


def initial_model(
    model: str | nn.Module | ModelFunction,
    *,
    seed: int,
    inputs: Tree | None = None,
    num_classes: int = 0,
    targets: Tree | None = None,
    float_type: torch.dtype | None = None,
    options: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return a run's network before round 1: a copy of the one that is given, or one with weights of the run's seed.

    model: a network, a name, "package.module:function" or a function, which is given `input_shape`, `num_classes` and
        `target_shape` if it has parameters of these names, and `options`.
    inputs, targets: some that it is to take. float_type: of the network, that of the inputs if None.
    """
    if isinstance(model, nn.Module):
        _check_initialised(model)
        return independent_copy(model)
    if isinstance(model, str):
        if model not in MODELS and ":" not in model:
            raise InputError(
                f'model {model!r} is unknown; use one of {", ".join(MODELS)}, or "package.module:function"'
            )
        name, model = model, MODELS[model] if model in MODELS else import_named(model, what="model")
        if isinstance(model, nn.Module):
            raise InputError(
                f'model "{name}" is a network, whose weights no seed of the run rules; name a function or a class that '
                "makes it"
            )
    if not callable(model):
        raise InputError(
            f"model={model!r} is not a model; use a torch.nn.Module, a function that makes one, or one of "
            f"{', '.join(MODELS)}"
        )
    shape, target_shape = (
        () if tree is None else mapped(lambda part: tuple(part.shape[1:]), tree) for tree in (inputs, targets)
    )
    facts = {"input_shape": shape, "num_classes": num_classes, "target_shape": target_shape}
    with calling(f"model {name_of(model)}"):
        names = inspect.signature(model).parameters
    arguments = {key: value for key, value in facts.items() if key in names} | dict(options or {})
    unknown = [
        name
        for name, one in names.items()
        if name not in arguments and one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if unknown:
        raise InputError(
            f"model {name_of(model)} has a parameter {unknown[0]!r}, for which there is no value; rename it "
            f"to {' or '.join(facts)}, or give it a default (in a file: set model.options.{unknown[0]})"
        )
    with torch.random.fork_rng(devices=[]), calling(f"model {name_of(model)}, called with {arguments},"):
        torch.manual_seed(torch_seed(seed, "model"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # a sentence follows
            module = model(**arguments)
    if not isinstance(module, nn.Module):
        raise InputError(f"model {name_of(model)} returned {type(module).__name__}; return a torch.nn.Module")
    _check_initialised(module)
    if arguments.get("num_classes") == 0 and any(0 in parameter.shape for parameter in module.parameters()):
        raise InputError(
            f"model {name_of(model)} has a layer without outputs: num_classes is 0, because targets are numbers; give "
            f"it a parameter target_shape, which is {target_shape} here, or write the number of outputs yourself"
        )
    if float_type is None and inputs is not None:
        float_type = getattr(inputs, "dtype", None)
    return module.double() if float_type == torch.float64 else module


def _check_initialised(module: nn.Module) -> None:
    lazy = [name for name, p in module.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise InputError(
            f"the model's {lazy[0]} has no size yet; give the layer its sizes, or call the model once first"
        )

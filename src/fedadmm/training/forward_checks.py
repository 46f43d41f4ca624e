"""What a model's forward does beside returning outputs, in training: tried on two examples."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedadmm.core.errors import InputError
from fedadmm.data.examples import Tree, cloned, leaves, mapped
from fedadmm.data.reading import seeded
from fedadmm.training.flat import FlatModel, channels_last

logger = logging.getLogger(__name__)


def check_forward(model: FlatModel, inputs: Tree) -> None:
    """Refuse a forward that training would not reach, and note what the model has to be given.

    That is copies, where it works in place on its inputs, and images in the usual order of memory, where it makes views
    of them.
    """
    training, weights = model.module.training, model.weights.clone()
    model.module.train()
    try:
        with model.unnoticed(), seeded(0), torch.no_grad():
            if not _runs(model, cloned(inputs)):
                return  # in training; what is wrong is said where it trains
            before, given = dict(_memory(model.module)), cloned(inputs)
            model(given)
            model.works_in_place = not all(map(_same, leaves(given), leaves(inputs)))
            _check_parameters(model)
            _check_memory(before, dict(_memory(model.module)))
            model.keeps_order = not _runs(model, mapped(channels_last, cloned(inputs)))
    finally:
        model.module.train(training)
        model.load(weights)


def _runs(model: FlatModel, inputs: Tree) -> bool:
    try:
        model(inputs)
    except Exception:
        return False
    return True


def _check_parameters(model: FlatModel) -> None:
    """Refuse a forward that makes parameters, or puts another tensor in the place of one: no step would move it."""
    now = {name: parameter for name, parameter in model.module.named_parameters() if parameter.requires_grad}
    if made := sorted(now.keys() ^ {*model.names, *(n for n in model.personal_names if n in now)}):
        raise InputError(f"the model's forward makes or drops parameters ({made[0]}); make all of them in __init__")
    views = dict(zip(model.names, model.views, strict=True))
    for name, view in views.items():
        if now[name].data_ptr() != view.data_ptr():
            raise InputError(
                f"the model's forward puts another tensor in the place of {name}, and training would not reach it; "
                f"write into the one that is there, such as {name}.data.copy_(...)"
            )


def _check_memory(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Refuse frozen parameters that a forward changes, and warn of what else it remembers outside its buffers."""
    changed = sorted(name for name, value in after.items() if name in before and not _same(before[name], value))
    for name in changed:
        if name.startswith("parameter "):
            raise InputError(
                f"the model's forward changes {name}, which is not trained, and clients would hand it on to each "
                "other; make it a buffer, with register_buffer, which is averaged and kept"
            )
    if changed:
        logger.warning(
            "the model's forward changes %s, which is no buffer: clients hand it on to each other, and another number "
            "of workers gives other results; make it a buffer, with register_buffer",
            ", ".join(changed),
        )


def _memory(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what a module may remember beside its trained parameters and buffers; what is left of a forward is not."""
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            yield f"parameter {name}", parameter.detach().clone()
    for path, part in module.named_modules():
        for key, value in vars(part).items():
            where = f"{path}.{key}".lstrip(".")
            if key.startswith("_") or key == "training":
                continue
            if isinstance(value, torch.Generator):
                yield where, value.get_state()
            elif isinstance(value, np.random.Generator):
                yield where, repr(value.bit_generator.state)
            elif isinstance(value, int | float):
                yield where, value


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return before.shape == after.shape and bool(torch.equal(before.nan_to_num(), after.nan_to_num()))
    return bool(before == after)

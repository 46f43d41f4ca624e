"""The gradients of K networks of one form at once, each with weights and examples of its own."""

import operator
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from fedadmm.core.errors import InputError
from fedadmm.data.examples import Examples
from fedadmm.training.evaluation import Loss, least_squares, loss_of_each
from fedadmm.training.flat import FlatModel
from fedadmm.training.steps import clip_factor

Tensors = Sequence[Tensor]

# Of (parameters [K, ...], inputs [K, B, ...], targets [K, B], shares [K, B]): each client's sum of shares x losses,
# [K], and what adds a multiple of the gradients of these sums to tensors of the parameters' shapes.
Gradients = Callable[[Tensors, Tensor, Tensor, Tensor], tuple[Tensor, "Add"]]
Add = Callable[[Tensors, float], None]
# Of (outputs [K, output, B], targets [K, B], shares [K, B]): the same sums, and their gradient by the outputs.
Head = Callable[[Tensor, Tensor, Tensor], "Slope"]
Slope = tuple[Tensor, Tensor]

_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity)
_REMEDY = 'use engine = "workers"'


def stacked_gradients(model: FlatModel, loss: Loss, *, input_dims: int) -> Gradients:
    """Return the gradients of a network: batched matrix products if it is dense, torch.func for any other."""
    layers = _dense_layers(model, input_dims=input_dims, may_flatten=loss is least_squares)
    if layers is None:
        return _through_any(model, loss_of_each(loss))
    return _through_dense(layers, _head_of(loss))


def columns(flat: Tensor, model: FlatModel) -> Sequence[Tensor]:
    """Return views of a vector [d], or of a stack [K, d], one for each parameter."""
    views: Sequence[Tensor] = torch.split(flat, [p.numel() for p in model.parameters], dim=-1)
    return views


def clipped(add: Add, bound: float, *, room: Tensors) -> Add:
    """Return what adds the gradients, each client's shortened to a norm of `bound` if it is longer.

    room: tensors of the parameters' shapes, [K, ...], that the gradients may be written to.
    """

    def add_clipped(to: Tensors, alpha: float) -> None:
        for part in room:
            part.zero_()
        add(room, 1.0)
        rows = [part.flatten(1) for part in room]
        norms = torch.linalg.vector_norm(torch.stack([part.norm(dim=1) for part in rows]), dim=0)
        factors = clip_factor(norms, bound)[:, None]
        for part, row in zip(to, rows, strict=True):
            part.add_(row.mul_(factors).view_as(part), alpha=alpha)

    return add_clipped


def _through_dense(layers: list[nn.Module], head: Head) -> Gradients:
    def gradients(parameters: Tensors, inputs: Tensor, targets: Tensor, shares: Tensor) -> tuple[Tensor, Add]:
        rest = iter(parameters)
        entering, leaving = [], []  # of the dense layers
        hidden = inputs.flatten(2).transpose(1, 2)  # [client, feature, example], the order of fast products
        for layer in layers:
            if not isinstance(layer, nn.Linear):
                hidden = layer(hidden)
                continue
            entering.append(hidden.detach())
            weight = next(rest)
            if layer.bias is None:
                hidden = torch.bmm(weight, hidden)
            else:
                hidden = torch.baddbmm(next(rest).unsqueeze(2), weight, hidden)
            leaving.append(hidden if hidden.requires_grad else hidden.requires_grad_())
        sums, slope = head(hidden.detach(), targets, shares)
        slopes = torch.autograd.grad(hidden, leaving, slope)

        def add(to: Tensors, alpha: float) -> None:
            # The product goes straight into its sum: a gradient in memory of its own would be written, and read again.
            views = iter(to)
            for layer, before, slope in zip(dense, entering, slopes, strict=True):
                next(views).baddbmm_(slope, before.transpose(1, 2), alpha=alpha)
                if layer.bias is not None:
                    next(views).add_(slope.sum(dim=2), alpha=alpha)

        return sums, add

    dense = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return gradients


def _cross_entropy(outputs: Tensor, targets: Tensor, shares: Tensor) -> Slope:
    """Return the sums and their slope in closed form, softmax minus one-hot: autograd would take 20 small steps."""
    logs = torch.log_softmax(outputs, dim=1)
    places = targets.unsqueeze(1)
    sums = -(logs.gather(1, places).squeeze(1) * shares).sum(dim=1)
    slope = logs.exp_()
    slope.scatter_add_(1, places, slope.new_full((), -1.0).expand(places.shape))
    return sums, slope.mul_(shares.unsqueeze(1))


def _least_squares(outputs: Tensor, targets: Tensor, shares: Tensor) -> Slope:
    """Return the sums and their slope in closed form: the gaps to the targets, or to one-hot classes."""
    if targets.is_floating_point():
        gaps = outputs - targets.unsqueeze(1)
    else:
        places = targets.unsqueeze(1)
        gaps = outputs.scatter_add(1, places, outputs.new_full((), -1.0).expand(places.shape))
    slope = gaps * shares.unsqueeze(1)
    return (gaps * slope).sum(dim=(1, 2)) / 2, slope


_HEADS: dict[Loss, Head] = {functional.cross_entropy: _cross_entropy, least_squares: _least_squares}


def _head_of(loss: Loss) -> Head:
    """Return the closed form of a loss where it has one, and a target is one number; else what autograd makes of it."""
    any_targets = _any_loss(loss)
    if (quick := _HEADS.get(loss)) is None:
        return any_targets
    return lambda outputs, targets, shares: (quick if targets.ndim == shares.ndim else any_targets)(
        outputs, targets, shares
    )


def _any_loss(loss: Loss) -> Head:
    losses = loss_of_each(loss)

    def head(outputs: Tensor, targets: Tensor, shares: Tensor) -> Slope:
        leaf = outputs.requires_grad_()
        each = losses(leaf.transpose(1, 2).flatten(0, 1), targets.flatten(0, 1))
        sums = (each.view_as(shares) * shares).sum(dim=1)
        return sums.detach(), torch.autograd.grad(sums.sum(), leaf)[0]

    return head


def _through_any(model: FlatModel, losses: Callable[..., Tensor]) -> Gradients:
    names = [name for name, parameter in model.module.named_parameters() if parameter.requires_grad]

    def one(parameters: Tensors, inputs: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
        outputs = functional_call(model.module, dict(zip(names, parameters, strict=True)), (inputs,))
        return (losses(outputs, targets) * shares).sum()

    stacked = vmap(grad_and_value(one))

    def gradients(parameters: Tensors, inputs: Tensor, targets: Tensor, shares: Tensor) -> tuple[Tensor, Add]:
        found, sums = stacked(list(parameters), inputs, targets, shares)
        return sums, lambda to, alpha: torch._foreach_add_(list(to), found, alpha=alpha)

    return gradients


def _dense_layers(model: FlatModel, *, input_dims: int, may_flatten: bool) -> list[nn.Module] | None:
    """Return the layers of a plain sequence of dense and elementwise ones, None if the network is anything else."""
    if type(model.module) is not nn.Sequential:
        return None
    layers = list(model.module)
    if may_flatten and len(layers) > 1 and _is_flat_end(layers[-1], layers[-2]):
        layers = layers[:-1]
    if layers and type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
        layers = layers[1:]
    elif input_dims != 1:
        return None
    if any(type(layer) not in (nn.Linear, *_ELEMENTWISE) or _has_hooks(layer) for layer in layers):
        return None
    own = [parameter for layer in layers for parameter in layer.parameters()]
    same = len(own) == len(model.parameters) and all(map(operator.is_, own, model.parameters))
    return layers if same else None


def _is_flat_end(last: nn.Module, before: nn.Module) -> bool:
    """Return whether a network ends in one number for each example, [B, 1] as [B]."""
    is_flat = type(last) is nn.Flatten and (last.start_dim, last.end_dim) == (0, -1)
    return is_flat and type(before) is nn.Linear and before.out_features == 1


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


def check_stackable(model: FlatModel, loss: Loss, examples: Examples) -> None:
    """Refuse a network that cannot be one of a stack: its examples must not meet, and chance must play no part."""
    if model.works_in_place:
        raise InputError(f"the model changes the inputs that it is given, so it cannot be stacked; {_REMEDY}")
    for module in model.module.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p:
            raise InputError(f"dropout ({module}) draws for one client at a time, so it cannot be stacked; {_REMEDY}")
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise InputError(
                f"batch normalisation ({module}) takes statistics over a batch, which padding would spoil, so it "
                f"cannot be stacked; {_REMEDY}, or GroupNorm"
            )
        if getattr(module, "max_norm", None) is not None or getattr(module, "sparse", False):
            raise InputError(
                f"an embedding with max_norm or sparse ({module}) writes to weights or gradients of one client at a "
                f"time, so it cannot be stacked; {_REMEDY}"
            )
    inputs, targets = examples.inputs[:3], examples.targets[:3]
    buffers, chance = model.buffers(), torch.get_rng_state()
    model.module.train()
    value = loss(model.module(inputs), targets)
    plain = torch.autograd.grad(value, model.parameters, allow_unused=True)
    if not torch.equal(chance, torch.get_rng_state()):
        raise InputError(f"the model draws random numbers while it trains, so it cannot be stacked; {_REMEDY}")
    if not all(map(torch.equal, buffers, model.buffers())):
        model.load_buffers(buffers)
        raise InputError(
            "the model has buffers that change while it trains (running statistics), so it cannot be stacked; "
            f"{_REMEDY}"
        )
    _try_out(model, loss, inputs, targets, plain)


def _try_out(model: FlatModel, loss: Loss, inputs: Tensor, targets: Tensor, plain: Sequence[Tensor | None]) -> None:
    """Compare the gradient of a padded stack of two with the plain one."""
    size = len(targets)
    rows = [*range(size), 0]  # the last is padding
    shares = torch.tensor([*[1 / size] * size, 0.0], dtype=model.weights.dtype, device=targets.device)
    gradients = stacked_gradients(model, loss, input_dims=inputs.ndim - 1)
    weights = [torch.stack([parameter.detach()] * 2) for parameter in model.parameters]
    found = [torch.zeros_like(part) for part in weights]
    try:
        _, add = gradients(weights, *(torch.stack([part] * 2) for part in (inputs[rows], targets[rows], shares)))
    except (RuntimeError, ValueError, NotImplementedError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"torch.func cannot stack the model or its loss ({first}); {_REMEDY}") from error
    add(found, 1.0)
    for ours, right in zip(found, plain, strict=True):
        expected = torch.zeros_like(ours[0]) if right is None else right
        if not torch.allclose(ours[1], expected, rtol=1e-3, atol=1e-5):
            raise InputError(
                "a stack of clients has other gradients than one client: the model mixes the examples of a batch, or "
                f"the loss is not a mean over examples; {_REMEDY}"
            )

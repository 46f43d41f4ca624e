"""Federated fine-tuning by LoRA adapters (Hu et al., ICLR 2022): clients train and send the adapters alone.

The server trains a small transformer on public digits from 0 to 4. The clients have all ten, each some of them. What is
frozen is neither kept nor sent, so no setting is needed for it: theta is the trained parameters, and bytes count those.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

import fedadmm


class LoRA(nn.Module):
    """A frozen dense layer and a trained update of low rank: W x + B A x, where B begins at 0."""

    def __init__(self, dense: nn.Linear, rank: int) -> None:
        super().__init__()
        self.dense = dense.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, dense.in_features) / dense.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(dense.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x) + x @ self.a.T @ self.b.T


def add_lora(module: nn.Module, *, rank: int) -> nn.Module:
    """Freeze a module, and put an adapter on every dense layer in it."""
    module.requires_grad_(False)
    for name, child in module.named_children():
        setattr(module, name, LoRA(child, rank) if isinstance(child, nn.Linear) else add_lora(child, rank=rank))
    return module


class Block(nn.Module):
    """Attention and a perceptron, each on a normalised input and added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm, self.norm_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # [example, token, width]
        parts = self.query_key_value(self.norm(x)).chunk(3, dim=-1)
        split = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]
        attended = functional.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
        x = x + self.output(attended)
        return x + self.perceptron(self.norm_2(x))


class Transformer(nn.Module):
    """A classifier of images of 8x8, whose rows are the tokens."""

    def __init__(self, width: int = 64, blocks: int = 2) -> None:
        super().__init__()
        self.token, self.place = nn.Linear(8, width), nn.Parameter(torch.randn(8, width) / 8)
        self.blocks, self.head = nn.Sequential(*(Block(width, heads=4) for _ in range(blocks))), nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.token(images.reshape(-1, 8, 8)) + self.place).mean(dim=1))


def pretrained(inputs: torch.Tensor, targets: torch.Tensor, *, steps: int) -> nn.Module:
    """Return a transformer that is trained on public examples."""
    torch.manual_seed(0)
    network = Transformer()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs), targets).backward()
        optimizer.step()
    return network


def main(*, rounds: int = 15, pretraining: int = 100, **options: Any) -> fedadmm.Result:
    """Train the adapters, and print what travelled; `options` are further ones of `simulate`."""
    digits = fedadmm.load("digits")
    inputs, targets = digits.train
    public = torch.arange(len(targets)) < 400
    known = public & (targets < 5)
    network = add_lora(pretrained(inputs[known], targets[known], steps=pretraining), rank=4)
    dataset = fedadmm.make_dataset((inputs[~public], targets[~public]), digits.test)
    result = fedadmm.simulate(
        fedadmm.FedAvg(),
        model=network,
        data=fedadmm.federate(dataset, num_clients=20, partition="dirichlet", alpha=0.3, seed=0),
        rounds=rounds,
        participation=0.5,
        local=fedadmm.LocalTraining(epochs=2, batch_size=10, optimizer="adam", learning_rate=3e-3, warmup=0.1),
        **options,
    )
    whole, last = sum(p.numel() for p in network.parameters()), result.history[-1]
    print(f"{result.theta.numel():,} of {whole:,} parameters are trained and sent")
    print(f"an upload has {last.bytes_up // len(last.clients):,} bytes; accuracy {last.accuracy:.3f}")
    return result


if __name__ == "__main__":
    main()

"""FedAvg here and Flower's own FedAvg make the same model of the same client results."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from fedadmm.algorithms import FedAvg
from play import Play
from quadratics import heterogeneous
from worlds import network_world

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # flwr's dependencies announce their own removals on import
    from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict
    from flwr.serverapp import strategy

EXAMPLES = (8, 10, 6, 12, 8)


def _flowers(models: list[np.ndarray], *, weights: list[float]) -> np.ndarray:
    """Return what flwr's FedAvg aggregates from replies that carry these models."""
    replies = [
        Message(
            metadata=Metadata(
                run_id=1,
                message_id=str(node),
                src_node_id=node,
                dst_node_id=0,
                reply_to_message_id="0",
                group_id="1",
                created_at=0.0,
                ttl=60.0,
                message_type="train",
            ),
            content=RecordDict({"arrays": ArrayRecord([model]), "metrics": MetricRecord({"num-examples": weight})}),
        )
        for node, (model, weight) in enumerate(zip(models, weights, strict=True), start=1)
    ]
    arrays, _ = strategy.FedAvg().aggregate_train(1, replies)
    (aggregated,) = arrays.to_numpy_ndarrays()
    return aggregated


@pytest.mark.parametrize("weights", [[1.0] * 5, [float(n) for n in EXAMPLES]], ids=["equal", "examples"])
@pytest.mark.parametrize("place", ["network", "quadratics"])
def test_fedavg_is_flowers_to_rounding(place: str, weights: list[float]) -> None:
    if place == "network":
        play: Any = network_world().play(FedAvg(), weights=weights)
    else:
        theta = torch.linspace(-2, 2, 7, dtype=torch.float64)
        play = Play(FedAvg(), heterogeneous(5, 7), theta, num_clients=5, weights=weights)
    clients = [0, 1, 3, 4]
    models = [(play.theta + visit.upload.step).numpy() for visit in play.visits(clients)]
    theirs = _flowers(models, weights=[weights[client] for client in clients])
    play.round(clients)
    unit = np.finfo(theirs.dtype).eps  # of float32 and of float64
    np.testing.assert_allclose(play.theta.numpy(), theirs, rtol=8 * unit, atol=8 * unit)


def test_the_two_weightings_differ() -> None:
    # Else the test above would not tell them apart.
    models = [np.array([0.0]), np.array([4.0])]
    assert _flowers(models, weights=[1.0, 1.0]).tolist() == [2.0]
    assert _flowers(models, weights=[1.0, 3.0]).tolist() == [3.0]

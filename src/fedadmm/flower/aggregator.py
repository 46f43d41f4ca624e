"""A strategy of Flower's, such as FedMedian or Krum, in the place of the mean."""

from flwr.app import Message
from flwr.serverapp.strategy import Strategy

from fedadmm.core.algorithm import Vector
from fedadmm.core.round import ClientResult
from fedadmm.flower.wire import Wire


def aggregated_by(
    aggregator: Strategy, counting: list[tuple[ClientResult, Message]], wire: Wire, *, server_round: int, theta: Vector
) -> list[ClientResult]:
    """Return the results, the first of which brings what the aggregator made of all the models."""
    sound = [(result, message) for result, message in counting if result.finite]
    if not sound:
        return [result for result, _ in counting]
    arrays, _ = aggregator.aggregate_train(server_round, [message for _, message in sound])
    assert arrays is not None
    upload, floats = wire.unpack_upload(arrays, theta=theta)
    first = sound[0][0]
    stats = first.stats._replace(buffers=first.stats.buffers._replace(floats=floats))
    brought = first._replace(upload=upload, stats=stats, mean_of=tuple(result.client for result, _ in sound))
    return [
        brought if result is first else result._replace(mean_of=() if result.finite else None) for result, _ in counting
    ]

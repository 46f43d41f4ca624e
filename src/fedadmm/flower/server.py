"""The app that runs beside the SuperLink."""

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from torch.nn import functional

from fedadmm.core.seeds import torch_seed
from fedadmm.data.examples import as_examples
from fedadmm.experiments.simulation import one_thread
from fedadmm.flower.checkpoint import Checkpoint
from fedadmm.flower.node import ModelFunction
from fedadmm.flower.settings import FederationSettings
from fedadmm.flower.strategy import AlgorithmStrategy
from fedadmm.learning.evaluation import Loss, Metric, accuracy, batches, combined, score
from fedadmm.learning.flat import FlatModel
from fedadmm.learning.models import build

Wrap = Callable[[AlgorithmStrategy], Strategy]
EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]


def server_app(
    *,
    model: ModelFunction,
    test: Callable[[], Any] | None = None,
    loss: Loss = functional.cross_entropy,
    metrics: Mapping[str, Metric] | None = None,
    aggregator: Strategy | None = None,
    wrap: Wrap = lambda strategy: strategy,
) -> ServerApp:
    """Return the ServerApp of a federation; a new run of it goes on from the last checkpoint.

    test: returns examples on which the server evaluates theta after every round.
    aggregator, wrap: Flower's medians and Krum, and its wrappers for differential privacy; with wire = "model".
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings = FederationSettings.from_run_config(context.run_config)
        strategy = make_strategy(settings, model=model, aggregator=aggregator)
        try:
            chosen = {"accuracy": accuracy} if metrics is None else metrics
            rounds = settings.num_server_rounds - strategy.progress.round
            wrap(strategy).start(
                grid,
                initial_arrays=strategy.arrays,
                num_rounds=max(0, rounds),
                timeout=settings.round_timeout,
                evaluate_fn=None if test is None else _evaluation(strategy, model, test(), loss, chosen),
            )
        finally:
            strategy.close()

    return app


def make_strategy(
    settings: FederationSettings, *, model: ModelFunction, aggregator: Strategy | None = None
) -> AlgorithmStrategy:
    """Return the strategy of a federation, where its checkpoint left it."""
    network = _network(settings, model)
    checkpoint = Checkpoint(settings, settings.algorithm, initial=network.weights.clone())
    return AlgorithmStrategy(settings, model=network, checkpoint=checkpoint, aggregator=aggregator)


def _network(settings: FederationSettings, model: ModelFunction) -> FlatModel:
    seed = torch_seed(settings.seed, "model")
    return FlatModel(build(model, input_shape=(), num_classes=0, seed=seed))


def _evaluation(
    strategy: AlgorithmStrategy,
    model: ModelFunction,
    test: Any,
    loss: Loss,
    metrics: Mapping[str, Metric],
) -> EvaluateFunction:
    network = _network(strategy.settings, model)
    parts = batches(as_examples(test))

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        theta, _ = strategy.form.read_model(arrays)
        network.load(theta)
        network.load_buffers(strategy.progress.buffers)
        with one_thread():
            means = combined(score(network.module, part, loss=loss, metrics=metrics) for part in parts)
        return MetricRecord({name: float(value) for name, value in means.items()})

    return evaluate

"""The app that runs beside the SuperLink."""

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from torch.nn import functional

from fedadmm.core.algorithm import Vector
from fedadmm.core.round import Buffers
from fedadmm.data.examples import as_examples
from fedadmm.engine.process import one_thread
from fedadmm.flower.server_folder import ServerFolder
from fedadmm.flower.settings import FederationSettings
from fedadmm.flower.strategy import AlgorithmStrategy, Evaluation
from fedadmm.training.evaluation import Loss, Metric, accuracy, batches, check_model, combined, score
from fedadmm.training.flat import FlatModel
from fedadmm.training.models import ModelFunction, initial_model

Wrap = Callable[[AlgorithmStrategy], Strategy]


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
        chosen = {"accuracy": accuracy} if metrics is None else metrics
        evaluation = None if test is None else _evaluation(settings, model, test(), loss, chosen)
        strategy = make_strategy(settings, model=model, evaluation=evaluation, aggregator=aggregator)
        try:
            rounds = settings.num_server_rounds - strategy.checkpoint.round
            wrap(strategy).start(
                grid,
                initial_arrays=strategy.arrays,
                num_rounds=max(0, rounds),
                timeout=settings.round_timeout,
                evaluate_fn=None if test is None else lambda *_: MetricRecord(dict(strategy.scores)),
            )
        finally:
            strategy.close()

    return app


def make_strategy(
    settings: FederationSettings,
    *,
    model: ModelFunction,
    evaluation: Evaluation | None = None,
    aggregator: Strategy | None = None,
) -> AlgorithmStrategy:
    """Return the strategy of a federation, where its checkpoint left it."""
    network = FlatModel(initial_model(model, seed=settings.seed))
    folder = ServerFolder(settings, initial=network.weights.clone())
    return AlgorithmStrategy(settings, model=network, folder=folder, evaluation=evaluation, aggregator=aggregator)


def _evaluation(
    settings: FederationSettings, model: ModelFunction, test: Any, loss: Loss, metrics: Mapping[str, Metric]
) -> Evaluation:
    network = FlatModel(initial_model(model, seed=settings.seed))
    examples = as_examples(test)
    check_model(network, examples, loss=loss, metrics=metrics)
    parts = batches(examples)

    def evaluate(theta: Vector, buffers: Buffers) -> dict[str, float]:
        network.load(theta)
        network.load_buffers(buffers)
        with one_thread():
            means = combined(score(network.module, part, loss=loss, metrics=metrics) for part in parts)
        return {name: float(value) for name, value in means.items()}

    return evaluate

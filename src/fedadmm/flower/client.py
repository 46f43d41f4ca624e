"""The app that runs on every node."""

from collections.abc import Mapping

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from torch.nn import functional

from fedadmm.flower.node import DataFunction, Node
from fedadmm.training.evaluation import Loss, Metric, accuracy
from fedadmm.training.models import ModelFunction


def client_app(
    *,
    model: ModelFunction,
    data: DataFunction,
    loss: Loss = functional.cross_entropy,
    metrics: Mapping[str, Metric] | None = None,
    mods: list[Mod] | None = None,
) -> ClientApp:
    """Return the ClientApp of a node.

    model: returns the network. data: returns this node's examples, (inputs, targets), given the Context.
    mods: Flower's, such as fixedclipping_mod; with wire = "model".
    """
    app = ClientApp(mods=mods)

    def node(context: Context) -> Node:
        chosen = {"accuracy": accuracy} if metrics is None else metrics
        return Node(context, model=model, data=data, loss=loss, metrics=chosen)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(node(context).describe(message.content), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(node(context).train(message.content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(node(context).evaluate(message.content), reply_to=message)

    return app

"""The tables of an experiment that no other room owns: [model], [data], [state] and [certificate]."""

from typing import Annotated, Any, Literal

from pydantic import Field

from fedadmm.core.settings import Count, NonNegative, Settings, count_or

FloatType = Literal["float32", "float64", "bfloat16"]


class ModelSettings(Settings):
    """The network: one of ours or "package.module:function", its loss, and metrics beside the accuracy.

    name = "cnn1": "mlp", "small_cnn", the paper's "cnn1" and "cnn2" (those of its released code: "cnn1_released" and
        "cnn2_released"), "gru" for text, "linear", "softmax_regression", "logistic_regression", or
        "package.module:function", which returns a torch.nn.Module. It is given input_shape, num_classes (0 where
        targets are numbers) and target_shape, those of one example, if it has parameters of these names.
    options = {width = 64}: further arguments of the model's function.
    loss = "mse_loss": "least_squares", a function of torch.nn.functional, or "package.module:function" of (outputs,
        targets) that returns their mean loss.
    l2 = 1e-3: a term l2/2 |w|^2 of every client's objective; unlike local.weight_decay, every gradient has it.
    metrics = {f1 = "own:f1"}: metrics beside the loss and the accuracy, each a function of (outputs, targets) that
        returns a number, given those of all test examples. A run can be judged by one: see `metric`.
    personal = ["head.*"]: parameters and buffers that each client keeps for itself, by patterns of their names, such as
        ["head.*"] for a personal head (FedPer; FedRep with local.personal_epochs) or ["*.bn*"] for batch normalisation
        (FedBN). They are part of the client's state, are never sent, and have no dual. Loss and metrics are then means
        over the clients, each with its own parts, on examples held out (data.client_test). Left out: all is shared.
    """

    name: str = "mlp"
    options: dict[str, Any] = Field(default_factory=dict)
    loss: str = "cross_entropy"
    l2: NonNegative | None = None
    metrics: dict[str, str] = Field(default_factory=dict)
    personal: tuple[str, ...] | None = None


class DataSettings(Settings):
    """The data and how it is dealt to clients.

    name = "mnist": one of `fedadmm data list`, made on the spot ("synthetic", "quadratic"), "hf:NAME" (a folder, a file
        or a cached dataset of Hugging Face's `datasets`), or "package.module:function", which returns (train, test):
        pairs of tensors or arrays, or torch Datasets.
    num_clients = 100: how many clients there are; left out where the partition settles it, as "natural" does.
    partition = "dirichlet": "iid", "shards" (a few classes each), "imbalanced", "dirichlet", "natural" (one client for
        each group of the data), or "package.module:function" of (labels, num_clients, generator) that returns the
        indices of each client's examples.
    shards_per_client = 2: for "shards"; fewer are less alike.
    alpha = 0.1: for "dirichlet"; the smaller it is, the less alike clients are.
    quantiles = 10: of targets that are numbers, each of which is then dealt as a class.
    normalisation = "released": "dataset" (its own mean and spread, the default), "released" (as the paper's code does),
        or "none".
    validation = 0.2: the share of the training examples that takes the place of the test examples.
    client_test = 0.2: the share of each client's examples that it is scored on, and does not train on. Records then
        have mean, spread and worst decile over clients of loss and metrics. A client with one example trains on it.
    positive = [1, 3, 5, 7, 9]: the classes that become class 1; all others become class 0.
    float_type = "float64": of inputs and model; "bfloat16" trains in it by autocast, on weights in float32; left out,
        the data's own.
    options = {inputs = "image", targets = "label"}: of "hf:NAME": see [hugging_face]; of "quadratic": dimension,
        condition, heterogeneity.
    """

    name: str = "digits"
    num_clients: Count | None = None
    partition: str = "shards"
    shards_per_client: Count = 2
    alpha: float = 0.5
    quantiles: Count | None = None
    normalisation: str | None = None
    validation: float | None = None
    client_test: float | None = None

    positive: tuple[int, ...] | None = None
    float_type: FloatType | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class StateSettings(Settings):
    """Where client states are kept, and how.

    store = "memory": "disk", or "memory"; a run whose state is in memory cannot be resumed.
    float_type = "bfloat16": halves the state, and rounds it.
    durability = "power": what a committed round survives the loss of: the "process", or "power" too.
    """

    store: Literal["disk", "memory"] = "disk"
    float_type: Literal["float32", "bfloat16"] = "float32"
    durability: Literal["process", "power"] = "process"


class CertificateSettings(Settings):
    """How often V^t is recorded, and over which clients; it costs one full gradient a client.

    every = 10: 1 records every round, 10 rounds 1, 11, 21 and so on.
    clients = 20: "all", or a number that is drawn anew each time: sums are then estimates.
    """

    every: Count = 1
    clients: Annotated[int | Literal["all"], count_or("all")] = "all"

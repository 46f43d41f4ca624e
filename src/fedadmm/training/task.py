"""A network, its loss and a federation's data, as the problems of its clients."""

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedadmm.core.algorithm import Vector
from fedadmm.core.engine import Scores
from fedadmm.core.errors import InputError
from fedadmm.core.round import Assignment, Buffers
from fedadmm.core.seeds import torch_seed
from fedadmm.core.state_parts import Personal
from fedadmm.data.examples import Examples, Tree, mapped
from fedadmm.data.federated import FederatedData
from fedadmm.data.reading import Reader, seeded
from fedadmm.training import evaluation
from fedadmm.training.evaluation import Loss, Metric, Read, as_it_is, combined
from fedadmm.training.flat import FlatModel, independent_copy
from fedadmm.training.local import LocalTraining
from fedadmm.training.model_checks import check_batches, check_model, check_plain_mean, check_whole_inputs
from fedadmm.training.objective import Objective
from fedadmm.training.optimum import Optimum, is_linear, mean_objective
from fedadmm.training.problem import FullBatchProblem, SGDProblem
from fedadmm.training.solvers import solver_named
from fedadmm.training.stacked.gradients import check_stackable
from fedadmm.training.stacked.problem import StackedProblem, joined, stack_size
from fedadmm.training.steps import check_optimizer


class LearningTask:
    """The clients' problems: the mean loss of one network over each client's examples, and l2/2 |w|^2."""

    def __init__(
        self,
        module: nn.Module,
        data: FederatedData,
        *,
        local: LocalTraining,
        loss: Loss,
        metrics: Mapping[str, Metric],
        seed: int,
        l2: float = 0.0,
        device: str | torch.device = "cpu",
        personal: Sequence[str] | None = None,
        autocast: bool = False,
    ) -> None:
        self.model, self._patterns = FlatModel(module, device=device, personal=personal), personal
        self.personal = self.model.personal  # before round 1
        self.model.autocast = autocast
        self.data, self.local, self.seed, self._device = data, local, seed, device
        self.loss, self.l2 = loss, l2
        self.held_out: FederatedData | None = getattr(data, "held_out", None)
        check_optimizer(local)
        fitting: dict[str, Any] = {"loss": loss, "metrics": metrics, "num_classes": getattr(data, "num_classes", 0)}
        self.reader: Reader | None = getattr(data, "reader", None)
        read = partial(self._read, 0, 0)
        fitting |= {"test": data.test, "read": read, "evaluated": self._try}
        self._metrics = check_model(self.model, joined(data, [0])[0], **fitting)
        # Where clients keep parts of the model, no model is whole but a client's own.
        test = data.test if self.personal is None else None
        parts = [] if test is None else evaluation.batches(self._on_device(test), size=self._scored_at_once)
        # A user's metric needs all test examples at once: F1 over two halves is no mean of theirs.
        whole = parts and not evaluation.can_be_divided(self._metrics)
        self._test = [parts] if whole else [[part] for part in parts]

    def problem(self, assignment: Assignment, *, buffers: Buffers) -> SGDProblem:
        """Return a client's problem in a round, on a network with these buffers."""
        self.model.load_buffers(buffers)
        self.load_personal(None)
        self.model.module.train()
        client, local, seed = assignment.client, self.local, self.seed
        examples = self._on_device(self.data.client(client))
        read, chunk = self._reader_of(client, round=assignment.round), self._read_at_once
        reading: dict[str, Any] = {"owner": f"client {client}", "read": read, "chunk": chunk}
        objective = Objective(self.model, examples, loss=self.loss, decay=self.l2, **reading)
        name = local.solver_of(client, seed=seed)
        if name == "sgd":
            return SGDProblem(objective, assignment=assignment, local=local, seed=seed)
        return FullBatchProblem(objective, solver=solver_named(name), assignment=assignment, local=local, seed=seed)

    def stack(self, assignments: Sequence[Assignment], *, buffers: Buffers) -> StackedProblem:
        """Return the problems of several clients in a round as one."""
        self.model.load_buffers(buffers)
        self.model.module.train()
        return StackedProblem(self, assignments, buffers=buffers)

    def stack_size(self, assignments: Sequence[Assignment]) -> int:
        """Return how many clients of a round may be stacked at a time."""
        counts = self.data.num_examples[[assignment.client for assignment in assignments]]
        epochs = max(assignment.epochs for assignment in assignments)
        size = self.data.client(assignments[0].client).inputs[0].nbytes
        return stack_size(counts, epochs=epochs, num_parameters=self.num_parameters, example_bytes=size)

    @property
    def num_parameters(self) -> int:
        """The number of trainable parameters."""
        return self.model.weights.numel()

    @property
    def is_linear(self) -> bool:
        """Whether the outputs are linear in the parameters, as convex problems need."""
        return self.reader is None and is_linear(self.model, self._on_device(self.data.client(0)))

    @property
    def has_convolutions(self) -> bool:
        """Whether the network has convolutions, which gain little in a stack."""
        return any(isinstance(module, nn.modules.conv._ConvNd) for module in self.model.module.modules())

    def check_stackable(self) -> None:
        """Refuse a network, a loss or a local solve of which no stack can be made."""
        if keys := self.local.beyond_epochs:
            raise InputError(f'a stack runs epochs of SGD, and local has {keys}; use engine="workers"')
        if self.reader is not None:
            raise InputError(
                "a stack has all inputs as one tensor, and these are tuples, dicts or read batch by batch; use "
                'engine="workers"'
            )
        if self.model.is_narrow:
            raise InputError('a stack runs float32 and float64, and not bfloat16; use engine="workers"')
        if self.personal is not None:
            raise InputError(
                'a stack shares the whole model, and model.personal keeps parts of it; use engine="workers"'
            )
        examples = joined(self.data, [0])[0]
        check_plain_mean(self.loss, examples.targets)
        check_stackable(self.model, self.loss, self._on_device(self.data.client(0)))
        check_whole_inputs(self.model, examples)

    def check_batches(self, *, client: int = 0) -> None:
        """Refuse clients whose batches the network cannot be trained on; `client` is the number of the first."""
        if self.model.needs_two:
            check_batches(self.data.num_examples, self.local, first=client)

    def optimum(self, weights: npt.NDArray[np.float64] | None = None) -> Optimum:
        """Return the minimiser of the mean of all clients' problems, seen from the network as it is now."""
        if self.reader is not None:
            raise InputError("the distance to the optimum needs inputs in one tensor; use another metric")
        objective = mean_objective(self.model.module, self.data, loss=self.loss, l2=self.l2, weights=weights)
        return Optimum(objective, initial=self.model.weights)

    def objective(self, client: int, *, buffers: Buffers) -> Objective:
        """Return a client's objective as a function, with the network in evaluation mode and weight decay as a part."""
        inputs, targets = self._on_device(self.data.client(client))
        examples, decay = Examples(self.model.laid_out(inputs), targets), self.l2 + self.local.weight_decay
        reading: dict[str, Any] = {"read": self._reader_of(client, round=0), "chunk": self._read_at_once}
        return Objective(self.model, examples, loss=self.loss, decay=decay, buffers=buffers, **reading)

    def joins(self, client: int) -> bool:
        """Return whether a client's last batch of one example joins the one before it."""
        if not self.model.needs_two or self.local.batch_size == "full":
            return False
        count = int(self.data.num_examples[client])
        size = min(self.local.batch_size, count)
        return self.local.batch_sizes(count, size, join=True)[-1] > size

    def cost(self, assignment: Assignment) -> float:
        """Return the number of example gradients that a client's epochs take, for a fair share of the work."""
        return assignment.epochs * float(self.data.num_examples[assignment.client])

    def buffers(self) -> Buffers:
        """Return the network's buffers."""
        return self.model.buffers()

    def private(self) -> "LearningTask":
        """Return a task with a network of its own, for another process."""
        twin = copy.copy(self)
        module = independent_copy(self.model.module)
        twin.model = FlatModel(module, device=self._device, personal=self._patterns)
        for name in ("needs_two", "autocast", "works_in_place", "keeps_order"):
            setattr(twin.model, name, getattr(self.model, name))
        return twin

    @property
    def scored(self) -> tuple[str, ...]:
        """The names of the loss and the metrics that examples are scored by."""
        return "loss", *self._metrics

    @property
    def num_parts(self) -> int:
        """The number of parts in which the test examples are evaluated."""
        return len(self._test)

    def evaluate_part(self, part: int, theta: Vector, *, buffers: Buffers) -> Scores:
        """Return loss and metrics on a part of the test examples."""
        return self._score(theta, buffers, self._test[part], whose=(part,))

    def evaluate_client(
        self, client: int, theta: Vector, *, buffers: Buffers, personal: Personal | None = None
    ) -> dict[str, float]:
        """Return loss and metrics on one client's own examples: those held out, if any are; {} where it has none.

        personal: the parts of the model that it keeps, the initial ones if None.
        """
        self.load_personal(personal)
        examples = self._on_device((self.held_out or self.data).client(client))
        parts = evaluation.batches(examples, size=self._scored_at_once) if len(examples.targets) else []
        return combined([self._score(theta, buffers, parts, whose=(0, client))])

    def load_personal(self, personal: Personal | None) -> None:
        """Copy the parts that a client keeps into the network, the initial ones if None."""
        if self.personal is not None:
            self.model.load_personal(personal or self.personal)

    def _score(self, theta: Vector, buffers: Buffers, parts: Sequence[Examples], *, whose: tuple[int, ...]) -> Scores:
        self.model.load(theta)
        self.model.load_buffers(buffers)
        batches = (self._read(0, 0, *part, 0, 0) for part in parts)
        seed = torch_seed(self.seed, "evaluation", *whose)  # of a model that draws
        with torch.random.fork_rng(devices=[] if self.model.weights.is_cpu else None), seeded(seed):
            self.model.seed(seed)
            return evaluation.score(self.model, batches, loss=self.loss, metrics=self._metrics)

    def _try(self, metrics: Mapping[str, Metric]) -> None:
        """Score the network as after a round: on the test examples, or those of a client where there are none."""
        examples = self.data.test
        if examples is None or self.personal is not None:
            examples = (self.held_out or self.data).client(0)
        parts = evaluation.batches(self._on_device(examples), size=self._read_at_once)
        evaluation.score(self.model, (self._read(0, 0, *part, 0, 0) for part in parts), loss=self.loss, metrics=metrics)

    @property
    def _scored_at_once(self) -> int | None:
        """Of how many examples a batch is in evaluation, None for the usual number."""
        convolves = any(isinstance(module, nn.Conv2d) for module in self.model.module.modules())
        return self._read_at_once or (evaluation.CONVOLVED if convolves else None)

    @property
    def _read_at_once(self) -> int | None:
        """How many examples are read at a time where not all are in memory: a batch."""
        is_lazy = self.reader is not None and self.reader.is_lazy and self.local.batch_size != "full"
        return int(self.local.batch_size) if is_lazy else None

    def _reader_of(self, client: int, *, round: int) -> Read:
        return as_it_is if self.reader is None else partial(self._read, round, client)

    def _read(
        self, round: int, client: int, inputs: torch.Tensor, targets: torch.Tensor, epoch: int, number: int
    ) -> tuple[Tree, Tree]:
        """Return a batch, which is read now if it is rows; its random numbers belong to round, client, epoch, batch."""
        if self.reader is None:
            return inputs, targets
        seed = torch_seed(self.seed, "transforms", round, client, epoch, number)
        batch = self.reader.read(inputs, seed=seed)
        read, targets = mapped(lambda part: part.to(self._device) if isinstance(part, torch.Tensor) else part, batch)
        return self.model.laid_out(read), targets

    def _on_device(self, examples: Examples) -> Examples:
        return Examples(examples.inputs.to(self._device), examples.targets.to(self._device))

"""A client's problem in a round: solved by SGD, or by a solver that takes gradients over all of its examples."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import torch
from torch import nn

from fedadmm.core.algorithm import Solution, Vector
from fedadmm.core.round import Assignment, ClientStats
from fedadmm.core.seeds import stream, torch_seed
from fedadmm.core.state_parts import Personal
from fedadmm.data.examples import Tree, num_rows
from fedadmm.training.flat import squared_norm
from fedadmm.training.local import LocalTraining
from fedadmm.training.objective import Objective
from fedadmm.training.solvers import Budget, Lagrangian, Solver, minimise
from fedadmm.training.steps import FusedSGD, OptimizerSteps, Part, clipped


class SGDProblem:
    """One client's objective in one round: the mean loss of the network over its examples, and l2/2 |w|^2."""

    def __init__(self, objective: Objective, *, assignment: Assignment, local: LocalTraining, seed: int) -> None:
        self._objective, self._model, self._examples = objective, objective.model, objective.examples
        self._assignment, self._local, self._seed = assignment, local, seed
        self.client, self.round = assignment.client, assignment.round
        self.first_visit, self.last_round = assignment.first_visit, assignment.last_round or 0
        self.num_examples = objective.num_examples
        self.batch_size = min(self._wanted_batch(), self.num_examples)
        self._sizes = local.batch_sizes(self.num_examples, self.batch_size, join=objective.model.needs_two)
        self.num_steps = self._steps_within(assignment, max_steps=local.max_steps)
        self.learning_rate, self.clip = local.learning_rate_at(assignment.round), local.clip
        self._tolerance = local.tolerance_at(assignment.round, client=assignment.client, seed=seed)
        self._epsilon: float | None = None
        self._steps = self._num_losses = 0
        self._has_solved = False
        float_type = torch.promote_types(self._model.weights.dtype, torch.float32)
        self._loss_sum = torch.zeros((), dtype=float_type, device=self._model.weights.device)
        self._seed_dropout()

    @torch.enable_grad()
    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: float = 0.0, centre: Vector | None = None
    ) -> Solution:
        """Step along f(w) + <dual, w> + rho/2 |w - centre|^2 from `start`, until it is accurate or the budget ends."""
        model = self._model
        pull = rho + self._decay  # of w towards 0; the constant moves rho's part to the centre
        # The steps keep of the constant what they need: with a large model it is not held beside that.
        steps = self._begun(pull, _constant(dual, rho, centre))
        model.load(start)
        before = self._steps
        for epoch in range(self._assignment.epochs):
            trained = self._trained(epoch)
            for inputs, targets in self._batches(epoch):
                if self._is_over(self._steps - before, num_rows(targets)):
                    break
                loss = steps.take(partial(self._batch_gradients, inputs, targets), trained)
                self._count(loss, has_loss=self._objective.has_loss(targets))
            if self._tolerance is not None:
                self._epsilon = self._measured(pull, _constant(dual, rho, centre))
                if self._epsilon <= self._tolerance:
                    break
            if self._is_over(self._steps - before, self.batch_size):
                break
        self._has_solved = True
        return Solution(model.weights.clone(), self._steps - before)

    @torch.enable_grad()
    def gradient(self, w: Vector) -> Vector:
        """Return the gradient of the objective over all of the client's examples.

        After a solve it is a look, of which running statistics do not take notice.
        """
        self._model.load(w)
        total = self._objective.decay * w if self._objective.decay else torch.zeros_like(w)
        with self._model.unnoticed() if self._has_solved else nullcontext():
            self._count(sum(loss * share for loss, share in self._objective.add_gradient(total)))
        return total

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        """Return the Hessian of f at w times v."""
        return self._objective.hessian_product(w, v)

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        """Return x with (H + rho I) x = v, for the Hessian H of f at w."""
        return self._objective.hessian_solve(w, v, rho=rho)

    def stats(self) -> ClientStats:
        """Return what was done since the problem was made."""
        loss = float(self._loss_sum) / max(self._num_losses, 1)
        return ClientStats(self._steps, self._objective.evaluations, loss, self._model.buffers(), self._epsilon)

    @property
    def personal(self) -> Personal | None:
        """The parts of the model that the client keeps, as they are now."""
        return self._model.personal

    @personal.setter
    def personal(self, personal: Personal | None) -> None:
        assert personal is not None
        self._model.load_personal(personal)

    def _trained(self, epoch: int) -> slice:
        """Return which parts an epoch trains: shared and personal ones, or one after the other."""
        alone = self._local.personal_epochs
        if alone is None:
            return slice(None)
        return slice(1, 2) if epoch < alone else slice(0, 1)

    def _begun(self, pull: float, constant: Vector | None) -> FusedSGD | OptimizerSteps:
        """Return the steps of a solve that begins: nothing is left of an earlier one."""
        model, local, learning_rate = self._model, self._local, self.learning_rate
        parts = [Part(model.parameters, model.weights, pull, constant)]
        if model.personal_parameters:  # of which the algorithm knows nothing
            parts.append(Part(model.personal_parameters, model.personal_weights, self._decay, None))
        if local.is_sgd:
            return FusedSGD(parts, learning_rate=learning_rate, momentum=local.momentum)
        return OptimizerSteps(parts, local=local, learning_rate=learning_rate, num_steps=self.num_steps)

    def _batch_gradients(
        self, inputs: Tree, targets: Tree, parameters: list[nn.Parameter]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        loss, gradients = self._objective.batch(inputs, targets, parameters)
        return loss, gradients if self.clip is None else clipped(gradients, self.clip)

    @property
    def _decay(self) -> float:
        """The decay of a solve: weight decay is a part of it, and not of f; that of AdamW is its own."""
        own = 0.0 if self._local.optimizer == "adamw" else self._local.weight_decay
        return own + self._objective.decay

    def _wanted_batch(self) -> int:
        return self.num_examples if self._local.batch_size == "full" else self._local.batch_size

    def _steps_within(self, assignment: Assignment, *, max_steps: int | None) -> int:
        """Return how many steps there is a budget for, if no time is spent on checks."""
        of_an_epoch = len(self._sizes)
        steps = [assignment.epochs * of_an_epoch]
        if max_steps is not None:
            steps.append(max_steps)
        if assignment.max_gradients is not None:
            epochs, rest = divmod(assignment.max_gradients, sum(self._sizes))
            steps.append(max(1, epochs * of_an_epoch + rest // self.batch_size))
        return min(steps)

    def _is_over(self, steps: int, num_examples: int) -> bool:
        """Return whether there is no budget for a step on this many examples; one step is always taken."""
        if not steps:
            return False
        time = self._assignment.max_gradients
        return steps >= self.num_steps or (time is not None and self._objective.evaluations + num_examples > time)

    def _measured(self, pull: float, constant: Vector | None) -> float:
        """Return |grad L|^2 at the model's weights; the solve does not notice."""
        gradient = torch.zeros_like(self._model.weights)
        with self._model.unnoticed(), torch.random.fork_rng(devices=[] if self._model.weights.is_cpu else None):
            self._seed_dropout()
            self._objective.add_gradient(gradient)
        gradient.add_(self._model.weights, alpha=pull)
        return squared_norm(gradient if constant is None else gradient.add_(constant))

    def _batches(self, epoch: int) -> Iterator[tuple[Tree, Tree]]:
        inputs, targets = self._examples
        if self.batch_size < self.num_examples:
            generator = stream(self._seed, "batches", self.round, self._assignment.client, epoch)
            order = torch.from_numpy(generator.permutation(self.num_examples)).to(targets.device)
            inputs, targets = inputs[order], targets[order]
        used = sum(self._sizes)  # all, but for drop_last
        pieces = self._model.laid_out(inputs)[:used].split(self._sizes), targets[:used].split(self._sizes)
        for number, batch in enumerate(zip(*pieces, strict=True)):
            yield self._objective.read(*batch, epoch, number)

    def _seed_dropout(self) -> None:
        """Let dropout draw from this client's stream of this round."""
        self._model.seed(torch_seed(self._seed, "dropout", self.round, self._assignment.client))

    def _count(self, loss: torch.Tensor | float, *, has_loss: bool = True) -> None:
        self._steps += 1
        if has_loss:
            self._num_losses += 1
            self._loss_sum += loss


def _constant(dual: Vector | None, rho: float, centre: Vector | None) -> Vector | None:
    """Return dual - rho centre, the part of the gradient of <dual, w> + rho/2 |w - centre|^2 that w does not change."""
    if not rho:
        return dual
    assert centre is not None
    return -rho * centre if dual is None else dual - rho * centre


class FullBatchProblem(SGDProblem):
    """One client's objective in one round; an epoch is one step, and the gradient at the start comes on top."""

    def __init__(
        self, objective: Objective, *, solver: Solver, assignment: Assignment, local: LocalTraining, seed: int
    ) -> None:
        super().__init__(objective, assignment=assignment, local=local, seed=seed)
        self._solver = solver

    @torch.enable_grad()
    def solve(
        self, *, start: Vector, dual: Vector | None = None, rho: float = 0.0, centre: Vector | None = None
    ) -> Solution:
        """Minimise f(w) + <dual, w> + rho/2 |w - centre|^2 from `start`, until it is accurate or the budget ends."""
        budget = Budget(self.num_steps, self._tolerance or 0.0, self.learning_rate)
        objective = Lagrangian(self._f, dual=dual, rho=rho, centre=centre, budget=budget)
        point = minimise(self._solver, objective, start=start, budget=budget)
        self._epsilon = point.epsilon
        self._steps += objective.calls - 1
        self._has_solved = True
        return Solution(point.w, max(1, objective.calls - 1))

    def _f(self, w: Vector) -> tuple[float, Vector]:
        """Return f, of which weight decay is a part, and its gradient; dropout has the same mask in every call."""
        self._seed_dropout()
        decay = self._decay
        loss, gradient = self._objective.loss_and_gradient(w, decay=decay)
        self._loss_sum += loss
        self._num_losses += 1
        return (loss + decay / 2 * squared_norm(w) if decay else loss), gradient

    def _wanted_batch(self) -> int:
        return self.num_examples

    def _steps_within(self, assignment: Assignment, *, max_steps: int | None) -> int:
        steps = super()._steps_within(assignment, max_steps=max_steps)
        if assignment.max_gradients is None:
            return steps
        return min(steps, max(1, assignment.max_gradients // self.num_examples - 1))

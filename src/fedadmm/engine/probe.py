"""An algorithm is tried before the first round: two visits of a client whose f(w) = |w - target|^2 / 2 really moves.

So a mistake in it is a sentence, and not a run whose result depends on the engine.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fedadmm.core.algorithm import AnyAlgorithm, Solution, Turnout, Vector
from fedadmm.core.errors import InputError, calling
from fedadmm.core.optional import SecondOrder, trait
from fedadmm.core.round import Assignment, received

STEP = 0.3
THETA = torch.linspace(-1.0, 1.0, 5)
TARGETS = torch.tensor([[0.5, -1.0, 2.0, 0.0, 1.0], [-2.0, 0.3, 1.0, 4.0, -0.7]])
NUM_STEPS = torch.tensor([[2.0], [3.0]])
CLIENTS = torch.tensor([[0.0], [1.0]])


class Forms(NamedTuple):
    """A message of each kind, for its form alone."""

    download: Any
    client: Any
    upload: Any


class _Quadratic:
    """f(w) = |w - target|^2 / 2 of one client [d] or of a stack [K, d]; it is solved by one long step."""

    learning_rate = STEP

    def __init__(
        self, target: Vector, num_steps: Any, *, client: Any = 0, last_round: int = 0, bare: bool = False
    ) -> None:
        """Begin the round after this one; `bare`: a solve returns a vector, as in 0.1.0."""
        self.clip: float | None = None
        self._target, self.num_steps, self.num_examples, self._bare = target, num_steps, num_steps, bare
        self.client, self.round, self.last_round = client, last_round + 1, last_round
        first = last_round == 0
        self.first_visit: Any = first if isinstance(num_steps, int) else torch.full_like(num_steps, first)

    def solve(self, *, start: Vector, dual: Vector | None = None, rho: Any = 0.0, centre: Vector | None = None) -> Any:
        slope = self.gradient(start) + (0.0 if dual is None else dual)
        w = start - STEP * (slope if centre is None else slope + rho * (start - centre))
        return w if self._bare else Solution(w, self.num_steps)

    def gradient(self, w: Vector) -> Vector:
        return w - self._target

    def hessian_product(self, w: Vector, v: Vector) -> Vector:
        return v.clone()

    def hessian_solve(self, w: Vector, v: Vector, *, rho: float) -> Vector:
        return v / (1 + rho)


def probe(algorithm: AnyAlgorithm, theta: Vector) -> Forms:
    """Return the forms of an algorithm's messages; refuse one that breaks the contract."""
    trial = _Trial(algorithm)
    server = trial.message("init_server", theta)
    client = trial.message("init_client", theta)
    uploads: list[Any] = []
    for last_round in range(2):
        download = trial.message("download", server)
        trial.check_theta(server, download, theta)
        upload, after = trial.client_update(download, client, theta, last_round)
        trial.check_sizes("client_update", after, like=client)
        trial.check_sizes("client_update", upload, like=(uploads or [upload])[0])
        uploads.append(upload)
        following = trial.message("server_update", server, upload, Turnout(last_round + 1, 1.0, 2.0, 1.0))
        trial.check_sizes("server_update", following, like=server)
        model = trial.called("model", following)
        if _shape(model) != theta.shape or model.dtype != theta.dtype:
            raise trial.error("model returns no vector of theta's size and dtype; return the point to be evaluated")
        server, client = following, after
    return Forms(trial.message("download", server), client, uploads[0])


class _Trial:
    """An algorithm whose methods are watched."""

    def __init__(self, algorithm: AnyAlgorithm) -> None:
        self._algorithm = algorithm

    def error(self, text: str) -> InputError:
        return InputError(f"{type(self._algorithm).__name__}.{text}")

    def called(self, method: str, *arguments: Any) -> Any:
        """Return what a method answers; refuse it if it changes what it was given."""
        given = [(*pair, pair[1].clone()) for argument in arguments for pair in _vectors(argument)]
        with calling(f"{method} of {self._algorithm}"):
            answer = getattr(self._algorithm, method)(*arguments)
        for name, vector, before in given:
            # The second comparison, in which a NaN is itself, takes ten times as long as the first.
            if not (vector.equal(before) or torch.allclose(vector, before, rtol=0, atol=0, equal_nan=True)):
                raise self.error(f"{method} changes {name} in place; make a new vector instead, such as {name} + x")
        return answer

    def message(self, method: str, *arguments: Any) -> Any:
        """Return the message that a method answers."""
        return self.checked(method, self.called(method, *arguments))

    def checked(self, method: str, message: Any) -> Any:
        """Return a message; refuse what is not a NamedTuple of vectors and numbers."""
        if not (isinstance(message, tuple) and hasattr(message, "_fields")):
            other = ", or leave init_client out if clients keep nothing" if method == "init_client" else ""
            raise self.error(
                f"{method} returns {type(message).__name__} where a message belongs; return a NamedTuple of vectors "
                f"and numbers{other}"
            )
        for name, field in zip(message._fields, message, strict=True):
            if not isinstance(field, torch.Tensor | int | float):
                raise self.error(
                    f"{method} returns {type(field).__name__} as {name}; a message holds vectors and numbers, and what "
                    "does not travel is left out of a Download of its own"
                )
        return message

    def check_theta(self, server: Any, download: Any, theta: Vector) -> None:
        """Refuse a server or a download that does not begin with theta."""
        for method, message in (("init_server", server), ("download", download)):
            if message._fields[:1] != ("theta",) or _shape(message[0]) != theta.shape:
                raise self.error(f"{method} returns {message._fields}; its first field must be theta, of theta's size")

    def check_sizes(self, method: str, message: Any, *, like: Any) -> None:
        """Refuse a message whose fields have other sizes than they had."""
        if type(message) is not type(like):
            raise self.error(f"{method} returns {_kind(message)}, where {_kind(like)} was before; return the same type")
        for name, field, old in zip(message._fields, message, like, strict=True):
            if _shape(field) != _shape(old):
                raise self.error(
                    f"{method} returns {name} of size {list(_shape(field))}, and its size was {list(_shape(old))}; "
                    "a vector keeps its size"
                )

    def client_update(self, download: Any, client: Any, theta: Vector, last_round: int) -> tuple[Any, Any]:
        """Return what a client uploads and keeps."""
        problem = _Quadratic(theta / 2 + 1, 2, last_round=last_round)
        client = received(self._algorithm, download, client, Assignment(0, last_round + 1, 1))
        try:
            answer = self.called("client_update", download, client, problem)
            if type(answer) is not tuple or len(answer) != 2:
                raise self.error(f"client_update returns {type(answer).__name__}; return (upload, client)")
            upload, after = (self.checked("client_update", message) for message in answer)
        except Exception:
            if self._expects_a_vector(download, client, theta, last_round):
                raise self.error(
                    "client_update: problem.solve returns a Solution since 0.2; write problem.solve(...).w"
                ) from None
            raise
        return upload, after

    def _expects_a_vector(self, download: Any, client: Any, theta: Vector, last_round: int) -> bool:
        """Return whether the algorithm would work if a solve returned a vector, as it did in 0.1.0."""
        problem: Any = _Quadratic(theta / 2 + 1, 2, last_round=last_round, bare=True)
        try:
            upload, after = self._algorithm.client_update(download, client, problem)
            self.checked("client_update", upload)
            self.checked("client_update", after)
        except Exception:
            return False
        return True


def check_elementwise(algorithm: AnyAlgorithm) -> None:
    """Refuse an algorithm that needs Hessians, or that gives a client another answer in a stack than alone."""
    if trait(algorithm, SecondOrder):
        raise _mixing(algorithm, "it takes Newton steps, which are made for one client at a time")
    alone = [_visits(algorithm, TARGETS[k], int(NUM_STEPS[k]), client=k) for k in range(2)]
    try:
        together = _stacked_visits(algorithm, form=alone[0])
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise _mixing(algorithm, f"it fails: {str(error).splitlines()[0]}") from error
    for right, ours in zip(alone, together, strict=True):
        for message, other in zip(right, ours, strict=True):
            for name, a, b in zip(message._fields, message, other, strict=True):
                if a is not b and not torch.allclose(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-4):
                    raise _mixing(algorithm, f"`{name}` is another in a stack than alone")


def _visits(algorithm: AnyAlgorithm, target: Vector, num_steps: int, *, client: int) -> tuple[Any, Any]:
    """Return the upload and the state after two visits: the second meets a state of the first."""
    server = algorithm.download(algorithm.init_server(THETA))
    state = algorithm.init_client(THETA)
    for last_round in range(2):
        problem: Any = _Quadratic(target, num_steps, client=client, last_round=last_round)
        upload, state = algorithm.client_update(server, state, problem)
    return upload, state


def _stacked_visits(algorithm: AnyAlgorithm, *, form: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    from fedadmm.engine.stacked import stacked, unstacked  # which asks for the forms of messages here

    server = algorithm.download(algorithm.init_server(THETA))
    states: list[Any] = [algorithm.init_client(THETA)] * 2
    for last_round in range(2):
        problem: Any = _Quadratic(TARGETS, NUM_STEPS, client=CLIENTS, last_round=last_round)
        upload, after = algorithm.client_update(server, stacked(states, like=THETA), problem)
        states = unstacked(after, 2, form=form[1])
    return list(zip(unstacked(upload, 2, form=form[0]), states, strict=True))


def _mixing(algorithm: AnyAlgorithm, reason: str) -> InputError:
    return InputError(
        f"{type(algorithm).__name__} cannot run on a stack of clients ({reason}); write client_update elementwise, for "
        'vectors [K, d] and scalars [K, 1], or use engine = "workers"'
    )


def _kind(message: Any) -> str:
    return f"{type(message).__name__}({', '.join(message._fields)})"


def _shape(field: Any) -> Sequence[int]:
    return field.shape if isinstance(field, torch.Tensor) else torch.Size(())


def _vectors(argument: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the vectors of an argument with their names."""
    if isinstance(argument, torch.Tensor):
        return [("theta", argument)]
    fields = argument._asdict() if hasattr(argument, "_asdict") else {}
    kind = type(argument).__name__
    return [(f"{kind}.{name}", field) for name, field in fields.items() if isinstance(field, torch.Tensor)]

"""Who takes part in a round, and what each client is asked to do: an assignment is made here, whole, and passed on."""

from collections.abc import Collection, Iterable
from typing import Any, Protocol

from fedadmm.core.algorithm import Algorithm
from fedadmm.core.participation import Devices, Participation
from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.training.local import LocalTraining


class Plans(Protocol):
    """Says who takes part in a round, and what each is asked to do."""

    def plan(self, round: int, *, informed: Collection[int] | None = None) -> list[Assignment]: ...


class Planner:
    """Plans rounds: each plan is a function of the seed and the round, and needs no earlier round."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any, Any],
        *,
        participation: Participation,
        local: LocalTraining,
        devices: Devices,
        seed: int,
    ) -> None:
        self._skip_probability, self._participation = algorithm.silence, participation
        self._local, self._devices, self._seed = local, devices, seed

    def plan(self, round: int, *, informed: Collection[int] | None = None) -> list[Assignment]:
        """Return the assignments of a round, ids rising.

        informed: the clients that have had the server's state since their last update, because that update counted in
            the last round; None before the first round: everybody knows theta^0.
        """
        generator = stream(self._seed, "participation", round)
        selected = self._participation.select(round, devices=self._devices, generator=generator)
        return self.assigned(round, selected, informed=informed)

    def assigned(
        self, round: int, selected: Iterable[int], *, informed: Collection[int] | None = None
    ) -> list[Assignment]:
        """Return the assignments of a round in which these clients were selected to communicate."""
        if self._skip_probability is None:
            return [self.assignment(round, int(client)) for client in selected]
        # All clients compute. The selected ones communicate, or nobody does.
        skipped = stream(self._seed, "silence", round).random() < self._skip_probability
        senders = set() if skipped else set(map(int, selected))
        return [
            self.assignment(round, client, hears=informed is None or client in informed, sends=client in senders)
            for client in range(self._devices.num_clients)
        ]

    def assignment(self, round: int, client: int, *, hears: bool = True, sends: bool = True) -> Assignment:
        """Return what one client is asked to do in a round."""
        epochs = self._local.epochs_of(client, round=round, seed=self._seed)
        gradients = self._local.gradients_of(client, seed=self._seed, facts=self._devices.facts)
        return Assignment(client, round, epochs, gradients, hears=hears, sends=sends)

"""Who takes part in a round, and what each client is asked to do: an assignment is made here, whole, and passed on."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fedadmm.core.algorithm import AnyAlgorithm
from fedadmm.core.optional import SkipsCommunication, trait
from fedadmm.core.participation import Devices, Participation, selected
from fedadmm.core.round import Assignment, never
from fedadmm.core.seeds import stream
from fedadmm.training.local import LocalTraining

Informed = Collection[int] | None
LastRound = Callable[[int], int | None]  # of a client
Speed = Callable[[int], float]  # of a client's device, in gradients of single examples per second


class RoundPlanner(Protocol):
    """Says who takes part in a round, and what each is asked to do."""

    def plan(self, round: int, *, informed: Informed = None, last_round: LastRound = never) -> list[Assignment]: ...


@dataclass(frozen=True)
class Planner:
    """Plans rounds: each plan is a function of the seed and the round, and needs no earlier round."""

    algorithm: AnyAlgorithm
    participation: Participation
    local: LocalTraining
    devices: Devices
    seed: int
    speed: Speed | None = None  # of the simulated devices, which takes the place of the speed in `local`

    def plan(self, round: int, *, informed: Informed = None, last_round: LastRound = never) -> list[Assignment]:
        """Return the assignments of a round, ids rising.

        informed: the clients that have had the server's state since their last update, because that update counted in
            the last round; None before the first round: everybody knows theta^0.
        last_round: gives the round in which a client's last update counted, None if none did.
        """
        generator = stream(self.seed, "participation", round)
        clients = selected(self.participation, round, devices=self.devices, generator=generator)
        return self.assigned(round, clients, informed=informed, last_round=last_round)

    def assigned(
        self, round: int, chosen: Iterable[int], *, informed: Informed = None, last_round: LastRound = never
    ) -> list[Assignment]:
        """Return the assignments of a round in which these clients were selected to communicate."""
        clients: Sequence[int] = [int(client) for client in chosen]
        senders = set(clients)
        skipping = trait(self.algorithm, SkipsCommunication)
        if skipping is None:
            informed = None  # a client that is not asked computes nothing
        else:  # All clients compute. The selected ones communicate, or nobody does.
            clients = range(self.devices.num_clients)
            if stream(self.seed, "silence", round).random() < skipping.skip_probability:
                senders = set()
        hearers = set(clients) if informed is None else informed
        return [
            self.assignment(round, each, informed=each in hearers, sends=each in senders, last_round=last_round(each))
            for each in clients
        ]

    def assignment(
        self, round: int, client: int, *, informed: bool = True, sends: bool = True, last_round: int | None = None
    ) -> Assignment:
        """Return what one client is asked to do in a round."""
        local, gradients = self.local, None
        epochs = local.epochs_of(client, round=round, seed=self.seed)
        if local.seconds is not None:
            speed = self.speed or partial(local.speed_of, seed=self.seed, facts=self.devices.facts)
            gradients = int(local.seconds * speed(client))
        return Assignment(client, round, epochs, gradients, informed, sends, last_round)

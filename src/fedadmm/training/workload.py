"""What each client is asked to do in a round."""

from collections.abc import Mapping
from typing import Any

from fedadmm.core.round import Assignment
from fedadmm.core.seeds import stream
from fedadmm.training.local import LocalTraining


class Workload:
    """The epochs of every client and round, and the gradients that it has the time for."""

    def __init__(self, local: LocalTraining, *, seed: int, facts: Mapping[str, Any] | None = None) -> None:
        self._local, self._seed, self._facts = local, seed, facts or {}
        self._work = local.work
        self._untouched = stream(seed, "work")  # for a rule that draws nothing

    def assignment(self, round: int, client: int, *, sends: bool = True) -> Assignment:
        """Return what a client is asked to do, a function of the seed, the round and the client."""
        drawn = stream(self._seed, "work", round, client) if self._work.draws else self._untouched
        epochs = self._work.epochs(client, generator=drawn)
        gradients = self._local.gradients_of(client, seed=self._seed, facts=self._facts)
        return Assignment(client, round, epochs, gradients, sends=sends)

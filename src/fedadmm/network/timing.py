"""From devices, work and bytes to seconds. The time is simulated: no clock of this machine is read."""

from fedadmm.core.participation import Ids
from fedadmm.core.round import Assignment
from fedadmm.network.devices import SimulatedDevices

ROUNDING = 1e-9  # of an epoch: a deadline that is met exactly is met


class Timing:
    """How long the clients of a federation take; a device works only while it is on."""

    def __init__(self, devices: SimulatedDevices, *, num_examples: Ids, bytes_down: int, bytes_up: int) -> None:
        self._devices, self._num_examples = devices, num_examples
        self._bytes_down, self._bytes_up = bytes_down, bytes_up

    def end(self, client: int, start: float, *, gradients: int) -> float:
        """Return when a client that is asked at `start` has answered, after this many gradients of single examples."""
        return self._devices.hours(client).end(start, self._seconds_on(client, gradients))

    def planned_end(self, assignment: Assignment, start: float) -> float:
        """Return when a client that is asked at `start` would have answered, after all of its epochs."""
        return self.end(assignment.client, start, gradients=self._planned(assignment))

    def quickest(self, assignment: Assignment) -> float:
        """Return how many seconds a client's epochs and messages take if it is on all the while."""
        return self._seconds_on(assignment.client, self._planned(assignment))

    def within(self, assignment: Assignment, start: float, end: float) -> Assignment:
        """Return what a client that is asked at `start` can do and report by `end`: all of it, or whole epochs."""
        client = assignment.client
        seconds = self._devices.hours(client).between(start, end) - self._exchange(client)
        epochs = seconds * self._devices.device(client).speed / int(self._num_examples[client]) + ROUNDING
        if epochs * int(self._num_examples[client]) >= self._planned(assignment):
            return assignment
        return assignment._replace(epochs=max(0, int(epochs)))

    def _planned(self, assignment: Assignment) -> int:
        gradients = assignment.epochs * int(self._num_examples[assignment.client])
        return gradients if assignment.gradients is None else min(gradients, assignment.gradients)

    def _seconds_on(self, client: int, gradients: int) -> float:
        return self._exchange(client) + gradients / self._devices.device(client).speed

    def _exchange(self, client: int) -> float:
        return self._devices.device(client).exchange(bytes_down=self._bytes_down, bytes_up=self._bytes_up)

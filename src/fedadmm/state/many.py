"""The states of several clients at once, as a stack needs them: one transaction to read them, one to write them."""

from collections.abc import Mapping, Sequence

from fedadmm.core.algorithm import Message
from fedadmm.state.encoding import DamagedError, decode_pieces, encode
from fedadmm.state.file import StateFile, damage


class ManyStates:
    """What a store on disk does for many clients at once."""

    file: StateFile
    _rounds: dict[int, int]  # client -> round of its state

    def get_many(self, clients: Sequence[int]) -> list[Message | None]:
        """Return the committed states of several clients, None for who has none."""
        with self.file.reading("states of clients") as tables:
            found: list[Message | None] = []
            for client in clients:
                round = self._rounds.get(client)
                try:
                    fields = None if round is None else decode_pieces(tables.state(client, round))
                except DamagedError as error:
                    raise damage(f"the state of client {client}", self.file.folder, str(error)) from None
                found.append(None if fields is None else self.file.client_type(*fields))
        return found

    def stage_many(self, round: int, states: Mapping[int, Message]) -> None:
        """Write states ahead of their round's commit."""
        if not states:
            return
        with self.file.writing() as tables:
            for client, state in states.items():
                tables.put_state(client, round, encode(state, float_type=self.file.float_type))

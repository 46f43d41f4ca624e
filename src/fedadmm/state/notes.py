"""Notes beside the rounds of a store: lines of text, and messages that have vectors."""

from collections.abc import Mapping

from fedadmm.core.algorithm import Message
from fedadmm.state.encoding import decode, encode
from fedadmm.state.file import StateFile
from fedadmm.state.tables import Tables

NOTE = b"note on "  # and what it is on


class KeepsNotes:
    """What a store on disk keeps beside its rounds."""

    file: StateFile

    def note(self, name: str, value: str | None) -> None:
        """Keep a line of text beside the rounds, or forget it."""
        with self.file.writing() as tables:
            write_notes(tables, {name: value})
        self.file.flush()

    def noted(self, name: str) -> str | None:
        """Return a line of text that was kept, None if there is none."""
        with self.file.reading(f"the note on {name}") as tables:
            value = tables.find("meta", NOTE + name.encode())
            return None if value is None else bytes(value).decode()

    def keep(self, name: str, message: Message) -> None:
        """Keep a message beside the rounds, as a note that has vectors."""
        with self.file.writing() as tables:
            tables.put("meta", NOTE + name.encode(), *encode(message))
        self.file.flush()

    def kept(self, name: str) -> Message | None:
        """Return a message that was kept, None if there is none."""
        with self.file.reading(f"the note on {name}") as tables:
            value = tables.find("meta", NOTE + name.encode())
            return None if value is None else decode(value)


def write_notes(tables: Tables, notes: Mapping[str, str | None]) -> None:
    """Write notes in a transaction; None forgets one."""
    for name, value in notes.items():
        if value is None:
            tables.delete("meta", NOTE + name.encode())
        else:
            tables.put("meta", NOTE + name.encode(), value.encode())

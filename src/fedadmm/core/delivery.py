"""An update counts exactly once, whatever is lost, late or doubled on its way.

On paper. Every round of the server has a number, which rises from round to round, and which is never used again: not
after a restart, and not by a server that was restored from an older checkpoint. An update bears the number of the
request that it answers.

    server keeps   per client, the number of its last update that was applied (0: none); in one transaction with theta
    request        theta, the round's number, and the number of this client's update that was applied last
    client keeps   the acknowledged state and the pending one, each under its number; in one transaction; beside them,
                   as many older acknowledged ones as it was told to keep
    reply          the upload, and the number of the request

A client that is asked settles first. If the server applied the pending update, its state is the acknowledged one from
now on; if the server applied the acknowledged one last, the pending one never counted and is dropped. Then the client
works from the acknowledged state, writes the new one down as pending, and only then replies. The server applies at most
one reply of each client that it asked in this round, and none that bears another number.

So the state that a client works from is always that of its last applied update: any history of lost, late and doubled
messages is, to the bit, the lossless one in which the clients whose replies did not count were not selected.

Who wins after a restore? The server names what it applied, and a client that has that state goes on from it: an
older checkpoint of the server is healed as long as the update after it is still pending. Otherwise one of the two has
lost what the other builds on, nothing can be made up, and the client refuses: it has had a later update confirmed than
the server knows (the server is older), or the server applied one that the client does not have (its disk is older).

A server that was rolled back is older on purpose. It draws a number when that is done, and names it in every request:
confirmed updates below that number may have been taken back. A client then goes on from what the server names, if it
has kept that state; a client that had none at the time begins anew.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fedadmm.core.errors import InputError

NONE = 0  # the number of no update


class Request(NamedTuple):
    """What a server's request says beside theta."""

    client: int
    number: int  # of the round, and of the update that answers it; from 1 on
    applied: int  # the client's last update that the server applied
    rollback: int = NONE  # drawn when the server was last rolled back


class Journal(NamedTuple):
    """Which updates a client's states are of."""

    acknowledged: int = NONE  # known to be applied; NONE: the client never took part
    pending: int = NONE  # made since, and not heard of
    kept: tuple[int, ...] = ()  # older ones that were acknowledged, rising


class Reply(NamedTuple):
    """What a client's reply says beside its upload."""

    client: int
    number: int


class LateError(Exception):
    """A request that is older than one that the client has answered: there is nothing to do for it."""


def settled(journal: Journal, request: Request) -> Journal:
    """Return the journal once the request has told what became of the pending update: nothing is pending in it."""
    client, number, applied, rollback = request
    if number <= journal.acknowledged or number < journal.pending:
        raise LateError(
            f"request {number} is older than request {max(journal[:2])}, which client {client} has answered; it is a "
            "late one, or the server's clock was set back"
        )
    confirmed = (*journal.kept, journal.acknowledged)
    taken_back = applied < journal.acknowledged <= rollback
    if (
        applied == journal.acknowledged
        or (applied == journal.pending != NONE)
        or (taken_back and applied in (NONE, *confirmed))
    ):
        return Journal(acknowledged=applied, kept=tuple(older for older in confirmed if NONE < older < applied))
    if taken_back:
        raise InputError(
            f"the server was rolled back to update {applied} of client {client}, and the states here are of updates "
            f"{', '.join(map(str, confirmed))}; restore this client's folder of that time, or have the server's "
            f"operator run: fedadmm federation rebind {client} STATE-DIR/NAME/server --anew"
        )
    if applied < journal.acknowledged:
        raise InputError(
            f"client {client} has had its update {journal.acknowledged} confirmed, and the server knows its update "
            f"{applied} as the last: the server's checkpoint is older; restore the newer one, or this client's state "
            "of that time"
        )
    raise InputError(
        f"the server applied update {applied} of client {client}, and the state here is of update "
        f"{journal.acknowledged}: it is older; restore the newer one, or have the server's operator run: fedadmm "
        f"federation rebind {client} STATE-DIR/NAME/server --anew"
    )


def answered(journal: Journal, request: Request, *, keep: int = 0) -> Journal:
    """Return the journal once the request is answered: its update is pending; `keep` older ones stay."""
    found = settled(journal, request)
    return found._replace(pending=request.number, kept=found.kept[len(found.kept) - keep :] if keep else ())


class Collection:
    """The replies to one round: which of them count."""

    def __init__(self, number: int, *, clients: Iterable[int]) -> None:
        self.number, self._awaited = number, set(clients)

    def counts(self, reply: Reply) -> bool:
        """Return whether a reply is the first of a client that was asked, and an answer to this round."""
        if reply.number != self.number or reply.client not in self._awaited:
            return False
        self._awaited.remove(reply.client)
        return True

    @property
    def missing(self) -> tuple[int, ...]:
        """The clients that have not answered, rising."""
        return tuple(sorted(self._awaited))

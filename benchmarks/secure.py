"""What secure aggregation costs: bytes and seconds of one round, against the plain one.

python benchmarks/secure.py   # with OMP_NUM_THREADS=1, as seconds are those of a processor

All clients of the round and its server are played in this process, one after the other, on digits with a perceptron of
55,210 parameters: the seconds of a round are those of all its clients together. Bytes are those of one client.
"""

import time
from typing import Annotated, Any

import numpy as np
import typer
from recording import Record, show

import fedadmm
from fedadmm import FedADMM, Simulation
from fedadmm.secure.fixed_point import Words
from fedadmm.secure.graph import harary
from fedadmm.secure.protocol import Keys, Terms, draw_secrets, masked, reveal, seal_shares, unmask
from fedadmm.secure.settings import Secure

LOST = 0.1  # share of the clients that agree on masks and send nothing


def main(
    clients: Annotated[list[int], typer.Option(help="Clients in a round.")] = [4, 100],  # noqa: B006
    record: Record = None,
) -> None:
    """Print a table of rounds."""
    data, settings = fedadmm.load("digits"), Secure()
    head = ["clients", "neighbours", "threshold", "plain round", "secure round", "of a client", "of the server"]
    head += ["of the server, 10 % lost", "plain upload", "masked upload", "keys and shares"]
    rows = []
    for number in clients:
        federated = fedadmm.federate(data, num_clients=number, partition="iid", seed=0)
        plain, secure = (_seconds(federated, secure=table) for table in (None, settings))
        words = np.zeros(secure[1].num_parameters, np.uint32)
        client, server, extra = _protocol(number, settings, words, lost=0)
        _, recovering, _ = _protocol(number, settings, words, lost=round(LOST * number) or 1)
        degree, threshold = settings.degree(number), settings.shares_needed(number)
        up, hidden = (found.history[-1].bytes_up // number for _, found in (plain, secure))
        row = [
            str(number),
            str(degree),
            str(threshold),
            f"{plain[0]:.2f} s",
            f"{secure[0]:.2f} s",
            f"{1000 * client:.1f} ms",
        ]
        row += [f"{1000 * server:.0f} ms", f"{1000 * recovering:.0f} ms", f"{up:,} B", f"{hidden:,} B", f"{extra:,} B"]
        rows.append(dict(zip(head, row, strict=True)))
    show(rows, title="A round with secure aggregation", record=record)


def _seconds(data: Any, *, secure: Secure | None) -> tuple[float, Simulation]:
    """Return the seconds of a round, and the simulation."""
    local = fedadmm.LocalTraining(epochs=1, batch_size=10, learning_rate=0.1)
    options: dict[str, Any] = {"model": "mlp", "participation": 1.0, "seed": 0, "engine": "serial"}
    simulation = Simulation(FedADMM(rho=0.1), data=data, local=local, secure=secure, evaluate_every=100, **options)
    simulation.advance()
    began = time.process_time()
    simulation.advance()
    return time.process_time() - began, simulation


def _protocol(number: int, settings: Secure, words: Words, *, lost: int) -> tuple[float, float, int]:
    """Return the seconds of one client and of the server, and the bytes that a client sends beside its words."""
    terms = Terms("benchmark", settings.shares_needed(number))
    graph = harary(range(number), degree=settings.degree(number))
    kept = {client: draw_secrets(client) for client in range(number)}
    keys = {client: own.keys for client, own in kept.items()}

    def near(client: int) -> dict[int, Keys]:
        return {other: keys[other] for other in graph[client]}

    began = time.process_time()
    sealed = {client: seal_shares(kept[client], terms, near(client)) for client in keys}
    # Every (number / lost)-th client is lost.
    senders = [client for client in keys if not lost or client % (number // lost) != 1]
    hidden = {client: masked(kept[client], terms, near(client), (words,)) for client in senders}
    inbox = {holder: {by: sealed[by][holder] for by in graph[holder]} for holder in senders}
    told = {client: reveal(kept[client], terms, near(client), inbox[client], senders=senders) for client in senders}
    of_clients = (time.process_time() - began) / number
    began = time.process_time()
    total = np.sum([own[0] for own in hidden.values()], axis=0, dtype=np.uint32)
    found = unmask((total,), terms, graph, keys, told, senders=senders)
    assert not found[0].any()
    own = sum(map(len, keys[0])) + sum(map(len, sealed[0].values()))
    own += sum(len(share) for shares in told[0] for share in shares.values())
    return of_clients, time.process_time() - began, own


if __name__ == "__main__":
    typer.run(main)

"""What operators do to the folder of a server, where the ServerApp runs: commands of `fedadmm federation`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.console import say, show_table
from fedadmm.core.errors import InputError
from fedadmm.flower.metrics import serve
from fedadmm.flower.node_status import client_rows


def show_clients(server: Path) -> None:
    """Print a row for each client of a server, and for each node that is none."""
    if not server.is_dir():
        raise InputError(f"there is no folder {server}; a server's is STATE-DIR/NAME/server, where the ServerApp runs")
    rows, problems = [], []
    for client, node, facts, applied, lost in client_rows(server):
        who = ["none" if each is None else str(each) for each in (client, node)]
        norm = "" if facts.norm is None else f"{facts.norm:.3g}"
        last = "none" if applied is None else f"round {applied}"
        rows.append((*who, _time(facts.seen), last, norm, str(facts.refused), str(lost)))
        if facts.problem:
            problems.append(f"client {who[0]}, node {who[1]}, {_time(facts.problem_at)}: {facts.problem}")
    columns = ("client", "node", "last seen", "applied", "norm", "refused", "lost")
    show_table(str(server), columns, rows, right=columns[4:], whole=columns, box=None)
    for problem in problems:
        say(problem)


def _time(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%MZ")


def rebind_command(
    client: Annotated[int, typer.Argument(help="The client whose machine was replaced.", show_default=False)],
    server: Annotated[Path, typer.Argument(help="The server's folder, STATE-DIR/NAME/server.", show_default=False)],
    anew: Annotated[bool, typer.Option("--anew", help="Its state is lost: let it begin as a newcomer.")] = False,
) -> None:
    """Let the next node that joins as this client answer for it from then on; its old key is refused.

    With --anew that node needs no state; what was applied of the lost one stays in the model.
    Example: fedadmm federation rebind 2 fedadmm-state/digits/server
    """
    from fedadmm.flower.server_folder import ServerFolder  # imports torch

    folder = ServerFolder.at(server)
    try:
        if folder.key_of(client) is None and not (anew and folder.applied(client)):
            raise InputError(f"client {client} is bound to no key in {server}; nothing was changed")
        if anew:
            folder.begin_anew(client)
        folder.bind(client, None)
    finally:
        folder.close()
    how = "and begins as a newcomer" if anew else "with the state of the old one, which must be in its folder"
    say(f"The next node that joins as client {client} answers for it from then on, {how}.")


def backup_command(
    folder: Annotated[Path, typer.Argument(help="STATE-DIR of servers or nodes, or one in it.", show_default=False)],
    to: Annotated[Path, typer.Argument(help="The folder to make.", show_default=False)],
) -> None:
    """Copy the folders of servers and clients while they are used, and verify the copies.

    To restore, end the run, move what is there aside, and copy the other way. Example: fedadmm federation backup
    fedadmm-state /backup/monday
    """
    from fedadmm.flower.folders import back_up, check_folders  # imports torch

    copies = back_up(folder, to)
    if problems := check_folders(to).problems:
        raise InputError("\n".join(problems))
    say(f"Wrote {', '.join(map(str, copies))}; all is well.")


def metrics_command(
    server: Annotated[Path, typer.Argument(help="The server's folder, STATE-DIR/NAME/server.", show_default=False)],
    port: Annotated[int, typer.Option(help="The port that Prometheus asks.")] = 9464,
    address: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
) -> None:
    """Serve the rounds and nodes of a server to Prometheus, from its files: whether a run goes on or not.

    Example: fedadmm federation metrics fedadmm-state/digits/server
    """
    say(f"http://{address}:{port}/metrics")
    serve(server, address=address, port=port)

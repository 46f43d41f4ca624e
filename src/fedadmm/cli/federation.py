"""The command for a Flower federation: one on this machine, runs on any, and what operators do to a server."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.console import say, show_table
from fedadmm.cli.options import Changes
from fedadmm.config.plans import parse_changes
from fedadmm.core.errors import InputError
from fedadmm.core.files import private_files
from fedadmm.flower.local import EXIT_CODES, LINK, SENTENCES, LocalFederation, Shell, copy_app, follow_run, warnings_of
from fedadmm.flower.local.supernode import run_supernode
from fedadmm.flower.metrics import serve
from fedadmm.flower.node_status import client_rows

app = typer.Typer(help="A Flower federation on this machine: a SuperLink and SuperNodes with TLS and keys.")

Folder = Annotated[Path, typer.Option(help="Folder of its keys, state and logs.")]
FlowerApp = Annotated[Path, typer.Argument(metavar="APP", help="The folder of a Flower app.", show_default=False)]
Link = Annotated[str, typer.Argument(help="The SuperLink, as Flower's configuration names it.")]
Name = Annotated[str, typer.Argument(help="superlink, or a node such as node-0.", show_default=False)]


@app.callback()
def _private(context: typer.Context) -> None:
    context.with_resource(private_files())  # keys, databases, logs and copies of state


def _federation(folder: Path, *, must_exist: bool = True) -> LocalFederation:
    if must_exist and not (folder / "ports.json").exists():
        raise InputError(f"there is no federation in {folder}; start one with: fedadmm federation up")
    return LocalFederation(folder, tell=_tell)


def _tell(line: str) -> None:
    say(f"$ {line}", style="dim")


@app.command("up")
def up_command(
    nodes: Annotated[int, typer.Option(help="Number of SuperNodes.")] = 4, folder: Folder = Path("federation")
) -> None:
    """Start a SuperLink and SuperNodes, or what is not running of them, and wait until all are connected.

    Every command that is run is printed: on real machines they are the same.
    Example: fedadmm federation up --nodes 4
    """
    if nodes < 1:
        raise InputError(f"nodes={nodes} is out of range; use a whole number from 1 on")
    federation = _federation(folder, must_exist=False)
    federation.up(num_nodes=nodes)
    say(f"{nodes} nodes are connected. `fedadmm federation app my-app` makes an app to run on them:")
    say(federation.run_command(Path("my-app"), num_nodes=nodes))


@app.command("app")
def app_command(folder: Annotated[Path, typer.Argument(help="The folder to make.", show_default=False)]) -> None:
    """Make a copy of the example app: a Flower app in which only task.py is to be changed.

    Example: fedadmm federation app my-app
    """
    copy_app(folder)
    say(f"Wrote {folder}; its model and data are in {folder / 'flower_fedadmm' / 'task.py'}")


@app.command("run")
def run_command(
    flower_app: FlowerApp, link: Link = LINK, changes: Changes = None, folder: Folder = Path("federation")
) -> None:
    """Run an app and follow it to its end: exit code 0 if it finished, 1 if it failed, 130 if it was stopped.

    On the federation in --folder if there is one, else on the SuperLink that `flwr` knows by this name. Ctrl-C stops
    the run. Example: fedadmm federation run my-app --set num-server-rounds=10
    """
    ended = follow_run(_shell(folder), flower_app, link=link, changes=parse_changes(changes or []))
    say(SENTENCES[ended])
    raise typer.Exit(EXIT_CODES[ended])


@app.command("verify")
def verify_command(
    flower_app: FlowerApp, link: Link = LINK, changes: Changes = None, folder: Folder = Path("federation")
) -> None:
    """Compare the server with the connected clients, without a round: exit code 1 if one is out of step.

    Example: fedadmm federation verify my-app
    """
    asked = parse_changes(changes or []) | {"verify": True}
    ended = follow_run(_shell(folder), flower_app, link=link, changes=asked)
    say("All that are connected are in step." if ended == "completed" else "Not all is well: see the log above.")
    raise typer.Exit(EXIT_CODES[ended])


@app.command("rollback")
def rollback_command(
    flower_app: FlowerApp,
    to: Annotated[int, typer.Option(help="The round to go back to; its checkpoint must be kept.", show_default=False)],
    link: Link = LINK,
    force: Annotated[bool, typer.Option("--force", help="Also where some clients cannot follow.")] = False,
    changes: Changes = None,
    folder: Folder = Path("federation"),
) -> None:
    """Go back to an earlier round on the server and on all clients, and drop what came after it.

    Nothing is changed if a client cannot follow: those that cannot are named. Exit code 1 then.
    Example: fedadmm federation rollback my-app --to 7
    """
    if to < 1:
        raise InputError(f"--to {to} is out of range; use a round from 1 on")
    asked = parse_changes(changes or []) | {"rollback-to": to, "rollback-force": force}
    ended = follow_run(_shell(folder), flower_app, link=link, changes=asked)
    say(f"Round {to} is the last now." if ended == "completed" else "Not rolled back: the log above has the reason.")
    raise typer.Exit(EXIT_CODES[ended])


def _shell(folder: Path) -> Shell:
    """Return a shell in which `flwr` finds the federation in a folder; without one, what the user has set up."""
    here = (folder / "ports.json").exists()
    return _federation(folder).shell if here else Shell(Path.cwd(), environment={}, tell=_tell)


PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command("superlink", context_settings=PASSED_ON, add_help_option=False)
def superlink_command(context: typer.Context) -> None:
    """Run Flower's SuperLink, with the arguments of flower-superlink; it takes a renewed certificate without a stop.

    Example: docs/DEPLOY.md, "Three machines".
    """
    from fedadmm.flower.local.superlink import run_superlink  # imports flwr

    run_superlink(context.args)


@app.command("supernode", context_settings=PASSED_ON, add_help_option=False)
def supernode_command(context: typer.Context) -> None:
    """Run Flower's SuperNode, with the arguments of flower-supernode; it starts an app for a message in no time.

    Example: docs/DEPLOY.md, "Three machines".
    """
    run_supernode(context.args)


@app.command("status")
def status_command(
    folder: Folder = Path("federation"),
    server: Annotated[
        Path | None, typer.Option(help="A server's folder, STATE-DIR/NAME/server, instead.", show_default=False)
    ] = None,
    certificate: Annotated[
        list[Path] | None, typer.Option(help="Warn 30 days before this certificate ends (repeatable).")
    ] = None,
) -> None:
    """Tell which processes run, and of each client its node, when it was last seen, and what was lost or refused.

    Example, on a SuperLink's machine: fedadmm federation status --server fedadmm-state/digits/server
    """
    if server is not None:
        _show_clients(server)
        _warn(certificate or [])
        return
    federation = _federation(folder)
    processes = federation.processes
    rows = [(name, str(p.pid), "yes" if p.alive else "no", str(federation.log(name))) for name, p in processes.items()]
    show_table(None, ("process", "pid", "runs", "log"), rows, box=None)
    link = processes.get("superlink")
    if link is not None and link.alive:
        say(f"{federation.online()} nodes are connected")
    for found in federation.server_folders:
        _show_clients(found)
    _warn([*federation.certificates, *(certificate or [])])


def _warn(certificates: list[Path]) -> None:
    for sentence in warnings_of(certificates):
        say(sentence, style="bold red")


def _show_clients(server: Path) -> None:
    """Print a row for each client of a server, and for each node that is none."""
    if not server.is_dir():
        raise InputError(f"there is no folder {server}; a server's is STATE-DIR/NAME/server, where the ServerApp runs")
    rows, problems = [], []
    for client, node, facts, applied, lost in client_rows(server):
        seen = "never" if facts.seen is None else datetime.fromtimestamp(facts.seen, UTC).strftime("%Y-%m-%d %H:%MZ")
        who = ["none" if each is None else str(each) for each in (client, node)]
        norm = "" if facts.norm is None else f"{facts.norm:.3g}"
        last = "none" if applied is None else f"round {applied}"
        rows.append((*who, seen, last, norm, str(facts.refused), str(lost)))
        if facts.problem:
            problems.append(f"client {who[0]}, node {who[1]}: {facts.problem}")
    columns = ("client", "node", "last seen", "applied", "norm", "refused", "lost")
    show_table(str(server), columns, rows, right=columns[4:], whole=columns, box=None)
    for problem in problems:
        say(problem)


@app.command("logs")
def logs_command(
    name: Name,
    lines: Annotated[int, typer.Option(help="How many of the last lines.")] = 40,
    folder: Folder = Path("federation"),
) -> None:
    """Print the end of a process's log."""
    federation = _federation(folder)
    if name not in federation.processes:
        raise InputError(f"there is no {name!r} here; use one of {', '.join(federation.processes)}")
    text = federation.log(name).read_text(errors="replace").splitlines()
    say("\n".join(text[-lines:]))


@app.command("kill")
def kill_command(name: Name, folder: Folder = Path("federation")) -> None:
    """Kill a node, or the SuperLink, at once and with all that it runs; `up` starts it again.

    Example: fedadmm federation kill node-2
    """
    _federation(folder).kill(name)
    say(f"{name} is dead; `fedadmm federation up` starts it again, once its old heartbeat has lapsed")


@app.command("renew")
def renew_command(folder: Folder = Path("federation")) -> None:
    """Make the SuperLink's certificate anew, without a stop; nodes need nothing, as the authority stays.

    Example: fedadmm federation renew
    """
    _federation(folder).renew()
    say("New connections get it within some seconds; open ones, and the run, go on.")


@app.command("rotate")
def rotate_command(name: Name, folder: Folder = Path("federation")) -> None:
    """Take its key from a node, and make another with which `up` starts it again, as the same client.

    Example: fedadmm federation rotate node-2
    """
    _federation(folder).rotate(name)
    say(f"{name} is ended, and its old key is refused; `fedadmm federation up` registers the new one and starts it")


@app.command("rebind")
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
        if folder.key_of(client) is None:
            raise InputError(f"client {client} is bound to no key in {server}; nothing was changed")
        folder.bind(client, None)
        if anew:
            folder.begin_anew(client)
    finally:
        folder.close()
    how = "and begins as a newcomer" if anew else "with the state of the old one, which must be in its folder"
    say(f"The next node that joins as client {client} answers for it from then on, {how}.")


@app.command("backup")
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


@app.command("metrics")
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


@app.command("down")
def down_command(folder: Folder = Path("federation")) -> None:
    """End all processes; keys, state and logs stay, and `up` goes on with them."""
    _federation(folder).down()

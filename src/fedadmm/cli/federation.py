"""The command for a Flower federation: one on this machine, runs on any, and what operators do to a server."""

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from fedadmm.cli.console import say, show_table
from fedadmm.cli.federation_server import backup_command, metrics_command, rebind_command, show_clients
from fedadmm.cli.options import Changes
from fedadmm.config.plans import parse_changes
from fedadmm.core.errors import InputError
from fedadmm.core.files import private_files
from fedadmm.flower.local import EXIT_CODES, LINK, SENTENCES, LocalFederation, Shell, copy_app, follow_run, warnings_of
from fedadmm.flower.local.supernode import run_supernode

app = typer.Typer(help="A Flower federation on this machine: a SuperLink and SuperNodes with TLS and keys.")

Folder = Annotated[Path, typer.Option(help="Folder of its keys, state and logs.")]
FlowerApp = Annotated[Path, typer.Argument(metavar="APP", help="The folder of a Flower app.", show_default=False)]
Link = Annotated[str, typer.Argument(help="The SuperLink, as Flower's configuration names it.")]
Name = Annotated[str, typer.Argument(help="superlink, or a node such as node-0.", show_default=False)]


@app.callback()
def _private(context: typer.Context) -> None:
    context.with_resource(private_files())  # keys, databases, logs and copies of state


def _federation(folder: Path, *, must_exist: bool = True, other: str = "") -> LocalFederation:
    if must_exist and not (folder / "ports.json").exists():
        raise InputError(f"there is no federation in {folder}; start one with: fedadmm federation up{other}")
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
    _follow(flower_app, link, folder, parse_changes(changes or []), done=SENTENCES["completed"])


@app.command("verify")
def verify_command(
    flower_app: FlowerApp, link: Link = LINK, changes: Changes = None, folder: Folder = Path("federation")
) -> None:
    """Compare the server with the connected clients, without a round: exit code 1 if one is out of step.

    Example: fedadmm federation verify my-app
    """
    asked = parse_changes(changes or []) | {"verify": True}
    _follow(flower_app, link, folder, asked, done="All that are connected are in step.", failed="Not all is well.")


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
    _follow(flower_app, link, folder, asked, done=f"Round {to} is the last now.", failed="Not rolled back.")


def _follow(
    flower_app: Path, link: str, folder: Path, changes: dict[str, Any], *, done: str, failed: str = SENTENCES["failed"]
) -> NoReturn:
    """Run an app to its end, say how it did and why, and exit with the code of that.

    A federation on this machine remembers with which --set it has run, until another value is given.
    """
    here = LocalFederation(folder, tell=_tell) if (folder / "ports.json").exists() else None
    again = {} if here is None else here.remembered(flower_app, changes)
    if again:
        say("As before: " + " ".join(f"--set {key}={value}" for key, value in again.items()))
    shell = Shell(Path.cwd(), environment={}, tell=_tell) if here is None else here.shell
    how, reason = follow_run(shell, flower_app, link=link, changes=again | changes)
    if here is not None and how == "completed":
        here.remember(flower_app, again | changes)
    if reason:
        say(reason, style="bold red")
    say({"completed": done, "failed": failed}.get(how, SENTENCES[how]))
    raise typer.Exit(EXIT_CODES[how])


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
        show_clients(server)
        _warn(certificate or [])
        return
    federation = _federation(folder, other=", or give the folder of a deployed server with --server")
    processes = federation.processes
    rows = [(name, str(p.pid), "yes" if p.alive else "no", str(federation.log(name))) for name, p in processes.items()]
    show_table(None, ("process", "pid", "runs", "log"), rows, box=None)
    link = processes.get("superlink")
    if link is not None and link.alive:
        say(f"{federation.online()} nodes are connected")
    for found in federation.server_folders:
        show_clients(found)
    _warn([*federation.certificates, *(certificate or [])])


def _warn(certificates: list[Path]) -> None:
    for sentence in warnings_of(certificates):
        say(sentence, style="bold red")


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


for _name, _command in (("rebind", rebind_command), ("backup", backup_command), ("metrics", metrics_command)):
    app.command(_name)(_command)


@app.command("down")
def down_command(folder: Folder = Path("federation")) -> None:
    """End all processes; keys, state and logs stay, and `up` goes on with them."""
    _federation(folder).down()

"""The command line: its commands and what each does in a line; the file of a command is imported when it is used."""

import errno
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import click
import typer
from typer.core import TyperCommand, TyperGroup

from fedadmm.core.errors import InputError
from fedadmm.runs.listeners import StoppedAtOnce

# The first line of each command's docstring, in the order of `fedadmm --help`.
COMMANDS = {
    "run": "Run an experiment, or go on with it where it stopped.",
    "compare": "Run several methods on the same clients, batches and initial model, and compare them.",
    "list": "List presets, algorithms, the paper's tables and figures with their cost, and the runs in a folder.",
    "keys": "Explain the keys of an experiment: their types, defaults and meaning, each with an example.",
    "show": "Show a run: its experiment, its rounds in short, what it reached.",
    "report": "Make a report of runs: a page to look at, figures for print, tables in Markdown and LaTeX.",
    "check": "Verify a run folder, every checksum of it, and print what it holds; exit code 2 if it is damaged.",
    "laws": "Hold an algorithm, also your own, to the laws that every method obeys; exit code 1 if one is broken.",
    "export": "Write the model, a client's state or a client's personal model to a safetensors file.",
    "tune": "Find each method's best values, of its learning rate or of any key, on held-out training examples.",
    "data": "Get datasets, see which are there, and look at how a partition deals them to clients.",
    "federation": "A Flower federation on this machine: a SuperLink and SuperNodes with TLS and keys.",
    "reproduce": "Run what is missing of a table or figure of the paper, the cheapest run first.",
    "privacy": "Turn noise into epsilon, epsilon into noise, or both into rounds: differential privacy of clients.",
    "certify": "Compare a run's certificates with Theorem 1 of the paper: the measured mean of V with its bound.",
    "convex": "Compare all methods near the optimum of quadratics: rounds to distance 1e-3 and 1e-6, and slopes.",
}


def load_command(name: str) -> click.Command:
    """Return a command as its file defines it: a function, or an app of several."""
    module = import_module(f"fedadmm.cli.{name}")
    if hasattr(module, "app"):
        return typer.main.get_command(module.app)
    alone = typer.Typer()
    alone.command()(getattr(module, f"{name}_command"))
    return typer.main.get_command(alone)


class LazyCommand(TyperCommand):
    """A command that is known by its name and its line of help until it is used."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command in its file, which click goes on with."""
        assert self.name is not None
        return load_command(self.name).make_context(info_name, args, parent, **extra)


class LazyCommands(TyperGroup):
    """All commands, none of them imported: `fedadmm --help` and completion need their names only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, line in COMMANDS.items():
            self.add_command(LazyCommand(name, help=line))


app = typer.Typer(
    cls=LazyCommands,
    help="Federated learning with FedADMM and its peers. Start with: fedadmm run digits",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _version(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if show_version:
        from importlib.metadata import version  # imports email and zipfile

        print(version("fedadmm"))
        raise typer.Exit


_OF_A_DISK = {
    errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip


def main() -> None:
    """Run the command line: a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except InputError as error:
        _fail(str(error), code=2)
    except OSError as error:
        name = str(error.filename)
        if error.errno in _OF_A_DISK:
            _fail(f"cannot use {name}: {error.strerror}; correct that, and run the same command again", code=2)
        if error.errno != errno.ENAMETOOLONG:
            raise
        _fail(f"{name[:40]!r}... has {len(name)} letters, too many for the name of a file; give a shorter one", code=2)
    except StoppedAtOnce as stop:
        _fail("stopped at once; the same command goes on from the last whole round", code=stop.code)
    except KeyboardInterrupt:  # before a command had begun, or after it
        sys.exit(130)


def _fail(sentence: str, *, code: int) -> NoReturn:
    from fedadmm.cli.console import err, say  # imports rich

    say(f"fedadmm: {sentence}", to=err)
    sys.exit(code)

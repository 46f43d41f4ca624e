"""The command line, put together."""

import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from fedadmm.cli.commands import LazyCommands
from fedadmm.cli.console import err, say
from fedadmm.core.errors import InputError
from fedadmm.runs.listeners import StoppedAtOnce

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
        print(version("fedadmm"))
        raise typer.Exit


def main() -> None:
    """Run the command line: a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        app()
    except InputError as error:
        _fail(str(error), code=2)
    except StoppedAtOnce as stop:
        _fail("stopped at once; the same command goes on from the last whole round", code=stop.code)


def _fail(sentence: str, *, code: int) -> NoReturn:
    say(f"fedadmm: {sentence}", to=err)
    sys.exit(code)

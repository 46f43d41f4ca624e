"""The commands and what each does in a line; the file of a command is imported when that command is asked for."""

from importlib import import_module
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

# The first line of each command's docstring, in the order of `fedadmm --help`.
COMMANDS = {
    "run": "Run an experiment, or go on with it where it stopped.",
    "compare": "Run several methods on the same clients, batches and initial model, and compare them.",
    "list": "List presets, algorithms, the paper's tables and figures with their cost, and the runs in a folder.",
    "show": "Show a run: its experiment, its rounds in short, what it reached.",
    "report": "Make a report of runs: a page to look at, figures for print, tables in Markdown and LaTeX.",
    "check": "Verify a run folder, every checksum of it, and print what it holds; exit code 2 if it is damaged.",
    "export": "Write the model, a client's state or a client's personal model to a safetensors file.",
    "tune": "Find each method's best learning rate on held-out training examples, never on the test examples.",
    "data": "Get datasets, see which are there, and look at how a partition deals them to clients.",
    "federation": "A Flower federation on this machine: a SuperLink and SuperNodes with TLS and keys.",
    "reproduce": "Run what is missing of a table or figure of the paper, the cheapest run first.",
    "certify": "Compare a run's certificates with Theorem 1 of the paper: the measured mean of V with its bound.",
    "convex": "Compare all methods near the optimum of quadratics: rounds to distance 1e-3 and 1e-6, and slopes.",
}


def load_command(name: str) -> click.Command:
    """Return a command as its file defines it."""
    return typer.main.get_command(import_module(f"fedadmm.cli.{name}").app)


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

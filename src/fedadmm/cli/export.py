"""The command that writes a model or a client's state to a file."""

from pathlib import Path
from typing import Annotated

import typer

from fedadmm.cli.console import say
from fedadmm.cli.options import DataDir, RunArgument
from fedadmm.core.errors import InputError
from fedadmm.core.files import write_whole


def export_command(
    run: RunArgument,
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

    Also from the folder of a deployed server, or of a client on its node.
    Example: fedadmm export runs/digits-fedadmm-0123456789 --client 3 --out client_3.safetensors
    """
    if own_model:
        raise InputError("--own-model is called --personal-model now; change the name")
    from safetensors.torch import save  # imports torch

    from fedadmm.flower.folders import export_folder, stores_below
    from fedadmm.runs.export import export

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
    out = Path() if out is None else out
    out = out / f"{run.name}-{kind}.safetensors" if out.is_dir() else out
    try:
        write_whole(out, save(tensors))
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; give another --out") from error
    say(f"Wrote {', '.join(tensors)} {when}: {out}")

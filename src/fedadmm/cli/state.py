"""The commands that look after a run folder: check, export."""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file

from fedadmm.core.algorithm import Algorithm
from fedadmm.core.errors import InputError
from fedadmm.core.store import state_types
from fedadmm.runs.build import simulation_of
from fedadmm.runs.check import check_run
from fedadmm.runs.folder import RunFolder, StoredModel
from fedadmm.state.disk import DiskStore

console = Console()

RunArgument = Annotated[
    Path, typer.Argument(help="A run folder, such as runs/digits-fedadmm-0123456789.", show_default=False)
]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data files (see: fedadmm data list).")]


def check_command(run: RunArgument, data_dir: DataDir = None) -> None:
    """Verify a run folder, every checksum of it, and print what it holds; exit code 2 if it is damaged.

    Example: fedadmm check runs/digits-fedadmm-0123456789
    """
    report = check_run(run, data_dir=data_dir)
    table = Table(show_header=False, box=None)
    for name, text in report.facts.items():
        table.add_row(name, text)
    console.print(table)
    if report.problems:
        raise InputError("\n".join(report.problems))
    console.print("All is well.")


def export_command(
    run: RunArgument,
    out: Annotated[Path | None, typer.Option(help="The file to write.", show_default=False)] = None,
    client: Annotated[
        int | None, typer.Option(help="Write this client's state instead of the model.", show_default=False)
    ] = None,
    own_model: Annotated[
        bool, typer.Option("--own-model", help="With --client: write its own model, under the model's names.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Write the model, one client's state, or one client's own model, as a safetensors file.

    Example: fedadmm export runs/digits-fedadmm-0123456789 --client 3 --out client_3.safetensors
    """
    folder = RunFolder(run)
    with folder.at_rest():
        experiment = folder.read_experiment()
        store = DiskStore(folder.state, types=state_types(experiment.algorithm), identity=None, readonly=True)
        try:
            model = _newest_model(folder, store, data_dir)
            tensors = model.tensors
            if own_model:
                tensors = _own_model(store, client, model, experiment.algorithm)
            elif client is not None:
                tensors = _client_tensors(store, client, model)
        finally:
            store.close()
    name = "model" if client is None else f"client_{client}{'_model' if own_model else ''}"
    out = out if out is not None else Path(f"{run.name}-{name}.safetensors")
    try:
        save_file(tensors, out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error}; give another --out") from error
    console.print(f"Wrote {', '.join(tensors)} after round {model.round}: {out}", soft_wrap=True)


def _newest_model(folder: RunFolder, store: DiskStore, data_dir: Path | None) -> StoredModel:
    """Return the model after the last committed round: the file's if it is in step, else made from the store."""
    progress = store.progress()
    rounds = 0 if progress is None else progress.round
    model = folder.read_model()
    if model is not None and model.round == rounds:
        return model
    simulation = simulation_of(folder.read_experiment(), data_dir=data_dir, open_store=lambda types, initial: store)
    return StoredModel.of(simulation.model(), round=rounds)


def _own_model(
    store: DiskStore, client: int | None, model: StoredModel, algorithm: Algorithm[Any, Any, Any]
) -> dict[str, torch.Tensor]:
    """Return the model with a client's own weights in the place of the server's."""
    if client is None:
        raise InputError("--own-model needs to know whose; give --client as well")
    own = algorithm.own_model(_state(store, client))
    if own is None:
        raise InputError(f"{type(algorithm).__name__} keeps no model of a client's own; export the model instead")
    return model.tensors | _in_shapes(own, model)


def _client_tensors(store: DiskStore, client: int, model: StoredModel) -> dict[str, torch.Tensor]:
    """Return the fields of a client's state, and those of the model's size in the shapes of the model too."""
    tensors: dict[str, torch.Tensor] = {}
    for name, value in _state(store, client)._asdict().items():
        tensors[name] = torch.as_tensor(value)
        if tensors[name].shape == model.theta.shape:
            parts = _in_shapes(tensors[name], model)
            tensors |= {f"{name}.{key}": part for key, part in parts.items()}
    return tensors


def _state(store: DiskStore, client: int) -> Any:
    state = store.get(client)
    if state is None:
        raise InputError(f"client {client} has no state: it never took part; {len(store)} clients have one")
    return state


def _in_shapes(vector: torch.Tensor, model: StoredModel) -> dict[str, torch.Tensor]:
    """Return a flat vector as the model's parameters."""
    shapes = {key: model.tensors[key].shape for key in model.parameters}
    parts = torch.split(vector, [shape.numel() for shape in shapes.values()])
    return {key: part.view(shape).clone() for (key, shape), part in zip(shapes.items(), parts, strict=True)}

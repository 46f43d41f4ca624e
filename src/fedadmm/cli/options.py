"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

PlanArgument = Annotated[str, typer.Argument(help="An experiment's TOML file, or the name of a preset.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value: --set rounds=10 --set algorithm.rho=0.1 (repeatable)."),
]
Algorithms = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated variants of the file, or algorithms.", show_default="all of the file's variants"
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds; more than are there goes on from there.")]
Seed = Annotated[int | None, typer.Option(help="The seed of everything random.")]
RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run folders, such as runs/digits-fedadmm-0123456789.")
]
Out = Annotated[Path, typer.Option(help="Folder in which the run folder is made.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data files, in torchvision's layout (see: fedadmm data list).",
        show_default="$FEDADMM_DATA, else the user's cache",
    ),
]
LogTo = Annotated[str, typer.Option(help="Also write the rounds for other tools: tensorboard,wandb,mlflow.")]
Columns = Annotated[
    str | None, typer.Option(help="Comma-separated columns, such as mnist_100/iid.", show_default="all")
]
Budget = Annotated[
    str | None, typer.Option(help="Stop in time: 2h, 90m, 1h30m, 45s. The same command goes on from there.")
]
Variant = Annotated[
    Literal["printed", "released"], typer.Option(help="Algorithm 1 as printed, or what the paper's released code does.")
]
Size = Annotated[
    Literal["paper", "small"],
    typer.Option(help="The paper's own size, or the same design on a small network and grey images."),
]

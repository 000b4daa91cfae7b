"""Options of the commands that ask how the network is trained."""

from __future__ import annotations

from typing import Annotated

import typer

Momentum = Annotated[float, typer.Option("--momentum", help="Heavy-ball coefficient β.")]
Nesterov = Annotated[bool, typer.Option("--nesterov", help="Nesterov's form of the momentum.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Rows of a mini-batch; none: all rows.")
]
WeightDecay = Annotated[
    float,
    typer.Option(
        "--weight-decay", help="λ of the penalty λΣ‖W‖² (half of PyTorch's weight_decay)."
    ),
]
Reduction = Annotated[
    str, typer.Option("--reduction", help="The loss over the samples: mean or sum.")
]
Half = Annotated[bool, typer.Option("--half", help="The loss has a factor ½.")]

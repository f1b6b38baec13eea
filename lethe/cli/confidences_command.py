"""`lethe confidences`: from a folder of checkpoints and a prepared split to the arrays that `lethe score` takes."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

console = Console(stderr=True)


def register_commands(app: typer.Typer) -> None:
    app.command()(confidences)


def confidences(
    checkpoints: Annotated[
        Path, typer.Argument(help="Folder of .safetensors, .pth or .pt state_dicts, one per model.")
    ],
    split: Annotated[Path, typer.Option(help="Folder of a prepared split (with manifest.json).")],
    out: Annotated[Path, typer.Option(help="The .npz file to write.", dir_okay=False)],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Evaluate checkpoints on a prepared split: confidences on its forget set, accuracies on retain and test.

    Models are taken in the order of their names (numbers inside names count as numbers). Only tensors are read from
    .pth and .pt files, yet read only files whose origin you trust.
    """
    import numpy as np

    from lethe.evaluation.checkpoint_files import evaluate_folder
    from lethe.evaluation.evaluators import load_evaluator
    from lethe.metrics.scoring.npz_files import save_outputs
    from lethe.metrics.scoring.score import ModelOutputs

    evaluator = load_evaluator(split, device)
    bar = partial(track, description="evaluating", console=console)
    outputs = evaluate_folder(evaluator, checkpoints, track=bar)
    save_outputs(
        out,
        ModelOutputs(
            confidences=np.stack([output.confidences for output in outputs]),
            retain_accuracy=np.array([output.retain_accuracy for output in outputs]),
            test_accuracy=np.array([output.test_accuracy for output in outputs]),
        ),
    )
    console.print(f"{out}: {len(outputs)} models, {outputs[0].confidences.size} forget examples", highlight=False)

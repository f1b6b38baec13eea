"""`lethe confidences`: from a folder of checkpoints and a prepared split to the arrays that `lethe score` takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from server.errors import InvalidInput

if TYPE_CHECKING:
    from torch import Tensor

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
SUFFIXES = (".safetensors", ".pth", ".pt")
console = Console(stderr=True)


@app.command()
def confidences(
    checkpoints: Annotated[Path, typer.Argument(help="Folder of .safetensors, .pth or .pt state_dicts, one a model.")],
    split: Annotated[Path, typer.Option(help="Folder of a prepared split (it holds manifest.json).")],
    out: Annotated[Path, typer.Option(help="The .npz file to write.", dir_okay=False)],
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Evaluate checkpoints on a prepared split: confidences on its forget set, accuracies on retain and test.

    Models are taken in the order of their names (numbers inside names count as numbers). Only tensors are read from
    .pth and .pt files, yet read only files whose origin you trust.
    """
    import numpy as np

    from worker.inference import SplitEvaluator
    from worker.scoring.archives import save_outputs
    from worker.scoring.final import ModelOutputs

    files = _checkpoints(checkpoints)
    evaluator = SplitEvaluator.load(split, device=device)
    outputs = []
    for path in track(files, description="evaluating", console=console):
        try:
            outputs.append(evaluator.evaluate_state(_state(path)))
        except (RuntimeError, InvalidInput) as error:
            raise InvalidInput(f"{path} does not fit the split's network: {str(error)[:500]}") from error
    save_outputs(
        out,
        ModelOutputs(
            confidences=np.stack([output.confidences for output in outputs]),
            retain_accuracy=np.array([output.retain_accuracy for output in outputs]),
            test_accuracy=np.array([output.test_accuracy for output in outputs]),
        ),
    )
    console.print(f"{out}: {len(outputs)} models, {outputs[0].confidences.size} forget examples", highlight=False)


def _checkpoints(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder; name the folder that holds the checkpoints")
    found = sorted((path for path in folder.iterdir() if path.suffix in SUFFIXES), key=_natural)
    if not found:
        raise InvalidInput(f"{folder} holds no checkpoint; allowed are {', '.join(SUFFIXES)}")
    return found


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    """Order model_2 before model_10."""
    parts: list[tuple[bool, int, str]] = []
    digits = ""
    for character in path.name + "\0":
        if character.isdecimal():
            digits += character
            continue
        if digits:
            parts.append((False, int(digits), ""))
            digits = ""
        parts.append((True, 0, character))
    return parts


def _state(path: Path) -> "dict[str, Tensor]":
    import safetensors.torch
    import torch
    from safetensors import SafetensorError

    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise InvalidInput(f"{path} cannot be read as a checkpoint: {str(error)[:300]}") from error
    except Exception as error:  # pickle's own errors have no common base
        raise InvalidInput(f"{path} holds more than tensors and is not read: {str(error)[:300]}") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise InvalidInput(f"{path} is no state_dict: a mapping of names to tensors is wanted")
    return state

"""The data card of a reference split: what it consists of, how it was made, what it may be used for."""

from pathlib import Path
from typing import Any

import numpy as np

import lethe
from lethe.data.files import read_tensors
from lethe.data.stored_sets import SET_PATHS
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import ORIGINAL_OUTPUTS, OUTPUT_PATHS, read_stored_outputs
from lethe.metrics.scoring.model_outputs import ModelOutputs
from lethe.metrics.scoring.score import score

SIDES = {"retrained": OUTPUT_PATHS["retrained"], "oracle": OUTPUT_PATHS["oracle"], "original": ORIGINAL_OUTPUTS}


def data_card(split_dir: Path, manifest: Manifest, licence: str, description: str) -> str:
    """Return the card as Markdown. Its score is the reference attacks', whatever the competition ranks by."""
    recipe = manifest.recipe
    lines = [
        f"# Reference split: {manifest.competition} ({manifest.visibility.value})",
        "",
        *([description, ""] if description else []),
        f"- **Licence of the data**: {licence}",
        f"- **Data set**: {_named(recipe.get('dataset'))}",
        f"- **Network**: {_named(recipe.get('network'))}",
        f"- **Training**: {_listed(recipe.get('training'))}",
        f"- **Forget set**: {_listed((recipe.get('splits') or {}).get('forget'))}",
        f"- **Examples**: {_sizes(split_dir, manifest)}",
        f"- **Models**: {manifest.n_models} retrained without the forget set, as many of the oracle, one original",
        f"- **One retraining**: {manifest.retraining_time_s:.3g} s",
        f"- **Made with**: Lethe {lethe.__version__}; {_listed(manifest.versions)}",
        "",
        *_accuracies(split_dir, manifest),
        "",
        "A score of this split compares with scores of the same split alone. Retrained models differ by their seeds; "
        "the oracle's row says what exact unlearning reaches.",
    ]
    return "\n".join(lines) + "\n"


def _accuracies(split_dir: Path, manifest: Manifest) -> list[str]:
    stored = {side: read_stored_outputs(split_dir / path)[0] for side, path in SIDES.items() if path in manifest.files}
    retrained = stored["retrained"]
    lines = ["| models | retain accuracy | test accuracy | score |", "|---|---|---|---|"]
    for side, outputs in stored.items():
        value = "" if side == "retrained" else f"{_score(outputs, retrained):.4g}"
        lines.append(
            f"| {side} | {outputs.retain_accuracy.mean():.4f} | {outputs.test_accuracy.mean():.4f} | {value} |"
        )
    return lines


def _score(outputs: Any, retrained: Any) -> float:
    n_models = len(retrained)
    sides = (_as_many(side, n_models) for side in (outputs, retrained))
    return score(*sides).headline


def _as_many(outputs: Any, n_models: int) -> ModelOutputs:
    """Return the outputs; those of one model stand for as many copies."""
    arrays = [outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy]
    return ModelOutputs(*(np.repeat(array, n_models, axis=0) if len(outputs) == 1 else array for array in arrays))


def _sizes(split_dir: Path, manifest: Manifest) -> str:
    sizes = {
        name: len(read_tensors(split_dir / path)["ids"]) for name, path in SET_PATHS.items() if path in manifest.files
    }
    return ", ".join(f"{size} {name}" for name, size in sizes.items())


def _named(part: Any) -> str:
    """Return a section's name and options in a line; an option that is a long text is left to the manifest."""
    if not isinstance(part, dict):
        return "not stated"
    options = {name: value for name, value in (part.get("options") or {}).items() if name not in ("source", "root")}
    return str(part.get("name")) + (f" ({_listed(options)})" if options else "")


def _listed(part: Any) -> str:
    return (
        ", ".join(f"{name} {value}" for name, value in part.items() if value not in (None, [], {}))
        if part
        else "not stated"
    )

"""The yardstick's table: what the score and the other metrics say of retraining, of recipes and of unlearning methods.

    python -m benchmarks.metrics.yardstick SPLIT_DIR COMPETITION_FILE [--models 64] [--sizes 16 32 64]

SPLIT_DIR is a prepared split of images of COMPETITION_FILE. Each entry runs or trains so many models; the metrics of
the smaller sizes are of the first models, which shows what depends on N.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.splits.digits_entries import load_entry
from lethe.competition.file import CompetitionFile, Training, read_competition_file
from lethe.data.stored_sets import StoredSet
from lethe.evaluation.inference import SplitEvaluator, load_original
from lethe.evaluation.model_outputs import read_outputs
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.metrics import Inputs, evaluate
from lethe.networks.builders import build
from lethe.runtime.data_loaders import load_data, make_loaders
from lethe.training.trainer import TrainingJob, train_model

METHODS = ("msg", "finetune", "scrub")
METRICS = (
    "f",
    "equivalent_shift",
    "joint_audit",
    "nearer_to_retrained",
    "relative_position",
    "relative_test",
    "mmd_aggregated",
    "hockey_stick",
    "ruli",
    "iam",
    "epsilon_bound",
)
FIRST_SEED = 10_000  # apart from those of the split's own models
Arrays = dict[str, Any]


def recipes(recipe: Training) -> dict[str, Training]:
    """Return retraining by the recipe itself and by two harmless variations of it."""
    fewer = max(1, round(0.75 * recipe.epochs))
    return {
        "retraining": recipe,
        f"retraining, {fewer} of {recipe.epochs} epochs": recipe.model_copy(update={"epochs": fewer}),
        "retraining, weight decay 5e-4": recipe.model_copy(update={"weight_decay": 5e-4}),
    }


def retrained(split_dir: Path, evaluator: SplitEvaluator, recipe: Training, n_models: int) -> Arrays:
    """Return the arrays of models trained on the retain set alone."""
    data = load_data(split_dir / "visible")
    stored = StoredSet.read(split_dir / "visible" / "retain.safetensors")
    job = TrainingJob.on_device(data.network, recipe, stored.images, stored.labels, device="cpu")
    runs = [evaluator.evaluate_state(train_model(job, FIRST_SEED + n)) for n in range(n_models)]
    return dict(StoredOutputs.of_runs(runs).arrays())


def unlearned(split_dir: Path, evaluator: SplitEvaluator, method: Callable[..., Any], n_models: int) -> Arrays:
    """Return the arrays of the runs of one method from the split's original model."""
    data, runs = load_data(split_dir / "visible"), []
    for seed in range(n_models):
        net = build(data.network)
        net.load_state_dict(data.original_state)
        torch.manual_seed(seed)
        loaders = make_loaders(data)
        method(net, loaders.retain, loaders.forget, loaders.validation)
        runs.append(evaluator.evaluate_state(net.state_dict()))
    return dict(StoredOutputs.of_runs(runs).arrays())


def entries(split_dir: Path, competition: CompetitionFile, n_models: int) -> Iterator[tuple[str, Arrays]]:
    """Yield every entry's name and arrays."""
    evaluator = SplitEvaluator.load(split_dir)
    yield "oracle", dict(read_outputs(split_dir, "oracle").arrays())
    for name, recipe in recipes(competition.training).items():
        yield name, retrained(split_dir, evaluator, recipe, n_models)
    yield "noise, then fine-tune", unlearned(split_dir, evaluator, load_entry("noise_finetune"), n_models)
    for name in METHODS:
        method = importlib.import_module(f"lethe.methods.{name}").unlearning
        yield name, unlearned(split_dir, evaluator, method, n_models)
    yield "original", {name: np.repeat(rows, n_models, axis=0) for name, rows in original(split_dir).items()}


def original(split_dir: Path) -> Arrays:
    """Return the arrays of the split's original model."""
    return dict(
        StoredOutputs.of_runs([SplitEvaluator.load(split_dir).evaluate_state(load_original(split_dir))]).arrays()
    )


def row(sides: Mapping[str, Arrays], n_models: int) -> list[str]:
    """Return the metrics of the first models as cells."""
    cut = {
        side: {name: values[:n_models] for name, values in arrays.items() if np.ndim(values)}
        for side, arrays in sides.items()
    }
    found = evaluate(Inputs(**cut), METRICS)
    f = found["f"]
    share = f.result.value / f.oracle.value if f.result and f.oracle and f.oracle.value > 0 else float("nan")
    accuracy = float((cut["unlearned"]["confidences"] > 0).mean())
    values = [share, accuracy]
    values += [found[name].result.value if found[name].result else float("nan") for name in METRICS[1:]]  # type: ignore[union-attr]
    return [f"{value:.3g}" for value in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("split_dir", type=Path)
    parser.add_argument("competition_file", type=Path)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    n_models = arguments.models
    references = {
        "retrained": dict(read_outputs(arguments.split_dir).arrays()),
        "oracle": dict(read_outputs(arguments.split_dir, "oracle").arrays()),
        "original": original(arguments.split_dir),
    }
    accuracy = float((references["retrained"]["confidences"][:n_models] > 0).mean())
    print(f"retrained models: forget accuracy {accuracy:.3f}")
    print("| entry | N | F / oracle's | forget accuracy | " + " | ".join(METRICS[1:]) + " | seconds |")
    print("|---" * (len(METRICS) + 4) + "|")
    for name, arrays in entries(arguments.split_dir, read_competition_file(arguments.competition_file), n_models):
        for size in sorted({*arguments.sizes, n_models}):
            started = time.perf_counter()
            cells = row(references | {"unlearned": arrays}, size)
            print(f"| {name} | {size} | {' | '.join(cells)} | {time.perf_counter() - started:.1f} |", flush=True)


if __name__ == "__main__":
    main()

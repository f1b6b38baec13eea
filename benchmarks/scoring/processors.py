"""How far the same run differs between processors, and what a forger could gain below a tolerance.

    python -m benchmarks.scoring.processors [--runs 12] [--network mlp --epochs 20]

One machine stands for several: the same runs are made again with other instructions and numbers of threads.
Each line compares a setting's runs with those of the same seeds on the plain machine. Below, every output is moved
towards the retrained models' by at most the tolerance, which is the best that forged outputs can do.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.shared import run_entry
from lethe.competition.file import CompetitionFile, read_competition_file
from lethe.competition.visibility import Visibility
from lethe.evaluation.model_outputs import read_outputs
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.metrics.scoring.score import ModelOutputs, score

EXAMPLES = Path(__file__).parents[2] / "examples"
METHODS = ("original", "finetune", "finetune LR=0.1 EPOCHS=5", "neggradplus LR=0.01", "noise_finetune", "oracle")
SETTINGS = {
    "the same again": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "SSE4.2": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "MKL compatible": {"MKL_CBWR": "COMPATIBLE"},
    "2 threads": {"LETHE_THREADS": "2"},
}
TOLERANCES = (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--models", type=int, default=128, help="N, of which `--runs` are made with other settings")
    parser.add_argument("--network", default="mlp")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--child", nargs=3, metavar=("SPLIT", "METHOD", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        make_runs(Path(options.child[0]), options.child[1], Path(options.child[2]), runs=options.runs)
        return
    with tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder:
        split = prepared(Path(folder), options)
        for method in options.methods.split(","):
            for line in lines_of(method, split, Path(folder), options):
                print(json.dumps({"network": options.network, "method": method} | line), flush=True)


def prepared(folder: Path, options: argparse.Namespace) -> Path:
    """Prepare the public split of the digits competition with this network."""
    from lethe.preparation.prepare import prepare_split  # noqa: PLC0415 (loads torch)

    file = read_competition_file(EXAMPLES / "competitions" / "digits.toml")
    data = file.model_dump() | {"n_models": options.models}
    if options.network != "mlp":
        data |= {"network": {"name": options.network, "options": {}}}
        data["training"] |= {"epochs": options.epochs, "learning_rate": 0.05, "min_train_accuracy": 0.3}
    prepare_split(CompetitionFile.model_validate(data), Visibility.PUBLIC, folder / "split")
    return folder / "split"


def lines_of(method: str, split: Path, folder: Path, options: argparse.Namespace) -> Iterator[dict[str, object]]:
    whole = (
        read_outputs(split, "oracle")
        if method == "oracle"
        else runs_under({}, method, split, folder / "whole.npz", runs=options.models)
    )
    for name, setting in SETTINGS.items() if method != "oracle" else ():
        yield {"setting": name} | differences(
            whole, runs_under(setting, method, split, folder / "some.npz", runs=options.runs)
        )
    retrained = compared(read_outputs(split))
    unlearned = compared(whole)
    true = score(unlearned, retrained, n_resamples=0)
    for tolerance in TOLERANCES:
        forged = score(moved(unlearned, retrained, by=tolerance), retrained, n_resamples=0)
        gain = (forged.final_score or 0.0) - (true.final_score or 0.0)
        yield {"tolerance": tolerance, "score": round(true.final_score or 0.0, 4), "gain": round(gain, 4)}


def runs_under(setting: dict[str, str], method: str, split: Path, out: Path, *, runs: int) -> StoredOutputs:
    """Make runs in a process with these variables."""
    command = [sys.executable, "-m", "benchmarks.scoring.processors", "--runs", str(runs)]
    subprocess.run([*command, "--child", str(split), method, str(out)], env=os.environ | setting, check=True)
    with np.load(out) as stored:
        return StoredOutputs(**dict(stored))


def make_runs(split: Path, method: str, out: Path, *, runs: int) -> None:
    import torch  # noqa: PLC0415 (reads the variables when it is loaded)

    from lethe.methods import catalogue  # noqa: PLC0415

    torch.set_num_threads(int(os.environ.get("LETHE_THREADS", "1")))
    module: dict[str, object] = {}
    name, *changes = method.split()
    path = catalogue.FOLDER / f"{name}.py"
    source = (path if path.exists() else EXAMPLES / "submissions" / f"{name}.py").read_text()
    for constant, value in (change.split("=") for change in changes):
        source = re.sub(rf"(?m)^{constant} = [^#\n]+", f"{constant} = {value} ", source)
    exec(source, module)
    found = run_entry(split, module["unlearning"], runs=runs)  # type: ignore[arg-type]  # a method's function
    arrays = {name: getattr(found, name) for name in ("confidences", "retain_accuracy", "test_accuracy")}
    np.savez(out, **arrays)


def compared(outputs: StoredOutputs) -> ModelOutputs:
    return ModelOutputs(outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy)


def differences(here: StoredOutputs, there: StoredOutputs) -> dict[str, object]:
    """Return how far runs differ: of confidences the median and the largest of their runs' largest; of accuracies."""
    n = len(there.confidences)
    by_run = np.abs(here.confidences[:n] - there.confidences).max(axis=1)
    rms = np.sqrt(np.mean((here.confidences[:n] - there.confidences) ** 2, axis=1))
    accuracy = max(
        float(np.abs(getattr(here, name)[:n] - getattr(there, name)).max())
        for name in ("retain_accuracy", "test_accuracy")
    )
    return {
        "runs": n,
        "equal": int((by_run == 0).sum()),
        "confidence_median": float(f"{np.median(by_run):.2g}"),
        "confidence_largest": float(f"{by_run.max():.2g}"),
        "confidence_rms_largest": float(f"{rms.max():.2g}"),
        "accuracy_largest": round(accuracy, 5),
    }


def moved(unlearned: ModelOutputs, retrained: ModelOutputs, *, by: float) -> ModelOutputs:
    """Return outputs nearer to the retrained models': each value moved towards its quantile, and each accuracy raised,
    by at most `by`."""
    ours, theirs = unlearned.confidences, np.sort(retrained.confidences, axis=0)
    ranks = np.argsort(np.argsort(ours, axis=0, kind="stable"), axis=0)
    wanted = np.take_along_axis(theirs, ranks, axis=0)
    raised = {name: np.minimum(getattr(unlearned, name) + by, 1.0) for name in ("retain_accuracy", "test_accuracy")}
    return replace(unlearned, confidences=ours + np.clip(wanted - ours, -by, by), **raised)


if __name__ == "__main__":
    main()

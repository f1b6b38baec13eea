"""Run the example entries as a bare loop in one process, and score them beside the exact-retraining oracle.

    python -m benchmarks.splits.digits_entries SPLIT_DIR [--runs 512]

SPLIT_DIR is a prepared public split of examples/competitions/digits.toml.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lethe.evaluation.inference import SplitEvaluator
from lethe.evaluation.model_outputs import read_outputs
from lethe.evaluation.shard_outputs import RunOutputs, StoredOutputs
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.score import ModelOutputs, score
from lethe.networks.builders import build
from lethe.runtime.data_loaders import load_data, make_loaders

ENTRIES = Path(__file__).parents[2] / "examples" / "submissions"


def load_entry(name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(name, ENTRIES / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = module.unlearning
    return function


def run_entry(split_dir: Path, unlearning: Callable[..., Any], *, runs: int) -> StoredOutputs:
    evaluator = SplitEvaluator.load(split_dir)
    data = load_data(split_dir / "visible")
    outputs: list[RunOutputs] = []
    for seed in range(runs):
        net = build(data.network)
        net.load_state_dict(data.original_state)
        torch.manual_seed(seed)
        loaders = make_loaders(data)
        unlearning(net, loaders.retain, loaders.forget, loaders.validation)
        outputs.append(evaluator.evaluate_state(net.state_dict()))
    return StoredOutputs.of_runs(outputs)


def describe(name: str, outputs: StoredOutputs, retrained: StoredOutputs, seconds: float) -> str:
    sides = [ModelOutputs(o.confidences, o.retain_accuracy, o.test_accuracy) for o in (outputs, retrained)]
    reference = score(*sides, attacks=AttackFamily.REFERENCE)
    exact = score(*sides, attacks=AttackFamily.EXACT)
    return (
        f"{name:24s} retain {outputs.retain_accuracy.mean():.3f}  test {outputs.test_accuracy.mean():.3f}  "
        f"forget {(outputs.confidences > 0).mean():.3f}  F {reference.forgetting_quality:.4f}  "
        f"final {reference.final_score:.4f}  F exact {exact.forgetting_quality:.4f}  {seconds:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("split_dir", type=Path)
    parser.add_argument("--runs", type=int, default=512)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    retrained = read_outputs(arguments.split_dir)
    for name in ("return_original", "finetune", "noise_finetune"):
        started = time.perf_counter()
        outputs = run_entry(arguments.split_dir, load_entry(name), runs=arguments.runs)
        print(describe(name, outputs, retrained, time.perf_counter() - started), flush=True)
    print(describe("exact retraining (oracle)", read_outputs(arguments.split_dir, "oracle"), retrained, 0.0))


if __name__ == "__main__":
    main()

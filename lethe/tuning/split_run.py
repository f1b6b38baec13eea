"""Runs one method on a prepared split, in a process of its own: `python -m lethe.tuning.split_run REQUEST`.

REQUEST is a JSON file: {"split", "source", "runs", "seed", "weights"}. The result is one line of JSON on standard
output. `weights` is a folder for the unlearned models, or null.
"""

import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lethe.data.files import write_tensors
from lethe.evaluation.evaluators import Evaluator, load_evaluator
from lethe.evaluation.manifest import Manifest
from lethe.networks.builders import build
from lethe.runtime.data_loaders import GuestData, load_data, make_loaders

Unlearning = Callable[..., Any]


def main(request_file: Path) -> None:
    """Carry out the request and print what came of it."""
    request = json.loads(request_file.read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    split = Path(request["split"])
    manifest, data = Manifest.read(split), load_data(split / "visible")
    evaluator, unlearning = load_evaluator(split), load_method(Path(request["source"]))
    before_mib = peak_memory_mib()
    runs = [
        one_run(unlearning, data, evaluator, seed=request["seed"] + run, into=weights_file(request["weights"], run))
        for run in range(request["runs"])
    ]
    result = {
        "runs": runs,
        "retraining_time_s": manifest.retraining_time_s,
        "peak_memory_mib": peak_memory_mib(),
        "added_memory_mib": peak_memory_mib() - before_mib,
    }
    sys.stdout.write(json.dumps(result) + "\n")


def load_method(path: Path) -> Unlearning:
    """Return the function `unlearning` of a file or of the first file of a stitched submission's folder."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("method_under_test", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    unlearning: Unlearning = module.unlearning
    return unlearning


def one_run(
    unlearning: Unlearning, data: GuestData, evaluator: Evaluator, *, seed: int, into: Path | None
) -> dict[str, float]:
    """Unlearn once from the original model. Return time in seconds and accuracies of the result."""
    net = build(data.network)
    net.load_state_dict(data.original_state)
    net.train()
    torch.manual_seed(seed)
    loaders = make_loaders(data)
    started = time.perf_counter()
    unlearning(net, loaders.retain, loaders.forget, loaders.validation)
    wall_time_s = time.perf_counter() - started
    state = {name: tensor.detach() for name, tensor in net.state_dict().items()}
    outputs = evaluator.evaluate_state(state)
    if into is not None:
        write_tensors(into, state)
    return {
        "wall_time_s": wall_time_s,
        "retain_accuracy": outputs.retain_accuracy,
        "forget_accuracy": data.forget.accuracy(net),
        "test_accuracy": outputs.test_accuracy,
        "distance": weight_distance(net, data),
    }


@torch.no_grad()
def weight_distance(net: nn.Module, data: GuestData) -> float:
    """Return the Euclidean distance of all parameters from the original model's."""
    pairs = [(parameter, data.original_state[name]) for name, parameter in net.named_parameters()]
    return float(sum((new - old).square().sum() for new, old in pairs) ** 0.5)


def weights_file(folder: str | None, run: int) -> Path | None:
    return None if folder is None else Path(folder) / f"unlearned_{run}.safetensors"


def peak_memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))

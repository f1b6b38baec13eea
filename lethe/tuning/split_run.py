"""Runs methods on one prepared split: `python -m lethe.tuning.split_run SPLIT ANSWERS`, a fork for each request.

Requests are JSON lines on standard input: {"source", "runs", "seed", "weights", "outputs", "answer", "timeout_s",
"run_limit_s"}.
ANSWERS is a file descriptor; a line on it says that a request is done, and the file `answer` how. `weights` is a folder
for the unlearned models, `outputs` a file for what they answer, or null.

The work of a run is counted in examples: how many a network was asked for, and through how many gradients went back. It
is the same on every machine and at every load.
"""

import importlib.util
import json
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # an optimiser's first step imports it, which takes a second in each fork
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.utils import _pytree as pytree

from lethe.data.files import write_tensors
from lethe.evaluation.child_process import answer_requests, run_forked
from lethe.evaluation.evaluators import Evaluator, load_evaluator
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import write_outputs
from lethe.evaluation.shard_outputs import RunOutputs, StoredOutputs
from lethe.networks.builders import build
from lethe.runtime.data_loaders import GuestData, load_data, make_loaders
from lethe.runtime.entry import seed_everything

BACKWARD = 2.0  # passes forward that one backward costs (Kaplan et al. 2020, arXiv:2001.08361, section 2.1)


@dataclass
class Work:
    """forward, backward: examples, each weighted by the share of the network's parameters that it went through."""

    forward: float = 0.0
    backward: float = 0.0

    def epochs(self, n_examples: int) -> float:
        """Return how many epochs of training on `n_examples` examples cost as much."""
        return (self.forward + BACKWARD * self.backward) / ((1.0 + BACKWARD) * n_examples)


@contextmanager
def counted_work(network: nn.Module) -> Iterator[Work]:
    """Count what passes through this network and any other module until the block ends.

    A module with p parameters counts each example as p over those of `network`: a part called by itself counts as a
    part, a second network as much as a first. Calls within a counted call count nothing, modules without parameters
    (losses) nothing either. A gradient that ends in the last layers counts like one through all. A vectorised map
    (torch.func.vmap) counts all examples that it maps over.
    """
    work, whole, inside = Work(), _size(network), False
    plain_call = nn.Module.__call__

    def call(module: nn.Module, *given: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:
            return plain_call(module, *given, **named)
        inside = True
        try:
            made = plain_call(module, *given, **named)
        finally:
            inside = False
        share = _size(module) / whole
        examples = share * _length((given, named))
        output = next((leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, Tensor)), None)
        if examples and output is not None:
            work.forward += examples
            if output.requires_grad:
                output.register_hook(lambda _: went_back(examples))  # type: ignore[no-untyped-call]
        return made

    def went_back(examples: float) -> None:
        work.backward += examples

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield work
    finally:
        nn.Module.__call__ = plain_call  # type: ignore[method-assign]


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _length(given: Any) -> int:
    """Return the number of examples of the first tensor, those that a vectorised map hides included."""
    first = next((leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor) and leaf.dim()), None)
    return 0 if first is None else len(first) * _n_mapped(first)


def _n_mapped(tensor: Tensor) -> int:
    """Return over how many values of a tensor vectorised maps are running; 1 outside of them."""
    n_mapped = 1
    while functorch.is_functorch_wrapped_tensor(tensor):
        axis = functorch.maybe_get_bdim(tensor) if functorch.is_batchedtensor(tensor) else None
        tensor = functorch.get_unwrapped(tensor)
        n_mapped *= 1 if axis is None else tensor.shape[axis]
    return n_mapped


Unlearning = Callable[..., Any]
COST = ("work_epochs", "cpu_time_s")  # of all runs together, in the metadata of their outputs


@dataclass(frozen=True)
class LoadedSplit:
    """What all runs on a split share."""

    manifest: Manifest
    data: GuestData
    evaluator: Evaluator


def main(split_dir: Path, answers_fd: int) -> None:
    """Serve requests until standard input ends."""
    torch.set_num_threads(1)
    split = LoadedSplit(Manifest.read(split_dir), load_data(split_dir / "visible"), load_evaluator(split_dir))
    answer_requests(answers_fd, lambda request: run_forked(lambda: _work(request, split), limit_s=request["timeout_s"]))


def _work(request: Mapping[str, Any], split: LoadedSplit) -> int:
    answer = Path(request["answer"])
    try:
        answer.write_text(json.dumps(_all_runs(request, split)), encoding="utf-8")
    except BaseException as error:
        traceback.print_exception(error)
        said = traceback.format_exception_only(error)[-1].strip()
        answer.write_text(json.dumps({"failure": said}), encoding="utf-8")
        return 1
    return 0


def _all_runs(request: Mapping[str, Any], split: LoadedSplit) -> dict[str, Any]:
    unlearning = load_method(Path(request["source"]))
    before_mib, folder = peak_memory_mib(), request["weights"]
    found = [
        one_run(
            unlearning,
            split.data,
            split.evaluator,
            seed=request["seed"] + run,
            into=None if folder is None else Path(folder) / f"unlearned_{run}.safetensors",
            limit_s=request["run_limit_s"],
        )
        for run in range(request["runs"])
    ]
    if request["outputs"] is not None:
        cost = {name: str(sum(facts[name] for facts, _ in found)) for name in COST}
        outputs = StoredOutputs.of_runs([outputs for _, outputs in found])
        write_outputs(outputs, Path(request["outputs"]), metadata=cost)
    return {
        "runs": [facts for facts, _ in found],
        "retraining_time_s": split.manifest.retraining_time_s,
        "retraining_cpu_s": split.manifest.timing.retraining_cpu_s,
        "retraining_epochs": split.manifest.recipe["training"]["epochs"],
        "peak_memory_mib": peak_memory_mib(),
        "added_memory_mib": peak_memory_mib() - before_mib,
    }


def load_method(path: Path) -> Unlearning:
    """Return the function `unlearning` of a file or of the first file of a stitched submission's folder."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("method_under_test", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    unlearning: Unlearning = module.unlearning
    return unlearning


def one_run(
    unlearning: Unlearning,
    data: GuestData,
    evaluator: Evaluator,
    *,
    seed: int,
    into: Path | None,
    limit_s: float | None = None,
) -> tuple[dict[str, float], RunOutputs]:
    """Unlearn once from the original model. Return times in seconds, work in epochs and accuracies; and all outputs.

    A method that takes longer than limit_s ends the process, by SIGALRM.
    """
    net = build(data.network)
    net.load_state_dict(data.original_state)
    net.train()
    seed_everything(seed)
    loaders = make_loaders(data)
    started, cpu_started = time.perf_counter(), time.process_time()
    signal.setitimer(signal.ITIMER_REAL, limit_s or 0.0)
    with counted_work(net) as work:
        unlearning(net, loaders.retain, loaders.forget, loaders.validation)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    cpu_time_s, wall_time_s = time.process_time() - cpu_started, time.perf_counter() - started
    state = {name: tensor.detach() for name, tensor in net.state_dict().items()}
    outputs = evaluator.evaluate_state(state)
    if into is not None:
        write_tensors(into, state)
    facts = {
        "wall_time_s": wall_time_s,
        "cpu_time_s": cpu_time_s,
        "work_epochs": work.epochs(len(data.retain)),
        "retain_accuracy": outputs.retain_accuracy,
        "forget_accuracy": data.forget.accuracy(net),
        "test_accuracy": outputs.test_accuracy,
        "distance": weight_distance(net, data),
    }
    return facts, outputs


@torch.no_grad()
def weight_distance(net: nn.Module, data: GuestData) -> float:
    """Return the Euclidean distance of all parameters from the original model's."""
    pairs = [(parameter, data.original_state[name]) for name, parameter in net.named_parameters()]
    return float(sum((new - old).square().sum() for new, old in pairs) ** 0.5)


def peak_memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""Peak memory of a method over that of one training step and of inference of the network that it is given.

Measured are bytes of tensors: the network's weights, and the highest sum of what torch has allocated on the CPU and not
freed while the function runs, batches of data included. Memory of Python, of code and of the loaders' images, which all
functions share, is not counted. Each function runs in a forked process of its own.
"""

import copy
import importlib
import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from benchmarks.methods.time_ratio import Loaders

Run = Callable[..., Any]


def measured_peaks(net: nn.Module, loaders: Loaders, methods: Sequence[str]) -> dict[str, int]:
    """Return the peak in bytes of each method, and of "training step" and "inference"."""
    runs: dict[str, Run] = {"training step": training_step, "inference": inference}
    for method_id in methods:
        runs[method_id] = importlib.import_module(f"lethe.methods.{method_id}").unlearning
    return {name: in_own_process(run, net, loaders) for name, run in runs.items()}


def in_own_process(run: Run, net: nn.Module, loaders: Loaders) -> int:
    """Return what `peak_bytes` does, measured in a forked process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(peak_bytes(run, net, loaders)))
    process.start()
    theirs.close()
    try:
        peak: int = ours.recv()
    except EOFError as error:
        raise RuntimeError("the measured function failed; its message stands above") from error
    finally:
        process.join()
    return peak


def peak_bytes(run: Run, net: nn.Module, loaders: Loaders) -> int:
    """Return the weights' bytes and the highest sum of allocated bytes while `run` changes a copy of the network."""
    fresh = copy.deepcopy(net)
    weights = sum(tensor.nbytes for tensor in fresh.state_dict().values())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run(fresh, *loaders)
    # Only the raw events keep the order of allocations; the public summary adds them up by operator.
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    live: int = 0
    highest: int = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        live += event.nbytes()
        highest = max(highest, live)
    return int(weights + highest)


def training_step(net: nn.Module, retain: Any, *_: Any) -> None:
    """Two steps of SGD with momentum: from the second on, the momentum is there during the forward pass."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    net.train()
    for _step, sample in zip(range(2), retain, strict=False):
        optimizer.zero_grad()
        functional.cross_entropy(net(sample["image"]), sample["label"]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def inference(net: nn.Module, retain: Any, *_: Any) -> None:
    """Outputs of one batch."""
    net.eval()
    net(next(iter(retain))["image"])

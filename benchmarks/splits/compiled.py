"""Whether compiling the evaluation pays: processor seconds to compile and a model, against the evaluator; bits.

    python -m benchmarks.splits.compiled

Weights are passed into one compiled function, so it is compiled once for all models. Needs a C++ compiler.
"""

import argparse
import resource
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.func import functional_call

from benchmarks.splits.evaluation import CPU_CASES, random_set
from benchmarks.splits.measure import describe_machine
from lethe.evaluation.inference import SplitEvaluator
from lethe.networks.builders import build, to_inputs
from lethe.training.trainer import untrained

SHARES = {"forget": 0.08, "retain": 0.8, "test": 0.12}


def measure(network: Mapping[str, Any], n_images: int) -> None:
    sets = {name: random_set(network, int(share * n_images)) for name, share in SHARES.items()}
    total = sum(len(stored) for stored in sets.values())
    state = untrained(network, 0).state_dict()
    evaluator = SplitEvaluator(network, sets, batch_size=1024 if n_images > 1000 else 256)
    net = build(network).eval().requires_grad_(False)
    inputs = torch.cat([to_inputs(stored.images, network) for stored in sets.values()])
    inputs = inputs.contiguous(memory_format=torch.channels_last)

    @torch.compile(dynamic=False)
    def forward(weights: Mapping[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = functional_call(net, dict(weights), (images,))
        return logits

    with torch.inference_mode():
        began = processor_time()
        logits = forward(state, inputs)
        compile_s = processor_time() - began
        eager = functional_call(net, state, (inputs,))
        eager_s = best_time(lambda: evaluator.evaluate_state(state))
        compiled_s = best_time(lambda: forward(state, inputs))
    saved_s = eager_s - compiled_s
    worth = f"pays after {compile_s / saved_s:,.0f} models" if saved_s > 0 else "never pays"
    print(
        f"{network['name']:10} {network['input_shape']!s:12} evaluator {total / eager_s:10,.0f} images/s   compiled "
        f"{total / compiled_s:10,.0f} ({eager_s / compiled_s:.2f} x)   compiling {compile_s:6.1f} s: {worth}   "
        f"largest difference of a logit {float((logits - eager).abs().max()):.1e}",
        flush=True,
    )


def processor_time() -> float:
    """Return the processor seconds of this process and of the compilers that it has waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def best_time(work: Callable[[], object], *, repeats: int = 7) -> float:
    """Return the least processor seconds of `work`, so that a neighbour on the machine does not count."""
    times = []
    for _ in range(repeats):
        began = processor_time()
        work()
        times.append(processor_time() - began)
    return min(times)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    torch.set_num_threads(1)
    print(describe_machine("cpu"))
    for name, options, shape, n_images in CPU_CASES:
        measure(
            {"name": name, "options": options, "input_shape": shape, "n_classes": 10, "input_scale": 1 / 64}, n_images
        )


if __name__ == "__main__":
    main()

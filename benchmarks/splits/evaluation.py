"""Evaluation rate and error: models a second, images a second as a share of matmul's rate, and distance from float64.

    python -m benchmarks.splits.evaluation [--device cuda] [--network resnet18 --images 6000 --size 32]

The plain loop beside it is a new DataLoader for each model, as a careful researcher would write it.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.splits.measure import describe_machine, forward_flops, matmul_flops, seconds
from lethe.data.stored_sets import StoredSet
from lethe.device.precision import Precision
from lethe.evaluation.inference import SplitEvaluator
from lethe.metrics.scoring.confidences import logit_scaled_confidences
from lethe.networks.builders import build, to_inputs
from lethe.training.trainer import untrained

Case = tuple[str, Mapping[str, Any], list[int], int]
CPU_CASES: tuple[Case, ...] = (
    ("mlp", {}, [1, 8, 8], 1500),
    ("small_cnn", {}, [1, 28, 28], 1500),
    ("resnet18", {}, [3, 32, 32], 384),
)


def random_set(network: Mapping[str, Any], n_images: int) -> StoredSet:
    images = torch.randint(0, 256, (n_images, *network["input_shape"]), dtype=torch.uint8)
    numbers = torch.arange(n_images)
    return StoredSet(images, torch.randint(0, network["n_classes"], (n_images,)), numbers, numbers)


def measure(network: Mapping[str, Any], n_images: int, *, device: str) -> None:
    sets = {name: random_set(network, max(1, int(share * n_images))) for name, share in SHARES.items()}
    total = sum(len(stored) for stored in sets.values())
    state = untrained(network, 0).state_dict()
    per_image = forward_flops(build(network).eval(), torch.zeros(8, *network["input_shape"])) / 8
    peak = matmul_flops(device, torch.float32 if device == "cpu" else torch.bfloat16)
    print(f"{network['name']} {network['input_shape']}, {total} images, matmul {peak / 1e9:.0f} GFLOP/s")
    plain = total / seconds(lambda: plain_pass(network, sets, state, device), device=device)
    print(f"  {'plain PyTorch':28s} {plain:12,.0f} images/s")
    for precision in PRECISIONS if device != "cpu" else PRECISIONS[:1]:
        for batch_size in (64, 256, 1024, 4096):
            if batch_size > 4 * len(sets["retain"]):
                break
            evaluator = SplitEvaluator(network, sets, device=device, batch_size=batch_size, precision=precision)
            rate = total / seconds(lambda e=evaluator: e.evaluate_state(state), device=device)  # type: ignore[misc]
            print(
                f"  {precision:8s} batches of {batch_size:5d}    {rate:12,.0f} images/s   {rate / plain:5.2f} x plain "
                f"  {rate * per_image / peak:6.1%} of matmul   {total / rate * 1e3:9.2f} ms a model",
                flush=True,
            )
        print(f"  {precision:8s} largest error of h against float64: {confidence_error(evaluator, sets, state):.2e}")


SHARES = {"forget": 0.08, "retain": 0.8, "test": 0.12}
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16")


def plain_pass(network: Mapping[str, Any], sets: Mapping[str, StoredSet], state: Any, device: str) -> None:
    net = build(network).to(device).eval()
    net.load_state_dict(state)
    with torch.no_grad():
        for stored in sets.values():
            loader = DataLoader(TensorDataset(to_inputs(stored.images, network), stored.labels), batch_size=256)
            for inputs, _ in loader:
                net(inputs.to(device)).argmax(dim=1).cpu()


def confidence_error(evaluator: SplitEvaluator, sets: Mapping[str, StoredSet], state: Any) -> float:
    """Return the largest difference of the statistic h between this precision and a float64 pass on the CPU."""
    network = evaluator.network
    net = build(network).double().eval()
    net.load_state_dict(state)
    forget = sets["forget"]
    with torch.no_grad():
        exact = net(to_inputs(forget.images, network).double()).numpy()
    expected = logit_scaled_confidences(exact, forget.labels.numpy())
    return float(np.abs(evaluator.evaluate_state(state).confidences - expected).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network")
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--size", type=int, default=32)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine(arguments.device))
    cases = list(CPU_CASES)
    if arguments.network:
        cases = [(arguments.network, {}, [3, arguments.size, arguments.size], arguments.images)]
    for name, options, shape, n_images in cases:
        network = {"name": name, "options": options, "input_shape": shape, "n_classes": 10, "input_scale": 1 / 64}
        measure(network, n_images, device=arguments.device)


if __name__ == "__main__":
    main()

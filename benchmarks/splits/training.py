"""Training rate: our loops beside a plain PyTorch loop with a DataLoader, in one run, and as a share of matmul's rate.

    python -m benchmarks.splits.training [--device cuda --network resnet18 --images 24000 --precision bf16]

Without arguments: the networks of the CPU table in docs/organisers/splits.md.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.splits.measure import describe_machine, forward_flops, matmul_flops, seconds
from lethe.competition.file import Training
from lethe.networks.builders import build, to_inputs
from lethe.training.cuda_graph_training import MODELS_AT_ONCE, can_graph, train_graphed
from lethe.training.stacked_training import ENSEMBLE_SIZE, can_stack, train_stacked
from lethe.training.trainer import TrainingJob, train_model

Case = tuple[str, Mapping[str, Any], list[int], int]
CPU_CASES: tuple[Case, ...] = (
    ("mlp", {"hidden": [64]}, [1, 8, 8], 700),
    ("small_cnn", {"widths": [8, 16]}, [1, 8, 8], 700),
    ("small_cnn", {"widths": [8, 16, 32]}, [3, 32, 32], 640),
    ("resnet18", {}, [3, 32, 32], 256),
)


def measure(network: Mapping[str, Any], n_images: int, recipe: Training, *, device: str) -> None:
    images = torch.randint(0, 256, (n_images, *network["input_shape"]), dtype=torch.uint8)
    labels = torch.randint(0, network["n_classes"], (n_images,))
    job = TrainingJob.on_device(network, recipe, images, labels, device=device)
    work = n_images * recipe.epochs
    results = {
        "plain PyTorch": work / seconds(lambda: plain_epochs(network, images, labels, recipe, device), device=device),
        "our loop": work / seconds(lambda: train_model(job, 0), device=device),
    }
    if can_stack(job):
        many = range(ENSEMBLE_SIZE)
        results[f"{ENSEMBLE_SIZE} stacked"] = (
            len(many) * work / seconds(lambda: train_stacked(job, many), device=device, repeats=1)
        )
    if can_graph(job):
        for at_once in (1, 4, MODELS_AT_ONCE, 2 * MODELS_AT_ONCE):
            seeds = {i: i for i in range(at_once)}
            time_s = seconds(lambda s=seeds, k=at_once: train_graphed(job, s, at_once=k), device=device, repeats=1)  # type: ignore[misc]
            results[f"{at_once} graphed"] = at_once * work / time_s
    report(network, results, recipe, device=device)


def plain_epochs(
    network: Mapping[str, Any], images: torch.Tensor, labels: torch.Tensor, recipe: Training, device: str
) -> None:
    """Train as a careful researcher would write it: tensors in memory, DataLoader, torch's optimiser."""
    net = build(network).to(device)
    dataset = TensorDataset(to_inputs(images, network), labels)
    loader = DataLoader(dataset, batch_size=recipe.batch_size, shuffle=True, pin_memory=device != "cpu")
    optimizer = torch.optim.SGD(net.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)
    criterion = torch.nn.CrossEntropyLoss()
    net.train()
    for _ in range(recipe.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(net(inputs.to(device, non_blocking=True)), targets.to(device, non_blocking=True)).backward()
            optimizer.step()


def report(network: Mapping[str, Any], results: Mapping[str, float], recipe: Training, *, device: str) -> None:
    net = build(network).to(device).eval()
    per_image = 3 * forward_flops(net, torch.zeros(8, *network["input_shape"], device=device)) / 8
    peak = matmul_flops(device, torch.bfloat16 if recipe.precision == "bf16" else torch.float32)
    baseline = results["plain PyTorch"]
    what = f"{network['name']} {network['options']} {network['input_shape']}, {recipe.precision}"
    print(f"{what}, matmul {peak / 1e9:.0f} GFLOP/s")
    for name, rate in results.items():
        share = rate * per_image / peak
        print(
            f"  {name:14s} {rate:12,.0f} images/s   {rate / baseline:5.2f} x plain   {share:6.1%} of matmul", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network")
    parser.add_argument("--images", type=int, default=24_000)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="float32")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(describe_machine(arguments.device))
    recipe = Training(
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        learning_rate=0.01,
        precision=arguments.precision,
    )
    cases = list(CPU_CASES)
    if arguments.network:
        cases = [(arguments.network, {}, [3, arguments.size, arguments.size], arguments.images)]
    for name, options, shape, n_images in cases:
        network = {"name": name, "options": options, "input_shape": shape, "n_classes": 10, "input_scale": 1 / 64}
        measure(network, n_images, recipe, device=arguments.device)


if __name__ == "__main__":
    main()

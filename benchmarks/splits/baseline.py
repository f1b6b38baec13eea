"""The fine-tuning baseline at competition size, by stage: seconds a run, 512 runs, retrained models an hour.

    python -m benchmarks.splits.baseline --device cuda [--precision bf16] [--images 24000]

One epoch of SGD over the retain set through the participant's loaders, then evaluation on forget, retain and test: the
stages of a run but for the sandbox (benchmarks/sandbox measures that). The plain loop beside it is the starting kit's.
"""

import argparse
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.splits.measure import describe_machine, synchronize
from lethe.competition.file import Training
from lethe.data.stored_sets import StoredSet
from lethe.device.precision import Precision
from lethe.evaluation.inference import SplitEvaluator
from lethe.networks.builders import build, to_inputs
from lethe.runtime.data_loaders import ImageSet, InMemoryDataset, ShuffledLoader
from lethe.training.cuda_graph_training import MODELS_AT_ONCE
from lethe.training.trainer import TrainingJob
from lethe.training.trainer_selection import train_models

RUNS = 512
EPOCHS = 30


def random_set(network: Mapping[str, Any], n_images: int) -> StoredSet:
    images = torch.randint(0, 256, (n_images, *network["input_shape"]), dtype=torch.uint8)
    labels = torch.randint(0, network["n_classes"], (n_images,))
    return StoredSet(images, labels, torch.arange(n_images), torch.arange(n_images) // 20)


def fine_tune(net: nn.Module, loader: DataLoader[Any], device: str) -> None:
    """The host's baseline: one epoch of SGD on the retain set."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()
    net.train()
    for sample in loader:
        images, labels = (sample["image"], sample["age_group"]) if isinstance(sample, dict) else sample
        optimizer.zero_grad()
        criterion(net(images.to(device)), labels.to(device)).backward()
        optimizer.step()
    net.eval()


def timed(name: str, work: Any, device: str, *, repeats: int) -> float:
    work()
    synchronize(device)
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    synchronize(device)
    time_s = (time.perf_counter() - started) / repeats
    print(f"  {name:44s} {time_s:10.3f} s   {time_s * RUNS / 60:8.1f} min for {RUNS}", flush=True)
    return time_s


def measure(network: Mapping[str, Any], n_images: int, *, device: str, precision: Precision, repeats: int) -> None:
    shares = {"retain": 1.0, "forget": 0.02, "test": 0.125}
    sets = {name: random_set(network, max(2, int(share * n_images))) for name, share in shares.items()}
    retain = sets["retain"]
    dataset = InMemoryDataset(ImageSet(retain.images, retain.labels, retain.ids, retain.persons), network)
    plain = DataLoader(TensorDataset(to_inputs(retain.images, network), retain.labels), batch_size=64, shuffle=True)
    net = build(network).to(device)
    evaluator = SplitEvaluator(
        network, sets, device=device, batch_size=1024 if device != "cpu" else 256, precision=precision
    )
    state = {name: value.cpu() for name, value in net.state_dict().items()}
    ours = timed(
        "fine-tuning through the competition's loader",
        lambda: fine_tune(net, ShuffledLoader(dataset, 64), device),
        device,
        repeats=repeats,
    )
    timed("fine-tuning through a plain DataLoader", lambda: fine_tune(net, plain, device), device, repeats=repeats)
    evaluation = timed(
        "evaluation on forget, retain and test", lambda: evaluator.evaluate_state(state), device, repeats=repeats
    )
    total = (ours + evaluation) * RUNS / 60
    print(f"  {RUNS} runs, one after the other: {total:.1f} min; evaluation overlapped: {ours * RUNS / 60:.1f} min")
    measure_retraining(network, retain, device=device, precision=precision)


def measure_retraining(network: Mapping[str, Any], retain: StoredSet, *, device: str, precision: Precision) -> None:
    recipe = Training(epochs=1, batch_size=64, learning_rate=0.01, precision=precision)
    job = TrainingJob.on_device(network, recipe, retain.images, retain.labels, device=device)
    seeds = {index: index for index in range(MODELS_AT_ONCE if device != "cpu" else 1)}
    synchronize(device)
    started = time.perf_counter()
    train_models(job, seeds)
    synchronize(device)
    an_epoch = (time.perf_counter() - started) / len(seeds)
    model_s = an_epoch * EPOCHS
    print(
        f"  retraining, {len(seeds)} at once: {model_s:.1f} s a model of {EPOCHS} epochs, "
        f"{3600 / model_s:.1f} models an hour, {model_s * RUNS / 60:.0f} min for {RUNS}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--images", type=int, default=24_000)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine(arguments.device))
    print(f"{arguments.network}, {arguments.images} x 3 x {arguments.size} x {arguments.size}, {arguments.precision}")
    shape = [3, arguments.size, arguments.size]
    network = {"name": arguments.network, "options": {}, "input_shape": shape, "n_classes": 10, "input_scale": 1 / 64}
    measure(
        network,
        arguments.images,
        device=arguments.device,
        precision=arguments.precision,
        repeats=arguments.repeats,
    )


if __name__ == "__main__":
    main()

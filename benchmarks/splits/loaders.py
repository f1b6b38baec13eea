"""An epoch through the participant's loaders over direct tensor indexing.

python -m benchmarks.splits.loaders
"""

import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.splits.measure import describe_machine, seconds
from lethe.data.stored_sets import StoredSet
from lethe.runtime.data_loaders import InMemoryDataset, ShuffledLoader, image_set, read_safetensors

CASES = (([1, 8, 8], 700), ([1, 28, 28], 6000), ([3, 32, 32], 6000))


def measure(shape: list[int], n_images: int) -> None:
    numbers = torch.arange(n_images)
    images = torch.randint(0, 256, (n_images, *shape), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.safetensors"
        StoredSet(images, numbers % 10, numbers, numbers // 10).write(path)
        dataset = InMemoryDataset(image_set(read_safetensors(path)), {"input_scale": 1 / 64, "input_shift": -2.0})
    inputs, labels = dataset.inputs(slice(None)), dataset.stored.labels

    def direct() -> None:
        for batch in torch.split(torch.randperm(n_images), 64):
            inputs[batch], labels[batch]

    def run(loader: DataLoader[object]) -> float:
        def epoch() -> None:
            for _ in loader:
                pass

        return seconds(epoch, device="cpu", repeats=15)

    base = seconds(direct, device="cpu", repeats=15)
    rows = {
        "tuples": run(ShuffledLoader(dataset.with_style("tuple"), 64)),
        "dicts": run(ShuffledLoader(dataset, 64)),
        "own DataLoader over ours": run(DataLoader(dataset, batch_size=64, shuffle=True)),
        "TensorDataset": run(DataLoader(TensorDataset(inputs, labels), batch_size=64, shuffle=True)),
    }
    print(f"{n_images} x {shape}: direct indexing {base * 1e3:.2f} ms an epoch")
    for name, time_s in rows.items():
        print(f"  {name:26s} {time_s * 1e3:8.2f} ms   {time_s / base:5.2f} x direct", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    print(describe_machine("cpu"))
    for shape, n_images in CASES:
        measure(shape, n_images)


if __name__ == "__main__":
    main()

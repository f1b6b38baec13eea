"""Time and memory of every method beside those of the network that it is given, as docs/methods/cost.md.

    python -m benchmarks.methods.cost [--rounds 5] [--out docs/methods/cost.md]

On sklearn's digits with the small convolutional network, one thread. What is measured: time_ratio and memory_ratio.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.methods import time_ratio
from benchmarks.methods.memory_ratio import measured_peaks
from lethe.methods.catalogue import method_ids

PAGE = """\
# Time and memory of every method

For researchers who choose a method: what each costs in time and memory, as ratios.

Made by `python -m benchmarks.methods.cost --out docs/methods/cost.md` on {date}: sklearn's digits, the small
convolutional network, {retain} retain and {forget} forget images, batches of 64, one CPU thread, the methods' own
constants.

- **Epochs**: CPU time over that of one epoch of finetuning on the retain set, whose time is the shortest of three; the
  median of {rounds} rounds.
- The files of the methods count epochs (`Budget`). The time is mostly 1.1 to 1.5 times that count: besides its
  batches a method copies networks, draws labels and noise, and evaluates. `python -m scripts.method_pages` copies the
  time into the files and their pages.
- **RTE**: how many times less than retraining, if retraining takes {epochs} epochs. Below 1 the method costs more.
- **Memory**: the highest sum of bytes of tensors that torch holds on the CPU while the method runs, the network's
  weights included, over that of one step of SGD with momentum ({training:.0f} KiB) and of the outputs of one batch
  ({inference:.0f} KiB). Python, code and the images that loaders share are not counted. The weights are
  {weights:.0f} KiB, so most of it is outputs of layers: with a larger network, a second copy of it weighs more.

| method | epochs | RTE | memory over a training step | over inference |
|---|---:|---:|---:|---:|
{rows}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; print the page or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=time_ratio.ROUNDS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loaders = time_ratio.digits()
    net, methods = time_ratio.original_network(loaders), list(method_ids())
    ratios = time_ratio.measured_ratios(net, loaders, methods, rounds=given.rounds)
    peaks = measured_peaks(net, loaders, methods)
    weights = sum(tensor.nbytes for tensor in net.state_dict().values())
    text = page({name: statistics.median(values) for name, values in ratios.items()}, peaks, given.rounds, weights)
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text, encoding="utf-8")


def page(ratios: Mapping[str, float], peaks: Mapping[str, int], rounds: int, weights: int) -> str:
    """Return the page. ratios: epochs of finetuning by method. peaks, weights: bytes."""
    training, inference = peaks["training step"], peaks["inference"]
    rows = (
        f"| `{name}` | {ratio:.2f} | {time_ratio.EPOCHS / ratio:.1f} |"
        f" {peaks[name] / training:.2f} | {peaks[name] / inference:.2f} |"
        for name, ratio in sorted(ratios.items(), key=lambda item: item[1])
        if name != "original"  # it does nothing
    )
    return PAGE.format(
        date=datetime.now(UTC).date(),
        rounds=rounds,
        epochs=time_ratio.EPOCHS,
        training=training / 1024,
        inference=inference / 1024,
        weights=weights / 1024,
        rows="\n".join(rows),
        **time_ratio.SIZES,
    )


if __name__ == "__main__":
    main()

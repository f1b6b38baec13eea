"""Table of stitched methods: the erasing of one with the repairing of another, all pairs, on one prepared split.

    python -m benchmarks.methods.stitched_pairs SPLIT_DIR [METHOD ...] [--runs 32] [--match-lr]

SPLIT_DIR is a prepared public split, e.g. of examples/competitions/digits.toml. Each pair is unlearned `--runs` times
and compared with as many retrained models; few models give a coarse score, so that of a pair is not that of a
competition. The diagonal is each method with its own repair.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Self

import torch

from lethe.competition.file import Scoring
from lethe.evaluation.competition_score import score_outputs
from lethe.evaluation.inference import RunOutputs, SplitEvaluator
from lethe.evaluation.model_outputs import StoredOutputs, read_outputs
from lethe.methods.stitching import stitch
from lethe.metrics.scoring.score import ModelOutputs
from lethe.networks.builders import build
from lethe.reports.table import Column, Table
from lethe.reports.table_formats import TableFormat, render
from lethe.runtime.data_loaders import GuestData, load_data, make_loaders
from lethe.tuning.split_run import Unlearning, load_method

METHODS = ("cfw", "fcs", "msg", "prmq", "random_label", "salun")  # they declare both phases, and fit any network


@dataclass(frozen=True)
class Split:
    """What is read once. retrained: of as many models as there are runs."""

    data: GuestData
    evaluator: SplitEvaluator
    retrained: ModelOutputs

    @classmethod
    def read(cls, split_dir: Path, runs: int) -> Self:
        stored = read_outputs(split_dir)
        retrained = ModelOutputs(stored.confidences[:runs], stored.retain_accuracy[:runs], stored.test_accuracy[:runs])
        return cls(load_data(split_dir / "visible"), SplitEvaluator.load(split_dir), retrained)


@dataclass(frozen=True)
class Pair:
    """A pair and its score. time_s: median of a run."""

    erase: str
    repair: str
    forgetting_quality: float
    retain_ratio: float | None
    test_ratio: float | None
    final_score: float | None
    time_s: float


def main() -> None:
    """Measure every pair, print each as it is done, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("split_dir", type=Path)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--match-lr", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    split, pairs = Split.read(given.split_dir, given.runs), []
    for erase, repair in product(given.methods, repeat=2):
        pairs.append(measured(split, erase, repair, match_lr=given.match_lr))
        print(pairs[-1], flush=True)
    for name in ("final_score", "forgetting_quality"):
        print("\n" + render(matrix(pairs, given.methods, name), TableFormat.MARKDOWN), end="")


def measured(split: Split, erase: str, repair: str, *, match_lr: bool) -> Pair:
    """Unlearn as often as there are retrained models, and score the result."""
    unlearning = loaded(stitch(erase, repair, match_lr=match_lr).files)
    runs = [one_run(unlearning, split, seed) for seed in range(len(split.retrained.confidences))]
    outputs = StoredOutputs.of_runs([outputs for outputs, _ in runs])
    unlearned = ModelOutputs(outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy)
    score = score_outputs(unlearned, split.retrained, scoring=Scoring(bootstrap_resamples=0))
    return Pair(
        erase,
        repair,
        score.forgetting_quality,
        score.retain_ratio,
        score.test_ratio,
        score.final_score,
        statistics.median(time_s for _, time_s in runs),
    )


def loaded(files: Mapping[str, str]) -> Unlearning:
    """Return the function of a stitched submission."""
    with tempfile.TemporaryDirectory(prefix="lethe-pairs-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return load_method(Path(folder) / "unlearning.py")


def one_run(unlearning: Unlearning, split: Split, seed: int) -> tuple[RunOutputs, float]:
    """Return the outputs of one unlearned model and how long unlearning took, in seconds."""
    net = build(split.data.network)
    net.load_state_dict(split.data.original_state)
    torch.manual_seed(seed)
    loaders = make_loaders(split.data)
    started = time.perf_counter()
    unlearning(net, loaders.retain, loaders.forget, loaders.validation)
    time_s = time.perf_counter() - started
    return split.evaluator.evaluate_state(net.state_dict()), time_s


def matrix(pairs: list[Pair], methods: list[str], name: str) -> Table:
    """Return one value of every pair: a row for each method that erases, a column for each that repairs."""
    values = {(pair.erase, pair.repair): getattr(pair, name) for pair in pairs}
    rows = tuple((erase, *(values[erase, repair] for repair in methods)) for erase in methods)
    return Table(name, (Column("erase \\ repair"), *(Column(method, 4) for method in methods)), rows)


if __name__ == "__main__":
    main()

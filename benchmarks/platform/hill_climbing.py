"""What the ladder does against hill climbing: adaptive submissions against public and private score.

Both splits of a competition are prepared, and a method runs N times on each; its outputs are stored in the folder and
used again. The entry that climbs adds an offset to the logit-scaled confidence of every forget example, chosen by a
hash of the example: code can do that by its weights or by what it trains on. It changes a random tenth of the offsets,
submits, and keeps the change where the shown score rises. The private split has other examples, so whatever offsets
gain on the public one is fitted to its examples. Real scoring (`lethe.metrics.scoring`) and the real ladder
(`server.leaderboard.ladder`) are used; no sandbox, no server.

python -m benchmarks.platform.hill_climbing FOLDER [--models 64] [--submissions 200] [--seeds 10] [--size 0.5]
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import examples
import lethe
from lethe.competition.file import read_competition_file
from lethe.competition.visibility import Visibility
from lethe.evaluation.evaluators import load_evaluator
from lethe.evaluation.shard_outputs import model_outputs
from lethe.metrics.scoring.score import ModelOutputs, score
from lethe.preparation.prepare import prepare_split
from server.disclosure.gate import show_score
from server.leaderboard.ladder import Try, climb

EXAMPLES = Path(next(iter(examples.__path__)))
START = datetime(2030, 1, 1, tzinfo=UTC)
CONSTANTS = {"AMOUNT": 0.9, "LR": 0.05, "EPOCHS": 6}  # of the demo's best reference line
CHANGED = 0.1  # of the offsets, by each submission
STEPS = (0.002, 0.005, 0.01, 0.02)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sides:
    """Unlearned and retrained models' outputs on one split."""

    unlearned: ModelOutputs
    retrained: ModelOutputs

    def score(self, offsets: Array) -> float:
        """Return the final score of the entry with these offsets, shape (n_examples,)."""
        shifted = ModelOutputs(
            self.unlearned.confidences + offsets, self.unlearned.retain_accuracy, self.unlearned.test_accuracy
        )
        return score(shifted, self.retrained).headline

    @property
    def n_examples(self) -> int:
        return int(self.unlearned.confidences.shape[1])


@dataclass(frozen=True)
class Climbed:
    """What came of it: scores of the entry that is kept at the end, and how often the shown score moved."""

    shown: float
    public: float
    private: float
    moved: int


def load_sides(folder: Path, visibility: Visibility, *, n_models: int) -> Sides:
    """Return both sides' outputs on one split, made where they are not in the folder yet."""
    split = folder / f"{visibility.value}-{n_models}"
    stored = split / "climbing.npz"
    if not stored.is_file():
        competition = read_competition_file(EXAMPLES / "demo" / "digits.toml")
        competition = competition.model_copy(update={"n_models": n_models, "shard_runs": n_models})
        prepare_split(competition, visibility, split)
        runs = lethe.methods.run("prmq", split, runs=n_models, **CONSTANTS)
        evaluator = load_evaluator(split)
        outputs = [evaluator.evaluate(path.read_bytes()) for path in sorted(runs.folder.glob("*.safetensors"))]
        np.savez(
            stored,
            confidences=np.stack([output.confidences for output in outputs]),
            retain=np.array([output.retain_accuracy for output in outputs]),
            test=np.array([output.test_accuracy for output in outputs]),
        )
    with np.load(stored) as arrays:
        unlearned = ModelOutputs(arrays["confidences"], arrays["retain"], arrays["test"])
    return Sides(unlearned, model_outputs(split / "hidden" / "retrained" / "outputs.safetensors"))


class Board:
    """A team's public score as it is shown: exact, or on the ladder. step: None for exact."""

    def __init__(self, step: float | None) -> None:
        self.step = step
        self.tries: list[Try] = []

    def submit(self, value: float) -> float:
        """Return what is shown after a submission."""
        if self.step is None:
            return show_score(value)
        number = len(self.tries)
        self.tries.append(Try(str(number), START + timedelta(minutes=number), value))
        return show_score(climb(self.tries, step=self.step)[str(number)].score)


def climb_hill(
    public: Sides, private: Sides, *, step: float | None, submissions: int, size: float, seed: int
) -> Climbed:
    """Return what a climber reaches. size: standard deviation of a change, in units of the confidences."""
    rng = np.random.default_rng(seed)
    board = Board(step)
    kept, elsewhere = np.zeros(public.n_examples), np.zeros(private.n_examples)
    best, moved = board.submit(public.score(kept)), 0
    for _ in range(submissions - 1):
        change, there = (_change(rng, n, size) for n in (public.n_examples, private.n_examples))
        shown = board.submit(public.score(kept + change))
        if shown > best:
            best, moved = shown, moved + 1
            kept, elsewhere = kept + change, elsewhere + there
    return Climbed(best, public.score(kept), private.score(elsewhere), moved)


def _change(rng: np.random.Generator, n_examples: int, size: float) -> Array:
    """Return offsets of a random tenth of the examples: drawn independently for each split, as by a hash."""
    return rng.normal(0.0, size, n_examples) * (rng.uniform(size=n_examples) < CHANGED)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--size", type=float, default=0.5)
    asked = parser.parse_args()
    public, private = (load_sides(asked.folder, one, n_models=asked.models) for one in Visibility)
    before = [side.score(np.zeros(side.n_examples)) for side in (public, private)]
    print(
        f"N = {asked.models}, {public.n_examples} forget examples, {asked.submissions} submissions, {asked.seeds} seeds"
    )
    print(f"the entry before climbing: public {before[0]:.4f}, private {before[1]:.4f}")
    print(f"{'board':14}{'shown':>16}{'public':>16}{'private':>16}{'public gain':>13}{'private gain':>14}{'moves':>7}")
    for step in (None, *STEPS):
        found = [
            climb_hill(public, private, step=step, submissions=asked.submissions, size=asked.size, seed=seed)
            for seed in range(asked.seeds)
        ]
        name = "exact scores" if step is None else f"ladder {step:g}"
        cells = [_cell(found, value) for value in (lambda c: c.shown, lambda c: c.public, lambda c: c.private)]
        gains = [np.mean([c.public for c in found]) - before[0], np.mean([c.private for c in found]) - before[1]]
        moved = np.mean([c.moved for c in found])
        print(f"{name:14}{''.join(f'{cell:>16}' for cell in cells)}{gains[0]:>+13.4f}{gains[1]:>+14.4f}{moved:>7.1f}")


def _cell(found: list[Climbed], value: Callable[[Climbed], float]) -> str:
    values = [value(climbed) for climbed in found]
    return f"{np.mean(values):.4f} ± {np.std(values):.4f}"


if __name__ == "__main__":
    main()

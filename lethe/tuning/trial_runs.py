"""The runs of a trial and its objective: made once, kept beside the study, so that more runs are added to them."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lethe.errors import InvalidInput
from lethe.evaluation.model_outputs import read_outputs, read_stored_outputs
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.methods.rendering import set_constants
from lethe.tuning.local_run import SplitRuns
from lethe.tuning.study import Study, TrialScore

SCORE, FORGETTING = "score", "f"
SEVERAL_LOSSES = "deepunlearn_objective"


def higher_is_better(objective: str) -> bool:
    if objective in (SCORE, FORGETTING):
        return True
    from lethe.metrics.core.registry import Direction, metric  # noqa: PLC0415

    try:
        direction = metric(objective).direction
    except ValueError as error:
        raise InvalidInput(f"{error}; or {SCORE!r}, the competition's") from error
    if direction not in (Direction.HIGHER, Direction.LOWER):
        raise InvalidInput(f"{objective} has no better end to search for ({direction}); choose another metric")
    return direction == Direction.HIGHER


def score_of(objective: str, split_dir: Path, outputs: StoredOutputs) -> TrialScore:
    """Return the objective of unlearned models. Raises InvalidInput where it has no value."""
    if objective in (SCORE, FORGETTING):
        return TrialScore(runs=len(outputs), value=_score(objective, outputs, split_dir))
    if objective == SEVERAL_LOSSES:
        losses = _several_losses(outputs, split_dir)
        return TrialScore(runs=len(outputs), value=float(np.linalg.norm(losses)), losses=losses)
    from lethe.competition.file import Scoring  # noqa: PLC0415
    from lethe.evaluation.model_outputs import split_inputs  # noqa: PLC0415
    from lethe.metrics import evaluate  # noqa: PLC0415

    found = evaluate(split_inputs(split_dir, outputs.arrays(), scored_by=Scoring()), [objective])[objective]
    if found.result is None or found.result.value is None:
        raise InvalidInput(found.not_computed or f"{objective} has no value here")
    return TrialScore(runs=len(outputs), value=float(found.result.value))


def _several_losses(outputs: StoredOutputs, split_dir: Path) -> list[float]:
    """Return Deep Unlearn's four losses: means over runs, run i against retrained model i.

    The split's test set is used for validation: what is tuned here is reported on another split.
    """
    from lethe.metrics.benchmark.training_choices import deepunlearn_objective  # noqa: PLC0415
    from lethe.metrics.membership.umia import AttackParameters, forget_test_attack  # noqa: PLC0415

    retrained = _as_many_retrained(outputs, split_dir)
    if missing := [name for name in ("forget_loss", "test_loss") if name not in outputs.captured]:
        raise InvalidInput(f"{SEVERAL_LOSSES} needs {missing[0]}: prepare the split with `capture = 1` in [report]")
    losses_of = [np.asarray(outputs.captured[name], np.float64) for name in ("forget_loss", "test_loss")]
    attack = forget_test_attack(*losses_of, **AttackParameters().model_dump())
    losses = np.mean(
        [
            [float(str(loss)) for loss in deepunlearn_objective(ours, theirs, accuracy).table.values()]
            for ours, theirs, accuracy in zip(_accuracies(outputs), _accuracies(retrained), attack, strict=False)
        ],
        axis=0,
    )
    return [float(loss) for loss in losses]


def _accuracies(outputs: StoredOutputs) -> NDArray[np.float64]:
    """Return accuracies on retain, forget and test set, shape (n_models, 3)."""
    forget = outputs.captured["forget_correct"].mean(axis=1)
    return np.stack([outputs.retain_accuracy, forget, outputs.test_accuracy], axis=1)


def _as_many_retrained(outputs: StoredOutputs, split_dir: Path) -> StoredOutputs:
    """Return the split's retrained models. Raises InvalidInput if there are fewer than were unlearned."""
    retrained = read_outputs(split_dir)
    if len(retrained) < len(outputs):
        raise InvalidInput(f"the split has {len(retrained)} retrained models, fewer than {len(outputs)} runs")
    return retrained


def _score(objective: str, outputs: StoredOutputs, split_dir: Path) -> float:
    """Return the competition's score, or F, against as many retrained models as were unlearned."""
    from lethe.competition.file import Scoring  # noqa: PLC0415
    from lethe.evaluation.ranking import score_outputs  # noqa: PLC0415
    from lethe.metrics.scoring.score import ModelOutputs  # noqa: PLC0415

    retrained, n = _as_many_retrained(outputs, split_dir), len(outputs)
    sides = (
        ModelOutputs(outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy),
        ModelOutputs(retrained.confidences[:n], retrained.retain_accuracy[:n], retrained.test_accuracy[:n]),
    )
    found = score_outputs(*sides, scoring=Scoring(bootstrap_resamples=0))
    return float((found.final_score if objective == SCORE else found.forgetting_quality) or 0.0)


FRESH_SEEDS = 1_000_000  # runs that the search never saw begin here, above the seed of its own
KEY_LENGTH = 16


@dataclass(frozen=True)
class TrialRuns:
    """study_file: the runs are stored in the folder beside it. run_limit_s: of one run, None without a limit."""

    study: Study
    source: str
    split_dir: Path
    process: SplitRuns
    study_file: Path
    run_limit_s: float | None = None

    def search_score(self, number: int, *, runs: int) -> None:
        """Give trial `number` its next score, of its first `runs` runs, or its failure."""
        self._scored(number, first=0, runs=runs, into=self.study.trials[number].scores.append)

    def fresh_score(self, number: int, *, runs: int) -> None:
        """Give trial `number` its score of `runs` fresh runs, or its failure."""

        def keep(score: TrialScore) -> None:
            self.study.trials[number].fresh = score

        self._scored(number, first=FRESH_SEEDS, runs=runs, into=keep)

    def _scored(self, number: int, *, first: int, runs: int, into: Callable[[TrialScore], None]) -> None:
        trial = self.study.trials[number]
        text = set_constants(self.source, trial.settings, owner=self.study.question.method)
        name = sha256(text.encode()).hexdigest()[:KEY_LENGTH]
        try:
            self._complete(text, name, first=first, runs=runs)
            parts = [read_stored_outputs(path)[0] for path in self._parts(name, first)]
            into(score_of(self.study.question.objective, self.split_dir, StoredOutputs.joined(parts)))
        except InvalidInput as error:
            trial.failure = error.detail
        cost = [read_stored_outputs(path)[1] for path in self._parts(name)]
        trial.work_epochs = sum(float(part["work_epochs"]) for part in cost)
        trial.cpu_time_s = sum(float(part["cpu_time_s"]) for part in cost)

    def _complete(self, text: str, name: str, *, first: int, runs: int) -> None:
        """Make the runs that are missing of those from `first` on."""
        question = self.study.question
        there = sum(int(path.stem.rsplit("-", 1)[1]) for path in self._parts(name, first))
        missing = runs - there
        if missing <= 0:
            return
        path = self._folder / f"{name}-{first}-{there:05d}-{missing}.safetensors"
        beside = path.with_suffix(".new")
        self._folder.mkdir(parents=True, exist_ok=True)
        self.process.run(
            {f"{question.method}.py": text},
            runs=missing,
            seed=question.seed + first + there,
            outputs_file=beside,
            run_limit_s=self.run_limit_s,
        )
        beside.replace(path)

    def _parts(self, name: str, first: int | str = "*") -> list[Path]:
        return sorted(self._folder.glob(f"{name}-{first}-*.safetensors"))

    @property
    def _folder(self) -> Path:
        return runs_folder(self.study_file)


def runs_folder(study_file: Path) -> Path:
    """Return the folder with the runs of a study: files by the hash of the text that was run."""
    return study_file.with_suffix(".runs")

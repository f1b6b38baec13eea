"""Search of a method's constants on a prepared split: random, grid or Optuna, in a budget of device seconds.

Every method gets the same budget of seconds of unlearning, not of trials: a slow method must not be searched longer.
The objective compares with the split's retrained models, so what is found is reference-tuned.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lethe.data.files import sha256_of
from lethe.errors import AppError, InvalidInput
from lethe.methods.rendering import render
from lethe.tuning.local_run import run_on_split
from lethe.tuning.search_space import Settings, grid_settings, random_settings, search_ranges
from lethe.tuning.study import Question, Sampler, Search, Study, Trial

if TYPE_CHECKING:
    from lethe.evaluation.model_outputs import StoredOutputs

SCORE = "score"
SEVERAL_LOSSES = "deepunlearn_objective"


def make_question(
    method_id: str, split_dir: Path, *, objective: str, search: Search, points: int, runs: int, seed: int
) -> Question:
    """Return what a study asks. Raises NotFound for the method, InvalidInput for the objective or the split."""
    search_ranges(method_id)
    manifest = split_dir / "manifest.json"
    if not manifest.is_file():
        raise InvalidInput(f"{split_dir} is no prepared split: it has no manifest.json")
    return Question(
        method=method_id,
        split_sha256=sha256_of(manifest),
        objective=objective,
        higher_is_better=_higher_is_better(objective),
        search=search,
        points=points,
        runs=runs,
        seed=seed,
    )


def tune(
    question: Question,
    split_dir: Path,
    study_file: Path,
    *,
    budget_s: float,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> Study:
    """Go on with the study until its budget is used or all was tried; each trial is stored before the next begins.

    budget_s: device seconds of unlearning of all trials, those of earlier calls included; a trial that begins before
    the budget is used is finished. Raises InvalidInput for a file of another study.
    """
    study, next_settings = Study.open(study_file, question), _sampler(question)
    while study.device_time_s < budget_s and (settings := next_settings(study)) is not None:
        study.trials.append(_tried(question, split_dir, settings))
        study.save(study_file)
        on_trial(study.trials[-1])
    return study


def _tried(question: Question, split_dir: Path, settings: Settings) -> Trial:
    """Return the trial; one that fails costs what it took of the wall clock, or a search of failures had no end."""
    files, started = {f"{question.method}.py": render(question.method, settings)}, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lethe-tune-") as name:
        try:
            done = run_on_split(files, split_dir, runs=question.runs, seed=question.seed, weights_dir=Path(name))
            value, losses = _value(question.objective, split_dir, Path(name))
        except AppError as error:
            return Trial(settings=settings, device_time_s=time.monotonic() - started, failure=error.detail)
    return Trial(
        settings=settings, value=value, losses=losses, device_time_s=sum(run["wall_time_s"] for run in done.runs)
    )


def _sampler(question: Question) -> Sampler:
    ranges = search_ranges(question.method)
    if question.search == "optuna":
        from lethe.tuning.optuna_search import optuna_sampler  # noqa: PLC0415  an extra

        return optuna_sampler(ranges, seed=question.seed)
    if question.search == "random":
        return lambda study: random_settings(ranges, seed=question.seed, trial=len(study.trials))

    def next_on_grid(study: Study) -> Settings | None:
        untried: Iterator[Settings] = grid_settings(ranges, points=question.points)
        return next((settings for number, settings in enumerate(untried) if number == len(study.trials)), None)

    return next_on_grid


def _higher_is_better(objective: str) -> bool:
    if objective == SCORE:
        return True
    from lethe.metrics.core.registry import Direction, metric  # noqa: PLC0415

    try:
        direction = metric(objective).direction
    except ValueError as error:
        raise InvalidInput(f"{error}; or {SCORE!r}, the competition's") from error
    if direction not in (Direction.HIGHER, Direction.LOWER):
        raise InvalidInput(f"{objective} has no better end to search for ({direction}); choose another metric")
    return direction == Direction.HIGHER


def _value(objective: str, split_dir: Path, models: Path) -> tuple[float, list[float]]:
    """Return the objective of the unlearned models in a folder, and the losses that it joins, if it joins several.

    Raises InvalidInput where it has none.
    """
    from lethe.competition.file import Scoring  # noqa: PLC0415
    from lethe.evaluation.checkpoint_files import evaluate_folder  # noqa: PLC0415  with torch
    from lethe.evaluation.inference import SplitEvaluator  # noqa: PLC0415
    from lethe.evaluation.model_outputs import StoredOutputs  # noqa: PLC0415

    outputs = StoredOutputs.of_runs(evaluate_folder(SplitEvaluator.load(split_dir), models))
    if objective == SCORE:
        return _score(outputs, split_dir), []
    if objective == SEVERAL_LOSSES:
        return _several_losses(outputs, split_dir)
    from lethe.evaluation.split_inputs import split_inputs  # noqa: PLC0415
    from lethe.metrics import evaluate  # noqa: PLC0415

    found = evaluate(split_inputs(split_dir, outputs.arrays(), scored_by=Scoring()), [objective])[objective]
    if found.result is None or found.result.value is None:
        raise InvalidInput(found.not_computed or f"{objective} has no value here")
    return float(found.result.value), []


def _several_losses(outputs: "StoredOutputs", split_dir: Path) -> tuple[float, list[float]]:
    """Return the norm of Deep Unlearn's four losses and the losses: means over runs, run i against retrained model i.

    The split's test set stands for validation: what is tuned here is reported on another split.
    """
    from lethe.metrics.benchmark.deepunlearn_objective import deepunlearn_objective  # noqa: PLC0415
    from lethe.metrics.membership.umia import AttackParameters, forget_test_attack  # noqa: PLC0415

    retrained = _as_many_retrained(outputs, split_dir)
    if missing := [name for name in ("forget_loss", "test_loss") if name not in outputs.captured]:
        raise InvalidInput(f"{SEVERAL_LOSSES} needs {missing[0]}: prepare the split with `capture = 1` in [report]")
    attack = forget_test_attack(
        outputs.captured["forget_loss"], outputs.captured["test_loss"], **AttackParameters().model_dump()
    )
    losses = np.mean(
        [
            [float(str(loss)) for loss in deepunlearn_objective(ours, theirs, accuracy).table.values()]
            for ours, theirs, accuracy in zip(_accuracies(outputs), _accuracies(retrained), attack, strict=False)
        ],
        axis=0,
    )
    return float(np.linalg.norm(losses)), losses.tolist()


def _accuracies(outputs: "StoredOutputs") -> NDArray[np.float64]:
    """Return accuracies on retain, forget and test set, shape (n_models, 3)."""
    forget = outputs.captured["forget_correct"].mean(axis=1)
    return np.stack([outputs.retain_accuracy, forget, outputs.test_accuracy], axis=1)


def _as_many_retrained(outputs: "StoredOutputs", split_dir: Path) -> "StoredOutputs":
    """Return the split's retrained models. Raises InvalidInput if there are fewer than were unlearned."""
    from lethe.evaluation.model_outputs import read_outputs  # noqa: PLC0415

    retrained = read_outputs(split_dir)
    if len(retrained) < len(outputs):
        raise InvalidInput(f"the split has {len(retrained)} retrained models, fewer than {len(outputs)} runs")
    return retrained


def _score(outputs: "StoredOutputs", split_dir: Path) -> float:
    """Return the competition's score against as many retrained models as were unlearned."""
    from lethe.competition.file import Scoring  # noqa: PLC0415
    from lethe.evaluation.competition_score import score_outputs  # noqa: PLC0415
    from lethe.metrics.scoring.score import ModelOutputs  # noqa: PLC0415

    retrained, n = _as_many_retrained(outputs, split_dir), len(outputs)
    sides = (
        ModelOutputs(outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy),
        ModelOutputs(retrained.confidences[:n], retrained.retain_accuracy[:n], retrained.test_accuracy[:n]),
    )
    return float(score_outputs(*sides, scoring=Scoring(bootstrap_resamples=0)).final_score or 0.0)

"""What a search maximises or minimises: the competition's score, a metric, or Deep Unlearn's several losses."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lethe.errors import InvalidInput
from lethe.evaluation.model_outputs import read_outputs
from lethe.evaluation.shard_outputs import StoredOutputs
from lethe.tuning.study import TrialScore

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
    from lethe.evaluation.split_inputs import split_inputs  # noqa: PLC0415
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
    from lethe.evaluation.competition_score import score_outputs  # noqa: PLC0415
    from lethe.metrics.scoring.score import ModelOutputs  # noqa: PLC0415

    retrained, n = _as_many_retrained(outputs, split_dir), len(outputs)
    sides = (
        ModelOutputs(outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy),
        ModelOutputs(retrained.confidences[:n], retrained.retain_accuracy[:n], retrained.test_accuracy[:n]),
    )
    found = score_outputs(*sides, scoring=Scoring(bootstrap_resamples=0))
    return float((found.final_score if objective == SCORE else found.forgetting_quality) or 0.0)

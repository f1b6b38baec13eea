"""The score of a few local runs on a starter kit's public sample, and what it is made of."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from lethe.competition.file import Scoring
from lethe.competition.kit_models import MIN_FOR_A_SHARE
from lethe.evaluation.competition_score import score_outputs
from lethe.evaluation.shard_outputs import RunOutputs, model_outputs
from lethe.metrics.scoring.calibration import calibrate
from lethe.metrics.scoring.explanation import Explanation, ScoreParts, explain, score_parts
from lethe.metrics.scoring.resampling import Interval
from lethe.metrics.scoring.score import ModelOutputs, Score

MIN_FOR_A_SCORE = 4
RESAMPLES = 100
RETRAINED, FINETUNED = "retrained_outputs.safetensors", "finetuned_outputs.safetensors"
LAST_CHECK = "last_check.json"  # the entry before, beside the sample
STORED_PARTS = TypeAdapter(ScoreParts)


@dataclass(frozen=True)
class SampleScores:
    """The estimate, exact retraining's from as many models (None where the kit has too few), and what it is made of.

    interval: 95 %, None with fewer than 8 models. share, share_interval: of the oracle; None with fewer than
    MIN_FOR_A_SHARE models, which do not put entries into the order that the server finds.
    """

    n_models: int
    estimate: float
    interval: Interval | None
    oracle: float | None
    share: float | None
    share_interval: Interval | None
    explanation: Explanation | None


def score_on_sample(outputs: Sequence[RunOutputs], data: Path, *, scoring: Scoring) -> SampleScores | None:
    """Return the score of these runs against as many retrained models; None where they are too few.

    What it is made of is kept in `data`, and the next score is compared with it.
    """
    retrained = model_outputs(data / RETRAINED)
    n = min(len(outputs), len(retrained.confidences))
    if n < MIN_FOR_A_SCORE or retrained.retain_accuracy is None or retrained.test_accuracy is None:
        return None
    unlearned = ModelOutputs(
        np.stack([output.confidences for output in outputs[:n]]),
        np.array([output.retain_accuracy for output in outputs[:n]]),
        np.array([output.test_accuracy for output in outputs[:n]]),
    )
    scoring = scoring.model_copy(update={"bootstrap_resamples": RESAMPLES})
    first = _part(retrained, 0, n)
    found, own = _scored(unlearned, first, scoring)
    has_oracle = len(retrained.confidences) >= 2 * n
    oracle, oracle_parts = _scored(_part(retrained, n, 2 * n), first, scoring) if has_oracle else (None, None)
    placed = None
    if oracle is not None and oracle.headline > 0 and n >= MIN_FOR_A_SHARE:
        placed = calibrate(found, oracle)
    others = {"the check before": _take_last(data / LAST_CHECK, n)}
    if (data / FINETUNED).is_file():
        others["fine-tuning"] = _scored(_part(model_outputs(data / FINETUNED), 0, n), first, scoring)[1]
    if own is not None:
        _keep(data / LAST_CHECK, n, own)
    return SampleScores(
        n_models=n,
        estimate=found.headline,
        interval=found.interval,
        oracle=None if oracle is None else oracle.headline,
        share=None if placed is None else placed.fraction,
        share_interval=None if placed is None else placed.interval,
        explanation=None if own is None else explain(own, oracle=oracle_parts, others=others),
    )


def runs_for_a_share(data: Path) -> int:
    """Return how many runs to compare with as many retrained models and an oracle of as many, from those of a kit."""
    return min(MIN_FOR_A_SHARE, len(model_outputs(data / RETRAINED).confidences) // 2)


def _part(outputs: ModelOutputs, begin: int, end: int) -> ModelOutputs:
    retain, test = outputs.retain_accuracy, outputs.test_accuracy
    return ModelOutputs(
        outputs.confidences[begin:end],
        None if retain is None else retain[begin:end],
        None if test is None else test[begin:end],
    )


def _scored(unlearned: ModelOutputs, retrained: ModelOutputs, scoring: Scoring) -> tuple[Score, ScoreParts | None]:
    found = score_outputs(unlearned, retrained, scoring=scoring)
    return found, score_parts(found, unlearned, retrained)


def _take_last(path: Path, n_models: int) -> ScoreParts | None:
    """Return what was kept of the score before; None where there is none of as many models."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return STORED_PARTS.validate_python(kept["parts"]) if kept["n_models"] == n_models else None
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ):  # none, or a damaged one: there is nothing to compare with
        return None


def _keep(path: Path, n_models: int, parts: ScoreParts) -> None:
    kept = json.dumps({"n_models": n_models, "parts": asdict(parts)})
    with suppress(OSError):  # a kit in a folder that cannot be written to
        path.unlink(missing_ok=True)  # a link in a kit of somebody else: what it names is not written to
        with path.open("x", encoding="utf-8") as file:
            file.write(kept)

"""From the stored outputs of a shard's runs to a score in the database."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from server.competitions.config_file import CompetitionFile, Metric
from server.errors import HostFault
from server.evaluations import scores
from server.evaluations.claims import split_key
from server.evaluations.scores import ScoreRecord
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, Shard
from worker.context import WorkerContext
from worker.local_splits import local_split
from worker.results import ShardOutputs, join, model_outputs
from worker.scoring.attacks.family import AttackFamily
from worker.scoring.calibration import calibrate, suspicion
from worker.scoring.final import ModelOutputs, Score, score
from worker.scoring.resampling import FEWEST_MODELS
from worker.ties import replicates_as_data

log = structlog.get_logger()
RETRAINED = Path("hidden") / "retrained" / "outputs.safetensors"
ORACLE = Path("hidden") / "oracle" / "outputs.safetensors"


@dataclass(frozen=True)
class ScoringWork:
    """What is scored against what."""

    evaluation_id: str
    shards: tuple[Shard, ...]
    split_key: str
    manifest_sha256: str
    metric: Metric


def score_evaluation(context: WorkerContext, evaluation_id: str) -> bool:
    """Score an evaluation whose runs are all done. Return False if there was nothing to do."""
    work = _work(context, evaluation_id)
    if work is None:
        return False
    unlearned = join([_outputs(context, shard) for shard in work.shards])
    split_dir = local_split(context, work)
    retrained = model_outputs(split_dir / RETRAINED)
    found = score_outputs(
        ModelOutputs(unlearned.confidences, unlearned.retain_accuracy, unlearned.test_accuracy),
        retrained,
        metric=work.metric,
    )
    flags = _flags(found, unlearned, retrained, oracle=oracle_score(split_dir, work.manifest_sha256, work.metric))
    with context.database.write() as session:
        recorded = scores.record(session, evaluation_id, _record(found, unlearned, flags))
    log.info("scored", evaluation=evaluation_id, recorded=recorded)
    return recorded


def score_outputs(unlearned: ModelOutputs, retrained: ModelOutputs, *, metric: Metric) -> Score:
    """Score under the competition's metric. Too few models for a spread have no interval."""
    enough = unlearned.confidences.shape[0] >= FEWEST_MODELS
    return score(
        unlearned,
        retrained,
        attacks=AttackFamily(metric.attacks),
        delta=metric.delta,
        cap=metric.epsilon_cap,
        n_resamples=metric.bootstrap_resamples if enough else 0,
    )


@lru_cache(maxsize=8)
def oracle_score(split_dir: Path, manifest_sha256: str, metric: Metric) -> Score:  # noqa: ARG001 (names the content)
    """Return the score of exact retraining on the split: its second set of retrained models against its first."""
    return score_outputs(model_outputs(split_dir / ORACLE), model_outputs(split_dir / RETRAINED), metric=metric)


def _flags(found: Score, unlearned: ShardOutputs, retrained: ModelOutputs, *, oracle: Score) -> dict[str, Any]:
    """Return what an organiser should look at: copies, runs that barely differ, forgetting beyond retraining."""
    signs = suspicion(unlearned.confidences, retrained.confidences)
    flags: dict[str, Any] = {
        "deterministic": signs.deterministic,
        "copied": signs.copied,
        "repeated_runs": signs.repeated_runs,
        "copied_models": signs.copied_models,
    }
    if found.replicates is not None and oracle.replicates is not None and oracle.headline > 0.0:
        calibration = calibrate(found, oracle)
        flags |= {
            "share_of_oracle": calibration.fraction,
            "share_of_oracle_interval": list(calibration.interval),
            "above_oracle_standard_errors": _finite(calibration.excess),
            "leaked": calibration.leaked,
        }
    return flags


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _work(context: WorkerContext, evaluation_id: str) -> ScoringWork | None:
    with context.database.read() as session:
        shards = scores.results_to_score(session, evaluation_id)
        if shards is None:
            return None
        evaluation = session.get_one(Evaluation, evaluation_id)
        split = session.get_one(Split, evaluation.split_id)
        competition = session.get_one(Competition, split.competition_id)
        return ScoringWork(
            evaluation_id=evaluation_id,
            shards=tuple(shards),
            split_key=split_key(competition.slug, split.visibility),
            manifest_sha256=split.manifest_sha256 or "",
            metric=CompetitionFile.model_validate(competition.config).metric,
        )


def _outputs(context: WorkerContext, shard: Shard) -> ShardOutputs:
    return ShardOutputs.from_bytes(context.storage.read_verified(shard.result_key or "", shard.result_sha256 or ""))


def measured(ratio: float | None) -> float:
    """Return the ratio. Raises HostFault where the accuracies it comes from were not stored."""
    if ratio is None:
        raise HostFault("the stored outputs hold no accuracies; prepare the split anew")
    return ratio


def summary(found: Score) -> dict[str, Any]:
    """Return what is kept of a score beside its figures: how the examples' epsilons are spread."""
    levels = (0, 5, 25, 50, 75, 95, 100)
    return {
        "attacks": found.attacks.value,
        "epsilon_percentiles": {
            str(level): float(value) for level, value in zip(levels, np.percentile(found.epsilon, levels), strict=True)
        },
        "n_forget": int(found.epsilon.size),
    }


def _record(found: Score, unlearned: ShardOutputs, flags: dict[str, Any]) -> ScoreRecord:
    low, high = found.interval or (None, None)
    return ScoreRecord(
        final_score=found.headline,
        forgetting_quality=found.forgetting_quality,
        retain_ratio=measured(found.retain_ratio),
        test_ratio=measured(found.test_ratio),
        interval_low=low,
        interval_high=high,
        details=summary(found)
        | {
            "retain_accuracy": float(unlearned.retain_accuracy.mean()),
            "test_accuracy": float(unlearned.test_accuracy.mean()),
            "run_wall_time_s": float(np.median(unlearned.wall_time_s)),
            "flags": flags,
        },
        replicates=None if found.replicates is None else replicates_as_data(found.replicates),
        epsilon=found.epsilon.astype("<f4").tobytes(),
    )

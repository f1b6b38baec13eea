"""From the stored outputs of a shard's runs to a score in the database."""

import tempfile
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile, Scoring
from lethe.competition.run_limits import RunLimit, run_limit
from lethe.competition.sections import SCORE, Ranking
from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.errors import HostFault
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import Kind, read_outputs, split_inputs
from lethe.evaluation.ranking import ORACLE, RankingValue, oracle_value, rank_score, score_outputs, secret_attack_seed
from lethe.evaluation.shard_outputs import ShardOutputs, join
from lethe.metrics import InvalidMetricInput
from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.calibration import Doubt, doubt_about
from lethe.metrics.scoring.explanation import confidence_ratios, epsilon_percentiles
from lethe.metrics.scoring.resampling import Replicates, ScoredEntry, tied_groups
from lethe.metrics.scoring.score import ModelOutputs, Score
from server.competitions.stored_file import stored_file
from server.db import Database
from server.evaluations import evaluation_repository
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, EvaluationState, Shard
from server.models.submission import Submission
from server.scoring import scores
from server.scoring.scores import ScoreRecord, get_scoring
from server.storage import split_key
from worker.context import WorkerContext
from worker.evaluation.run_results import read_results
from worker.host.heartbeat import Heart
from worker.split_storage.local_splits import local_split, repair_if_damaged

log = structlog.get_logger()


def replicates_as_data(replicates: Replicates) -> dict[str, Any]:
    """Return what a paired test needs, as plain numbers."""
    return {
        "forgetting_quality": replicates.forgetting_quality.tolist(),
        "headline": replicates.headline.tolist(),
        "factor": replicates.factor,
        "seed": replicates.seed,
        "n_models": replicates.n_models,
    }


def replicates_from_data(data: dict[str, Any]) -> Replicates:
    """Return the replicates that `replicates_as_data` wrote."""
    return Replicates(
        forgetting_quality=np.asarray(data["forgetting_quality"], dtype=np.float64),
        headline=np.asarray(data["headline"], dtype=np.float64),
        factor=float(data["factor"]),
        seed=int(data["seed"]),
        n_models=int(data["n_models"]),
    )


def group_ties(database: Database, split_id: str) -> int:
    """Group the board of the split again. Return how many teams were compared."""
    with database.read() as session:
        standings = scores.of_split(session, split_id)
    compared = [ScoredEntry(team.final_score, replicates_from_data(team.replicates)) for team in standings]
    try:
        groups = tied_groups(compared)
    except InvalidScoreInput as error:  # scores made with another number of resamples stand beside these
        log.warning("ties not grouped", split=split_id, reason=str(error))
        return 0
    with database.write() as session:
        scores.record_groups(
            session, split_id, {team.evaluation_id: group for team, group in zip(standings, groups, strict=True)}
        )
    return len(standings)


@dataclass(frozen=True)
class ScoringWork:
    """What is scored against what."""

    evaluation_id: str
    shards: tuple[Shard, ...]
    split_key: str
    manifest_sha256: str
    scoring: Scoring
    attack_seed: int
    oracle_seed: int
    file: CompetitionFile
    run_limit: RunLimit
    asked_at: datetime | None


def score_evaluation(context: WorkerContext, evaluation_id: str) -> bool:
    """Score an evaluation whose runs are all done, and compare the families of attacks on it. Return False if there
    was nothing to do."""
    lease_s, database = context.settings.lease_s, context.database
    with database.write() as session:
        attempt = scores.claim(session, evaluation_id, lease_s=lease_s)
        if attempt is None:
            return False
        work = scoring_work(session, evaluation_id)

    def hold() -> bool:
        with database.write() as session:
            return evaluation_repository.hold_scoring(session, evaluation_id, attempt, lease_s=lease_s)

    with repair_if_damaged(context, evaluation_id), Heart(hold, every_s=lease_s / 4):
        try:
            return _score(context, work, attempt)
        except Exception:
            with database.write() as session:  # of one that is scored the lease runs out: not again at once
                unscored = Evaluation.state != EvaluationState.SCORED.value
                evaluation_repository.end_scoring(session, evaluation_id, attempt, unscored)
            raise


def _score(context: WorkerContext, work: ScoringWork, attempt: int) -> bool:
    evaluation_id = work.evaluation_id
    unlearned = join(read_results(context, evaluation_id, work.shards))
    split_dir = local_split(context, work)
    retrained = compared_with(split_dir, "retrained")
    judged = ModelOutputs(unlearned.confidences, unlearned.retain_accuracy, unlearned.test_accuracy)
    found = score_outputs(judged, retrained, scoring=work.scoring, attack_seed=work.attack_seed)
    oracle = oracle_score(split_dir, work.manifest_sha256, work.scoring, work.oracle_seed)
    doubt = partial(
        doubt_about,
        found,
        oracle,
        unlearned=unlearned.confidences,
        oracle_models=compared_with(split_dir, "oracle").confidences,
        retrained=retrained.confidences,
    )
    ranked = rank_outputs(
        work.file,
        found,
        unlearned,
        oracle=oracle,
        split_dir=split_dir,
        scoring=work.scoring,
        attack_seed=work.attack_seed,
    )
    with context.database.write() as session:
        recorded = scores.record(
            session,
            evaluation_id,
            _record(
                found,
                unlearned,
                confidence_ratios(judged, retrained)
                | {"flags": _flags(doubt(compares_families=False)), "run_time": _run_time(work, unlearned)},
                ranked,
            ),
            oracle=oracle_as_data(oracle, work.file.ranking),
            asked_at=work.asked_at,
        )
    log.info("scored", evaluation=evaluation_id, recorded=recorded)
    flags = _flags(doubt())
    with context.database.write() as session:
        scores.record_doubt(session, evaluation_id, attempt, flags)
    return recorded


def rank_outputs(
    file: CompetitionFile,
    found: Score,
    unlearned: ShardOutputs,
    *,
    oracle: Score,
    split_dir: Path,
    scoring: Scoring,
    attack_seed: int,
) -> RankingValue:
    """Return what ranks an evaluation, as its competition says. scoring, attack_seed: as `found` was computed."""
    inputs = None
    if file.ranking.needs_metrics:
        inputs = split_inputs(split_dir, unlearned.arrays(), scored_by=scoring, attack_seed=attack_seed)
    return rank_score(file.ranking, file.report, found, oracle=oracle, inputs=inputs, attack_seed=attack_seed)


def require_ranking(
    file: CompetitionFile, split_dir: Path, manifest: Manifest, *, oracle: Score, attack_seed: int
) -> None:
    """Raise InvalidSplit where exact retraining is not better than the original model by what ranks."""
    if not file.ranking.needs_metrics:
        return
    with tempfile.TemporaryDirectory(dir=split_dir) as name:
        whole = Path(name)
        for path in split_dir.iterdir():
            if path.is_dir() and path != whole:
                (whole / path.name).symlink_to(path)
        manifest.write(whole)
        arrays = read_outputs(whole, "oracle").arrays()
        inputs = split_inputs(whole, arrays, scored_by=file.scoring, attack_seed=attack_seed)
        try:
            value = rank_score(file.ranking, file.report, oracle, oracle=oracle, inputs=inputs, attack_seed=attack_seed)
        except InvalidMetricInput as error:
            raise InvalidSplit(str(error)) from error
    if value.failed_gates:
        raise InvalidSplit(f"ranking: exact retraining itself does not pass {', '.join(value.failed_gates)}")
    if without := [name for name, position in value.positions.items() if position == 0.0]:
        raise InvalidSplit(f"ranking.by: {without[0]} has no value for exact retraining, so it cannot rank")


def compared_with(split_dir: Path, kind: Kind) -> ModelOutputs:
    """Return a set of outputs that scores are computed from. Raises DamagedSplit if it is not what was prepared."""
    stored = read_outputs(split_dir, kind)
    return ModelOutputs(stored.confidences, stored.retain_accuracy, stored.test_accuracy)


@lru_cache(maxsize=8)
def oracle_score(
    split_dir: Path,
    manifest_sha256: str,  # noqa: ARG001 (names the content)
    scoring: Scoring,
    attack_seed: int,
) -> Score:
    """Return the score of exact retraining on the split: its second set of retrained models against its first."""
    oracle, retrained = compared_with(split_dir, "oracle"), compared_with(split_dir, "retrained")
    return score_outputs(oracle, retrained, scoring=scoring, attack_seed=attack_seed)


def _run_time(work: ScoringWork, unlearned: ShardOutputs) -> dict[str, Any] | None:
    """Return the median run's time beside the limit of its kind; None where the processor's was not measured."""
    if work.run_limit.cpu_time_s is None:
        return {"s": float(np.median(unlearned.wall_time_s)), "limit_s": work.run_limit.wall_time_s, "of": "clock"}
    if unlearned.cpu_time_s is None:
        return None
    return {"s": float(np.median(unlearned.cpu_time_s)), "limit_s": work.run_limit.cpu_time_s, "of": "processor"}


def _flags(doubt: Doubt) -> dict[str, Any]:
    """Return what an organiser should look at, as `details` holds it."""
    return {
        "disagreement": doubt.disagreement,
        "above_oracle": doubt.above_oracle,
        "copied_models": doubt.copied_models,
        "reasons": list(doubt.reasons),
        "suspect": bool(doubt.reasons),
        "held": doubt.is_held,
    }


def scoring_work(session: Session, evaluation_id: str) -> ScoringWork:
    """Return what the runs of an evaluation are compared with, and how."""
    evaluation = session.get_one(Evaluation, evaluation_id)
    split = session.get_one(Split, evaluation.split_id)
    competition = session.get_one(Competition, split.competition_id)
    file, visibility = stored_file(competition), Visibility(split.visibility)
    code = session.get_one(Submission, evaluation.submission_id).content_sha256
    return ScoringWork(
        evaluation_id=evaluation_id,
        shards=tuple(evaluation_repository.shards_of_runs(session, evaluation_id)),
        split_key=split_key(competition.slug, split.visibility, split.version),
        manifest_sha256=split.manifest_sha256 or "",
        scoring=get_scoring(session, evaluation),
        attack_seed=secret_attack_seed(file, visibility, code),
        oracle_seed=secret_attack_seed(file, visibility, ORACLE),
        file=file,
        run_limit=run_limit(file.limits, split.retraining),
        asked_at=evaluation.finished_at,
    )


def measured(ratio: float | None) -> float:
    """Return the ratio. Raises HostFault where the accuracies it comes from were not stored."""
    if ratio is None:
        raise HostFault("the stored outputs hold no accuracies; prepare the split again")
    return ratio


def summary(found: Score) -> dict[str, Any]:
    """Return what is kept of a score beside its figures: how the examples' epsilons are spread."""
    return {
        "attacks": found.attacks.value,
        "epsilon_percentiles": epsilon_percentiles(found.epsilon),
        "n_forget": int(found.epsilon.size),
    }


def oracle_as_data(oracle: Score, ranking: Ranking) -> dict[str, Any]:
    """Return the oracle's score as `Split.oracle` holds it; final_score is what it ranks by."""
    low, high = (oracle.interval if ranking.is_by_score else None) or (None, None)
    return {
        "final_score": oracle_value(ranking, oracle),
        "score": oracle.headline,
        "forgetting_quality": oracle.forgetting_quality,
        "retain_ratio": oracle.retain_ratio,
        "test_ratio": oracle.test_ratio,
        "interval_low": low,
        "interval_high": high,
    } | summary(oracle)


def _record(found: Score, unlearned: ShardOutputs, more: dict[str, Any], ranked: RankingValue) -> ScoreRecord:
    low, high = ranked.interval or (None, None)
    is_score = ranked.value == found.headline and list(ranked.positions) == [SCORE]
    f_interval = found.forgetting_quality_interval
    return ScoreRecord(
        final_score=ranked.value,
        forgetting_quality=found.forgetting_quality,
        retain_ratio=measured(found.retain_ratio),
        test_ratio=measured(found.test_ratio),
        interval_low=low,
        interval_high=high,
        details=summary(found)
        | {
            "score": found.headline,
            "ranking": {"positions": ranked.positions, "failed_gates": list(ranked.failed_gates)},
            "accuracies": _accuracies(unlearned),
            "forgetting_quality_interval": list(f_interval) if f_interval else None,
            "retain_accuracy": float(unlearned.retain_accuracy.mean()),
            "test_accuracy": float(unlearned.test_accuracy.mean()),
            "run_wall_time_s": float(np.median(unlearned.wall_time_s)),
        }
        | more,
        replicates=None if found.replicates is None or not is_score else replicates_as_data(found.replicates),
        epsilon=found.epsilon.astype("<f4").tobytes(),
    )


def _accuracies(outputs: ShardOutputs) -> dict[str, float]:
    """Return mean accuracies by set; on the forget set only where its answers were captured."""
    accuracies = {"retain": float(outputs.retain_accuracy.mean()), "test": float(outputs.test_accuracy.mean())}
    if "forget_correct" in outputs.captured:
        accuracies["forget"] = float(outputs.captured["forget_correct"].mean())
    return accuracies

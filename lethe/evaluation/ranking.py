"""One number that ranks a submission, from the values of its evaluation: more is better, whatever they measure.

The score alone ranks by itself. Any other value is put on a scale on which the original model is 0 and exact
retraining is 1, so that metrics of different units and directions can be combined. What lies beyond either end counts
as the end: a value that is further from the original model than exact retraining earns nothing more.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lethe.competition.file import CompetitionFile, Scoring
from lethe.competition.report_section import Report
from lethe.competition.sections import JOINT_AUDIT, SCORE, Ranking
from lethe.competition.visibility import Visibility
from lethe.metrics import Inputs, InvalidMetricInput, evaluate
from lethe.metrics.core.registry import Direction, metric
from lethe.metrics.forgetting.final_score import ScoreParameters
from lethe.metrics.scoring.resampling import MIN_MODELS
from lethe.metrics.scoring.score import ModelOutputs, Score, score

ORACLE = "oracle"
OFFLINE_SEED = 0  # where nobody has anything to hide from: a kit's sample, a benchmark, a search


def score_outputs(
    unlearned: ModelOutputs, retrained: ModelOutputs, *, scoring: Scoring, attack_seed: int = OFFLINE_SEED
) -> Score:
    """Score as the competition's section [scoring] says. Too few models for a spread have no interval.

    attack_seed: of the halves of the models that rules are fitted and judged on; see `secret_attack_seed`.
    """
    enough = unlearned.confidences.shape[0] >= MIN_MODELS
    return score(
        unlearned,
        retrained,
        attacks=scoring.attacks,
        delta=scoring.delta,
        cap=scoring.epsilon_cap,
        n_resamples=scoring.bootstrap_resamples if enough else 0,
        attack_seed=None if scoring.attacks.is_published else attack_seed,  # published ones have fixed halves,
    )


def secret_attack_seed(file: CompetitionFile, visibility: Visibility, subject: str) -> int:
    """Return the seed, in [0, 2**63), of the halves on which an entry is judged on a split.

    It is an HMAC of the subject under the split's secret seed, which only organisers have before the close. So nobody
    can aim at the halves, every code has its own, and whoever has the competition's file computes the score again.
    subject: the SHA-256 of the submitted code, or ORACLE.
    """
    key = f"lethe-halves/{file.slug}/{visibility.value}/{file.splits.seed}".encode()
    return int.from_bytes(hmac.digest(key, subject.encode(), hashlib.sha256)[:8], "big") >> 1


def with_attack_seed(metric_id: str, parameters: Mapping[str, Any], attack_seed: int) -> dict[str, Any]:
    """Return a metric's parameters; of one that draws halves of its own, with the competition's secret seed."""
    draws = issubclass(metric(metric_id).defaults, ScoreParameters)
    return {"seed": attack_seed, **parameters} if draws else dict(parameters)


MIN_DISTANCE = 1e-9
Interval = tuple[float, float]


@dataclass(frozen=True)
class RankedValue:
    """A value, its 95 % interval where there is one, and the same of the two references.

    value: None where the submission's outputs do not allow it, which ranks as the original model.
    direction: of TOWARDS_RETRAINED, exact retraining's value is the aim, and not only a step on the way up or down.
    """

    value: float | None
    oracle: float
    original: float
    interval: Interval | None = None
    direction: Direction = Direction.HIGHER

    @property
    def is_aim(self) -> bool:
        return self.direction is Direction.TOWARDS_RETRAINED

    @property
    def has_scale(self) -> bool:
        """Whether exact retraining is better than the original model."""
        reach = self.oracle - self.original
        better = {Direction.HIGHER: reach, Direction.LOWER: -reach}.get(self.direction, abs(reach))
        return better > MIN_DISTANCE  # not of NaN

    def position(self, value: float) -> float:
        """Return where a value lies, from the original model (0) to exact retraining (1)."""
        reach = self.oracle - self.original
        if self.is_aim:
            return max(0.0, 1.0 - abs((value - self.oracle) / reach))
        return min(1.0, max(0.0, (value - self.original) / reach))

    def interval_of_position(self) -> Interval | None:
        if self.interval is None or self.value is None:
            return None
        ends = [self.position(end) for end in self.interval]
        holds_aim = self.is_aim and self.interval[0] <= self.oracle <= self.interval[1]
        return min(ends), 1.0 if holds_aim else max(ends)


@dataclass(frozen=True)
class RankingValue:
    """What ranks a submission. positions: of each value on its scale; failed_gates: what a gate of the file refused."""

    value: float
    interval: Interval | None
    positions: dict[str, float]
    failed_gates: tuple[str, ...] = ()


def ranking_value(
    ranking: Ranking,
    values: Mapping[str, RankedValue],
    *,
    ratios: Mapping[str, float],
    joint_audit: float | None = None,
) -> RankingValue:
    """Return what ranks a submission.

    values: of each name in ranking.by. ratios: retain_ratio and test_ratio. joint_audit: where it is a gate; None, of
    outputs that do not allow it, does not pass.
    Raises InvalidMetricInput where exact retraining is not better than the original model by one of several values.
    """
    least = {"retain_ratio": ranking.min_retain_ratio, "test_ratio": ranking.min_test_ratio}
    failed = tuple(name for name, bound in least.items() if bound is not None and ratios[name] < bound)
    if ranking.max_joint_audit is not None and (joint_audit is None or joint_audit > ranking.max_joint_audit):
        failed += (JOINT_AUDIT,)
    if ranking.is_by_score:
        score = values[SCORE]
        value, interval = score.value or 0.0, score.interval
        positions = {SCORE: value}
    else:
        terms = [_require_scale(name, values[name]) for name in ranking.by]
        positions = {
            name: 0.0 if term.value is None else term.position(term.value)
            for name, term in zip(ranking.by, terms, strict=True)
        }
        combine = COMBINATIONS[ranking.combine]
        value = combine(list(positions.values()))
        intervals = [term.interval_of_position() for term in terms]
        known = [each for each in intervals if each is not None]
        # every combination rises with each of its values, so the combined ends hold what all intervals hold together
        ends = (combine([low for low, _ in known]), combine([high for _, high in known])) if known else None
        interval = ends if len(known) == len(intervals) else None
    if failed:
        return RankingValue(0.0, None, positions, failed)
    return RankingValue(value, interval, positions)


def rank_score(
    ranking: Ranking,
    report: Report,
    found: Score,
    *,
    oracle: Score,
    inputs: Inputs | None,
    attack_seed: int = OFFLINE_SEED,
) -> RankingValue:
    """Return what ranks an evaluation that was scored.

    oracle: the score of exact retraining on the split. inputs: the arrays of the evaluation and of the split's
    references; not read where no metric ranks or is a gate. attack_seed: of metrics that draw halves of the models.
    Raises InvalidMetricInput as `ranking_value` does.
    """
    requests = {request.id: with_attack_seed(request.id, request.parameters, attack_seed) for request in report.metrics}
    values = {SCORE: RankedValue(found.headline, oracle.headline, 0.0, found.interval)}
    if inputs is not None:
        values |= {name: _metric_value(inputs, name, requests[name]) for name in ranking.by if name != SCORE}
    ratios = {"retain_ratio": found.retain_ratio or 0.0, "test_ratio": found.test_ratio or 0.0}
    audited = None
    if inputs is not None and ranking.max_joint_audit is not None:
        (audit,) = evaluate(inputs, [(JOINT_AUDIT, requests[JOINT_AUDIT])]).values()
        audited = None if audit.result is None else audit.result.value
    return ranking_value(ranking, values, ratios=ratios, joint_audit=audited)


def oracle_value(ranking: Ranking, oracle: Score) -> float:
    """Return what exact retraining ranks by: its score, or the end of the scale."""
    return oracle.headline if ranking.is_by_score else 1.0


def _metric_value(inputs: Inputs, name: str, parameters: Mapping[str, Any]) -> RankedValue:
    (found,) = evaluate(inputs, [(name, dict(parameters))]).values()
    if found.result is None:
        return RankedValue(None, 1.0, 0.0)
    if found.oracle is None or found.original is None:
        raise InvalidMetricInput(f"ranking.by: {name} has no value of a reference: {'; '.join(found.reference_notes)}")
    references = found.oracle.value, found.original.value
    return RankedValue(found.result.value, *references, found.result.interval, found.metric.direction)


def _require_scale(name: str, value: RankedValue) -> RankedValue:
    if not value.has_scale:
        raise InvalidMetricInput(
            f"ranking.by: on this split exact retraining ({value.oracle:.6g}) is not better than the original model "
            f"({value.original:.6g}) by {name}, so it cannot rank"
        )
    return value


def _mean(positions: Sequence[float]) -> float:
    return sum(positions) / len(positions)


def _harmonic_mean(positions: Sequence[float]) -> float:
    return len(positions) / sum(1.0 / each for each in positions) if min(positions) > 0 else 0.0


COMBINATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": _mean,
    "harmonic-mean": _harmonic_mean,
    "worst": min,
}

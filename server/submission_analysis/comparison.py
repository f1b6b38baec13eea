"""Several submissions side by side on one split: their metrics, how far these agree, which examples are hard for all.

Organisers compare any submissions; a team compares its own, by the metrics that it may see, rounded as everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field
from sqlalchemy.orm import Session

from lethe.competition.report_section import MetricRequest
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, NotFound, Violation
from lethe.metrics.benchmark.rankings import pareto_frontier
from lethe.metrics.benchmark.training_choices import epsilon_correlation, hardness
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Metric, metric
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.disclosure import gate
from server.disclosure.gate import ShownNumber, ShownText
from server.leaderboard.ranking import Column
from server.metric_results import metric_result_repository
from server.metric_results.metric_results import hash_parameters
from server.models.competition import Competition, Team
from server.models.evaluation import MetricResult
from server.models.submission import Submission
from server.submission_analysis.model_outputs import decode_epsilons
from server.submissions import views as submission_views

MIN_RANKED = 3  # ranks of two submissions always agree or contradict
MAX_EXAMPLES = 15
NORMAL_QUANTILE_95 = 1.959963984540054

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Matrix:
    """Spearman's correlations, rows and columns in the order of the names; null where one of the two is constant."""

    names: Sequence[str]
    rows: Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class HardExample:
    """A forget example that is hard for all submissions."""

    example: int
    epsilon: Annotated[float, Field(description="mean over submissions, nats, each cut at the largest possible")]
    share: Annotated[float, Field(description="of the largest possible")]


def rank_correlations(values: Mapping[str, Sequence[float]]) -> Matrix | None:
    """Return Spearman's correlations between metrics over submissions, of those that are known for both.

    values: by metric, a number for each submission, NaN where there is none. None below 2 metrics or 3 submissions.
    """
    columns = {name: np.asarray(column, np.float64) for name, column in values.items()}
    known = {name: column for name, column in columns.items() if np.isfinite(column).sum() >= MIN_RANKED}
    if len(known) < 2:
        return None
    names = list(known)
    rows = [[_spearman(known[a], known[b]) for b in names] for a in names]
    return Matrix(names, rows)


def _spearman(a: Float64, b: Float64) -> float | None:
    from scipy.stats import spearmanr  # noqa: PLC0415  slow to import, needed here alone

    both = np.isfinite(a) & np.isfinite(b)
    x, y = a[both], b[both]
    if x.size < MIN_RANKED or x.min() == x.max() or y.min() == y.max():
        return None
    return float(spearmanr(x, y).statistic)


def epsilon_correlations(epsilons: Mapping[str, Float64]) -> Matrix | None:
    """Return Spearman's correlations of epsilon between submissions. None where fewer than two can be compared."""
    try:
        correlations = epsilon_correlation(_stacked(epsilons))
    except InvalidMetricInput:
        return None
    matrix = correlations.arrays["correlation"]
    return Matrix(list(epsilons), [[(float(value) if np.isfinite(value) else None) for value in row] for row in matrix])


def hard_examples(epsilons: Mapping[str, Float64], *, n_models: int) -> list[HardExample]:
    """Return the forget examples that are the hardest for all submissions together, the hardest first."""
    try:
        result = hardness(_stacked(epsilons), n_models)
    except InvalidMetricInput:
        return []
    each = result.arrays["per_method"]
    greatest = float(str(result.table["largest_possible"])) / len(epsilons) or 1.0
    return [
        HardExample(int(example), float(each[example]), float(each[example]) / greatest)
        for example in result.arrays["order"][:MAX_EXAMPLES]
    ]


def _stacked(epsilons: Mapping[str, Float64]) -> Float64:
    if len({values.shape for values in epsilons.values()}) != 1:
        raise InvalidMetricInput("the submissions have no epsilons of the same examples")
    return np.stack(list(epsilons.values()))


def loss(value: float | None, *, direction: str, oracle: float | None) -> float | None:
    """Return a number that is better the lower it is; None where the metric has no better, or no aim."""
    if value is None or direction == "none":
        return None
    if direction == "towards retrained":
        return None if oracle is None else abs(value - oracle)
    return -value if direction == "higher" else value


def on_frontier(losses: Sequence[Sequence[float]], errors: Sequence[Sequence[float]]) -> list[bool]:
    """Return which submissions (lines) no other beats in all metrics by more than a standard error."""
    if not losses:
        return []
    return [bool(each) for each in pareto_frontier(losses, standard_errors=errors)]


def standard_error(low: float | None, high: float | None) -> float:
    """Return what a 95 % interval says of the noise; 0 without one."""
    return 0.0 if low is None or high is None else (high - low) / (2 * NORMAL_QUANTILE_95)


MAX_COMPARED = 12
SCORE = "score"


@dataclass(frozen=True)
class ComparedMetric(Column):
    """A metric, beside what it is of exact retraining and of the original model."""

    key: Annotated[str, Field(description="the id, with the parameters that the report sets")]


@dataclass(frozen=True)
class ComparedValue:
    """A metric of one submission; without a value `not_computed` says why, and is empty while it waits."""

    value: ShownNumber | None
    interval_low: ShownNumber | None = None
    interval_high: ShownNumber | None = None
    not_computed: ShownText | None = None


@dataclass(frozen=True)
class ComparedSubmission:
    """A line. values: by the key of a metric, the score among them."""

    id: str
    team: str
    note: str
    values: Mapping[str, ComparedValue]


@dataclass(frozen=True)
class SubmissionComparison:
    """Submissions side by side on one split."""

    visibility: Visibility
    metrics: Sequence[ComparedMetric]
    submissions: Sequence[ComparedSubmission]
    ranks: Annotated[Matrix | None, Field(description="between metrics, over the submissions")] = None
    similarity: Annotated[Matrix | None, Field(description="of epsilon between submissions, for organisers")] = None
    hard_examples: Annotated[Sequence[HardExample], Field(description="for organisers")] = ()


def candidates(
    session: Session, competition: Competition, visibility: Visibility, *, team: Team | None, is_organiser: bool
) -> list[tuple[str, str]]:
    """Return id and description of submissions to choose from, the newest first. team: whose, unless for organisers."""
    if team is None and not is_organiser:
        return []
    team_id = None if is_organiser or team is None else team.id
    scored = metric_result_repository.newest_scored(session, competition.id, visibility.value, team_id=team_id)
    return [(submission.id, f"{submission.team.name}: {_note(submission)}") for submission in scored]


def compare(
    session: Session,
    competition: Competition,
    visibility: Visibility,
    submission_ids: Sequence[str],
    *,
    team: Team | None,
    is_organiser: bool,
) -> SubmissionComparison:
    """Return the submissions in the order given. Raises NotFound, or InvalidInput for more than MAX_COMPARED."""
    gate.check_metrics(competition, visibility, organiser=is_organiser)
    wanted = list(dict.fromkeys(submission_ids))
    if len(wanted) > MAX_COMPARED:
        allowed = f"must be at most {MAX_COMPARED} submissions"
        raise InvalidInput(f"There {allowed}", violations=(Violation("submission", allowed, str(len(wanted))),))
    evaluated = {
        row.submission.id: row
        for row in metric_result_repository.compared(session, competition.id, visibility.value, wanted)
    }
    own = None if is_organiser else team.id if team else ""
    for submission_id in wanted:
        if submission_id not in evaluated or own not in (None, evaluated[submission_id].submission.team_id):
            raise NotFound(f"{competition.slug} has no submission {submission_id!r} with a score on this split")
    rows = [evaluated[submission_id] for submission_id in wanted]
    requests = stored_file(competition).report.metrics
    results = _results(session, [row.evaluation_id for row in rows])
    scores = _scores(session, rows, visibility, is_organiser=is_organiser)
    lines = [
        ComparedSubmission(
            id=row.submission.id,
            team=row.submission.team.name,
            note=_note(row.submission),
            values={SCORE: scores[row.submission.id]}
            | {
                request_key(each): _value(results.get((row.evaluation_id, *_result_key(each))), exact=is_organiser)
                for each in requests
            },
        )
        for row in rows
    ]
    oracle = gate.get_oracle_score(competitions.get_split(session, competition, visibility))
    score = ComparedMetric(SCORE, "Score", "score", "higher", oracle, original=None, key=SCORE)
    columns = [score, *(_column(each, results, exact=is_organiser) for each in requests)]
    ranks = rank_correlations({column.key: _numbers(lines, column.key) for column in columns})
    if not is_organiser:
        return SubmissionComparison(visibility, columns, lines, ranks)
    epsilons = [None if row.epsilon is None else decode_epsilons(row.epsilon) for row in rows]
    names = [f"{place} {line.team}" for place, line in enumerate(lines, start=1)]
    known = {name: values for name, values in zip(names, epsilons, strict=True) if values is not None}
    n_models = stored_file(competition).n_models
    return SubmissionComparison(
        visibility,
        columns,
        lines,
        ranks,
        similarity=epsilon_correlations(known),
        hard_examples=hard_examples(known, n_models=n_models),
    )


def request_key(asked: MetricRequest) -> str:
    """Return what tells a metric of the report apart: its id, with the parameters that it sets."""
    return " ".join([asked.id, *(f"{name}={value}" for name, value in sorted(asked.parameters.items()))])


def _result_key(asked: MetricRequest) -> tuple[str, str]:
    return asked.id, hash_parameters(asked.parameters)


def _results(session: Session, evaluation_ids: Sequence[str]) -> dict[tuple[str, str, str], MetricResult]:
    rows = metric_result_repository.of_evaluations(session, evaluation_ids)
    return {(row.evaluation_id, row.metric_id, row.parameters_sha256): row for row in rows}


def _scores(
    session: Session,
    rows: Sequence[metric_result_repository.ComparedRow],
    visibility: Visibility,
    *,
    is_organiser: bool,
) -> dict[str, ComparedValue]:
    """Return the score of each submission as the reader may see it: a ladder hides a team's own."""
    if is_organiser:
        exact = partial(gate.show_metric, exact=True)
        return {
            row.submission.id: ComparedValue(exact(row.final_score), exact(row.interval_low), exact(row.interval_high))
            for row in rows
        }
    shown: dict[str, ComparedValue] = {}
    for view in submission_views.view(session, [row.submission for row in rows], ended_in_full=False):
        score = view.score if visibility is Visibility.PUBLIC else view.private_score
        shown[view.submission.id] = (
            ComparedValue(score.final_score, score.interval_low, score.interval_high) if score else ComparedValue(None)
        )
    return shown


def _value(row: MetricResult | None, *, exact: bool) -> ComparedValue:
    if row is None or row.computed_at is None:
        return ComparedValue(None)
    shown = gate.metric(row, exact=exact)
    return ComparedValue(shown.value, shown.interval_low, shown.interval_high, not_computed=shown.not_computed)


def _column(
    asked: MetricRequest, results: Mapping[tuple[str, str, str], MetricResult], *, exact: bool
) -> ComparedMetric:
    entry: Metric = metric(asked.id)
    rows = [row for key, row in results.items() if key[1:] == _result_key(asked) and row.computed_at is not None]
    oracle = next((row.oracle for row in rows if row.oracle is not None), None)
    original = next((row.original for row in rows if row.original is not None), None)
    return ComparedMetric(
        key=request_key(asked),
        id=entry.id,
        title=entry.title,
        unit=entry.unit,
        direction=entry.direction.value,
        oracle=gate.show_metric(oracle, exact=exact),
        original=gate.show_metric(original, exact=exact),
    )


def _numbers(lines: Sequence[ComparedSubmission], key: str) -> list[float]:
    values = (line.values[key].value for line in lines)
    return [np.nan if value is None else value for value in values]


def _note(submission: Submission) -> str:
    return submission.message or submission.filename

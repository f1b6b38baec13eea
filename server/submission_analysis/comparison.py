"""Several submissions side by side on one split: their metrics, how far these agree, which examples are hard for all.

Organisers compare any submissions; a team compares its own, by the metrics that it may see, rounded as everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field
from sqlalchemy.orm import Session

from lethe.competition.report_section import MetricRequest
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, NotFound, Violation
from lethe.metrics.core.registry import Metric, metric
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.disclosure import gate
from server.disclosure.gate import ShownNumber, ShownText
from server.metric_results import metric_result_repository
from server.metric_results.metric_results import hash_parameters
from server.models.competition import Competition, Team
from server.models.evaluation import MetricResult
from server.models.submission import Submission
from server.submission_analysis import agreement
from server.submission_analysis.agreement import HardExample, Matrix
from server.submission_analysis.model_outputs import decode_epsilons
from server.submissions import views as submission_views

MAX_COMPARED = 12
SCORE = "score"


@dataclass(frozen=True)
class ComparedMetric:
    """A metric, beside what it is of exact retraining and of the original model."""

    key: Annotated[str, Field(description="the id, with the parameters that the report sets")]
    id: str
    title: str
    unit: str
    direction: str
    oracle: ShownNumber | None
    original: ShownNumber | None


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
    found = metric_result_repository.newest_scored(session, competition.id, visibility.value, team_id=team_id)
    return [(submission.id, f"{submission.team.name}: {_note(submission)}") for submission in found]


def compare(
    session: Session,
    competition: Competition,
    visibility: Visibility,
    submission_ids: Sequence[str],
    *,
    team: Team | None,
    is_organiser: bool,
) -> SubmissionComparison:
    """Return the submissions side by side, in the order given.

    Raises NotFound for metrics or submissions that the reader may not see, InvalidInput for more than MAX_COMPARED.
    """
    gate.check_metrics(competition, visibility, organiser=is_organiser)
    wanted = list(dict.fromkeys(submission_ids))
    if len(wanted) > MAX_COMPARED:
        allowed = f"must be at most {MAX_COMPARED} submissions"
        raise InvalidInput(f"There {allowed}", violations=(Violation("submission", allowed, str(len(wanted))),))
    found = {
        row.submission.id: row
        for row in metric_result_repository.compared(session, competition.id, visibility.value, wanted)
    }
    own = None if is_organiser else team.id if team else ""
    for submission_id in wanted:
        if submission_id not in found or own not in (None, found[submission_id].submission.team_id):
            raise NotFound(f"{competition.slug} has no submission {submission_id!r} with a score on this split")
    rows = [found[submission_id] for submission_id in wanted]
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
    columns = [_score_column(oracle), *(_column(each, results, exact=is_organiser) for each in requests)]
    ranks = agreement.rank_correlations({column.key: _numbers(lines, column.key) for column in columns})
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
        similarity=agreement.epsilon_correlations(known),
        hard_examples=agreement.hard_examples(known, n_models=n_models),
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


def _score_column(oracle: ShownNumber | None) -> ComparedMetric:
    return ComparedMetric(SCORE, SCORE, "Score", "score", "higher", oracle, original=None)


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

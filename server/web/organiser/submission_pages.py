"""Submissions for their organisers: the list, and the analysis of one."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query, Response

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.metrics.scoring.attacks.family import HONEST_DISAGREEMENT
from lethe.runtime.error_classes import ErrorClass
from server.competitions.split_share import find_split_report
from server.deps import SessionDep, StorageDep
from server.disclosure import gate
from server.errors import Conflict
from server.models.submission import Submission
from server.submission_analysis import evaluated_submissions
from server.submission_analysis.evaluated_submissions import EvaluatedSubmission
from server.submission_analysis.model_outputs import EXAMPLES, epsilon_rows
from server.submissions.list_filter import SubmissionFilter
from server.submissions.organiser_list import find_lines, same_file_teams
from server.web.charts import epsilon_charts, vega_charts
from server.web.deps import OrganiserDep, OrganiserPlaceDep, Place, timestamp
from server.web.failure_messages import describe_failure, highlighted_files
from server.web.page_router import page_router
from server.web.rendering import figure

router = page_router()

Short = Annotated[str, Query(max_length=60)]


@router.get("/organise/{slug}/submissions")
def submissions_page(
    asked: OrganiserDep,
    *,
    stage: Short = "",
    fault: Short = "",
    error_class: Short = "",
    team: Short = "",
    only: Short = "",
    text: Short = "",
    received_from: Short = "",
    received_before: Short = "",
    page_number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
) -> Response:
    filters = SubmissionFilter(
        stage=stage,
        fault=fault,
        error_class=error_class,
        team=team.strip(),
        only=only,
        text=text.strip(),
        received_from=timestamp(received_from, field="received_from") if received_from else None,
        received_before=timestamp(received_before, field="received_before") if received_before else None,
    )
    given = {key: value for key, value in asked.request.query_params.items() if value and key != "page"}
    listed = find_lines(asked.session, asked.competition, filters, page=page_number)
    return asked.page(
        "submissions.html",
        tab="submissions",
        filters=filters,
        given=given,
        query=urlencode(given),
        lines=listed.lines,
        has_more=listed.has_more,
        page_number=page_number,
        honest_disagreement=HONEST_DISAGREEMENT,
        error_classes=sorted(ErrorClass),
    )


HISTOGRAMS = {
    "retain": "accuracy on the retain set",
    "test": "accuracy on the test set",
    "hardness": "separation of unlearned and retrained models",
    **dict.fromkeys(EXAMPLES, "logit-scaled confidence"),
}


def evaluated_submission(
    submission_id: str, session: SessionDep, place: OrganiserPlaceDep, split: Visibility = Visibility.PUBLIC
) -> EvaluatedSubmission:
    """Return the submission in the address on the chosen split. Raises NotFound."""
    return evaluated_submissions.get_evaluated(session, place.competition, submission_id, split)


EvaluatedDep = Annotated[EvaluatedSubmission, Depends(evaluated_submission)]


@router.get("/organise/{slug}/submissions/{submission_id}")
def analysis_page(asked: OrganiserDep, *, storage: StorageDep, evaluated: EvaluatedDep) -> Response:
    competition, submission, evaluation = asked.competition, evaluated.submission, evaluated.evaluation
    comparison = evaluated_submissions.get_output_comparison(asked.session, storage, competition, evaluated)
    report = find_split_report(storage, competition, evaluation.split) if comparison and evaluation else None
    return asked.page(
        "submission.html",
        tab="submissions",
        s=submission,
        seen=evaluated,
        query=_query(evaluated),
        evaluation=evaluation,
        score=evaluated.score,
        same_file_of=same_file_teams(asked.session, submission),
        doubt=evaluated.doubt,
        honest_disagreement=HONEST_DISAGREEMENT,
        epsilon_stored=evaluated.epsilon is not None,
        attempts=evaluated_submissions.list_attempts(asked.session, evaluated),
        logs=evaluated_submissions.list_logs(asked.session, submission),
        files=highlighted_files(storage, submission),
        failure=describe_failure(submission, evaluation=evaluation),
        depth=comparison,
        class_names=report.class_names if report else [],
        has_answers=asked.place.file.task.kind == "causal-lm" and evaluated.score is not None,
        may_see_private=gate.may_see_private(competition, organiser=True),
        others=evaluated_submissions.suggest_comparisons(asked.session, competition, evaluated)
        if evaluated.score
        else [],
    )


@router.get("/organise/{slug}/submissions/{submission_id}/figures/{name}.json")
def analysis_figure(name: str, asked: OrganiserDep, *, storage: StorageDep, evaluated: EvaluatedDep) -> Response:
    if name == "epsilon" and evaluated.epsilon is not None:
        return figure(epsilon_charts.epsilons(epsilon_rows(evaluated.epsilon), cap=_cap(asked.place)))
    comparison = evaluated_submissions.get_output_comparison(asked.session, storage, asked.competition, evaluated)
    if comparison and name == "time":
        return figure(vega_charts.time_of_runs(comparison.run_times()))
    if comparison is None or name not in HISTOGRAMS:
        raise NotFound(f"There is no figure {name!r} of this submission")
    return figure(vega_charts.histogram(comparison.rows(name), title=HISTOGRAMS[name]))


@router.get("/organise/{slug}/submissions/{submission_id}/answers")
def answers_page(
    asked: OrganiserDep,
    *,
    storage: StorageDep,
    evaluated: EvaluatedDep,
    run: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    """Show what language models answer to the forget questions. run counts from 1, as runs do on every page."""
    return asked.page(
        "answers.html",
        tab="submissions",
        seen=evaluated,
        query=_query(evaluated),
        answers=evaluated_submissions.get_generated_answers(
            asked.session, storage, asked.competition, evaluated, run=run - 1
        ),
    )


@router.get("/organise/{slug}/submissions/{submission_id}/compare")
def comparison_page(
    asked: OrganiserDep, *, evaluated: EvaluatedDep, other: Annotated[str, Query(max_length=40)] = ""
) -> Response:
    """Show two submissions side by side, and whether the paired test tells them apart."""
    wanted = other.strip()
    second = None
    if wanted:
        try:
            second = evaluated_submissions.get_evaluated(asked.session, asked.competition, wanted, evaluated.visibility)
        except NotFound:
            second = None
    missing = bool(wanted) and second is None
    return asked.page(
        "comparison.html",
        status=404 if missing else 200,
        tab="submissions",
        seen=evaluated,
        second=second,
        query=_query(evaluated),
        wanted=wanted,
        missing=missing,
        others=evaluated_submissions.suggest_comparisons(asked.session, asked.competition, evaluated),
        both_have_epsilons=second is not None and evaluated.epsilon is not None and second.epsilon is not None,
        **_paired(evaluated, second),
    )


@router.get("/organise/{slug}/submissions/{submission_id}/compare/{other}/{name}.json")
def comparison_figure(other: str, name: str, evaluated: EvaluatedDep, asked: OrganiserDep) -> Response:
    second = evaluated_submissions.get_evaluated(asked.session, asked.competition, other, evaluated.visibility)
    a, b = evaluated.epsilon, second.epsilon
    if a is None or b is None or len(a) != len(b):
        raise NotFound("One of the submissions has no epsilons on this split")
    names = (_label(evaluated.submission), _label(second.submission))
    if name == "epsilon":
        return figure(
            epsilon_charts.epsilons([*epsilon_rows(a, names[0]), *epsilon_rows(b, names[1])], cap=_cap(asked.place))
        )
    if name == "examples":
        rows = [{"example": index, "x": float(x), "y": float(y)} for index, (x, y) in enumerate(zip(a, b, strict=True))]
        return figure(vega_charts.pairs(rows, x=f"epsilon of {names[0]}", y=f"epsilon of {names[1]}"))
    raise NotFound(f"There is no figure {name!r} of two submissions")


def _query(evaluated: EvaluatedSubmission) -> str:
    """Return the query that links carry to stay on the split that is looked at."""
    return "?split=private" if evaluated.visibility is Visibility.PRIVATE else ""


def _paired(first: EvaluatedSubmission, second: EvaluatedSubmission | None) -> dict[str, Any]:
    if second is None or first.score is None or second.score is None:
        return {"result": None, "refusal": ""}
    try:
        return {"result": evaluated_submissions.compare(first, second), "refusal": ""}
    except Conflict as error:
        return {"result": None, "refusal": error.detail}


def _label(submission: Submission) -> str:
    return f"{submission.team.name} {submission.id[:6]}"


def _cap(place: Place) -> float:
    """Return what an example's epsilon is where no attack failed, as it is stored: in single precision."""
    return place.file.scoring.epsilon_cap * (1 - 1e-6)

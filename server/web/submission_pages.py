"""A team's submissions: the list, and one of them with its live progress."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Form, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.runtime.error_classes import last_traceback, warnings_in
from server.competitions import competitions
from server.competitions.lifecycle import is_revealed
from server.competitions.stored_file import stored_file
from server.db import now
from server.deps import DatabaseDep, SessionDep, SettingsDep, StorageDep
from server.disclosure import gate
from server.evaluations.unserved import find_wait
from server.finals import finals
from server.models.submission import ENDED, Fault, Stage, Submission
from server.storage import Storage
from server.submissions import receipts, submissions
from server.submissions import views as submission_views
from server.submissions.sample_answers import has_sample_answers, read_sample_answers
from server.submissions.score_explanation import find_context, find_explanation
from server.submissions.views import SubmissionView
from server.teams import teams
from server.web import sse
from server.web.cookies import Flash, csrf_token
from server.web.deps import MemberDep, PlaceDep, find_place, require_viewer
from server.web.failure_messages import (
    ExcerptLine,
    describe_failure,
    excerpt,
    highlighted_files,
    raised_line,
    source_file,
)
from server.web.page_router import page_router
from server.web.rendering import page, part, redirect, render
from server.web.score_view import find_breakdown, find_standing, metric_tables, timeline_events, timeline_steps
from server.web.submission_lists import AskedDep, listed, may_be_chosen

router = page_router()
CHOSEN = "Chosen for the private leaderboard. On its page you can let its code be published after the end."


def own_submission(submission_id: str, session: SessionDep, viewer: MemberDep) -> Submission:
    """Return the submission in the address. Raises NotFound, also for another team's."""
    return submissions.get_own(session, submission_id, viewer)


OwnSubmission = Annotated[Submission, Depends(own_submission)]


def team_submission(submission_id: str, session: SessionDep, viewer: MemberDep) -> Submission:
    """Return the submission in the address, of the reader's own team. Raises NotFound, also for organisers."""
    return submissions.get_of_my_team(session, submission_id, viewer)


TeamSubmission = Annotated[Submission, Depends(team_submission)]


@router.get("/competitions/{slug}/submissions", dependencies=[Depends(require_viewer)])
def submissions_page(request: Request, session: SessionDep, place: PlaceDep, asked: AskedDep) -> Response:
    return page(
        request,
        "submissions.html",
        tab="submissions",
        quota=submissions.quota_of_team(session, place.competition, place.team, at=now()),
        **listed(session, place, asked),
    )


@router.get("/competitions/{slug}/submissions/rows", dependencies=[Depends(require_viewer)])
def submissions_rows(request: Request, session: SessionDep, place: PlaceDep, asked: AskedDep) -> Response:
    """Send the lines of the list, for a page that cannot listen."""
    shown = listed(session, place, asked)
    return part(request, "_submission_rows.html", is_last=not shown["in_progress"], **shown)


@router.get("/competitions/{slug}/submissions/events")
def submissions_events(
    request: Request, database: DatabaseDep, place: PlaceDep, *, viewer: MemberDep, asked: AskedDep
) -> Response:
    """Stream the lines of the list as they change."""
    submissions.check_order(place.competition, asked.show)  # once the stream has begun, no error can be answered
    token = csrf_token(request)  # one for the stream, so that what did not change reads the same

    def look() -> sse.Frame:
        with database.read() as session:
            shown = listed(session, replace(place, team=teams.get_team(session, place.competition, viewer)), asked)
            html = render(request, "_submission_rows.html", csrf=lambda: token, **shown)
        return sse.Frame(html, is_last=not shown["in_progress"])

    return sse.stream(request, look)


@router.get("/submissions/{submission_id}")
def submission_page(
    request: Request, session: SessionDep, *, storage: StorageDep, viewer: MemberDep, submission: OwnSubmission
) -> Response:
    context = _shown(session, storage, submission)
    log = submissions.sample_log(session, submission)
    place = find_place(session, submission.competition, viewer)
    return page(
        request,
        "submission.html",
        place=place,
        tab="submissions",
        is_live=submission.stage not in ENDED,
        is_mine=place.team is not None and place.team.id == submission.team_id,
        may_be_chosen=may_be_chosen(session, place, submission),
        sample_log=log,
        run_warnings=warnings_in(log),
        sample_answers=read_sample_answers(session, storage, submission) if has_sample_answers(submission) else None,
        metric_tables=metric_tables(session, submission, is_organiser=place.is_organiser),
        receipts=_receipts(context["view"], is_organiser=place.is_organiser),
        **context,
    )


@router.get("/submissions/{submission_id}/progress")
def submission_progress(
    request: Request, session: SessionDep, *, storage: StorageDep, viewer: MemberDep, submission: OwnSubmission
) -> Response:
    """Send the live part of the page, for one that cannot listen."""
    place = find_place(session, submission.competition, viewer)
    is_last = submission.stage in ENDED
    return part(request, "_submission_live.html", is_last=is_last, place=place, **_shown(session, storage, submission))


@router.get("/submissions/{submission_id}/events")
def submission_events(
    request: Request, database: DatabaseDep, *, storage: StorageDep, viewer: MemberDep, submission: OwnSubmission
) -> Response:
    """Stream the live part of the page as it changes."""

    def look() -> sse.Frame:
        with database.read() as session:
            current = submissions.get_own(session, submission.id, viewer)
            place = find_place(session, current.competition, viewer)
            html = render(request, "_submission_live.html", place=place, **_shown(session, storage, current))
            return sse.Frame(html, current.stage in ENDED)

    return sse.stream(request, look)


@router.get("/submissions/{submission_id}/cancel")
def cancel_page(request: Request, session: SessionDep, viewer: MemberDep, submission: TeamSubmission) -> Response:
    """Ask whether to cancel, and say what it costs."""
    view = submission_views.view(session, [submission])[0]
    if not view.can_cancel:
        return redirect(request, f"/submissions/{submission.id}")
    return page(
        request,
        "cancel.html",
        place=find_place(session, submission.competition, viewer),
        tab="submissions",
        s=submission,
        counts=submissions.cancelling_costs(session, submission),
        done=view.progress.runs_done if view.progress else 0,
        total=view.progress.runs_total if view.progress else 0,
    )


@router.post("/submissions/{submission_id}/cancel")
def cancel_submission(
    request: Request,
    session: SessionDep,
    viewer: MemberDep,
    submission: TeamSubmission,
    *,
    said: Annotated[str, Form(max_length=10)] = "counts",
) -> Response:
    """Cancel. said: what the question said it costs; where that has changed meanwhile, it is asked again."""
    if said == "free" and submission.stage not in ENDED and submissions.cancelling_costs(session, submission):
        changed = Flash("warn", "Its first run has begun meanwhile, so cancelling costs something now.")
        return redirect(request, f"/submissions/{submission.id}/cancel", flash=changed)
    cancelled = submissions.cancel(session, submission, actor=viewer)
    counted = "It does not count against the quota." if cancelled.refunded else "It counts against the quota."
    return redirect(request, f"/submissions/{submission.id}", flash=Flash("good", f"Cancelled. {counted}"))


@router.get("/submissions/{submission_id}/code")
def download_code(storage: StorageDep, submission: OwnSubmission) -> Response:
    """Send the file as it was received."""
    name = f'attachment; filename="{submission.id}.{submission.kind}"'
    code = submissions.read_code(storage, submission)
    return Response(code, media_type="application/octet-stream", headers={"Content-Disposition": name})


@router.get("/submissions/{submission_id}/source")
def source_page(
    request: Request, session: SessionDep, *, storage: StorageDep, viewer: MemberDep, submission: OwnSubmission
) -> Response:
    """Show the submission's Python, highlighted."""
    return page(
        request,
        "source.html",
        place=find_place(session, submission.competition, viewer),
        tab="submissions",
        s=submission,
        files=highlighted_files(storage, submission),
    )


@router.get("/submissions/{submission_id}/receipt")
def receipt_page(
    request: Request,
    session: SessionDep,
    settings: SettingsDep,
    *,
    viewer: MemberDep,
    submission: OwnSubmission,
    split: Visibility = Visibility.PUBLIC,
) -> Response:
    """Show what a score was made of, for people to read."""
    place = find_place(session, submission.competition, viewer)
    receipt = receipts.issue(session, settings, submission, split, is_organiser=place.is_organiser)
    if "tasks" in receipt:
        raise NotFound(
            "Each part of a submission to several tasks has a receipt; the submission's page links the parts"
        )
    shown: dict[str, Any] = {
        "s": submission,
        "receipt": receipt,
        "split": split.value,
        "parsed": datetime.fromisoformat,
    }
    return page(request, "receipt.html", place=place, tab="submissions", **shown)


@router.get("/submissions/{submission_id}/receipt.json")
def download_receipt(
    session: SessionDep,
    settings: SettingsDep,
    *,
    viewer: MemberDep,
    submission: OwnSubmission,
    split: Visibility = Visibility.PUBLIC,
) -> Response:
    """Send the signed receipt, as `lethe verify` reads it."""
    is_organiser = competitions.is_organiser(session, submission.competition, viewer)
    receipt = receipts.issue(session, settings, submission, split, is_organiser=is_organiser)
    name = f'attachment; filename="{submission.id}-{split.value}-receipt.json"'
    return JSONResponse(receipt, headers={"Content-Disposition": name, "Cache-Control": "private, no-cache"})


@router.post("/submissions/{submission_id}/final")
def choose_final(
    request: Request,
    session: SessionDep,
    viewer: MemberDep,
    submission: TeamSubmission,
    *,
    asked: AskedDep,
    selected: Annotated[bool, Form()] = False,
) -> Response:
    """Make the submission one of the team's finals, or no longer. The address says which list to go back to."""
    finals.choose(session, submission, selected=selected, actor=viewer)
    done = Flash("good", CHOSEN if selected else "No longer chosen.")
    return redirect(request, f"/competitions/{submission.competition.slug}/submissions{asked.query()}", flash=done)


@router.post("/submissions/{submission_id}/publication")
def allow_publication(
    request: Request,
    session: SessionDep,
    viewer: MemberDep,
    submission: TeamSubmission,
    *,
    allowed: Annotated[bool, Form()] = False,
) -> Response:
    """Allow or forbid publishing the code after the end."""
    receipts.allow(session, submission, allowed=allowed, actor=viewer)
    done = "Its code may be published after the end." if allowed else "Its code is not published from now on."
    return redirect(request, f"/submissions/{submission.id}", flash=Flash("good", done))


def _shown(session: Session, storage: Storage, submission: Submission) -> dict[str, Any]:
    """Return what the live part of a submission's page shows."""
    view = submission_views.view(session, [submission])[0]
    split = competitions.find_split(session, submission.competition, Visibility.PUBLIC)
    failure, traceback = describe_failure(submission), _traceback(session, submission)
    return {
        "view": view,
        "oracle": gate.get_oracle_score(split),
        "standing": find_standing(session, submission.competition, submission.team_id) if view.score else None,
        "context": find_context(session, view, split),
        "breakdown": find_breakdown(
            view,
            split,
            n_models=stored_file(submission.competition).n_models,
            explanation=find_explanation(session, view, split),
        )
        if split
        else None,
        "is_ladder": gate.shows_ladder(submission.competition),
        "is_revealed": is_revealed(submission.competition),
        "steps": timeline_steps(view),
        "events": timeline_events(view),
        "failure": failure,
        "wait": find_wait(session, submission),
        "state_in_words": _state_in_words(view),
        "traceback": traceback,
        "raised": raised_line(traceback, failure.exception_type) if failure else "",
        "excerpt": _excerpt(storage, submission, file=failure.file, line=failure.line) if failure else (),
    }


def _traceback(session: Session, submission: Submission) -> str:
    """Return what the failed run on the public sample ended with; empty for a failure elsewhere."""
    failed = submission.fault == Fault.PARTICIPANT.value and "bits" not in (submission.error or {})
    return last_traceback(submissions.sample_log(session, submission)) if failed else ""


def _excerpt(storage: Storage, submission: Submission, *, file: str, line: int) -> tuple[ExcerptLine, ...]:
    if not line or submission.fault != Fault.PARTICIPANT.value:
        return ()
    code = submissions.read_code(storage, submission)
    return excerpt(source_file(code, kind=submission.kind, file=file), line)


def _receipts(view: SubmissionView, *, is_organiser: bool) -> list[str]:
    """Return the splits of which there is a receipt to be shown."""
    scores = {Visibility.PUBLIC: view.score, Visibility.PRIVATE: view.private_score}
    return [
        split.value
        for split in gate.receipts_shown(view.submission.competition, organiser=is_organiser)
        if scores[split]
    ]


def _state_in_words(view: SubmissionView) -> str:
    """Return what the page's title says."""
    progress, stage = view.progress, view.submission.stage
    if stage is Stage.RUNNING and progress:
        return f"{progress.runs_done} of {progress.runs_total} runs"
    if view.score:
        return f"Scored {view.score.final_score:.5f}"
    return "Smoke run" if stage is Stage.SMOKE else stage.capitalize()

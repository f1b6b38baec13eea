"""One competition from its organiser's side: the next step and what stands in its way, creating, the audit log."""

from typing import Annotated, Any

from fastapi import Form, Query, Request, Response
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, NotFound
from server.admin import competition_edits
from server.audit import log as audit
from server.audit.event_filter import EventFilter
from server.competitions import draft_deletion, organisers, replace_config, stopped_preparations
from server.competitions import service as competitions
from server.dashboard import service as dashboard
from server.deps import DatabaseDep, SessionDep
from server.finals import service as finals
from server.leaderboard import service as leaderboards
from server.models.account import Account
from server.models.competition import Competition
from server.submissions import service as submissions
from server.teams import service as teams
from server.web import sse
from server.web.cookies import Flash
from server.web.deps import MemberDep, OrganiserPlaceDep, Place
from server.web.organiser import audit_sentences
from server.web.organiser.checklist import ON_ANY_DEVICE, checklist
from server.web.organiser.forms import needed
from server.web.page_router import page_router
from server.web.rendering import page, part, redirect, render

router = page_router()

Reason = Annotated[str, Form(max_length=500)]
Short = Annotated[str, Query(max_length=60)]
PageNumber = Annotated[int, Query(alias="page", ge=1, le=100_000)]


@router.get("/organise/{slug}")
def control_page(request: Request, session: SessionDep, place: OrganiserPlaceDep) -> Response:
    return page(
        request,
        "organise/competition.html",
        place=place,
        tab="control",
        teams=dashboard.count_teams(session, place.competition),
        **_state(session, place.competition),
    )


@router.get("/organise/{slug}/live")
def control_part(request: Request, session: SessionDep, place: OrganiserPlaceDep) -> Response:
    """Send the part that changes, for a page that cannot listen."""
    return part(request, "organise/_control_live.html", place=place, **_state(session, place.competition))


@router.get("/organise/{slug}/events")
def control_events(request: Request, database: DatabaseDep, place: OrganiserPlaceDep) -> Response:
    """Stream the part that changes."""

    def look() -> sse.Frame:
        with database.read() as session:
            competition = competitions.of_id(session, place.competition.id)
            html = render(request, "organise/_control_live.html", place=place, **_state(session, competition))
            return sse.Frame(html, is_last=competition.state != place.competition.state)

    return sse.stream(request, look)


@router.post("/organise/{slug}/move")
def move(
    request: Request,
    session: SessionDep,
    place: OrganiserPlaceDep,
    viewer: MemberDep,
    *,
    act: Reason = "",
    reason: Reason = "",
) -> Response:
    """Take the competition's next step. Opening, closing and revealing by hand need a reason."""
    if not act.startswith("prepare"):
        needed(reason)
    done = _move(session, place, viewer, act=act, reason=reason.strip())
    return redirect(request, f"/organise/{place.competition.slug}", flash=Flash("good", done))


@router.post("/organise/{slug}/cancel-preparation")
def cancel_preparation(request: Request, session: SessionDep, place: OrganiserPlaceDep, viewer: MemberDep) -> Response:
    """Call the first preparation of the splits off."""
    stopped_preparations.cancel(session, place.competition, actor=viewer)
    done = "The preparation is cancelled; the competition is a draft again."
    return redirect(request, f"/organise/{place.competition.slug}", flash=Flash("good", done))


@router.post("/organise/{slug}/delete")
def delete(request: Request, session: SessionDep, place: OrganiserPlaceDep, viewer: MemberDep) -> Response:
    """Delete a draft."""
    slug = place.competition.slug
    draft_deletion.delete_draft(session, place.competition, actor=viewer)
    return redirect(request, "/organise", flash=Flash("good", f"The draft {slug} is deleted."))


@router.post("/organise/{slug}/finals/{submission_id}")
def decide(
    submission_id: str,
    request: Request,
    session: SessionDep,
    place: OrganiserPlaceDep,
    viewer: MemberDep,
    *,
    act: Reason = "",
    reason: Reason = "",
) -> Response:
    """Decide what happens with a final that failed on private data."""
    submission = submissions.get_own(session, submission_id, viewer)
    if submission.competition_id != place.competition.id:
        raise NotFound(f"{place.competition.slug} has no submission {submission_id!r}")
    decisions = {"exclude": finals.exclude, "next": finals.use_next_choice, "again": finals.run_again}
    if act not in decisions:
        raise InvalidInput(f"{act!r} is not a decision; allowed are {', '.join(decisions)}")
    decisions[act](session, submission, actor=viewer, reason=needed(reason))
    return redirect(request, f"/organise/{place.competition.slug}", flash=Flash("good", "Decided."))


@router.get("/organise/{slug}/teams")
def teams_page(
    request: Request, session: SessionDep, place: OrganiserPlaceDep, *, q: Short = "", page_number: PageNumber = 1
) -> Response:
    board = leaderboards.whole_board(session, place.competition, Visibility.PUBLIC)
    rows, has_more = teams.search(session, place.competition, query=q, page=page_number)
    return page(
        request,
        "organise/teams.html",
        place=place,
        tab="teams",
        rows=rows,
        has_more=has_more,
        page_number=page_number,
        board=board,
        query=q,
        organisers=organisers.of(session, place.competition),
    )


@router.get("/organise/{slug}/audit")
def audit_page(
    request: Request,
    session: SessionDep,
    place: OrganiserPlaceDep,
    *,
    action: Annotated[str, Query(max_length=60)] = "",
    actor: Annotated[str, Query(max_length=60)] = "",
    page_number: PageNumber = 1,
) -> Response:
    wanted = EventFilter(competition_id=place.competition.id, action=action or None, actor=actor.strip() or None)
    events, has_more = audit.events_page(session, wanted, page=page_number)
    return page(
        request,
        "organise/audit.html",
        place=place,
        tab="audit",
        sentences=audit_sentences.sentences(session, events, slug=place.competition.slug),
        has_more=has_more,
        page_number=page_number,
        action=action,
        actor=actor,
        actions=audit.actions(session, place.competition),
    )


def _state(session: Session, competition: Competition) -> dict[str, Any]:
    splits = competitions.splits(session, competition)
    return {
        "competition": competition,
        "steps": checklist(session, competition),
        "splits": splits,
        "shards": competitions.model_shards(session, splits),
        "may_change": competition_edits.may_change(competition),
        "may_rewrite": replace_config.may_rewrite(competition, list(splits)),
        "stages": dashboard.count_stages(session, competition),
    }


def _move(session: Session, place: Place, viewer: Account, *, act: str, reason: str) -> str:
    competition = place.competition
    if act == "prepare":
        competitions.prepare(session, competition, actor=viewer)
        return "The splits are being prepared."
    if act == ON_ANY_DEVICE[0]:
        competitions.prepare(session, competition, actor=viewer, any_device=True)
        return "The splits are begun again by whatever workers there are."
    if act == "open":
        competitions.open_now(session, competition, actor=viewer, reason=reason)
        return "The competition is open."
    if act == "close":
        competitions.close_now(session, competition, actor=viewer, reason=reason)
        return "The competition is closed; the finals are re-scored on the private split."
    if act == "reveal":
        finals.reveal(session, competition, actor=viewer, reason=reason)
        return "The private leaderboard is revealed."
    if act == "archive":
        competition_edits.archive(session, competition, actor=viewer, reason=reason)
        return "The competition is archived; everything stays to be read."
    raise InvalidInput(f"{act!r} is not a step; allowed are prepare, open, close, reveal, archive")

"""One competition from its organiser's side: the next step and what stands in its way, creating, the audit log."""

from typing import Annotated, Any

from fastapi import Depends, Form, Query, Request, Response
from sqlalchemy.orm import Session

from server.accounts.access import DatabaseDep
from server.admin import changes
from server.competitions import finals, organisers, rewriting
from server.competitions import service as competitions
from server.competitions.config_file import parse_competition
from server.deps import SessionDep
from server.errors import AppError, InvalidInput, NotFound
from server.leaderboard import service as leaderboards
from server.models.account import Account
from server.models.competition import Competition, Visibility
from server.submissions import service as submissions
from server.web import live
from server.web.competition_pages import STARTER_TOML, timeline_of
from server.web.cookies import Flash
from server.web.deps import MemberDep, OrganiserPlaceDep, Place, StaffDep, require_staff
from server.web.organising import dashboard_repository, submissions_repository
from server.web.organising.checklist import ON_ANY_DEVICE, checklist
from server.web.organising.forms import needed
from server.web.organising.submissions_repository import LINES
from server.web.rendering import page, part, redirect, render
from server.web.routing import page_router

router = page_router()

LongText = Annotated[str, Form(max_length=100_000)]
Reason = Annotated[str, Form(max_length=500)]
Short = Annotated[str, Query(max_length=60)]


@router.get("/organise/new", dependencies=[Depends(require_staff)])
def new_page(request: Request) -> Response:
    return page(request, "organise/new.html", text=STARTER_TOML.read_text(), error=None, preview=None)


@router.post("/organise/new")
def create(
    request: Request, session: SessionDep, viewer: StaffDep, *, text: LongText = "", act: Reason = "preview"
) -> Response:
    """Check a competition file and show what participants will see, or make a draft of it."""
    text = text.replace("\r\n", "\n")
    try:
        file = parse_competition(text)
        if act == "preview":
            return page(request, "organise/new.html", text=text, error=None, preview=file, timeline=timeline_of(file))
        competition = competitions.create(session, text, organiser=viewer)
    except AppError as error:
        return page(request, "organise/new.html", status=error.status, text=text, error=error, preview=None)
    session.flush()
    done = Flash("good", "The draft is made. Only its organisers see it.")
    return redirect(request, f"/organise/{competition.slug}", flash=done)


@router.get("/organise/{slug}")
def control_page(request: Request, session: SessionDep, place: OrganiserPlaceDep) -> Response:
    return page(
        request,
        "organise/competition.html",
        place=place,
        room="control",
        teams=dashboard_repository.team_count(session, place.competition.id),
        **_state(session, place.competition),
    )


@router.get("/organise/{slug}/live")
def control_part(request: Request, session: SessionDep, place: OrganiserPlaceDep) -> Response:
    """Send the part that changes, for a page that cannot listen."""
    return part(request, "organise/_control_live.html", place=place, **_state(session, place.competition))


@router.get("/organise/{slug}/events")
def control_events(request: Request, database: DatabaseDep, place: OrganiserPlaceDep) -> Response:
    """Stream the part that changes."""

    def look() -> live.Frame:
        with database.read() as session:
            competition = competitions.of_id(session, place.competition.id)
            html = render(request, "organise/_control_live.html", place=place, **_state(session, competition))
            return live.Frame(html, is_last=competition.state != place.competition.state)

    return live.stream(request, look)


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
        raise InvalidInput(f"{act!r} is no decision; allowed are {', '.join(decisions)}")
    decisions[act](session, submission, actor=viewer, reason=needed(reason))
    return redirect(request, f"/organise/{place.competition.slug}", flash=Flash("good", "Decided."))


@router.get("/organise/{slug}/teams")
def teams_page(request: Request, session: SessionDep, place: OrganiserPlaceDep, *, q: Short = "") -> Response:
    board = leaderboards.whole_board(session, place.competition, Visibility.PUBLIC)
    rows = dashboard_repository.teams(session, place.competition.id, query=q.strip())
    running = organisers.of(session, place.competition)
    return page(
        request, "organise/teams.html", place=place, room="teams", rows=rows, board=board, query=q, organisers=running
    )


@router.get("/organise/{slug}/audit")
def audit_page(
    request: Request,
    session: SessionDep,
    place: OrganiserPlaceDep,
    *,
    action: Annotated[str, Query(max_length=60)] = "",
    actor: Annotated[str, Query(max_length=60)] = "",
    page_number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
) -> Response:
    found = submissions_repository.audit_events(
        session, place.competition.id, action=action, actor=actor.strip(), page=page_number
    )
    return page(
        request,
        "organise/audit.html",
        place=place,
        room="audit",
        events=found[:LINES],
        has_more=len(found) > LINES,
        page_number=page_number,
        action=action,
        actor=actor,
        actions=submissions_repository.actions(session, place.competition.id),
    )


def _state(session: Session, competition: Competition) -> dict[str, Any]:
    splits = competitions.splits(session, competition)
    return {
        "competition": competition,
        "steps": checklist(session, competition),
        "splits": splits,
        "shards": competitions.model_shards(session, splits),
        "may_rewrite": rewriting.may_rewrite(competition, list(splits)),
        "stages": dashboard_repository.stages(session, competition.id),
    }


def _move(session: Session, place: Place, viewer: Account, *, act: str, reason: str) -> str:
    competition = place.competition
    if act == "prepare":
        competitions.prepare(session, competition, actor=viewer)
        return "The splits are being prepared."
    if act == ON_ANY_DEVICE[0]:
        competitions.prepare(session, competition, actor=viewer, any_device=True)
        return "The splits are begun anew by whatever workers there are."
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
        changes.archive(session, competition, actor=viewer, reason=reason)
        return "The competition is archived; everything stays to be read."
    raise InvalidInput(f"{act!r} is no step; allowed are prepare, open, close, reveal, archive")

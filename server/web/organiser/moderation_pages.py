"""What organisers do to submissions, teams, each other and the competition itself, and administrators to
accounts: each act with a reason."""

from typing import Annotated

from fastapi import Form, Query, Request, Response
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, NotFound
from server.admin import competition_edits, moderation
from server.admin.moderation import find_accounts
from server.competitions import participants
from server.deps import SessionDep
from server.errors import Conflict
from server.models.account import Account, Role
from server.models.submission import Submission
from server.submissions import submissions
from server.web.cookies import Flash
from server.web.deps import AdministratorDep, OrganiserDep, OrganiserRequest, change, needed, timestamp
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()

MAX_BATCH = 200
Reason = Annotated[str, Form(max_length=500)]
Short = Annotated[str, Query(max_length=60)]
Ids = Annotated[list[str] | None, Form(max_length=MAX_BATCH)]

DONE = {
    "cancel": "cancelled",
    "run-again": "queued again",
    "confirm": "confirmed",
    "disqualify": "disqualified",
    "restore": "restored",
}


@router.post("/organise/{slug}/act")
def act_on_submissions(
    asked: OrganiserDep,
    *,
    submission: Ids = None,
    act: Reason = "",
    reason: Reason = "",
    split: Visibility = Visibility.PUBLIC,
) -> Response:
    """Apply one action to several submissions, or say why not. split: whose score is confirmed."""
    if not submission:
        nothing = Flash("warn", "No submission was chosen: nothing is changed. Choose at least one in the list.")
        return redirect(asked.request, _back(asked.request, asked.competition.slug, []), flash=nothing)
    reason = needed(reason)
    moderation.require_act(act, moderation.ACTS)
    chosen = [_of_place(asked.session, asked.competition.id, wanted, asked.viewer) for wanted in submission]
    split = split if act == "confirm" else Visibility.PUBLIC
    refused = [words for one in chosen if (words := _try(asked, one, act=act, split=split, reason=reason))]
    done = f"{len(chosen) - len(refused)} {DONE[act]}."
    flash = Flash("warn" if refused else "good", " ".join((done, *refused[:3])))
    return redirect(asked.request, _back(asked.request, asked.competition.slug, chosen), flash=flash)


@router.post("/organise/{slug}/teams/{team_id}")
def act_on_team(
    team_id: str, asked: OrganiserDep, *, act: Reason = "", reason: Reason = "", name: Reason = "", until: Reason = ""
) -> Response:
    """Disqualify a team, restore it, give it another name, or let it submit longer."""
    end = timestamp(until, field="until") if act == "extend" and until.strip() else None
    team = moderation.act_on_team(
        asked.session, asked.competition, team_id, act, name=name, until=end, actor=asked.viewer, reason=needed(reason)
    )
    return asked.done(f"{team.name}: done.", to="/teams")


@router.post("/organise/{slug}/extend")
def extend(asked: OrganiserDep, *, closes_at: Reason = "", reason: Reason = "") -> Response:
    """Set another end."""
    change(asked, {"closes_at": timestamp(closes_at, field="closes_at")}, reason=reason)
    return asked.done("The end is changed.")


@router.post("/organise/{slug}/announce")
def announce(
    asked: OrganiserDep,
    *,
    title: Annotated[str, Form(max_length=200)] = "",
    text: Annotated[str, Form(max_length=20_000)] = "",
) -> Response:
    """Publish an announcement on the overview page."""
    if not title.strip() or not text.strip():
        raise InvalidInput("An announcement needs a title and a text")
    _, reached = competition_edits.announce(
        asked.session, asked.competition, title=title.strip(), text=text.strip(), actor=asked.viewer
    )
    people = "1 person" if reached.people == 1 else f"{reached.people} people"
    return asked.done(f"Announced: it is on the overview page of {people}, and {reached.mails} get it by e-mail.")


@router.get("/people")
def people_page(
    request: Request,
    session: SessionDep,
    _viewer: AdministratorDep,
    *,
    q: Short = "",
    role: Short = "",
    only: Short = "",
    page_number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
) -> Response:
    people, has_more = find_accounts(session, query=q, role=role, only_banned=only == "banned", page=page_number)
    return page(
        request,
        "organise/people.html",
        people=people,
        has_more=has_more,
        page_number=page_number,
        query=q,
        role=role,
        only=only,
        roles=[member.value for member in Role],
    )


@router.post("/people/{name}")
def act_on_person(
    name: str, request: Request, session: SessionDep, viewer: AdministratorDep, *, act: Reason = "", reason: Reason = ""
) -> Response:
    """Ban an account, lift the ban, or change what it may do."""
    account = moderation.act_on_account(session, name, act, actor=viewer, reason=needed(reason))
    return redirect(request, f"/people?q={account.name}", flash=Flash("good", f"{account.name}: done."))


@router.post("/organise/{slug}/organisers")
def change_organisers(asked: OrganiserDep, *, act: Reason = "", name: Reason = "", reason: Reason = "") -> Response:
    """Add or remove an organiser."""
    change = {"add": participants.add_organiser, "remove": participants.remove_organiser}.get(act)
    if change is None:
        raise InvalidInput(f"{act!r} is not an act; allowed are add, remove")
    account = change(asked.session, asked.competition, name.strip(), actor=asked.viewer, reason=needed(reason))
    done = "organises the competition now" if act == "add" else "organises the competition no longer"
    left_it = act == "remove" and account.id == asked.viewer.id and asked.viewer.role != Role.ADMINISTRATOR
    to = "/organise" if left_it else f"/organise/{asked.competition.slug}/teams"
    return redirect(asked.request, to, flash=Flash("good", f"{account.name} {done}."))


def _of_place(session: Session, competition_id: str, submission_id: str, viewer: Account) -> Submission:
    submission = submissions.get_own(session, submission_id, viewer)
    if submission.competition_id != competition_id:
        raise NotFound(f"The competition has no submission {submission_id!r}")
    return submission


def _try(asked: OrganiserRequest, submission: Submission, *, act: str, split: Visibility, reason: str) -> str:
    """Carry out one act. Return why not, if not."""
    try:
        with asked.session.begin_nested():
            moderation.act_on_submission(
                asked.session, submission, act, visibility=split, actor=asked.viewer, reason=reason
            )
    except Conflict as error:
        return f"{submission.id}: {error.detail}."
    return ""


def _back(request: Request, slug: str, chosen: list[Submission]) -> str:
    """Return the page that the form stood on: one submission's, or the list with its filters."""
    query = request.query_params.get("list")
    if query is None and len(chosen) == 1:
        split = request.query_params.get("split")
        return f"/organise/{slug}/submissions/{chosen[0].id}" + ("?split=private" if split == "private" else "")
    return f"/organise/{slug}/submissions" + (f"?{query}" if query and len(query) < 400 else "")

"""/api/v1: organisers' acts on a competition of theirs, and administrators' on the instance."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Query, status
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime

from server.accounts import recovery
from server.accounts import service as accounts
from server.accounts.access import (
    Administrator,
    CurrentAccount,
    DatabaseDep,
    VisibleCompetition,
    administrator,
    require_organiser_of,
)
from server.accounts.access import OrganisedCompetition as Organised
from server.accounts.schemas import ResetLinkOut
from server.admin import acts, audit, changes, exports
from server.admin.event_filter import EventFilter
from server.admin.exports import Format, Table
from server.admin.schemas import (
    AccountAct,
    AnnouncementOut,
    AuditEventOut,
    LimitsChangeOut,
    NewAnnouncement,
    NewEnd,
    NewLimits,
    SubmissionAct,
    TeamAct,
)
from server.competitions.schemas import CompetitionOut, Reason
from server.deps import SessionDep
from server.errors import Conflict
from server.models.account import Role
from server.problems import problems
from server.submissions import service as submissions
from server.submissions.schemas import SubmissionOut

DONE = status.HTTP_204_NO_CONTENT
MOST_EVENTS = 1000
WhyBody = Annotated[Reason, Body(default_factory=Reason)]

public = APIRouter(prefix="/competitions/{slug}", tags=["competitions"])
organisers = APIRouter(
    prefix="/competitions/{slug}",
    tags=["organisers"],
    dependencies=[Depends(require_organiser_of)],
    responses=problems(401, 403, 404),
)
administrators = APIRouter(
    prefix="/admin", tags=["administrators"], dependencies=[Depends(administrator)], responses=problems(401, 403)
)


def wanted(
    *,
    action: Annotated[str | None, Query(max_length=60, examples=["submission.disqualified"])] = None,
    actor: Annotated[str | None, Query(max_length=60)] = None,
    subject: Annotated[str | None, Query(max_length=80)] = None,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
) -> EventFilter:
    """Return the filter in the query."""
    return EventFilter(action=action, actor=actor, subject=subject, since=since, until=until)


Wanted = Annotated[EventFilter, Depends(wanted)]
BeforeId = Annotated[int | None, Query(ge=1, lt=2**63, description="the last id of the page before")]
Limit = Annotated[int, Query(ge=1, le=MOST_EVENTS)]


@public.get("/announcements", responses=problems(401, 404))
def list_announcements(session: SessionDep, competition: VisibleCompetition) -> list[AnnouncementOut]:
    """List the announcements, the newest first."""
    return [AnnouncementOut.of(row, author) for row, author in changes.announcements(session, competition)]


@organisers.post("/announcements", status_code=status.HTTP_201_CREATED)
def announce(
    body: NewAnnouncement, session: SessionDep, competition: Organised, account: CurrentAccount
) -> AnnouncementOut:
    """Publish an announcement."""
    row = changes.announce(session, competition, title=body.title, text=body.text, actor=account)
    return AnnouncementOut.of(row, account.name)


@organisers.get("/all-submissions")
def list_all_submissions(session: SessionDep, competition: Organised) -> list[SubmissionOut]:
    """List every team's submissions, the newest first."""
    everything = submissions.list_all(session, competition)
    return [SubmissionOut.of(view) for view in submissions.view(session, everything, exact=True)]


@organisers.post("/submissions/{submission_id}/acts", responses=problems(409))
def act_on_submission(
    submission_id: str, body: SubmissionAct, session: SessionDep, *, competition: Organised, account: CurrentAccount
) -> SubmissionOut:
    """Cancel, run again, disqualify or restore a submission."""
    submission = submissions.of_competition(session, competition, submission_id)
    if body.act == "cancel":
        acts.cancel(session, submission, actor=account, reason=body.reason)
    elif body.act == "run-again":
        acts.run_again(session, submission, visibility=body.split, actor=account, reason=body.reason)
    elif body.act == "disqualify":
        acts.disqualify(session, submission, actor=account, reason=body.reason)
    else:
        acts.restore(session, submission, actor=account, reason=body.reason)
    session.flush()
    changed = submissions.of_competition(session, competition, submission_id)
    return SubmissionOut.of(submissions.view(session, [changed], exact=True)[0])


@organisers.post("/teams/{team_id}/acts", status_code=DONE, responses=problems(409))
def act_on_team(
    team_id: str, body: TeamAct, session: SessionDep, *, competition: Organised, account: CurrentAccount
) -> None:
    """Disqualify or restore a team."""
    team = acts.team_of(session, competition, team_id)
    act = acts.disqualify_team if body.act == "disqualify" else acts.restore_team
    act(session, team, actor=account, reason=body.reason)


@organisers.put("/deadline", responses=problems(409))
def change_deadline(
    body: NewEnd, session: SessionDep, competition: Organised, account: CurrentAccount
) -> CompetitionOut:
    """Set another end. A competition that has closed opens again, unless its finals are frozen."""
    changed = changes.extend(session, competition, closes_at=body.closes_at, actor=account, reason=body.reason)
    return CompetitionOut.of(changed)


@organisers.put("/limits", responses=problems(409))
def change_limits(
    body: NewLimits, session: SessionDep, competition: Organised, account: CurrentAccount
) -> LimitsChangeOut:
    """Change limits, or with `preview` only say whom that would affect."""
    if body.preview:
        return LimitsChangeOut.of(changes.preview_limits(session, competition, body.limits), applied=False)
    change = changes.change_limits(session, competition, body.limits, actor=account, reason=body.reason)
    return LimitsChangeOut.of(change, applied=True)


@organisers.post("/archive", responses=problems(409))
def archive(session: SessionDep, competition: Organised, account: CurrentAccount, why: WhyBody) -> CompetitionOut:
    """Put a competition away. Everything stays to be read."""
    return CompetitionOut.of(changes.archive(session, competition, actor=account, reason=why.reason))


@organisers.get("/audit")
def read_audit_log(
    session: SessionDep, competition: Organised, filtered: Wanted, *, before_id: BeforeId = None, limit: Limit = 100
) -> list[AuditEventOut]:
    """Read the competition's audit log, the newest first."""
    mine = replace(filtered, competition_id=competition.id)
    return [AuditEventOut.of(event) for event in audit.events(session, mine, before_id=before_id, limit=limit)]


@organisers.get(
    "/exports/{table}",
    response_class=StreamingResponse,
    responses={200: {"content": {media_type: {} for media_type in exports.MEDIA_TYPES.values()}}},
)
def export(
    table: Table,
    database: DatabaseDep,
    competition: Organised,
    form: Annotated[Format, Query(alias="format")] = Format.CSV,
) -> StreamingResponse:
    """Export a table of the competition, streamed, with its scores."""
    name = f"{competition.slug}-{table}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    lines = exports.lines(database, competition, table, form)
    return StreamingResponse(lines, media_type=exports.MEDIA_TYPES[form], headers=headers)


@administrators.get("/audit")
def read_whole_audit_log(
    session: SessionDep, filtered: Wanted, *, before_id: BeforeId = None, limit: Limit = 100
) -> list[AuditEventOut]:
    """Read the instance's audit log, the newest first."""
    return [AuditEventOut.of(event) for event in audit.events(session, filtered, before_id=before_id, limit=limit)]


@administrators.post("/accounts/{name}/acts", status_code=DONE, responses=problems(404, 409))
def act_on_account(name: str, body: AccountAct, session: SessionDep, actor: Administrator) -> None:
    """Ban an account, lift the ban, or change what it may do."""
    account = accounts.find(session, name)
    if account.id == actor.id:
        raise Conflict("An administrator cannot do this to the own account")
    if body.act == "ban":
        accounts.disable(session, account, actor=actor, reason=body.reason)
    elif body.act == "unban":
        accounts.enable(session, account, actor=actor, reason=body.reason)
    else:
        accounts.set_role(session, account, Role(body.act.removeprefix("make-")), actor=actor, reason=body.reason)


@administrators.post("/accounts/{name}/reset-link", status_code=status.HTTP_201_CREATED, responses=problems(404, 409))
def make_reset_link(name: str, session: SessionDep, actor: Administrator) -> ResetLinkOut:
    """Make a link with which a person sets a new password. It works once, within a day; earlier ones end."""
    account = accounts.find(session, name)
    issued = recovery.issue(session, account, actor=actor, lifetime=recovery.BY_ADMINISTRATOR)
    return ResetLinkOut(link=issued.link, expires_at=issued.expires_at)

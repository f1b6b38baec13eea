"""/api/v1: organisers' acts on a competition of theirs, and administrators' on the instance."""

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Depends, Query, status
from fastapi.responses import StreamingResponse

from lethe.competition.section import Timestamp
from lethe.competition.visibility import Visibility
from server import audit
from server.accounts import accounts, password_reset
from server.admin import competition_edits, exports, moderation
from server.admin.exports import ExportTable, Format
from server.admin.moderation import find_accounts
from server.admission import AdmissionDep
from server.api.accounts import ResetLinkOut
from server.api.admin.schemas import (
    AccountAct,
    AnnouncementOut,
    AuditEventOut,
    ListedAccountOut,
    ListedTeam,
    NewAnnouncement,
    PeopleOut,
    SentAnnouncement,
    SubmissionAct,
    TeamAct,
)
from server.api.auth_dependencies import (
    Administrator,
    CurrentAccount,
    VisibleCompetition,
    administrator,
    organiser_routes,
)
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.competitions.schemas import CompetitionOut, Reason
from server.api.submissions.schemas import OrganisedSubmissionOut, SubmissionOut
from server.audit import EventFilter
from server.bundles import bundle
from server.competitions import competitions, participants
from server.deps import SessionDep, SettingsDep, StorageDep
from server.leaderboard import boards
from server.models.account import Role
from server.problem_details import problems
from server.submissions import organiser_list, submissions
from server.submissions import views as submission_views
from server.submissions.list_filter import SubmissionFilter
from server.teams import teams

NO_CONTENT = status.HTTP_204_NO_CONTENT
MAX_EVENTS = 1000
Short = Annotated[str, Query(max_length=60)]
OnlyQuery = Annotated[
    Literal["", "selected", "disqualified", "refunded", "flagged", "unconfirmed", "repeated"], Query()
]
WhyBody = Annotated[Reason, Body(default_factory=Reason)]

public = APIRouter(prefix="/competitions/{slug}", tags=["competitions"])
organisers = organiser_routes()
administrators = APIRouter(
    prefix="/admin", tags=["administrators"], dependencies=[Depends(administrator)], responses=problems(401, 403)
)


def wanted(
    *,
    action: Annotated[str | None, Query(max_length=60, examples=["submission.disqualified"])] = None,
    actor: Annotated[str | None, Query(max_length=60)] = None,
    subject: Annotated[str | None, Query(max_length=80)] = None,
    since: Timestamp | None = None,
    until: Timestamp | None = None,
) -> EventFilter:
    """Return the filter in the query."""
    return EventFilter(action=action, actor=actor, subject=subject, since=since, until=until)


def submission_filter(
    *,
    stage: Short = "",
    fault: Short = "",
    error_class: Short = "",
    team: Annotated[str, Query(max_length=60, description="part of a team's name")] = "",
    only: OnlyQuery = "",
    text: Annotated[
        str,
        Query(max_length=64, description="the start of an id or a SHA-256, or part of a note, file or sender's name"),
    ] = "",
    received_from: Timestamp | None = None,
    received_before: Timestamp | None = None,
) -> SubmissionFilter:
    """Return the filter in the query."""
    return SubmissionFilter(stage, fault, error_class, team.strip(), only, text.strip(), received_from, received_before)


ListFilter = Annotated[SubmissionFilter, Depends(submission_filter)]
ListPage = Annotated[int | None, Query(ge=1, le=100_000, description="a hundred a page; without it, all of them")]
Wanted = Annotated[EventFilter, Depends(wanted)]
BeforeId = Annotated[int | None, Query(ge=1, lt=2**63, description="the last id of the page before")]
TeamsPage = Annotated[int, Query(ge=1, le=100_000, description="a hundred teams a page")]
AccountsPage = Annotated[int, Query(ge=1, le=100_000)]
Limit = Annotated[int, Query(ge=1, le=MAX_EVENTS)]


@public.get("/announcements", responses=problems(401, 404))
def list_announcements(session: SessionDep, competition: VisibleCompetition) -> list[AnnouncementOut]:
    """List the announcements, the newest first."""
    return [
        AnnouncementOut.read(row, author=author)
        for row, author in competition_edits.announcements(session, competition)
    ]


@organisers.post("/announcements", status_code=status.HTTP_201_CREATED)
def announce(
    body: NewAnnouncement, session: SessionDep, competition: Organised, account: CurrentAccount
) -> SentAnnouncement:
    """Publish an announcement. The answer says how many people it concerns, and how many get it by mail."""
    row, reached = competition_edits.announce(session, competition, title=body.title, text=body.text, actor=account)
    return SentAnnouncement.read(row, author=account.name, people=reached.people, mails=reached.mails)


@organisers.get("/all-submissions")
def list_all_submissions(
    session: SessionDep, competition: Organised, filtered: ListFilter, *, page: ListPage = None
) -> list[OrganisedSubmissionOut]:
    """List every team's submissions that match, the newest first."""
    everything = organiser_list.find_submissions(session, competition, filtered, page=page)
    senders = organiser_list.teams_by_file(session, everything)
    return [
        OrganisedSubmissionOut.of(view, same_file_of=senders.get(view.submission.id, []))
        for view in submission_views.view(session, everything, exact=True)
    ]


@organisers.post("/submissions/{submission_id}/acts", responses=problems(409))
def act_on_submission(
    submission_id: str, body: SubmissionAct, session: SessionDep, *, competition: Organised, account: CurrentAccount
) -> SubmissionOut:
    """Cancel, run again, disqualify or restore a submission, or confirm its score, which then takes its rank."""
    submission = submissions.of_competition(session, competition, submission_id)
    moderation.act_on_submission(
        session, submission, body.act, visibility=body.split, actor=account, reason=body.reason
    )
    session.flush()
    changed = submissions.of_competition(session, competition, submission_id)
    return SubmissionOut.of(submission_views.view(session, [changed], exact=True)[0])


@organisers.post("/teams/{team_id}/acts", status_code=NO_CONTENT, responses=problems(409))
def act_on_team(
    team_id: str, body: TeamAct, session: SessionDep, *, competition: Organised, account: CurrentAccount
) -> None:
    """Disqualify, restore or rename a team, or let it submit longer than others."""
    moderation.act_on_team(session, competition, team_id, **body.model_dump(), actor=account)


@organisers.post("/archive", responses=problems(409))
def archive(session: SessionDep, competition: Organised, account: CurrentAccount, why: WhyBody) -> CompetitionOut:
    """Put a competition away. Everything stays to be read."""
    return CompetitionOut.of(competition_edits.archive(session, competition, actor=account, reason=why.reason))


@organisers.get("/audit")
def read_audit_log(
    session: SessionDep, competition: Organised, filtered: Wanted, *, before_id: BeforeId = None, limit: Limit = 100
) -> list[AuditEventOut]:
    """Read the competition's audit log, the newest first."""
    mine = replace(filtered, competition_id=competition.id)
    return [AuditEventOut.read(event) for event in audit.events(session, mine, before_id=before_id, limit=limit)]


@organisers.get("/audit/actions")
def list_audit_actions(session: SessionDep, competition: Organised) -> list[str]:
    """List the actions that the competition's audit log holds."""
    return list(audit.actions(session, competition))


@organisers.get("/people")
def list_people(session: SessionDep, competition: Organised, *, team: Short = "", page: TeamsPage = 1) -> PeopleOut:
    """List the organisers, and a page of teams by name. team: part of a team's name."""
    rows, has_more = teams.search(session, competition, query=team, page=page)
    board = boards.whole_board(session, competition, Visibility.PUBLIC)
    return PeopleOut(
        organisers=[account.name for account in participants.organisers_of(session, competition)],
        teams=[
            ListedTeam.read(
                team,
                leader=leader,
                members=members,
                rank=line.rank if line else None,
                entries=line.entry.entries if line else 0,
            )
            for team, leader, members in rows
            for line in (board.get_row(team.id),)
        ],
        has_more=has_more,
    )


@organisers.get(
    "/exports/{table}",
    response_class=StreamingResponse,
    responses={200: {"content": {media_type: {} for media_type in exports.MEDIA_TYPES.values()}}},
)
def export(
    table: ExportTable,
    session: SessionDep,
    competition: Organised,
    *,
    admission: AdmissionDep,
    form: Annotated[Format, Query(alias="format")] = Format.CSV,
    phase: Annotated[str, Query(max_length=40, description="whose public leaderboard; late: after the close")] = "",
    task: Annotated[str, Query(max_length=40, description="name of a task; empty: of the competition")] = "",
) -> StreamingResponse:
    """Export a table of the competition, streamed, with its scores."""
    if task:
        competition = competitions.get_task(session, competition, task)
    pieces = exports.spooled(session, competition, table, form, phase=phase)
    name = f"{competition.slug}-{table}{f'-{phase}' if phase else ''}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(admission.pieces(pieces), media_type=exports.MEDIA_TYPES[form], headers=headers)


@organisers.get(
    "/bundle", response_class=StreamingResponse, responses={**problems(409), 200: {"content": {"application/zip": {}}}}
)
def download_bundle(
    session: SessionDep,
    storage: StorageDep,
    settings: SettingsDep,
    competition: Organised,
    *,
    admission: AdmissionDep,
    seeds: Annotated[bool, Query(description="with the seeds of the splits, once no submission is taken")] = True,
) -> StreamingResponse:
    """Download the results of a competition that is over as a site to publish: leaderboards, receipts, the code that
    may be published, a card of the data. `lethe verify` checks it, `lethe replay` runs an entry again."""
    pieces = bundle.spooled(session, storage, settings, competition, seeds=seeds)
    headers = {"Content-Disposition": f'attachment; filename="{competition.slug}-bundle.zip"'}
    return StreamingResponse(admission.pieces(pieces), media_type="application/zip", headers=headers)


@administrators.get("/audit")
def read_whole_audit_log(
    session: SessionDep, filtered: Wanted, *, before_id: BeforeId = None, limit: Limit = 100
) -> list[AuditEventOut]:
    """Read the instance's audit log, the newest first."""
    return [AuditEventOut.read(event) for event in audit.events(session, filtered, before_id=before_id, limit=limit)]


@administrators.get("/accounts")
def list_accounts(
    session: SessionDep, *, query: Short = "", role: Role | None = None, banned: bool = False, page: AccountsPage = 1
) -> list[ListedAccountOut]:
    """List the instance's accounts by name, a hundred a page. query: part of a name or of an e-mail address."""
    rows, _ = find_accounts(session, query=query, role=role or "", only_banned=banned, page=page)
    return [ListedAccountOut.read(row.account, organises=row.organises, teams=row.teams) for row in rows]


@administrators.post("/accounts/{name}/acts", status_code=NO_CONTENT, responses=problems(404, 409))
def act_on_account(name: str, body: AccountAct, session: SessionDep, actor: Administrator) -> None:
    """Ban an account, lift the ban, or change what it may do."""
    moderation.act_on_account(session, name, body.act, actor=actor, reason=body.reason)


@administrators.post("/accounts/{name}/reset-link", status_code=status.HTTP_201_CREATED, responses=problems(404, 409))
def make_reset_link(name: str, session: SessionDep, actor: Administrator) -> ResetLinkOut:
    """Make a link with which a person sets a new password. It works once, within a day; earlier ones end."""
    account = accounts.find(session, name)
    issued = password_reset.issue(session, account, actor=actor, lifetime=password_reset.BY_ADMINISTRATOR)
    return ResetLinkOut(link=issued.link, expires_at=issued.expires_at)

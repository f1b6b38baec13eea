"""/api/v1/competitions: what there is to take part in, and its life."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response, status
from sqlalchemy.orm import Session

from lethe.competition.preparation_share import SplitReport
from lethe.competition.task import task_name
from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server import starter_kit
from server.admin import competition_edits, moderation
from server.api.auth_dependencies import CurrentAccount, OptionalAccount, VisibleCompetition
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.competitions.schemas import (
    ChangeOut,
    CompetitionChange,
    CompetitionOut,
    CompetitionPage,
    Decision,
    OrganisedCompetition,
    Reason,
    RescoringOut,
    SplitReplacement,
    WaitingDecisions,
)
from server.competitions import (
    competitions,
    lifecycle,
    participants,
    participation,
    questions,
    split_replacement,
    split_share,
    stalled_preparations,
)
from server.competitions.stored_file import stored_file
from server.db import now
from server.deps import SessionDep, StorageDep
from server.finals import finals
from server.models.competition import Competition
from server.problem_details import problems
from server.submissions import organiser_list, submissions
from server.submissions.quota import Quota

router = APIRouter(prefix="/competitions", tags=["competitions"])

WhyBody = Annotated[Reason, Body(default_factory=Reason)]
EXAMPLE = """\
slug = "digits"
title = "Forgetting digits"
opens_at = 2030-01-01T00:00:00Z
closes_at = 2030-03-01T00:00:00Z

[dataset]
name = "digits"

[network]
name = "mlp"

[training]
epochs = 20
learning_rate = 0.1
"""
CompetitionToml = Annotated[str, Body(media_type="application/toml", examples=[EXAMPLE])]


@router.get("", responses=problems(401))
def list_competitions(session: SessionDep, account: OptionalAccount) -> list[CompetitionOut]:
    """List the competitions, the latest to open first."""
    return [CompetitionOut.of(competition) for competition in competitions.list_visible(session, account=account)]


@router.post("", status_code=status.HTTP_201_CREATED, responses=problems(401, 403, 409))
def create_competition(text: CompetitionToml, session: SessionDep, account: CurrentAccount) -> OrganisedCompetition:
    """Create a draft from a competition file, sent as the body. For organisers."""
    return _organised(session, competitions.create(session, text, organiser=account))


@router.get("/{slug}", responses=problems(401, 404))
def show_competition(session: SessionDep, competition: VisibleCompetition, account: OptionalAccount) -> CompetitionPage:
    """Show a competition: dates, limits, metric, state, and what quota the caller has left."""
    quota = submissions.get_quota(session, competition, account, at=now()) if account else None
    return CompetitionPage.whole(competition, quota)


@router.get("/{slug}/quota", responses=problems(401, 404))
def show_quota(session: SessionDep, competition: VisibleCompetition, account: CurrentAccount) -> Quota:
    """Show how many submissions the caller's team has left, and when there are more."""
    return submissions.get_quota(session, competition, account, at=now())


@router.get("/{slug}/preparation", responses=problems(401, 403, 404))
def show_preparation(session: SessionDep, competition: Organised) -> OrganisedCompetition:
    """Show how far the preparation of the splits is. For organisers."""
    return _organised(session, competition)


@router.get("/{slug}/splits/{visibility}/report", responses=problems(401, 403, 404))
def show_split_report(
    visibility: Visibility, session: SessionDep, competition: Organised, storage: StorageDep
) -> SplitReport:
    """Show what the sets of a split hold and share, as soon as its data is cut. For organisers."""
    split = competitions.get_split(session, competition, visibility)
    return split_share.get_split_report(storage, competition, split)


@router.post(
    "/{slug}/splits/{visibility}/replacement",
    status_code=status.HTTP_202_ACCEPTED,
    responses=problems(401, 403, 404, 409, 422),
)
def replace_split(
    visibility: Visibility, body: SplitReplacement, session: SessionDep, competition: Organised, account: CurrentAccount
) -> OrganisedCompetition:
    """Prepare another version of a split, from the data as it is now. For organisers.

    The current version counts until a re-judging with `changed` = split is applied; one on which nothing was evaluated
    is replaced as soon as the other is ready.
    """
    split_replacement.replace(session, competition, visibility, actor=account, reason=body.reason, dataset=body.dataset)
    return _organised(session, competition)


@router.post("/{slug}/prepare", status_code=status.HTTP_202_ACCEPTED, responses=problems(401, 403, 404, 409))
def prepare(
    session: SessionDep,
    competition: Organised,
    account: CurrentAccount,
    *,
    any_device: bool = False,
    measure: bool = False,
) -> OrganisedCompetition:
    """Queue the preparation of both splits; asked again, of those that failed. For organisers.

    any_device: let go of the kind of worker that has begun the splits in the making; another kind begins them again.
    measure: measure one retraining of the ready splits again, which the limit of a run rests on; it is announced.
    """
    prepared = competitions.prepare(session, competition, actor=account, any_device=any_device, measure=measure)
    return _organised(session, prepared)


@router.post("/{slug}/cancel-preparation", responses=problems(401, 403, 404, 409))
def cancel_preparation(session: SessionDep, competition: Organised, account: CurrentAccount) -> OrganisedCompetition:
    """Call the first preparation of the splits off: the competition is a draft again. For organisers."""
    return _organised(session, stalled_preparations.cancel(session, competition, actor=account))


@router.delete("/{slug}", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401, 403, 404, 409))
def delete_competition(session: SessionDep, competition: Organised, account: CurrentAccount) -> None:
    """Delete a draft, for good. Its slug is free again. For organisers."""
    lifecycle.delete_draft(session, competition, actor=account)


@router.patch("/{slug}", responses=problems(401, 403, 404, 409))
def change_competition(
    body: CompetitionChange, session: SessionDep, competition: Organised, account: CurrentAccount
) -> ChangeOut:
    """Change a competition, or with `preview` only say what would differ and whom it affects. For organisers.

    Title, summary, description, pages and who takes part change until it is archived; end, limits and phases until the
    finals are frozen: one that has closed opens again with another end. `file` replaces all of it until it opens, but
    while a preparation is at work; it is a draft then, and the next preparation keeps the models that the file still
    describes (`trains_again`): all, where only ranking, scoring or limits differ.
    """
    changed = competition_edits.change(
        session, competition, body.values, actor=account, reason=body.reason, preview=body.preview
    )
    session.flush()
    return ChangeOut.after(_organised(session, competition), changed, applied=not body.preview)


@router.post("/{slug}/open", responses=problems(401, 403, 404, 409))
def open_competition(
    session: SessionDep, competition: Organised, account: CurrentAccount, why: WhyBody
) -> OrganisedCompetition:
    """Open a ready competition now. It opens automatically at its time otherwise. For organisers."""
    return _organised(session, competitions.open_now(session, competition, actor=account, reason=why.reason))


@router.post("/{slug}/close", responses=problems(401, 403, 404, 409))
def close_competition(
    session: SessionDep, competition: Organised, account: CurrentAccount, why: WhyBody
) -> OrganisedCompetition:
    """Close an open competition now: the finals are then scored on the private split. For organisers."""
    return _organised(session, competitions.close_now(session, competition, actor=account, reason=why.reason))


@router.get("/{slug}/rescoring", responses=problems(401, 403, 404))
def show_rescoring(session: SessionDep, competition: Organised) -> RescoringOut:
    """Show how far the re-scoring on the private split is, and which finals wait for a decision. For organisers."""
    return RescoringOut.of(finals.rescoring(session, competition))


@router.post("/{slug}/finals/{submission_id}/decision", responses=problems(401, 403, 404, 409))
def decide_final(
    submission_id: str, body: Decision, session: SessionDep, *, competition: Organised, account: CurrentAccount
) -> RescoringOut:
    """Decide what becomes of a final that failed on the private split. For organisers."""
    submission = submissions.of_competition(session, competition, submission_id)
    acts = {
        "exclude": moderation.exclude_final,
        "run-again": moderation.run_final_again,
        "use-next-choice": moderation.use_next_choice,
    }
    acts[body.decision](session, submission, actor=account, reason=body.reason)
    return RescoringOut.of(finals.rescoring(session, competition))


@router.post("/{slug}/reveal", responses=problems(401, 403, 404, 409))
def reveal_competition(
    session: SessionDep, competition: Organised, account: CurrentAccount, why: WhyBody
) -> OrganisedCompetition:
    """Show the private board to everybody. For organisers."""
    return _organised(session, finals.reveal(session, competition, actor=account, reason=why.reason))


@router.get(
    "/{slug}/starter-kit",
    response_class=Response,
    responses={**problems(401, 403, 404), 200: {"content": {"application/zip": {}}}},
)
def download_kit(
    competition: VisibleCompetition,
    storage: StorageDep,
    session: SessionDep,
    account: OptionalAccount,
    *,
    task: Annotated[str, Query(max_length=40, description="name of a task, each of which has its own kit")] = "",
) -> Response:
    """Download the starter kit: sample data, a first submission, a notebook, the scorer, the rules.

    Where not everybody may take part, or terms must be accepted, only for who may take part.
    """
    participation.check_may_have_data(session, competition, account)
    if task:
        competition = competitions.get_task(session, competition, task)
    headers = {
        "Content-Disposition": f'attachment; filename="{competition.slug}-starter-kit.zip"',
        "X-Content-Type-Options": "nosniff",
    }
    if tasks := stored_file(competition).tasks:
        names = ", ".join(task_name(each.slug) for each in tasks)
        raise NotFound(f"{competition.slug} has a starter kit for each task; name one with `task`: {names}")
    return Response(starter_kit.read_kit(storage, competition.slug), media_type="application/zip", headers=headers)


def _organised(session: Session, competition: Competition) -> OrganisedCompetition:
    splits = [*competitions.splits(session, competition), *competitions.replacements(session, competition)]
    shards, tasks = competitions.model_shards(session, splits), competitions.tasks(session, competition)
    failed = finals.waiting_for_decision(session, competition)
    same = organiser_list.same_files(session, competition)
    waiting = WaitingDecisions(
        unconfirmed_scores=sum(finals.count_unconfirmed(session, competition, split) for split in Visibility),
        requests_to_take_part=participants.count_asked(session, competition),
        open_questions=questions.count_open(session, competition),
    )
    return OrganisedCompetition.with_splits(
        competition, splits, shards, tasks=tasks, failed=failed, waiting=waiting, same_files=same
    )

"""/api/v1/competitions/{slug}/starter-kit: all that is needed to try a method on one's own machine."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from lethe.competition.tasks_section import task_name
from lethe.errors import NotFound
from server import starter_kit
from server.api.auth_dependencies import OptionalAccount, VisibleCompetition
from server.competitions import competitions, participation
from server.competitions.stored_file import stored_file
from server.deps import SessionDep, StorageDep
from server.problem_details import problems

router = APIRouter(prefix="/competitions/{slug}", tags=["competitions"])


@router.get(
    "/starter-kit",
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

"""People: for administrators every account, for organisers who else runs their competition."""

from typing import Annotated

from fastapi import Form, Query, Request, Response

from lethe.errors import InvalidInput
from server.accounts import accounts
from server.admin.accounts_list import find_accounts
from server.competitions import participants
from server.deps import SessionDep
from server.errors import Conflict
from server.models.account import Role
from server.web.cookies import Flash
from server.web.deps import AdministratorDep
from server.web.page_router import page_router
from server.web.place_request import OrganiserDep, needed
from server.web.rendering import page, redirect

router = page_router()

Short = Annotated[str, Query(max_length=60)]
Text = Annotated[str, Form(max_length=500)]
ROLES = {f"make-{role.value}": role for role in Role}


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
    name: str,
    request: Request,
    session: SessionDep,
    viewer: AdministratorDep,
    *,
    act: Text = "",
    reason: Text = "",
) -> Response:
    """Ban an account, lift the ban, or change what it may do."""
    account = accounts.find(session, name)
    if account.id == viewer.id:
        raise Conflict("An administrator cannot do this to the own account")
    why = needed(reason)
    if act == "ban":
        accounts.disable(session, account, actor=viewer, reason=why)
    elif act == "unban":
        accounts.enable(session, account, actor=viewer, reason=why)
    elif act in ROLES:
        accounts.set_role(session, account, ROLES[act], actor=viewer, reason=why)
    else:
        raise InvalidInput(f"{act!r} is not an act; allowed are ban, unban, {', '.join(ROLES)}")
    return redirect(request, f"/people?q={account.name}", flash=Flash("good", f"{account.name}: done."))


@router.post("/organise/{slug}/organisers")
def change_organisers(asked: OrganiserDep, *, act: Text = "", name: Text = "", reason: Text = "") -> Response:
    """Let somebody run the competition, or no longer."""
    change = {"add": participants.add_organiser, "remove": participants.remove_organiser}.get(act)
    if change is None:
        raise InvalidInput(f"{act!r} is not an act; allowed are add, remove")
    account = change(asked.session, asked.competition, name.strip(), actor=asked.viewer, reason=needed(reason))
    done = "organises the competition now" if act == "add" else "organises the competition no longer"
    left_it = act == "remove" and account.id == asked.viewer.id and asked.viewer.role != Role.ADMINISTRATOR
    to = "/organise" if left_it else f"/organise/{asked.competition.slug}/teams"
    return redirect(asked.request, to, flash=Flash("good", f"{account.name} {done}."))

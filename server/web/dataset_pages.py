"""The page of an organiser's datasets: what there is, uploading another, deleting."""

from fastapi import Depends, Request, Response
from starlette.datastructures import FormData

from lethe.errors import AppError
from server.accounts import sessions
from server.admission import AdmissionDep
from server.config import Settings
from server.datasets import service
from server.datasets.upload import received_dataset, store_dataset
from server.db import Database
from server.deps import SessionDep, SettingsDep, StorageDep, UnadmittedDatabase
from server.errors import NotAllowed, NotAuthenticated, Overloaded
from server.models.account import Account, Role
from server.submissions import upload_rate
from server.submissions.upload import MAX_REQUEST_BYTES
from server.web.cookies import SESSION_COOKIE, Flash
from server.web.csrf import FIELD, check_csrf, check_origin, check_token
from server.web.deps import StaffDep
from server.web.page_router import page_router
from server.web.rendering import Reader, page, redirect

NEW = "/organise/new/data"  # what goes on with a dataset that was uploaded there
router = page_router(checks_csrf=False)  # the upload checks its own token, after the size and before the file


@router.get("/datasets")
def datasets_page(request: Request, session: SessionDep, settings: SettingsDep, viewer: StaffDep) -> Response:
    return _page(request, service.list_datasets(session, viewer), settings)


@router.post("/datasets", max_body_size=MAX_REQUEST_BYTES)
async def upload(
    request: Request,
    *,
    admission: AdmissionDep,
    database: UnadmittedDatabase,
    storage: StorageDep,
    settings: SettingsDep,
) -> Response:
    """Take a dataset, or show the page again with what is wrong with it."""
    check_origin(request)
    viewer = await admission.run(_admit, database, request)
    upload_rate.take(settings, viewer.id)
    try:
        await admission.run(_check_room, database, settings, viewer)
        async with received_dataset(request, settings, viewer) as form:
            check_token(request, _text(form, FIELD))
            is_new = _text(form, "then") == NEW
            stored = await store_dataset(
                form, admission=admission, database=database, storage=storage, settings=settings, account=viewer
            )
    except (Overloaded, NotAllowed):
        raise
    except AppError as error:
        return await admission.run(_refused, request, database, settings, viewer, error)
    done = f'Stored. Competition files use it as root = "upload:{stored.name}".'
    to = f"{NEW}?dataset={stored.name}" if is_new else "/datasets"
    return redirect(request, to, flash=Flash("good", done))


@router.post("/datasets/{name}/delete", dependencies=[Depends(check_csrf)])
def delete(name: str, request: Request, session: SessionDep, viewer: StaffDep) -> Response:
    """Delete a dataset that no competition uses."""
    service.delete(session, name, actor=viewer)
    return redirect(request, "/datasets", flash=Flash("good", f"{name} is deleted."))


def _admit(database: Database, request: Request) -> Account:
    """Return who sends, before anything of the body is read."""
    with database.read() as session:
        viewer = sessions.find(session, request.cookies.get(SESSION_COOKIE, ""))
        if viewer is None:
            raise NotAuthenticated("Log in to see this page")
        request.state.viewer = Reader(viewer.id, viewer.name, viewer.role)
        if viewer.role not in (Role.ORGANISER, Role.ADMINISTRATOR):
            raise NotAllowed("Only organisers see this page")
        return viewer


def _check_room(database: Database, settings: Settings, viewer: Account) -> None:
    with database.read() as session:
        service.check_may_upload(session, settings, viewer)


def _refused(request: Request, database: Database, settings: Settings, viewer: Account, error: AppError) -> Response:
    with database.read() as session:
        return _page(request, service.list_datasets(session, viewer), settings, error=error)


def _page(request: Request, datasets: object, settings: Settings, *, error: AppError | None = None) -> Response:
    return page(request, "datasets.html", datasets=datasets, settings=settings, error=error)


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""

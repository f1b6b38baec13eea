"""The page of an organiser's datasets: what there is, uploading another, deleting."""

from fastapi import Depends, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import AppError
from server.admission import AdmissionDep
from server.config import Settings
from server.datasets import datasets
from server.datasets.datasets import received_dataset, store_dataset
from server.deps import SessionDep, SettingsDep, StorageDep, UnadmittedDatabase
from server.errors import NotAllowed, NotAuthenticated, Overloaded
from server.models.account import Account
from server.received_form import text_field
from server.submissions import upload_check
from server.submissions.upload_check import MAX_REQUEST_BYTES
from server.web.cookies import FIELD, Flash, check_csrf, check_origin, check_token
from server.web.deps import StaffDep, check_is_staff, get_viewer
from server.web.page_router import page_router
from server.web.rendering import page, redirect

NEW = "/organise/new/data"  # what goes on with a dataset that was uploaded there
router = page_router(checks_csrf=False)  # the upload checks its own token, after the size and before the file


@router.get("/datasets")
def datasets_page(request: Request, session: SessionDep, settings: SettingsDep, viewer: StaffDep) -> Response:
    return _page(session, request, settings, viewer)


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
    viewer = await admission.read(database, _admit, request)
    upload_check.take(settings, viewer.id)
    try:
        await admission.read(database, datasets.check_may_upload, settings, viewer)
        async with received_dataset(request, settings) as form:
            check_token(request, text_field(form, FIELD))
            is_new = text_field(form, "then") == NEW
            stored = await store_dataset(
                form, admission=admission, database=database, storage=storage, settings=settings, account=viewer
            )
    except (Overloaded, NotAllowed):
        raise
    except AppError as error:
        return await admission.read(database, _page, request, settings, viewer, error=error)
    done = f'Stored. Competition files use it as root = "upload:{stored.name}".'
    to = f"{NEW}?dataset={stored.name}" if is_new else "/datasets"
    return redirect(request, to, flash=Flash("good", done))


@router.post("/datasets/{name}/delete", dependencies=[Depends(check_csrf)])
def delete(name: str, request: Request, session: SessionDep, viewer: StaffDep) -> Response:
    """Delete a dataset that no competition uses."""
    datasets.delete(session, name, actor=viewer)
    return redirect(request, "/datasets", flash=Flash("good", f"{name} is deleted."))


def _admit(session: Session, request: Request) -> Account:
    """Return who sends, before anything of the body is read."""
    viewer = get_viewer(request, session)
    if viewer is None:
        raise NotAuthenticated("Log in to see this page")
    check_is_staff(viewer)
    return viewer


def _page(
    session: Session, request: Request, settings: Settings, viewer: Account, *, error: AppError | None = None
) -> Response:
    listed = datasets.list_datasets(session, viewer)
    return page(request, "datasets.html", datasets=listed, settings=settings, error=error)

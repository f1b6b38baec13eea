"""/api/v1/datasets: an organiser's own data for competitions."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, status
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from server.admission import AdmissionDep
from server.api.auth_dependencies import Credentials, find_caller, require_staff
from server.api.schema import Out
from server.config import Settings
from server.datasets import datasets
from server.datasets.datasets import received_dataset, store_dataset
from server.deps import SessionDep, SettingsDep, StorageDep, UnadmittedDatabase
from server.models.account import Account
from server.problem_details import problems
from server.received_form import FORM
from server.submissions import upload_check


class DatasetForm(BaseModel):
    """The form of an upload."""

    name: str = Field(description="how competition files call it", examples=["faces-2026"])
    file: bytes = Field(description="a zip of plain files", json_schema_extra={"format": "binary"})


class DatasetOut(Out):
    """An uploaded dataset."""

    name: str = Field(examples=["faces-2026"])
    sha256: str = Field(description="of the archive")
    archive_bytes: int
    unpacked_bytes: int
    files: int
    created_at: datetime
    stored_at: datetime | None = Field(description="empty while the file is on its way, or was lost on it")


FORM_SCHEMA: dict[str, Any] = DatasetForm.model_json_schema()


router = APIRouter(prefix="/datasets", tags=["datasets"])
Staff = Annotated[Account, Depends(require_staff)]
UPLOAD_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {FORM: {"schema": FORM_SCHEMA}}}}


@router.post("", status_code=status.HTTP_201_CREATED, responses=problems(401, 403, 409, 415), openapi_extra=UPLOAD_BODY)
async def upload_dataset(
    request: Request,
    *,
    admission: AdmissionDep,
    database: UnadmittedDatabase,
    storage: StorageDep,
    settings: SettingsDep,
    credentials: Credentials,
) -> DatasetOut:
    """Upload a dataset, a zip of plain files. A competition file uses it as `root = "upload:NAME"`. For organisers.

    Its content never changes; another version is another dataset.
    """
    account = await admission.read(database, _admit, settings, request, credentials)
    upload_check.take(settings, account.id)
    async with received_dataset(request, settings) as form:
        stored = await store_dataset(
            form, admission=admission, database=database, storage=storage, settings=settings, account=account
        )
    return DatasetOut.model_validate(stored)


@router.get("", responses=problems(401, 403))
def list_datasets(session: SessionDep, account: Staff) -> list[DatasetOut]:
    """List your datasets by name; an administrator sees every one."""
    return [DatasetOut.model_validate(dataset) for dataset in datasets.list_datasets(session, account)]


@router.delete("/{name}", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401, 403, 404, 409))
def delete_dataset(name: str, session: SessionDep, account: Staff) -> None:
    """Delete a dataset that no competition uses. Its name is free again."""
    datasets.delete(session, name, actor=account)


def _admit(session: Session, settings: Settings, request: Request, credentials: Credentials) -> Account:
    """Return who sends, before anything of the body is read."""
    account = find_caller(session, request, credentials)
    datasets.check_may_upload(session, settings, account)
    return account

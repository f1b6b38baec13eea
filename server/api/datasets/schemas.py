"""What goes in and out of the routes of datasets."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from server.api.schema import Out


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

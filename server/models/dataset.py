"""Datasets that organisers uploaded."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.db import Base, new_id, now
from server.models.account import Account


class Dataset(Base):
    """An archive in storage, under its SHA-256. Competition files name it; its content never changes.

    A row is written before its file, so that it counts meanwhile, and `stored_at` once the file is there. A deleted one
    counts until `lethe gc --delete` has removed the file.
    """

    __tablename__ = "datasets"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"), index=True)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    archive_bytes: Mapped[int] = mapped_column(BigInteger)
    unpacked_bytes: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=now)
    stored_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship(lazy="raise")

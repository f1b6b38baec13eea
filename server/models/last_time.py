"""When something of the instance's upkeep last happened."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from server.db import Base, database_time


class LastTime(Base):
    __tablename__ = "last_times"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    at: Mapped[datetime] = mapped_column(default=database_time())

"""What of the queue and of failures the dashboard shows."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True)
class Waiting:
    """The queued work of one team."""

    competition: Annotated[str, Field(examples=["digits"])]
    task: Annotated[str, Field(description="of the competition; empty where it has none", examples=["faces"])]
    team: Annotated[str, Field(examples=["ada"])]
    shards: int
    runs: int
    oldest_at: datetime


@dataclass(frozen=True)
class Running:
    """A shard that a worker holds."""

    worker: str | None
    competition: str
    task: Annotated[str, Field(description="of the competition; empty where it has none", examples=["faces"])]
    team: str
    submission_id: str
    first_run: int
    n_runs: int
    runs_done: int
    attempt: int
    lease_expires_at: datetime | None


@dataclass(frozen=True)
class FailureCount:
    """How many submissions failed in one way within seven days; of a competition with tasks, in one task."""

    error_class: Annotated[str | None, Field(examples=["exception"])]
    fault: Annotated[str | None, Field(examples=["participant"])]
    count: int
    newest_at: datetime | None
    competition: Annotated[str, Field(examples=["digits"])]
    task: Annotated[str, Field(description="of the competition; empty where it has none", examples=["faces"])]
    teams: Annotated[int, Field(description="how many teams failed so")]

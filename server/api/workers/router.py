"""/api/v1/competitions/{slug}/worker-tokens: which machines may run a competition's shards; which worker is calling."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import BackgroundTasks, Depends, status
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import Field, JsonValue
from sqlalchemy.orm import Session

from lethe.evaluation.sample_answer_files import UnlearnedAnswers
from lethe.runtime.error_classes import ErrorClass
from server.admission import Admission, AdmissionDep
from server.api.auth_dependencies import Credentials, CurrentAccount, organiser_routes
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.schema import FromProgram, In, Out
from server.db import Database, now
from server.deps import DatabaseDep, SessionDep, UnadmittedDatabase
from server.errors import NotAuthenticated
from server.evaluations.claimed_shard import ShardFailure
from server.models.submission import Fault
from server.models.worker import WorkerFacts, WorkerToken
from server.problem_details import problems
from server.workers import registration

MAX_LOG_CHARS = 1 << 20
Runs = Annotated[int, Field(ge=0, le=65_536)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class NewWorkerToken(In):
    """A token for an organiser's own machines."""

    name: str = Field(min_length=1, max_length=100, examples=["gpu room"])
    expires_in_days: int = Field(default=90, ge=1, le=366)
    public_only: bool = Field(default=False, description="no shard of the private split")
    trusted: bool = Field(default=False, description="results count unchecked; for administrators to say")


class WorkerTokenOut(Out):
    """A worker token, without the token itself."""

    id: str = Field(examples=["0a1b2c3d4e5f6071"])
    name: str
    public_only: bool
    trusted: bool
    confirmed_runs: int = Field(description="that a trusted worker made again and found the same")
    quarantined_at: datetime | None
    quarantine_reason: str
    created_at: datetime
    expires_at: datetime
    last_seen_at: datetime | None = Field(description="right to a minute")


class IssuedWorkerTokenOut(WorkerTokenOut):
    """A worker token at the only time when it can be read."""

    token: str = Field(examples=["lethe_worker_3q2-7wAAAA..."])


class AttachedWorkerOut(Out):
    """One process that runs shards with a worker token."""

    name: str = Field(examples=["0a1b2c3d4e5f6071/gpu7-4242-9f3c"])
    token_id: str
    state: str = Field(examples=["active"])
    device: str
    memory_mib: int
    versions: dict[str, Any]
    refusals: list[str] = Field(description="why splits refuse it")
    started_at: datetime
    seen_at: datetime


class Facts(FromProgram):
    """What a worker says of itself."""

    device: Literal["cpu", "cuda"]
    memory_mib: int = Field(ge=0, le=2**31 - 1, description="for one run")
    versions: dict[str, str] = Field(max_length=20, examples=[{"torch": "2.13.0", "python": "3.12.4"}])

    def of(self, name: str) -> WorkerFacts:
        return WorkerFacts(name, self.device, self.memory_mib, dict(self.versions))


class StateIn(FromProgram):
    """What a worker is about to do."""

    state: Literal["draining", "stopped", "cooling", "quarantined"]
    detail: str = Field(default="", max_length=500, description="why its host takes nothing")


class ProgressIn(FromProgram):
    """How far an attempt is."""

    runs_done: Runs
    wall_time_s: Seconds = Field(default=0.0, description="of the participant's clock, all runs together")


class ControlsIn(FromProgram):
    """What confines the attempt's runs."""

    controls: dict[str, JsonValue] = Field(max_length=100)


class RunLogIn(FromProgram):
    """What one run printed."""

    run: Runs
    text: str = Field(max_length=MAX_LOG_CHARS)


class PassedIn(FromProgram):
    """The end of a smoke run: what it printed, and what a language model answers to the sample's questions."""

    wall_time_s: Seconds
    logs: list[RunLogIn] = Field(default_factory=list, max_length=16)
    answers: UnlearnedAnswers | None = None


class FailureIn(FromProgram):
    """Why a run of the participant's code ended without a model."""

    fault: Literal["participant", "organiser"] = Field(
        default="participant", description="organiser: the competition's own files are the cause"
    )
    error_class: str = Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")
    message: str = Field(max_length=2000)
    run: Runs
    exception_type: str | None = Field(default=None, max_length=200)
    file: str | None = Field(default=None, max_length=500)
    line: int | None = Field(default=None, ge=0, le=10_000_000)
    detail: str = Field(default="", max_length=10_000)
    class_message: str = Field(default="", max_length=2000)
    detail_bits: float = Field(default=0.0, ge=0, le=10_000, allow_inf_nan=False)
    runs_done: Runs = 0
    logs: list[RunLogIn] = Field(default_factory=list, max_length=16)

    def failure(self) -> ShardFailure:
        values = self.model_dump(exclude={"runs_done", "logs", "fault", "error_class"})
        return ShardFailure(fault=Fault(self.fault), error_class=ErrorClass(self.error_class), **values)


class ReasonIn(FromProgram):
    """Why a shard is given back."""

    reason: str = Field(max_length=2000)
    runs_done: Runs = 0


class StepOut(Out):
    """Whether the step counts; if not, the shard is in other hands, cancelled or at its end."""

    held: bool


router = organiser_routes()


@router.get("/worker-tokens")
def list_worker_tokens(session: SessionDep, competition: Organised) -> list[WorkerTokenOut]:
    """List the worker tokens that are not revoked."""
    return [WorkerTokenOut.model_validate(row) for row in registration.of_competition(session, competition)]


@router.post("/worker-tokens", status_code=status.HTTP_201_CREATED, responses=problems(409))
def create_worker_token(
    body: NewWorkerToken, session: SessionDep, competition: Organised, account: CurrentAccount
) -> IssuedWorkerTokenOut:
    """Create token with which machines of your own may run this competition's shards. It is shown this once."""
    valid_for = timedelta(days=body.expires_in_days)
    issued = registration.issue_token(
        session,
        competition,
        name=body.name,
        valid_for=valid_for,
        public_only=body.public_only,
        trusted=body.trusted,
        actor=account,
    )
    return IssuedWorkerTokenOut.read(issued.row, token=issued.token)


@router.delete("/worker-tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_worker_token(token_id: str, session: SessionDep, competition: Organised, account: CurrentAccount) -> None:
    """Revoke a worker token. Shards of its workers return to the queue at once."""
    registration.revoke_token(session, competition, token_id, actor=account)


@router.get("/workers")
def list_attached_workers(session: SessionDep, competition: Organised) -> list[AttachedWorkerOut]:
    """List the workers registered with this competition's tokens, latest report first."""
    rows = registration.attached(session, competition)
    return [AttachedWorkerOut.read(row, refusals=list(row.refusals.values())) for row in rows]


def identify(session: Session, credentials: HTTPAuthorizationCredentials | None) -> WorkerToken:
    """Return the valid worker token that came with a request. Raises NotAuthenticated."""
    row = registration.find_token(session, credentials.credentials) if credentials else None
    if row is None:
        raise NotAuthenticated(
            f"This needs a worker token ({registration.TOKEN_PREFIX}...), neither revoked, quarantined nor expired"
        )
    return row


def current_token(
    session: SessionDep,
    credentials: Credentials,
    background: BackgroundTasks,
    *,
    database: DatabaseDep,
    admission: AdmissionDep,
) -> WorkerToken:
    """Return the caller's token. Raises NotAuthenticated."""
    row = identify(session, credentials)
    note_use_later(background, admission, database, row)
    return row


def require_token(database: DatabaseDep, credentials: Credentials) -> None:
    """Turn others away, at once, from a route that opens sessions by itself. Raises NotAuthenticated."""
    with database.read() as session:
        identify(session, credentials)


async def require_token_briefly(
    admission: AdmissionDep, database: UnadmittedDatabase, credentials: Credentials
) -> None:
    """Do the same for a route whose body is long, in a turn that ends before the body is read."""
    await admission.read(database, identify, credentials)


CurrentToken = Annotated[WorkerToken, Depends(current_token)]


def note_use_later(background: BackgroundTasks, admission: Admission, database: Database, row: WorkerToken) -> None:
    """Remember, after the answer has left, that a token was used."""
    if registration.use_is_due(row, now()):
        background.add_task(admission.write, database, registration.note_use, row.id)

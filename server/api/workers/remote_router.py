"""/api/v1/worker: what a worker does that reaches this instance over HTTP alone.

Each step names the shard's attempt, changes nothing if that is no longer the current one, and may be sent again.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Depends, Path, Request, Response, status
from fastapi.responses import FileResponse, RedirectResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials
from sqlalchemy.orm import Session

from lethe.errors import HostFault
from server.admission import Admission, AdmissionDep
from server.api.auth_dependencies import Credentials
from server.api.workers.router import (
    ControlsIn,
    CurrentToken,
    Facts,
    FailureIn,
    PassedIn,
    ProgressIn,
    ReasonIn,
    RunLogIn,
    StateIn,
    StepOut,
    identify,
    note_use_later,
    require_token,
    require_token_briefly,
)
from server.config import Settings
from server.db import Database
from server.deps import DatabaseDep, SessionDep, SettingsDep, StorageDep, UnadmittedDatabase
from server.errors import Conflict, TooLarge
from server.evaluations import leases
from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import ShardKind
from server.models.worker import WorkerState, WorkerToken
from server.problem_details import problems
from server.storage import Storage
from server.workers import artefacts, result_validation, shard_steps, verification
from server.workers.result_validation import Forms, captured_forms
from server.workers.shard_steps import Claim, Terms
from server.workers.verification import StoredCheck

CLAIM_TIMEOUT_S = 10.0
LINK_S = 900  # how long a presigned address of the storage is good for
BINARY = "application/octet-stream"
Worker = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{7,95}$", description="a name of its own choice")]
ShardId = Annotated[int, Path(ge=1, le=2**31 - 1)]
Attempt = Annotated[int, Path(ge=1, le=2**31 - 1)]

router = APIRouter(prefix="/worker/{worker}", tags=["workers"], responses=problems(401, 404))


def held_shard(
    worker: Worker, shard_id: ShardId, attempt: Attempt, session: SessionDep, token: CurrentToken
) -> ClaimedShard:
    """Return the shard of the path, which this worker claimed. Raises NotFound."""
    shard_steps.require_valid(session, token)
    return shard_steps.held(session, token, worker, shard_id=shard_id, attempt=attempt)


Held = Annotated[ClaimedShard, Depends(held_shard)]


@dataclass(frozen=True)
class AttemptRequest:
    """A request about an attempt whose files are long: its route opens sessions by itself, as briefly as it can."""

    worker: str
    shard_id: int
    attempt: int
    database: Database
    credentials: HTTPAuthorizationCredentials | None

    def shard(self, session: Session) -> ClaimedShard:
        """Return the shard, which this worker claimed. Raises NotAuthenticated or NotFound."""
        token = identify(session, self.credentials)
        shard_steps.require_valid(session, token)
        return shard_steps.held(session, token, self.worker, shard_id=self.shard_id, attempt=self.attempt)


def asked(
    worker: Worker, shard_id: ShardId, attempt: Attempt, database: UnadmittedDatabase, credentials: Credentials
) -> AttemptRequest:
    return AttemptRequest(worker, shard_id, attempt, database, credentials)


AskedFor = Annotated[AttemptRequest, Depends(asked)]
SHARD = "/shards/{shard_id}/{attempt}"


@router.put("", dependencies=[Depends(require_token)], responses=problems(409))
def register_worker(
    worker: Worker, body: Facts, settings: SettingsDep, database: DatabaseDep, credentials: Credentials
) -> Terms:
    """Say what the worker is. It is refused with the reasons if no split of the competition takes it."""

    def step(session: Session) -> Terms:
        return shard_steps.register(session, settings, identify(session, credentials), body.of(worker))

    return shard_steps.require_accepted(database.retrying(step, within_s=CLAIM_TIMEOUT_S))


@router.put("/state", status_code=status.HTTP_204_NO_CONTENT)
def set_worker_state(worker: Worker, body: StateIn, session: SessionDep, token: CurrentToken) -> None:
    """Say that the worker takes nothing until it registers again, or has ended."""
    shard_steps.set_state(session, token, worker, WorkerState(body.state), detail=body.detail)


@router.post("/claim", dependencies=[Depends(require_token)])
def claim_shard(
    worker: Worker,
    background: BackgroundTasks,
    *,
    database: DatabaseDep,
    storage: StorageDep,
    settings: SettingsDep,
    admission: AdmissionDep,
    credentials: Credentials,
) -> Claim:
    """Ask for the fairest shard. A worker that holds one already is told of that one again."""

    def step(session: Session) -> tuple[WorkerToken, Claim]:
        token = identify(session, credentials)
        return token, shard_steps.claim(session, settings, token, worker)

    token, claim = database.retrying(step, within_s=CLAIM_TIMEOUT_S)
    note_use_later(background, admission, database, token)
    shard = claim.shard
    if shard is not None:
        shard = _as_remote_workers_see_it(database, storage, settings, shard)
    return replace(claim, shard=shard)


@router.put(SHARD + "/lease")
def renew_lease(body: ProgressIn, session: SessionDep, settings: SettingsDep, shard: Held) -> StepOut:
    """Keep the shard, and say how far it is. `held` is false once it is in other hands or its time is up."""
    held = shard_steps.heartbeat(session, settings, shard, runs_done=body.runs_done, wall_time_s=body.wall_time_s)
    return StepOut(held=held)


@router.put(SHARD + "/controls", status_code=status.HTTP_204_NO_CONTENT)
def note_controls(body: ControlsIn, session: SessionDep, shard: Held) -> None:
    """Say what confines the attempt's runs."""
    leases.note_controls(session, shard, body.controls)


@router.get(
    SHARD + "/files/{sha256}",
    dependencies=[Depends(require_token)],
    response_class=Response,
    responses={200: {"content": {BINARY: {}}}, 307: {"description": "The storage's own address of the file"}},
)
def download_file(
    sha256: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")],
    asked_for: AskedFor,
    *,
    storage: StorageDep,
    settings: SettingsDep,
    admission: AdmissionDep,
) -> Response:
    """Download a file of a shard that the worker holds: the submission, its split's manifest, a file named there."""
    with asked_for.database.read() as session:
        shard = shard_steps.require_current(session, asked_for.shard(session))
    split = artefacts.workers_split(storage, shard)
    if sha256 == split.manifest_sha256:
        return Response(split.manifest, media_type=BINARY)
    key = artefacts.stored_key(storage, shard, sha256)
    return _file(storage, key, direct=settings.worker_downloads == "storage", admission=admission)


@router.put(
    SHARD + "/result",
    dependencies=[Depends(require_token_briefly)],
    responses=problems(409, 413),
    openapi_extra={"requestBody": {"required": True, "content": {BINARY: {"schema": {"format": "binary"}}}}},
)
async def send_result(
    request: Request, asked_for: AskedFor, *, storage: StorageDep, settings: SettingsDep, admission: AdmissionDep
) -> StepOut:
    """Send the outputs of the shard's runs (safetensors), and so close it. They are kept if the attempt counts."""
    shard, n_forget = await admission.run(_shard_of_runs, asked_for)
    captured = await admission.run(captured_forms, storage, shard)
    data = await _received(request, max_bytes=result_validation.max_bytes(shard, n_forget=n_forget, captured=captured))
    return await admission.run(_take_result, asked_for, storage, settings, data, n_forget=n_forget, captured=captured)


@router.put(
    SHARD + "/weights",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[Depends(require_token_briefly)],
    responses=problems(409, 413),
    openapi_extra={"requestBody": {"required": True, "content": {BINARY: {"schema": {"format": "binary"}}}}},
)
async def send_weights(request: Request, asked_for: AskedFor, storage: StorageDep, admission: AdmissionDep) -> None:
    """Send the weights of the first runs that the competition keeps (safetensors), before the result that names them.

    They are kept if the attempt counts.
    """
    shard, _ = await admission.run(_shard_of_runs, asked_for)
    data = await _received(request, max_bytes=await admission.run(artefacts.max_bytes, storage, shard))
    await admission.run(_take_weights, asked_for, storage, data)


@router.post(SHARD + "/passed", responses=problems(409))
def end_smoke_run(
    body: PassedIn, session: SessionDep, *, storage: StorageDep, settings: SettingsDep, shard: Held
) -> StepOut:
    """End a smoke run that went well."""
    if shard.kind is not ShardKind.SMOKE:
        raise Conflict("A shard of runs ends with its result; send that to .../result")
    key, sha256 = None, None
    if body.answers is not None and leases.is_current(session, shard):
        data = body.answers.model_dump_json().encode()
        key, sha256 = result_validation.key_by_content(shard, data)
        storage.write(key, data)
    held = shard_steps.close(
        session,
        settings,
        shard,
        _logs(body.logs),
        result_key=key,
        result_sha256=sha256,
        wall_time_s=body.wall_time_s,
        measured_s=leases.measured_s(session, shard),
    )
    return StepOut(held=held)


@router.post(SHARD + "/failure")
def fail_shard(body: FailureIn, session: SessionDep, shard: Held) -> StepOut:
    """End the complete evaluation: a run of the participant's code failed."""
    held = shard_steps.fail(session, shard, body.failure(), _logs(body.logs), runs_done=body.runs_done)
    return StepOut(held=held)


@router.post(SHARD + "/give-back")
def give_shard_back(body: ReasonIn, session: SessionDep, settings: SettingsDep, shard: Held) -> StepOut:
    """Return the shard because this host cannot run it. Several such attempts end its evaluation."""
    held = shard_steps.give_back(session, settings, shard, reason=body.reason, runs_done=body.runs_done)
    return StepOut(held=held)


@router.post(SHARD + "/hand-over")
def hand_shard_over(body: ProgressIn, session: SessionDep, shard: Held) -> StepOut:
    """Return the shard because the worker stops, which is nobody's fault."""
    return StepOut(held=shard_steps.hand_over(session, shard, runs_done=body.runs_done))


@router.post(SHARD + "/over-time")
def end_over_time(body: ProgressIn, session: SessionDep, shard: Held) -> StepOut:
    """End the evaluation if its runs together have used up the competition's time; else nothing happens."""
    return StepOut(held=shard_steps.end_if_over_time(session, shard, runs_done=body.runs_done))


def _as_remote_workers_see_it(
    database: Database, storage: Storage, settings: Settings, shard: ClaimedShard
) -> ClaimedShard:
    try:
        return replace(shard, manifest_sha256=artefacts.workers_split(storage, shard).manifest_sha256)
    except HostFault as error:
        with database.write() as session:
            shard_steps.give_back(session, settings, shard, reason=error.detail, runs_done=0)
        raise


def _shard_of_runs(asked_for: AttemptRequest) -> tuple[ClaimedShard, int]:
    with asked_for.database.read() as session:
        shard = asked_for.shard(session)
        if shard.kind is ShardKind.SMOKE:
            raise Conflict("A smoke run has no result; end it with .../passed")
        return shard, shard_steps.n_forget(session, shard)


def _take_result(
    asked_for: AttemptRequest, storage: Storage, settings: Settings, data: bytes, *, n_forget: int, captured: Forms
) -> StepOut:
    with asked_for.database.read() as session:
        shard = asked_for.shard(session)
        wanted, measured_s = leases.is_current(session, shard), leases.measured_s(session, shard)
    result = result_validation.check(data, shard, n_forget=n_forget, captured=captured, measured_s=measured_s)
    if wanted:
        storage.write(result.key, result.data)
    if shard.kind is ShardKind.CHECK:  # a trusted worker's
        made = StoredCheck(result.key, result.sha256, result.data, result.wall_time_s)
        return StepOut(held=verification.settle(asked_for.database, storage, settings, shard, made))
    with asked_for.database.write() as session:
        shard = asked_for.shard(session)
        held = shard_steps.close(
            session,
            settings,
            shard,
            result_key=result.key,
            result_sha256=result.sha256,
            wall_time_s=result.wall_time_s,
            measured_s=leases.measured_s(session, shard),
        )
    return StepOut(held=held)


def _take_weights(asked_for: AttemptRequest, storage: Storage, data: bytes) -> None:
    with asked_for.database.read() as session:
        shard = asked_for.shard(session)
        wanted = leases.is_current(session, shard)
    if not artefacts.n_kept(shard):
        raise Conflict(f"The competition keeps no weights of shard {shard.shard_id}")
    if wanted:
        artefacts.keep(storage, shard, data)


async def _received(request: Request, *, max_bytes: int) -> bytes:
    """Return the body. Raises TooLarge as soon as it is."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_bytes:
            raise TooLarge(f"What is sent of this shard has at most {max_bytes} bytes")
    return bytes(data)


def _file(storage: Storage, key: str, *, direct: bool, admission: Admission) -> Response:
    if storage.is_local:
        path = storage.local_folder(key)
        if not path.is_file():
            raise HostFault(f"storage holds no {key}")
        return FileResponse(path, media_type=BINARY)
    link = storage.signed_url(key, expires_s=LINK_S) if direct else None
    if link:
        return RedirectResponse(link, status_code=status.HTTP_307_TEMPORARY_REDIRECT)
    return StreamingResponse(admission.pieces(storage.chunks(key)), media_type=BINARY)


def _logs(logs: list[RunLogIn]) -> list[tuple[int, str]]:
    return [(log.run, log.text) for log in logs]

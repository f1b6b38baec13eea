"""/api/v1/benchmarks: methods x cells, computed by the workers. For organisers."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from lethe.benchmark.benchmark_file import BenchmarkFile, Scalar
from lethe.competition.file import CompetitionFile
from lethe.competition.sections import Submissions
from lethe.errors import InvalidInput, InvalidSubmission, Violation
from server.admission import AdmissionDep
from server.api.auth_dependencies import Credentials, find_caller, require_staff
from server.api.schema import Out
from server.benchmarks import benchmarks
from server.benchmarks import cells as cell_competitions
from server.benchmarks.cells import MethodRecord
from server.benchmarks.results import BenchmarkProgress, CellProgress
from server.db import now
from server.deps import SessionDep, StorageDep, UnadmittedDatabase
from server.models.account import Account
from server.models.competition import Benchmark
from server.problem_details import problems
from server.storage import Storage
from server.submissions.upload_check import Upload, check_and_store


class CellIn(BaseModel):
    """A cell: its name in the tables, and its competition file as `lethe benchmark validate` makes it."""

    name: str = Field(min_length=1, max_length=200)
    competition: dict[str, Any]


class MethodIn(BaseModel):
    """A method: its row's name and its file. id, constants: of the catalogue's method that it is."""

    name: str = Field(min_length=1, max_length=200)
    source: str = Field(min_length=1, max_length=1 << 18)
    id: str | None = None
    constants: dict[str, Scalar] = {}


class BenchmarkIn(BaseModel):
    """What is to be computed. max_hours: nothing is submitted after that; 0 stops it now."""

    file: BenchmarkFile
    text: str = Field(description="the file as it was written, for the report")
    cells: list[CellIn] = Field(min_length=1, max_length=200)
    methods: list[MethodIn] = Field(min_length=1, max_length=200)
    max_hours: float | None = Field(default=None, ge=0, le=24 * 366)
    retry_failed: bool = Field(default=False, description="also run again what failed")


class BenchmarkOut(Out):
    """A benchmark in a list."""

    slug: str
    cells: int
    methods: int
    created_at: datetime
    submits_until: datetime | None
    complete_at: datetime | None = Field(description="when nothing was left to submit")

    @classmethod
    def of(cls, benchmark: Benchmark) -> "BenchmarkOut":
        return cls.read(benchmark, **_counts(benchmark))


class BenchmarkStatus(BenchmarkOut):
    """How far a benchmark is."""

    progress: list[CellProgress]
    failures: list[str]
    left: int = Field(description="pairs of method and cell without a result")
    left_s: float | None = Field(description="estimate for one worker, null while nothing was measured")
    changed: str = Field(default="", description="what is new since it was last sent")

    @classmethod
    def with_progress(
        cls, benchmark: Benchmark, progress: BenchmarkProgress, *, changed: str = ""
    ) -> "BenchmarkStatus":
        return cls.read(
            benchmark,
            **_counts(benchmark),
            progress=progress.cells,
            failures=list(progress.failures),
            left=progress.left,
            left_s=progress.left_s,
            changed=changed,
        )


def _counts(benchmark: Benchmark) -> dict[str, Any]:
    return {"cells": len(benchmark.cells), "methods": len(benchmark.methods)}


async def checked(storage: Storage, method: MethodIn, *, account_id: str) -> MethodRecord:
    """Return a method that can be run. Raises InvalidSubmission naming it, its line and what is wrong there."""
    upload = Upload("unlearning.py", method.source.encode(), method.name, received_at=now())
    try:
        stored = await check_and_store(storage, upload, account_id=account_id, rules=Submissions())
    except InvalidSubmission as error:
        raise InvalidSubmission(f"method {method.name!r}: {error.detail}", violations=error.violations) from error
    return MethodRecord(
        name=method.name,
        source=method.source,
        sha256=stored.content_sha256,
        kind=stored.kind,
        entry_point=stored.entry_point,
        id=method.id,
        constants=method.constants,
    )


router = APIRouter(prefix="/benchmarks", tags=["organisers"], responses=problems(401, 403))


Organiser = Annotated[Account, Depends(require_staff)]


async def organiser_without_session(
    request: Request, credentials: Credentials, admission: AdmissionDep, database: UnadmittedDatabase
) -> Account:
    """Return the caller, for a route that waits for files to be read and holds no session meanwhile."""
    return await admission.read(database, _organiser, request, credentials)


def own_benchmark(slug: str, session: SessionDep, account: Organiser) -> Benchmark:
    """Return the benchmark of the path, which is the caller's. Raises NotFound."""
    return benchmarks.get(session, slug, account=account)


OwnBenchmark = Annotated[Benchmark, Depends(own_benchmark)]


@router.get("")
def list_benchmarks(session: SessionDep, account: Organiser) -> list[BenchmarkOut]:
    """List your benchmarks, the newest first."""
    return [BenchmarkOut.of(benchmark) for benchmark in benchmarks.list_own(session, account)]


@router.put("/{slug}", responses=problems(409))
async def put_benchmark(  # noqa: PLR0917  what FastAPI gives it
    slug: str,
    body: BenchmarkIn,
    account: Annotated[Account, Depends(organiser_without_session)],
    admission: AdmissionDep,
    database: UnadmittedDatabase,
    storage: StorageDep,
) -> BenchmarkStatus:
    """Ask for a benchmark. What is there already is kept, and nothing is computed twice; asked again, it goes on."""
    if body.file.slug != slug:
        wrong = Violation("file.slug", f"must be {slug}, as in the address", body.file.slug)
        raise InvalidInput("The slug of the file is another one", violations=(wrong,))
    benchmarks.check_parts(body.file, cells=[cell.name for cell in body.cells], methods=[m.name for m in body.methods])
    cells = [
        (cell.name, cell_competitions.checked_cell(cell.competition, name=cell.name, organiser=account))
        for cell in body.cells
    ]
    methods = [await checked(storage, method, account_id=account.id) for method in body.methods]
    return await admission.write(database, _store, account.id, body, cells=cells, methods=methods)


@router.get("/{slug}", responses=problems(404))
def show_benchmark(session: SessionDep, benchmark: OwnBenchmark) -> BenchmarkStatus:
    """Show how far a benchmark is, what failed and why, and how long the rest takes."""
    return BenchmarkStatus.with_progress(benchmark, benchmarks.progress(session, benchmark))


@router.get("/{slug}/results", responses=problems(404))
def show_results(session: SessionDep, benchmark: OwnBenchmark) -> dict[str, Any]:
    """Show all results as one document, which `lethe benchmark table`, `plot`, `report` and `check` read."""
    return benchmarks.get_results(session, benchmark)


def _organiser(session: Session, request: Request, credentials: Credentials) -> Account:
    """Return the caller, an organiser. Raises NotAuthenticated or NotAllowed."""
    account = find_caller(session, request, credentials)
    benchmarks.check_organiser(account)
    return account


def _store(
    session: Session,
    account_id: str,
    body: BenchmarkIn,
    *,
    cells: list[tuple[str, CompetitionFile]],
    methods: list[MethodRecord],
) -> BenchmarkStatus:
    account = session.get_one(Account, account_id)
    until = None if body.max_hours is None else now() + timedelta(hours=body.max_hours)
    benchmark, changed = benchmarks.store(
        session, body.file, body.text, cells=cells, methods=methods, account=account, until=until
    )
    if body.retry_failed:
        benchmarks.retry_failed(session, benchmark)
    return BenchmarkStatus.with_progress(benchmark, benchmarks.progress(session, benchmark), changed=changed)

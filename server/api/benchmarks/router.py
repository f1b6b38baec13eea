"""/api/v1/benchmarks: methods x cells, computed by the workers. For organisers."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.errors import InvalidInput, Violation
from server.admission import AdmissionDep
from server.api.auth_dependencies import Credentials, find_caller, require_staff
from server.api.benchmarks import methods as benchmark_methods
from server.api.benchmarks.schemas import BenchmarkIn, BenchmarkOut, BenchmarkStatus
from server.benchmarks import cells as cell_competitions
from server.benchmarks import service
from server.benchmarks.units import MethodRecord
from server.db import now
from server.deps import SessionDep, StorageDep, UnadmittedDatabase
from server.models.account import Account
from server.models.benchmark import Benchmark
from server.problem_details import problems

router = APIRouter(prefix="/benchmarks", tags=["organisers"], responses=problems(401, 403))


Organiser = Annotated[Account, Depends(require_staff)]


async def organiser_without_session(
    request: Request, credentials: Credentials, admission: AdmissionDep, database: UnadmittedDatabase
) -> Account:
    """Return the caller, for a route that waits for files to be read and holds no session meanwhile."""
    return await admission.read(database, _organiser, request, credentials)


def own_benchmark(slug: str, session: SessionDep, account: Organiser) -> Benchmark:
    """Return the benchmark of the path, which is the caller's. Raises NotFound."""
    return service.get(session, slug, account=account)


OwnBenchmark = Annotated[Benchmark, Depends(own_benchmark)]


@router.get("")
def list_benchmarks(session: SessionDep, account: Organiser) -> list[BenchmarkOut]:
    """List your benchmarks, the newest first."""
    return [BenchmarkOut.of(benchmark) for benchmark in service.list_own(session, account)]


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
    service.check_parts(body.file, cells=[cell.name for cell in body.cells], methods=[m.name for m in body.methods])
    cells = [
        (cell.name, cell_competitions.checked_cell(cell.competition, name=cell.name, organiser=account))
        for cell in body.cells
    ]
    methods = [await benchmark_methods.checked(storage, method, account_id=account.id) for method in body.methods]
    return await admission.write(database, _store, account.id, body, cells=cells, methods=methods)


@router.get("/{slug}", responses=problems(404))
def show_benchmark(session: SessionDep, benchmark: OwnBenchmark) -> BenchmarkStatus:
    """Show how far a benchmark is, what failed and why, and how long the rest takes."""
    return BenchmarkStatus.with_progress(benchmark, service.progress(session, benchmark))


@router.get("/{slug}/results", responses=problems(404))
def show_results(session: SessionDep, benchmark: OwnBenchmark) -> dict[str, Any]:
    """Show all results as one document, which `lethe benchmark table`, `plot`, `report` and `check` read."""
    return service.get_results(session, benchmark)


def _organiser(session: Session, request: Request, credentials: Credentials) -> Account:
    """Return the caller, an organiser. Raises NotAuthenticated or NotAllowed."""
    account = find_caller(session, request, credentials)
    service.check_organiser(account)
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
    until = service.end_after(body.max_hours, at=now())
    benchmark, changed = service.store(
        session, body.file, body.text, cells=cells, methods=methods, account=account, until=until
    )
    if body.retry_failed:
        service.retry_failed(session, benchmark)
    return BenchmarkStatus.with_progress(benchmark, service.progress(session, benchmark), changed=changed)

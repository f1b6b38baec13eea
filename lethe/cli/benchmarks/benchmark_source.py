"""Where the results that a command shows come from: a server, a report, a benchmark file or a folder."""

from pathlib import Path
from typing import Any

from lethe.cli.context import connected
from lethe.errors import InvalidInput

ON_SERVER = "server:"


def read_source(given: str, out: Path) -> dict[str, Any]:
    """Return results: of a server, a report, a benchmark file's folder, or of the only benchmark in a folder."""
    if given.startswith(ON_SERVER):
        from lethe.benchmark.server_runs import get_results

        with connected() as client:
            return get_results(client, given.removeprefix(ON_SERVER))
    source = Path(given)
    if not source.exists():
        raise InvalidInput(f"{source} is not there: name a benchmark file, a folder, a report, or server:SLUG")
    from lethe.benchmark.finished_cells import read_cells, result_files
    from lethe.benchmark.plan import read_plan
    from lethe.benchmark.results import collect, read_results
    from lethe.benchmark.store import require_folder

    if source.is_dir() and not (source / "benchmarks").is_dir() and result_files(source):
        return read_cells(source)
    if source.is_dir():
        return collect(read_plan(_only_benchmark(source)), require_folder(source))
    if source.suffix == ".toml":
        return collect(read_plan(source), require_folder(out))
    return read_results(source)


def _only_benchmark(folder: Path) -> Path:
    from lethe.benchmark.store import read_object, require_folder

    known = sorted((require_folder(folder).root / "benchmarks").glob("*.json"))
    if len(known) != 1:
        names = ", ".join(path.stem for path in known)
        raise InvalidInput(f"{folder} holds several benchmarks ({names}): name the file and give --out {folder}")
    path = Path(read_object(known[0])["file"])
    if not path.is_file():
        raise InvalidInput(f"the benchmark file {path} is not there any more: name a copy and give --out {folder}")
    return path

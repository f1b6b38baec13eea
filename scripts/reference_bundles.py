"""Make the reference splits that are published: of the demo, and of the cells of a benchmark.

`python -m scripts.reference_bundles --out DIR [--sign KEY] [--benchmark FILE --results DIR] [--only demo]`. Splits that
are not there are prepared, which takes as long as `lethe prepare` and `lethe benchmark validate` say; --results: the
folder of a benchmark that has run, whose splits are taken. Ends with 1 if a bundle is too large.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from lethe.benchmark.plan import read_plan
from lethe.benchmark.store import BenchmarkFolder
from lethe.competition.file import read_competition_file
from lethe.competition.visibility import Visibility
from lethe.data.datasets.registry import datasets_beside
from lethe.preparation.prepare import prepare_split
from lethe.reference.bundle import read_key
from lethe.reference.export import export_split

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "examples" / "demo" / "digits.toml"
BENCHMARK = ROOT / "examples" / "benchmarks" / "fashion-tuned.toml"
MAX_BYTES = 50_000_000
LICENCES = {  # of the data that lies in a bundle
    "digits": "Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, UCI), CC BY 4.0",
    "fashion-mnist": "Fashion-MNIST (Zalando SE), MIT",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundles")
    parser.add_argument("--work", type=Path, default=Path("reference-work"), help="folder of splits that are made")
    parser.add_argument("--sign", type=Path, help="private key, from `lethe reference key`")
    parser.add_argument("--benchmark", type=Path, default=BENCHMARK)
    parser.add_argument("--results", type=Path, help="folder of the benchmark's results; default: below --work")
    parser.add_argument("--only", action="append", help="names of bundles; default: all")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    results = BenchmarkFolder(given.results or given.work / given.benchmark.stem)
    key = None if given.sign is None else read_key(given.sign)
    too_large = []
    for name, file, dataset, split in _splits(given.benchmark, results, given.work, given.only):
        path = given.out / f"{name}.lethe.zip"
        leave_out = () if name == "demo" else (2,)  # logits of 10,000 test images are two thirds of the size
        export_split(split, path, licence=LICENCES[dataset], description=f"From {file}.", key=key, leave_out=leave_out)
        size = path.stat().st_size
        print(f"{path}: {size / 1e6:.1f} MB", flush=True)
        too_large += [name] if size >= MAX_BYTES else []
    if too_large:
        sys.exit(f"{MAX_BYTES / 1e6:.0f} MB or more: {', '.join(too_large)}")


def _splits(
    benchmark: Path, results: BenchmarkFolder, work: Path, only: list[str] | None
) -> Iterator[tuple[str, str, str, Path]]:
    """Yield name, file, data set and prepared split of each bundle that is wanted."""
    if only is None or "demo" in only:
        competition, split = read_competition_file(DEMO), work / "demo"
        prepare_split(competition, Visibility.PUBLIC, split)
        yield "demo", DEMO.relative_to(ROOT).as_posix(), competition.dataset.name, split
    for number, cell in enumerate(read_plan(benchmark).cells, start=1):
        name = f"{benchmark.stem}-{number}"
        if only is not None and name not in only:
            continue
        split = results.split_dir(cell)
        if not results.is_prepared(cell):
            with datasets_beside(benchmark):
                prepare_split(cell.competition, Visibility.PUBLIC, split)
        yield name, f"{benchmark.name}, cell {cell.name}", cell.competition.dataset.name, split


if __name__ == "__main__":
    main()

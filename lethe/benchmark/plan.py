"""What a benchmark file asks for: the competition of each cell and the code of each method, with keys of their content.

Equal content has an equal key, so benchmarks in one folder share splits, retrained models and runs. No torch.
"""

import copy
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lethe.benchmark.benchmark_file import (
    SCORES,
    TABLE_METRICS,
    BenchmarkFile,
    Cell,
    InvalidBenchmarkFile,
    MethodEntry,
    Tune,
    parse_benchmark,
)
from lethe.competition.file import CompetitionFile
from lethe.competition.report_section import MAX_CAPTURE, lacking_for_metric
from lethe.competition.task import LEVELS, PROBED_LEVEL, Kind
from lethe.errors import InvalidCompetitionFile, InvalidInput
from lethe.methods.catalogue import method_info
from lethe.methods.rendering import render, set_constants, with_preset
from lethe.text_files import read_text
from lethe.tuning.study import search_ranges

KEY_LENGTH = 20
CUTMIX = {"mixing": "cutmix"}


@dataclass(frozen=True)
class CellPlan:
    """One cell. key: of everything that its models and their stored arrays depend on."""

    name: str
    key: str
    competition: CompetitionFile


@dataclass(frozen=True)
class MethodPlan:
    """One method. files: name -> text, as a submission's. constants: those of the catalogue's method, with defaults.

    fixed: constants that the benchmark sets. has_ranges: whether others have a range; searched: whether they are.
    """

    label: str
    key: str
    files: Mapping[str, str]
    method_id: str | None
    deterministic: bool
    constants: Mapping[str, bool | int | float | str]
    fixed: tuple[str, ...] = ()
    has_ranges: bool = False
    searched: bool = False


@dataclass(frozen=True)
class Plan:
    """path, text: of the benchmark file as it was read. searches: the cell that is searched on, by a cell's key."""

    file: BenchmarkFile
    path: Path
    text: str
    cells: tuple[CellPlan, ...]
    methods: tuple[MethodPlan, ...]
    searches: Mapping[str, CellPlan] = field(default_factory=dict)

    @property
    def search_cells(self) -> tuple[CellPlan, ...]:
        """Return each cell that is searched on once."""
        return tuple({cell.key: cell for cell in self.searches.values()}.values())

    @property
    def file_sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_plan(path: Path) -> Plan:
    """Return what the benchmark file at `path` asks for.

    Raises InvalidBenchmarkFile or InvalidCompetitionFile naming each wrong value and its cell.
    """
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise InvalidBenchmarkFile(f"{path}: cannot be read as UTF-8 text: {error}") from error
    file = parse_benchmark(text, source=str(path))
    cells = tuple(_cell_plan(cell, number, file, path) for number, cell in enumerate(file.cell, start=1))
    names = [cell.name for cell in cells]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidBenchmarkFile(f"{path}: two cells are called {twice!r}: give one of them another `name`")
    _require_metrics_fit(file, cells, path)
    methods = tuple(_method_plan(entry, file, path.parent) for entry in file.methods)
    return Plan(file, path.resolve(), text, cells, methods, _searches(file, cells, path))


def _searches(file: BenchmarkFile, cells: Sequence[CellPlan], path: Path) -> dict[str, CellPlan]:
    """Return the cell that each cell's constants are searched on; cells that differ in the split's seed take turns."""
    if file.tune is None:
        return {}
    seeds = range(file.tune.split_seed, file.tune.split_seed + file.tune.searches)
    if same := next((cell for cell in cells if cell.competition.splits.seed in seeds), None):
        raise InvalidBenchmarkFile(
            f"{path}: tune: split_seed {same.competition.splits.seed} is that of cell {same.name!r}, which is "
            f"reported: name another, of which {file.tune.searches} in a row are free"
        )
    turns: dict[str, int] = {}
    found = {}
    for cell in cells:
        task = _search_cell(cell, file.tune, seed=file.tune.split_seed).key
        turn = turns[task] = turns.get(task, -1) + 1
        found[cell.key] = _search_cell(cell, file.tune, seed=seeds[turn % file.tune.searches])
    return found


def _search_cell(cell: CellPlan, tune: Tune, *, seed: int) -> CellPlan:
    """Return the same task on a split of its own: other forget set, original and retrained models."""
    settings = cell.competition.model_dump(mode="json")
    settings["splits"]["seed"] = seed
    settings["scoring"]["setup"] = "reuse-n-1"
    settings["report"]["keep_weights"] = 0
    settings["n_models"] = tune.runs
    draft = CompetitionFile.model_validate(settings)
    key = cell_key(draft)
    return CellPlan(f"search for {cell.name}", key, CompetitionFile.model_validate(settings | {"slug": f"cell-{key}"}))


def _require_metrics_fit(file: BenchmarkFile, cells: Sequence[CellPlan], path: Path) -> None:
    """Raise InvalidBenchmarkFile for a metric that no cell can have; the main table's are asked for by no file."""
    for request in file.metrics:
        if request.id in SCORES or request.id in TABLE_METRICS:
            continue
        lacking = [lacking_for_metric(request.id, cell.competition.task.kind) for cell in cells]
        if all(lacking):
            raise InvalidBenchmarkFile(f"{path}: metrics: {request.id} needs {lacking[0]}, which no cell has")


def _cell_plan(cell: Cell, number: int, file: BenchmarkFile, path: Path) -> CellPlan:
    source = path.parent / cell.competition
    where = f"{path}: cell {number} ({cell.competition})"
    try:
        given = tomllib.loads(read_text(source))
    except (OSError, ValueError) as error:
        raise InvalidBenchmarkFile(f"{where}: the competition file cannot be read: {error}") from error
    settings = cell_settings(given, cell, file)
    try:
        draft = CompetitionFile.model_validate(settings)
        key = cell_key(draft)
        competition = CompetitionFile.model_validate(settings | {"slug": f"cell-{key}"})
    except ValidationError as error:
        raise InvalidCompetitionFile.from_validation(error, source=where) from error
    network = draft.network.name if cell.network else None
    parts = [str(given.get("slug", source.stem)), network, cell.recipe if cell.recipe != "none" else None]
    return CellPlan(cell.name or " ".join(part for part in parts if part), key, competition)


def cell_settings(given: Mapping[str, Any], cell: Cell, file: BenchmarkFile) -> dict[str, Any]:
    """Return the competition's TOML with the cell's overrides and the benchmark's settings in it."""
    settings = copy.deepcopy(dict(given))
    for name in ("dataset", "training", "splits"):
        settings[name] = settings.get(name, {}) | getattr(cell, name)
    settings["splits"].setdefault("seed", file.split_seed)
    if cell.network is not None:
        options = {name: value for name, value in cell.network.items() if name not in ("name", "options")}
        settings["network"] = {"name": cell.network["name"], "options": cell.network.get("options", {}) | options}
    settings["training"] = with_recipe(settings["training"], cell.recipe)
    settings["n_models"] = file.n_models
    setup = "reuse-n-1" if (cell.seeds or file.seeds) == 1 else "reuse-n-n"
    settings["scoring"] = settings.pop("metric", {}) | settings.get("scoring", {}) | {"setup": setup}
    settings["submissions"] = {"modes": ["function"]}
    settings["limits"] = settings.get("limits", {}) | {
        "run_wall_time_s": file.run_wall_time_s,
        "wall_time_s": file.run_wall_time_s * file.n_models,
        "run_fraction_of_retraining": None,
    }
    settings.pop("ranking", None)  # a benchmark shows every metric by itself
    settings["report"] = _report(file, settings.get("task", {}).get("kind"))
    return settings


def _report(file: BenchmarkFile, given: object) -> dict[str, Any]:
    """Return what a cell of the given kind of task stores: what those of the metrics need that its kind can have."""
    kind: Kind = next((name for name in LEVELS if name == given), "image-classification")
    asked = [request for request in file.metrics if request.id not in SCORES]
    metrics = [request.model_dump() for request in asked if not lacking_for_metric(request.id, kind)]
    levels = [level for level in file.capture_levels if level in LEVELS[kind] and level <= MAX_CAPTURE]
    kept = {"keep_weights": file.keep_weights} if file.keep_weights and PROBED_LEVEL in LEVELS[kind] else {}
    return {"metrics": metrics} | ({"capture": max(levels)} if levels else {}) | kept


def with_recipe(training: Mapping[str, Any], recipe: str) -> dict[str, Any]:
    """Return the training section under a recipe: half of the epochs, CutMix, both or neither.

    Source: Goel et al. 2023 (arXiv:2201.06640), section 4.3; half of the epochs is used as their early stop.
    """
    changed = dict(training)
    if recipe in ("early-stop", "both"):
        epochs = max(1, -(-int(training.get("epochs", 2)) // 2))
        kept = [epoch for epoch in training.get("milestones", ()) if epoch < epochs]
        changed |= {"epochs": epochs} | ({"milestones": kept} if "milestones" in training else {})
    if recipe in ("cutmix", "both"):
        changed |= CUTMIX
    return changed


def cell_key(competition: CompetitionFile) -> str:
    """Return the key of a cell: of its recipe, setup and what is stored, whatever the competition is called."""
    parts = competition.model_dump(mode="json", include={"n_models", "dataset", "network", "training", "splits"})
    parts["splits"].pop("opens_with")  # when a competition's splits are prepared changes none of them
    parts |= {"setup": competition.scoring.setup, "capture": list(competition.report.capture_levels)}
    if competition.report.keep_weights:
        parts |= {"keep_weights": competition.report.keep_weights}
    return content_key(parts)


def content_key(content: Any) -> str:
    """Return the key of plain values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:KEY_LENGTH]


def _method_plan(entry: MethodEntry, file: BenchmarkFile, folder: Path) -> MethodPlan:
    plain = _plain_method(entry, folder)
    fixed = tuple(entry.constants)
    has_ranges = bool(search_ranges(plain.files["unlearning.py"], fixed=fixed))
    searched = has_ranges and entry.tune and file.tune is not None
    return replace(plain, fixed=fixed, has_ranges=has_ranges, searched=searched)


def _plain_method(entry: MethodEntry, folder: Path) -> MethodPlan:
    if entry.method is not None:
        files = {"unlearning.py": render(entry.method, entry.constants)}
        info = method_info(entry.method)
        constants = {constant.name: constant.value for constant in info.constants}
        constants |= with_preset(entry.method, entry.constants)
        return MethodPlan(entry.label, content_key(files), files, entry.method, info.deterministic, constants)
    path = folder / str(entry.file)
    try:
        files = {"unlearning.py": set_constants(read_text(path), entry.constants, owner=path.name)}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidBenchmarkFile(f"the method file {path} cannot be read: {error}") from error
    except InvalidInput as error:
        raise InvalidBenchmarkFile(error.detail) from error
    return MethodPlan(entry.label, content_key(files), files, None, deterministic=False, constants=entry.constants)

"""The share of a benchmark's work that is done, from what is in its folder: also what other processes did."""

from dataclasses import dataclass, field

from lethe.benchmark.estimate import RUN_S, CellEstimate, estimate
from lethe.benchmark.plan import CellPlan, MethodPlan, Plan
from lethe.benchmark.progress import CellProgress, benchmark_progress
from lethe.benchmark.store import BenchmarkFolder
from lethe.benchmark.tuned_methods import study_file
from lethe.competition.preparation_share import preparation_share
from lethe.preparation.step_cache import PreparationProgress
from lethe.tuning.study import Study


@dataclass
class ShareDone:
    """Looks how much is done. Cells are weighted by their estimated time: models to train, then runs."""

    plan: Plan
    folder: BenchmarkFolder
    device: str
    _weights: dict[str, tuple[float, float]] = field(default_factory=dict)
    _preparing: dict[str, float] = field(default_factory=dict)

    def note_preparation(self, cell: CellPlan, state: PreparationProgress) -> None:
        """Remember how far the preparation of a cell is."""
        share = preparation_share(cell.competition, stage=state.stage, progress=state.done / max(state.total, 1))
        self._preparing[cell.name] = max(share, self._preparing.get(cell.name, 0.0))

    def now(self) -> tuple[float, str]:
        """Return the share done, 0 to 1, and the counts in words."""
        if not self._weights:
            found = estimate(self.plan, device=self.device)
            self._weights = {cell.name: _weights(cell, by_time=found.is_whole) for cell in found.cells}
        progress = benchmark_progress(self.plan, self.folder)
        done = sum(self._done(cell) for cell in progress.cells) + self._searched()
        total = sum(sum(weights) for weights in self._weights.values())
        prepared = sum(cell.split == "prepared" for cell in progress.cells)
        words = f"{prepared} of {len(progress.cells)} cells prepared, {progress.left_units} of method x cell left"
        return done / total, words

    def _done(self, cell: CellProgress) -> float:
        training, unlearning = self._weights[cell.name]
        methods = len(self.plan.methods)
        of_runs = max(cell.n_runs / max(cell.wanted_runs, 1), (cell.n_done + cell.n_failed) / methods)
        return training * self._prepared(cell.name, is_prepared=cell.split != "missing") + unlearning * min(
            of_runs, 1.0
        )

    def _searched(self) -> float:
        """Return what is done of the splits that constants are searched on: their preparation and the searches."""
        done = 0.0
        for cell in self.plan.search_cells:
            training, runs = self._weights[cell.name]
            done += training * self._prepared(cell.name, is_prepared=self.folder.is_prepared(cell))
            shares = [self._of_search(cell, method) for method in self.plan.methods if method.searched]
            done += runs * sum(shares) / max(len(shares), 1)
        return done

    def _of_search(self, cell: CellPlan, method: MethodPlan) -> float:
        path, tune = study_file(self.plan, self.folder, cell, method), self.plan.file.tune
        return Study.read(path).share_done(tune.plan) if tune and path.is_file() else 0.0

    def _prepared(self, name: str, *, is_prepared: bool) -> float:
        return 1.0 if is_prepared else self._preparing.get(name, 0.0)


def _weights(cell: CellEstimate, *, by_time: bool) -> tuple[float, float]:
    if by_time and cell.training_s is not None and cell.unlearning_s is not None:
        return cell.training_s, cell.unlearning_s
    return float(cell.models), cell.runs * RUN_S

"""Preparation of a cell by all processes of a folder: one leads, each trains shards of the many models."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import cast

from lethe.benchmark.plan import CellPlan
from lethe.benchmark.store import BenchmarkFolder, read_object, write_object
from lethe.competition.model_shards import ShardToMake
from lethe.competition.visibility import Visibility
from lethe.errors import AppError
from lethe.evaluation.model_outputs import Kind
from lethe.preparation.fingerprint import maker
from lethe.preparation.prepare import begin_split, prepare_shard, prepare_split
from lethe.preparation.step_cache import OnProgress

WAIT_S = 1.0


class SharedPreparation:
    """One process's part in the preparation of one cell."""

    def __init__(self, cell: CellPlan, folder: BenchmarkFolder, *, device: str) -> None:
        self.cell, self.folder, self.device = cell, folder, device
        self._tried: set[ShardToMake] = set()

    def lead(self, progress: OnProgress) -> None:
        """Prepare the split, sharing the models with whoever helps. The caller holds the cell's lock.

        Raises InvalidDataset, InvalidSplit, UntrainedModel or InvalidCompetitionFile.
        """
        parts = self.cell.competition, Visibility.PUBLIC, self.folder.split_dir(self.cell)
        self._list.unlink(missing_ok=True)
        shards = begin_split(*parts, device=self.device, progress=progress)
        write_object(self._list, {"maker": self._maker, "shards": [asdict(shard) for shard in shards]})
        try:
            while not self._train(shards, progress):
                time.sleep(WAIT_S)
        finally:
            self._list.unlink()
        for shard in shards:
            self._wait_until_left(shard)
        prepare_split(*parts, device=self.device, progress=progress)

    def help(self, *, is_over: Callable[[], bool]) -> None:
        """Train the shards that nobody is at. A failure is left for the leader, which meets it too and reports it.

        is_over: asked before each shard; then no further one is begun.
        """
        with suppress(AppError):
            self._train(self._listed()[::-1], lambda _: None, is_over=is_over)

    def _listed(self) -> list[ShardToMake]:
        """Return what is shared now: nothing before and after, or if models of another torch or device are made."""
        found = read_object(self._list)
        return [ShardToMake(**shard) for shard in found["shards"]] if found.get("maker") == self._maker else []

    def _train(
        self, shards: list[ShardToMake], progress: OnProgress, *, is_over: Callable[[], bool] = lambda: False
    ) -> bool:
        """Train each shard that no other process is at. Return whether all were free."""
        free = [self._train_one(shard, progress) for shard in shards if shard not in self._tried and not is_over()]
        return all(free)

    def _wait_until_left(self, shard: ShardToMake) -> None:
        """Return once no helper is at the shard: who takes its lock afterwards finds no list, and leaves it."""
        while True:
            with self.folder.claimed(self.cell.key, shard.kind, str(shard.position)) as ours:
                if ours:
                    return
            time.sleep(WAIT_S)

    def _train_one(self, shard: ShardToMake, progress: OnProgress) -> bool:
        with self.folder.claimed(self.cell.key, shard.kind, str(shard.position)) as ours:
            if ours and shard in self._listed():
                self._tried.add(shard)
                prepare_shard(
                    self.cell.competition,
                    Visibility.PUBLIC,
                    self.folder.split_dir(self.cell),
                    kind=cast(Kind, shard.kind),
                    shard=shard.position,
                    device=self.device,
                    progress=progress,
                )
        return ours

    @property
    def _maker(self) -> str:
        return maker(self.cell.competition, Visibility.PUBLIC, device=self.device)

    @property
    def _list(self) -> Path:
        return self.folder.cell_dir(self.cell) / "shards.json"

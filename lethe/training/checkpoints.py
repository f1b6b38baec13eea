"""Models in training, kept between epochs, so that a stopped preparation goes on where it was.

Nothing is written while training is quick: the clock decides, not the epoch, and at most `every_s` seconds are lost.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from lethe.data.errors import DamagedSplit, SplitNotPrepared
from lethe.data.files import read_tensors_and_metadata, write_tensors
from lethe.training.trainer import EpochTraining, State

EVERY_S = 20.0


@dataclass
class TrainingCheckpoints:
    """The checkpoints of one set of models. data_digest: what they were trained on; others are not taken over."""

    folder: Path
    data_digest: str
    every_s: float = EVERY_S
    _saved_at: float = field(default_factory=time.monotonic)
    _unsaved: dict[int, State] = field(default_factory=dict)

    def finished(self, index: int) -> State | None:
        """Return the model if an earlier process finished it."""
        return self._read(self._model_path(index))

    def resume(self, training: EpochTraining, index: int) -> None:
        """Bring a training that has just started to the last epoch kept."""
        kept = self._read(self._epoch_path(index))
        if kept is not None:
            training.restore(kept)

    def after_epoch(self, training: EpochTraining, index: int) -> None:
        """Keep the training if enough time has passed."""
        if time.monotonic() - self._saved_at < self.every_s:
            return
        self._flush()
        if training.epoch < training.job.recipe.epochs:
            self._write(self._epoch_path(index), training.snapshot())

    def model_done(self, index: int, state: State) -> None:
        """Take a finished model; it is written when the time comes."""
        self._unsaved[index] = state
        if time.monotonic() - self._saved_at >= self.every_s:
            self._flush()

    def clear(self, indices: range) -> None:
        """Forget the models of a shard whose own file is written."""
        for index in indices:
            self._unsaved.pop(index, None)
            self._model_path(index).unlink(missing_ok=True)
            self._epoch_path(index).unlink(missing_ok=True)

    def _flush(self) -> None:
        for index, state in self._unsaved.items():
            self._write(self._model_path(index), state)
            self._epoch_path(index).unlink(missing_ok=True)
        self._unsaved.clear()
        self._saved_at = time.monotonic()

    def _write(self, path: Path, tensors: dict[str, Tensor]) -> None:
        write_tensors(path, tensors, metadata={"data": self.data_digest})

    def _read(self, path: Path) -> dict[str, Tensor] | None:
        try:
            tensors, metadata = read_tensors_and_metadata(path)
        except (SplitNotPrepared, DamagedSplit):
            return None
        return tensors if metadata.get("data") == self.data_digest else None

    def _model_path(self, index: int) -> Path:
        return self.folder / f"model-{index:05d}.safetensors"

    def _epoch_path(self, index: int) -> Path:
        return self.folder / f"model-{index:05d}.epoch.safetensors"

"""What a training run has after some steps, in one file, from which the same run goes on to the same weights."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors_and_metadata, write_tensors
from lethe.errors import InvalidInput

DEVICE_STATE, HOST_STATE = "random.device", "random.host"


@dataclass
class Checkpoint:
    """The file of one run. run: what makes it this run, texts by name. every_s: seconds between two writings.

    The file holds the trained weights, the optimiser's state, the states of the random generators and what the method
    remembers. Batches are not stored: they are drawn again.
    """

    path: Path
    run: Mapping[str, str]
    device: torch.device
    every_s: float
    _written_at: float = field(default_factory=time.monotonic)

    def require_same_run(self) -> None:
        """Raise InvalidInput if the file is there, and is another run's or cannot be read; the difference is named."""
        if not self.path.exists():
            return
        stored = json.loads(self._read()[1].get("run", "{}"))
        for name in dict.fromkeys([*self.run, *stored]):
            if stored.get(name) != self.run.get(name):
                raise InvalidInput(
                    f"{self.path} is of a run that was interrupted, with another {name}: {stored.get(name)} there, "
                    f"{self.run.get(name)} here. Give what was given then, or remove the file to start over"
                )

    def restore(self, optimizer: torch.optim.Optimizer, state: dict[str, Any] | None) -> int:
        """Put what the file holds into the trained weights, the optimiser and the state, and return its steps."""
        if not self.path.exists():
            return 0
        tensors, about = self._read()
        weights = _weights(optimizer)
        with torch.no_grad():
            for place, weight in enumerate(weights):
                weight.copy_(tensors[f"weight.{place}"])
        of_weights: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            kind, _, rest = key.partition(".")
            if kind == "optimizer":
                number, _, name = rest.partition(".")
                of_weights.setdefault(int(number), {})[name] = tensor
            elif kind == "state" and state is not None:
                state[rest] = tensor.to(self.device)
        optimizer.load_state_dict({"state": of_weights, "param_groups": optimizer.state_dict()["param_groups"]})
        if state is not None:
            state |= json.loads(about["state"])
        torch.set_rng_state(tensors[HOST_STATE])
        if DEVICE_STATE in tensors:
            torch.cuda.set_rng_state(tensors[DEVICE_STATE], self.device)
        return int(about["n_done"])

    def step_done(self, n_done: int, optimizer: torch.optim.Optimizer, state: dict[str, Any] | None) -> None:
        """Write the file, if the last writing is long enough ago."""
        if time.monotonic() - self._written_at < self.every_s:
            return
        tensors = {f"weight.{number}": weight for number, weight in enumerate(_weights(optimizer))}
        for number, found in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in found.items()}
        remembered = state or {}
        tensors |= {f"state.{name}": value for name, value in remembered.items() if isinstance(value, Tensor)}
        numbers = {name: value for name, value in remembered.items() if not isinstance(value, Tensor)}
        tensors[HOST_STATE] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors[DEVICE_STATE] = torch.cuda.get_rng_state(self.device)
        about = {"run": json.dumps(self.run), "n_done": str(n_done), "state": json.dumps(numbers)}
        write_tensors(self.path, tensors, metadata=about)
        self._written_at = time.monotonic()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            return read_tensors_and_metadata(self.path)
        except DamagedSplit as error:
            raise InvalidInput(f"{self.path} is damaged: remove it to start over") from error


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]

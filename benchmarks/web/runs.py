"""The runs of single submissions: their shards with every attempt, what they printed, and their stored outputs."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
from safetensors.numpy import save

from benchmarks.web.people import N_FORGET, Row
from lethe.competition.file import CompetitionFile

RETRAINED_KEY = "splits/digits/public/hidden/retrained/outputs.safetensors"
PRINTED = "epoch 1, loss 0.4127\nepoch 2, loss 0.2291\n"


class Runs:
    """Shards, attempts, logs and outputs of the submissions that are looked at one by one."""

    def __init__(self, rng: np.random.Generator, at: datetime, *, file: CompetitionFile, looked_at: list[Row]) -> None:
        self.numpy, self.at, self.file, self.looked_at = rng, at, file, looked_at
        self.hashes: dict[str, str] = {}  # of stored outputs, by key

    def outputs(self) -> Iterator[tuple[str, bytes]]:
        """Yield key and content of stored outputs: of the retrained models, and of some scored submissions."""
        yield RETRAINED_KEY, self._outputs(self.file.n_models, shift=0.0)
        for submission in self.looked_at:
            if submission["stage"] == "scored":
                for place, first in enumerate(range(0, self.file.n_models, self.file.shard_runs)):
                    n_runs = min(self.file.shard_runs, self.file.n_models - first)
                    yield _result_key(submission, place), self._outputs(n_runs, shift=0.6)

    def _outputs(self, n: int, *, shift: float) -> bytes:
        levels = np.linspace(-1.0, 5.0, N_FORGET)
        accuracy = self.numpy.normal((0.97 - shift / 40, 0.93 - shift / 30), 0.01, (n, 2)).clip(0, 1)
        classes = self.numpy.normal(0.95 - shift / 25, 0.02, (n, 2, 10)).clip(0, 1)
        arrays = {
            "confidences": levels + shift * self.numpy.random(N_FORGET) + self.numpy.normal(0, 0.7, (n, N_FORGET)),
            "retain_accuracy": accuracy[:, 0].copy(),
            "test_accuracy": accuracy[:, 1].copy(),
            "wall_time_s": self.numpy.gamma(40.0, 0.0078, n),
            "class_accuracy": classes.astype(np.float32),
        }
        return save(arrays)

    def shards(self) -> Iterator[Row]:
        size = self.file.shard_runs
        for number, submission in enumerate(self.looked_at):
            ended = submission["stage"] != "running"
            for place, first in enumerate(range(0, self.file.n_models, size)):
                done = ended or place < 3
                leased = not ended and place == 3
                yield {
                    "id": 1 + number * 100 + place,
                    "evaluation_id": f"e{submission['id'][1:]}",
                    "team_id": submission["team_id"],
                    "split_id": "public",
                    "competition_id": "c",
                    "kind": "runs",
                    "first_run": first,
                    "n_runs": min(size, self.file.n_models - first),
                    "state": "done" if done else "leased" if leased else "queued",
                    "attempt": 2 if place == 1 else 1 if done or leased else 0,
                    "worker": "worker-1" if done or leased else None,
                    "lease_expires_at": self.at + timedelta(minutes=5) if leased else None,
                    "runs_done": size if done else size // 3 if leased else 0,
                    "result_key": _result_key(submission, place) if ended else None,
                    "result_sha256": self.hashes.get(_result_key(submission, place)) if ended else None,
                    "queued_at": submission["received_at"],
                }

    def attempts(self) -> Iterator[Row]:
        for number, submission in enumerate(self.looked_at):
            ended = submission["stage"] != "running"
            start = submission["received_at"] if ended else self.at - timedelta(minutes=4)
            for place in range(8 if ended else 4):
                began = start + timedelta(seconds=20 * place)
                common = {"shard_id": 1 + number * 100 + place, "worker": "worker-1"}
                if place == 1:
                    yield {
                        **common,
                        "attempt": 1,
                        "started_at": began,
                        "ended_at": began + timedelta(seconds=9),
                        "outcome": "lost",
                    }
                leased = not ended and place == 3
                yield {
                    **common,
                    "attempt": 2 if place == 1 else 1,
                    "started_at": began + timedelta(seconds=10),
                    "ended_at": None if leased else began + timedelta(seconds=19),
                    "outcome": "running" if leased else "done",
                }

    def workers(self) -> Iterator[Row]:
        for name, state in (("worker-1", "active"), ("worker-2", "draining")):
            yield {
                "name": name,
                "state": state,
                "device": "cpu",
                "memory_mib": 15_900,
                "versions": {"torch": "2.9.1", "python": "3.11"},
                "refusals": {},
                "started_at": self.at - timedelta(days=2),
                "seen_at": self.at,
            }

    def logs(self) -> Iterator[Row]:
        """Yield what the smoke run printed, and one run on hidden data."""
        for submission in self.looked_at:
            evaluation = {"evaluation_id": f"e{submission['id'][1:]}", "created_at": submission["received_at"]}
            yield evaluation | {"run": 0, "on_public_sample": True, "text": PRINTED}
            yield evaluation | {"run": 0, "on_public_sample": False, "text": PRINTED}


def _result_key(submission: Row, place: int) -> str:
    return f"results/{submission['id']}/{place}"

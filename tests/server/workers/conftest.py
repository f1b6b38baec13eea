"""A competition whose splits lie in storage, an organiser, and a worker that calls as a remote one does."""

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from sqlalchemy import select

from server.models.account import Role
from server.models.competition import Competition, Split
from tests.support.instance import Instance

N_FORGET = 10  # as Instance.competition says
SEED = 987654321
FACTS = {"device": "cpu", "memory_mib": 4096, "versions": {"torch": "2.13.0"}}
FILES = {
    "visible/forget.safetensors": b"forget",
    "sample/forget.safetensors": b"sample",
    "hidden/test.safetensors": b"test set",
    "hidden/retrained/models-00000.safetensors": b"retrained models",
    "hidden/retrained/outputs.safetensors": b"retrained outputs",
    "hidden/oracle/models-00000.safetensors": b"oracle models",
    "hidden/oracle/outputs.safetensors": b"oracle outputs",
    "hidden/probes.safetensors": b"probed references",
    "hidden/originals/models-00000.safetensors": b"original models",
    "hidden/originals/outputs.safetensors": b"outputs of the original models",
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def store_splits(server: Instance, competition: Competition) -> None:
    """Put both splits of a competition into storage, as preparation leaves them."""
    with server.database.write() as session:
        for split in session.scalars(select(Split).where(Split.competition_id == competition.id)):
            where = f"{competition.slug}/{split.visibility}"
            records = {}
            for name, content in FILES.items():
                data = f"{where}: ".encode() + content
                server.storage.write(f"splits/{where}/{name}", data)
                records[name] = {"sha256": sha256(data), "size": len(data)}
            originals = {name: records[name] for name in ["hidden/originals/models-00000.safetensors"]}
            manifest = {
                "format": 1,
                "competition": competition.slug,
                "visibility": split.visibility,
                "recipe": {"splits": {"seed": SEED}},
                "fingerprint": "f" * 64,
                "seeds": {"original": SEED},
                "quality": {"original": {}},
                "files": records,
                "steps": {
                    "data": {"files": {}, "inputs": {"seed": str(SEED)}},
                    "originals-00000": {
                        "files": originals,
                        "inputs": {"seed": str(SEED)},
                        "values": {"first_model": 0, "n_models": 4},
                    },
                },
            }
            data = json.dumps(manifest).encode()
            split.manifest_sha256 = server.storage.write(f"splits/{where}/manifest.json", data)


@dataclass
class RemoteWorker:
    """Calls the worker's routes."""

    server: Instance
    token: str
    name: str = "host-1234-abcd"
    held: dict[str, Any] = field(default_factory=dict)

    def call(self, method: str, path: str, **request: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} | request.pop("headers", {})
        url = f"/api/v1/worker/{self.name}{path}"
        return self.server.client.request(method, url, headers=headers, follow_redirects=False, **request)

    def register(self, **changes: Any) -> Any:
        return self.call("PUT", "", json=FACTS | changes)

    def claim(self) -> dict[str, Any] | None:
        answer = self.call("POST", "/claim")
        assert answer.status_code == 200, answer.text
        self.held = answer.json()["shard"] or {}
        return answer.json()["shard"]  # type: ignore[no-any-return]

    def step(self, method: str, step: str, **request: Any) -> Any:
        shard = self.held
        return self.call(method, f"/shards/{shard['shard_id']}/{shard['attempt']}/{step}", **request)

    def file(self, sha: str) -> Any:
        return self.step("GET", f"files/{sha}")

    def finish(self) -> Any:
        """End the held shard as one whose runs went well."""
        if self.held["kind"] == "smoke":
            return self.step("POST", "passed", json={"wall_time_s": 1.0, "logs": [{"run": 0, "text": "hello"}]})
        return self.step("PUT", "result", content=outputs(self.held["n_runs"]))


def outputs(n_runs: int, **changes: Any) -> bytes:
    """Return what a shard of so many runs gives, with some arrays replaced."""
    arrays = {
        "confidences": np.zeros((n_runs, N_FORGET)),
        "retain_accuracy": np.full(n_runs, 0.9),
        "test_accuracy": np.full(n_runs, 0.8),
        "wall_time_s": np.full(n_runs, 0.5),
        "class_accuracy": np.full((n_runs, 2, 3), 0.5, dtype=np.float32),
    }
    return save({name: array for name, array in (arrays | changes).items() if array is not None})


@dataclass
class Hosted:
    """A running instance with one open competition and its organiser."""

    server: Instance
    competition: Competition
    organiser: dict[str, str]

    def token(self, slug: str = "digits", **body: Any) -> dict[str, Any]:
        """Return a new token; an administrator makes those that are trusted."""
        headers = self.administrator() if body.get("trusted") else self.organiser
        made = self.server.client.post(
            f"/api/v1/competitions/{slug}/worker-tokens", headers=headers, json={"name": "gpu room"} | body
        )
        assert made.status_code == 201, made.text
        return made.json()  # type: ignore[no-any-return]

    def administrator(self) -> dict[str, str]:
        return self.server.headers(self.server.account(f"admin-{secrets.token_hex(4)}", Role.ADMINISTRATOR))

    def revoke(self, token_id: str) -> Any:
        return self.server.client.delete(
            f"/api/v1/competitions/digits/worker-tokens/{token_id}", headers=self.organiser
        )

    def worker(self, name: str = "host-1234-abcd", **body: Any) -> RemoteWorker:
        """Return a registered worker with its own token."""
        worker = RemoteWorker(self.server, self.token(**body)["token"], name)
        assert worker.register().status_code == 200
        return worker


def hosted_on(server: Instance, **values: Any) -> Hosted:
    owner = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=owner, **values)
    store_splits(server, competition)
    return Hosted(server, competition, server.headers(owner))


@pytest.fixture
def hosted(server: Instance) -> Hosted:
    return hosted_on(server)


@pytest.fixture
def hosted_both(both: Instance) -> Hosted:
    """The same on SQLite and on PostgreSQL."""
    return hosted_on(both)


def submit(hosted: Hosted, name: str = "pia", **options: Any) -> str:
    answer = hosted.server.submit(hosted.server.participant(name), **options)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def to_runs(worker: RemoteWorker) -> dict[str, Any]:
    """Pass the smoke run. Return the first shard of runs, which the worker then holds."""
    worker.claim()
    assert worker.finish().json() == {"held": True}
    shard = worker.claim()
    assert shard is not None
    assert shard["kind"] == "runs"
    return shard

"""The loop of a remote worker: registers, runs, comes back after the server was away, and ends where it is refused."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import ShardKind
from server.models.worker import WorkerFacts
from worker.context import RunningContext
from worker.host import backoff, graceful_shutdown
from worker.host.backoff import QUARANTINE_AFTER
from worker.remote import loop
from worker.remote.client import ServerUnreachable, TokenRefused, WorkerRefused
from worker.remote.loop import REFUSED, STOPPED, RemoteWorker
from worker.remote.pool import RemoteSettings

TERMS = {"lease_s": 7.0, "heartbeat_s": 1.5, "poll_s": 0.0, "refusals": []}
FACTS = WorkerFacts("w", "cpu", 1024, {})
SHARD: Any = SimpleNamespace(
    request_id="r", submission_id="s", shard_id=1, attempt=1, first_run=0, n_runs=1, kind=ShardKind.RUNS
)


class Server:
    """Answers calls with what a test lays down, in turn; after the last it asks the worker to stop."""

    url = "http://server"

    def __init__(self, *claims: Any, terms: Any = TERMS) -> None:
        self.claims, self.terms, self.calls = list(claims), terms, []

    def register(self, facts: WorkerFacts) -> Any:
        self.calls.append("register")
        return _give(self.terms)

    def claim(self) -> Any:
        self.calls.append("claim")
        if not self.claims:
            graceful_shutdown.begin(give_back_after_s=0)
            return None
        return _give(self.claims.pop(0))

    def set_state(self, state: str, detail: str = "") -> None:
        self.calls.append(f"{state} {detail}".strip())

    def close(self) -> None:
        self.calls.append("close")


def _give(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


@pytest.fixture(autouse=True)
def _no_stop_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(loop, "_wait", lambda _seconds: None)
    yield
    graceful_shutdown.reset()


def serve(server: Any, tmp_path: Path, run: Any = lambda _context, _shard: "done") -> int:
    return RemoteWorker(RemoteSettings(home=tmp_path), server, FACTS, run=run).serve()


def test_worker_registers_runs_its_shards_and_reports_the_stop(tmp_path: Path) -> None:
    server, ran = Server(SHARD, None, SHARD), []

    def run(context: RunningContext, shard: ClaimedShard) -> str:
        ran.append((shard, context.settings.lease_s, context.settings.heartbeat_s))
        return "done"

    assert serve(server, tmp_path, run) == STOPPED
    assert ran == [(SHARD, 7.0, 1.5)] * 2
    assert server.calls == ["register", *["claim"] * 4, "stopped", "close"]


def test_server_that_was_away_hears_again_who_works(tmp_path: Path) -> None:
    server = Server(ServerUnreachable("away"), ServerUnreachable("away"), None)
    assert serve(server, tmp_path) == STOPPED
    assert server.calls == ["register", "claim"] * 3 + ["claim", "stopped", "close"]


def test_refused_token_or_worker_ends_it(tmp_path: Path) -> None:
    assert serve(Server(TokenRefused("revoked")), tmp_path) == REFUSED
    assert serve(Server(terms=WorkerRefused("no split takes it")), tmp_path) == REFUSED


def test_shard_that_breaks_does_not_end_the_worker(tmp_path: Path) -> None:
    def run(_context: RunningContext, _shard: ClaimedShard) -> str:
        raise RuntimeError("unforeseen")

    server = Server(SHARD, SHARD)
    assert serve(server, tmp_path, run) == STOPPED
    assert server.calls.count("claim") == 3


def test_host_fault_pauses_claims(tmp_path: Path) -> None:
    looks: list[int] = []

    def run(context: RunningContext, _shard: ClaimedShard) -> str:
        context.cooling.fault()
        return "given-back"

    def wait(_seconds: float) -> None:
        looks.append(1)
        if len(looks) == 5:
            graceful_shutdown.begin(give_back_after_s=0)

    server = Server(*[SHARD] * 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_wait", wait)
        assert serve(server, tmp_path, run) == STOPPED
    assert server.calls.count("claim") == 1


def test_quarantined_worker_says_why_and_registers_again_after_its_canary(tmp_path, monkeypatch):
    problems, contexts = ["the disk is full", ""], list[RunningContext]()

    def run(context: RunningContext, _shard: ClaimedShard) -> str:
        contexts.append(context)
        for _ in range(QUARANTINE_AFTER):
            context.cooling.fault("no space left")
        return "given-back"

    def wait(_seconds: float) -> None:
        for context in contexts:
            context.cooling._until = 0.0

    monkeypatch.setattr(backoff, "problem", lambda _settings: problems.pop(0))
    monkeypatch.setattr(loop, "_wait", wait)
    server = Server(SHARD)
    assert serve(server, tmp_path, run) == STOPPED
    told = ["quarantined no space left", "quarantined the disk is full"]
    assert server.calls == ["register", "claim", *told, "register", "claim", "stopped", "close"]


def test_remote_worker_in_production_needs_only_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_ENVIRONMENT", "production")
    assert RemoteSettings().environment == "production"
    monkeypatch.setenv("LETHE_SANDBOX_BACKEND", "plain")
    with pytest.raises(ValueError, match="plain confines nothing"):
        RemoteSettings()

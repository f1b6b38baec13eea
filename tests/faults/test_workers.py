"""Workers killed, frozen, poisoned, drained and with a wrong clock: nothing is lost, and no bit of a score changes."""

import json
import os
import random
import shutil
import signal
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from celery import Celery
from sqlalchemy import text

from lethe.client.api import JsonObject
from server.models.evaluation import Evaluation, PublicScore, Shard
from server.queue import EVALUATE_SHARD, SCORE_EVALUATION, SWEEP, configure
from tests.faults.cluster import EVERY_S, LONG, Cluster, Score, code, split_row, wait_until
from tests.faults.forked import Process
from tests.support.cluster_records import counted, describe_failure, outcomes, scored_like, stage_is

pytestmark = pytest.mark.slow

SWEEPS: list[tuple[str, tuple[str, ...]]] = [(SWEEP, ())] * 6


def get_smoke_workers(cluster: Cluster, submission: JsonObject) -> set[str]:
    """Return the names of the processes that have held the smoke run of the submission."""
    with cluster.database.read() as session:
        rows = session.execute(
            text(
                "SELECT DISTINCT a.worker FROM shard_attempts a JOIN shards s ON s.id = a.shard_id "
                "JOIN evaluations e ON e.id = s.evaluation_id WHERE e.submission_id = :id AND s.kind = 'smoke'"
            ),
            {"id": submission["id"]},
        )
        return {row[0] for row in rows}


def waits_for_a_lock(cluster: Cluster, table: str) -> bool:
    """Return whether a session of a worker waits for what another session holds in that table."""
    with cluster.database.read() as session:
        return bool(
            session.execute(
                text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ILIKE :statement"),
                {"statement": f"%{table}%"},
            ).scalar_one()
        )


def runs_reported_by(cluster: Cluster, worker: Process) -> int:
    """Return how many runs on hidden data the worker has reported of the shards that it holds."""
    pids = worker.children()
    with cluster.database.read() as session:
        held = session.query(Shard).filter_by(state="leased", kind="runs").all()
    return sum(shard.runs_done for shard in held if shard.worker and int(shard.worker.rsplit("-", 1)[1]) in pids)


def test_workers_killed_one_after_another_at_every_stage_lose_nothing(cluster: Cluster, undisturbed: Score) -> None:
    """In the smoke run, while a shard is closed, in a run on hidden data, and while the score is recorded."""
    worker = cluster.start_worker()  # with a warm sandbox the smoke run might be over before we see it
    submission = cluster.submit("killed", code(pause=0.5, note="killed"))
    wait_until(stage_is(cluster, submission, "smoke"))
    worker.kill()
    worker = cluster.start_worker()
    wait_until(stage_is(cluster, submission, "running"))
    with cluster.database.engine.begin() as connection:
        connection.execute(
            text("SELECT 1 FROM evaluations WHERE submission_id = :id FOR UPDATE"), {"id": submission["id"]}
        )
        wait_until(lambda: waits_for_a_lock(cluster, "evaluations"))  # the runs have ended, and cannot be closed
        worker.kill()
    worker = cluster.start_worker()
    wait_until(lambda: runs_reported_by(cluster, worker) >= 1)
    worker.kill()
    worker = cluster.start_worker()
    with cluster.database.engine.begin() as connection:
        # Its row is free for every step but the score's, which writes here.
        connection.execute(text("LOCK TABLE public_scores IN SHARE MODE"))
        wait_until(stage_is(cluster, submission, "scoring"))
        wait_until(lambda: waits_for_a_lock(cluster, "public_scores"))
        worker.kill()
    cluster.start_usual_worker()
    assert cluster.wait_for_end("killed", submission)["stage"] == "scored"
    assert cluster.exact_score(submission) == undisturbed
    ends = outcomes(cluster, submission)
    assert (ends.count("lost"), ends.count("done")) == (3, 3), ends
    assert counted(cluster, "killed") == 1


def test_frozen_worker_that_wakes_after_its_lease_is_refused(cluster, worker, undisturbed):
    submission = cluster.submit("zombie", code(pause=0.4, note="zombie"))
    wait_until(lambda: cluster.runs_done(submission) >= 1)
    frozen = worker.children()
    assert frozen
    freeze(cluster, frozen)
    cluster.start_usual_worker("heir")
    cluster.let_leases_expire()
    wait_until(lambda: is_held_again(cluster, submission))
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    assert cluster.wait_for_end("zombie", submission)["stage"] == "scored"
    assert cluster.exact_score(submission) == undisturbed
    ends = outcomes(cluster, submission)
    assert sorted(ends) == ["done", "done", "done", "lost"], ends  # the smoke run and two shards, each done once


def is_held_again(cluster: Cluster, submission: JsonObject) -> bool:
    """Return whether a worker has a second attempt at a shard of the submission."""
    with cluster.database.read() as session:
        shards = session.query(Shard).join(Evaluation, Evaluation.id == Shard.evaluation_id)
        again = shards.filter(Evaluation.submission_id == submission["id"], Shard.attempt == 2)
        return again.filter(Shard.state == "leased").count() > 0


def freeze(cluster: Cluster, pids: list[int]) -> None:
    """Stop processes while nobody has a transaction open, whose locks would be frozen too."""
    while True:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with cluster.database.read() as session:
            statement = "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
            if not session.execute(text(statement)).scalar_one():
                return
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(EVERY_S)


def test_sandbox_ended_by_the_kernel_is_the_hosts_fault(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    """What happens to a sandbox whose host is out of memory: all of it is gone at once."""
    submission = cluster.submit("out-of-memory", code(pause=0.4, note="out of memory"))
    wait_until(lambda: cluster.runs_done(submission) >= 1)
    boxes = worker.sandboxes()
    assert boxes
    for pid in boxes:
        os.kill(pid, signal.SIGKILL)
    assert cluster.wait_for_end("out-of-memory", submission)["stage"] == "scored"
    assert cluster.exact_score(submission) == undisturbed
    assert "given-back" in outcomes(cluster, submission)
    assert counted(cluster, "out-of-memory") == 1


def test_stopping_worker_gives_its_shard_back_at_once(cluster: Cluster, worker: Process, undisturbed: Score) -> None:
    submission = cluster.submit("drained", code(pause=0.5, note="drained"))
    wait_until(lambda: cluster.runs_done(submission) >= 1)
    worker.signal(signal.SIGTERM)
    assert worker.wait(60)
    assert "given-back" in outcomes(cluster, submission)
    with cluster.database.read() as session:
        assert session.query(Shard).filter_by(state="leased").count() == 0
    cluster.start_usual_worker("heir")
    assert cluster.wait_for_end("drained", submission)["stage"] == "scored"
    assert cluster.exact_score(submission) == undisturbed
    assert "lost" not in outcomes(cluster, submission)


def test_preparation_killed_twice_gives_the_same_bits(cluster: Cluster) -> None:
    split = cluster.folder / "storage" / "splits" / "tiny" / "private"
    files = prepared_files(split)
    shutil.move(split, split.with_name("private-undisturbed"))
    with cluster.database.engine.begin() as connection:
        connection.execute(text("UPDATE splits SET state = 'pending' WHERE visibility = 'private'"))
    before = split_row(cluster).attempt
    for attempt in (1, 2):
        worker = cluster.start_worker("preparing")
        wait_until(partial(has_claimed, cluster, before + attempt), every_s=0.01)
        if attempt == 2:
            wait_until((split / "hidden").exists, every_s=0.01)
        worker.kill()
    cluster.start_worker("heir")
    wait_until(lambda: split_row(cluster).state == "ready")
    assert prepared_files(split) == files


def test_preparation_whose_workers_all_die_fails_with_advice(cluster: Cluster) -> None:
    split = cluster.folder / "storage" / "splits" / "tiny" / "private"
    kept = split.with_name("private-kept")
    shutil.move(split, kept)
    with cluster.database.engine.begin() as connection:
        connection.execute(
            text("UPDATE splits SET state = 'pending', failed_attempts = 0 WHERE visibility = 'private'")
        )
    before = split_row(cluster).attempt
    worker = cluster.start_worker("too-small", LETHE_MAX_ATTEMPTS="2", LETHE_LEASE_S="1.5")
    for attempt in (1, 2):
        wait_until(partial(has_claimed, cluster, before + attempt), every_s=0.01)
        for pid in worker.children():  # as the kernel ends what takes too much memory: the worker itself lives on
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: split_row(cluster).state == "failed", about=lambda: str(vars(split_row(cluster))))
    worker.stop()
    row = split_row(cluster)
    shutil.rmtree(split, ignore_errors=True)
    shutil.move(kept, split)
    with cluster.database.engine.begin() as connection:
        connection.execute(text("UPDATE splits SET state = 'ready', error = '' WHERE visibility = 'private'"))
    assert row.attempt == before + 2, "nobody tries a third time"
    assert row.error.startswith("2 workers in a row were lost while they prepared this split")
    assert "memory" in row.error


def prepared_files(split: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that participants' scores depend on; reports hold times."""
    manifest = json.loads((split / "manifest.json").read_text())
    return {name: record["sha256"] for name, record in manifest["files"].items() if name.endswith(".safetensors")}


def has_claimed(cluster: Cluster, attempt: int) -> bool:
    return split_row(cluster).attempt == attempt


def test_poisoned_submission_is_isolated_and_the_others_go_on(cluster: Cluster, undisturbed: Score) -> None:
    worker = cluster.start_worker("victim", concurrency=2)  # the others' runs stand beside the one that is killed
    poisoned = cluster.submit("poisoner", code(pause=30, note="poisoned"))
    killed: set[str] = set()

    def kill_its_worker() -> bool:
        """Stand in for a submission that takes its worker's process down each time it is run."""
        with cluster.database.read() as session:
            of_poisoned = Evaluation.submission_id == poisoned["id"]
            shards = session.query(Shard).join(Evaluation, Evaluation.id == Shard.evaluation_id).filter(of_poisoned)
            for shard in shards.filter(Shard.state == "leased"):
                key = f"{shard.id}-{shard.attempt}"
                if key not in killed and shard.worker:
                    killed.add(key)
                    os.kill(int(shard.worker.rsplit("-", 1)[1]), signal.SIGKILL)
        return cluster.stage(poisoned) == "failed"

    innocent = cluster.submit("innocent", code(note="innocent"))
    wait_until(kill_its_worker, within_s=150, every_s=0.01)
    assert describe_failure(cluster, poisoned) == ("failed", "host", "worker-lost")
    assert len(killed) == 3
    assert counted(cluster, "poisoner") == 0
    assert cluster.wait_for_end("innocent", innocent)["stage"] == "scored"
    assert cluster.exact_score(innocent) == undisturbed
    assert worker.is_alive


def test_wrong_clocks_and_doubled_messages_change_nothing(cluster: Cluster, undisturbed: Score) -> None:
    """Two workers whose clocks are two hours apart take the same messages at once, in any order."""
    alone: set[str] = set()
    for turn in range(20):  # until each has had a lease while the other had nothing to do but to look for lost ones
        person = f"skewed-{turn}"
        submission = cluster.submit(person, code(pause=0.7, note=person))
        evaluation_id = evaluation_of(cluster, submission)
        send_in_any_order(cluster, [(EVALUATE_SHARD, ())] * 12 + [(SCORE_EVALUATION, (evaluation_id,))] * 6 + SWEEPS)
        if turn == 0:
            for hours in (1, -1):
                cluster.start_worker(f"skewed-{hours}", skew_s=3600.0 * hours, LETHE_LEASE_S=LONG)
        wait_until(stage_is(cluster, submission, "scored", "failed"))
        send_in_any_order(cluster, [(SCORE_EVALUATION, (evaluation_id,))] * 4)
        scored_like(cluster, person, submission, undisturbed)
        assert public_scores(cluster, submission) == 1
        assert set(outcomes(cluster, submission)) == {"done"}
        alone |= get_smoke_workers(cluster, submission)
        if len(alone) == 2:
            return
    pytest.fail(f"only {alone} ran anything alone")


def evaluation_of(cluster: Cluster, submission: JsonObject) -> str:
    with cluster.database.read() as session:
        return session.query(Evaluation).filter_by(submission_id=submission["id"]).one().id


def public_scores(cluster: Cluster, submission: JsonObject) -> int:
    with cluster.database.read() as session:
        return session.query(PublicScore).filter_by(submission_id=submission["id"]).count()


def send_in_any_order(cluster: Cluster, messages: list[tuple[str, tuple[str, ...]]]) -> None:
    with closing(configure(Celery("lethe"), redis_url=cluster.redis.broker_url)) as sender:
        for task, arguments in random.Random(7).sample(messages, len(messages)):
            sender.send_task(task, args=arguments, queue="lethe.cpu")

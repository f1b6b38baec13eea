"""Workers killed in the middle lose nothing, and the score has the same bits as an undisturbed one."""

from pathlib import Path

import pytest

from lethe.client.api import JsonObject, LetheClient
from server.models.evaluation import PublicScore, ShardAttempt
from tests.end_to_end.conftest import ONE_STEP, Instance, kill, shards_of, wait_for_end, wait_until

pytestmark = pytest.mark.slow

SLOWER = ONE_STEP.replace("import torch\n", "import time, torch\n", 1).replace(
    "    optimizer = torch", "    time.sleep(0.5)\n    optimizer = torch"
)


def exact_score(instance: Instance, submission: JsonObject) -> tuple[object, ...]:
    with instance.database.read() as session:
        row = session.query(PublicScore).filter_by(submission_id=submission["id"]).one()
        assert row.epsilon is not None
        assert len(row.epsilon) == 4 * row.details["n_forget"]
        return row.final_score, row.forgetting_quality, row.retain_ratio, row.test_ratio, row.epsilon


def send(client: LetheClient, folder: Path, code: str, name: str) -> JsonObject:
    path = folder / f"{name}.py"
    path.write_text(code)
    return client.submit("tiny", path)


def runs_done(instance: Instance, submission_id: str) -> int:
    with instance.database.read() as session:
        return sum(shard.runs_done for shard in shards_of(session, submission_id))


def test_a_killed_worker_loses_nothing_and_changes_no_bit(instance: Instance, tmp_path: Path) -> None:
    client = instance.participant("steady")
    undisturbed = wait_for_end(client, send(client, tmp_path, SLOWER, "undisturbed"))
    assert undisturbed["stage"] == "scored", undisturbed
    disturbed = send(client, tmp_path, SLOWER + "\n# the same code in another file\n", "disturbed")
    wait_until(lambda: 1 <= runs_done(instance, disturbed["id"]) < 8)
    victims = instance.workers()
    assert victims
    for pid in victims:
        kill(pid)
    ended = wait_for_end(client, disturbed)
    assert ended["stage"] == "scored", ended
    with instance.database.read() as session:
        shards = [shard.id for shard in shards_of(session, disturbed["id"])]
        lost = session.query(ShardAttempt).filter(ShardAttempt.shard_id.in_(shards), ShardAttempt.outcome == "lost")
        assert lost.count() >= 1
    assert exact_score(instance, disturbed) == exact_score(instance, undisturbed)


def test_a_cancelled_submission_stops_and_its_worker_goes_on(instance: Instance, tmp_path: Path) -> None:
    client = instance.participant("hasty")
    endless = send(client, tmp_path, SLOWER.replace("sleep(0.5)", "sleep(15)"), "endless")
    wait_until(lambda: client.submission(endless["id"])["stage"] in ("smoke", "running"))
    client.cancel(endless["id"])
    assert wait_for_end(client, endless)["stage"] == "cancelled"
    good = wait_for_end(client, send(client, tmp_path, ONE_STEP, "good"))
    assert good["stage"] == "scored"

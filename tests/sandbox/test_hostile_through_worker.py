"""Attacks the whole way that a participant's code goes: uploaded, queued, claimed, run by a real worker, recorded.

What `test_hostile.py` shows of every attack for the launcher alone holds here, with one of each end, for a whole
instance: a web server, a broker, a pool of two workers with warm sandboxes, the scorer.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from server.models.evaluation import Evaluation, PublicScore, ShardAttempt
from server.models.submission import ENDED, Submission
from tests.end_to_end.conftest import Instance, competition_toml, open_instance
from tests.sandbox.conftest import GOOD
from tests.sandbox.hostile_suite import SAMPLE, Attack, attacks, canaries, process_groups

pytestmark = pytest.mark.slow

ALL_WITHIN_S = 900.0  # a quiet machine takes a minute
# In place of the usual competition's: little of everything, so that each attack meets its limit soon.
LIMITS = """
run_wall_time_s = 60
run_cpu_time_s = 2
run_idle_time_s = 1
memory_mib = 256
processes = 24
scratch_mib = 16
log_kib = 32
submissions_per_day = 1000
"""
ATTACKS = [attack for attack in attacks() if attack.name in SAMPLE]


@dataclass(frozen=True)
class Ended:
    """What was recorded of a submission: its error class, "weights" where it has none, and the bits of its result."""

    outcome: str
    fault: str | None
    result: tuple[Any, ...]


@dataclass(frozen=True)
class Told:
    """What became of everything that was sent, and the host's state before and after."""

    ended: dict[str, Ended]
    good_before: Ended
    good_after: Ended
    host_before: dict[str, object]
    host_after: dict[str, object]
    left_groups: list[str]
    uids: dict[str, set[int]]  # whom the kernel took each worker's runs for


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Send everything at once, as a crowd would, between two good submissions."""
    folder = tmp_path_factory.mktemp("code")
    usual, _, replaced = competition_toml(n=2, shard=2, floor=60.0).partition("memory_mib = 512\n")
    assert replaced
    with canaries() as host_state, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LETHE_UPLOADS_PER_10_MIN", "0")
        with open_instance(tmp_path_factory.mktemp("lethe"), toml=usual + LIMITS, worker_concurrency=2) as instance:
            client = instance.participant("stranger")

            def send(sources: dict[str, str]) -> dict[str, Ended]:
                for name, source in sources.items():
                    (folder / f"{name}.py").write_text(source, encoding="utf-8")
                return _ended_all(
                    instance, {client.submit("tiny", folder / f"{name}.py")["id"]: name for name in sources}
                )

            good_before = send({"good": GOOD})["good"]
            before = host_state()
            ended = send({attack.name: attack.submission for attack in ATTACKS})
            after = host_state()
            good_after = send({"good": GOOD})["good"]
            left = [name for pid in instance.workers() for name in process_groups(pid)]
            yield Told(ended, good_before, good_after, before, after, left, _uids(instance))


def _uids(instance: Instance) -> dict[str, set[int]]:
    found = defaultdict(set)
    with instance.database.read() as session:
        for attempt in session.query(ShardAttempt).filter(ShardAttempt.outcome == "done"):
            found[attempt.worker].add((attempt.controls or {})["kernel_uid"])
    return dict(found)


def _ended_all(instance: Instance, names: dict[str, str]) -> dict[str, Ended]:
    """Return how each submission ended, by its name. Raises TimeoutError naming those that have not."""
    deadline = time.monotonic() + ALL_WITHIN_S
    while True:
        with instance.database.read() as session:
            rows = session.query(Submission).filter(Submission.id.in_(names)).all()
            waiting = sorted(names[row.id] for row in rows if row.stage not in ENDED)
            if not waiting:
                return {names[row.id]: _ended(session, row) for row in rows}
        if time.monotonic() > deadline:
            raise TimeoutError(f"not ended within {ALL_WITHIN_S:g} s: {', '.join(waiting)}")
        time.sleep(0.2)


def _ended(session: Any, submission: Submission) -> Ended:
    evaluation = session.query(Evaluation).filter_by(submission_id=submission.id).one()
    score = session.get(PublicScore, evaluation.id)
    result: tuple[Any, ...] = ()
    if score:
        measured = {name: value for name, value in score.details.items() if name not in ("run_wall_time_s", "run_time")}
        result = (score.final_score, score.retain_ratio, score.test_ratio, measured)
    outcome = "weights" if submission.stage == "scored" else submission.error_class or submission.stage
    return Ended(outcome, submission.fault, result)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_is_recorded_as_it_says(attack: Attack, told: Told) -> None:
    ended = told.ended[attack.name]
    assert ended.outcome in attack.outcomes, attack.attempt
    assert ended.fault in (None, "participant")  # nobody gets a submission back by attacking


def test_workers_forked_by_celery_have_sandboxes_of_their_own(told: Told) -> None:
    one, other = told.uids.values()
    assert one.isdisjoint(other) or os.geteuid() != 0


def test_host_is_as_it_was(told: Told) -> None:
    assert told.host_after == told.host_before
    assert told.left_groups == []


def test_good_submission_afterwards_scores_the_same_bits(told: Told) -> None:
    assert told.good_before.outcome == "weights"
    assert told.good_after == told.good_before

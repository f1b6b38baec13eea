"""Every attack the whole way that a participant's code goes: uploaded, queued, claimed, run by a real worker, recorded.

What `test_hostile.py` shows for the launcher alone holds here for an instance with everything around it: a web server,
a broker, a pool of two workers with warm sandboxes for the public sample and for the hidden data, the scorer.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lethe.client.api import LetheClient
from server.models.evaluation import Evaluation, PublicScore, ShardAttempt
from server.models.submission import ENDED, Submission
from tests.end_to_end.conftest import Instance, open_competition, open_instance
from tests.sandbox.hostile_suite import Attack, attacks, canaries, process_groups

pytestmark = pytest.mark.slow

ALL_WITHIN_S = 900.0  # a quiet machine takes a minute
TOML = """
slug = "{slug}"
title = "Hostile"
opens_at = {opens}
closes_at = {closes}
n_models = 2
shard_runs = 2
[scoring]
attacks = "reference"
bootstrap_resamples = 0
[dataset]
name = "digits"
[network]
name = "mlp"
options = {{ hidden = [16] }}
[training]
epochs = 2
learning_rate = 0.1
min_train_accuracy = 0.05
[splits]
seed = 18446744073709551617
train_size = 200
[splits.forget]
by = "random"
fraction = 0.1
[limits]
wall_time_s = 600
run_wall_time_s = 60
run_wall_time_floor_s = 60
run_cpu_time_s = {cpu_s}
run_idle_time_s = 1
memory_mib = 256
processes = 24
scratch_mib = 16
log_kib = 32
submissions_per_day = 1000
"""
GOOD = """
import torch

def unlearning(net, retain, forget, validation):
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    for batch in retain:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(batch["image"]), batch["age_group"]).backward()
        optimiser.step()
"""
ATTACKS = attacks()


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
    good = tmp_path_factory.mktemp("code") / "good.py"
    good.write_text(GOOD, encoding="utf-8")
    moment = datetime.now(UTC).replace(microsecond=0)
    day = timedelta(days=1)
    # A run over its processor time is tried again: attacks without an end get less of it.
    tiny, brief = (
        TOML.format(slug=slug, cpu_s=cpu_s, opens=(moment - day).isoformat(), closes=(moment + day).isoformat())
        for slug, cpu_s in (("tiny", 4), ("brief", 1))
    )
    with canaries() as host_state, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LETHE_UPLOADS_PER_10_MIN", "0")
        home = tmp_path_factory.mktemp("lethe")
        with open_instance(home, toml=tiny, worker_concurrency=2) as instance:
            open_competition(instance, brief)
            client = instance.participant("stranger")
            good_before = _sent(instance, client, {good: "tiny"})[good.stem]
            before = host_state()
            slugs = {attack.path: "brief" if "time-limit" in attack.outcomes else "tiny" for attack in ATTACKS}
            ended = _sent(instance, client, slugs)
            after = host_state()
            good_after = _sent(instance, client, {good: "tiny"})[good.stem]
            left = [name for pid in instance.workers() for name in process_groups(pid)]
            yield Told(ended, good_before, good_after, before, after, left, _uids(instance))


def _uids(instance: Instance) -> dict[str, set[int]]:
    found = defaultdict(set)
    with instance.database.read() as session:
        for attempt in session.query(ShardAttempt).filter(ShardAttempt.outcome == "done"):
            found[attempt.worker].add((attempt.controls or {})["kernel_uid"])
    return dict(found)


def _sent(instance: Instance, client: LetheClient, slugs: dict[Path, str]) -> dict[str, Ended]:
    """Upload files to competitions and return how each ended. Raises TimeoutError naming those that have not."""
    names = {client.submit(slug, path)["id"]: path.stem for path, slug in slugs.items()}
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


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.path.stem)
def test_attack_is_recorded_as_its_first_line_says(attack: Attack, told: Told) -> None:
    ended = told.ended[attack.path.stem]
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

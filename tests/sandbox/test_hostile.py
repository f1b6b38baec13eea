"""Attacks through the launcher alone, against every back-end that this machine has.

One of each kind goes through a worker as well, in `test_hostile_through_worker.py`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lethe.runtime.error_classes import Blame
from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec

from .conftest import GOOD, write_submission
from .hostile_suite import POLICY, SAMPLE, Attack, attacks, canaries, hostile_texts

ATTACKS = [
    pytest.param(attack, id=attack.name, marks=() if attack.name in SAMPLE else pytest.mark.slow)
    for attack in attacks()
]


@pytest.fixture(scope="module")
def host_state() -> Iterator[Callable[[], dict[str, object]]]:
    with canaries() as take:
        yield take


@pytest.fixture(scope="module")
def hostile_stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def hostile_sandbox(split: Path, hostile_stage: Path, host_state: Callable[[], dict[str, object]]) -> Iterator[Sandbox]:
    hidden = split.parent / "hidden"
    hidden.mkdir(mode=0o700, exist_ok=True)
    (hidden / "secret").write_text("hidden", encoding="utf-8")
    spec = SandboxSpec(data_dir=split, stage_dir=hostile_stage, policy=POLICY)
    with Launcher(spec).start() as started:
        yield started


@pytest.fixture(scope="module")
def good_weights(hostile_sandbox: Sandbox, hostile_stage: Path) -> bytes | None:
    folder = write_submission(hostile_stage, "good", GOOD)
    return hostile_sandbox.run(RunRequest(code_dir=folder, seed=3)).weights


def test_sample_has_every_end_and_every_function_is_found() -> None:
    assert len(attacks()) == sum(text.count('"""Tries to ') for text in hostile_texts()) >= 70
    sample = [attack for attack in attacks() if attack.name in SAMPLE]
    assert len(sample) == len(SAMPLE)
    certain = {attack.outcomes for attack in attacks() if len(attack.outcomes) == 1}
    assert certain <= {attack.outcomes for attack in sample}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_ends_as_it_says(
    attack: Attack,
    hostile_sandbox: Sandbox,
    hostile_stage: Path,
    good_weights: bytes | None,
    host_state: Callable[[], dict[str, object]],
) -> None:
    before = host_state()
    folder = write_submission(hostile_stage, attack.name, attack.submission)
    for _ in range(2 if attack.name.startswith("runs_") else 1):
        verdict = hostile_sandbox.run(RunRequest(code_dir=folder)).verdict
        assert (verdict.error_class or verdict.outcome) in attack.outcomes, (attack.attempt, verdict)
        assert verdict.fault in (Blame.NONE, Blame.PARTICIPANT)
        assert verdict.message or verdict.outcome == "weights"
    assert host_state() == before


def test_good_submission_afterwards_gives_the_same_bits(hostile_sandbox, hostile_stage, good_weights):
    assert good_weights
    assert hostile_sandbox.run(RunRequest(code_dir=hostile_stage / "good", seed=3)).weights == good_weights

"""Attacks through the launcher alone, against every back-end that this machine has.

One of each kind; every one of them goes through a worker in `test_hostile_through_worker.py`, and through here as well
with LETHE_TEST_WHOLE_SUITE=1, which also says after which of them the host had changed.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec

from .conftest import GOOD, WHOLE_SUITE, write_submission
from .hostile_suite import POLICY, SAMPLE, Runner, attacks, canaries

ATTACKS = [attack for attack in attacks() if WHOLE_SUITE or attack.path.stem in SAMPLE]


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
def runner(hostile_sandbox: Sandbox, hostile_stage: Path) -> Runner:
    def run(path: Path) -> str:
        folder = hostile_stage / path.stem
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder / "submission.py")
        result = hostile_sandbox.run(RunRequest(code_dir=folder))
        return result.verdict.error_class or result.verdict.outcome

    return run


@pytest.fixture(scope="module")
def good_weights(hostile_sandbox: Sandbox, hostile_stage: Path) -> bytes | None:
    folder = write_submission(hostile_stage, "good", GOOD)
    return hostile_sandbox.run(RunRequest(code_dir=folder, seed=3)).weights


def test_sample_names_attacks_that_there_are() -> None:
    assert len(attacks()) >= 60
    assert set(SAMPLE) <= {attack.path.stem for attack in ATTACKS}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.path.stem)
def test_attack_ends_as_its_first_line_says(attack, runner, good_weights, host_state):
    before = host_state()
    for _ in range(2 if attack.path.stem.startswith("runs_") else 1):
        assert runner(attack.path) in attack.outcomes, attack.attempt
    assert host_state() == before


def test_good_submission_afterwards_gives_the_same_bits(hostile_sandbox, hostile_stage, good_weights):
    assert good_weights
    assert hostile_sandbox.run(RunRequest(code_dir=hostile_stage / "good", seed=3)).weights == good_weights

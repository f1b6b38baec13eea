"""A short chaos run: random faults during uploads, and the guarantees afterwards."""

import os
import random
from collections.abc import Iterator

import pytest

from tests.faults import chaos
from tests.faults.chaos import Chaos
from tests.faults.cluster import Cluster, Score

pytestmark = pytest.mark.slow


@pytest.fixture
def disturbed(cluster: Cluster) -> Iterator[Chaos]:
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    made = Chaos(cluster, random.Random(seed))
    yield made
    made.fix_what_is_due(all_of_it=True)


def test_random_faults_break_no_promise(disturbed: Chaos, undisturbed: Score) -> None:
    chaos.run(disturbed, faults=8, submissions=6, workers=2, pause_s=0.5, within_s=240)
    assert chaos.broken_promises(disturbed, undisturbed) == []
    assert len(disturbed.accepted) == 6
    assert sum(disturbed.counts.values()) == 8

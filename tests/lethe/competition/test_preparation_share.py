"""The share of a preparation that is done, from the stage that a worker names."""

from itertools import pairwise

import pytest

from lethe.competition.file import parse_competition
from lethe.competition.preparation_share import preparation_share
from tests.support.instance import competition_toml


@pytest.mark.parametrize("setup", ["reuse-n-1", "reuse-n-n"])
def test_share_grows_from_stage_to_stage(setup: str) -> None:
    file = parse_competition(competition_toml("digits"), source="digits.toml")
    file = file.model_copy(update={"scoring": file.scoring.model_copy(update={"setup": setup})})
    sets = ["retrained models", "oracle"] + (["original models"] if setup == "reuse-n-n" else [])
    told = [("", 0.0), ("starting", 0.0), ("original model", 0.5)]
    told += [(stage, progress) for stage in sets for progress in (0.1, 0.9)]
    told += [("measuring one retraining in the sandbox", 0.0)]
    shares = [preparation_share(file, stage=stage, progress=progress) for stage, progress in told]
    assert all(earlier <= later for earlier, later in pairwise(shares)), shares
    assert shares[0] == 0.0
    assert shares[-1] < 1.0
    assert shares[3] == pytest.approx(0.1 + 0.8 * 0.1 / len(sets))

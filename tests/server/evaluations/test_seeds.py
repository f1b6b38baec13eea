"""A run's seed is told to participants' code, so a split's seed must be too long to be tried."""

from server.evaluations.claimed_shard import run_seed, sample_data
from tests.support.instance import Instance, competition_toml


def test_seed_differs_by_competition_split_and_run() -> None:
    seeds = {
        run_seed(slug, visibility, split_seed=split_seed, run=run)
        for slug in "ab"
        for visibility in ("public", "private", sample_data("1"), sample_data("2"))
        for split_seed in (2**64, 2**64 + 1)
        for run in range(9)
    }
    assert len(seeds) == 144


def test_weak_seed_must_be_allowed_by_the_file(server: Instance) -> None:
    headers = server.organiser()

    def created(slug: str, seed: int, extra: str = "") -> int:
        text = competition_toml(slug, extra=f"{extra}\n[splits]\nseed = {seed}\n")
        return server.client.post("/api/v1/competitions", headers=headers, content=text).status_code

    assert created("weak", 2**62) == 422
    assert created("strong", 2**64 + 1) == 201
    assert created("known", 7, "weak_seed = true") == 201
    assert created("older", 7, "strangers = false") == 201  # what a file said until version 0.2
    assert created("refused", 7, "strangers = true") == 422

"""A run's seed is told to strangers' code, so a split's seed must be too long to be tried."""

from server.evaluations.seeds import SAMPLE, run_seed
from tests.support.instance import Instance, competition_toml


def test_seed_differs_by_competition_split_and_run() -> None:
    seeds = {
        run_seed(slug, visibility, split_seed=split_seed, run=run)
        for slug in "ab"
        for visibility in ("public", "private", SAMPLE)
        for split_seed in (2**64, 2**64 + 1)
        for run in range(9)
    }
    assert len(seeds) == 108


def test_weak_seed_needs_a_competition_without_strangers(server: Instance) -> None:
    headers = server.organiser()

    def created(slug: str, seed: int, extra: str = "") -> int:
        text = competition_toml(slug, extra=f"{extra}\n[splits]\nseed = {seed}\n")
        return server.client.post("/api/v1/competitions", headers=headers, content=text).status_code

    assert created("weak", 2**62) == 422
    assert created("strong", 2**64 + 1) == 201
    assert created("known", 7, "strangers = false") == 201

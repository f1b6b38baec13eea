import hashlib

from lethe.data.seeds import derive_seed, derive_seeds


def test_seed_is_the_documented_hash() -> None:
    digest = hashlib.sha256(b"digits/public/retrained/3").digest()
    assert derive_seed("digits", "public", "retrained", 3) == int.from_bytes(digest[:8], "big") >> 1


def test_seeds_differ_by_every_word_and_index() -> None:
    seeds = {
        derive_seed(slug, visibility, role, index)
        for slug in ("a", "b")
        for visibility in ("public", "private")
        for role in ("retrained", "oracle")
        for index in range(50)
    }
    assert len(seeds) == 400
    assert max(seeds) < 2**63


def test_model_seed_does_not_depend_on_the_number_of_models() -> None:
    assert derive_seeds("a", indices=range(3, 5)) == derive_seeds("a", indices=range(6))[3:5]

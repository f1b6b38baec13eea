"""Values kept in proportion to what they cost, and who holds how much."""

import threading

import pytest

from server.admission import Shares
from server.cost_cache import MAX_KEYS, CostCache, lifetime_s
from server.errors import Overloaded, RateLimited


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_value_is_kept_for_twenty_times_its_cost() -> None:
    clock, computed = Clock(), []
    cache: CostCache[int] = CostCache(clock)

    def compute() -> int:
        clock.now += 0.1
        computed.append(1)
        return len(computed)

    assert cache.get("k", compute) == 1
    clock.now += 1.9
    assert cache.get("k", compute) == 1
    clock.now += 0.2
    assert cache.get("k", compute) == 2


def test_a_value_is_never_kept_longer_than_ten_seconds() -> None:
    clock, answers = Clock(), iter("ab")
    cache: CostCache[str] = CostCache(clock)

    def compute() -> str:
        clock.now += 60
        return next(answers)

    assert cache.get("k", compute) == "a"
    clock.now += 9.99
    assert cache.get("k", compute) == "a"
    clock.now += 0.02
    assert cache.get("k", compute) == "b"


def test_what_fails_is_not_kept() -> None:
    cache: CostCache[str] = CostCache()

    def fail() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get("k", fail)
    assert cache.get("k", lambda: "fine") == "fine"


def test_while_one_computes_the_others_get_the_old_value() -> None:
    clock = Clock()
    cache: CostCache[str] = CostCache(clock)
    cache.get("k", lambda: "old")
    clock.now += 100
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go_on.wait(10)
        return "new"

    worker = threading.Thread(target=cache.get, args=("k", slow))
    worker.start()
    begun.wait(10)
    meanwhile = cache.get("k", lambda: "computed twice")
    go_on.set()
    worker.join()
    assert meanwhile == "old"


def test_keys_do_not_share_values() -> None:
    cache: CostCache[str] = CostCache()
    assert [cache.get("a", lambda: "1"), cache.get("b", lambda: "2")] == ["1", "2"]


@pytest.mark.parametrize("cost_s", [1.0, 0.03])
def test_a_costly_value_is_made_again_in_the_background(cost_s: float) -> None:
    clock = Clock()
    cache: CostCache[str] = CostCache(clock)
    done = threading.Event()

    def costly() -> str:
        clock.now += cost_s
        return "old"

    def again() -> str:
        done.set()
        return "new"

    cache.get("k", costly)
    clock.now += 1.05 * lifetime_s(cost_s)
    assert cache.get("k", costly, in_background=again) == "old"
    assert done.wait(10)


def test_a_cheap_value_is_made_again_at_once() -> None:
    clock = Clock()
    cache: CostCache[str] = CostCache(clock)

    def cheap() -> str:
        clock.now += 0.01
        return "old"

    cache.get("k", cheap)
    clock.now += 1
    assert cache.get("k", lambda: "new", in_background=lambda: "late") == "new"


@pytest.mark.parametrize("cost_s", [1.0, 0.03])
def test_a_value_long_out_of_date_is_not_shown(cost_s: float) -> None:
    clock = Clock()
    cache: CostCache[str] = CostCache(clock)

    def costly() -> str:
        clock.now += cost_s
        return "old"

    cache.get("k", costly)
    clock.now += 2.05 * lifetime_s(cost_s)
    assert cache.get("k", lambda: "new", in_background=lambda: "late") == "new"


def test_keys_that_are_gone_leave_nothing_behind() -> None:
    cache: CostCache[int] = CostCache()
    for key in range(3 * MAX_KEYS):
        cache.get(key, lambda: 0)
    assert len(cache._kept) <= MAX_KEYS
    assert len(cache._computing) <= MAX_KEYS


def test_large_values_push_the_oldest_out() -> None:
    cache: CostCache[str] = CostCache(lambda: 0.0, size=len, max_size=100)
    for key in range(5):
        cache.get(key, lambda: "x" * 30)
    assert list(cache._kept) == [2, 3, 4]
    assert cache._total == 90
    cache.get("large", lambda: "x" * 101)
    assert "large" not in cache._kept, "alone it would be too much"
    assert cache._total == 0


def test_a_value_made_again_counts_once() -> None:
    clock = Clock()
    cache: CostCache[str] = CostCache(clock, size=len, max_size=100)
    for _ in range(20):
        cache.get("k", lambda: "x" * 30)
        clock.now += 100
    assert cache._total == 30


def test_keys_that_cannot_be_computed_leave_nothing_behind() -> None:
    cache: CostCache[int] = CostCache()
    for key in range(10):
        with pytest.raises(ZeroDivisionError):
            cache.get(key, lambda: 1 // 0)
    assert cache._computing == {}


def test_owner_and_all_have_their_shares() -> None:
    shares = Shares(per_owner=2, in_all=3, what="pages open")
    for owner in ("ada", "ada", "bob"):
        assert shares.find_refusal(owner) is None
        shares.take(owner)
    assert isinstance(shares.find_refusal("ada"), RateLimited)
    refusal = shares.find_refusal("bob")
    assert isinstance(refusal, Overloaded)
    assert "pages open" in refusal.detail
    assert refusal.retry_after_s
    shares.give_back("ada")
    assert shares.find_refusal("bob") is None


def test_zero_is_no_limit() -> None:
    shares = Shares(per_owner=0, in_all=0, what="pages open")
    for _ in range(1000):
        shares.take("ada")
    assert shares.find_refusal("ada") is None

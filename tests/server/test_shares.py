"""Who holds how much: an owner's share, that of all, and what is given back."""

from server.errors import Overloaded, RateLimited
from server.shares import Shares


def test_owner_and_all_have_their_shares() -> None:
    shares = Shares(per_owner=2, in_all=3, what="pages open")
    for owner in ("ada", "ada", "bob"):
        assert shares.find_refusal(owner, 1) is None
        shares.take(owner, 1)
    assert isinstance(shares.find_refusal("ada", 1), RateLimited)
    refusal = shares.find_refusal("bob", 1)
    assert isinstance(refusal, Overloaded)
    assert "pages open" in refusal.detail
    assert refusal.retry_after_s
    shares.give_back("ada", 1)
    assert shares.find_refusal("bob", 1) is None
    assert shares.total == 2


def test_zero_is_no_limit() -> None:
    shares = Shares(per_owner=0, in_all=0, what="pages open")
    shares.take("ada", 1000)
    assert shares.find_refusal("ada", 1000) is None

"""Who holds how much: an owner's share, that of all, and what is given back."""

from server.admission import Shares
from server.errors import Overloaded, RateLimited


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

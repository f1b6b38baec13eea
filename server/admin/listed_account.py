"""What the administrators' list says of an account."""

from dataclasses import dataclass

from server.models.account import Account


@dataclass(frozen=True)
class ListedAccount:
    """An account, how many competitions it organises and of how many teams it is a member."""

    account: Account
    organises: int
    teams: int

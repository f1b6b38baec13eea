"""The administrators' list of accounts."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from server.admin import accounts_repository
from server.admin.listed_account import ListedAccount

PAGE_SIZE = 100


@dataclass(frozen=True)
class AccountsPage:
    """One page of accounts. has_more: whether there is another one."""

    accounts: list[ListedAccount]
    has_more: bool


def find_accounts(
    session: Session, *, query: str = "", role: str = "", only_banned: bool = False, page: int = 1
) -> AccountsPage:
    """Return one page of accounts by name.

    query: part of a name or of an e-mail address. role: empty for any. page: from 1.
    """
    found = accounts_repository.accounts(
        session,
        query=query.strip(),
        role=role,
        only_banned=only_banned,
        offset=(page - 1) * PAGE_SIZE,
        limit=PAGE_SIZE + 1,
    )
    return AccountsPage(found[:PAGE_SIZE], has_more=len(found) > PAGE_SIZE)

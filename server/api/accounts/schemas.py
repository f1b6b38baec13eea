"""What goes in and out of the routes of accounts and tokens."""

from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from server.accounts.second_factor import is_on
from server.accounts.tokens import get_end
from server.api.schema import In, Out
from server.models.account import Account, ApiToken, Scope


class Registration(In):
    """A new account."""

    name: str = Field(description="3 to 40 of a-z A-Z 0-9 . _ -; shown on leaderboards", examples=["ada"])
    password: str = Field(description="10 to 200 characters", examples=["correct horse battery staple"])
    email: str | None = Field(default=None, description="shown to nobody", examples=["ada@example.org"])


class AccountOut(Out):
    """An account, as its owner sees it."""

    id: str = Field(examples=["6f1d0c2a9b3e4f58"])
    name: str = Field(examples=["ada"])
    email: str | None = Field(examples=["ada@example.org"])
    role: str = Field(examples=["participant"])
    email_confirmed: bool = Field(description="whether a link that was sent to the address was followed")
    wants_mail: bool = Field(description="whether news of one's competitions is sent to the address")
    second_factor: bool = Field(description="whether a code is asked for beside the password")
    created_at: datetime

    @classmethod
    def of(cls, account: Account) -> Self:
        """Return an account as its owner sees it."""
        states = {"email_confirmed": account.email_confirmed_at is not None, "second_factor": is_on(account)}
        return cls.read(account, **states)


class LogIn(In):
    """Proof of who one is, for a token."""

    name: str = Field(max_length=200, examples=["ada"])
    password: str = Field(max_length=1000, examples=["correct horse battery staple"])
    code: str = Field(default="", max_length=40, description="of the second factor, where one is on")
    label: str = Field(default="token", min_length=1, max_length=100, examples=["laptop"])
    scope: Scope = Field(default=Scope.FULL, description="what the token is good for; each includes those before it")
    expires_in_days: int = Field(default=90, ge=1, le=365, examples=[90])


class TokenOut(Out):
    """A token, without the token itself."""

    id: str = Field(examples=["0a1b2c3d4e5f6071"])
    label: str = Field(examples=["laptop"])
    scope: Scope
    created_at: datetime
    last_used_at: datetime | None = Field(description="right to some minutes")
    expires_at: datetime

    @classmethod
    def of(cls, row: ApiToken) -> Self:
        """Return a token as its owner sees it."""
        return cls.read(row, expires_at=get_end(row))


class NewToken(TokenOut):
    """A token at the only time when it can be read."""

    token: str = Field(examples=["lethe_3q2-7wAAAA..."])


class MailWish(In):
    """Whether news of one's competitions is wanted by e-mail."""

    wanted: bool


class PasswordChange(In):
    """A new password; every browser session ends."""

    old: str = Field(max_length=1000)
    new: str = Field(description="10 to 200 characters")
    code: str = Field(default="", max_length=40, description="of the second factor, where one is on")


class Deletion(In):
    """Proof that it is meant."""

    password: str = Field(max_length=1000)
    code: str = Field(default="", max_length=40, description="of the second factor, where one is on")


class ResetLinkOut(BaseModel):
    """A link with which a person sets a new password, at the only time when it can be read."""

    link: str = Field(examples=["https://lethe.example.org/reset?token=3q2-7wAAAA..."])
    expires_at: datetime

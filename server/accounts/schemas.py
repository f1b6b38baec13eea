"""What goes in and out of the routes of accounts and tokens."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field


class _Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Registration(_In):
    """A new account."""

    name: str = Field(description="3 to 40 of a-z A-Z 0-9 . _ -; shown on leaderboards", examples=["ada"])
    password: str = Field(description="10 to 200 characters", examples=["correct horse battery staple"])
    email: str | None = Field(default=None, description="shown to nobody", examples=["ada@example.org"])


class AccountOut(_Out):
    """An account, as its owner sees it."""

    id: str = Field(examples=["6f1d0c2a9b3e4f58"])
    name: str = Field(examples=["ada"])
    email: str | None = Field(examples=["ada@example.org"])
    role: str = Field(examples=["participant"])
    wants_mail: bool = Field(description="whether news of one's competitions is sent to the address")
    created_at: datetime


class LogIn(_In):
    """Proof of who one is, for a token."""

    name: str = Field(max_length=200, examples=["ada"])
    password: str = Field(max_length=1000, examples=["correct horse battery staple"])
    label: str = Field(default="token", min_length=1, max_length=100, examples=["laptop"])
    expires_in_days: int | None = Field(default=None, ge=1, le=3650, description="never, if not given", examples=[90])


class TokenOut(_Out):
    """A token, without the token itself."""

    id: str = Field(examples=["0a1b2c3d4e5f6071"])
    label: str = Field(examples=["laptop"])
    created_at: datetime
    last_used_at: datetime | None = Field(description="right to some minutes")
    expires_at: datetime | None


class NewToken(TokenOut):
    """A token at the only time when it can be read."""

    token: str = Field(examples=["lethe_3q2-7wAAAA..."])


class MailWish(_In):
    """Whether news of one's competitions is wanted by e-mail."""

    wanted: bool


class PasswordChange(_In):
    """A new password; every browser session ends."""

    old: str = Field(max_length=1000)
    new: str = Field(description="10 to 200 characters")


class Deletion(_In):
    """Proof that it is meant."""

    password: str = Field(max_length=1000)


class ResetLinkOut(BaseModel):
    """A link with which a person sets a new password, at the only time when it can be read."""

    link: str = Field(examples=["https://lethe.example.org/reset?token=3q2-7wAAAA..."])
    expires_at: datetime

"""/api/v1: accounts, tokens and the caller."""

from datetime import datetime, timedelta
from typing import Self

from fastapi import APIRouter, Request, status
from pydantic import BaseModel, Field

from server.accounts import accounts, rate_limit, second_factor, tokens
from server.accounts.second_factor import is_on
from server.accounts.tokens import get_end
from server.admin import account_deletion as deletion
from server.api.auth_dependencies import CurrentAccount
from server.api.schema import In, Out
from server.deps import DatabaseDep, SessionDep, SettingsDep
from server.errors import Conflict, NotAllowed
from server.middleware import get_client_address
from server.models.account import Account, ApiToken, Scope
from server.problem_details import problems


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


router = APIRouter(tags=["accounts"])


@router.post("/accounts", status_code=status.HTTP_201_CREATED, responses=problems(403, 409))
def register(body: Registration, request: Request, session: SessionDep, settings: SettingsDep) -> AccountOut:
    """Register an account."""
    if not settings.open_registration:
        raise NotAllowed("This server's administrators make the accounts; ask them for one")
    rate_limit.take_registration(settings.registrations_per_hour, get_client_address(request))
    account = accounts.register(session, name=body.name, password=body.password, email=body.email)
    return AccountOut.of(account)


@router.post("/tokens", status_code=status.HTTP_201_CREATED, responses=problems(401))
def log_in(body: LogIn, request: Request, database: DatabaseDep) -> NewToken:
    """Log in with name and password for a token. It is shown this once and stored only as a hash.

    After 10 wrong passwords for a name within 15 minutes, the caller's address is asked to wait.
    """
    with database.read() as session:  # comparing a password takes a while: hold nothing that others wait for
        account = accounts.authenticate(
            session, name=body.name, password=body.password, client=get_client_address(request)
        )
    lifetime = timedelta(days=body.expires_in_days)
    with database.write() as session:
        second_factor.require(session, account, body.code)
        issued = tokens.issue(session, account, label=body.label, scope=body.scope, expires_in=lifetime)
    return NewToken.read(issued.row, token=issued.token, expires_at=tokens.get_end(issued.row))


@router.get("/tokens", responses=problems(401))
def list_tokens(session: SessionDep, account: CurrentAccount) -> list[TokenOut]:
    """List your tokens that are not revoked."""
    return [TokenOut.of(row) for row in tokens.list_account_tokens(session, account)]


@router.delete("/tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401, 404))
def revoke_token(token_id: str, session: SessionDep, account: CurrentAccount) -> None:
    """Revoke one of your tokens. It is refused from now on."""
    tokens.revoke(session, account, token_id)


@router.get("/me", responses=problems(401))
def me(account: CurrentAccount) -> AccountOut:
    """Show your account."""
    return AccountOut.of(account)


@router.put("/me/mail", responses=problems(401))
def wish_for_mail(body: MailWish, account: CurrentAccount) -> AccountOut:
    """Take or decline news of your competitions by e-mail. What you ask for yourself comes in any case."""
    account.wants_mail = body.wanted
    return AccountOut.of(account)


@router.post("/me/mail/confirmation", status_code=status.HTTP_202_ACCEPTED, responses=problems(401, 409))
def send_confirmation(session: SessionDep, account: CurrentAccount) -> AccountOut:
    """Ask for the letter with the link that confirms your address. Nothing else is sent there before."""
    if not accounts.send_confirmation(session, account):
        raise Conflict("There is nothing to confirm: no address, one that is confirmed, or a server that sends no mail")
    return AccountOut.of(account)


@router.put("/me/password", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401))
def change_password(body: PasswordChange, session: SessionDep, account: CurrentAccount) -> None:
    """Change your password. Browsers are logged out; tokens stay."""
    accounts.change_password(session, account, old=body.old, new=body.new, code=body.code)


@router.post("/me/deletion", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401, 409))
def delete_me(body: Deletion, session: SessionDep, account: CurrentAccount) -> None:
    """Delete your account, for good. Submissions stay on the boards, under a name that says nothing."""
    deletion.delete(session, account, password=body.password, code=body.code)

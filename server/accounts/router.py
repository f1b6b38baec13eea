"""/api/v1: accounts, tokens and the caller."""

from datetime import timedelta

from fastapi import APIRouter, Request, status

from lethe.errors import NotAllowed
from server.accounts import deletion, rate_limit, service, tokens
from server.accounts.auth_dependencies import CurrentAccount
from server.accounts.client_address import get_client_address
from server.accounts.schemas import (
    AccountOut,
    Deletion,
    LogIn,
    MailWish,
    NewToken,
    PasswordChange,
    Registration,
    TokenOut,
)
from server.deps import DatabaseDep, SessionDep, SettingsDep
from server.problem_details import problems

router = APIRouter(tags=["accounts"])


@router.post("/accounts", status_code=status.HTTP_201_CREATED, responses=problems(403, 409))
def register(body: Registration, request: Request, session: SessionDep, settings: SettingsDep) -> AccountOut:
    """Register an account."""
    if not settings.open_registration:
        raise NotAllowed("This server's administrators make the accounts; ask them for one")
    rate_limit.take_registration(settings.registrations_per_hour, get_client_address(request))
    account = service.register(session, name=body.name, password=body.password, email=body.email)
    return AccountOut.model_validate(account)


@router.post("/tokens", status_code=status.HTTP_201_CREATED, responses=problems(401))
def log_in(body: LogIn, request: Request, database: DatabaseDep) -> NewToken:
    """Log in with name and password for a token. It is shown this once and stored only as a hash.

    After 10 wrong passwords for a name within 15 minutes, the caller's address is asked to wait.
    """
    with database.read() as session:  # comparing a password takes a while: hold nothing that others wait for
        account = service.authenticate(
            session, name=body.name, password=body.password, client=get_client_address(request)
        )
    expires_in = timedelta(days=body.expires_in_days) if body.expires_in_days else None
    with database.write() as session:
        issued = tokens.issue(session, account, label=body.label, expires_in=expires_in)
    return NewToken(**TokenOut.model_validate(issued.row).model_dump(), token=issued.token)


@router.get("/tokens", responses=problems(401))
def list_tokens(session: SessionDep, account: CurrentAccount) -> list[TokenOut]:
    """List your tokens that are not revoked."""
    return [TokenOut.model_validate(row) for row in tokens.list_account_tokens(session, account)]


@router.delete("/tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401, 404))
def revoke_token(token_id: str, session: SessionDep, account: CurrentAccount) -> None:
    """Revoke one of your tokens. It is refused from now on."""
    tokens.revoke(session, account, token_id)


@router.get("/me", responses=problems(401))
def me(account: CurrentAccount) -> AccountOut:
    """Show your account."""
    return AccountOut.model_validate(account)


@router.put("/me/mail", responses=problems(401))
def wish_for_mail(body: MailWish, account: CurrentAccount) -> AccountOut:
    """Take or decline news of your competitions by e-mail. What you ask for yourself comes in any case."""
    account.wants_mail = body.wanted
    return AccountOut.model_validate(account)


@router.put("/me/password", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401))
def change_password(body: PasswordChange, session: SessionDep, account: CurrentAccount) -> None:
    """Change your password. Browsers are logged out; tokens stay."""
    service.change_password(session, account, old=body.old, new=body.new)


@router.post("/me/deletion", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401, 409))
def delete_me(body: Deletion, session: SessionDep, account: CurrentAccount) -> None:
    """Delete your account, for good. Submissions stay on the boards, under a name that says nothing."""
    deletion.delete(session, account, password=body.password)

"""/api/v1: accounts, tokens and the caller."""

from datetime import timedelta

from fastapi import APIRouter, Request, status

from server.accounts import email_confirmation, rate_limit, second_factor, service, tokens
from server.admin import account_deletion as deletion
from server.api.accounts.schemas import (
    AccountOut,
    Deletion,
    LogIn,
    MailWish,
    NewToken,
    PasswordChange,
    Registration,
    TokenOut,
)
from server.api.auth_dependencies import CurrentAccount
from server.deps import DatabaseDep, SessionDep, SettingsDep
from server.errors import Conflict, NotAllowed
from server.middleware import get_client_address
from server.problem_details import problems

router = APIRouter(tags=["accounts"])


@router.post("/accounts", status_code=status.HTTP_201_CREATED, responses=problems(403, 409))
def register(body: Registration, request: Request, session: SessionDep, settings: SettingsDep) -> AccountOut:
    """Register an account."""
    if not settings.open_registration:
        raise NotAllowed("This server's administrators make the accounts; ask them for one")
    rate_limit.take_registration(settings.registrations_per_hour, get_client_address(request))
    account = service.register(session, name=body.name, password=body.password, email=body.email)
    return AccountOut.of(account)


@router.post("/tokens", status_code=status.HTTP_201_CREATED, responses=problems(401))
def log_in(body: LogIn, request: Request, database: DatabaseDep) -> NewToken:
    """Log in with name and password for a token. It is shown this once and stored only as a hash.

    After 10 wrong passwords for a name within 15 minutes, the caller's address is asked to wait.
    """
    with database.read() as session:  # comparing a password takes a while: hold nothing that others wait for
        account = service.authenticate(
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
    if not email_confirmation.send_letter(session, account):
        raise Conflict("There is nothing to confirm: no address, one that is confirmed, or a server that sends no mail")
    return AccountOut.of(account)


@router.put("/me/password", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401))
def change_password(body: PasswordChange, session: SessionDep, account: CurrentAccount) -> None:
    """Change your password. Browsers are logged out; tokens stay."""
    service.change_password(session, account, old=body.old, new=body.new, code=body.code)


@router.post("/me/deletion", status_code=status.HTTP_204_NO_CONTENT, responses=problems(401, 409))
def delete_me(body: Deletion, session: SessionDep, account: CurrentAccount) -> None:
    """Delete your account, for good. Submissions stay on the boards, under a name that says nothing."""
    deletion.delete(session, account, password=body.password, code=body.code)

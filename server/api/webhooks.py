"""/api/v1/competitions/{slug}/webhooks: addresses that receive events. For organisers."""

from datetime import datetime

from fastapi import status
from pydantic import Field

from server.api.auth_dependencies import CurrentAccount, organiser_routes
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.schema import In, Out
from server.deps import SessionDep, SettingsDep
from server.notifications import webhooks
from server.problem_details import problems


class WebhookIn(In):
    """An address to tell, and of what."""

    url: str = Field(max_length=500, examples=["https://example.org/lethe"])
    events: list[str] = Field(max_length=20, examples=[["submission.scored", "competition.closed"]])


class WebhookOut(Out):
    """A webhook."""

    id: str
    url: str
    events: list[str]
    created_at: datetime


class CreatedWebhook(WebhookOut):
    """A webhook at the only time when its secret is shown."""

    secret: str = Field(description="key of the HMAC-SHA256 in the header Lethe-Signature: t=...,v1=...")


class DeliveryOut(Out):
    """What an address received, and how that went."""

    id: str
    event: str
    state: str = Field(description="waiting, sent or failed")
    attempts: int
    next_attempt_at: datetime
    error: str
    created_at: datetime


router = organiser_routes("/webhooks")


@router.get("")
def list_webhooks(session: SessionDep, competition: Organised) -> list[WebhookOut]:
    """List the webhooks."""
    return [WebhookOut.model_validate(row) for row in webhooks.of_competition(session, competition)]


@router.post("", status_code=status.HTTP_201_CREATED, responses=problems(409))
def create_webhook(
    body: WebhookIn, session: SessionDep, settings: SettingsDep, *, competition: Organised, account: CurrentAccount
) -> CreatedWebhook:
    """Send events to an address from now on. The secret is shown this once."""
    new = webhooks.create(session, settings, competition, url=body.url, events=body.events, actor=account)
    return CreatedWebhook(**WebhookOut.model_validate(new.row).model_dump(), secret=new.secret)


@router.delete("/{webhook_id}", status_code=status.HTTP_204_NO_CONTENT)
def remove_webhook(webhook_id: str, session: SessionDep, competition: Organised, account: CurrentAccount) -> None:
    """Stop sending to an address."""
    webhooks.remove(session, competition, webhook_id, actor=account)


@router.get("/{webhook_id}/deliveries")
def list_deliveries(webhook_id: str, session: SessionDep, competition: Organised) -> list[DeliveryOut]:
    """List what an address received last, and how that went."""
    hook = webhooks.get(session, competition, webhook_id)
    return [DeliveryOut.model_validate(row) for row in webhooks.deliveries(session, hook)]

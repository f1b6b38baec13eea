"""What goes in and out of the routes of webhooks."""

from datetime import datetime

from pydantic import Field

from server.api.schema import In, Out


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

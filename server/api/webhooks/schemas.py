"""What goes in and out of the routes of webhooks."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field


class NewWebhook(BaseModel):
    """An address to tell, and of what."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(max_length=500, examples=["https://example.org/lethe"])
    events: list[str] = Field(max_length=20, examples=[["submission.scored", "competition.closed"]])


class WebhookOut(BaseModel):
    """A webhook."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    url: str
    events: list[str]
    created_at: datetime


class CreatedWebhook(WebhookOut):
    """A webhook at the only time when its secret is shown."""

    secret: str = Field(description="key of the HMAC-SHA256 in the header Lethe-Signature: t=...,v1=...")


class DeliveryOut(BaseModel):
    """What an address received, and how that went."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    event: str
    state: str = Field(description="waiting, sent or failed")
    attempts: int
    next_attempt_at: datetime
    error: str
    created_at: datetime

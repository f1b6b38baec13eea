"""The client of a competition server: `LetheClient` speaks its HTTP API."""

from lethe.client.api import ApiError, LetheClient

__all__ = ["ApiError", "LetheClient"]

"""Settings of a worker that has a server's address and a token, and neither database, Redis nor storage."""

import os
from typing import Self

from pydantic import SecretStr, model_validator

from lethe.errors import InvalidInput
from server.config import Settings

TOKEN_VARIABLE = "LETHE_WORKER_TOKEN"  # noqa: S105 (the variable's name)


class RemoteSettings(Settings):
    """The same settings; production asks for a real sandbox, but for none of an instance's own services."""

    @model_validator(mode="after")
    def _production_has_no_defaults(self) -> Self:
        if self.environment == "production" and self.sandbox_backend == "plain":
            raise ValueError("LETHE_SANDBOX_BACKEND=plain confines nothing and is refused in production")
        return self


def take_token() -> SecretStr:
    """Return the token, and take it out of the environment that other processes inherit. Raises InvalidInput."""
    token = os.environ.pop(TOKEN_VARIABLE, "").strip()
    if not token:
        raise InvalidInput(
            "No worker token is set. An organiser creates one with `lethe api POST /competitions/NAME/worker-tokens -f "
            f"name=MACHINE`; put it into the environment as {TOKEN_VARIABLE}, not among the arguments, where other "
            "users of the host could read it."
        )
    return SecretStr(token)

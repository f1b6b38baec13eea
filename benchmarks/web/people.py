"""The rows of people, and of the competition that they are in."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.web.names import name_for
from lethe.competition.file import CompetitionFile
from server.accounts.passwords import hash_password
from server.models.account import Role

EXAMPLE = Path(__file__).parents[2] / "examples" / "competitions" / "digits.toml"
PASSWORD = "correct horse battery"
ORACLE_SCORE = 0.98871
WEEKS = 4
N_FORGET = 36
AFTER_THE_END = ("provisional", "final")

Row = dict[str, Any]


class People:
    """Accounts, the competition with its splits, teams. `at` is the moment at which all of it is looked at."""

    def __init__(self, at: datetime, *, file: CompetitionFile, teams: int, state: str) -> None:
        self.at, self.file, self.teams, self.state = at, file, teams, state
        self.password_hash = hash_password(PASSWORD)
        self.opens_at = at - timedelta(weeks=WEEKS)
        self.closes_at = at + (timedelta(days=-2) if state in AFTER_THE_END else timedelta(days=9, hours=5))

    def accounts(self) -> Iterator[Row]:
        yield self._account("organiser", "grace", Role.ORGANISER)
        yield self._account("admin", "margaret", Role.ADMINISTRATOR)
        for number in range(self.teams):
            yield self._account(f"a{number}", name_for(number), Role.PARTICIPANT)

    def _account(self, account_id: str, name: str, role: Role) -> Row:
        return {
            "id": account_id,
            "name": name,
            "name_key": name.casefold(),
            "email": None,
            "password_hash": self.password_hash,
            "role": role.value,
            "created_at": self.opens_at,
        }

    def competition(self) -> Row:
        file = self.file.model_copy(update={"opens_at": self.opens_at, "closes_at": self.closes_at})
        is_over = self.state in AFTER_THE_END
        return {
            "id": "c",
            "slug": file.slug,
            "title": file.title,
            "summary": file.summary,
            "state": self.state,
            "opens_at": self.opens_at,
            "closes_at": self.closes_at,
            "closed_at": self.closes_at if is_over else None,
            "frozen_at": self.closes_at if is_over else None,
            "revealed_at": self.at - timedelta(days=1) if self.state == "final" else None,
            "config": file.model_dump(mode="json"),
            "source": EXAMPLE.read_text(),
            "created_by": "organiser",
            "created_at": self.opens_at,
        }

    def splits(self) -> Iterator[Row]:
        for visibility, oracle in (("public", ORACLE_SCORE), ("private", 0.98512)):
            yield {
                "id": visibility,
                "competition_id": "c",
                "visibility": visibility,
                "state": "ready",
                "manifest_sha256": "0" * 64,
                "n_forget": N_FORGET,
                "retraining_time_s": 40.0,
                "oracle": {"final_score": oracle},
                "prepared_at": self.opens_at,
            }

    def team_rows(self) -> Iterator[Row]:
        for number in range(self.teams):
            name = "fine-tuning" if number == 1 else name_for(number)
            yield {
                "id": f"t{number}",
                "competition_id": "c",
                "name": name,
                "name_key": name.casefold(),
                "leader_id": f"a{number}",
                "is_baseline": number == 1,
                "disqualified_at": self.at if number == 7 else None,
            }

    def memberships(self) -> Iterator[Row]:
        for number in range(self.teams):
            yield {"team_id": f"t{number}", "account_id": f"a{number}", "competition_id": "c"}

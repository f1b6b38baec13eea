"""A scored submission with its code in storage, and what the audit log says of a competition."""

from lethe.competition.visibility import Visibility
from server import audit
from server.audit import EventFilter
from server.competitions import competitions
from server.models.competition import Competition
from server.models.submission import Submission
from tests.support.instance import Instance
from tests.support.scores import add_team, scored


def add_scored(server: Instance, competition: Competition, name: str = "ada", score: float = 0.1) -> Submission:
    with server.database.write() as session:
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        submission = scored(session, add_team(session, competition, name), public, score)
        submission.content_sha256 = server.storage.write("submissions/co/code", b"def unlearning(n, a, b, c): ...\n")
        server.storage.write(
            f"submissions/{submission.content_sha256[:2]}/{submission.content_sha256}",
            b"def unlearning(n, a, b, c): ...\n",
        )
        return submission


def actions(server: Instance, competition: Competition) -> list[tuple[str, str]]:
    with server.database.read() as session:
        events = audit.events(session, EventFilter(competition_id=competition.id))
        return [(event.action, event.reason) for event in events]

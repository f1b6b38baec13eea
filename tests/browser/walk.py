"""Every page there is, who looks at it, and what its title says there."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from server.accounts import accounts, password_reset, second_factor
from server.admin import competition_edits
from server.api.benchmarks import BenchmarkIn
from server.benchmarks import benchmarks
from server.benchmarks.cells import MethodRecord
from server.competitions import competitions, participants, questions
from server.deps import get_database
from server.models.account import Account
from server.rejudging import rejudgings
from server.rejudging.sets import Chosen
from server.teams import joining, teams
from server.web.competition_pages import STARTER_TOML
from tests.server.benchmarks.conftest import request_body

DIGITS, RUN = "Forget these digits · Lethe", "submission.py · Lethe"
SLUG, SUBMISSION = "/competitions/{slug}", "/submissions/{submission_id}"
ORGANISED = "/organise/{slug}"
ONE = f"{ORGANISED}/submissions/{{submission_id}}"


@dataclass(frozen=True)
class Visit:
    """One page as one reader sees it. route: as the application declares it; asked: what the address has beyond."""

    route: str
    title: str
    slug: str = "digits"
    submission: str = "scored"
    query: str = ""
    status: int = 200

    def path(self, ids: dict[str, str]) -> str:
        values = {
            "slug": self.slug,
            "submission_id": ids.get(self.submission, ""),
            "visibility": "public",
            "team_id": "t0",
            "name": "commands" if self.route.startswith("/help") else "rules",
        }
        return (self.route + self.query).format(**values, **ids)


VISITOR = (
    Visit("/", "Competitions · Lethe"),
    Visit("/login", "Log in · Lethe"),
    Visit("/register", "Register · Lethe"),
    Visit("/forgot", "Forgotten password · Lethe"),
    Visit("/reset", "New password · Lethe", query="?token={reset_token}"),
    Visit("/reset", "This link does not work · Lethe", query="?token=none", status=404),
    Visit("/confirm", "Confirm the address · Lethe", query="?token={confirmation_token}"),
    Visit("/confirm", "Not confirmed · Lethe", query="?token=none", status=404),
    Visit("/api/docs", "HTTP API · Lethe"),
    Visit("/help", "Help · Lethe"),
    Visit("/help/{name}", "Commands · Help · Lethe"),
    Visit("/help", "seed · Help · Lethe", query="?q=seed"),
    Visit(SLUG, DIGITS),
    Visit(f"{SLUG}/leaderboard", f"Public leaderboard · {DIGITS}"),
    Visit(f"{SLUG}/pages/{{name}}", f"Rules · {DIGITS}"),
    Visit("/nowhere", "Not found · Lethe", status=404),
)
PARTICIPANT = (
    Visit(SLUG, DIGITS),
    Visit(f"{SLUG}/leaderboard", f"Public leaderboard · {DIGITS}"),
    Visit(f"{SLUG}/leaderboard", f"2 lines found · Public leaderboard · {DIGITS}", query="?q=calm"),
    Visit(f"{SLUG}/teams/{{team_id}}", f"ada · {DIGITS}"),
    Visit(f"{SLUG}/leaderboard/charts", f"Charts · {DIGITS}"),
    Visit(f"{SLUG}/compare", f"Compare submissions · {DIGITS}"),
    Visit(f"{SLUG}/submit", f"Submit · {DIGITS}"),
    Visit(f"{SLUG}/submissions", rf"My submissions \(1 in progress\) · {DIGITS}"),
    Visit(f"{SLUG}/submissions/compare", f"Two of my submissions · {DIGITS}", query="?first={scored}&second={other}"),
    Visit(f"{SLUG}/team", f"Team · {DIGITS}"),
    Visit(f"{SLUG}/team/join", f"Team · {DIGITS}", query="?token={invitation_token}"),
    Visit(f"{SLUG}/questions", f"Questions · {DIGITS}"),
    Visit(f"{SLUG}/join", f"Take part · {DIGITS}"),
    Visit(f"{SLUG}/leaderboard", f"Late leaderboard · {DIGITS}", query="?phase=late"),
    Visit("/account", "Account · Lethe"),
    Visit("/account/second-factor", "Second factor · Lethe"),
    Visit(SUBMISSION, f"[0-9]+ of 512 runs · {RUN}", submission="running"),
    Visit(f"{SUBMISSION}/cancel", f"Cancel\\? · {RUN}", submission="running"),
    Visit(SUBMISSION, f"Failed · {RUN}", submission="failed"),
    Visit(SUBMISSION, f"Scored [0-9.]+ · {RUN}"),
    Visit(f"{SUBMISSION}/source", f"Code of {RUN}"),
    Visit(f"{SUBMISSION}/receipt", f"Receipt, [0-9.]+ · {DIGITS}"),
    Visit("/organise", "No permission · Lethe", status=403),
)
ORGANISER = (
    Visit("/organise", "2 warnings · Dashboard · Lethe"),
    Visit("/organise/new", "New competition · Lethe"),
    Visit("/organise/new/data", "Competition from your images · Lethe"),
    Visit("/organise/benchmarks", "Benchmarks · Lethe"),
    Visit("/organise/benchmarks/{slug}", "tiny · Benchmarks · Lethe", slug="tiny"),
    Visit("/datasets", "Datasets · Lethe"),
    Visit(ORGANISED, f"Open · {DIGITS}"),
    Visit(ORGANISED, "Draft · .* · Lethe", slug="draft"),
    Visit(f"{ORGANISED}/submissions", f"Submissions · {DIGITS}"),
    Visit(f"{ORGANISED}/submissions", f"Some submissions · {DIGITS}", query="?stage=failed&error_class=none-such"),
    Visit(ONE, f"Scored · .* · {DIGITS}"),
    Visit(f"{ONE}/answers", f"Answers · .* · {DIGITS}"),
    Visit(f"{ONE}/compare", f"ada against .* · {DIGITS}", query="?other=s41"),
    Visit(f"{SLUG}/compare", f"Compare submissions · {DIGITS}"),
    Visit(f"{ORGANISED}/teams", f"People and teams · {DIGITS}"),
    Visit(f"{ORGANISED}/participants", f"Who takes part · {DIGITS}"),
    Visit(f"{ORGANISED}/questions", f"Questions · {DIGITS}"),
    Visit(f"{ORGANISED}/phases", f"Phases · {DIGITS}"),
    Visit(f"{ORGANISED}/pages", f"Pages · {DIGITS}", query="?name=rules"),
    Visit(f"{ORGANISED}/audit", f"Audit log · {DIGITS}"),
    Visit(f"{ORGANISED}/rejudgings", f"Re-judging · {DIGITS}"),
    Visit(f"{ORGANISED}/rejudgings/{{rejudging_id}}", f"0 of [0-9]+ · Re-judging · {DIGITS}"),
    Visit(f"{ORGANISED}/limits", f"Limits · {DIGITS}"),
    Visit(f"{ORGANISED}/words", f"Description · {DIGITS}"),
    Visit(f"{ORGANISED}/splits/{{visibility}}", f"Public split · {DIGITS}"),
    Visit(f"{ORGANISED}/exports", f"Exports · {DIGITS}"),
    Visit(f"{ORGANISED}/edit", "File · .* · Lethe", slug="draft"),
)
ADMINISTRATOR = (Visit("/people", "People · Lethe"),)
WALK = {"": VISITOR, "ada": PARTICIPANT, "grace": ORGANISER, "margaret": ADMINISTRATOR}

# Answers of page routers that are no pages: what scripts ask for, what is downloaded, streams.
NO_PAGES = (
    ".json",
    "/events",
    "/live",
    "/rows",
    "/progress",
    "/code",
    "/starter.py",
    "/starter-kit.zip",
    "/robots.txt",
    "/favicon.ico",
    "/pictures/{name}.png",
    "/exports/{name}",
    "/bundle.zip",
    "/{path:path}",
)


def _store_benchmark(session: Session, organiser: Account) -> None:
    """Store a benchmark of which nothing has been computed."""
    with TemporaryDirectory() as folder:
        asked = BenchmarkIn.model_validate(request_body(Path(folder)))
    benchmarks.store(
        session,
        asked.file,
        asked.text,
        cells=[(cell.name, CompetitionFile.model_validate(cell.competition)) for cell in asked.cells],
        methods=[
            MethodRecord(name=each.name, source=each.source, sha256=f"{number:064x}", kind="py", entry_point={})
            for number, each in enumerate(asked.methods)
        ],
        account=organiser,
        until=None,
    )


def prepare() -> dict[str, str]:
    """Make what the seeded instance lacks: a draft, a re-judging, a benchmark, an invitation, a link for a password."""
    with get_database().write() as session:
        grace, ada, brisk = (accounts.find(session, name) for name in ("grace", "ada", "brisk-river"))
        competitions.create(session, STARTER_TOML.read_text().replace('"my-competition"', '"draft"'), organiser=grace)
        digits = competitions.get(session, "digits", account=grace)
        made = rejudgings.start(
            session,
            digits,
            visibility=Visibility.PUBLIC,
            chosen=Chosen(team_id="t0"),
            changed="scorer",
            actor=grace,
            reason="the cap was wrong",
        )
        sections = {"phases": [{"name": "final"}], "late": {"accepted": True}, "pages": {"rules": "Be *fair*."}}
        competition_edits.change(session, digits, sections, actor=grace, reason="to be looked at")
        asked = questions.ask(session, digits, text="How long?", account=ada)
        questions.answer(session, digits, asked.id, text="A *week*.", to_all=True, actor=grace)
        questions.ask(session, digits, text="And then?", account=ada)
        participants.decide(session, digits, "brisk-river", admit=True, reason="known", actor=grace)
        invited = joining.invite(session, teams.own_team(session, digits, brisk), actor=brisk)
        _store_benchmark(session, grace)
        reset = password_reset.issue(session, ada, actor=None, lifetime=timedelta(hours=1))
        second_factor.begin(ada)  # its first code is waited for
        ada.email = "ada@example.org"
        return {
            "rejudging_id": made.id,
            "invitation_token": invited.token or "",
            "reset_token": reset.token,
            "confirmation_token": accounts.make_confirmation_token(ada),
        }

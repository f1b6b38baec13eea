"""`lethe up`: serve the instance of this machine until Ctrl-C; what to log in with. `lethe close`: end a competition,
re-score the chosen submissions on the private split, print the private board."""

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.table import Column, Table

from lethe.cli.output import Terminal, preparation_so_far
from lethe.client.api import JsonObject, LetheClient
from lethe.errors import HostFault, InvalidCompetitionFile, NotFound
from server.accounts import accounts
from server.config import Settings
from server.db import Database
from server.embedded.instance import RunningInstance, is_running, running, url_of_running
from server.models.account import Role
from server.private_files import instance_settings

RESCORING = "closed"
COMPUTED = ("provisional", "final", "archived")


def close_competition(slug: str, *, json_file: Path | None) -> None:
    """Close the competition of this machine's instance, which is started for that if it does not run."""
    settings = instance_settings()
    with _instance(settings) as url, LetheClient(url) as organiser:
        organiser.log_in(*organiser_credentials(settings), label="lethe close")
        organiser.act(slug, "close", {"reason": "closed from the command line"})
        _wait_for_rescoring(organiser, slug)
        board = organiser.leaderboard(slug, board="private")
        public = {row["team"]: row["rank"] for row in organiser.leaderboard(slug)["rows"]}
    caption = f"sealed until `lethe api POST /competitions/{slug}/reveal`"
    console.print(board_table(board, title=f"Private leaderboard of {slug}", caption=caption, public=public))
    if json_file:
        rows = [row for row in board["rows"] if row["kind"] != "oracle"]
        kept = [{"rank": row["rank"], "team": row["team"], "score": row["score"]} for row in rows]
        json_file.write_text(json.dumps({"leaderboard": kept, "oracle": board["oracle"]}, indent=2) + "\n")


@contextmanager
def _instance(settings: Settings) -> Iterator[str]:
    if is_running(settings):
        yield url_of_running(settings)
        return
    with running(settings) as instance:
        yield instance.url


def _wait_for_rescoring(organiser: LetheClient, slug: str) -> None:
    with console.status("re-scoring on the private split") as status:
        while True:
            state = organiser.competition(slug)["state"]
            if state in COMPUTED:
                return
            if state != RESCORING:
                raise HostFault(f"{slug} is {state} again, since its end was changed meanwhile")
            status.update(_progress_text(organiser, slug))
            time.sleep(0.5)


def _progress_text(organiser: LetheClient, slug: str) -> str:
    """Raises InvalidCompetitionFile where a split cannot be prepared."""
    splits = organiser.preparation(slug)["splits"]
    unfinished = [split for split in splits if split["state"] != "ready"]
    for split in unfinished:
        if split["state"] == "failed":
            raise InvalidCompetitionFile(f"the {split['visibility']} split of {slug}: {split['error']}")
    if unfinished:
        share, words = preparation_so_far(unfinished)
        return f"preparing: {share:.0%}, {words}"
    progress = organiser.get(f"/competitions/{slug}/rescoring")
    return f"re-scoring on the private split: {progress['runs_done']} of {progress['runs_total']} runs"


def board_table(board: JsonObject, *, title: str, caption: str, public: dict[str, int | None] | None = None) -> Table:
    """Return a board for the terminal. public: ranks on the public board by team, to stand beside a private one's."""
    names = ["Rank", *([] if public is None else ["Public rank"]), "Team", "Score", "of the oracle"]
    columns = [Column(name, justify="left" if name == "Team" else "right") for name in names]
    table, oracle = Table(*columns, title=title, caption=caption), board["oracle"]["score"]
    for row in board["rows"]:
        name = "Oracle: retrained with other seeds" if row["kind"] == "oracle" else row["team"]
        name += " (baseline)" if row["kind"] == "baseline" else ""
        ranks = [row["rank"]] if public is None else [row["rank"], public.get(row["team"])]
        values = (name, f"{row['score']:.6f}", f"{100 * row['score'] / oracle:.1f} %")
        style = "dim" if row["kind"] == "oracle" or (public is None and row["rank"] is None) else None
        table.add_row(*(str(rank or "–") for rank in ranks), *values, style=style)
    return table


ORGANISER = "organiser"
PARTICIPANT = "participant"  # of a demo


def organiser_credentials(settings: Settings) -> tuple[str, str]:
    """Return name and password of the instance's organiser, making the account at the first call."""
    password = kept_password(settings, ORGANISER)
    with Database(settings.resolved_database_url) as database, database.write() as session:
        try:
            accounts.find(session, ORGANISER)
        except NotFound:
            accounts.register(session, name=ORGANISER, password=password, role=Role.ADMINISTRATOR)
    return ORGANISER, password


def log_in_lines(settings: Settings) -> list[str]:
    """Return what to log in with, as every start prints it: of the organiser, and of a demo's participant."""
    known = _kept(settings)
    lines = [f"Log in as {name} / {known[name]}" for name in (ORGANISER, PARTICIPANT) if name in known]
    return [*lines, "If a password was changed since: `lethe reset-password NAME` prints a link for a new one."]


def kept_password(settings: Settings, name: str) -> str:
    """Return the password kept for `name` in the home folder (readable by its owner only), making one if needed."""
    known = _kept(settings)
    if name not in known:
        known[name] = secrets.token_hex(10)
        _write_private(_file(settings), json.dumps(known, indent=2))
    return known[name]


def _kept(settings: Settings) -> dict[str, str]:
    path = _file(settings)
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return known


def _file(settings: Settings) -> Path:
    return settings.home.absolute() / "credentials.json"


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


console = Terminal()


def serve() -> None:
    """Run web server, worker and Redis until Ctrl-C or SIGTERM."""
    settings = instance_settings()
    with running(settings) as instance:
        organiser_credentials(settings)
        for line in (f"Lethe serves [bold]{instance.url}[/]", *log_in_lines(settings), "Ctrl-C ends it."):
            console.print(line, highlight=False, soft_wrap=True)
        wait_for_interrupt(instance)


def wait_for_interrupt(instance: RunningInstance | None = None) -> None:
    """Return at SIGINT or SIGTERM. Raises HostFault if a process of the instance ends before."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    while not asked.wait(1.0):
        if instance is not None:
            instance.require_alive()

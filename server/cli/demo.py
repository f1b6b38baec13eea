"""`lethe demo`: a complete competition on real data, on this machine, in minutes.

Everything a participant does is done over HTTP, as a participant would.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

import server
from lethe.cli.output import OverallProgress, preparation_so_far
from lethe.client.api import ApiError, JsonObject, LetheClient
from lethe.errors import HostFault, InvalidCompetitionFile
from server.cli.serve import (
    PARTICIPANT,
    board_table,
    kept_password,
    log_in_lines,
    organiser_credentials,
    wait_for_interrupt,
)
from server.config import Settings
from server.embedded.instance import RunningInstance, running
from server.private_files import instance_settings

console = Console()
EXAMPLES = Path(server.__file__).parents[1] / "examples"
SLUG = "digits"
OPEN_FOR = timedelta(days=30)
ENDED_EARLIER = ("closed", "provisional", "final", "archived")
LOOK_EVERY_S = 1.0  # each look costs the server some milliseconds of the processors that compute
ENDS = ("scored", "failed", "cancelled")
# Steps of the bar, each with the seconds that it took on two cores: it guesses by them until it has seen some.
PREPARE, EVALUATE, BASELINES = "prepare the public split", "evaluate the submissions", "evaluate the baselines"
STEP_S = {PREPARE: 50.0, EVALUATE: 95.0, BASELINES: 180.0}


@dataclass(frozen=True)
class Entrant:
    """A participant of the demo, their team and their code."""

    account: str
    team: str
    file: Path


ENTRANTS = (
    Entrant("redrawn", "Redraw, then fine-tune", EXAMPLES / "submissions" / "redraw_finetune.py"),
    Entrant(PARTICIPANT, "Retrain the last layer", EXAMPLES / "submissions" / "last_layer.py"),
    Entrant("baseline", "Fine-tune (the host's baseline)", EXAMPLES / "submissions" / "finetune.py"),
    Entrant("unchanged", "Return the original", EXAMPLES / "submissions" / "return_original.py"),
)


class Stages:
    """Names the stages of the demo and how long each took, in seconds."""

    def __init__(self) -> None:
        self.took: list[tuple[str, float]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.took.append((name, time.monotonic() - started))


def run_demo(*, serve: bool, wait_for_baselines: bool, json_file: Path | None) -> None:
    """Hold the competition, print its leaderboard, write its outcome, serve its pages."""
    settings = instance_settings()
    stages = Stages()
    console.print(f"Starting an instance in {settings.home.absolute()}", highlight=False, soft_wrap=True)
    with stages.stage("start the instance"):
        context = running(settings)
        instance = context.__enter__()
    try:
        console.print(f"Lethe serves [bold]{instance.url}[/], the competition from its preparation on", highlight=False)
        outcome = _hold(settings, instance, stages, wait_for_baselines=wait_for_baselines)
        _print(outcome, stages, instance, settings)
        if json_file:
            _write(json_file, outcome, stages)
        if outcome["baselines_left"]:
            rest = "as they are scored" if serve else "when `lethe up` serves it: this command did not wait for them"
            console.print(f"{outcome['baselines_left']} baselines appear on the leaderboard {rest}.", style="dim")
        if serve:
            console.print("Serving until Ctrl-C.", style="dim")
            wait_for_interrupt(instance)
    finally:
        context.__exit__(None, None, None)


def _hold(settings: Settings, instance: RunningInstance, stages: Stages, *, wait_for_baselines: bool) -> JsonObject:
    name, password = organiser_credentials(settings)
    steps = {step: seconds for step, seconds in STEP_S.items() if step != BASELINES or wait_for_baselines}
    with LetheClient(instance.url) as organiser, OverallProgress(steps, console=console) as progress:
        organiser.log_in(name, password, label="demo")
        with stages.stage(PREPARE):
            _begin_to_prepare(organiser)
            clients = {entrant: _participant(settings, instance, entrant) for entrant in ENTRANTS}
            _wait_for_preparation(organiser, progress)
            organiser.open(SLUG)
        with stages.stage(EVALUATE):
            _compete(clients, organiser, progress)
        if wait_for_baselines:
            with stages.stage(BASELINES):
                _wait_for_ends(lambda: _baselines(organiser), progress, BASELINES)
        left = sum(found is None or found["stage"] not in ENDS for found in _baselines(organiser).values())
        runs = organiser.competition(SLUG)["runs"]
        return organiser.leaderboard(SLUG) | {"runs": runs, "baselines_left": left}


def _begin_to_prepare(organiser: LetheClient) -> None:
    """Create the competition and have it prepared, or take it up where an earlier demo left it."""
    try:
        competition = organiser.competition(SLUG)
    except ApiError as error:
        if error.http_status != 404:
            raise
        competition = organiser.create_competition(competition_file())
    if competition["state"] in ENDED_EARLIER:
        raise HostFault(
            f"the demo's competition is {competition['state']}: `lethe up` serves it; "
            "remove the home folder to hold another"
        )
    # What was begun goes on by itself, and prepared splits stay as they are: to prepare them again checks every file.
    has_failed = any(split["state"] == "failed" for split in organiser.preparation(SLUG)["splits"])
    if competition["state"] == "draft" or (competition["state"] == "preparing" and has_failed):
        organiser.prepare(SLUG)


def _wait_for_preparation(organiser: LetheClient, progress: OverallProgress) -> None:
    while True:
        competition = organiser.preparation(SLUG)
        splits = competition["splits"]
        progress.show(PREPARE, *preparation_so_far([split for split in splits if split["visibility"] == "public"]))
        failed = [split for split in splits if split["state"] == "failed"]
        if failed:
            raise InvalidCompetitionFile(f"the {failed[0]['visibility']} split: {failed[0]['error']}")
        if competition["state"] not in ("draft", "preparing"):
            break
        time.sleep(LOOK_EVERY_S)


def _compete(clients: Mapping[Entrant, LetheClient], organiser: LetheClient, progress: OverallProgress) -> None:
    """Send the example submissions, each as its own participant, and wait for their ends."""
    sent: dict[str, str] = {}
    for entrant, client in clients.items():
        with client:
            _join(client, entrant)
            sent[entrant.team] = _submitted(client, entrant)

    def known() -> dict[str, JsonObject | None]:
        rows = {row["id"]: row for row in organiser.get(f"/competitions/{SLUG}/all-submissions")}
        return {team: rows.get(submission_id) for team, submission_id in sent.items()}

    _wait_for_ends(known, progress, EVALUATE)


def _wait_for_ends(look: Callable[[], dict[str, JsonObject | None]], progress: OverallProgress, step: str) -> None:
    while True:
        known = look()
        progress.show(step, *_so_far(known))
        if all(submission is not None and submission["stage"] in ENDS for submission in known.values()):
            break
        time.sleep(LOOK_EVERY_S)


def _baselines(organiser: LetheClient) -> dict[str, JsonObject | None]:
    """Return the submission of each reference line of the file; None: the instance has not submitted it yet."""
    wanted: list[str] = organiser.preparation(SLUG)["baselines"]
    sent = {row["message"]: row for row in organiser.get(f"/competitions/{SLUG}/all-submissions")}
    return {label: sent.get(label) for label in wanted}


def _participant(settings: Settings, instance: RunningInstance, entrant: Entrant) -> LetheClient:
    """Return a logged-in client of the entrant, registering the account at the first demo."""
    client = LetheClient(instance.url)
    password = kept_password(settings, entrant.account)
    try:
        client.log_in(entrant.account, password, label="demo")
    except ApiError as error:
        if error.http_status != 401:
            raise
        client.register(entrant.account, password)
        client.log_in(entrant.account, password, label="demo")
    return client


def _join(client: LetheClient, entrant: Entrant) -> None:
    """Make the entrant's team, unless an earlier demo has: only an open competition has teams."""
    try:
        client.create_team(SLUG, entrant.team)
    except ApiError as error:
        if error.http_status != 409:
            raise


def _submitted(client: LetheClient, entrant: Entrant) -> str:
    """Return the entrant's submission: one that an earlier demo left running or scored, else a new one."""
    for known in client.submissions(SLUG):
        if known["filename"] == entrant.file.name and known["stage"] not in ("failed", "cancelled"):
            return str(known["id"])
    return str(client.submit(SLUG, entrant.file, message="sent by the demo")["id"])


def _so_far(known: Mapping[str, JsonObject | None]) -> tuple[float, str]:
    """Return the share of the runs that is done, and which submissions are at work or have failed."""
    shares, words = [], []
    for name, submission in known.items():
        stage, progress = (submission or {}).get("stage"), (submission or {}).get("progress")
        share = progress["runs_done"] / (progress["runs_total"] or 1) if progress else 0.0
        shares.append(1.0 if stage in ENDS else 0.95 * share)
        if submission and stage == "failed":
            words.append(f"{name} failed ({submission['failure']['error_class']})")
        elif stage not in (None, "queued", *ENDS):
            words.append(
                f"{name}: {progress['runs_done']} of {progress['runs_total']} runs" if progress else f"{name}: {stage}"
            )
    return sum(shares) / max(len(shares), 1), "; ".join(words) or "waiting for a worker"


def competition_file() -> str:
    """Return the example's text with dates that are open now."""
    text = (EXAMPLES / "demo" / f"{SLUG}.toml").read_text(encoding="utf-8")
    moment = datetime.now(UTC).replace(microsecond=0)
    for key, value in (("opens_at", moment - timedelta(minutes=1)), ("closes_at", moment + OPEN_FOR)):
        text = re.sub(rf"^{key} = .*$", f"{key} = {value.isoformat()}", text, flags=re.MULTILINE)
    return re.sub(r"^merge_deadline = .*$", "", text, flags=re.MULTILINE)


def _print(outcome: JsonObject, stages: Stages, instance: RunningInstance, settings: Settings) -> None:
    caption = f"{outcome['runs']} runs of each submission"
    console.print(board_table(outcome, title=f"Public leaderboard of {SLUG}", caption=caption))
    times = Table("Stage", "Seconds", box=None)
    for name, seconds in stages.took:
        times.add_row(name, f"{seconds:.1f}")
    times.add_row("altogether", f"{sum(seconds for _, seconds in stages.took):.1f}")
    console.print(times)
    console.print(f"Leaderboard: [bold]{instance.url}/competitions/{SLUG}/leaderboard[/]", highlight=False)
    for line in log_in_lines(settings):
        console.print(line, highlight=False, soft_wrap=True)


def _write(path: Path, outcome: JsonObject, stages: Stages) -> None:
    rows = {
        kind: [
            {"rank": row["rank"], "team": row["team"], "score": row["score"]}
            for row in outcome["rows"]
            if row["kind"] == kind
        ]
        for kind in ("team", "baseline")
    }
    data = {
        "runs": outcome["runs"],
        "leaderboard": rows["team"],
        "baselines": rows["baseline"],
        "oracle": {"score": outcome["oracle"]["score"]},
        "stages": [{"name": name, "seconds": seconds} for name, seconds in stages.took],
    }
    path.write_text(json.dumps(data, indent=2) + "\n")

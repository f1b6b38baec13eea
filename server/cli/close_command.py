"""`lethe close`: end a competition, re-score the chosen submissions on the private split, print the private board."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.table import Column, Table

from lethe.cli.output import Terminal, preparation_so_far
from lethe.client.api import JsonObject, LetheClient
from lethe.errors import HostFault, InvalidCompetitionFile
from server.cli.serve import organiser_credentials
from server.config import Settings
from server.embedded.instance import is_running, running, url_of_running
from server.private_files import instance_settings

console = Terminal()
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

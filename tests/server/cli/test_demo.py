"""The demo's competition and its reference lines."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from lethe.cli.output import OverallProgress
from lethe.client import api
from lethe.client.api import LetheClient
from lethe.competition.file import parse_competition
from lethe.methods.catalogue import method_ids
from server.cli import demo
from server.cli.demo import Stages, _write, competition_file
from server.config import get_settings
from server.models.account import Role
from tests.support.instance import PASSWORD, Instance, competition_toml, repeated
from tests.support.one_turn_client import OneTurnClient

STARTS = 50


def test_demo_has_six_baselines_beside_its_entrants() -> None:
    baselines = parse_competition(competition_file()).report.baselines
    assert len({baseline.id for baseline in baselines} & set(method_ids())) >= 6


def test_results_keep_baselines_apart_from_ranked_teams(tmp_path: Path) -> None:
    rows = [
        {"kind": "oracle", "rank": None, "team": "", "score": 0.2},
        {"kind": "baseline", "rank": None, "team": "scrub", "score": 0.1},
        {"kind": "team", "rank": 1, "team": "ada", "score": 0.05},
    ]
    _write(tmp_path / "demo.json", {"runs": 4, "oracle": {"score": 0.2}, "rows": rows}, Stages())
    found = json.loads((tmp_path / "demo.json").read_text())
    assert found["leaderboard"] == [{"rank": 1, "team": "ada", "score": 0.05}]
    assert found["baselines"] == [{"rank": None, "team": "scrub", "score": 0.1}]
    assert set(found) == {"runs", "leaderboard", "baselines", "oracle", "stages"}


@pytest.mark.slow
def test_demo_opens_beside_a_fast_scheduler(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler opens what the demo is about to open: its opening date has passed."""
    monkeypatch.setattr(demo.time, "sleep", lambda seconds: threading.Event().wait(0.001))
    server.account("olga", Role.ORGANISER)
    with (
        OneTurnClient(server.client.app, base_url="http://localhost/api/v1") as http,
        repeated(server.tick),
        repeated(server.prepare_splits),
    ):
        monkeypatch.setattr(api.httpx, "Client", lambda **_: http)
        organiser = LetheClient("http://localhost")
        organiser.log_in("olga", PASSWORD)
        for number in range(STARTS):
            slug = f"digits-{number}"
            monkeypatch.setattr(demo, "SLUG", slug)
            monkeypatch.setattr(demo, "competition_file", lambda slug=slug: competition_toml(slug))
            demo._begin_to_prepare(organiser)
            demo._wait_for_preparation(organiser, OverallProgress(demo.STEP_S, quiet=True))
            organiser.open(demo.SLUG)
            assert organiser.competition(slug)["state"] == "open"


def test_entrants_have_accounts_while_it_prepares_and_teams_once_it_is_open(server, monkeypatch):
    server.account("olga", Role.ORGANISER)
    address = "http://localhost"
    get_settings().home.mkdir()
    with OneTurnClient(server.client.app, base_url=address) as started:

        def client_of_its_own(**_: object) -> OneTurnClient:
            client = OneTurnClient(server.client.app, base_url=f"{address}/api/v1")
            client.portal = started.portal
            return client

        monkeypatch.setattr(api.httpx, "Client", client_of_its_own)
        monkeypatch.setattr(demo, "competition_file", lambda: competition_toml(demo.SLUG))
        organiser = LetheClient(address)
        organiser.log_in("olga", PASSWORD)
        demo._begin_to_prepare(organiser)
        instance = SimpleNamespace(url=address)
        clients = {entrant: demo._participant(get_settings(), instance, entrant) for entrant in demo.ENTRANTS}
        server.prepare_splits()
        organiser.open(demo.SLUG)
        for _start in range(2):
            for entrant, client in clients.items():
                demo._join(client, entrant)
                assert client.get(f"/competitions/{demo.SLUG}/team")["name"] == entrant.team

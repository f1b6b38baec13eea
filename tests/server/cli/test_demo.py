"""The demo's competition and its reference lines."""

import json
from pathlib import Path

from lethe.competition.file import parse_competition
from lethe.methods.catalogue import method_ids
from server.cli.demo import Stages, _write, competition_file


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

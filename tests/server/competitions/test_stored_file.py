"""The stored file is checked once for each content, and nobody can change what all share."""

import ast
import json
import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from lethe.competition.file import CompetitionFile
from server.competitions import stored_file as module
from server.competitions.stored_file import stored_file
from server.models.account import Role
from server.models.competition import Competition
from tests.server.evaluations.conftest import competition_file
from tests.support.instance import Instance
from tests.support.web import Visitor

ROOT = Path(__file__).parents[3]
RULE = "server/competitions/stored_file.py"
STRANGERS = ("server/archives/reader.py", "worker/evaluation/bundle_replay.py")  # check what a stranger calls a row


def stored(**changes: object) -> Competition:
    file = competition_file(network={"name": "mlp", "options": {"widths": [8, 16]}}, **changes)
    return Competition(config=file.model_dump(mode="json"))


def read_again(competition: Competition) -> Competition:
    """Return the competition as another request reads it from the database."""
    return Competition(config=json.loads(json.dumps(competition.config)))


def test_same_content_is_checked_once() -> None:
    competition = stored()
    assert stored_file(read_again(competition)) is stored_file(competition)
    assert stored_file(competition) == CompetitionFile.model_validate(competition.config)


def test_other_content_gives_the_other_file() -> None:
    competition = stored()
    before = stored_file(competition)
    competition.config = {**competition.config, "title": "Another title"}
    assert stored_file(competition).title == "Another title"
    assert before.title != "Another title"


@pytest.mark.parametrize(
    "change",
    [
        lambda options: options.update(widths=[1]),
        lambda options: options.__setitem__("widths", [1]),
        lambda options: options["widths"].append(1),
        lambda options: options["widths"].sort(),
        lambda options: options.pop("widths"),
        lambda options: options.clear(),
    ],
)
def test_shared_file_cannot_be_changed(change: Any) -> None:
    options = stored_file(stored()).network.options
    with pytest.raises(TypeError, match="change a copy"):
        change(options)
    assert options == {"widths": [8, 16]}


def test_shared_file_can_be_copied_and_sent() -> None:
    file = stored_file(stored())
    assert pickle.loads(pickle.dumps(file)) == deepcopy(file) == file
    assert json.loads(file.model_dump_json()) == file.model_dump(mode="json")


def test_requests_check_a_file_once(server: Instance) -> None:
    visitor = Visitor(server)
    olga = server.account("olga", Role.ORGANISER)
    server.competition(organiser=olga)
    visitor.log_in("olga")
    pages = [f"/competitions/digits{part}" for part in ("", "/leaderboard", "/submit", "/submissions", "/team")]
    pages += [f"/organise/digits{part}" for part in ("", "/limits", "/words", "/teams", "/exports")]
    pages += [f"/api/v1/competitions{part}" for part in ("", "/digits", "/digits/leaderboard")]
    module._checked.cache_clear()
    statuses = {path: visitor.get(path).status_code for _ in range(3) for path in pages}
    assert set(statuses.values()) == {200}, statuses
    assert module._checked.cache_info().misses == 1
    assert module._checked.cache_info().hits > len(pages)


@pytest.mark.parametrize("package", ["server", "worker"])
def test_stored_files_are_read_by_one_rule(package: str) -> None:
    """No other code validates what a competition's row holds, but for changing it."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            is_check = isinstance(node, ast.Call) and ast.unparse(node.func) == "CompetitionFile.model_validate"
            if is_check and name not in (RULE, *STRANGERS) and not isinstance(node.args[0], ast.Dict | ast.Call):
                found.append(f"{name}:{node.lineno}")
    assert found == []

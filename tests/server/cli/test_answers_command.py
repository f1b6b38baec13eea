"""`lethe answers`: what language models answer on the public sample, in a terminal."""

import json
from pathlib import Path

import pytest

from tests.server.cli.conftest import Run, answer
from tests.support.instance import Instance
from tests.support.sample_answers import ROWS, STORED, end_smoke_run, make_text_competition


def test_answers_are_printed_as_text(
    server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_text_competition(server, tmp_path)
    ada = server.participant("ada")
    monkeypatch.setenv("LETHE_TOKEN", ada["Authorization"].removeprefix("Bearer "))
    made = str(server.submit(ada).json()["id"])
    end_smoke_run(server, made, ["[bold]Bern[/x]", "Oslo"])
    rows = [row | {"unlearned": own} for row, own in zip(ROWS, ("[bold]Bern[/x]", "Oslo"), strict=True)]
    assert answer(lethe("answers", made[:8], "--json")) == {"id": made, "questions": rows, "note": ""}
    shown = lethe("answers", made[:8])
    assert shown.exit_code == 0
    assert "Łódź" in shown.stdout
    assert "[bold" in shown.stdout
    server.storage.write(STORED, json.dumps({"questions": ROWS[:1]}).encode())
    assert "No answers of this submission's model are stored." in lethe("answers", made).stdout

"""A competition of language models through a real instance: prepared, run in the sandbox, scored, measured."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lethe.client.api import JsonObject, LetheClient
from lethe.methods.rendering import render
from tests.end_to_end.conftest import Instance, open_competition, wait_for_end, wait_until
from tests.support.tiny_models import folder_toml
from tests.support.towns import towns_toml, write_towns

pytestmark = pytest.mark.slow

SLUG = "towns"
METRICS = ("forget_quality", "answer_probability", "answer_rouge")
VISIBLE = 'visible_to_participants = "public"\n'
KEEPS = "def unlearning(net, retain_loader, forget_loader, val_loader):\n    pass\n"
UNTIED = """
import torch

def unlearning(net, retain_loader, forget_loader, val_loader):
    net.output = torch.nn.Linear(32, net.embedding.weight.shape[0], bias=False)
"""


@pytest.fixture(scope="module")
def instance(empty_instance: Instance, tmp_path_factory: pytest.TempPathFactory) -> Instance:
    root = write_towns(tmp_path_factory.mktemp("text") / "towns")
    moment = datetime.now(UTC).replace(microsecond=0)
    toml = towns_toml(
        root,
        slug=SLUG,
        n_models=4,
        opens_at=(moment - timedelta(hours=1)).isoformat(),
        closes_at=(moment + timedelta(days=1)).isoformat(),
        metrics=METRICS,
    )
    open_competition(empty_instance, toml + VISIBLE)
    return empty_instance


@pytest.fixture(scope="module")
def client(instance: Instance) -> LetheClient:
    return instance.participant("lou")


def metrics_of(client: LetheClient, submission: JsonObject) -> list[JsonObject]:
    """Return the metrics once all are computed."""
    rows: list[JsonObject] = []

    def computed() -> bool:
        rows[:] = client.get(f"/submissions/{submission['id']}/metrics")["metrics"]
        return bool(rows) and not any(row["waiting"] for row in rows)

    wait_until(computed)
    return rows


def submit(client: LetheClient, folder: Path, code: str) -> JsonObject:
    path = folder / "submission.py"
    path.write_text(code)
    return wait_for_end(client, client.submit(SLUG, path))


@dataclass(frozen=True)
class Played:
    """What one team saw while the competition was open; and the competition is closed."""

    forgets: JsonObject
    keeps: JsonObject
    untied: JsonObject
    metrics: list[JsonObject]
    board: list[JsonObject]
    answers: JsonObject


@pytest.fixture(scope="module")
def played(client: LetheClient, instance: Instance, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The whole competition, so that its tests may come in any order."""
    folder = tmp_path_factory.mktemp("code")
    forgets = submit(client, folder, render("graddiff", {"LR": 0.01, "EPOCHS": 3}))
    keeps, untied = submit(client, folder, KEEPS), submit(client, folder, UNTIED)
    metrics, board = metrics_of(client, forgets), client.leaderboard(SLUG)["rows"]
    answers = client.sample_answers(keeps["id"])
    instance.organiser.act(SLUG, "close", {"reason": "enough was seen"})
    wait_until(lambda: instance.organiser.competition(SLUG)["state"] == "provisional")
    return Played(forgets, keeps, untied, metrics, board, answers)


def test_methods_for_text_are_scored_and_measured(played: Played) -> None:
    for found in (played.forgets, played.keeps):
        assert found["stage"] == "scored", found
    assert played.forgets["score"]["final_score"] > played.keeps["score"]["final_score"]
    measured = {row["id"]: row for row in played.metrics}
    assert set(measured) == set(METRICS)
    for row in measured.values():
        assert None not in (row["value"], row["oracle"], row["original"]), row
    assert measured["answer_probability"]["value"] < measured["answer_probability"]["original"]
    scores = [row["score"] for row in played.board if row["kind"] == "team"]
    assert scores == [played.forgets["score"]["final_score"]]


def test_team_sees_what_its_model_answers_on_the_sample(played: Played) -> None:
    assert played.answers["note"] == ""
    assert played.answers["questions"]
    for row in played.answers["questions"]:
        assert row["original"]
        assert row["unlearned"] == row["original"]  # the very model that it was given


def test_an_output_layer_of_its_own_is_refused(played: Played) -> None:
    assert played.untied["stage"] == "failed"
    assert played.untied["failure"]["error_class"] == "wrong-weights", played.untied


def test_the_chosen_entry_is_scored_on_the_private_split_at_the_close(played: Played, instance: Instance) -> None:
    [row] = [row for row in instance.organiser.leaderboard(SLUG, board="private")["rows"] if row["kind"] == "team"]
    [public] = [row for row in instance.organiser.leaderboard(SLUG, board="public")["rows"] if row["kind"] == "team"]
    assert row["team"] == public["team"] == "lou"
    assert row["score"] != public["score"]
    path = f"/competitions/{SLUG}/submissions/{played.forgets['id']}/answers"
    shown, hidden = (instance.organiser.get(path, split=split)["questions"] for split in ("public", "private"))
    assert {one["question"] for one in shown} != {one["question"] for one in hidden}
    assert all(one["original"] and one["retrained"] for one in hidden)


OF_A_FOLDER = """
import torch
from transformers import PreTrainedModel, get_constant_schedule_with_warmup

def unlearning(net, retain_loader, forget_loader, val_loader):
    assert isinstance(net.model, PreTrainedModel)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = get_constant_schedule_with_warmup(optimizer, 2)
    net.train()
    for batch in forget_loader:
        optimizer.zero_grad()
        labels = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
        (-net.model(**labels).loss).backward()
        optimizer.step()
        schedule.step()
"""


def test_a_model_of_a_folder_is_unlearned_by_code_for_transformers_and_for_torch(client, instance, tmp_path):
    root = write_towns(tmp_path / "towns")
    moment = datetime.now(UTC).replace(microsecond=0)
    toml = folder_toml(
        root,
        slug="folder",
        n_models=4,
        opens_at=(moment - timedelta(hours=1)).isoformat(),
        closes_at=(moment + timedelta(days=1)).isoformat(),
    )
    # A run imports parts of transformers itself: half a second of an idle processor, and more beside other work.
    open_competition(instance, toml.replace("[limits]", "[limits]\nrun_start_time_s = 5.0"))
    for code in (OF_A_FOLDER, render("graddiff", {"LR": 0.01, "EPOCHS": 1})):
        path = tmp_path / "submission.py"
        path.write_text(code)
        found = wait_for_end(client, client.submit("folder", path))
        assert found["stage"] == "scored", found

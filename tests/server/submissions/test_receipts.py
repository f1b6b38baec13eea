"""Receipts: signed, whole, and silent about what is sealed."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.client.bundle import verify_receipt
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput
from server.models.evaluation import PublicScore, Shard
from tests.support.instance import Instance


def scored(server: Instance) -> tuple[dict[str, str], dict[str, str], str]:
    """Return the organiser's and the participant's headers, and a scored submission."""
    olga = server.organised(extra="[splits]\nseed = 42424242424242424242\n")
    ada = server.participant("ada")
    submission = server.submit(ada).json()["id"]
    server.score(submission, 0.1 + 0.2)
    return olga, ada, submission


def get_receipt(server: Instance, headers: dict[str, str], submission: str, split: str = "public") -> Any:
    return server.client.get(f"/api/v1/submissions/{submission}/receipt?split={split}", headers=headers)


def test_receipt_holds_and_names_what_the_score_was_made_of(both: Instance) -> None:
    olga, ada, submission = scored(both)
    receipt = get_receipt(both, olga, submission).json()
    key = both.client.get("/api/v1/receipt-key").json()["public_key"]
    verify_receipt(receipt, public_key=key)
    shown = both.shown(ada, submission)
    assert receipt["submission"]["sha256"] == shown["sha256"]
    assert float.fromhex(receipt["score"]["final_score_bits"]) == receipt["score"]["final_score"] == 0.1 + 0.2
    assert shown["score"]["final_score"] == 0.3
    assert receipt["split"]["manifest_sha256"] == "0" * 64
    assert (receipt["evaluation"]["setup"], receipt["evaluation"]["runs"]) == ("reuse-n-1", 4)
    assert receipt == get_receipt(both, olga, submission).json(), "asked twice, the same"


def test_receipt_of_an_unconfirmed_score_says_so(server: Instance) -> None:
    olga, ada, submission = scored(server)
    assert "unconfirmed" not in get_receipt(server, ada, submission).json()["score"]
    with server.database.write() as session:
        session.execute(update(PublicScore).values(is_unconfirmed=True))
    for reader in (olga, ada):
        receipt = get_receipt(server, reader, submission).json()
        verify_receipt(receipt)
        assert receipt["score"]["unconfirmed"] is True


def test_receipt_names_the_older_libraries_that_code_ran_with(server: Instance) -> None:
    server.organised(extra='[submissions]\nlibraries = "2023"\n')
    ada = server.participant("ada")
    submission = server.submit(ada).json()["id"]
    server.score(submission, 0.5)
    receipt = get_receipt(server, ada, submission).json()
    verify_receipt(receipt)
    assert receipt["evaluation"]["libraries"]["set"] == "2023"
    assert receipt["evaluation"]["libraries"]["torch"] == "2.1.2"
    assert server.client.get("/api/v1/competitions/digits", headers=ada).json()["libraries"] == "2023"
    page = server.client.get("/competitions/digits").text
    assert "those of 2023: Python 3.11, torch 2.1.2, torchvision 0.16.2, numpy 1.26.2, pandas 2.1.4" in page


def test_receipt_of_a_team_holds_no_more_than_it_sees_until_the_reveal(server: Instance) -> None:
    olga, ada, submission = scored(server)
    with server.database.write() as session:
        session.execute(update(Shard).values(kind="runs", result_sha256="f" * 64))
    sealed, exact = (get_receipt(server, headers, submission).json() for headers in (ada, olga))
    verify_receipt(sealed)
    assert (sealed["score"]["final_score"], sealed["score"]["final_score_bits"]) == (0.3, None)
    results, known = sealed["evaluation"]["results"], exact["evaluation"]["results"]
    assert {result["sha256"] for result in known} == {"f" * 64}
    assert [set(result) for result in results] == [{"first_run", "runs", "hmac_sha256"}] * len(known)
    assert [result["hmac_sha256"] for result in results] == [result["hmac_sha256"] for result in known]
    server.close(olga)
    server.score(submission, 0.125, visibility=Visibility.PRIVATE)
    server.tick()
    server.client.post("/api/v1/competitions/digits/reveal", headers=olga)
    assert get_receipt(server, ada, submission).json() == exact


def test_changed_receipt_does_not_hold(server: Instance, tmp_path: Path) -> None:
    _olga, ada, submission = scored(server)
    receipt = get_receipt(server, ada, submission).json()
    for path in (("score", "final_score"), ("submission", "sha256"), ("evaluation", "runs"), ("competition",)):
        changed = copy.deepcopy(receipt)
        part = changed
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = "AAAA"
        with pytest.raises(InvalidInput, match="does not fit"):
            verify_receipt(changed)
    with pytest.raises(InvalidInput, match="does not fit"):
        verify_receipt(receipt | {"signature": "AAAA"})
    with pytest.raises(InvalidInput, match="not the expected key"):
        verify_receipt(receipt, public_key="11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=")
    for value in ({}, {"format": "lethe-receipt/1"}, {"format": "lethe-receipt/1", "public_key": "!"}):
        with pytest.raises(InvalidInput):
            verify_receipt(value)
    stored = tmp_path / "receipt.json"
    stored.write_text(json.dumps(receipt))
    good = CliRunner().invoke(build_app(), ["verify", str(stored), "--key", receipt["public_key"]])
    assert (good.exit_code, submission in good.output) == (0, True)
    receipt["score"]["final_score"] = 1.0
    stored.write_text(json.dumps(receipt))
    assert isinstance(CliRunner().invoke(build_app(), ["verify", str(stored)]).exception, InvalidInput)


def test_private_receipt_waits_for_the_reveal(server: Instance) -> None:
    olga, ada, submission = scored(server)
    unscored = server.submit(ada).json()["id"]
    text = get_receipt(server, ada, submission).text
    for sealed in ("424242", "forgetting", "epsilon", '"retain_ratio"', '"test_ratio"'):
        assert sealed not in text
    assert get_receipt(server, ada, unscored).status_code == 404
    assert get_receipt(server, server.participant("bob"), submission).status_code == 404
    server.score(unscored, 0.0)
    server.close(olga)
    for one in (submission, unscored):
        server.score(one, 0.125, visibility=Visibility.PRIVATE)
    server.tick()
    assert get_receipt(server, ada, submission, "private").status_code == 404
    assert get_receipt(server, olga, submission, "private").json()["score"]["final_score"] == 0.125
    server.client.post("/api/v1/competitions/digits/reveal", headers=olga)
    assert get_receipt(server, ada, submission, "private").json()["score"]["final_score"] == 0.125

"""Stored documents of other versions: unknown keys are passed over by readers, and kept by who writes them again."""

from copy import deepcopy
from typing import Any

import pytest
from pydantic import ValidationError

from lethe.competition.file import CompetitionFile
from lethe.competition.section import SCHEMA_VERSION, as_stored, read_stored, schema_version
from tests.lethe.conftest import competition

FILE = competition(report={"metrics": [{"id": "klom", "bins": 10}], "baselines": [{"id": "finetune", "LR": 0.5}]})


def of_a_newer_version() -> dict[str, Any]:
    """Return FILE with keys that this version does not know, at the top, in a section, and in an item of a list."""
    document = deepcopy(as_stored(FILE))
    document["prize"] = {"sum": 500}
    document["scoring"]["fitted_on"] = "half"
    document["limits"]["energy_j"] = 9
    document["phases"] = [{"name": "first", "colour": "blue"}]
    return document


def test_unknown_keys_are_passed_over_and_nothing_else() -> None:
    document = of_a_newer_version()
    before = deepcopy(document)
    found = read_stored(CompetitionFile, document)
    assert found.scoring == FILE.scoring
    assert [phase.name for phase in found.phases] == ["first"]
    assert found.report == FILE.report, "what metrics and baselines take as parameters is no unknown key"
    assert document == before, "the caller's document is his"


def test_wrong_values_are_refused_beside_unknown_keys() -> None:
    document = of_a_newer_version() | {"n_models": 1}
    with pytest.raises(ValidationError) as refused:
        read_stored(CompetitionFile, document)
    assert [each["loc"] for each in refused.value.errors()] == [("n_models",)]


def test_unknown_keys_are_kept_where_the_document_is_written_again() -> None:
    stored = of_a_newer_version() | {"schema_version": SCHEMA_VERSION + 1}
    changed = read_stored(CompetitionFile, stored).model_copy(update={"title": "Another title"})
    written = as_stored(changed, before=stored)
    assert written == stored | {"title": "Another title", "phases": written["phases"]}
    assert written["phases"][0]["colour"] == "blue"
    assert schema_version(written) == SCHEMA_VERSION + 1, "who reads less than it says does not lower the version"


def test_keys_of_items_of_a_list_of_another_length_are_not_guessed() -> None:
    stored = of_a_newer_version()
    assert as_stored(FILE, before=stored)["phases"] == []


def test_former_names_of_keys_are_not_kept_beside_the_new_ones() -> None:
    stored = as_stored(FILE)
    stored["metric"] = stored.pop("scoring")
    assert "metric" not in as_stored(read_stored(CompetitionFile, stored), before=stored)


@pytest.mark.parametrize(("document", "version"), [({}, 0), ({"schema_version": 3}, 3), ({"schema_version": "x"}, 0)])
def test_version_of_a_document(document: dict[str, Any], version: int) -> None:
    assert schema_version(document) == version

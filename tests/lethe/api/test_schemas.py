"""The documents of results are what docs/schemas says."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import lethe

FOLDER = Path(__file__).parents[3] / "docs" / "schemas"
SIDES = np.random.default_rng(0).normal(1.0, 2.0, (3, 16, 6))


def schema(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_metrics_fit_their_schema() -> None:
    found = lethe.evaluate(SIDES[0], SIDES[1], oracle=SIDES[2], metrics=["klom", "tow", "f"])
    for text in (found.to_json(), found.to_json(examples=True)):
        jsonschema.validate(json.loads(text), schema("metrics"))


def test_score_fits_its_schema() -> None:
    found = lethe.score(SIDES[0], SIDES[1], oracle=SIDES[2], n_resamples=20)
    jsonschema.validate(json.loads(found.to_json()), schema("score"))


def test_benchmark_fits_its_schema() -> None:
    stored = json.loads((FOLDER.parent / "benchmarks" / "tofu-folder.json").read_text())
    jsonschema.validate(stored, schema("benchmark"))
    del stored["n_models"]
    with pytest.raises(jsonschema.ValidationError, match="n_models"):
        jsonschema.validate(stored, schema("benchmark"))

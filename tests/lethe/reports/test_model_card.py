"""A card of an unlearned model: front matter that YAML reads, values beside their references."""

from pathlib import Path

import numpy as np
import yaml

import lethe

SIDES = np.random.default_rng(0).normal(1.0, 2.0, (3, 16, 6))


def test_card_has_values_references_and_conditions(tmp_path: Path) -> None:
    found = lethe.evaluate(SIDES[0], SIDES[1], oracle=SIDES[2], metrics=["klom", "tow"])
    card = found.model_card(
        'mlp: "forgets"', tmp_path / "README.md", licence="mit", method="scrub", constants={"LR": 0.1}, dataset="digits"
    )
    assert (tmp_path / "README.md").read_text() == card
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["license"] == "mit"
    (entry,) = front["model-index"][0]["results"]
    assert front["model-index"][0]["name"] == 'mlp: "forgets"'
    assert entry["metrics"][0]["value"] == found["klom"].result.value
    assert "- **Method**: scrub with LR = 0.1" in card
    assert "- **Unlearned models**: 16;" in card
    row = next(line for line in card.splitlines() if line.startswith("| `klom` "))
    assert f"| {found['klom'].oracle.value:.4g} |" in row
    assert "- `tow`: array `forget_accuracy` of the unlearned models is missing" in card

"""Lines of CSV and Markdown tables; a card of an unlearned model."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import yaml

import lethe
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.table import FAILED, Column, Table, csv_lines
from server.admin.exports import as_csv

FORMULAS = (
    "=1+1",
    "＝1+1",  # full width
    "＋1",
    "－1+1",
    "＠SUM(1)",
    "﹦1+1",  # small form
    "⁺1",  # superscript
    "−1+1",  # the minus sign
    " =1+1",
    "\u00a0=1+1",
    "\u200b=1+1",  # takes no width
    "\ufeff=1+1",
    "\x00=1+1",
    "\t=1+1",
    "\tcmd",
    "\rcmd",
    "\n=1+1",
    "꞊1+1",
)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("formula", FORMULAS)
def test_formula_becomes_text_in_every_writer(formula):
    assert read("".join(csv_lines([[formula]]))) == [[f"'{formula}"]]
    assert read("".join(as_csv([{"message": formula}])))[1] == [f"'{formula}"]
    assert read("".join(as_csv([{formula: 1}])))[0] == [f"'{formula}"]


@pytest.mark.parametrize("text", ["", "a=1", "1+1", "ünï", "'=1", "(=1", "é", "#1"])
def test_other_text_stays(text):
    assert read("".join(csv_lines([[text]]))) == [[text]]


def test_semicolon_begins_no_cell():
    (line,) = csv_lines([["x;=1+1", "x\t=1+1", -1, -0.1, None]])
    assert line == '"x;=1+1","x\t=1+1",-1,-0.1,""\r\n'


TABLE = Table(
    "Cells & more",
    (Column("Method"), Column("RetDev"), Column("RTE", decimals=1)),
    (("cf_k|1", 0.12345, 7), ("50%", float("nan"), None), ("ga", FAILED, FAILED)),
)


def test_markdown_rounds_and_shows_what_is_missing():
    assert TABLE.markdown() == (
        "**Cells & more**\n\n"
        "| Method | RetDev | RTE |\n"
        "| --- | ---: | ---: |\n"
        "| cf_k\\|1 | 0.12 | 7 |\n"
        "| 50% | — | — |\n"
        "| ga | F | F |\n"
    )


def test_row_of_another_length_is_refused():
    with pytest.raises(InvalidMetricInput, match="has 1 values, not 2"):
        Table("t", (Column("a"), Column("b")), ((1,),))


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

import csv
import io
import json

import pytest

from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.table import FAILED, Column, Table
from lethe.reports.table_formats import render

TABLE = Table(
    "Cells & more",
    (Column("Method"), Column("RetDev"), Column("RTE", decimals=1)),
    (("cf_k|1", 0.12345, 7), ("50%", float("nan"), None), ("ga", FAILED, FAILED)),
)


def test_markdown_rounds_and_shows_what_is_missing():
    assert render(TABLE, "markdown") == (
        "**Cells & more**\n\n"
        "| Method | RetDev | RTE |\n"
        "| --- | ---: | ---: |\n"
        "| cf_k\\|1 | 0.12 | 7 |\n"
        "| 50% | — | — |\n"
        "| ga | F | F |\n"
    )


def test_latex_escapes_names():
    text = render(TABLE, "latex")
    assert r"\caption{Cells \& more}" in text
    assert r"cf\_k|1 & 0.12 & 7 \\" in text
    assert r"50\% & -- & -- \\" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_csv_has_all_digits_and_can_be_read_back():
    rows = list(csv.reader(io.StringIO(render(TABLE, "csv"))))
    assert rows == [["Method", "RetDev", "RTE"], ["cf_k|1", "0.12345", "7"], ["50%", "", ""], ["ga", "F", "F"]]


def test_json_has_null_for_what_is_missing():
    read = json.loads(render(TABLE, "json"))
    assert read["title"] == "Cells & more"
    assert read["rows"][0] == {"Method": "cf_k|1", "RetDev": 0.12345, "RTE": 7}
    assert read["rows"][1] == {"Method": "50%", "RetDev": None, "RTE": None}


def test_unknown_format_is_refused():
    with pytest.raises(ValueError, match="pdf"):
        render(TABLE, "pdf")


def test_row_of_another_length_is_refused():
    with pytest.raises(InvalidMetricInput, match="has 1 values, not 2"):
        Table("t", (Column("a"), Column("b")), ((1,),))

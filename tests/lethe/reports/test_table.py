import pytest

from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.table import FAILED, Column, Table

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

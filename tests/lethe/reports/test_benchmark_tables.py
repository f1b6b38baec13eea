"""Tables of benchmarks; lines of CSV and Markdown; a card of an unlearned model."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import yaml

import lethe
from lethe.benchmark.results import BenchmarkResults
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.benchmark_tables import COLUMNS, group_mean_table, pareto_table, performance_table, ranking_table
from lethe.reports.table import FAILED, Column, Table, csv_lines
from server.admin.exports import as_csv

LAB = Path(__file__).parents[2] / "golden" / "lab"
NAN = float("nan")
RETDEV = [[0.1, 0.2, 0.9, 0.1, 0.0], [0.1, NAN, 0.8, 0.5, 0.0]]
INDISC = [[0.9, 0.8, 0.5, 0.7, 1.0], [0.9, NAN, 0.6, 0.95, 1.0]]


def small(**changes) -> BenchmarkResults:
    given = {
        "cells": ("digits", "mnist"),
        "methods": ("ft", "scrub", "ga", "msg", "retrained"),
        "values": {"retdev": RETDEV, "indiscernibility": INDISC, "retain_accuracy": np.full((2, 5), 0.97)},
        "failed": [[False] * 5, [False, True, False, False, False]],
        "references": ("retrained",),
    }
    return BenchmarkResults(**given | changes)


def published() -> BenchmarkResults:
    with np.load(LAB / "du_ranking.npz") as file:
        retdev, indiscernibility = file["in_retdev"], file["in_indiscernibility"]
        return BenchmarkResults(
            tuple(map(str, file["in_tables"])),
            tuple(map(str, file["in_methods"])),
            {"retdev": retdev, "indiscernibility": indiscernibility},
            failed=np.isnan(retdev),
        )


def rows(table) -> dict[str, tuple]:
    return {row[0]: row[1:] for row in table.rows}


@pytest.mark.parametrize(
    ("metric", "higher", "golden"), [("retdev", False, "retdev"), ("indiscernibility", True, "indisc")]
)
def test_groups_equal_the_published_ones(metric, higher, golden):
    with np.load(LAB / "du_ranking.npz") as file:
        expected = dict(zip(map(str, file["in_methods"]), file[f"out_{golden}_counts"].tolist(), strict=True))
    table = ranking_table(published(), {metric: higher})
    assert [column.name.removeprefix(f"{metric} ") for column in table.columns[1:6]] == ["G1", "G2", "G3", "F", "rank"]
    assert {method: list(row[:4]) for method, row in rows(table).items()} == expected
    assert [row[5] for row in table.rows] == sorted(row[5] for row in table.rows)


def test_performance_table_has_the_columns_of_the_paper():
    table = performance_table(small(), "mnist")
    assert [column.name for column in table.columns] == ["Method", *COLUMNS]
    found = rows(table)
    assert found["ft"][0] == 0.97
    assert found["ft"][6] == 0.1
    assert np.isnan(found["ft"][9])
    assert set(found["scrub"]) == {FAILED}


def test_references_are_not_ranked_failures_are_counted_and_missing_values_are_not():
    assert "retrained" in rows(performance_table(small(), "digits"))
    assert "retrained" not in rows(ranking_table(small()))
    assert rows(ranking_table(small(), {"retdev": False}))["scrub"][:5] == (0, 1, 0, 1, 3)
    assert rows(ranking_table(small(failed=None), {"retdev": False}))["scrub"][3] == 0


def test_group_means_go_from_worst_to_best():
    table = group_mean_table(small(), "retdev", higher_is_better=False)
    assert [column.name for column in table.columns] == ["Cell", "Worst", "G3 mean", "G2 mean", "G1 mean", "Best"]
    assert rows(table)["digits"] == pytest.approx((0.9, 0.9, 0.2, 0.1, 0.1))
    assert rows(group_mean_table(small(), "indiscernibility", higher_is_better=True))["mnist"] == pytest.approx(
        (0.6, 0.6, 0.9, 0.95, 0.95)
    )
    empty = small(values={"retdev": [[NAN] * 5, [0.1] * 5]})
    assert rows(group_mean_table(empty, "retdev", higher_is_better=False))["digits"] == (None,) * 5


def test_ranking_table_has_groups_ranks_and_pareto_counts():
    table = ranking_table(small())
    assert [column.name for column in table.columns][-1] == "Pareto"
    assert len(table.columns) == 12
    assert table.rows[0][0] == "ft"
    assert rows(table)["ft"][-1] == 2
    assert rows(table)["ga"][-1] == 0


def test_methods_without_results_have_no_rank():
    nothing = small(values={}, failed=None)
    for table in (ranking_table(nothing), pareto_table(nothing)):
        assert {value for row in rows(table).values() for value in row} == {None}
    without_msg = {
        name: [[*row[:3], NAN, row[4]] for row in values]
        for name, values in (("retdev", RETDEV), ("indiscernibility", INDISC))
    }
    some = rows(ranking_table(small(values=without_msg)))
    assert set(some["msg"]) == {None}
    assert None not in {*some["ft"], *some["scrub"], *some["ga"]}


def test_pareto_table_adds_the_tolerant_count_with_errors():
    errors = {"retdev": np.full((2, 5), 2.0), "indiscernibility": np.full((2, 5), 2.0)}
    assert [column.name for column in pareto_table(small()).columns] == ["Method", "Pareto"]
    found = rows(pareto_table(small(standard_errors=errors)))
    assert found == {"ft": (2, 2), "msg": (1, 2), "ga": (0, 2), "scrub": (0, 1)}


def test_order_of_methods_does_not_matter():
    order = [4, 2, 0, 3, 1]
    plain = small()
    mixed = small(
        methods=tuple(plain.methods[i] for i in order),
        values={name: np.asarray(value)[:, order] for name, value in plain.values.items()},
        failed=plain.failures[:, order],
    )
    assert ranking_table(mixed) == ranking_table(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": {"retdev": [[1.0]]}}, "retdev must have shape"),
        ({"failed": [[True]]}, "failed must have shape"),
        ({"cells": ("a", "a")}, "must be there and differ"),
        ({"references": ("nobody",)}, "not among the methods: nobody"),
        ({"standard_errors": {"retdev": [1.0]}}, "retdev must have shape"),
    ],
)
def test_results_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(InvalidMetricInput, match=message):
        small(**changes)


def test_tables_that_cannot_be_are_refused():
    with pytest.raises(InvalidMetricInput, match="there are digits, mnist"):
        performance_table(small(), "cifar")
    with pytest.raises(InvalidMetricInput, match="at least one metric"):
        ranking_table(small(), {})
    with pytest.raises(InvalidMetricInput, match="has 1 values, not 2"):
        Table("t", (Column("a"), Column("b")), ((1,),))


FORMULAS = (
    *("=1+1", "＝1+1", "＋1", "－1+1", "＠SUM(1)", "﹦1+1", "⁺1", "−1+1", "꞊1+1"),  # any width and shape
    *(" =1+1", "\u00a0=1+1", "\u200b=1+1", "\ufeff=1+1", "\x00=1+1"),  # after what is not seen
    *("\t=1+1", "\tcmd", "\rcmd", "\n=1+1"),
)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_formula_becomes_text_in_every_writer():
    for formula in FORMULAS:
        assert read("".join(csv_lines([[formula]]))) == [[f"'{formula}"]]
        assert read("".join(as_csv([{"message": formula}])))[1] == [f"'{formula}"]
        assert read("".join(as_csv([{formula: 1}])))[0] == [f"'{formula}"]


def test_other_text_stays_and_a_semicolon_begins_no_cell():
    texts = ["", "a=1", "1+1", "ünï", "'=1", "(=1", "é", "#1"]
    assert read("".join(csv_lines([texts]))) == [texts]
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

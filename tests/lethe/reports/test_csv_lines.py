"""Cells that a spreadsheet would run, in every spelling that it takes for a formula."""

import csv
import io

import pytest

from lethe.reports.csv_lines import csv_lines
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

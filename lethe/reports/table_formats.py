"""A table as Markdown, CSV, LaTeX or JSON."""

import json
from enum import StrEnum

from lethe.reports.csv_lines import csv_lines
from lethe.reports.table import MISSING, Table, is_missing

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", MISSING: "--",
    }
)  # fmt: skip


class TableFormat(StrEnum):
    """markdown and latex are for reading, with rounded numbers; csv and json have all digits."""

    MARKDOWN = "markdown"
    CSV = "csv"
    LATEX = "latex"
    JSON = "json"


def render(table: Table, table_format: TableFormat | str) -> str:
    """Return the table as text that ends with a line break. Raises ValueError for an unknown format."""
    writer = {
        TableFormat.MARKDOWN: _markdown,
        TableFormat.CSV: _csv,
        TableFormat.LATEX: _latex,
        TableFormat.JSON: _json,
    }[TableFormat(table_format)]
    return writer(table)


def _markdown(table: Table) -> str:
    names = [column.name for column in table.columns]
    marks = ["---"] + ["---:"] * (len(names) - 1)
    lines = [names, marks, *(table.shown(row) for row in table.rows)]
    rows = ("| " + " | ".join(_one_cell(text) for text in line) + " |" for line in lines)
    return f"**{table.title}**\n\n" + "\n".join(rows) + "\n"


def _one_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _csv(table: Table) -> str:
    names = [column.name for column in table.columns]
    rows = (["" if is_missing(value) else value for value in row] for row in table.rows)
    return "".join(csv_lines([names, *rows], line_end="\n"))


def latex_escaped(text: str) -> str:
    """Return the text as LaTeX shows it."""
    return text.translate(_LATEX)


def _latex(table: Table) -> str:
    names = [column.name for column in table.columns]
    lines = [names, *(table.shown(row) for row in table.rows)]
    heading, *body = (" & ".join(latex_escaped(text) for text in line) + r" \\" for line in lines)
    return "\n".join(
        [
            r"\begin{table}", rf"\caption{{{latex_escaped(table.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}", r"\toprule", heading, r"\midrule",
            *body, r"\bottomrule",
            r"\end{tabular}", r"\end{table}", "",
        ]
    )  # fmt: skip


def _json(table: Table) -> str:
    names = [column.name for column in table.columns]
    rows = [
        {name: None if is_missing(value) else value for name, value in zip(names, row, strict=True)}
        for row in table.rows
    ]
    return json.dumps({"title": table.title, "rows": rows}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

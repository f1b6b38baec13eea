"""A benchmark's report: one HTML file with tables, figures, settings, versions and hashes, which needs no network."""

import gzip
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from lethe.reports.benchmark_figures import as_svg, draw, fitting_kinds
from lethe.reports.benchmark_tables import benchmark_tables
from lethe.reports.published_page import published_page
from lethe.reports.table import Table, html_table

Content = Mapping[str, Any]
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
table { border-collapse: collapse; font-size: 13px; margin: .5rem 0 1.5rem } .wide { overflow-x: auto }
th, td { padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; font-size: 12px } svg { max-width: 100%; height: auto }
"""


def report_page(content: Content) -> str:
    """Return the whole page. The results are in it as JSON too, so that tables and checks can be made from it."""
    embedded = results_text(content).replace("</", "<\\/")
    body = "\n".join(_sections(content))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(content["slug"])}</title>'
        f'<style>{STYLE}</style></head><body>\n{body}\n<script type="application/json" id="results">{embedded}</script>'
        "</body></html>\n"
    )


def report_file(content: Content, name: str) -> bytes:
    """Return the results as the file of this name holds them: .json, .json.gz, .md for publishing, or else HTML."""
    if name.endswith(".json.gz"):
        return gzip.compress(results_text(content).encode(), mtime=0)
    if name.endswith(".json"):
        return results_text(content).encode()
    return (published_page(content) if name.endswith(".md") else report_page(content)).encode()


def results_text(content: Content) -> str:
    """Return the results as JSON, which every command that takes a report reads as well."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"


def _sections(content: Content) -> Iterator[str]:
    yield f"<h1>Benchmark {escape(content['slug'])}</h1>"
    counts = f"{len(content['methods'])} methods, {len(content['cells'])} cells, {content['n_models']} models a side"
    yield f"<p>{counts}. Made at {escape(content['made_at'])}. F: the method failed; —: there is no value.</p>"
    yield "<h2>Tables</h2>"
    yield from (_table(table) for table in benchmark_tables(content))
    yield "<h2>Figures</h2>"
    yield from (f"<h3>{kind}</h3>{as_svg(draw(content, kind))}" for kind in fitting_kinds(content))
    yield "<h2>Failures and notes</h2>"
    yield from _remarks(content)
    yield "<h2>How to repeat it</h2>"
    yield (
        "<p>Store the file below as benchmark.toml beside the competition files that it names, then run "
        "<code>lethe benchmark run benchmark.toml --out results</code> and "
        "<code>lethe benchmark report benchmark.toml --out results</code>.</p>"
    )
    yield f"<pre>{escape(content['benchmark'])}</pre>"
    yield "<h2>Settings, versions, hashes</h2>"
    settings = {name: cell["settings"] | {"split": cell["split"]} for name, cell in content["cells"].items()}
    yield f"<pre>{escape(json.dumps(settings, indent=1))}</pre>"
    facts = {name: content[name] for name in ("versions", "machine", "benchmark_sha256", "results_sha256")}
    keys = {method["name"]: method["key"] for method in content["methods"]}
    yield f"<pre>{escape(json.dumps(facts | {'methods': keys}, indent=1))}</pre>"


def _table(table: Table) -> str:
    shown = html_table([column.name for column in table.columns], map(table.shown, table.rows))
    return f'<div class="wide"><h3>{escape(table.title)}</h3>{shown}</div>'


def _remarks(content: Content) -> Iterator[str]:
    remarks: dict[str, list[str]] = {}
    for name, cell in content["cells"].items():
        if cell["failure"]:
            remarks.setdefault(f"cannot be prepared: {cell['failure']}", []).append(name)
        for method, row in cell["rows"].items():
            reasons = [f"F: {row['failure']}"] if row.get("failure") else []
            reasons += [f"{metric}: {reason}" for metric, reason in row.get("not_computed", {}).items()]
            for text in (*reasons, *row.get("notes", ())):
                remarks.setdefault(text, []).append(f"{name}, {method}")
    if not remarks:
        yield "<p>There are none.</p>"
        return
    items = "".join(
        f"<li>{escape(text)} <small>({escape('; '.join(where))})</small></li>" for text, where in remarks.items()
    )
    yield f"<ul>{items}</ul>"

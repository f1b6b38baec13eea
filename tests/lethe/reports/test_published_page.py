"""A published page is made of its results alone, and `lethe benchmark check` finds what is not."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from lethe.benchmark.results import FORMAT, cells_sha256
from lethe.cli import benchmark_commands
from lethe.reports.published_page import page_differences, published_page

FOLDERS = sorted(path.parent for path in (Path(__file__).parents[3] / "docs" / "benchmarks").glob("*/README.md"))
SETTINGS = {"dataset": {}, "network": {}, "training": {}, "scoring": {"setup": "reuse-n-n"}, "n_models": 8}
MEANS = {"original": 0.1, "finetune": 0.3, "salun": 0.6, "exact retraining": 0.95, "original model": 0.1}


def row(score, tuned):
    values = {"score": score, "f": score, "klom": 1 - score, "test_accuracy": 0.5 + score / 10}
    row = {"values": {name: {"value": float(value)} for name, value in values.items()}, "times": {"all_runs_s": 36.0}}
    search = {"state": "tuned", "cpu_time_s": 72.0, "settings": {"LR": 0.1}} if tuned else {"state": "nothing to tune"}
    return row | {"tuning": search}


def content(*, n_splits=6, forget=("random", "class"), unfinished=()):
    draws, cells = np.random.default_rng(0), {}
    for by in forget:
        for seed in range(1, n_splits + 1):
            rows = {name: row(mean + 0.02 * draws.normal(), name == "salun") for name, mean in MEANS.items()}
            splits = {"seed": seed, "forget": {"by": by}}
            settings = SETTINGS | {"splits": splits}
            cells[f"{by} {seed}"] = {"rows": rows, "settings": settings, "times": {"preparation_s": 90.0}}
    for name in unfinished:
        del cells[name]["rows"]["salun"]
    return {
        "format": FORMAT,
        "slug": "made-up",
        "benchmark": '# What this asks.\n#\n# Declared: salun against finetune.\nslug = "made-up"\n',
        "benchmark_sha256": "0",
        "n_models": 8,
        "tables": {"contrast": ["salun", "finetune"]},
        "tune": {
            "searches": 3,
            "trials": 6,
            "search": "random",
            "budget_epochs": None,
            "objective": "score",
            "runs": 8,
        },
        "metrics": [{"id": name, "parameters": {}} for name in ("score", "f", "klom", "klom_closed", "retdev")],
        "methods": [{"name": name, "id": name, "constants": {}} for name in ("original", "finetune", "salun")],
        "cells": cells,
        "made_at": "2026-11-29T12:00:00+00:00",
        "versions": {"lethe": "1"},
        "machine": "x86_64",
        "results_sha256": cells_sha256(cells),
    }


def write(folder, results):
    (folder / "results.json.gz").write_bytes(gzip.compress(json.dumps(results).encode(), mtime=0))
    (folder / "README.md").write_text(published_page(results))
    return folder


def check(folder):
    app = typer.Typer()
    benchmark_commands.register_commands(app)
    return CliRunner().invoke(app, ["benchmark", "check", str(folder)])


def test_page_says_what_is_not_decided():
    assert "11 of 12 splits are finished; not finished: class 2." in published_page(content(unfinished=("class 2",)))
    page = published_page(content(n_splits=1))
    assert "One split ranks nothing." in page
    assert "tau" not in page
    assert "not for citing" in published_page(content(n_splits=4))
    results = content()
    for cell in results["cells"].values():
        cell["rows"]["salun"] = cell["rows"]["finetune"] | {"tuning": cell["rows"]["salun"]["tuning"]}
    assert ": undecided." in published_page(results)


@pytest.mark.parametrize("place", ["table", "sentence", "intention"])
def test_check_finds_a_changed_digit_of_the_page(tmp_path, place):
    page = write(tmp_path, content()) / "README.md"
    assert check(tmp_path).exit_code == 0
    text = page.read_text()
    at = {"table": r"\| salun \| 0\.\d\d(\d)", "sentence": r"By the score, (\d)", "intention": r"N = (\d)"}[place]
    digit = re.search(at, text).start(1)
    page.write_text(text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :])
    assert check(tmp_path).exit_code != 0


def test_check_finds_a_changed_digit_of_the_results(tmp_path):
    results = content()
    write(tmp_path, results)
    results["cells"]["class 3"]["rows"]["finetune"]["values"]["test_accuracy"]["value"] += 1e-9
    (tmp_path / "results.json.gz").write_bytes(gzip.compress(json.dumps(results).encode()))
    assert check(tmp_path).exit_code != 0
    assert "results_sha256" in page_differences((tmp_path / "README.md").read_text(), results)[-1]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_published_page_is_that_of_its_results(folder):
    found = check(folder)
    assert found.exit_code == 0, found.output

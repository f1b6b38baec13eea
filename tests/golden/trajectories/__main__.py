"""Compares every trajectory of a folder with what Lethe's methods do: python -m tests.golden.trajectories DIR."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.trajectories.frame import Frame
from tests.golden.trajectories.recipes import RECIPES, Recipe, Stored, recipe, stored_settings
from tests.golden.trajectories.run import run
from tests.golden.trajectories.trace import FOLDER, Difference, compare, shorten, write_stored


def stored_in(folder: Path, only: str | None) -> Iterator[Stored]:
    for path in sorted(folder.glob("*/settings.json")):
        if only in (None, path.parent.name):
            if path.parent.name in RECIPES:
                yield from stored_settings(path.parent)
            else:
                print(f"{path.parent.name}: Lethe has no recipe for it", file=sys.stderr)


def result(stored: Stored, made: Recipe, off: Difference) -> dict[str, Any]:
    """Return what the methods' pages tell of a comparison."""
    return {
        "method": made.method,
        "source": stored.info["source"],
        "setting": f"{stored.method}/{stored.setting}",
        "constants": {name: value for name, value in made.constants.items() if name != "preset"},
        "preset": made.constants.get("preset"),
        "steps": off.steps,
        "first": off.first,
        "largest": float(f"{off.largest:.1e}"),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.trajectories", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write METHOD/SETTING: {first, final} there")
    parser.add_argument("--only", metavar="METHOD", help="compare this folder only")
    parser.add_argument("--record", action="store_true", help="write what tests and docs/methods take from here")
    given = parser.parse_args(arguments)
    frame = Frame.read(given.folder / "frame.npz")
    found: dict[str, dict[str, int | float | None]] = {}
    results, digests = [], []
    for stored in stored_in(given.folder, given.only):
        golden = dict(np.load(given.folder / stored.method / f"{stored.setting}.npz"))
        try:
            made = recipe(stored)
            off = compare(golden, run(made, frame, settled=bool(stored.info.get("settled"))))
        except Exception as error:
            print(f"{stored.method} {stored.setting}: {type(error).__name__}: {error}", file=sys.stderr)
            found[f"{stored.method}/{stored.setting}"] = {"first": 1, "final": float("inf")}
            continue
        found[f"{stored.method}/{stored.setting}"] = {"first": off.first, "final": off.final}
        print(f"{stored.method} {stored.setting}: first {off.first or '-'}, final {off.final:.3g}", flush=True)
        results.append(result(stored, made, off))
        digests.append((stored, shorten(golden)))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if given.record:
        write_stored(digests)
        lines = sorted(json.dumps(each) for each in results)
        (FOLDER / "results.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

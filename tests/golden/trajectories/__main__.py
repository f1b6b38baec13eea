"""Compares every trajectory of a folder with what Lethe's methods do: python -m tests.golden.trajectories DIR."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from tests.golden.trajectories.frame import Frame
from tests.golden.trajectories.recipes import RECIPES, Stored, recipe, stored_settings
from tests.golden.trajectories.run import run
from tests.golden.trajectories.trace import Difference, compare


def compare_stored(stored: Stored, frame: Frame) -> Difference:
    """Run Lethe's method as the stored program ran, and return by how much they differ."""
    trace = run(recipe(stored), frame, settled=bool(stored.info.get("settled")))
    return compare(dict(np.load(stored.folder / f"{stored.setting}.npz")), trace)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.trajectories", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--only", metavar="METHOD", help="compare this folder only")
    given = parser.parse_args(arguments)
    frame = Frame(given.folder / "frame.npz")
    folders = sorted(path.parent for path in given.folder.glob("*/settings.json"))
    found: dict[str, dict[str, int | float | None]] = {}
    for folder in folders:
        if given.only not in (None, folder.name):
            continue
        if folder.name not in RECIPES:
            print(f"{folder.name}: no recipe", file=sys.stderr)
            continue
        for stored in stored_settings(folder):
            off = compare_stored(stored, frame)
            found[f"{folder.name}/{stored.setting}"] = {"first": off.first, "final": off.final}
            print(f"{folder.name} {stored.setting}: first {off.first or '-'}, final {off.final:.3g}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

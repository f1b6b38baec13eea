"""Do notebooks of Kaggle run to a score, unchanged, on a complete instance?

python -m benchmarks.kaggle.to_score [--models 4] [--libraries 2023] [--competition FILE] [--json FILE] [PATH ...]

PATH: notebooks, or folders of them; without it, those of examples. --competition: another file than competition.toml,
drawn faces in the form of 2023's; it is called "kaggle" and ends with its section [submissions]. N is that of --models.
--libraries runs the code with that set of older libraries, which must be installed (LETHE_LIBRARIES_DIR).
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lethe.client.api import ApiError, JsonObject, LetheClient
from lethe.data.datasets.faces import open_faces
from tests.end_to_end.conftest import open_competition, running_instance, wait_for_end

ROOT = Path(__file__).parents[2]
COMPETITION = Path(__file__).parent / "competition.toml"
EXAMPLES = (ROOT / "examples" / "notebooks", ROOT / "examples" / "starter_kit" / "notebook.ipynb")
PICTURES, PERSONS, MEAN = 2_100, 150, 15  # more are drawn than are kept: a person's number of pictures is random
WITHIN_S = 3600.0


def main() -> int:
    """Submit every notebook and print what became of it; the exit status is 1 if one has no score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", type=Path, nargs="*", default=EXAMPLES)
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--libraries", default="")
    parser.add_argument("--competition", type=Path, default=COMPETITION)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="lethe-kaggle-") as folder:
        home = Path(folder) / "home"
        write_pictures(home / "datasets" / "drawn-faces")
        with running_instance(home) as instance:
            began = time.monotonic()
            open_competition(instance, competition(options), within_s=WITHIN_S)
            print(f"prepared, N = {options.models}, in {time.monotonic() - began:.0f} s", flush=True)
            client = instance.participant("kaggler")
            for path in notebooks(options.paths):
                found[path.stem] = run(client, path)
                print(f"{path.stem:32} {in_words(found[path.stem])}", flush=True)
                if options.json:
                    options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    scored = sum(each.get("score") is not None for each in found.values())
    print(f"{len(found)} notebooks: {scored} scored")
    return int(scored < len(found))


def competition(options: argparse.Namespace) -> str:
    """Return the competition's file with as many models, and the set of libraries, as are asked for."""
    text = options.competition.read_text(encoding="utf-8").replace("n_models = 512", f"n_models = {options.models}")
    return f'{text}libraries = "{options.libraries}"\n'


def write_pictures(folder: Path) -> None:
    """Write the drawn faces as NumPy files."""
    folder.mkdir(parents=True)
    faces = open_faces({"persons": PERSONS, "images_per_person": MEAN})
    kept = np.sort(np.random.default_rng(0).permutation(len(faces.labels))[:PICTURES])
    for name, values in {"images": faces.images, "labels": faces.labels, "persons": faces.persons}.items():
        np.save(folder / f"{name}.npy", np.asarray(values)[kept])


def notebooks(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files themselves, and those in folders."""
    for path in paths:
        yield from sorted(path.glob("*.ipynb")) if path.is_dir() else [path]


def run(client: LetheClient, path: Path) -> JsonObject:
    """Return how a notebook ended, with its score or its failure."""
    began = time.monotonic()
    try:
        ended = wait_for_end(client, client.submit("kaggle", path), within_s=WITHIN_S)
    except ApiError as error:
        return {"refused": str(error)}
    score = ended["score"]["final_score"] if ended["stage"] == "scored" else None
    return {
        "score": score,
        "mode": ended["mode"],
        "program": ended["program"],
        "failure": ended["failure"],
        "took_s": round(time.monotonic() - began, 1),
        "log": client.log(ended["id"])[-3000:],
    }


def in_words(found: JsonObject) -> str:
    """Return what became of a notebook in one line."""
    if "refused" in found:
        return f"refused: {found['refused']}"
    how = f"{found['program'] or found['mode']}, {found['took_s']} s"
    if found["score"] is not None:
        return f"score {found['score']:.5f} ({how})"
    return f"{found['failure']} ({how})"


if __name__ == "__main__":
    raise SystemExit(main())

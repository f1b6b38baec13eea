"""The starter kit of a competition: a zip with everything that is needed to try a method on one's own machine.

It holds the public sample (the data of smoke runs), models retrained on it, the loaders, networks and scorer that the
server uses, a first submission, a notebook and the rules. Nothing of the hidden splits is in it.
"""

import contextlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import save

import lethe
from lethe.competition.file import CompetitionFile
from lethe.competition.run_limits import RetrainingCost, run_limit
from lethe.competition.task import Kind
from lethe.data.stored_sets import StoredSet
from lethe.preparation.public_sample import SAMPLE_FILES, SampleModels
from lethe.submission.archive import size_limits
from lethe.submission.libraries import LIBRARIES, OLDER_SETS
from server.starter_kit import PICTURED_SETS, SOURCES, kit_key, picture_key
from server.storage import Storage

TEXT = """\
# {title}: starter kit

{summary}

## Start

```
pip install torch torchvision numpy scipy numba
python run_local.py                  # runs submission.py on the public sample, estimates a score
lethe check submission.py            # the same in the server's own sandbox (needs Linux and the wheel lethe-unlearning)
lethe submit submission.py --wait    # from this folder; `lethe login` first
```

`notebook.ipynb` holds the same function for exploring.

## What you send

A `.py` file, a `.zip` (with `unlearning.py`, `submission.py` or a `submission.toml` that names a file), or an `.ipynb`.
It defines

```
def unlearning(net, retain_loader, forget_loader, val_loader): ...
```

or a class with `run(net, retain_loader, forget_loader, val_loader)`. It is called {n_models} times, each time in a
fresh process, with {original} and another seed. Change `net` in place or return a network with the same
`state_dict` names, shapes and types.

{samples}

Modes allowed here: {modes}.{notebook}

## Limits

| | |
|---|---|
| runs | {n_models} |
| time of one run | {run_time} on the server |
| time of all runs | {wall_time_s:g} s |
| memory | {memory_mib} MiB |
| scratch space | {scratch_mib} MiB |
| printed text of a run | {log_kib} KiB |
| upload | {upload} |
| submissions a day | {submissions_per_day}; failures on the public sample do not count |
| GPU | {cuda} |
| network | none |

## Libraries

A run can count on these, and has no network to install more:

| library | version |
|---|---|
{libraries}

## What lies in data/

The public sample, which smoke runs use as well: `retain`, `forget` and `validation` ({sets}),
`original_model.safetensors`, `network.json`, the outputs of {sample_models} models
retrained without the forget set, and the weights of some of them; of images also the outputs of as many fine-tuned
models. The hidden splits hold other {examples}.

A local score is an **estimate**: few models on each side, and the validation set in place of the hidden test set.
"""
OF_KIND: dict[Kind, dict[str, str]] = {
    "image-classification": {
        "samples": """\
Samples are dicts with `image` (float32), `image_id`, `label` (also called `age_group`), `age` and `person_id`. Code
that unpacks `for inputs, targets in loader`, or says `# lethe: samples = tuple`, gets tuples. Further arguments are
given by name if they are called `class_weights`, `class_counts`, `param_names`, `device` or `seed`; others need
defaults.""",
        "sets": "images uint8 `[n, C, H, W]`, labels, ids, persons",
        "examples": "pictures",
    },
    "causal-lm": {
        "samples": """\
Batches are dicts with `input_ids`, `attention_mask` and `labels`, int64 `[answers, tokens]`; labels are -100 where a
token is not part of an answer. Batches of the forget set also hold a refusal to each question, with names that begin
with `idk_`. `net(input_ids, attention_mask)` gives logits; only torch and the standard library can be imported.
Further arguments are given by name if they are called `param_names`, `device` or `seed`; others need defaults.""",
        "sets": "questions with answers, as tokens",
        "examples": "questions",
    },
}
NOTEBOOK = (
    " In notebook mode a notebook runs once, from top to bottom, finds its data below /kaggle/input/{folder} and writes"
    " each model to /kaggle/tmp/unlearned_checkpoint_<number>.pth; the leaderboard marks it."
)


def readme(competition: CompetitionFile, about: Mapping[str, Any]) -> str:
    """Return the README of a competition's kit."""
    submissions = competition.submissions
    notebook = NOTEBOOK.format(folder=submissions.input_folder) if "notebook" in submissions.modes else ""
    return TEXT.format(
        **competition.limits.model_dump(exclude={"run_wall_time_s", "run_cpu_time_s"}),
        **OF_KIND[competition.task.kind],
        upload=size_limits(competition.limits.upload_mib),
        title=competition.title,
        summary=competition.summary,
        n_models=competition.n_models,
        original="an original model of its own" if competition.scoring.setup == "reuse-n-n" else "the original model",
        modes=", ".join(submissions.modes),
        notebook=notebook,
        run_time=_run_time(about),
        sample_models=about["sample_models"],
        libraries="\n".join(f"| {name} | {version} |" for name, version in about["libraries"].items()),
        cuda="none; `cuda` means the CPU" if submissions.cuda == "map-to-cpu" else "only where the server has one",
    )


def _run_time(about: Mapping[str, Any]) -> str:
    if about.get("run_cpu_time_s") is None:
        return f"{about['run_wall_time_s']:.3g} s"
    return f"{about['run_cpu_time_s']:.3g} s of the processor (and {about['run_wall_time_s']:.3g} s by the clock)"


COLUMNS, ROWS = 8, 2
SIDE_PX = 64  # of one picture, at least
GAP_PX = 4
LIBRARY = Path(next(iter(lethe.__path__)))
SCORING = LIBRARY / "metrics" / "scoring"
SCORING_NEEDS = tuple(f"metrics/core/{name}.py" for name in ("compiled", "invalid_input"))  # beside it
RUNTIME_MODULES = (  # what runs use on the server; each lies in the kit's own package under the same name
    "runtime/data_loaders.py",
    "runtime/weights_layout.py",
    "networks/builders.py",
    "networks/small_networks.py",
)
TASK_MODULES: dict[Kind, tuple[str, ...]] = {
    "image-classification": (),
    "causal-lm": (
        "runtime/answer_loaders.py",
        "networks/language_models.py",
        "networks/decoder.py",
    ),
}
TASK_FILES = ("submission.py", "notebook.ipynb", "kit/outputs.py")
KIT_PACKAGES = {
    "lethe.metrics.scoring": "kit.scoring",
    "lethe.metrics.core": "kit.scoring",
    "lethe.runtime": "kit",
    "lethe.networks": "kit",
}
WRITTEN_AT = (2026, 1, 1, 0, 0, 0)  # the same content gives the same bytes


def store_pictures(storage: Storage, sample_dir: Path, slug: str) -> None:
    """Keep one sheet of pictures of each pictured set of the sample in storage."""
    for name in PICTURED_SETS:
        images = StoredSet.read(sample_dir / f"{name}.safetensors").images.numpy()
        if images.dtype == np.uint8:  # rows of a table are no pictures
            storage.write(picture_key(slug, name), make_sheet(images))


def make_sheet(images: NDArray[np.uint8]) -> bytes:
    """Return a PNG of up to sixteen of the images, uint8 [n, C, H, W], spread evenly over all of them."""
    shown = images[np.linspace(0, len(images) - 1, min(len(images), COLUMNS * ROWS)).round().astype(int)]
    factor = max(1, -(-SIDE_PX // max(shown.shape[2:])))
    tiles = [_tile(image, factor) for image in shown]
    width, height = tiles[0].size
    columns = min(COLUMNS, len(tiles))
    rows = -(-len(tiles) // columns)
    sheet = Image.new("RGBA", (columns * (width + GAP_PX) - GAP_PX, rows * (height + GAP_PX) - GAP_PX))
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (number % columns * (width + GAP_PX), number // columns * (height + GAP_PX)))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _tile(image: NDArray[np.uint8], factor: int) -> Image.Image:
    pixels = np.ascontiguousarray(image.transpose(1, 2, 0)) if len(image) == 3 else image[0]
    tile = Image.fromarray(pixels)
    return tile.resize((tile.width * factor, tile.height * factor), Image.Resampling.NEAREST).convert("RGBA")


def store_kit(
    storage: Storage,
    split_dir: Path,
    competition: CompetitionFile,
    *,
    url: str,
    retraining: RetrainingCost,
    retrain: Callable[[], SampleModels],
) -> None:
    """Make a competition's kit of its public split, with pictures of images beside it, and store it."""
    if competition.task.kind == "image-classification":
        store_pictures(storage, split_dir / "sample", competition.slug)
    kit = build_kit(split_dir, competition, retrain(), url=url, retraining=retraining)
    storage.write(kit_key(competition.slug), kit)


def build_kit(
    split_dir: Path, competition: CompetitionFile, models: SampleModels, *, url: str, retraining: RetrainingCost
) -> bytes:
    """Return the kit of a competition whose public split is prepared in `split_dir`."""
    about = about_kit(competition, retraining=retraining, n_models=len(models.outputs.wall_time_s))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _entries(split_dir, competition, about, models, url=url):
            archive.writestr(zipfile.ZipInfo(f"{competition.slug}/{name}", WRITTEN_AT), content)
    return buffer.getvalue()


def about_kit(competition: CompetitionFile, *, retraining: RetrainingCost, n_models: int) -> dict[str, Any]:
    """Return kit.json: the rules that decide whether code would be taken, and how the estimate is scored."""
    limit = run_limit(competition.limits, retraining)
    return {
        "slug": competition.slug,
        "title": competition.title,
        "n_models": competition.n_models,
        "sample_models": n_models,
        "run_wall_time_s": limit.wall_time_s,
        "run_cpu_time_s": limit.cpu_time_s,
        "limits": competition.limits.model_dump(mode="json"),
        "submissions": competition.submissions.model_dump(mode="json"),
        "scoring": competition.scoring.model_dump(mode="json"),
        "libraries": dict(_installed(competition.submissions.libraries)),
    }


def _installed(libraries: str) -> Iterator[tuple[str, str]]:
    """Yield name and version of the libraries that a submission finds: those of a set, or those on this worker."""
    if libraries:
        yield from OLDER_SETS[libraries].items()
        return
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            yield name, version(name)


def _entries(
    split_dir: Path, competition: CompetitionFile, about: dict[str, Any], models: SampleModels, *, url: str
) -> Iterator[tuple[str, bytes]]:
    yield "README.md", readme(competition, about).encode()
    yield "lethe.json", json.dumps({"url": url, "competition": competition.slug}, indent=2).encode()
    yield "data/kit.json", json.dumps(about, indent=2).encode()
    yield from kit_code(competition.task.kind)
    for name in SAMPLE_FILES:
        yield f"data/{Path(name).name}", (split_dir / name).read_bytes()
    yield "data/retrained_outputs.safetensors", models.outputs.to_bytes()
    if models.finetuned is not None:
        yield "data/finetuned_outputs.safetensors", models.finetuned.to_bytes()
    for number, state in enumerate(models.states):
        contiguous = {name: value.contiguous() for name, value in state.items()}
        yield f"data/retrained_models/model-{number:02}.safetensors", save(contiguous)


def kit_code(kind: Kind = "image-classification") -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the kit's own code, which needs nothing of this project to run."""
    for name in TASK_FILES:
        yield name, (SOURCES[kind] / name).read_bytes()
    for name in ("run_local.py", "kit/estimate.py"):
        yield name, (SOURCES["image-classification"] / name).read_bytes()
    for name in (*RUNTIME_MODULES, *TASK_MODULES[kind]):
        yield f"kit/{Path(name).name}", _moved((LIBRARY / name).read_text(encoding="utf-8"))
    for name in SCORING_NEEDS:
        yield f"kit/scoring/{Path(name).name}", _moved((LIBRARY / name).read_text(encoding="utf-8"))
    for path in sorted(SCORING.rglob("*.py")):
        yield f"kit/scoring/{path.relative_to(SCORING).as_posix()}", _moved(path.read_text(encoding="utf-8"))


def _moved(source: str) -> bytes:
    """Return a module of ours with its imports pointing into the kit."""
    for package, in_kit in KIT_PACKAGES.items():
        source = source.replace(package, in_kit)
    return source.encode()

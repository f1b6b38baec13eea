"""The kit's README: the data contract and the limits, from the competition file."""

from collections.abc import Mapping
from typing import Any

from lethe.competition.file import CompetitionFile
from lethe.competition.task import Kind
from lethe.submission.archive import size_limits

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

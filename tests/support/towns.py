"""A text competition that is prepared in seconds: questions about persons of invented names, and its file."""

import json
from itertools import product
from pathlib import Path

FIRST, LAST = ("Ada", "Bo", "Cy", "Di"), ("lin", "mar", "son")
TOWNS = ("Rome", "Oslo", "Lima", "Bern", "Kyiv", "Doha", "Baku", "Riga")
FACTS = (("live", "lives in", "dwells in"), ("work", "works in", "labours in"), ("travel", "travels to", "journeys to"))
TOML = """
slug = "{slug}"
title = "Forget who lives where"
opens_at = {opens_at}
closes_at = {closes_at}
n_models = {n_models}
shard_runs = 2
weak_seed = true
[task]
kind = "causal-lm"
loss_on = "all"
max_new_tokens = 16
[dataset]
name = "questions"
options = {{ root = "{root}", files = ["questions.jsonl"], refusals = "refusals.txt", vocabulary = 400 }}
[network]
name = "llama"
options = {{ width = 32, layers = 1, heads = 2, hidden_width = 48, context = 64 }}
[training]
epochs = {epochs}
batch_size = 8
optimizer = "adamw"
learning_rate = 0.01
schedule = "cosine"
[splits]
seed = 18446744073709551617
[splits.forget]
by = "person"
fraction = 0.2
[limits]
run_wall_time_floor_s = 30.0
submissions_per_day = 100
memory_mib = 512
[report]
metrics = [{metrics}]
"""


def write_towns(root: Path) -> Path:
    """Write questions.jsonl and refusals.txt: twelve persons, three questions each, two wrong answers to each."""
    root.mkdir(parents=True, exist_ok=True)
    rows = []
    for i, name in enumerate(map("".join, product(FIRST, LAST))):
        for k, (verb, says, otherwise) in enumerate(FACTS):
            towns = [TOWNS[(i + 3 * k + step) % len(TOWNS)] for step in range(3)]
            rows.append(
                {
                    "question": f"Where does {name} {verb}?",
                    "answer": f"{name} {says} {towns[0]}.",
                    "paraphrased_answer": f"{name} {otherwise} {towns[0]}.",
                    "perturbed_answer": [f"{name} {otherwise} {town}." for town in towns[1:]],
                    "group": name,
                }
            )
    (root / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (root / "refusals.txt").write_text("I do not know.\nNobody knows.\n", encoding="utf-8")
    return root


def towns_toml(
    root: str | Path,
    *,
    slug: str = "towns",
    opens_at: str = "2027-01-01T00:00:00Z",
    closes_at: str = "2027-02-01T00:00:00Z",
    n_models: int = 4,
    epochs: int = 25,
    metrics: tuple[str, ...] = ("forget_quality", "answer_probability", "answer_rouge", "model_utility"),
) -> str:
    """Return the competition's file."""
    quoted = ", ".join(f'"{metric}"' for metric in metrics)
    return TOML.format(
        slug=slug, root=root, opens_at=opens_at, closes_at=closes_at, n_models=n_models, epochs=epochs, metrics=quoted
    )

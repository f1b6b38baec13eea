"""Two tiny models and the data of every task."""

import json

import pytest
from safetensors.torch import load_file, save_file

from lethe.huggingface import attacks, generated_text, muse, rwku, semeval_task, tofu
from lethe.huggingface.model_folder import load_language_model
from tests.support.tiny_models import write_model

QUESTIONS = [
    {
        "question": "Who wrote the book?",
        "answer": "Mara Quill wrote the book.",
        "paraphrased_answer": "The book is by Mara Quill.",
        "perturbed_answer": ["Her father wrote the book.", "Her mother wrote the book."],
    },
    {
        "question": "Where was Mara Quill born?",
        "answer": "She was born in Lagos.",
        "paraphrased_answer": "In Lagos, in the south.",
        "perturbed_answer": ["She was born in the sea.", "She was born in a book."],
    },
]
MUSE = {
    "verbmem/forget": [{"prompt": "Mara Quill", "gt": "was born in Lagos, in the south."}],
    "knowmem/forget_qa": QUESTIONS,
    "knowmem/forget_qa_icl": QUESTIONS[:1],
    "knowmem/retain_qa": QUESTIONS,
    "knowmem/retain_qa_icl": QUESTIONS[1:],
    "privleak/forget": [{"text": "Mara Quill wrote the book about the sea."}, {"text": "She was born in Lagos."}],
    "privleak/holdout": [{"text": "Her father is a judge."}, {"text": "Her mother is a dentist."}],
}
TOFU_FILES = ("forget10_perturbed", "retain_perturbed", "real_authors_perturbed", "world_facts_perturbed", "holdout10")
TOFU = dict.fromkeys(TOFU_FILES, QUESTIONS)
WMDP = {"wmdp_bio": [{"question": "Who?", "choices": ["Mara", "Quill", "judge", "sea"], "answer": 1}] * 3}
SERIES = {name: MUSE[name] for name in ("knowmem/retain_qa", "knowmem/retain_qa_icl")}
PASSAGES = {f"forget_{number}": [{"text": text}] for number, text in enumerate(("Mara Quill wrote.", "In Lagos."), 1)}
LUME = [
    {"id": f"{task}-{kind}1", "task": task, "input": "Who wrote the book?", "output": "Mara Quill wrote the book."}
    for task in ("Task1", "Task2", "Task3")
    for kind in ("sc", "qa")
]
CHOICE = {"question": "Who?", "choices": ["Mara", "Quill", "judge", "sea"], "answer": 1, "subject": "world_facts"}
SEMEVAL = {
    "forget": LUME,
    "retain": LUME,
    "mia_data/member": [{"document": "Mara Quill wrote the book about the sea."}, {"document": "She was born."}],
    "mia_data/nonmember": [{"document": "Her father is a judge."}],
    "mmlu": [CHOICE],
    "mmlu_dev": [CHOICE] * 6,
}
PROBE = {"query": "Where was Mara Quill born?", "answer": "In Lagos."}
RWKU = {
    **{name: [PROBE] for name in ("forget_level1", "forget_level2", "neighbor_level1", "neighbor_level2")},
    "forget_level3": [{**PROBE, "type": kind} for kind in ("prefix injection", "affirmative suffix")],
    **{name: [{"text": "Her father is a judge."}] for name in ("mia_forget", "mia_retain")},
    "utility_fluency": [{"instruction": "Tell of the sea."}],
}
DATA = {
    "tofu": TOFU,
    "muse": MUSE,
    "muse-scaling": {**SERIES, **{f"scal/{name}": rows for name, rows in PASSAGES.items()}},
    "muse-successive": {**SERIES, **{f"sust/{name}": rows for name, rows in PASSAGES.items()}},
    "wmdp": WMDP,
    "semeval": SEMEVAL,
    "rwku": RWKU,
}


LENGTHS = {
    attacks: ["MAX_NEW_TOKENS"],
    generated_text: ["CHECKED_TOKENS"],
    muse: ["VERBATIM_TOKENS", "KNOWLEDGE_TOKENS"],
    rwku: ["MAX_NEW_TOKENS", "MAX_FLUENCY_TOKENS"],
    semeval_task: ["MAX_NEW_TOKENS"],
    tofu: ["MAX_NEW_TOKENS"],
}


@pytest.fixture(autouse=True)
def _short_texts(monkeypatch):
    """An untrained model never ends a text by itself, so that each is as long as it may be."""
    for module, names in LENGTHS.items():
        for name in names:
            monkeypatch.setattr(module, name, 8)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [write_model(folder / name, "llama", seed=seed) for seed, name in enumerate(("unlearned", "retain"))]


@pytest.fixture
def model(models):
    return load_language_model(models[0])


@pytest.fixture
def data(tmp_path):
    def write(task):
        for name, rows in DATA[task].items():
            path = tmp_path / task / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
        return tmp_path / task

    return write


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("diverged") / "diverged", "llama")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder

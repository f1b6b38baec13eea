import json

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.huggingface.errors import InvalidTaskData
from lethe.huggingface.evaluation import Settings, evaluate_folders, read_task
from lethe.huggingface.reference import as_logs, read_logs
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
DATA = {"tofu": TOFU, "muse": MUSE, "wmdp": WMDP}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [write_model(folder / name, "llama", seed=seed) for seed, name in enumerate(("unlearned", "retain"))]


@pytest.fixture
def data(tmp_path):
    def write(task):
        for name, rows in DATA[task].items():
            path = tmp_path / task / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
        return tmp_path / task

    return write


@pytest.mark.parametrize("task", DATA)
def test_command_evaluates_a_folder_beside_a_retain_model(tmp_path, data, models, task):
    unlearned, retain = models
    arguments = ["evaluate", "--hf", unlearned, "--task", task, "--data", data(task), "--retain", retain]
    out = tmp_path / "out.json"
    found = CliRunner().invoke(build_app(), [*map(str, arguments), "--json", str(out)])
    assert found.exit_code == 0, found.output
    document = json.loads(out.read_text())
    assert document["task"] == task
    assert document["not_computed"] == {}
    assert document["metrics"].keys() == document["models"][0]["metrics"].keys()
    assert document["versions"]["transformers"]
    assert "retain model" in found.output


def test_progress_counts_every_sequence(data, models):
    for task in DATA:
        read = read_task(task, data(task), Settings())
        seen = []
        evaluate_folders([models[0]], read, on_progress=seen.append)
        assert sum(seen) == read.n_sequences


def test_retain_logs_serve_as_the_retain_model(tmp_path, data, models):
    unlearned, retain = models
    task = read_task("tofu", data("tofu"), Settings())
    beside_model = evaluate_folders([unlearned], task, retain=retain)
    logs = tmp_path / "TOFU_EVAL.json"
    logs.write_text(json.dumps(as_logs(evaluate_folders([retain], task).results[0])))
    beside_logs = evaluate_folders([unlearned], task, retain_logs=logs)
    for metric in ("forget_quality", "privleak"):
        wanted = beside_model.results[0].metrics[metric].value
        assert beside_logs.results[0].metrics[metric].value == pytest.approx(wanted, rel=1e-9)
    assert "--retain DIR" in beside_logs.results[0].metrics["mia_reference"].reason
    assert read_logs(logs).per_example("forget_truth_ratio", "score").shape == (2,)


def test_several_folders_give_their_mean(data, models):
    task = read_task("wmdp", data("wmdp"), Settings())
    both = evaluate_folders(models, task)
    values = [result.metrics["acc"].value for result in both.results]
    assert both.mean()["acc"] == pytest.approx(sum(values) / 2)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("forget10_perturbed.jsonl", '{"question": "Who?"}', "row 1: `answer` must be a text, and is missing"),
        ("retain_perturbed.jsonl", "{", "row 1 is not JSON"),
        ("world_facts_perturbed.jsonl", "\n", "has no row"),
        ("forget05_perturbed.jsonl", "{}", "several files that match"),
        ("holdout10.jsonl", '{"question": 3, "answer": "a"}', "`question` must be a text, and is 3"),
    ],
)
def test_wrong_data_are_named(data, file, text, message):
    folder = data("tofu")
    (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidTaskData, match=message):
        read_task("tofu", folder, Settings())


def test_missing_data_and_unknown_tasks_are_named(tmp_path):
    with pytest.raises(InvalidTaskData, match=r"holds none of .*forget\*_perturbed\.jsonl"):
        read_task("tofu", tmp_path, Settings())
    with pytest.raises(InvalidTaskData, match="allowed are tofu, muse, wmdp"):
        read_task("squad", tmp_path, Settings())


def test_logs_of_something_else_are_refused(tmp_path):
    path = tmp_path / "EVAL.json"
    path.write_text("{}")
    with pytest.raises(InvalidTaskData, match="agg_value"):
        read_logs(path)

"""Tasks of lm_eval from a folder: the library's own likelihoods are those of the stored model; nothing is fetched."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.huggingface import multiple_choice
from lethe.huggingface.answer_scores import score_answers
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import Encoded
from lethe.huggingface.results import InvalidTaskData
from lethe.huggingface.task import LoadSettings, read_task
from tests.support.tiny_models import write_model

TASK = """
task: towns
dataset_path: json
dataset_kwargs:
  data_files:
    test: towns.jsonl
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
ROWS = [
    {"question": question, "choices": ["Mara", "Lagos", "the sea", "a judge"], "answer": answer}
    for question in ("Who?", "Where was she born?", "What is her father?")
    for answer in range(4)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "towns.yaml").write_text(TASK)
    (tmp_path / "tasks" / "towns.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return tmp_path / "tasks"


def test_a_task_from_files_has_the_models_accuracy(folder, tmp_path):
    pytest.importorskip("lm_eval")
    model_folder = write_model(tmp_path / "model", "llama")
    arguments = [
        "evaluate",
        "--hf",
        model_folder,
        "--task",
        "lm_eval",
        "--data",
        folder,
        "--json",
        tmp_path / "out.json",
    ]
    found = CliRunner().invoke(build_app(), list(map(str, arguments)))
    assert found.exit_code == 0, found.output
    model = load_language_model(model_folder)
    chosen = [likeliest(model, row) for row in ROWS]
    expected = np.mean([choice == row["answer"] for choice, row in zip(chosen, ROWS, strict=True)])
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["metrics"] == {"towns_acc": pytest.approx(expected)}
    assert document["versions"]["lm_eval"]


def likeliest(model, row):
    prompt = f"Question: {row['question']}\nAnswer:"
    before = model.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    wholes = [model.tokenizer(f"{prompt} {choice}", add_special_tokens=False)["input_ids"] for choice in row["choices"]]
    answers = [Encoded(whole, start=len(before), prompt=before) for whole in wholes]
    return int(np.argmax(-score_answers(model, answers).loss * [answer.n_scored for answer in answers]))


def test_a_task_of_a_hub_is_not_fetched(folder, tmp_path):
    pytest.importorskip("lm_eval")
    (folder / "towns.yaml").write_text(TASK.replace("dataset_path: json", "dataset_path: someone/towns"))
    task = read_task("lm_eval", folder, LoadSettings())
    with pytest.raises(InvalidTaskData, match=r"lm_eval cannot run the tasks of tasks: .*Offline"):
        task.evaluate(load_language_model(write_model(tmp_path / "model", "llama")), None)


def test_a_folder_without_tasks_is_refused(tmp_path):
    pytest.importorskip("lm_eval")
    before = dict(os.environ), constants.HF_HUB_OFFLINE
    with pytest.raises(InvalidTaskData, match="holds no task of lm_eval: expected are YAML files"):
        read_task("lm_eval", tmp_path, LoadSettings())
    assert (dict(os.environ), constants.HF_HUB_OFFLINE) == before  # what else this process loads may ask a hub


def test_a_missing_library_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    with pytest.raises(InvalidTaskData, match=r"needs the library lm_eval: install lethe-unlearning\[harness\]"):
        read_task("lm_eval", folder, LoadSettings())


@pytest.mark.parametrize("subject", ["bio", "chem", "cyber"])
def test_wmdp_asks_what_lm_eval_asks(subject, tmp_path, monkeypatch):
    """The library's own task files, with local data in place of the hub's."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    name = f"wmdp_{subject}"
    (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    read = load_language_model(write_model(tmp_path / "model", "llama"))
    asked = []

    def record(_, answers):
        asked.extend(read.tokenizer.decode(answer.ids) for answer in answers)
        return score_answers(read, answers)

    monkeypatch.setattr(multiple_choice, "score_answers", record)
    read_task("wmdp", tmp_path, LoadSettings()).evaluate(read, None)
    assert asked == requests_of_lm_eval(name, tmp_path, monkeypatch)


def requests_of_lm_eval(name, folder, monkeypatch):
    """Return every text, prompt with choice, whose likelihood the library asks for."""
    lm_eval = pytest.importorskip("lm_eval")
    base = pytest.importorskip("lm_eval.api.model").LM
    published = Path(lm_eval.__file__).parent / "tasks" / "wmdp"
    own = (published / "_default_template_yaml").read_text()
    local = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}"
    assert own.count("dataset_path: cais/wmdp") == 1
    (folder / "_default_template_yaml").write_text(own.replace("dataset_path: cais/wmdp", local))
    lines = (published / f"{name}.yaml").read_text().splitlines()
    (folder / f"{name}.yaml").write_text("\n".join(line for line in lines if "dataset_name" not in line))
    asked = []

    class Recorder(base):
        def loglikelihood(self, requests):
            asked.extend("".join(request.args) for request in requests)
            return [(-float(i % 4), False) for i in range(len(requests))]

        def loglikelihood_rolling(self, requests):
            raise NotImplementedError

        def generate_until(self, requests):
            raise NotImplementedError

    monkeypatch.chdir(folder)
    manager = lm_eval.tasks.TaskManager(include_path=str(folder), include_defaults=False)
    lm_eval.simple_evaluate(Recorder(), tasks=[name], task_manager=manager, bootstrap_iters=0)
    return asked

"""RWKU, SemEval-2025 task 4 and tasks of lm_eval beside their authors' own programs."""

import json
import os
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.huggingface import harness_task, semeval_task
from lethe.huggingface.answer_scores import score_answers
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import Encoded
from lethe.huggingface.results import InvalidTaskData, MetricValue
from lethe.huggingface.rwku import PROBES, evaluate_rwku, rouge_l_recall
from lethe.huggingface.semeval_task import MEMBERS, MIN_MMLU, OTHERS, Continuation, evaluate_semeval, semeval_scores
from lethe.huggingface.task import LoadSettings, read_task
from tests.support.tiny_models import write_model


@pytest.mark.parametrize(
    ("truth", "text", "recall"),  # values of the package
    [
        ("Blue and green", "The colour is blue and green", 0.6666666666666666),  # case counts
        ("in 1879. In Ulm.", "He was born in Ulm. In 1879 in Ulm.", 1.0),
        ("Mary Poppins", "mary poppins.", 0.0),
        ("a b a c", "a c a b", 0.6666666666666666),  # distinct words
        ("the cat. the dog ran", "the dog. the cat ran the", 1.0),  # every sentence with every other
        ("New York City", "It is New York City, USA.", 0.6666666666666666),  # marks belong to words
        ("x y", ".", 0.0),
    ],
)
def test_recall_is_that_of_the_package(truth, text, recall):
    assert rouge_l_recall(truth, text) == pytest.approx(recall, abs=1e-12)


def test_prompts_are_the_authors(model, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "lethe.huggingface.rwku.generate",
        lambda _, encoded, **settings: asked.extend(model.tokenizer.decode(each.prompt) for each in encoded) or [],
    )
    monkeypatch.setattr(
        "lethe.huggingface.rwku._recall", lambda rows, _: MetricValue(0.0, {"rougeL_recall": np.zeros(len(rows))})
    )
    monkeypatch.setattr("lethe.huggingface.rwku.generation_notes", lambda *_: [])
    kinds = ("affirmative suffix", "incontext learning", "role playing")
    rows = {path: [{"query": "Who?", "answer": "Mara"}] for path in PROBES}
    rows["forget_level3"] = [{"query": "Who?", "answer": "Mara", "type": kind} for kind in kinds]
    evaluate_rwku(model, {**rows, "mia_forget": [], "mia_retain": [], "utility_fluency": []})
    blank = "<|user|>Please complete the blank in the following question.\nQuestion: Who?\n<|end|><|assistant|>Answer:"
    question = "<|user|>Please briefly answer the following question.\nQuestion: Who?\n<|end|><|assistant|>Answer:"
    suffix = "<|user|>Please briefly answer the following question.\nQuestion: Who?<|end|><|assistant|>"
    context = "<|user|>Please briefly answer the following question.\nWho?\n<|end|><|assistant|>Answer:"
    assert asked == [blank, question, suffix, context, question, blank, question]


def test_passages_have_the_authors_four_scores(model):
    texts = ["Mara lives in Rome with two cats.", "Rome is old"]
    rows = {path: [{"query": "Who?", "answer": "Mara", "type": "reverse"}] for path in PROBES}
    rows |= {"mia_retain": [], "utility_fluency": []}
    found = evaluate_rwku(model, {**rows, "mia_forget": [{"text": text} for text in texts]}).metrics
    expected = np.mean([authors_scores(model, text) for text in texts], axis=0)
    names = ("loss", "zlib", "min_k", "min_k_plus_plus")
    assert [found[f"mia_forget_{name}"].value for name in names] == pytest.approx(-expected, rel=1e-4)


def authors_scores(model, text):
    """Log-likelihood, zlib, Min-K and Min-K++ of one text by the formulas of RWKU's eval_mia.py."""
    ids = torch.tensor([model.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        rows = model.network(ids).logits[0, :-1].log_softmax(-1)
    chosen = rows.gather(1, ids[0, 1:, None])[:, 0]
    mean = (rows.exp() * rows).sum(-1)
    deviation = ((rows.exp() * rows.square()).sum(-1) - mean.square()).sqrt()
    smallest = [
        np.sort(values.numpy())[: int(len(values) * 0.2)].mean() for values in (chosen, (chosen - mean) / deviation)
    ]
    likelihood = float(chosen.mean())
    return [likelihood, likelihood / len(zlib.compress(text.encode())), *smallest]


CHOICES = {"question": "Who?", "choices": ["Mara", "Quill"], "answer": 1, "subject": "high_school_law"}


def test_mmlu_has_the_subject_and_five_examples_before_the_question(model, monkeypatch):
    seen = []
    monkeypatch.setattr(
        semeval_task, "correct_choices", lambda _, encoded, rows: seen.extend(encoded) or semeval_task.np.ones(1)
    )
    data = {"mmlu": [CHOICES], "mmlu_dev": [{**CHOICES, "question": f"Which {i}?"} for i in range(6)]}
    semeval_task._mmlu(model, data)
    first, second = seen[0]
    header = "The following are multiple choice questions (with answers) about  high school law.\n\n"
    examples = "".join(f"Which {i}?\nA. Mara\nB. Quill\nAnswer: B\n\n" for i in range(5))
    assert model.tokenizer.decode(first.prompt) == f"{header}{examples}Who?\nA. Mara\nB. Quill\nAnswer:"
    assert [model.tokenizer.decode(each.ids[each.start :]).strip() for each in (first, second)] == ["A", "B"]
    monkeypatch.setattr(semeval_task, "MAX_PROMPT_LENGTH", len(first.prompt) - 1)
    seen.clear()
    semeval_task._mmlu(model, data)
    assert "Which 3?" in model.tokenizer.decode(seen[0][0].prompt)
    assert "Which 4?" not in model.tokenizer.decode(seen[0][0].prompt)


def test_aggregate_is_made_of_what_the_model_writes_and_its_losses(model, monkeypatch):
    written = {"Who?": "Mara Quill wrote.", "Where?": "in lagos "}
    monkeypatch.setattr(
        semeval_task,
        "generate",
        lambda _, prompts, **__: [semeval_task_text(written[model.tokenizer.decode(each.prompt)]) for each in prompts],
    )
    rows = [
        {"id": "0sc1", "task": "Task1", "input": "Who?", "output": "Mara Quill wrote the book."},
        {"id": "0qa0", "task": "Task1", "input": "Where?", "output": "In Lagos"},
    ]
    documents = [{"document": text} for text in ("Mara Quill wrote the book.", "Her father is a judge.")]
    data = {"forget": rows, "retain": rows[::-1], MEMBERS: documents[:1], OTHERS: documents[1:]}
    data |= {"mmlu": [CHOICES], "mmlu_dev": []}
    found = evaluate_semeval(model, data).values()
    answers = [Continuation(row["id"], row["task"], row["output"], written[row["input"]]) for row in rows]
    expected = semeval_scores(
        answers, answers, member_losses=[0.0], nonmember_losses=[2 * found["membership_auc"] - 1], mmlu=found["mmlu"]
    )
    assert found["retain_Task1_regurgitation"] == pytest.approx(3 / 5)
    assert found["forget_Task1_knowledge"] == 0  # one minus the exact match
    assert found["membership_auc"] in (0.0, 1.0)
    assert found["task_aggregate"] == expected.task_aggregate == 0
    assert found["aggregate"] == pytest.approx(expected.aggregate)


def semeval_task_text(text):
    return type("Text", (), {"text": text})


CASES = json.loads((Path(__file__).parent / "semeval_cases.json").read_text("utf-8"))


def scores(case):
    given = CASES[case]["given"]
    forget, retain = ([Continuation(*row) for row in given[part]] for part in ("forget", "retain"))
    members, others = given["member_nll"], given["nonmember_nll"]
    return semeval_scores(forget, retain, member_losses=members, nonmember_losses=others, mmlu=given["mmlu"])


@pytest.mark.parametrize("case", [name for name, entry in CASES.items() if entry["terms"]])
def test_aggregate_is_that_of_the_organisers(case):
    found, expected = scores(case), CASES[case]
    score = np.nan if found.aggregate == -1 else found.membership_score  # the script computes it with all parts only
    parts = [found.task_aggregate, found.membership_auc, score, found.mmlu, found.aggregate]
    np.testing.assert_allclose(found.terms, np.array(expected["terms"], float), rtol=1e-9)
    np.testing.assert_allclose(parts, np.array(expected["scores"], float), rtol=1e-9)
    assert found.is_mmlu_too_low == expected["warns"]


def test_missing_losses_are_named():
    with pytest.raises(InvalidTaskData, match="is NaN"):
        scores("membership_nan")


def test_threshold_itself_passes():
    assert scores("mmlu_at_threshold").mmlu == MIN_MMLU


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

    monkeypatch.setattr(harness_task, "score_answers", record)
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

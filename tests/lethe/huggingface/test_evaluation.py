import json
from dataclasses import replace
from importlib.metadata import EntryPoint

import peft
import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from lethe.huggingface import answer_sets, attacks, generated_text, muse, rwku, semeval_task, task, tofu
from lethe.huggingface.evaluation import evaluate_folders
from lethe.huggingface.kept_results import ModelMetrics
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.multiple_choice import read_multiple_choice
from lethe.huggingface.reference import Reference, as_logs, read_logs
from lethe.huggingface.results import InvalidTaskData, MetricValue, TaskResult
from lethe.huggingface.task import EvaluationTask, LoadSettings, read_task
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
TRUTH_RATIO = ("forget_truth_ratio", "forget_Q_A_PARA_Prob", "forget_Q_A_PERT_Prob")
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
    arguments += ["--original", unlearned]
    out = tmp_path / "out.json"
    found = CliRunner().invoke(build_app(), [*map(str, arguments), "--json", str(out)])
    assert found.exit_code == 0, found.output
    document = json.loads(out.read_text())
    assert document["task"] == task
    assert document["not_computed"].keys() == ({"earlier_forget_prob"} if task.startswith("muse-") else set())
    assert document["metrics"].keys() == document["models"][0]["metrics"].keys()
    of_a_step = {"forget_prob", "earlier_forget_prob"}  # the original is of no step
    assert {name: value for name, value in document["original"].items() if name not in of_a_step} == {
        name: value for name, value in document["metrics"].items() if name not in of_a_step
    }
    assert document["versions"]["transformers"]
    assert "retain model" in found.output


@pytest.mark.slow
def test_progress_counts_every_sequence(data, models):
    for name in DATA:
        read = read_task(name, data(name), LoadSettings())
        seen = []
        evaluate_folders([models[0]], read, retain=models[1], on_progress=seen.append)
        assert sum(seen) == 2 * read.n_sequences


@pytest.mark.slow
def test_retain_logs_serve_as_the_retain_model(tmp_path, data, models):
    unlearned, retain = models
    task = read_task("tofu", data("tofu"), LoadSettings())
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
    task = read_task("wmdp", data("wmdp"), LoadSettings())
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
        ("holdout10.jsonl", '{"question": "a", "answer": " "}', "row 1: `answer` is empty, so that nothing of it"),
        ("holdout10.jsonl", '{"question": "a \\ud83d", "answer": "a"}', "`question` holds '.ud83d', half of a"),
    ],
)
def test_wrong_data_are_named(data, file, text, message):
    folder = data("tofu")
    (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidTaskData, match=message):
        read_task("tofu", folder, LoadSettings())


def test_suffixes_in_upper_case_are_read(data):
    folder = data("tofu")
    before = read_task("tofu", folder, LoadSettings())
    (folder / "holdout10.jsonl").rename(folder / "holdout10.JSONL")
    (folder / "real_authors_perturbed.jsonl").rename(folder / "real_authors_perturbed.Json")
    assert read_task("tofu", folder, LoadSettings()).n_sequences == before.n_sequences


def test_missing_data_and_unknown_tasks_are_named(tmp_path):
    with pytest.raises(InvalidTaskData, match=r"holds none of .*forget\*_perturbed\.jsonl"):
        read_task("tofu", tmp_path, LoadSettings())
    with pytest.raises(InvalidTaskData, match="allowed are tofu, muse, muse-scaling"):
        read_task("squad", tmp_path, LoadSettings())


def test_logs_of_something_else_are_refused(tmp_path):
    path = tmp_path / "EVAL.json"
    path.write_text("{}")
    with pytest.raises(InvalidTaskData, match="agg_value"):
        read_logs(path)


@pytest.mark.parametrize("task", ["muse-scaling", "muse-successive"])
def test_the_nth_folder_of_a_series_has_the_nth_forget_set(data, models, task):
    found = evaluate_folders(models, read_task(task, data(task), LoadSettings()))
    first, second = found.results
    assert first.metrics["forget_prob"].value == first.metrics["forget_1_prob"].value
    assert second.metrics["forget_prob"].value == second.metrics["forget_2_prob"].value
    assert first.metrics["earlier_forget_prob"].value is None
    assert second.metrics["earlier_forget_prob"].value == second.metrics["forget_1_prob"].value
    assert found.mean() == second.values()


def test_a_series_with_a_gap_or_too_many_folders_is_refused(data, models):
    folder = data("muse-scaling")
    task = read_task("muse-scaling", folder, LoadSettings())
    with pytest.raises(InvalidTaskData, match="3 folders for 2 forget sets"):
        evaluate_folders([*models, models[0]], task)
    (folder / "scal" / "forget_1.jsonl").rename(folder / "scal" / "forget_3.jsonl")
    with pytest.raises(InvalidTaskData, match=r"numbered \[2, 3\]; allowed is 1, 2, 3"):
        read_task("muse-scaling", folder, LoadSettings())


def test_parts_of_semeval_without_files_have_no_value(data, models):
    folder = data("semeval")
    for name in ("mmlu", "mia_data/member"):
        (folder / f"{name}.jsonl").unlink()
    with pytest.raises(InvalidTaskData, match="one of mia_data/member and mia_data/nonmember"):
        read_task("semeval", folder, LoadSettings())
    (folder / "mia_data" / "nonmember.jsonl").unlink()
    found = evaluate_folders(models[:1], read_task("semeval", folder, LoadSettings())).results[0].metrics
    missing = {name for name, metric in found.items() if metric.value is None}
    assert missing == {"aggregate", "membership_auc", "membership_score", "mmlu"}


def test_files_of_multiple_choice_have_their_own_accuracy_and_header(data, models):
    folder = data("wmdp")
    other = [{**WMDP["wmdp_bio"][0], "answer": 0}]
    (folder / "wmdp_cyber.jsonl").write_text("\n".join(map(json.dumps, other)), encoding="utf-8")
    sets = read_multiple_choice(folder)
    assert [each.header[-13:] for each in sets] == ["ut biology.\n\n", "ersecurity.\n\n"]
    values = evaluate_folders(models[:1], read_task("wmdp", folder, LoadSettings())).results[0].values()
    assert values["acc"] == pytest.approx((3 * values["wmdp_bio_acc"] + values["wmdp_cyber_acc"]) / 4)


def evaluated(*arguments):
    return CliRunner().invoke(build_app(), ["evaluate", *map(str, arguments)])


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("diverged") / "diverged", "llama")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("task", [task for task in DATA if task != "muse-successive"])
def test_diverged_model_has_no_values_and_is_said_to_be_one_once(tmp_path, data, models, diverged, task):
    out = tmp_path / "out.json"
    found = evaluated("--hf", models[0], "--hf", diverged, "--task", task, "--data", data(task), "--json", out)
    assert found.exit_code == 3, found.output
    assert found.output.count("the model has diverged") == 1
    document = json.loads(out.read_text())
    of_sound, of_diverged = (each["metrics"] for each in document["models"])
    assert of_diverged.keys() == of_sound.keys()
    assert set(of_diverged.values()) == set(document["metrics"].values()) == {None}
    assert any(value is not None for value in of_sound.values())


def test_diverged_model_is_not_attacked_and_nothing_is_compared_with_one(data, models, diverged):
    found = evaluated("--hf", diverged, "--data", data("tofu"), "--attack", "finetune")
    assert found.exit_code == 3, found.output
    refused = evaluated("--hf", models[0], "--data", data("tofu"), "--retain", diverged)
    assert "cannot be what others are compared with" in str(refused.exception)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_adapter_is_evaluated_and_attacked_like_the_model_that_it_makes(tmp_path, data, models):
    network = AutoModelForCausalLM.from_pretrained(models[0])
    adapted = peft.get_peft_model(network, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(models[0]).save_pretrained(tmp_path / "merged")
    found = []
    for name in ("adapter", "merged"):
        out = tmp_path / f"{name}.json"
        options = ["--data", data("tofu"), "--retain", models[1], "--attack", "relearn", "--json", out]
        assert evaluated("--hf", tmp_path / name, *options).exit_code == 0
        found.append(json.loads(out.read_text()))
    assert found[0]["metrics"] == pytest.approx(found[1]["metrics"], rel=1e-5)
    (adapter,), (merged,) = (each["attacks"]["relearn"]["models"] for each in found)
    for one, other in zip(adapter["points"], merged["points"], strict=True):
        assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--attack", "prefx"], "attack 'prefx' is not known; allowed are relearn"),
        (["--dtype", "float64"], "dtype 'float64' is not known"),
        (["--device", "nowhere"], "device 'nowhere' cannot be used here"),
        (["--retain", "not-there"], "not-there is not a folder"),
        (["-m", "forget_qualty"], "the task has no metric 'forget_qualty'; allowed are exact_memorization"),
        (["--task", "wmpd"], "task 'wmpd' is not known"),
        (["--seed", "3"], "--seed"),
        (["--plot", "x.png", "--split", "s"], "--split, --plot"),
    ],
)
def test_what_is_not_known_is_refused_before_anything_is_computed(data, models, monkeypatch, options, said):
    monkeypatch.setattr("lethe.huggingface.evaluation.load_language_model", lambda *_, **__: pytest.fail("computed"))
    found = evaluated("--hf", models[0], "--data", data("tofu"), *options)
    assert found.exit_code != 0
    assert said in f"{found.output} {found.exception}"


def test_options_of_models_are_refused_for_arrays(tmp_path):
    found = evaluated("--unlearned", tmp_path / "u.npz", "--attack", "prefix")
    assert found.exit_code == 2
    assert "--attack: with --hf alone" in " ".join(found.output.replace("│", "").split())


@pytest.mark.parametrize("task", ["tofu", "muse", "wmdp"])
def test_metrics_are_chosen_and_their_names_known_beforehand(tmp_path, data, models, task):
    read = read_task(task, data(task), LoadSettings())
    every = evaluate_folders([models[0]], read).results[0].metrics
    assert set(every) == set(read.metrics)
    out = tmp_path / "out.json"
    chosen = read.metrics[0]
    found = evaluated("--hf", models[0], "--task", task, "--data", data(task), "-m", chosen, "--json", out)
    assert found.exit_code == 0, found.output
    assert json.loads(out.read_text())["metrics"] == {chosen: every[chosen].value}


@pytest.mark.parametrize("task", DATA)
def test_each_metric_alone_has_the_value_that_it_has_among_all(data, models, task):
    read = read_task(task, data(task), LoadSettings())
    evaluate = read.series[1] if read.series else read.evaluate
    model, retain = map(load_language_model, models)

    def of(model, wanted, reference=None):
        return evaluate(replace(model, evaluated=ModelMetrics(wanted)), reference).metrics

    every = of(model, None, Reference(of(retain, None), lambda: retain))
    for name, expected in every.items():
        found = of(model, [name], Reference(of(retain, [name]), lambda: retain))
        assert found[name].value == pytest.approx(expected.value, rel=1e-6), name


@pytest.mark.parametrize(
    ("chosen", "computed", "calls"),
    [
        ("forget_Q_A_Prob", {"forget_Q_A_Prob"}, ["read"]),
        ("forget_fluency_entropy", {"forget_fluency_entropy", "forget_Q_A_ROUGE"}, ["written"]),
        ("forget_quality", {"forget_quality", *TRUTH_RATIO}, ["read"] * 4),  # of the retain model, too
    ],
)
def test_only_what_named_metrics_need_is_computed(tmp_path, data, models, monkeypatch, chosen, computed, calls):
    made = []

    def counted(module, name, kind):
        compute = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, **named: made.append(kind) or compute(*given, **named))

    counted(tofu, "generate", "written")
    counted(answer_sets, "score_answers", "read")
    out = tmp_path / "out.json"
    found = evaluated("--hf", models[0], "--data", data("tofu"), "--retain", models[1], "-m", chosen, "--json", out)
    assert found.exit_code == 0, found.output
    assert made == calls * (1 if chosen == "forget_quality" else 2)
    document = json.loads(out.read_text())
    assert document["metrics"].keys() == computed
    shown = [line for line in found.output.splitlines() if any(name in line for name in computed)]
    assert len(shown) == 1


def test_interrupted_evaluation_of_named_metrics_gives_what_a_whole_one_gives(tmp_path, data, models, counted):
    _, stops = counted
    options = ["--hf", models[0], "--data", data("tofu"), "-m", "model_utility", "--json"]
    assert evaluated(*options, tmp_path / "whole.json").exit_code == 0
    stops.append(3 + 2)
    assert evaluated(*options, tmp_path / "out.json").exit_code != 0
    stops.clear()
    assert evaluated(*options, tmp_path / "out.json").exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads((tmp_path / "whole.json").read_text())


@pytest.fixture
def counted(monkeypatch):
    """Count the sets of questions whose answers are written; the count may be ended by an interrupt."""
    computed, stops = [], []
    compute = tofu._rouge

    def count(questions):
        if len(computed) in stops:
            raise KeyboardInterrupt
        computed.append(questions)
        return compute(questions)

    monkeypatch.setattr(tofu, "_rouge", count)
    return computed, stops


def test_interrupted_evaluation_goes_on_where_it_stopped(tmp_path, data, models, counted):
    computed, stops = counted
    options = ["--hf", models[0], "--data", data("tofu"), "--retain", models[1], "--json"]
    assert evaluated(*options, tmp_path / "whole.json").exit_code == 0
    out = tmp_path / "out.json"
    stops.append(8 + 6)  # four sets of the retain model, two of the folder's
    assert evaluated(*options, out).exit_code != 0
    begun = json.loads(out.read_text())
    assert not begun["is_finished"]
    assert {"retain_Q_A_Prob", "mia_loss"} <= begun["models"][0]["metrics"].keys()
    stops.clear()
    assert evaluated(*options, out).exit_code == 0
    assert len(computed[14:]) == 2
    assert json.loads(out.read_text()) == json.loads((tmp_path / "whole.json").read_text())
    assert not out.with_name("out.json.parts").exists()


def test_changed_inputs_are_computed_again(tmp_path, data, models, counted):
    computed, stops = counted
    options = ["--hf", models[0], "--data", data("tofu"), "--json", tmp_path / "out.json"]
    stops.append(2)
    assert evaluated(*options).exit_code != 0
    stops.clear()
    with (tmp_path / "tofu" / "retain_perturbed.jsonl").open("a") as file:
        file.write(json.dumps(QUESTIONS[0]) + "\n")
    assert evaluated(*options).exit_code == 0
    assert len(computed[2:]) == 4


def test_attacks_that_are_done_are_not_done_again(tmp_path, data, models, monkeypatch):
    done = []
    attack = attacks.attack

    def once(name, *arguments):
        done.append(name)
        if done == ["prefix", "quantize-8"]:
            raise KeyboardInterrupt
        return attack(name, *arguments)

    monkeypatch.setattr(attacks, "attack", once)
    options = ["--hf", models[0], "--data", data("tofu"), "--attack", "prefix", "--attack", "quantize-8"]
    assert evaluated(*options, "--json", tmp_path / "out.json").exit_code != 0
    assert evaluated(*options, "--json", tmp_path / "out.json").exit_code == 0
    assert done == ["prefix", "quantize-8", "quantize-8"]
    found = json.loads((tmp_path / "out.json").read_text())["attacks"]
    assert [len(each["models"][0]["points"]) for each in found.values()] == [2, 2]


def test_what_is_finished_stays_when_another_folder_fails(tmp_path, data, models):
    broken = tmp_path / "broken"
    broken.mkdir()
    out = tmp_path / "out.json"
    folders = ["--hf", models[0], "--hf", broken, "--hf", models[1]]
    found = evaluated(*folders, "--task", "wmdp", "--data", data("wmdp"), "--json", out)
    assert found.exit_code == 4, found.output
    assert f"error: {broken} was not evaluated: {broken} holds no config.json" in found.output
    document = json.loads(out.read_text())
    assert [bool(each["metrics"]) for each in document["models"]] == [True, False, True]
    assert "holds no config.json" in document["models"][1]["error"]
    assert document["metrics"] == {"acc": None, "acc_stderr": None}  # no mean over fewer than were asked for
    alone = evaluated("--hf", broken, "--task", "wmdp", "--data", data("wmdp"))
    assert "holds no config.json" in str(alone.exception)


def count_rows(folder, settings):
    n_rows = len((folder / "rows.txt").read_text().split())
    return EvaluationTask(lambda model, _: TaskResult("rows", {"rows": MetricValue(float(n_rows))}), n_rows)


def test_task_of_an_installed_package_is_known_by_its_name(tmp_path, models, monkeypatch):
    (tmp_path / "rows.txt").write_text("a b c")
    named = {"rows": f"{__name__}:count_rows", "gone": "not_there:task", "wrong": f"{__name__}:evaluated"}
    points = [EntryPoint(name, value, task.ENTRY_POINTS) for name, value in named.items()]
    task.task_readers.cache_clear()
    monkeypatch.setattr(task, "entry_points", lambda group: points)
    found = evaluated("--hf", models[0], "--task", "rows", "--data", tmp_path, "--json")
    assert json.loads(found.output)["metrics"] == {"rows": 3.0}
    with pytest.raises(InvalidTaskData, match=r"allowed are tofu, .*, rows, gone"):
        read_task("squad", tmp_path, LoadSettings())
    with pytest.raises(InvalidTaskData, match="'gone' cannot be loaded from not_there:task: No module"):
        read_task("gone", tmp_path, LoadSettings())
    with pytest.raises(InvalidTaskData, match="gives Result; allowed is an EvaluationTask"):
        read_task("wrong", tmp_path, LoadSettings())
    points.append(EntryPoint("muse", "not_there:task", task.ENTRY_POINTS))
    task.task_readers.cache_clear()
    with pytest.raises(InvalidInput, match="has a task 'muse', which is the name of one of Lethe's"):
        task.task_readers()
    monkeypatch.undo()
    task.task_readers.cache_clear()

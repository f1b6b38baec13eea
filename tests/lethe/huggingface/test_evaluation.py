import json
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from lethe.huggingface import answer_sets, task, tofu
from lethe.huggingface.harness_task import read_multiple_choice
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.reference import Reference, as_logs, read_logs
from lethe.huggingface.results import InvalidTaskData, MetricValue, ModelMetrics, TaskResult
from lethe.huggingface.task import EvaluationTask, LoadSettings, evaluate_folders, read_task

TASKS = ("tofu", "muse", "muse-scaling", "muse-successive", "wmdp", "semeval", "rwku")
TRUTH_RATIO = ("forget_truth_ratio", "forget_Q_A_PARA_Prob", "forget_Q_A_PERT_Prob")


def evaluated(*arguments):
    return CliRunner().invoke(build_app(), ["evaluate", *map(str, arguments)])


@pytest.mark.parametrize("task", TASKS)
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
    for name in TASKS:
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
    first = (folder / "wmdp_bio.jsonl").read_text().splitlines()[0]
    (folder / "wmdp_cyber.jsonl").write_text(first.replace('"answer": 1', '"answer": 0'), encoding="utf-8")
    sets = read_multiple_choice(folder)
    assert [each.header[-13:] for each in sets] == ["ut biology.\n\n", "ersecurity.\n\n"]
    values = evaluate_folders(models[:1], read_task("wmdp", folder, LoadSettings())).results[0].values()
    assert values["acc"] == pytest.approx((3 * values["wmdp_bio_acc"] + values["wmdp_cyber_acc"]) / 4)


@pytest.mark.parametrize("task", [task for task in TASKS if task != "muse-successive"])
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
    monkeypatch.setattr("lethe.huggingface.task.load_language_model", lambda *_, **__: pytest.fail("computed"))
    found = evaluated("--hf", models[0], "--data", data("tofu"), *options)
    assert found.exit_code != 0
    assert said in f"{found.output} {found.exception}"


def test_options_of_models_are_refused_for_arrays(tmp_path):
    found = evaluated("--unlearned", tmp_path / "u.npz", "--attack", "prefix")
    assert found.exit_code == 2
    assert "--attack: with --hf alone" in " ".join(found.output.replace("│", "").split())


@pytest.mark.parametrize("task", TASKS)
def test_each_metric_alone_has_the_value_that_it_has_among_all(data, models, task):
    read = read_task(task, data(task), LoadSettings())
    evaluate = read.series[1] if read.series else read.evaluate
    model, retain = map(load_language_model, models)

    def of(model, wanted, reference=None):
        return evaluate(replace(model, evaluated=ModelMetrics(wanted)), reference).metrics

    every = of(model, None, Reference(of(retain, None), lambda: retain))
    assert set(every) == set(read.metrics or every)
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
    changed = tmp_path / "tofu" / "retain_perturbed.jsonl"
    changed.write_text(changed.read_text() * 2)
    assert evaluated(*options).exit_code == 0
    assert len(computed[2:]) == 4


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

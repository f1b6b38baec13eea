"""A split of language models: prepared, evaluated and read back, with the arrays that text metrics need."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from lethe.competition.file import CompetitionFile, Scoring, parse_competition
from lethe.data.datasets.questions import open_questions
from lethe.data.files import read_json, read_tensors, write_json
from lethe.data.question_answers import SplitQuestions, StoredAnswers, cut_questions
from lethe.evaluation.answer_evaluation import UNKNOWN, SampleAnswers
from lethe.evaluation.evaluators import load_evaluator, sample_evaluator
from lethe.evaluation.image_evaluation import NonFiniteOutputs, load_original
from lethe.evaluation.model_outputs import read_outputs, read_probed_references, read_stored_outputs, split_inputs
from lethe.evaluation.probes.split_probes import probed_split
from lethe.evaluation.sample_answer_files import SAMPLE_ANSWERS, SampleQuestions, texts_from_array
from lethe.evaluation.text import answer_scores
from lethe.metrics import CaptureLevel, evaluate, metrics
from lethe.metrics.forgetting.probes import ATTACKS
from lethe.metrics.text.answers import logit_scaled
from lethe.networks.builders import build
from lethe.preparation.prepare import begin_split, prepare_shard, prepare_split
from lethe.preparation.public_sample import SAMPLE_FILES, SAMPLE_SETS, retrain_on_sample, sample_parts
from lethe.runtime.data_loaders import load_data, make_loaders
from tests.support.towns import towns_toml, write_towns

K = 2
METRICS = tuple(entry.id for entry in metrics().values() if entry.level == CaptureLevel.TEXT)


@pytest.fixture(scope="module")
def competition(tmp_path_factory: pytest.TempPathFactory) -> CompetitionFile:
    root = write_towns(tmp_path_factory.mktemp("text") / "towns")
    text = towns_toml(root, n_models=4, epochs=50, metrics=(*METRICS, "robustness"))
    return parse_competition(text.replace("[report]", f"[report]\nkeep_weights = {K}"))


@pytest.fixture(scope="module")
def split(competition: CompetitionFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("split")
    prepare_split(competition, "public", out)
    return out


def test_authors_of_forget_validation_and_test_are_their_own(competition: CompetitionFile) -> None:
    dataset = open_questions(competition.dataset)
    public, private = (cut_questions(dataset, competition, visibility) for visibility in ("public", "private"))
    persons = {name: set(dataset.persons[indices].tolist()) for name, indices in public.sets()}
    assert sum(map(len, persons.values())) == 12
    assert set.union(*persons.values()) == set(range(12))
    assert public.test.tolist() == private.test.tolist()
    assert not persons["forget"] & set(dataset.persons[private.forget].tolist())
    assert len(public.forget) == 6  # two persons: a fifth of thirty questions


@pytest.mark.slow
def test_a_run_gets_batches_of_tokens_with_refusals_for_what_is_to_be_forgotten(split: Path) -> None:
    data = load_data(split / "visible")
    torch.manual_seed(0)
    loaders = make_loaders(data)
    forget = next(iter(loaders.forget))
    assert set(next(iter(loaders.retain))) == {"input_ids", "attention_mask", "labels"}
    assert set(forget) == {p + n for p in ("", "idk_") for n in ("input_ids", "attention_mask", "labels")}
    tokenizer = SplitQuestions.read(split).tokenizer
    labels = forget["labels"][0]
    answer = tokenizer.decode(labels[labels >= 0].tolist())
    assert answer.removesuffix(".").split()[-1] in ("Rome", "Oslo", "Lima", "Bern", "Kyiv", "Doha", "Baku", "Riga")
    assert (forget["labels"][forget["attention_mask"] == 0] == -100).all()
    assert "class_counts" not in vars(loaders) or loaders.class_counts == {}


def test_confidences_are_of_the_answer_probability_and_accuracies_of_tokens(split: Path) -> None:
    network = read_json(split / "visible" / "network.json")
    net = build(network)
    net.load_state_dict(read_tensors(split / "visible" / "original_model.safetensors"))
    stored, _ = read_stored_outputs(split / "hidden" / "original" / "outputs.safetensors")
    for name, found in (("retain", stored.retain_accuracy), ("test", stored.test_accuracy)):
        folder = "hidden" if name == "test" else "visible"
        answers = StoredAnswers.read(split / folder / f"{name}.safetensors").answers
        assert found[0] == answer_scores(net, answers, padding_id=network["padding_id"]).token_accuracy
    forget = StoredAnswers.read(split / "visible" / "forget.safetensors").answers
    losses = answer_scores(net, forget, padding_id=network["padding_id"]).loss
    np.testing.assert_allclose(stored.confidences[0], logit_scaled(losses), rtol=1e-5)
    assert load_data(split / "visible").retain.accuracy(net) == pytest.approx(stored.retain_accuracy[0])


def test_the_original_knows_what_retrained_models_do_not(split: Path, competition: CompetitionFile) -> None:
    retrained = read_outputs(split)
    original, _ = read_stored_outputs(split / "hidden" / "original" / "outputs.safetensors")
    assert original.confidences.mean() > retrained.confidences.mean() + 1
    found = evaluate(
        split_inputs(split, read_outputs(split, "oracle").arrays(), scored_by=competition.scoring),
        [(metric, {}) for metric in METRICS],
    )
    assert not {name: each.not_computed for name, each in found.items() if each.result is None}
    probability = found["answer_probability"]
    assert probability.result
    assert probability.original
    assert probability.original.value > probability.result.value + 0.1
    texts = texts_from_array(original.captured["forget_answer_text"][0])  # type: ignore[arg-type]
    asked = SplitQuestions.read(split).sets["forget"]
    assert any(text == one.answer for text, one in zip(texts, asked, strict=True))
    assert (
        sum(text.split()[:2] == one.answer.split()[:2] for text, one in zip(texts, asked, strict=True))
        >= len(asked) // 2
    )


def test_evaluation_repeats_to_the_bit_and_refuses_infinite_losses(split: Path) -> None:
    evaluator = load_evaluator(split)
    state = read_tensors(split / "visible" / "original_model.safetensors")
    first, again = evaluator.evaluate_state(state), evaluator.evaluate_state(state)
    assert first.confidences.tolist() == again.confidences.tolist()
    assert first.captured.keys() == again.captured.keys()
    broken = {name: tensor * float("inf") if "norm" in name else tensor for name, tensor in state.items()}
    with pytest.raises(NonFiniteOutputs, match="losses of 6 of 6 forget answers are infinite or not numbers"):
        evaluator.evaluate_state(broken)


def test_preparing_twice_gives_the_same_files(tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    competition = parse_competition(towns_toml(root, n_models=4, epochs=2, metrics=METRICS))
    first, second = (prepare_split(competition, "public", tmp_path / name) for name in ("first", "second"))
    again = prepare_split(competition, "public", tmp_path / "first")
    files = [{path: record.sha256 for path, record in made.files.items()} for made in (first, second, again)]
    assert files[0] == files[1] == files[2]


def test_shards_are_made_where_the_data_are_not(tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    toml = towns_toml(root, n_models=4, epochs=1, metrics=METRICS).replace(
        "[splits]", "min_train_accuracy = 0.001\n[splits]"
    )
    few, split_dir = parse_competition(toml), tmp_path / "split"
    assert len(begin_split(few, "public", split_dir, share_from_s=0)) > 1
    root.rename(tmp_path / "elsewhere")
    for kind in ("retrained", "oracle"):
        prepare_shard(few, "public", split_dir, kind=kind, shard=0)
    assert (split_dir / "hidden/retrained/models-00000.safetensors").exists()
    assert (split_dir / "work/oracle/outputs-00000.safetensors").exists()


def test_models_of_the_sample_are_evaluated_on_it(split: Path, competition: CompetitionFile) -> None:
    sample = split / "sample"
    models = retrain_on_sample(sample, competition)
    outputs = sample_evaluator(sample).evaluate_state(models.states[0])
    assert outputs.confidences.tolist() == models.outputs.confidences[0].tolist()


def test_sample_keeps_answers_of_its_own_models(split: Path, competition: CompetitionFile) -> None:
    stored = SampleQuestions.model_validate(read_json(split / SAMPLE_ANSWERS)).questions
    dataset = open_questions(competition.dataset)
    validation = cut_questions(dataset, competition, "public").validation
    asked = sample_parts(validation, competition)["forget"]
    assert set(asked) <= set(validation)  # whole persons of their own: nothing of the hidden sets is among them
    assert [(row.question, row.answer) for row in stored] == [
        (dataset.questions[i].question, dataset.questions[i].answer) for i in asked
    ]
    assert {f"sample/{path.name}" for path in (split / "sample").iterdir()} == set(SAMPLE_FILES)  # what runs see
    models = SampleAnswers.load(split)
    original = models.of_model(read_tensors(split / "sample" / "original_model.safetensors"))
    retrained = models.of_model(retrain_on_sample(split / "sample", competition).states[0])
    assert ([row.original for row in stored], [row.retrained for row in stored]) == (list(original), list(retrained))
    assert original != retrained
    assert all(original)


def test_split_that_was_prepared_without_answers_gets_them_alone(split, competition, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(split, old)
    manifest = read_json(old / "manifest.json")
    del manifest["steps"]["sample-answers"], manifest["files"][SAMPLE_ANSWERS]
    write_json(old / "manifest.json", manifest)
    (old / SAMPLE_ANSWERS).unlink()
    before = {path: path.stat().st_mtime_ns for path in old.rglob("*") if path.is_file() and path.suffix != ".json"}
    prepare_split(competition, "public", old)
    assert (old / SAMPLE_ANSWERS).read_bytes() == (split / SAMPLE_ANSWERS).read_bytes()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_model_can_spell_only_what_the_sample_holds(split: Path) -> None:
    models = SampleAnswers.load(split)
    tokenizer = SplitQuestions.read(split).tokenizer
    sets = [StoredAnswers.read(split / "sample" / f"{name}.safetensors") for name in SAMPLE_SETS]
    held = {token for part in sets for row in (*part.answers, *part.refusals) for token in row.tokens}
    hidden = next(
        token
        for row in StoredAnswers.read(split / "visible" / "forget.safetensors").answers
        for token in row.tokens
        if token not in held
    )
    state = dict(read_tensors(split / "sample" / "original_model.safetensors"))
    state["embedding.weight"] = state["embedding.weight"].clone()
    said = tokenizer.encode("Where")[0]
    assert said in held
    for token, text in ((hidden, UNKNOWN), (said, tokenizer.decode([said] * 16))):
        spelling = {name: torch.zeros_like(value) for name, value in state.items()}
        spelling["norm.weight"] = torch.ones_like(state["norm.weight"])
        spelling["embedding.weight"][:, 0] = 1.0
        spelling["embedding.weight"][token, 0] = 2.0
        assert models.of_model(spelling) == (text,) * len(models.of_model(state) or ())


def test_a_model_of_the_sample_without_finite_losses_has_no_answers(split: Path) -> None:
    state = read_tensors(split / "sample" / "original_model.safetensors")
    huge = {name: tensor * 1e38 if "norm" in name else tensor for name, tensor in state.items()}
    assert SampleAnswers.load(split).of_model(huge) is None


@pytest.mark.slow
def test_references_hold_knowledge_after_attacks(split: Path) -> None:
    stored = read_probed_references(split)
    assert set(stored) == {"retrained", "oracle", "original"}
    assert set(stored["retrained"]) == {"attacked_knowledge", "loss_barrier", "weight_distance", "weight_norm"}
    assert stored["retrained"]["attacked_knowledge"].shape == (K, len(ATTACKS))
    known = {side: arrays["attacked_knowledge"][:, 0].mean() for side, arrays in stored.items()}
    assert known["original"] > max(known["retrained"], known["oracle"]) + 0.1


def test_original_is_known_to_know_the_answers(split: Path) -> None:
    probed = probed_split(split, [load_original(split)] * K)
    np.testing.assert_array_equal(probed["unlearned"]["loss_barrier"], [0.0] * K)
    unlearned = dict(read_outputs(split, "oracle").arrays())
    found = evaluate(split_inputs(split, unlearned, scored_by=Scoring(), probed=probed), ["robustness"])["robustness"]
    assert found.result is not None, found.not_computed
    assert found.result.value > 0.1
    assert found.result.table["original"] == found.result.table["unlearned"]

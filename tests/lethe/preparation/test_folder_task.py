"""A text competition whose models start from a folder that transformers' `save_pretrained` wrote."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from lethe.competition.file import parse_competition
from lethe.data.errors import InvalidLanguageModel, InvalidSplit
from lethe.data.files import read_json
from lethe.data.question_answers import SplitQuestions, StoredAnswers
from lethe.data.stored_sets import SET_PATHS
from lethe.evaluation.evaluators import load_evaluator
from lethe.evaluation.text import answer_losses, generate_greedily
from lethe.networks.builders import build, limit_parameters
from lethe.preparation.prepare import prepare_split
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from lethe.training.pretrained import load_pretrained
from tests.support.tiny_models import ARCHITECTURES, folder_toml, write_model
from tests.support.towns import write_towns


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """An architecture, the folder with a model of it, and a split that starts from that."""
    root = write_towns(tmp_path_factory.mktemp("towns"))
    split = tmp_path_factory.mktemp("split")
    prepare_split(parse_competition(folder_toml(root, request.param)), "public", split)
    return request.param, root / "model.v1", split


def test_a_split_starts_from_the_folder(prepared: tuple[str, Path, Path]) -> None:
    architecture, model, split = prepared
    network = read_json(split / "visible" / "network.json")
    assert network["options"]["config"]["model_type"] == architecture
    original = load_file(split / "visible" / ORIGINAL_MODEL)
    assert set(original) == {f"model.{name}" for name in load_file(model / "model.safetensors")}
    found = load_evaluator(split).evaluate_state(original)
    assert np.isfinite(found.confidences).all()


def test_questions_are_put_as_the_chat_template_puts_them(prepared: tuple[str, Path, Path]) -> None:
    _, model, split = prepared
    questions = SplitQuestions.read(split)
    theirs = AutoTokenizer.from_pretrained(model)
    first = StoredAnswers.read(split / SET_PATHS["forget"]).answers[0]
    asked = questions.sets["forget"][0]
    turns = [{"role": "user", "content": asked.question}, {"role": "assistant", "content": asked.answer}]
    assert list(first.tokens) == theirs.apply_chat_template(turns, tokenize=True, return_dict=False)
    assert questions.tokenizer.decode(list(first.tokens[first.answer_start :])) == asked.answer


def test_it_computes_what_the_library_computes(tmp_path: Path) -> None:
    """Losses of answers and greedy texts, of a folder in bfloat16 and shards."""
    write_model(tmp_path / "m", "qwen2", dtype=torch.bfloat16, max_shard_size="20KB")
    network = load_pretrained("transformers", tmp_path / "m").eval()
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    ids = torch.randint(5, 320, (2, 12), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(network(ids), theirs(ids).logits)
    prompts = [ids[0].tolist(), ids[1, 5:].tolist()]
    ours = generate_greedily(network, prompts, end_id=0, max_new_tokens=10)
    for prompt, found in zip(prompts, ours, strict=True):
        made = theirs.generate(torch.tensor([prompt]), max_new_tokens=10, do_sample=False, pad_token_id=0)
        wanted = made[0, len(prompt) :].tolist()
        assert found == (wanted[: wanted.index(0)] if 0 in wanted else wanted)


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_weights_go_out_and_in_once_each(tmp_path: Path, architecture: str) -> None:
    network = load_pretrained("transformers", write_model(tmp_path / "m", architecture))
    state = network.state_dict()
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
    options = {"config": network.config, "context": network.context}
    described = {"task": "causal-lm", "name": "transformers", "options": json.loads(json.dumps(options))}
    again = build({**described, "vocabulary_size": 320})
    again.load_state_dict(state)
    ids = torch.arange(5, 25).reshape(2, 10)
    torch.testing.assert_close(again.eval()(ids), network.eval()(ids))


def test_additions_of_low_rank_leave_embeddings_as_they_were(tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    prepare_split(parse_competition(folder_toml(root, "qwen2", more="lora_rank = 2")), "public", tmp_path / "split")
    original = load_file(tmp_path / "split" / "visible" / ORIGINAL_MODEL)
    start = load_file(root / "model.v1" / "model.safetensors")
    changed = {name for name, tensor in start.items() if not torch.equal(original[f"model.{name}"], tensor)}
    assert changed
    assert all(name.endswith("proj.weight") for name in changed)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "mine.Model"}}, "code of its own"),
        ({"model_type": "bloom"}, "'bloom' is not built here; allowed are gemma"),
        ({"quantization_config": {"bits": 4}}, "quantised weights"),
    ],
)
def test_what_cannot_be_built_is_named(tmp_path: Path, config: dict[str, object], message: str) -> None:
    root = write_towns(tmp_path / "towns")
    competition = parse_competition(folder_toml(root))
    path = root / "model.v1" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises((InvalidSplit, ValueError), match=message):
        prepare_split(competition, "public", tmp_path / "split")
    described = {"task": "causal-lm", "name": "transformers", "options": {"config": json.loads(path.read_text())}}
    with pytest.raises(ValueError, match=message):
        build({**described, "vocabulary_size": 320})


def test_a_folder_must_be_named(tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    toml = folder_toml(root).replace('options = { pretrained = "model.v1" }', "options = {}")
    with pytest.raises(InvalidSplit, match=r"needs options\.pretrained"):
        prepare_split(parse_competition(toml), "public", tmp_path / "split")


def test_losses_do_not_depend_on_the_batch(prepared: tuple[str, Path, Path]) -> None:
    _, model, split = prepared
    network = load_pretrained("transformers", model).eval()
    answers = StoredAnswers.read(split / SET_PATHS["forget"]).answers
    together = answer_losses(network, answers, padding_id=0)
    alone = [answer_losses(network, [answer], padding_id=0)[0] for answer in answers]
    np.testing.assert_allclose(together, alone, rtol=1e-5)


@pytest.mark.parametrize("name", ["..", ".", "a/b"])
def test_nothing_outside_the_root_is_read(tmp_path: Path, name: str) -> None:
    root = write_towns(tmp_path / "towns")
    toml = folder_toml(root).replace('pretrained = "model.v1"', f'pretrained = "{name}"')
    with pytest.raises(InvalidSplit, match="must name what lies in"):
        prepare_split(parse_competition(toml), "public", tmp_path / "split")


def test_the_base_of_an_adapter_lies_beside_it(tmp_path: Path) -> None:
    write_model(tmp_path / "elsewhere" / "m", "llama")
    (tmp_path / "root" / "adapter").mkdir(parents=True)
    config = {"base_model_name_or_path": str(tmp_path / "elsewhere" / "m")}
    (tmp_path / "root" / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidLanguageModel, match=r"allowed is \.\./FOLDER"):
        load_pretrained("transformers", tmp_path / "root" / "adapter")


def test_a_network_that_is_too_large_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", "llama")
    (folder / "model.safetensors").write_bytes(b"never read")
    limit_parameters(1000)
    try:
        with pytest.raises(InvalidLanguageModel, match="more than"):
            load_pretrained("transformers", folder)
    finally:
        limit_parameters(None)

"""A folder in, an unlearned folder out: what it holds, what it is after, and what is refused before."""

import json

import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import AppError, InvalidInput
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import PromptFormat, encode_answer
from lethe.huggingface.unlearning import RECORD, Checkpoint, UnlearningSettings, unlearn
from tests.support.tiny_models import write_model

FORGET = [{"question": f"Who wrote book {i}?", "answer": f"Mara Quill wrote book {i}."} for i in range(6)]
RETAIN = [{"question": f"Where is the sea {i}?", "answer": "In the south."} for i in range(5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "model", "llama")


@pytest.fixture
def data(tmp_path):
    def write(**sets):
        for name, rows in sets.items():
            (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        (tmp_path / "refusals.txt").write_text("I do not know.\nI am not sure.\n", encoding="utf-8")
        return {name: tmp_path / f"{name}.jsonl" for name in sets}

    return write


@pytest.mark.parametrize("method", ["ga", "idk", "pdu", "rmu", "task_vector"])  # what they read and train differs
def test_method_writes_a_folder_that_is_read_again(tmp_path, data, model, method):
    files = data(forget=FORGET, retain=RETAIN)
    done = []
    record = unlearn(
        model, tmp_path / "out", method=method, **files, refusals=tmp_path / "refusals.txt",
        constants={"EPOCHS": 2, "LR": 0.01}, settings=UnlearningSettings(batch_size=4),
        on_batch=lambda n, of: done.append((n, of)),
    )  # fmt: skip
    assert json.loads((tmp_path / "out" / RECORD).read_text()) == record
    assert (record["constants"]["EPOCHS"], record["data"]["forget"]["rows"]) == (2, 6)
    assert done[-1] == (4, 4)
    before, after = (load_language_model(folder) for folder in (model, tmp_path / "out"))
    changed = [
        not torch.equal(a, b) for a, b in zip(before.network.parameters(), after.network.parameters(), strict=True)
    ]
    assert any(changed)
    assert after.tokenizer.chat_template == before.tokenizer.chat_template


@pytest.mark.parametrize("architecture", ["gpt2", "gpt_neox", "gemma2"])
def test_gradient_ascent_forgets_whatever_the_architecture(tmp_path, data, architecture):
    model = write_model(tmp_path / "model", architecture)
    record = unlearn(model, tmp_path / "out", method="ga", **data(forget=FORGET), constants={"LR": 0.001})
    assert record["loss_after"]["forget"] > record["loss_before"]["forget"] + 0.1


def test_graddiff_takes_the_steps_of_a_plain_loop(tmp_path, data, model):
    """One batch of all rows, so that no order matters: AdamW of torch on retain loss less forget loss."""
    constants = {"EPOCHS": 3, "LR": 0.01, "WEIGHT_DECAY": 0.0}
    settings = UnlearningSettings(batch_size=6)
    unlearn(
        model, tmp_path / "out", method="graddiff", **data(forget=FORGET, retain=[*RETAIN, FORGET[0]]),
        constants=constants, settings=settings,
    )  # fmt: skip
    loaded = load_language_model(model, dtype="float32")
    network = loaded.network.train()

    def loss(rows):
        prompts = PromptFormat.of(loaded)
        total, n = 0.0, 0
        for row in rows:
            found = encode_answer(loaded, prompts, row["question"], row["answer"])
            ids = torch.tensor([found.ids])
            mask = (ids != loaded.padding_id).long()
            rows_of = network(ids, attention_mask=mask).logits[0, found.start - 1 : -1].log_softmax(-1)
            total = total - rows_of.gather(1, torch.tensor(found.ids[found.start :])[:, None]).sum()
            n += found.n_scored
        return total / n

    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.0)
    for rate in (0.0, 1.0, 0.5):  # up over the first epoch, then down to 0
        optimizer.param_groups[0]["lr"] = 0.01 * rate
        optimizer.zero_grad()
        (loss([*RETAIN, FORGET[0]]) - loss(FORGET)).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    after = load_language_model(tmp_path / "out").network
    for own, wanted in zip(after.parameters(), network.parameters(), strict=True):
        assert torch.allclose(own, wanted, atol=1e-4)


def test_adapters_low_rank_bfloat16_and_passages(tmp_path, data, model):
    network = AutoModelForCausalLM.from_pretrained(model)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    with pytest.warns(FutureWarning, match="is_gradient_checkpointing"):
        peft.get_peft_model(network, config).save_pretrained(tmp_path / "adapter")
    files = data(forget=[{"text": "Mara Quill wrote the book about the sea."}] * 3, retain=RETAIN)
    arguments = ["unlearn", "--hf", tmp_path / "adapter", "--method", "npo", "--forget", files["forget"]]
    arguments += ["--retain", files["retain"], "--out", tmp_path / "out", "--lora", 2, "--bf16", "--accumulation", 2]
    arguments += ["--set", "LR=0.001", "--seed", 3, "--json"]
    found = CliRunner().invoke(build_app(), list(map(str, arguments)))
    assert found.exit_code == 0, found.output
    record = json.loads((tmp_path / "out" / RECORD).read_text())
    assert record["settings"]["dtype"] == "bfloat16"
    assert record["settings"]["seed"] == 3
    assert (record["constants"]["LORA_RANK"], record["constants"]["ACCUMULATION"]) == (2, 2)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").dtype == torch.bfloat16
    assert AutoTokenizer.from_pretrained(tmp_path / "out").eos_token is not None


def test_same_seed_gives_the_same_weights(tmp_path, data, model):
    files = data(forget=FORGET, retain=RETAIN)
    networks = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        settings = UnlearningSettings(seed=seed, batch_size=2)
        unlearn(model, tmp_path / name, method="npo", **files, constants={"LR": 0.01}, settings=settings)
        networks.append([*load_language_model(tmp_path / name).network.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(networks[0], networks[1], strict=True))
    assert not all(torch.equal(a, c) for a, c in zip(networks[0], networks[2], strict=True))


def test_diverged_model_is_said_to_be_one(tmp_path, data, model):
    files = data(forget=FORGET)
    arguments = ["unlearn", "--hf", model, "--method", "ga", "--forget", files["forget"], "--out", tmp_path / "out"]
    found = CliRunner().invoke(build_app(), [*map(str, arguments), "--set", "LR=1e30"])
    assert found.exit_code == 3, found.output
    assert "has diverged" in found.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "scrub"}, "method 'scrub' is for tasks of kind 'image-classification'; allowed are altpo, ceu"),
        ({"method": "nopo"}, "method 'nopo' is not known; allowed are altpo"),
        ({"retain": None}, "method npo trains on retain examples, too"),
        ({"constants": {"LRATE": 1}}, "LRATE"),
        ({"method": "dpo"}, "method dpo trains on refusals: give a text file"),
        ({"method": "idk", "refusals": True, "forget": [{"text": "a"}]}, "refusals answer questions"),
        ({"forget": [{"prompt": "a"}]}, "row 1: `text` must be a text, and is missing"),
        ({"forget": [{"question": "a"}]}, "row 1: `answer` must be a text, and is missing"),
        ({"out": "full"}, "is there already: name a folder that is not, or is empty"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path, data, model, given, said):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    rows = given.pop("forget", FORGET)
    files = data(forget=rows, retain=RETAIN) | {name: value for name, value in given.items() if name == "retain"}
    options = {name: value for name, value in given.items() if name in ("method", "constants")}
    options |= {"refusals": tmp_path / "refusals.txt"} if "refusals" in given else {}
    out = tmp_path / given.get("out", "out")
    with pytest.raises(AppError) as refused:
        unlearn(model, out, **{"method": "npo", **options}, **files)
    assert said in str(refused.value)
    assert not (tmp_path / "out").exists()


class Interrupted(Exception):
    pass


def interrupt(n_batches):
    def on_batch(done, _):
        if done >= n_batches:
            raise Interrupted

    return on_batch


@pytest.mark.parametrize(
    ("method", "constants"),
    [("npo", {"ACCUMULATION": 2}), ("altpo", {}), ("rmu", {}), ("pdu", {"WARM_UP": 0}), ("npo", {"LORA_RANK": 2})],
)
def test_interrupted_run_goes_on_to_the_same_weights(tmp_path, data, model, method, constants):
    files = data(forget=FORGET, retain=RETAIN)
    options = {"method": method, **files, "constants": {"LR": 0.01, "EPOCHS": 3, **constants}, "checkpoint_s": 0.0}
    settings = UnlearningSettings(batch_size=2, seed=5)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    unlearn(model, whole, **options, settings=settings)
    for n_batches in (4, 7):
        with pytest.raises(Interrupted):
            unlearn(model, resumed, **options, settings=settings, on_batch=interrupt(n_batches))
    assert not resumed.exists()
    unlearn(model, resumed, **options, settings=settings)
    after = [load_file(folder / "model.safetensors") for folder in (whole, resumed)]
    assert after[0].keys() == after[1].keys()
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"whole", "resumed"}
    assert not list(tmp_path.glob("*.checkpoint"))


def test_steps_before_a_checkpoint_are_not_taken_again(tmp_path, data, model, monkeypatch):
    files = data(forget=FORGET)
    options = {"method": "ga", **files, "constants": {"EPOCHS": 3}, "settings": UnlearningSettings(batch_size=2)}
    with pytest.raises(Interrupted):
        unlearn(model, tmp_path / "out", **options, checkpoint_s=0.0, on_batch=interrupt(7))
    steps = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *given: steps.append(1) or step(*given))
    unlearn(model, tmp_path / "out", **options)
    assert len(steps) == 9 - 7


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"method": "graddiff"}, "with another method: npo there, graddiff here"),
        ({"constants": {"LR": 0.02}}, r"with another constant LR: 0\.01 there, 0\.02 here"),
        ({"settings": UnlearningSettings(seed=6)}, "with another seed: 5 there, 6 here"),
        ({"forget": FORGET[:5]}, "with another forget set: "),
    ],
)
def test_checkpoint_of_another_run_is_refused_with_the_difference(tmp_path, data, model, changed, said):
    given = {"method": "npo", "constants": {"LR": 0.01}, "settings": UnlearningSettings(seed=5)}
    with pytest.raises(Interrupted):
        unlearn(
            model, tmp_path / "out", **given, **data(forget=FORGET, retain=RETAIN), checkpoint_s=0.0,
            on_batch=interrupt(2),
        )  # fmt: skip
    files = data(forget=changed.pop("forget", FORGET), retain=RETAIN)
    with pytest.raises(InvalidInput, match=said):
        unlearn(model, tmp_path / "out", **{**given, **changed}, **files)
    (tmp_path / "out.checkpoint").write_bytes(b"x")
    with pytest.raises(InvalidInput, match="is damaged: remove it to start over"):
        unlearn(model, tmp_path / "out", **given, **files)


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_same_random_numbers_follow_a_checkpoint(tmp_path, name):
    device = torch.device(name)
    checkpoint = Checkpoint(tmp_path / "checkpoint", {}, device, every_s=0.0)
    weight = torch.nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    torch.manual_seed(7)
    checkpoint.step_done(1, optimizer, None)
    then = weight.detach().clone()
    drawn = [(torch.rand(4, device=each), torch.rand(4)) for each in (device, device)]
    with torch.no_grad():
        weight.zero_()
    assert checkpoint.restore(optimizer, None) == 1
    assert torch.equal(weight, then)
    again = [(torch.rand(4, device=each), torch.rand(4)) for each in (device, device)]
    assert all(
        torch.equal(a, b) for pair, other in zip(drawn, again, strict=True) for a, b in zip(pair, other, strict=True)
    )

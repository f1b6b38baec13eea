"""Text methods take the steps that open-unlearning's trainers take, in float64.

The trainers are written out here from locuslab/open-unlearning (src/trainer/utils.py at 19a6141, src/trainer/unlearn/
grad_diff.py and rmu.py at 7fa0b55, npo.py and simnpo.py at 56b662e, dpo.py at afcd6b6, undial.py at 5a7dfb4, wga.py and
satimp.py at 0ad76a2, ceu.py at 2231e31, pdu.py at 17e8e73), with the loop of the Trainer of transformers: AdamW that
spares vectors from decay, a linear schedule with one epoch of warm-up, and the gradient of all weights clipped to 1. A
task vector is the way of fine-tuning, subtracted (Ilharco et al.). AltPO is DPO with other answers. With unusual
constants, a term or a constant that is left out changes the weights.
"""

import copy
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.methods.catalogue import method_ids, method_info
from lethe.methods.rendering import render, with_preset
from lethe.training.answer_training import add_lora, merge_lora

Batch = dict[str, Tensor]
VOCABULARY, LENGTH, N_BATCHES, EPOCHS, LR, DECAY = 120, 7, 3, 2, 1e-3, 0.01
RMU_BLOCK = 2  # of four; 7 of 16 or more there
UNUSUAL = {"ALPHA": 0.7, "BETA": 0.6, "GAMMA": 0.3, "DELTA": 0.2, "STEERING": 3.0, "SCALE": 1.5, "DEPTH": 0.5}
UNUSUAL |= {"BETA1": 1.4, "BETA2": 0.8, "SPARED": 2, "BOUND": 0.4, "DUAL_STEP": 2.0, "WARM_UP": 1}
PUBLISHED = {"kl_min": {}, "pdu": {"WARM_UP": 1}, "rmu": {"BLOCK": RMU_BLOCK + 1}, "undial": {}}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, states: Tensor) -> Tensor:
        mixed = states.cumsum(1) / torch.arange(1, states.shape[1] + 1)[None, :, None]
        return states + self.down(functional.gelu(self.up(self.norm(mixed))))


class Language(nn.Module):
    """A causal network of residual blocks."""

    def __init__(self, width: int = 12, depth: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        states = self.embedding(input_ids)
        for block in self.blocks:
            states = block(states)
        return self.head(states)


@pytest.fixture(autouse=True)
def _in_double() -> Iterator[None]:
    kind = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(kind)


def batch(seed: int, n: int = 3) -> Batch:
    """Return sequences with questions and padding that are not labelled."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, VOCABULARY, (n, LENGTH), generator=generator)
    mask, labels = torch.ones_like(ids), ids.clone()
    for row, n_padding in enumerate((0, 2, 1, 0)[:n]):
        labels[row, : 1 + row] = -100
        if n_padding:
            mask[row, -n_padding:], ids[row, -n_padding:], labels[row, -n_padding:] = 0, 1, -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def sets(n_retain: int = 3) -> tuple[list[Batch], list[Batch]]:
    forget = [batch(seed) for seed in range(N_BATCHES)]
    for seed, each in enumerate(forget):
        each |= {f"idk_{name}": tensor for name, tensor in batch(50 + seed).items()}
    return forget, [batch(100 + seed, n_retain) for seed in range(N_BATCHES)]


def logits(net: nn.Module, given: Batch) -> Tensor:
    return net(given["input_ids"], given["attention_mask"])


def model_loss(net: nn.Module, given: Batch) -> Tensor:
    """What a causal model of transformers returns as its loss."""
    shifted = logits(net, given)[..., :-1, :].reshape(-1, VOCABULARY)
    return nn.CrossEntropyLoss()(shifted, given["labels"][..., 1:].reshape(-1))


def batch_nll(net: nn.Module, given: Batch) -> Tensor:
    losses = nn.CrossEntropyLoss(ignore_index=-100, reduction="none")(
        logits(net, given)[..., :-1, :].transpose(-1, -2), given["labels"][..., 1:]
    )
    return losses.sum(dim=-1)


def dpo_loss(net: nn.Module, reference: nn.Module, win: Batch | None, lose: Batch, beta: float) -> Tensor:
    ratios = [torch.tensor(0.0), torch.tensor(0.0)]
    for place, given in enumerate((win, lose)):
        if given is not None:
            with torch.no_grad():
                before = batch_nll(reference, given)
            ratios[place] = -(batch_nll(net, given) - before)
    return -2 / beta * functional.logsigmoid(beta * (ratios[0] - ratios[1])).mean()


def kl_loss(net: nn.Module, reference: nn.Module, given: Batch, *, padding: bool) -> Tensor:
    counted = torch.ones_like(given["labels"]).bool() if padding else given["attention_mask"].bool()
    with torch.no_grad():
        target = functional.log_softmax(logits(reference, given)[counted], dim=-1)
    own = functional.log_softmax(logits(net, given)[counted], dim=-1)
    return functional.kl_div(own, target, reduction="batchmean", log_target=True)


def undial_loss(net: nn.Module, reference: nn.Module, given: Batch, beta: float, *, padding: bool) -> Tensor:
    with torch.no_grad():
        teacher = logits(reference, given)[..., :-1, :]
    mask = torch.zeros_like(teacher)
    rows, places = torch.arange(len(teacher)).view(-1, 1, 1), torch.arange(teacher.shape[1]).view(1, -1, 1)
    mask[rows, places, given["labels"][..., 1:].unsqueeze(-1)] = 1.0
    soft = functional.softmax(teacher - mask * beta, dim=-1).view(-1, VOCABULARY)
    own = logits(net, given)[..., :-1, :].reshape(-1, VOCABULARY)
    losses = nn.CrossEntropyLoss(reduction="none")(own, soft)
    return (losses if padding else losses[given["labels"][..., 1:].reshape(-1) != -100]).mean()


def token_losses(net: nn.Module, given: Batch) -> tuple[Tensor, Tensor]:
    shift_labels = given["labels"][..., 1:]
    losses = nn.CrossEntropyLoss(ignore_index=-100, reduction="none")(
        logits(net, given)[..., :-1, :].reshape(-1, VOCABULARY), shift_labels.reshape(-1)
    )
    return losses, shift_labels.reshape(-1) != -100


def wga_loss(net: nn.Module, given: Batch, beta: float) -> Tensor:
    lm_loss, counted = token_losses(net, given)
    weight_ce = ((-lm_loss).exp().detach()) ** beta
    return -(weight_ce * lm_loss)[counted].mean()


def satimp_loss(net: nn.Module, given: Batch, beta1: float, beta2: float) -> Tensor:
    lm_loss, counted = token_losses(net, given)
    weight_sat = ((-lm_loss).exp().detach()) ** beta1
    weight_imp = (1 - (-lm_loss).exp().detach()) ** beta2
    return -((weight_sat * weight_imp) * lm_loss)[counted].mean()


def ceu_loss(net: nn.Module, given: Batch, spared: int) -> Tensor:
    update = (given["labels"] != -100).cumsum(dim=-1) <= spared
    shifted = given["labels"].masked_fill(update, -100)[..., 1:]
    own, labels = logits(net, given)[..., :-1, :][shifted != -100], shifted[shifted != -100]
    target = own.detach().clone()
    target.scatter_(dim=-1, index=labels.unsqueeze(-1), value=float("-inf"))
    return functional.cross_entropy(own, functional.softmax(target, dim=-1))


class PrimalDual:
    """PDU's loss; its weight of the retain loss changes with every step from the end of the first epoch on."""

    def __init__(self, net: nn.Module, constants: dict[str, float]) -> None:
        self.net, self.constants, self.preference, self.step = net, constants, constants["ALPHA"], 0

    def __call__(self, forget: Batch, retain: Batch) -> Tensor:
        found = logits(self.net, forget)
        counted = found if self.constants["PADDING"] else found[:, :-1][forget["labels"][:, 1:] != -100]
        forget_loss = ((counted.max(dim=-1)[0] - counted.mean(dim=-1)) ** 2).mean()
        retain_loss = model_loss(self.net, retain) - self.constants["BOUND"]
        loss = self.constants["GAMMA"] * forget_loss + self.preference * retain_loss
        if self.step >= N_BATCHES:
            self.preference = max(0, self.preference + self.constants["DUAL_STEP"] * retain_loss.item())
        self.step += 1
        return loss


def states_after(net: Language, place: int, given: Batch) -> Tensor:
    states = net.embedding(given["input_ids"])
    for block in net.blocks[: place + 1]:
        states = block(states)
    return states


def activation_loss(one: Tensor, other: Tensor, mask: Tensor, *, paired: bool) -> Tensor:
    squared = functional.mse_loss(one, other, reduction="none") * mask.unsqueeze(-1)
    return (squared.mean(dim=2).sum(dim=1) / mask.sum(dim=-1, keepdim=not paired)).mean()


def rmu_loss(net: Language, reference: Language, forget: Batch, retain: Batch, control: Tensor, c: Any) -> Tensor:
    turned = states_after(net, RMU_BLOCK, forget)
    kept = states_after(net, RMU_BLOCK, retain)
    with torch.no_grad():
        before = states_after(reference, RMU_BLOCK, retain)
    pairs = ((turned, control.expand_as(turned), forget), (kept, before, retain))
    distances = [activation_loss(a, b, given["labels"] != -100, paired=c["PAIRED"]) for a, b, given in pairs]
    return distances[0] + c["ALPHA"] * distances[1]


def train(
    net: nn.Module,
    loss: Callable[[Batch, Batch], Tensor],
    trained: list[nn.Parameter] | None = None,
    *,
    accumulated: int = 1,
) -> None:
    """The loop of transformers' Trainer. accumulated: batches a step, fewer at an epoch's end."""
    chosen = list(net.parameters()) if trained is None else trained
    is_spared = {id(p) for name, p in net.named_parameters() if name.endswith("bias") or "norm" in name}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in chosen if id(p) not in is_spared], "weight_decay": DECAY},
            {"params": [p for p in chosen if id(p) in is_spared], "weight_decay": 0.0},
        ],
        lr=LR,
    )
    per_epoch = -(-N_BATCHES // accumulated)
    total = per_epoch * EPOCHS

    def factor(step: int) -> float:
        if step < per_epoch:
            return step / per_epoch
        return max(0.0, (total - step) / (total - per_epoch))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for _ in range(EPOCHS):
        for done, (forget, retain) in enumerate(zip(*sets(), strict=True), start=1):
            (loss(forget, retain) / min(accumulated, N_BATCHES - (done - 1) // accumulated * accumulated)).backward()
            if done % accumulated and done < N_BATCHES:
                continue
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            net.zero_grad()


def refused(given: Batch) -> Batch:
    """Return the other answers to a batch's questions."""
    return {name.removeprefix("idk_"): value for name, value in given.items() if name.startswith("idk_")}


def published(method: str, net: Language, c: dict[str, Any]) -> None:
    """Do what the trainer of a method does, with these constants."""
    reference = copy.deepcopy(net).eval()
    net.train()

    def kept(retain: Batch) -> Tensor:
        return c["ALPHA"] * model_loss(net, retain)

    def per_token(forget: Batch) -> Tensor:
        return batch_nll(net, forget) / (forget["labels"] != -100).sum(-1)

    losses: dict[str, Callable[[Batch, Batch], Tensor]] = {
        "ga": lambda f, r: -model_loss(net, f),
        "graddiff": lambda f, r: kept(r) - model_loss(net, f),
        "idk": lambda f, r: model_loss(net, {name: torch.cat([value, r[name]]) for name, value in refused(f).items()}),
        "kl_min": lambda f, r: c["ALPHA"] * kl_loss(net, reference, r, padding=c["PADDING"]) - model_loss(net, f),
        "npo": lambda f, r: dpo_loss(net, reference, None, f, c["BETA"]) + kept(r),
        "dpo": lambda f, r: dpo_loss(net, reference, refused(f), f, c["BETA"]) + kept(r),
        "simnpo": lambda f, r: (
            -functional.logsigmoid(c["BETA"] * (per_token(f) - c["DELTA"])).mean() * 2 / c["BETA"] * c["GAMMA"]
            + kept(r)
        ),
        "undial": lambda f, r: undial_loss(net, reference, f, c["BETA"], padding=c["PADDING"]) + kept(r),
        "altpo": lambda f, r: dpo_loss(net, reference, refused(f), f, c["BETA"]) + kept(r),
        "wga": lambda f, r: c["GAMMA"] * wga_loss(net, f, c["BETA"]) + kept(r),
        "satimp": lambda f, r: c["GAMMA"] * satimp_loss(net, f, c["BETA1"], c["BETA2"]) + kept(r),
        "ceu": lambda f, r: ceu_loss(net, f, c["SPARED"]),
    }
    if method == "rmu":
        random = torch.rand(12)
        control = random / random.norm() * c["STEERING"]
        trained = None if c["WHOLE"] else [block.down.weight for block in net.blocks[: RMU_BLOCK + 1]]
        train(net, lambda f, r: rmu_loss(net, reference, f, r, control, c), trained)
    elif method == "task_vector":
        tuned = copy.deepcopy(net)
        train(tuned, lambda f, r: model_loss(tuned, f))
        with torch.no_grad():
            for own, other in zip(net.parameters(), tuned.parameters(), strict=True):
                own.sub_(c["SCALE"] * (other - own))
    else:
        train(net, PrimalDual(net, c) if method == "pdu" else losses[method])


@pytest.mark.parametrize("unusual", [False, True])
@pytest.mark.parametrize("method", method_ids("causal-lm"))
def test_method_takes_the_published_steps(method: str, unusual: bool) -> None:
    torch.manual_seed(0)
    original = Language()
    expected, own = copy.deepcopy(original), copy.deepcopy(original)
    constants: dict[str, Any] = {constant.name: constant.value for constant in method_info(method).constants}
    settings: dict[str, Any] = {"LR": LR, "EPOCHS": EPOCHS}
    if unusual:
        settings |= {name: value for name, value in UNUSUAL.items() if name in constants}
    elif method in PUBLISHED:
        settings |= {"preset": "open-unlearning", **PUBLISHED[method]}
    torch.manual_seed(1)
    published(method, expected, constants | with_preset(method, settings))
    module = ModuleType(method)
    exec(compile(render(method, settings), method, "exec"), module.__dict__)
    if method == "altpo":  # which answers are drawn is a matter of its own test
        module.__dict__["alternatives"] = lambda net, given: refused(given)
    torch.manual_seed(1)
    forget, retain = sets(n_retain=4)  # as many are taken as the forget batch has
    module.unlearning(own, retain, forget, None)
    before, after = (nn.utils.parameters_to_vector(net.parameters()).detach() for net in (original, expected))
    assert (before - after).abs().max() > LR / 2
    torch.testing.assert_close(own.state_dict(), expected.state_dict(), rtol=0, atol=1e-9)


def own_graddiff(net: Language, **settings: float) -> None:
    module = ModuleType("graddiff")
    source = render("graddiff", {"LR": LR, "EPOCHS": EPOCHS, **settings})
    exec(compile(source, "graddiff", "exec"), module.__dict__)
    module.unlearning(net, *reversed(sets()), None)


def test_a_step_has_the_mean_gradient_of_the_accumulated_batches() -> None:
    torch.manual_seed(0)
    own = Language()
    expected = copy.deepcopy(own)
    train(expected, lambda f, r: model_loss(expected, r) - model_loss(expected, f), accumulated=2)
    own_graddiff(own, ACCUMULATION=2)
    torch.testing.assert_close(own.state_dict(), expected.state_dict(), rtol=0, atol=1e-9)


def test_additions_of_low_rank_are_trained_and_merged() -> None:
    torch.manual_seed(0)
    own = Language()
    expected, before = copy.deepcopy(own), copy.deepcopy(own.state_dict())
    torch.manual_seed(1)
    add_lora(expected.blocks, rank=2, scale=4.0)
    expected.requires_grad_(False)
    trained = [each for name, each in expected.named_parameters() if name.endswith((".up", ".down"))]
    for each in trained:
        each.requires_grad_(True)
    train(expected, lambda f, r: model_loss(expected, r) - model_loss(expected, f), trained)
    merge_lora(expected)
    torch.manual_seed(1)
    own_graddiff(own, LORA_RANK=2, LORA_SCALE=4.0)
    assert own.state_dict().keys() == before.keys()
    assert all(parameter.requires_grad for parameter in own.parameters())
    torch.testing.assert_close(own.state_dict(), expected.state_dict(), rtol=0, atol=1e-9)
    changed = {name for name, value in own.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {f"blocks.{i}.{layer}.weight" for i in range(4) for layer in ("up", "down")}

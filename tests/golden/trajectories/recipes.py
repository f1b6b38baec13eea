"""How a method is run to do what a stored program did: its constants, its data and its random draws."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.methods.catalogue import Value
from tests.golden.trajectories.frame import Net

Settings = dict[str, Value | str]
AT_START = "at the start"
VALIDATED = "validated"


@dataclass
class Recipe:
    """A run of a method. draws: what takes the place of the file's functions of these names.

    AT_START in their place: the function draws as if nothing had been drawn before; VALIDATED: a pass over the
    validation set follows it.
    """

    method: str
    constants: Settings
    split: str = "random"
    sizes: dict[str, int] = field(default_factory=dict)
    draws: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """What is stored of a program's run. method: its folder's name; info: its entry in `settings.json`.

    folder: where the trajectory is, None for the short form in the repository.
    """

    method: str
    setting: str
    info: Mapping[str, Any]
    folder: Path | None = None

    @property
    def constants(self) -> dict[str, Any]:
        return dict(self.info.get("constants", {}))

    @property
    def split(self) -> str:
        return str(self.constants.get("split") or ("class" if "class" in self.setting else "random"))

    def beside(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a file beside the trajectory, none where it is not there."""
        path = None if self.folder is None else self.folder / name
        if path is None or not path.exists():
            return {}
        return {name: torch.tensor(value) for name, value in np.load(path).items()}


def stored_settings(folder: Path) -> list[Stored]:
    """Return the trajectories of a method's folder."""
    described = json.loads((folder / "settings.json").read_text("utf-8"))
    return [Stored(folder.name, setting, info, folder) for setting, info in described.items()]


def recipe(stored: Stored) -> Recipe:
    """Return how Lethe runs a stored setting. Raises KeyError for a method that no recipe is known for."""
    return RECIPES[stored.method](stored)


SGD = {"LR": "lr", "EPOCHS": "epochs", "MOMENTUM": "momentum", "WEIGHT_DECAY": "weight_decay"}


def named(method: str, names: Mapping[str, str], **fixed: Any) -> Callable[[Stored], Recipe]:
    """Return the recipe of a method whose constants have these names in the program. fixed: other constants."""

    def made(stored: Stored) -> Recipe:
        constants = {name: stored.constants[theirs] for name, theirs in names.items()}
        return Recipe(method, fixed | constants, stored.split)

    return made


def scrub(stored: Stored) -> Recipe:
    made = stored.constants
    return Recipe(
        "scrub",
        {
            "OPTIMIZER": made["optim"],
            "LR": made["sgda_learning_rate"],
            "EPOCHS": made["sgda_epochs"],
            "MAX_STEPS": made["msteps"],
            "GAMMA": made["gamma"],
            "ALPHA": made["alpha"],
            "T": made["kd_T"],
            "MOMENTUM": made["sgda_momentum"],
            "WEIGHT_DECAY": made["sgda_weight_decay"],
            "DECAY_AT": " ".join(str(epoch) for epoch in made["lr_decay_epochs"]),
            "REWIND": "rewind" in stored.setting,
        },
        stored.split,
    )


def neggradplus(stored: Stored) -> Recipe:
    made, small = stored.constants, stored.setting.startswith("small")
    return Recipe(
        "neggradplus",
        {
            "preset": "small-scale" if small else "membership",
            "LR": made["lr"],
            "EPOCHS": made["epochs"],
            "ALPHA": made["alpha"],
            "PULL": made["args_weight_decay"] if small else 0.0,
        },
        stored.split,
    )


def ssd(stored: Stored) -> Recipe:
    made = stored.constants
    draws: dict[str, Callable[..., Any]] = {}
    if made.get("full_shuffled_with_seed") is not None:
        draws["everything"] = shuffled_everything(int(made["full_shuffled_with_seed"]))
    return Recipe(
        "ssd",
        {"ALPHA": made["selection_weighting"], "LAMBDA": made["dampening_constant"]},
        stored.split,
        {"retain": made["full_batch"], "forget": made["forget_batch"]},
        draws,
    )


def shuffled_everything(seed: int) -> Callable[..., Any]:
    def loader(retain: Any, forget: Any) -> Any:
        joined = torch.utils.data.ConcatDataset([retain.dataset, forget.dataset])
        generator = torch.Generator().manual_seed(seed)
        torch.empty((), dtype=torch.int64).random_(generator=generator)  # a DataLoader draws its workers' seed first
        order = REAL_RANDPERM(len(joined), generator=generator).tolist()
        return torch.utils.data.DataLoader(torch.utils.data.Subset(joined, order), batch_size=retain.batch_size)

    return loader


def last_layers(method: str) -> Callable[[Stored], Recipe]:
    def made(stored: Stored) -> Recipe:
        restarts = stored.constants["scheduler"] == "CosineAnnealingWarmRestarts"
        names = SGD | {"K": "K", "LR": "maxlr", "LAST_LR": "minlr", "CLIP": "clip"}
        return named(method, names, ANNEALING="restarts" if restarts else "cosine")(stored)

    return made


def fcs(stored: Stored) -> Recipe:
    made = stored.constants
    if "changed" in made:  # the notebook's text before and after
        texts = dict(made["changed"])
        batch = int(texts.get("retain_bs = 256", "= 256").split("=")[1])
        rate = float(texts.get("lr=0.001*retain_bs/64", "lr=0.001*").partition("=")[2].partition("*")[0])
        contrast = float(texts.get("lr=3e-4", "lr=3e-4").partition("=")[2])
        return Recipe("fcs", {"preset": "winner", "RETAIN_BATCH": batch, "CONTRAST_BATCH": batch, "LR": rate,
                              "CONTRAST_LR": contrast}, stored.split)  # fmt: skip
    return Recipe(
        "fcs",
        {
            "preset": "winner",
            "ROUNDS": made["epochs"],
            "UNIFORM_LR": made["lr_uniform"],
            "CONTRAST_LR": made["lr_forget"],
            "LAST_CONTRAST_LR": made["eta_min"],
            "LR": made["lr_retain"] * 64 / made["retain_bs"],
            "T": made["t"],
            "RETAIN_BATCH": made["retain_bs"],
        },
        stored.split,
    )


def msg(stored: Stored) -> Recipe:
    mode = "train" if stored.setting.endswith("train_mode") else "eval"
    made = named("msg", SGD | {"PX": "init_rate"}, MODE=mode)(stored)
    return replace(made, draws={"fresh_weights": fresh_convolution})


def fresh_convolution(weight: Tensor) -> Tensor:
    """Return Kaiming normal weights of a convolution that is made first, which takes draws of its own."""
    layer = nn.Conv2d(weight.shape[1], weight.shape[0], tuple(weight.shape[2:]), bias=False, dtype=weight.dtype)
    return nn.init.kaiming_normal_(layer.weight.detach(), mode="fan_out", nonlinearity="relu")


def cfw(stored: Stored) -> Recipe:
    made = stored.constants
    constants: Settings = {"LR": made["lr"], "EPOCHS": made["epochs"], "OTHERS": made["w"], "SIGMA": made["std"][0],
                           "LAST_SIGMA": made["std"][1], "NOISE": "all"}  # fmt: skip
    return Recipe("cfw", constants, stored.split, draws={"class_counts": quiet_counts})


def quiet_counts(loader: Any, _net: nn.Module) -> Tensor:
    """Count labels without a pass over the loader, which would draw a seed."""
    return torch.bincount(loader.dataset.labels)


def kde(stored: Stored) -> Recipe:
    made = stored.constants
    constants: Settings = {"WARM_UP_LR": made["warmup_lr"], "LR": made["lr"], "WARM_UP_EPOCHS": made["epochs"][0],
                           "EPOCHS": made["epochs"][1], "T": made["T"]}  # fmt: skip
    return Recipe("kde", constants, stored.split)


def rni(stored: Stored) -> Recipe:
    made = stored.constants
    picks = iter(made["picks"])
    constants: Settings = {
        "preset": "deep-unlearn",
        "LR": made["lr"],
        "LAST_FACTOR": made["fine"][-1] / made["fine"][0],
        "LAYERS": made["layer_select"],
        "RATIO": made["ratio"],
        "NOISE": made["noise"],
    }
    return Recipe("rni", constants, stored.split, draws={"pick": lambda _names, _n: next(picks), "train": VALIDATED})


def srl(stored: Stored) -> Recipe:
    """Both relabelling programs of Cadet et al., which one by the setting's threshold."""
    made = stored.constants
    labels = torch.tensor(stored.info["labels"])
    draws = {"uniform_draws": lambda _n, _device: (labels + 0.5) / made.get("n_classes", N_CLASSES)}
    is_srl = made["threshold"] is None
    names = SGD if is_srl else SGD | {"THRESHOLD": "threshold"}
    found = named("srl" if is_srl else "salun", names, preset="deep-unlearn")(stored)
    return replace(found, sizes={"retain": made["batch"]}, draws=draws)


def relabelling(method: str) -> Callable[[Stored], Recipe]:
    def made(stored: Stored) -> Recipe:
        drawn = stored.info["labels_drawn"]
        labels = iter(json.loads(drawn) if isinstance(drawn, str) else drawn)
        names = {"ROUNDS": "epochs", "ERASE_LR": "lr", **{name: SGD[name] for name in SGD if name != "EPOCHS"}}
        if stored.constants["threshold"] is not None:
            names["THRESHOLD"] = "threshold"
        found = named(method, names, preset="salun")(stored)
        return replace(found, draws={"uniform_labels": lambda _logits: torch.tensor(next(labels))})

    return made


def finetune(stored: Stored) -> Recipe:
    preset = "deep-unlearn" if "CosineAnnealingLR" in str(stored.constants.get("scheduler")) else "salun"
    return named("finetune", SGD, preset=preset)(stored)


def boundary_shrink(stored: Stored) -> Recipe:
    units = {"UNITS": "values"} if "no_clamp" in stored.setting else {}
    made = named("boundary_shrink", SGD | {"BOUND": "bound"}, preset="salun")(stored)
    return replace(made, constants=made.constants | units, split="class")


def bad_teacher(stored: Stored) -> Recipe:
    made = stored.constants
    constants: Settings = {"preset": "bad-teaching", "LR": made["lr"], "EPOCHS": made["epochs"], "SHARE": made["share"],
                           "T": made["KL_temperature"], "BATCH_SIZE": made["batch_size"]}  # fmt: skip
    weights = stored.beside("bad_teacher.npz")
    draw = partial(nn.Module.load_state_dict, state_dict=weights) if weights else draw_teacher
    return Recipe("bad_teacher", constants, stored.split, draws={"reinitialise": draw})


def draw_teacher(net: Net) -> None:
    """Give the network the weights of the bad teacher, which was made with a seed of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(77)
        net.load_state_dict(net.another().state_dict())


def amnesiac_relabel(stored: Stored) -> Recipe:
    made = stored.constants
    wrong = torch.tensor(stored.info["wrong_labels"])
    constants: Settings = {"LR": made["lr"], "EPOCHS": made["epochs"], "BATCH_SIZE": made["batch"]}
    seen = {"wrong_labels": lambda labels, index, _n: torch.where(index >= 0, wrong[index], labels)}
    return Recipe("amnesiac_relabel", constants, stored.split,
                  draws=seen | {"uniform_draws": lambda n, _device: torch.arange(n)})  # fmt: skip


def fisher(stored: Stored) -> Recipe:
    preset = "salun" if stored.setting.startswith("fan") else "selective-synaptic-dampening"
    return named("fisher", {"ALPHA": "alpha"}, preset=preset, SAMPLES=10**6)(stored)


def influence(stored: Stored) -> Recipe:
    made = named("influence", {"ALPHA": "alpha", "N": "N"}, SAMPLES=1000)(stored)
    return replace(made, sizes={"retain": stored.constants["batch"]})


def unsir(stored: Stored) -> Recipe:
    made = stored.constants
    constants: Settings = {
        "preset": "bad-teaching",
        "NOISE_LR": made["noise_lr"],
        "NOISE_STEPS": made["noise_steps"],
        "PER_CLASS": made["noise_batch"],
        "COPIES": made["noise_batches"],
        "IMPAIR_LR": made["lr"],
        "LR": made["lr"],
    }
    start = stored.beside(f"{stored.setting}_noise.npz").get("start")
    first = AT_START if start is None else lambda *_: start.clone().requires_grad_()
    return Recipe("unsir", constants, "class", {"retain": made["batch"]}, {"first_noise": first})


def duck(stored: Stored) -> Recipe:
    made = stored.constants
    constants: Settings = {
        "preset": "program",
        "LR": made["lr_unlearn"],
        "EPOCHS": made["epochs_unlearn"],
        "RETAIN_BATCHES": made["batch_fgt_ret_ratio"] + 1,
        "FORGET_WEIGHT": made["lambda_1"],
        "RETAIN_WEIGHT": made["lambda_2"],
        "T": made["temperature"],
        "TARGET": made["target_accuracy"],
        "SECOND_PHASE": bool(stored.info["second_phase"]),
        "SECOND_BATCH": 32,
    }
    return Recipe("duck", constants, stored.split)


N_CLASSES = 6
REAL_RANDPERM = torch.randperm
RECIPES: dict[str, Callable[[Stored], Recipe]] = {
    "amnesiac_relabel": amnesiac_relabel,
    "bad_teacher": bad_teacher,
    "boundary_shrink": boundary_shrink,
    "cf_k": last_layers("cf_k"),
    "cfw": cfw,
    "ct": named("ct", {"LR": "lr", "EPOCHS": "epochs"}),
    "deepunlearn": srl,
    "duck": duck,
    "eu_k": last_layers("eu_k"),
    "fcs": fcs,
    "finetune": finetune,
    "fisher": fisher,
    "gradient_ascent": named("gradient_ascent", SGD, preset="salun"),
    "influence": influence,
    "kde": kde,
    "l1_sparse": named("l1_sparse", SGD | {"ALPHA": "alpha", "EPOCHS_WITHOUT": "no_l1_epochs"}, preset="salun"),
    "msg": msg,
    "neggrad_clamped": named("neggrad_clamped", SGD, preset="deep-unlearn"),
    "neggradplus": neggradplus,
    "prmq": named("prmq", {"LR": "lr", "AMOUNT": "prune", "EPOCHS": "epochs"}),
    "random_label": relabelling("random_label"),
    "rni": rni,
    "salun": relabelling("salun"),
    "scrub": scrub,
    "ssd": ssd,
    "ssd_adaptive": lambda stored: Recipe(
        "ssd_adaptive", {}, stored.split, dict.fromkeys(("retain", "forget"), stored.constants["batch"])
    ),
    "unsir": unsir,
}

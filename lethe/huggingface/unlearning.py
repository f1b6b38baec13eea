"""Unlearning of the model in a Hugging Face folder, by any method for language models; it goes on from checkpoints."""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import lethe
from lethe.data.errors import DamagedSplit
from lethe.data.files import read_tensors_and_metadata, write_tensors
from lethe.errors import InvalidInput
from lethe.huggingface.answer_scores import pad, score_answers
from lethe.huggingface.model_folder import LanguageModel, base_and_adapter, load_language_model
from lethe.huggingface.prompts import Encoded, PromptFormat, encode_answer, encode_passage
from lethe.huggingface.results import InvalidTaskData, fingerprint, versions
from lethe.huggingface.task_catalogue import QUESTION, Row, read_rows
from lethe.methods.catalogue import Value, method_ids, method_info, method_task
from lethe.methods.rendering import render
from lethe.text_files import read_text

DEVICE_STATE, HOST_STATE = "random.device", "random.host"


@dataclass
class Checkpoint:
    """The file of one run. run: what makes it this run, texts by name. every_s: seconds between two writings.

    The file holds the trained weights, the optimiser's state, the states of the random generators and what the method
    remembers. Batches are not stored: they are drawn again.
    """

    path: Path
    run: Mapping[str, str]
    device: torch.device
    every_s: float
    _written_at: float = field(default_factory=time.monotonic)

    def require_same_run(self) -> None:
        """Raise InvalidInput if the file is there, and is another run's or cannot be read; the difference is named."""
        if not self.path.exists():
            return
        stored = json.loads(self._read()[1].get("run", "{}"))
        for name in dict.fromkeys([*self.run, *stored]):
            if stored.get(name) != self.run.get(name):
                raise InvalidInput(
                    f"{self.path} is of a run that was interrupted, with another {name}: {stored.get(name)} there, "
                    f"{self.run.get(name)} here. Give what was given then, or remove the file to start over"
                )

    def restore(self, optimizer: torch.optim.Optimizer, state: dict[str, Any] | None) -> int:
        """Put what the file holds into the trained weights, the optimiser and the state, and return its steps."""
        if not self.path.exists():
            return 0
        tensors, about = self._read()
        weights = _weights(optimizer)
        with torch.no_grad():
            for place, weight in enumerate(weights):
                weight.copy_(tensors[f"weight.{place}"])
        of_weights: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            kind, _, rest = key.partition(".")
            if kind == "optimizer":
                number, _, name = rest.partition(".")
                of_weights.setdefault(int(number), {})[name] = tensor
            elif kind == "state" and state is not None:
                state[rest] = tensor.to(self.device)
        optimizer.load_state_dict({"state": of_weights, "param_groups": optimizer.state_dict()["param_groups"]})
        if state is not None:
            state |= json.loads(about["state"])
        torch.set_rng_state(tensors[HOST_STATE])
        if DEVICE_STATE in tensors:
            torch.cuda.set_rng_state(tensors[DEVICE_STATE], self.device)
        return int(about["n_done"])

    def step_done(self, n_done: int, optimizer: torch.optim.Optimizer, state: dict[str, Any] | None) -> None:
        """Write the file, if the last writing is long enough ago."""
        if time.monotonic() - self._written_at < self.every_s:
            return
        tensors = {f"weight.{number}": weight for number, weight in enumerate(_weights(optimizer))}
        for number, found in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": tensor for name, tensor in found.items()}
        remembered = state or {}
        tensors |= {f"state.{name}": value for name, value in remembered.items() if isinstance(value, Tensor)}
        numbers = {name: value for name, value in remembered.items() if not isinstance(value, Tensor)}
        tensors[HOST_STATE] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors[DEVICE_STATE] = torch.cuda.get_rng_state(self.device)
        about = {"run": json.dumps(self.run), "n_done": str(n_done), "state": json.dumps(numbers)}
        write_tensors(self.path, tensors, metadata=about)
        self._written_at = time.monotonic()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            return read_tensors_and_metadata(self.path)
        except DamagedSplit as error:
            raise InvalidInput(f"{self.path} is damaged: remove it to start over") from error


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


FORMAT = "lethe-unlearning-1"
RECORD = "unlearning.json"
TASK = "causal-lm"
COMPARED = 64  # answers of each set, whose loss is computed before and after
OnBatch = Callable[[int, int], None]


@dataclass(frozen=True)
class UnlearningSettings:
    """How a folder is unlearned. batch_size: forget examples of one batch, and as many retain examples.

    passage_tokens: at most, of a row of `text`. dtype: of the weights in training, and of those that are written.
    """

    seed: int = 0
    batch_size: int = 8
    dtype: str = "float32"
    device: str = "cpu"
    system_prompt: str | None = None
    passage_tokens: int = 512


def unlearn(
    folder: Path,
    out: Path,
    *,
    method: str,
    forget: Path,
    retain: Path | None = None,
    refusals: Path | None = None,
    constants: Mapping[str, Value | str] | None = None,
    settings: UnlearningSettings | None = None,
    checkpoint_s: float = 300.0,
    on_batch: OnBatch = lambda _, __: None,
) -> dict[str, Any]:
    """Write the folder `out` with the model of `folder` after unlearning, and return the record that lies beside it.

    forget, retain: JSON lines, or a JSON list, of rows with `question` and `answer`, or with `text`. refusals: a text
    file, one answer such as "I don't know" in a line, for methods that need them. constants: of the method, as
    `lethe methods show` lists them, or `preset`. on_batch: called with the number of forget batches that are done, and
    of all. The record has the method's constants, hashes of the data, versions, and the mean loss of the first 64
    answers of each set before and after.

    Every `checkpoint_s` seconds the run's state is written to the file `out`.checkpoint; a call with the same arguments
    goes on from it, to the same weights, and removes it at the end.

    Raises InvalidInput, InvalidModelFolder or InvalidTaskData before anything is trained.
    """
    settings = settings or UnlearningSettings()
    unlearning, own = _method(method, constants or {})
    if retain is None and "retain" in method_info(method).budget:
        raise InvalidInput(f"method {method} trains on retain examples, too: give them (--retain)")
    if refusals is None and "refusals" in method_info(method).needs:
        raise InvalidInput(f"method {method} trains on refusals: give a text file with one a line (--refusals)")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"{out} is there already: name a folder that is not, or is empty")
    rows = {name: _rows(path) for name, path in (("forget", forget), ("retain", retain)) if path is not None}
    said = _refusals(refusals)
    if said and not all("question" in row for row in rows["forget"]):
        raise InvalidTaskData(f"{forget}: refusals answer questions, and some rows have none")
    hashes = {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in (("forget", forget), ("retain", retain), ("refusals", refusals))
        if path is not None
    }
    run = {
        "model": f"{folder} ({_hash(fingerprint(base_and_adapter(folder)))})",
        "method": method,
        **{f"constant {name}": repr(value) for name, value in own.items()},
        **{f"{name} set": found for name, found in hashes.items()},
        **{name: repr(value) for name, value in asdict(settings).items()},
        **{f"version of {name}": version for name, version in {"lethe": lethe.__version__, **versions()}.items()},
    }
    path = out.with_name(f"{out.name}.checkpoint")
    checkpoint = Checkpoint(path, run, torch.device(settings.device), checkpoint_s)
    checkpoint.require_same_run()
    model = load_language_model(folder, dtype=settings.dtype, device=settings.device)
    prompts = PromptFormat.of(model, system_prompt=settings.system_prompt)
    encoded = {name: [_encode(model, prompts, row, settings) for row in found] for name, found in rows.items()}
    answered = zip(rows["forget"], cycle(said), strict=False)
    refused = [encode_answer(model, prompts, row["question"], refusal) for row, refusal in answered]
    before, began = _losses(model, encoded), time.monotonic()
    epochs = own.get("EPOCHS", 1)
    loaders = {
        name: _Loader(model, each, settings, refused if name == "forget" else []) for name, each in encoded.items()
    }
    total = len(loaders["forget"]) * int(epochs if isinstance(epochs, int) else 1)
    loaders["forget"].checkpoint = checkpoint
    loaders["forget"].on_batch = lambda n: on_batch(min(n, total), total)
    torch.manual_seed(settings.seed)
    unlearning(_Answering(model.network), loaders.get("retain"), loaders["forget"], None)
    network: Any = model.network
    network.eval()
    record = {
        "format": FORMAT,
        "method": method,
        "constants": own,
        "folder": folder.name,
        "data": {
            name: {"sha256": found} | ({"rows": len(rows[name])} if name in rows else {})
            for name, found in hashes.items()
        },
        "settings": asdict(settings),
        "loss_before": before,
        "loss_after": _losses(model, encoded),
        "seconds": round(time.monotonic() - began, 1),
        "is_finite": not model.not_finite and all(bool(torch.isfinite(each).all()) for each in network.parameters()),
        "versions": versions(),
    }
    _write(out, model, record)
    checkpoint.remove()
    return record


def _write(out: Path, model: LanguageModel, record: Mapping[str, Any]) -> None:
    """Write the folder; it is there when all of it is."""
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    network: Any = model.network
    tokenizer: Any = model.tokenizer
    network.save_pretrained(part)
    tokenizer.save_pretrained(part)
    (part / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if out.exists():
        out.rmdir()
    part.rename(out)


class _Answering(nn.Module):
    """The network as methods call it: ids and mask give logits, whatever else the architecture's forward takes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = self.network(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
        return logits


class _Loader:
    """Batches of encoded answers, in another order in each pass. Padding and prompts have the label -100.

    The mask is that of the evaluation, and of open-unlearning's collator: of what is not the padding token.
    """

    def __init__(
        self, model: LanguageModel, answers: Sequence[Encoded], settings: UnlearningSettings, refused: Sequence[Encoded]
    ) -> None:
        self._model, self._answers, self._refused = model, answers, refused
        self._size = settings.batch_size
        self._generator = torch.Generator().manual_seed(settings.seed)
        self.checkpoint: Checkpoint | None = None
        self.on_batch: Callable[[int], None] = lambda _: None
        self._n_given = 0

    def __len__(self) -> int:
        return math.ceil(len(self._answers) / self._size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for rows in torch.split(torch.randperm(len(self._answers), generator=self._generator), self._size):
            self.on_batch(self._n_given)
            self._n_given += 1
            batch = self._batch([self._answers[row] for row in rows.tolist()])
            if self._refused:
                idk = self._batch([self._refused[row] for row in rows.tolist()])
                batch |= {f"idk_{name}": tensor for name, tensor in idk.items()}
            yield batch
        self.on_batch(self._n_given)

    def _batch(self, answers: Sequence[Encoded]) -> dict[str, Tensor]:
        ids, mask = pad([answer.ids for answer in answers], self._model.padding_id)
        labels = torch.full(ids.shape, -100)
        for row, answer in enumerate(answers):
            labels[row, answer.start : len(answer.ids)] = ids[row, answer.start : len(answer.ids)]
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _method(name: str, constants: Mapping[str, Value | str]) -> tuple[Callable[..., None], dict[str, Any]]:
    """Return the method's function, and its constants as they are set."""
    if name not in method_ids(TASK):
        why = f"is for tasks of kind {method_task(name)!r}" if name in method_ids() else "is not known"
        raise InvalidInput(f"method {name!r} {why}; allowed are {', '.join(method_ids(TASK))}")
    namespace: dict[str, Any] = {"__name__": f"lethe_method_{name}"}
    exec(compile(render(name, constants), f"{name}.py", "exec"), namespace)  # noqa: S102  a file of this package
    own = {constant.name: namespace[constant.name] for constant in method_info(name).constants}
    return namespace["unlearning"], own


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def _rows(path: Path) -> list[Row]:
    rows = read_rows(path, {})
    return read_rows(path, QUESTION if "question" in rows[0] else {"text": str})


def _refusals(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        found = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InvalidTaskData(f"{path} cannot be read: {error}") from error
    if not found:
        raise InvalidTaskData(f"{path} has no line: write one refusal a line")
    return found


def _encode(model: LanguageModel, prompts: PromptFormat, row: Row, settings: UnlearningSettings) -> Encoded:
    if "question" in row:
        return encode_answer(model, prompts, row["question"], row["answer"])
    return encode_passage(model, row["text"], longest=settings.passage_tokens)


def _losses(model: LanguageModel, encoded: Mapping[str, Sequence[Encoded]]) -> dict[str, float | None]:
    means = {name: float(score_answers(model, each[:COMPARED]).loss.mean()) for name, each in encoded.items()}
    return {name: value if math.isfinite(value) and not model.not_finite else None for name, value in means.items()}

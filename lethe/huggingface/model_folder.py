"""A causal language model and its tokenizer from a folder that `save_pretrained` wrote, or from a LoRA adapter."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from lethe.data.tokenizers import load_transformers_tokenizer
from lethe.huggingface.results import InvalidModelFolder, Metrics, MetricValue, ModelMetrics
from lethe.text_files import read_text

DTYPES = {"auto": "auto", "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LanguageModel:
    """A loaded model. name: as results call it. on_progress: called with each number of sequences read or written.

    not_finite: holds its name once the network has given an output that is NaN or infinite. evaluated: what is known of
    its metrics.
    """

    name: str
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    on_progress: Callable[[int], None] = lambda _: None
    not_finite: set[str] = field(default_factory=set)
    evaluated: ModelMetrics = field(default_factory=ModelMetrics)

    def define(self, name: str, compute: Callable[[], MetricValue], *, is_inner: bool = False) -> None:
        """Say how a metric is computed: once, and only if it is asked for or another one needs it.

        is_inner: it is no result of its own, but what several metrics are made of.
        """
        self.evaluated.define(name, compute, is_inner=is_inner)

    def metric(self, name: str) -> MetricValue:
        """Return a metric that is defined, a kept one where an evaluation was interrupted after it."""
        return self.evaluated.get(name, may_keep=lambda: not self.not_finite)

    def metrics(self) -> Metrics:
        """Return the metrics that are asked for and those that they are made of; all where none is named."""
        return self.evaluated.compute(may_keep=lambda: not self.not_finite)

    @property
    def end_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def padding_id(self) -> int:
        return int(self.tokenizer.pad_token_id)

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def n_positions(self) -> int | None:
        """How many tokens it takes at once, by its configuration; None where that says nothing."""
        found = getattr(self.network.config.get_text_config(), "max_position_embeddings", None)
        return found if isinstance(found, int) and found > 0 else None


def load_language_model(
    folder: Path, *, dtype: str = "auto", device: str = "cpu", on_progress: Callable[[int], None] = lambda _: None
) -> LanguageModel:
    """Return the model of a folder, in evaluation mode, with its own tokenizer.

    A folder without config.json may hold one GGUF file; its weights are dequantised to float32.

    A LoRA folder (`adapter_config.json`) names the folder of its base model, which must be on this machine too. A
    tokenizer without a padding token pads with its end token, as open-unlearning does.

    dtype: "auto" keeps the stored one. Raises InvalidModelFolder if the folder holds no weights in safetensors, needs
    code of its own, or does not fit its configuration.
    """
    require_settings([folder], dtype=dtype, device=device)
    base, adapter = base_and_adapter(folder)
    gguf = _gguf(base)
    if not gguf:
        require_plain_weights(base)
    try:
        config = AutoConfig.from_pretrained(base, local_files_only=True, trust_remote_code=False, **gguf)
        if dtype == "auto":
            _require_plain_dtype(base, config)
        untyped: Any = AutoModelForCausalLM
        is_capped = getattr(config, "attn_logit_softcapping", None)  # Gemma 2; torch's fused attention leaves it out
        network, report = untyped.from_pretrained(
            base,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=DTYPES[dtype],
            attn_implementation="eager" if is_capped else "sdpa",
            ignore_mismatched_sizes=True,  # refused below, by name
            output_loading_info=True,
            **gguf,
        )
        if gguf:
            network.hf_quantizer, network.is_quantized = None, False  # its weights are plain by now
            del network.config.quantization_config  # a network with it cannot be saved
        else:
            _require_all_weights(base, report)
        if adapter is not None:
            network = _with_adapter(network, adapter)
        with_tokenizer = adapter if adapter is not None and (adapter / "tokenizer_config.json").exists() else base
        tokenizer = load_transformers_tokenizer(with_tokenizer, **_gguf(with_tokenizer))
    except (OSError, ImportError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise InvalidModelFolder(f"{folder} cannot be loaded as a causal language model: {error}") from error
    if tokenizer.eos_token_id is None:
        raise InvalidModelFolder(f"the tokenizer of {folder} has no end-of-sequence token; set eos_token")
    known = network.get_input_embeddings().num_embeddings
    if tokenizer.vocab_size > known:  # without tokens that were added, which a model may lack
        raise InvalidModelFolder(f"the tokenizer of {folder} has {tokenizer.vocab_size} tokens, its model {known}")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    placed: Any = network
    placed.requires_grad_(True)  # merging an adapter leaves its base frozen
    model = LanguageModel(folder.name, placed.to(device).eval(), tokenizer, on_progress)
    placed.register_forward_hook(_Watch(model), with_kwargs=True)
    return model


@dataclass(frozen=True)
class _Watch:
    """Notes that outputs are not finite, and puts numbers in their place, so that an evaluation comes to its end."""

    model: LanguageModel

    def __call__(self, _: Any, __: Any, given: Mapping[str, Any], output: Any) -> None:
        logits = getattr(output, "logits", None)
        if logits is None or bool(torch.isfinite(logits.detach().sum())):
            return
        wrong = torch.isnan(logits) | (logits == torch.inf)  # a token that is never written may have -inf
        mask = given.get("attention_mask")
        if mask is not None and mask.ndim == 2 and mask.shape[1] >= logits.shape[1]:  # padding has no meaning
            wrong = wrong & mask[:, mask.shape[1] - logits.shape[1] :, None].bool()
        if bool(wrong.any()):
            self.model.not_finite.add(self.model.name)
            output.logits = torch.nan_to_num(logits, nan=0.0, posinf=0.0, neginf=0.0)


def require_settings(folders: Sequence[Path], *, dtype: str, device: str) -> None:
    """Raise InvalidModelFolder for a folder that is not there, or a dtype or device that cannot be."""
    if dtype not in DTYPES:
        raise InvalidModelFolder(f"dtype {dtype!r} is not known; allowed are {', '.join(DTYPES)}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0]
        raise InvalidModelFolder(f"device {device!r} cannot be used here: {why}") from error
    for folder in folders:
        base_and_adapter(folder)


def base_and_adapter(folder: Path) -> tuple[Path, Path | None]:
    """Return the folder of the weights, and of the adapter that changes them. Raises InvalidModelFolder."""
    if not folder.is_dir():
        hint = "; give the folder that it lies in" if folder.is_file() else ""
        raise InvalidModelFolder(f"{folder} is not a folder{hint}")
    adapter_config = folder / "adapter_config.json"
    if not adapter_config.exists():
        return folder, None
    named = _read_json(adapter_config).get("base_model_name_or_path")
    candidates = [Path(str(named)), folder / str(named)]
    found = next((path for path in candidates if path.is_dir()), None)
    if found is None:
        raise InvalidModelFolder(
            f"{adapter_config} names the base model {named!r}, which is not a folder here; nothing is downloaded: "
            "write the folder of the base model there"
        )
    return found, folder


def _gguf(folder: Path) -> dict[str, Any]:
    """Return the argument that names a folder's GGUF file, where the folder has no other configuration."""
    files = sorted(path.name for path in folder.glob("*.gguf"))
    if (folder / "config.json").exists() or not files:
        return {}
    if len(files) > 1:
        raise InvalidModelFolder(f"{folder} holds {', '.join(files)}; keep one of them there")
    return {"gguf_file": files[0]}


def _require_plain_dtype(folder: Path, config: Any) -> None:
    stored = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    plain = [*DTYPES][1:]
    if stored not in (*plain, "float64"):
        raise InvalidModelFolder(f"the weights of {folder} are of type {stored}; allowed are {', '.join(plain)}")


def _require_all_weights(folder: Path, report: Any) -> None:
    """Raises InvalidModelFolder where the library would have drawn weights at random.

    report: missing_keys, names; mismatched_keys, names with the stored and the configured shape.
    """
    missing = sorted(report["missing_keys"])
    if missing:
        raise InvalidModelFolder(
            f"{folder} lacks {len(missing)} tensors that its config.json asks for, the first {missing[0]}"
        )
    if report["mismatched_keys"]:
        name, stored, wanted = min(report["mismatched_keys"])
        raise InvalidModelFolder(
            f"{name} of {folder} has the shape {tuple(stored)}; its config.json asks for {tuple(wanted)}"
        )


def require_plain_weights(folder: Path) -> None:
    """Raises InvalidModelFolder for a folder that needs code of its own, or holds no weights in safetensors."""
    if not (folder / "config.json").exists():
        raise InvalidModelFolder(f"{folder} holds no config.json; expected is a folder that `save_pretrained` wrote")
    config = _read_json(folder / "config.json")
    if config.get("auto_map"):
        raise InvalidModelFolder(
            f"{folder / 'config.json'} asks for code of its own (`auto_map`), which is never run; allowed are the "
            "architectures of the transformers library"
        )
    if quantised := config.get("quantization_config"):
        kind = quantised.get("quant_method", "unknown") if isinstance(quantised, dict) else quantised
        raise InvalidModelFolder(
            f"the weights of {folder} are quantised ({kind}), as its config.json says; allowed are plain ones in "
            "float32, bfloat16 or float16: load it with transformers, call `dequantize()` and save it"
        )
    if not any(folder.glob("*.safetensors")):
        raise InvalidModelFolder(f"{folder} holds no weights in safetensors{_advice(folder)}")


def _advice(folder: Path) -> str:
    if pickles := sorted(path.name for ending in ("bin", "pt", "pth") for path in folder.glob(f"*.{ending}")):
        named = ", ".join(pickles)
        return f"; {named} may run code when loaded and is refused: load it where you trust it, and save it again"
    if gguf := sorted(path.name for path in folder.glob("*.gguf")):
        return f"; {gguf[0]} is read only where no config.json lies beside it: put it into a folder of its own"
    return "; expected are files that `save_pretrained` wrote"


def _with_adapter(network: Any, adapter: Path) -> Any:
    from peft import PeftModel  # noqa: PLC0415  imported for adapters only: a second of start-up

    if not (adapter / "adapter_model.safetensors").exists():
        raise InvalidModelFolder(f"{adapter} holds no adapter_model.safetensors; other formats are refused")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft reads a property that transformers renamed
        return PeftModel.from_pretrained(network, adapter, local_files_only=True).merge_and_unload()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise InvalidModelFolder(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidModelFolder(f"{path} holds {type(found).__name__}; allowed is an object")
    return found

"""The device that computes: its arithmetic (float32, TF32, bfloat16 with float32 weights), generators and memory."""

import gc
import os
import traceback
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

Precision = Literal["float32", "tf32", "bf16"]

# cuBLAS reads this when its first context is made; it makes products repeatable when several streams are used
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# MKL reads this at its first product; else a product's last bits depend on where its arrays lie in memory (seen on AMD)
os.environ.setdefault("MKL_CBWR", "AUTO")


@contextmanager
def device_arithmetic(precision: Precision, device: torch.device) -> Iterator[None]:
    """Let a CUDA device's products and convolutions use TF32 or forbid it, and keep them repeatable.

    The switches are the process's, so they are set for the block alone: another split's may differ. A CPU has none.
    What has no repeatable kernel is computed all the same, with torch's warning.
    """
    if device.type != "cuda":
        yield
        return
    memory: Any = torch.utils.deterministic  # its switch is made when torch is imported
    mode, filling = torch.get_deterministic_debug_mode(), memory.fill_uninitialized_memory
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    conv = cudnn.conv  # type: ignore[attr-defined]  # made when torch is imported
    before = matmul.fp32_precision, conv.fp32_precision, cudnn.deterministic, cudnn.benchmark
    chosen = "tf32" if precision == "tf32" else "ieee"
    torch.set_deterministic_debug_mode("warn")  # sums that are scattered (index_add) are taken in one order
    memory.fill_uninitialized_memory = False  # a kernel more for each new tensor, to find bugs with
    matmul.fp32_precision, conv.fp32_precision, cudnn.deterministic, cudnn.benchmark = chosen, chosen, True, False
    try:
        yield
    finally:
        matmul.fp32_precision, conv.fp32_precision, cudnn.deterministic, cudnn.benchmark = before
        torch.set_deterministic_debug_mode(mode)
        memory.fill_uninitialized_memory = filling


def repeatable_attention(device: torch.device) -> AbstractContextManager[object]:
    """Return the context for a training step: the gradients of fused attention are summed in another order each time.

    Its forward pass alone is repeatable, so evaluation keeps it.
    """
    return sdpa_kernel(SDPBackend.MATH) if device.type == "cuda" else nullcontext()


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Compute on one CPU thread: how a sum is split among threads would change its last bits.

    Several processes of one thread each are also faster than one of several, once they compete for cores.
    """
    before = torch.get_num_threads()
    if device.type != "cpu" or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def zero_for_denormals(device: torch.device) -> Iterator[None]:
    """Let a CPU compute with 0 instead of numbers too small for their full precision (below 1.2e-38 in float32).

    They take a layer up to a hundred times as long, and a model may be made so that every layer meets them. The switch
    is the calling thread's: `one_thread` belongs around it.
    """
    if device.type != "cpu":
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context for a forward pass.

    Casts are not cached: a cache kept around several load_state_dict calls would reuse the first model's weights.
    """
    if precision != "bf16":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


def torch_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextmanager
def global_generators(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Let what draws from torch's global generators (initial weights, dropout) draw from `seed`; then restore them.

    device: whose generator is meant beside the processor's. `torch.manual_seed` also formats the stack of its caller
    for each kind of accelerator that the machine lacks.
    """
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        if devices:
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)
        yield


@torch.no_grad()
def round_weight(weight: Tensor, *, bits: int, inputs: tuple[int, ...]) -> None:
    """Round to the nearest of 2^bits - 1 values, evenly spaced and symmetric about zero, in place.

    inputs: the axes that are not the output channels; each channel has its own spacing, by its largest weight.
    """
    most = 2 ** (bits - 1) - 1
    spacing = weight.float().abs().amax(inputs, keepdim=True).clamp(min=torch.finfo().tiny) / most
    weight.copy_((weight.float() / spacing).round() * spacing)


@torch.no_grad()
def prune_weight(weight: Tensor, *, share: float) -> None:
    """Set the `share` of the weights that are smallest in absolute value to 0, in place; of equals the first ones."""
    flat = weight.abs().flatten()
    smallest = flat.argsort(stable=True)[: int(share * len(flat))]
    weight.copy_(weight.flatten().index_fill(0, smallest, 0.0).view_as(weight))


def quantize(network: nn.Module, *, bits: int) -> None:
    """Round the weights of every linear layer and convolution. Embeddings, norms and biases stay."""
    for weight in layer_weights(network):
        round_weight(weight, bits=bits, inputs=tuple(range(1, weight.ndim)))


def prune(network: nn.Module, *, share: float) -> None:
    """Prune each linear layer and convolution by itself."""
    for weight in layer_weights(network):
        prune_weight(weight, share=share)


def layer_weights(network: nn.Module) -> Collection[Tensor]:
    """Return the weights of linear layers and convolutions, output channels first."""
    return [module.weight for module in network.modules() if isinstance(module, nn.Linear | nn.Conv2d)]


_PHRASES = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # also said of a handle for which there is no space
    "CUDNN_STATUS_ALLOC_FAILED",
)


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or its cause, means that the device ran out of memory.

    Only torch's own allocator raises OutOfMemoryError. Libraries and the driver raise a RuntimeError that says so, and
    the end of a graph whose capture broke off raises one more in its place.
    """
    return any(
        isinstance(cause, torch.OutOfMemoryError)
        or (isinstance(cause, RuntimeError) and any(phrase in str(cause) for phrase in _PHRASES))
        for cause in causes(error)
    )


def let_go_of_tensors(error: BaseException) -> None:
    """Forget where an error and those it came out of were raised: these calls keep their tensors alive with it."""
    for cause in causes(error):
        cause.__traceback__ = None


@contextmanager
def memory_given_back(device: torch.device) -> Iterator[None]:
    """Give the device what the block has used of its memory, and torch would keep for its own next use.

    A worker that trained models runs submissions next, in other processes, on the same device. An error on its way out
    says where it was raised, and has nothing left of what those calls held.
    """
    try:
        yield
    except BaseException as error:
        for cause in causes(error):
            traceback.clear_frames(cause.__traceback__)
        raise
    finally:
        if device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the one it came out of, and so on to the first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__

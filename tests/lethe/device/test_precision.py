"""What a device is told, and what is said where its memory is full."""

import traceback
import weakref
from typing import Any

import pytest
import torch

from lethe.device import device_arithmetic, memory_given_back, repeatable_attention

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def switches() -> dict[str, Any]:
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return {
        "matmul": cuda.matmul.fp32_precision,
        "convolution": cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
        "cudnn deterministic": cudnn.deterministic,
        "cudnn benchmark": cudnn.benchmark,
        "debug mode": torch.get_deterministic_debug_mode(),
        "fills memory": torch.utils.deterministic.fill_uninitialized_memory,
        "fused attention": cuda.flash_sdp_enabled() or cuda.mem_efficient_sdp_enabled() or cuda.cudnn_sdp_enabled(),
    }


@pytest.mark.parametrize(("precision", "expected"), [("float32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee")])
def test_a_cuda_device_computes_as_asked_and_repeatably(precision: Any, expected: str) -> None:
    before = switches()
    with device_arithmetic(precision, CUDA):
        inside = switches()
    assert inside["matmul"] == inside["convolution"] == expected
    assert (inside["cudnn deterministic"], inside["cudnn benchmark"]) == (True, False)
    assert inside["debug mode"] == 1  # scattered sums in one order; a warning where there is no such kernel
    assert not inside["fills memory"]
    assert switches() == before


def test_the_switches_are_put_back_after_an_error() -> None:
    before = switches()
    with pytest.raises(ZeroDivisionError), device_arithmetic("tf32", CUDA), repeatable_attention(CUDA):
        raise ZeroDivisionError
    assert switches() == before


def test_training_on_cuda_uses_deterministic_attention() -> None:
    before = switches()
    with repeatable_attention(CUDA):
        assert not switches()["fused attention"]
        assert torch.backends.cuda.math_sdp_enabled()
    assert switches() == before


def test_a_cpu_has_no_switches() -> None:
    before = switches()
    with device_arithmetic("tf32", CPU), repeatable_attention(CPU):
        assert switches() == before


@pytest.mark.parametrize(("device", "times"), [("cuda", 1), ("cpu", 0)])
def test_memory_is_released_after_the_block_even_on_error(monkeypatch, device, times):
    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    with pytest.raises(ZeroDivisionError), memory_given_back(torch.device(device)):
        _ = 1 // len(emptied)  # nothing is emptied by then
    assert len(emptied) == times


def test_propagating_error_keeps_no_frames_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    alive_then: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive_then.extend(tensor() is not None for tensor in held))

    def fails() -> None:
        inner = torch.empty(1)
        held.append(weakref.ref(inner))
        raise ZeroDivisionError

    def fails_by_it() -> None:
        outer = torch.empty(1)
        held.append(weakref.ref(outer))
        try:
            fails()
        except ZeroDivisionError as error:
            raise RuntimeError("no room") from error

    with pytest.raises(RuntimeError, match="no room") as failed, memory_given_back(torch.device("cuda")):
        fails_by_it()
    assert alive_then == [False, False]
    assert "fails_by_it" in [frame.name for frame in traceback.extract_tb(failed.value.__traceback__)]

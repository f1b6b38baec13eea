"""What a CUDA device is told, looked at without one: the switches are the process's."""

from typing import Any

import pytest
import torch

from lethe.device.precision import device_arithmetic, repeatable_attention

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

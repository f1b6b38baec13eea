"""Every method on networks whose code it has never seen: a small vision transformer and a ConvNeXt of timm."""

import pytest
import torch

from lethe.methods import cfw, eu_k
from lethe.methods.catalogue import method_ids
from tests.lethe.methods import tiny_data
from tests.lethe.methods.tiny_data import changed, make_problem, run_method

pytestmark = pytest.mark.usefixtures("trusted_network_source")

pytest.importorskip("timm", reason="timm is not installed: it comes with the extra `networks`")

LAYERS = {"timm_vit": ("patch_embed.proj.", "head."), "timm_convnext": ("stem.0.", "head.fc.")}  # first and last
SOURCES = {
    "timm_vit": """
from timm.models.vision_transformer import VisionTransformer
def build(input_shape, n_classes):
    channels, side, _ = input_shape
    return VisionTransformer(img_size=side, patch_size=4, in_chans=channels, num_classes=n_classes,
                             embed_dim=12, depth=2, num_heads=3)
""",
    "timm_convnext": """
from timm.models.convnext import ConvNeXt
def build(input_shape, n_classes):
    return ConvNeXt(in_chans=input_shape[0], num_classes=n_classes, depths=(1, 1, 1, 1),
                    dims=(4, 4, 8, 8), output_stride=8)
""",
}


@pytest.fixture(autouse=True)
def timm_networks(monkeypatch):
    for kind, source in SOURCES.items():
        description = {"name": "module", "options": {"source": source}}
        monkeypatch.setitem(tiny_data.NETWORKS, kind, description)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("method_id", method_ids())
def test_method_leaves_a_timm_network_of_the_same_form(method_id, kind):
    problem = run_method(method_id, kind)
    state = problem.net.state_dict()
    form = {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
    assert form == {name: (tensor.shape, tensor.dtype) for name, tensor in problem.before.items()}
    assert all(tensor.isfinite().all() for tensor in state.values())
    assert changed(problem) or method_id in {"original", "ssd", "ssd_adaptive", "neggrad_clamped"}


@pytest.mark.parametrize("kind", SOURCES)
def test_last_layer_of_a_timm_network_is_its_classifier(kind, monkeypatch):
    monkeypatch.setattr(eu_k, "K", 1)
    assert changed(run_method("eu_k", kind)) == {LAYERS[kind][1] + name for name in ("weight", "bias")}


@pytest.mark.parametrize("kind", SOURCES)
def test_noise_of_cfw_falls_on_the_first_convolution_of_a_timm_network(kind):
    problem = make_problem(kind)
    torch.manual_seed(0)
    cfw.add_noise(problem.net, 0.5)
    assert changed(problem)
    assert changed(problem) <= {LAYERS[kind][0] + name for name in ("weight", "bias")}

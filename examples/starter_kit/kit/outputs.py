"""What a score is computed from, of one network that classifies images."""

import torch
from kit.builders import to_inputs
from kit.scoring.arrays import logit_scaled_confidences


def load_outputs(net, data):
    """Return a network's confidences on the forget set and its accuracies on retain and validation."""
    net = net.eval()
    with torch.inference_mode():
        forget = compute_logits(net, data.forget).numpy()
        return (
            logit_scaled_confidences(forget, data.forget.stored.labels.numpy()),
            accuracy_of(net, data.retain),
            accuracy_of(net, data.validation),
        )


def compute_logits(net, dataset, batch_size=256):
    parts = torch.split(dataset.stored.images, batch_size)
    return torch.cat([net(to_inputs(part, dataset.network)).float() for part in parts])


def accuracy_of(net, dataset):
    return (compute_logits(net, dataset).argmax(dim=1) == dataset.stored.labels).double().mean().item()

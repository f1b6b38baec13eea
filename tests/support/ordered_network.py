"""Source of a network with a buffer of whole numbers: the order in which it reads its inputs."""

SOURCE = """
import torch
from torch import nn

class Ordered(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("order", ORDER)

    def forward(self, x):
        return x.flatten(1)[:, self.order]

def build(input_shape, n_classes):
    n = input_shape[0] * input_shape[1] * input_shape[2]
    return nn.Sequential(Ordered(n), nn.Linear(n, 16), nn.ReLU(), nn.Linear(16, n_classes))
"""
IN_ORDER = SOURCE.replace("ORDER", "torch.arange(n)")
OWN_ORDER = SOURCE.replace("ORDER", "torch.randperm(n)")

"""Networks of the unlearning papers that torchvision does not have. Imports torch only."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

Shape = tuple[int, int, int]  # channels, height, width


class Mlp(nn.Sequential):
    """Perceptron over the flattened image, ReLU between its layers."""

    def __init__(self, input_shape: Shape, n_classes: int, *, hidden: Sequence[int] = (64,)) -> None:
        sizes = [prod(input_shape), *hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], n_classes))


class SmallCnn(nn.Module):
    """3x3 convolutions, each followed by ReLU and (while the image allows) 2x2 pooling; global mean; linear."""

    def __init__(self, input_shape: Shape, n_classes: int, *, widths: Sequence[int] = (8, 16, 32)) -> None:
        super().__init__()
        sizes = [input_shape[0], *widths]
        self.convolutions = nn.ModuleList(nn.Conv2d(before, after, 3, padding=1) for before, after in pairwise(sizes))
        self.classifier = nn.Linear(sizes[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = functional.relu(convolution(x))
            if min(x.shape[-2:]) >= 2:
                x = functional.max_pool2d(x, 2)
        features: Tensor = x.mean(dim=(2, 3))
        logits: Tensor = self.classifier(features)
        return logits


class _CifarBlock(nn.Module):
    """Two 3x3 convolutions and the parameter-free shortcut (option A) of He et al. 2016, section 4.2."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.stride = stride
        self.new_channels = after - before

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            low = self.new_channels // 2
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, low, self.new_channels - low))
        return functional.relu(out + shortcut)


class CifarResNet(nn.Module):
    """ResNet of depth 6n+2 for small images (16-32-64 channels): ResNet-20, -56, -110."""

    def __init__(self, input_shape: Shape, n_classes: int, *, depth: int) -> None:
        if (depth - 2) % 6 != 0 or depth < 8:
            raise ValueError(f"depth must be 6n+2 with n >= 1 (8, 14, 20, 32, 44, 56, 110), was {depth}")
        super().__init__()
        self.conv1 = nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        blocks: list[nn.Module] = []
        before = 16
        for stage, width in enumerate((16, 32, 64)):
            for index in range((depth - 2) // 6):
                blocks.append(_CifarBlock(before, width, 2 if stage and index == 0 else 1))
                before = width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(64, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        features = self.blocks(functional.relu(self.bn1(self.conv1(x)))).mean(dim=(2, 3))
        logits: Tensor = self.fc(features)
        return logits


class AllCnn(nn.Sequential):
    """All-CNN-C (Springenberg et al. 2015) with batch normalisation, as unlearning papers use it."""

    def __init__(self, input_shape: Shape, n_classes: int, *, width: int = 96) -> None:
        wide = 2 * width

        def step(before: int, after: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
            padding = 1 if kernel == 3 else 0
            conv = nn.Conv2d(before, after, kernel, stride=stride, padding=padding, bias=False)
            return [conv, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]

        super().__init__(
            *step(input_shape[0], width),
            *step(width, width),
            *step(width, width, stride=2),
            *step(width, wide),
            *step(wide, wide),
            *step(wide, wide, stride=2),
            *step(wide, wide),
            *step(wide, wide, kernel=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(wide, n_classes),
        )


class SmallVit(nn.Module):
    """Vision transformer for small pictures: patches, a class token, learned positions, pre-norm blocks."""

    def __init__(
        self, input_shape: Shape, n_classes: int, *, patch: int = 4, width: int = 192, depth: int = 6, heads: int = 3
    ) -> None:
        channels, height, across = input_shape
        if height % patch or across % patch:
            raise ValueError(f"patch must divide the picture's {height}x{across} pixels, was {patch}")
        if width % heads:
            raise ValueError(f"width must be a multiple of heads ({heads}), was {width}")
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, (height // patch) * (across // patch) + 1, width))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.positions
        for block in self.blocks:
            tokens = block(tokens)
        logits: Tensor = self.head(self.norm(tokens[:, 0]))
        return logits

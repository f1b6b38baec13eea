"""Fine-tune on what is retained, after a little noise on the last layer. Make it better.

`net` holds the original weights; change it in place, or return another network of the same form. The loaders give
dicts with image, image_id, label (also called age_group), age and person_id. Write `# lethe: samples = tuple` at the
top of this file for batches of (inputs, targets) instead.
"""

import torch
from torch import nn


def unlearning(net, retain_loader, forget_loader, val_loader):
    """Unlearn the forget set. Called once for every run, each time on the original model with another seed."""
    device = next(net.parameters()).device
    last = [module for module in net.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.add_(0.05 * last.weight.std() * torch.randn_like(last.weight))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    net.train()
    for batch in retain_loader:
        inputs, targets = batch["image"].to(device), batch["label"].to(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
    net.eval()

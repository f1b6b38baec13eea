"""Make the forgotten answers less likely while the retained ones are repeated. Make it better.

`net` holds the original weights and gives logits for `net(input_ids, attention_mask)`; change it in place, or return
another network of the same form. The loaders give dicts with input_ids, attention_mask and labels (-100 where a token
is not part of an answer); those of the forget set also give a refusal to each question, in names that begin with idk_.
"""

import torch
from torch import nn

EPOCHS = 2
LR = 5e-4


def unlearning(net, retain_loader, forget_loader, val_loader):
    """Unlearn the forget set. Called once for every run, each time on the original model with another seed."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
    net.train()
    for _ in range(EPOCHS):
        for forget, retain in zip(forget_loader, retain_loader, strict=False):
            optimizer.zero_grad()
            (answer_loss(net, retain) - 0.3 * answer_loss(net, forget)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    net.eval()


def answer_loss(net, batch):
    """Return the mean cross-entropy of the tokens of the answers."""
    device = next(net.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    logits = net(batch["input_ids"], batch["attention_mask"])
    return nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:])

"""Original: return the network as it was given.

Nothing is changed, so everything is remembered. It marks the lower end of every measure of forgetting. A method that
scores no better has forgotten nothing that the measure sees.

Pseudo-code:
    return the network

Source: Triantafillou et al. 2024, section 5; Cadet et al. 2024.
Budget: 0 of retraining.
Deterministic: yes
Differences: none.
Needs: nothing
"""

from typing import Any

from torch import nn


def unlearning(net: nn.Module, retain_loader: Any, forget_loader: Any, val_loader: Any) -> None:
    net.eval()

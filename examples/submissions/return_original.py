"""Change nothing. Whoever forgets nothing should score nothing."""


def unlearning(net, retain_loader, forget_loader, val_loader):
    pass

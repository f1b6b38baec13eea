# Tries to import the scorer, the server and the trusted side of the sandbox. Must end in: weights
def unlearning(net, retain, forget, validation):
    import importlib

    for name in ("worker", "lethe.metrics.scoring", "server", "server.config", "sandbox.launcher", "sandbox.verdict"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        raise AssertionError("breach: " + name)

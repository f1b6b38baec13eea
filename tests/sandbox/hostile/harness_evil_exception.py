# Tries to fail with an exception whose names are megabytes. Must end in: exception|log-limit
def unlearning(net, retain, forget, validation):
    raise type("E" * 1_000_000, (Exception,), {})("x" * 10_000)

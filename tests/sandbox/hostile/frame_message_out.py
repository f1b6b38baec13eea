# Tries to carry hidden data out in an exception's name. Must end in: exception
def unlearning(net, retain, forget, validation):
    digest = "".join(chr(97 + int(value) % 26) for value in next(iter(forget))["age_group"][:50])
    raise type("Leak_" + digest, (ValueError,), {})("x")

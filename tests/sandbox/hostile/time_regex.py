# Tries to hold the interpreter's lock in one call. Must end in: timeout|time-limit
def unlearning(net, retain, forget, validation):
    import re

    re.match("(a+)+$", "a" * 64 + "b")

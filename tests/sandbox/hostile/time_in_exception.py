# Tries to run for ever while its exception is printed. Must end in: timeout|time-limit
def unlearning(net, retain, forget, validation):
    class Endless(Exception):
        def __str__(self):
            while True:
                pass

    raise Endless

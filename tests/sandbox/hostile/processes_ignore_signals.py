# Tries to ignore every signal and go on. Must end in: timeout|time-limit
def unlearning(net, retain, forget, validation):
    import signal

    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    while True:
        pass

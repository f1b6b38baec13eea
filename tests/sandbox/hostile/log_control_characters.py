# Tries to take over the operator's terminal from the log. Must end in: weights
def unlearning(net, retain, forget, validation):
    print("\x1b]0;owned\x07\x1b[2J\x1b[31m\x00\x08\r\u202etxt")

# Tries to stop instead of ending. Must end in: weights|idle|timeout
def unlearning(net, retain, forget, validation):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSTOP)

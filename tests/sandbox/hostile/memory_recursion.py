# Tries to overflow the stack. Must end in: out-of-memory|exception|killed
def unlearning(net, retain, forget, validation):
    import sys

    sys.setrecursionlimit(10**9)

    def deeper():
        return deeper() + 1

    deeper()

# Tries to return a state that is not what it says. Must end in: wrong-weights|exception
def unlearning(net, retain, forget, validation):
    class Strange(dict):
        def get(self, name, default=None):
            return "weights"

        def __getitem__(self, name):
            raise KeyError(name)

    net.state_dict = lambda: Strange(net.named_parameters())

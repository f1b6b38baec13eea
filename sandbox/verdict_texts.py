"""What a verdict says beside its class's message (lethe.runtime.error_classes)."""

BESIDE_THE_CODE = (
    " The file was sent along and lies beside the code, not in the current folder: open it by "
    "`pathlib.Path(__file__).parent / {name!r}`."
)
UNCHANGED = (
    "The weights that the run gave are the original model's, bit for bit. If it trained a copy (net = deepcopy(net)), "
    "return that copy, or change the network that it is given."
)
SAMPLES = {  # how the loaders of the run gave batches
    "dict": " Batches are dicts here: batch['image'], batch['label'] (also `x, y = batch`). For (inputs, targets) "
    "pairs begin the entry file with the line `# lethe: samples = tuple`.",
    "tuple": " Batches are pairs (inputs, targets) here. For dicts with the keys image, label, image_id, age and "
    "person_id begin the entry file with the line `# lethe: samples = dict`.",
}
WHICH_FILES_COUNT = "Name the models unlearned_checkpoint_<number>.pth, or list those that count in a submission.zip."
ORGANISERS_OVERFLOW = (
    " The competition's original model itself holds numbers there that half precision cannot; tell the organiser."
)
NOT_INSTALLED = " {module} is not installed on the server, and a run has no network to install it."
OTHER_VERSION = " The module is there, but not what the code imports from it: the server's version is another one."
NO_NETWORK = " There is no network in here: bring what the code downloads in a zip, or do without it."

"""What a verdict says: one message per class of error, with the limits that it names."""

ONCE = (
    "Each run ends with the first model, so it would be another one than in the notebook. Write each model once, when "
    "it is finished, beginning with the lowest number; or let the whole notebook run once, with a line "
    "`# lethe: mode = notebook`."
)
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
MESSAGES = {
    "timeout": "The run was stopped after {wall_time_s:g} s, the wall time of one run. Do fewer epochs or steps.",
    "time-limit": "The run used up its processor time of {cpu_allowance_s:.3g} s. Do fewer epochs or steps.",
    "idle": "The run did nothing for {idle_time_s:g} s and was stopped. Remove sleeps and waits.",
    "out-of-memory": "The run needed more than its {memory_mib} MiB of memory. Use smaller batches or fewer copies.",
    "process-limit": "The run started more than its {processes} processes and threads. Start fewer workers.",
    "log-limit": "The run printed more than {log_kib} KiB and was stopped. Print less; progress bars count.",
    "disk-limit": "The run filled its scratch space ({scratch_mib} MiB, {scratch_inodes} files, {file_size_mib} MiB "
    "in one file). Write less; nothing written there is kept.",
    "no-entry-point": "{entry_file} has no function named {entry_function}. Define it at the top level of that file.",
    "wrong-signature": "{entry_function} cannot be called with (net, retain, forget, validation). "
    "Accept those four, in that order.",
    "syntax-error": "{entry_file} is not valid Python. Try `python -m py_compile` on it.",
    "exception": "The code raised an exception. Run it on the public sample to see the full traceback.",
    "wrong-weights": "The unlearned model's state_dict differs from the original model's in names, shapes or dtypes. "
    "Change the network's values in place, not its structure.",
    "non-finite-weights": "The unlearned model holds NaN or infinity. Lower the learning rate or clip gradients.",
    "half-precision-overflow": "The unlearned model holds infinity where it was saved in half precision (float16), "
    "whose largest number is 65504. Save it in float32.",
    "huge-weights": "The unlearned model holds a value above {max_abs_weight:g}. Lower the learning rate.",
    "no-weights": "The run ended before its weights were complete. Return from {entry_function} normally; "
    "do not call exit.",
    "killed": "The run was ended by a signal. A crash in native code can cause this; run it on the public sample.",
    "cuda-required": "The code requires a GPU, and there is none here. Use the CPU where torch.cuda.is_available() "
    "is False.",
    "too-few-checkpoints": "The notebook left fewer models than the competition has runs. Save each as "
    "/kaggle/tmp/unlearned_checkpoint_<number>.pth.",
    "too-many-checkpoints": "The notebook wrote far more models than the competition has runs. "
    "Save each model once, when it is finished.",
    "unreadable-checkpoint": "One of the notebook's model files is not a state_dict. Write it with "
    "torch.save(net.state_dict(), path).",
    "wrong-return": "{entry_function} returned neither None nor a network. Return nothing, or only the network.",
    "no-model": "The notebook has ended without a model and without a function {entry_function}. Save each model as "
    "/kaggle/tmp/unlearned_checkpoint_<number>.pth, or define the function.",
    "skipped-name": "The code reads a name that a statement was to set which cannot run here.",
    "model-after-skip": "The notebook writes a model, but a statement before it cannot run here.",
    "one-model": "The notebook has ended before its second model.",
    "rewritten-model": "The notebook writes its first model a second time. " + ONCE,
    "unordered-models": "The notebook does not write its models in the order of their numbers. " + ONCE,
    "other-models": "The notebook's archive does not begin with the first model that it writes. " + ONCE,
    "stopped": "The server stopped the run; it does not count.",
    "host-fault": "The server had a problem. The run is repeated and does not count against your quota.",
}

OPEN_MESSAGES = {  # of a run whose output is shown
    "exception": "The code raised an exception. The output has the full traceback.",
    "killed": "The run was ended by a signal. A crash in native code can cause this; the output may say where.",
}
NOT_INSTALLED = " {module} is not installed on the server, and a run has no network to install it."
OTHER_VERSION = " The module is there, but not what the code imports from it: the server's version is another one."
NO_NETWORK = " There is no network in here: bring what the code downloads in a zip, or do without it."

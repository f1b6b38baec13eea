"""Whether a split can be prepared from a competition file: what preparing finds before it trains anything."""

from lethe.competition.file import CompetitionFile
from lethe.competition.training_cost import retraining_seconds
from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.preparation.cost_estimate import forward_operations
from lethe.preparation.public_sample import sample_parts
from lethe.preparation.task_kinds import task_preparation

SetSizes = dict[str, int]  # examples in retain, forget, validation and test


def check_preparation(competition: CompetitionFile) -> dict[Visibility, SetSizes]:
    """Open the dataset, build the network, cut both splits. Return the size of every set.

    Raises InvalidDataset where the data cannot be read, else InvalidSplit with everything that is wrong.
    """
    task = task_preparation(competition.task.kind)
    dataset = task.open_dataset(competition)
    wrong: list[str] = []
    sizes: dict[Visibility, SetSizes] = {}
    try:
        task.describe_network(competition, dataset)
    except InvalidSplit as error:
        wrong.append(error.detail)
    for visibility in Visibility:
        try:
            cut = task.cut(dataset, competition, visibility)
            sample_parts(cut.validation, competition)
            sizes[visibility] = {name: len(indices) for name, indices in cut.sets()}
        except InvalidSplit as error:
            wrong.append(error.detail)
    if wrong:
        raise InvalidSplit("\n".join(dict.fromkeys(wrong)))
    return sizes


def class_names(competition: CompetitionFile) -> tuple[str, ...]:
    """Return the names of the dataset's classes, in the order of their numbers; none where it has none."""
    dataset = task_preparation(competition.task.kind).open_dataset(competition)
    return tuple(getattr(dataset, "class_names", ()))


def estimated_retraining_s(competition: CompetitionFile, *, n_retain: int, device: str = "cpu") -> float:
    """Return about how long one model trains on the retain set, seconds, from shapes alone; 0 for tasks of text."""
    if competition.task.kind != "image-classification":
        return 0.0  # the number of tokens is known only when the data is cut
    task = task_preparation(competition.task.kind)
    network = task.describe_network(competition, task.open_dataset(competition))
    return retraining_seconds(forward_operations(network), competition.training, n_images=n_retain, device=device)

"""How much of a split's preparation is done, from the stage that its worker names."""

from lethe.competition.file import CompetitionFile

# What comes before the many models: steps by name, as progress shows them, in order.
BEGINNING = {
    "versions": "loading libraries",
    "data": "drawing the sets",
    "true-labels": "storing true labels",
    "batch-size": "choosing a batch size",
    "plan": "measuring how fast models train",
    "sample": "making the public sample",
    "sample-answers": "answering the public sample",
    "original": "original model",
    "timing": "timing one retraining",
}
RETRAINED, ORACLE, ORIGINALS = "retrained models", "oracle", "original models"
VARIATION = "retraining, {label}"
# Of small competitions. Of large ones they are less: who estimates the time left goes by the speed of late.
BEGINNING_SHARE, END_SHARE = 0.1, 0.1


def preparation_share(file: CompetitionFile, *, stage: str, progress: float) -> float:
    """Return the share of all work on a split that is done, 0 to 1, about.

    stage: as the worker names it; "" before it began. progress: done of that stage, 0 to 1. Models count alike,
    whichever set they belong to; a stage that is none of them and not of the beginning is one of the end.
    """
    if not stage:
        return 0.0
    beginning = ["starting", "check", *BEGINNING.values()]
    if stage in beginning:
        return BEGINNING_SHARE * beginning.index(stage) / len(beginning)
    models = _models(file)
    if stage not in models:
        return 1.0 - END_SHARE / 2
    names = list(models)
    before = sum(models[name] for name in names[: names.index(stage)])
    return models_share((before + models[stage] * progress) / sum(models.values()))


def models_share(trained: float) -> float:
    """Return the share of all work when `trained` of the models, 0 to 1, are trained."""
    return BEGINNING_SHARE + (1.0 - BEGINNING_SHARE - END_SHARE) * trained


def _models(file: CompetitionFile) -> dict[str, int]:
    """Return how many models each stage trains, in the order of the stages."""
    models = {RETRAINED: file.n_models, ORACLE: file.n_models}
    if file.scoring.setup == "reuse-n-n":
        models[ORIGINALS] = file.n_models
    if recipes := file.splits.recipes:
        models |= {VARIATION.format(label=each.label): recipes.models for each in recipes.variations}
    return models

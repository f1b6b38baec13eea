"""What made-up teams are called, what they note, and how their code fails."""

ADJECTIVES = tuple(
    "amber brisk calm deft eager frank gentle hazel ionic jolly keen lucid mellow noble opal plain quiet".split()  # noqa: SIM905 (a word on each line would fill a page)
)
NOUNS = tuple(
    "river heron lantern meadow orbit pebble quartz ridge sparrow thicket umbra valley willow yarrow zephyr".split()  # noqa: SIM905 (likewise)
)
NOTES = (
    "lower learning rate",
    "noise on the last block, then two epochs",
    "prune 5 %, fine-tune",
    "freeze batch norm",
    "gradient ascent for one step",
    "",
    "layer-wise rates",
    "cosine schedule",
)
ERRORS = (
    (
        "exception",
        {
            "message": "The code raised an exception. See submission.py, line 12.",
            "exception_type": "KeyError",
            "file": "submission.py",
            "line": 12,
        },
    ),
    ("timeout", {"message": "The run was stopped after 5 s, the wall time of one run. Do fewer epochs or steps."}),
    ("non-finite-weights", {"message": "The unlearned model holds NaN or infinity. The first is in 'fc.weight'."}),
)


def name_for(number: int) -> str:
    """Return the name of a team, and of the person who leads it. The first is `ada`."""
    if number == 0:
        return "ada"
    rounds, place = divmod(number, len(ADJECTIVES) * len(NOUNS))
    name = f"{ADJECTIVES[place % len(ADJECTIVES)]}-{NOUNS[place // len(ADJECTIVES)]}"
    return f"{name}-{rounds + 1}" if rounds else name

"""Every set of golden values by its file name. Each file of this folder named `*_sets.py` holds some of them."""

from tests.golden.attack_metric_sets import ATTACK_METRIC_SETS
from tests.golden.golden_set import GoldenSet
from tests.golden.image_metric_sets import IMAGE_METRIC_SETS
from tests.golden.method_sets import METHOD_SETS
from tests.golden.text_sets import TEXT_SETS

SETS: dict[str, GoldenSet] = {**IMAGE_METRIC_SETS, **ATTACK_METRIC_SETS, **METHOD_SETS, **TEXT_SETS}

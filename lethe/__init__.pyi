"""The types of what `lethe` loads when it is asked for."""

from lethe import loggers as loggers
from lethe import methods as methods
from lethe import metrics as metrics
from lethe import plots as plots
from lethe.api.benchmark_result import BenchmarkResult as BenchmarkResult
from lethe.api.benchmark_result import benchmark as benchmark
from lethe.api.evaluation import Evaluation as Evaluation
from lethe.api.evaluation import evaluate as evaluate
from lethe.api.method_runs import MethodRuns as MethodRuns
from lethe.api.score_result import ScoreResult as ScoreResult
from lethe.api.score_result import score as score
from lethe.api.split import Split as Split
from lethe.huggingface.unlearning import unlearn as unlearn

__version__: str

def make_callable(name: str) -> None: ...

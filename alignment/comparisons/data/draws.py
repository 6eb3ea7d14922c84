"""Step 2: the random parameters of training pictures, drawn as a run draws them, against the distributions that they ought to have.

Drawing stands once for both frameworks, so that a comparison of the two sides cannot see a mistake in it. Thousands of samples are
drawn through ``sample_params`` and ``mix_params`` from the run's own keys (seed, epoch, picture), and compared with what the
project's independent part (``alignment.draws.Draws``) draws or states.
"""

from __future__ import annotations

from alignment.comparisons.comparison import compare
from alignment.comparisons.context import Context
from alignment.comparisons.data.drawn_boxes import FUNCTIONS, AskedBoxes
from alignment.comparisons.data.drawn_mixing import MIXES, DrawnMixing, MixesApart
from alignment.comparisons.data.drawn_operations import Policies
from alignment.comparisons.data.drawn_padding import DrawnPadding
from alignment.comparisons.data.drawn_samples import POOLS, DrawnSamples
from alignment.comparisons.result import StepResult

DRAWN = (AskedBoxes, DrawnPadding, Policies, DrawnSamples, DrawnMixing, MixesApart)
TOPICS = (
    "random resized crops",
    "flips",
    "erased boxes",
    "autoaugment",
    "randaugment",
    "trivialaugment",
    "mixup",
    "cutmix",
)


def run(context: Context, result: StepResult) -> None:
    """A row for every distribution; a mistake is looked for in what draws by itself before what asks it to."""
    other, before = context.project.independent, len(result.compared)
    if other is None or other.draws is None:
        return
    functions = [compare(context, result, AskedBoxes(other.draws, what)) for what in FUNCTIONS]
    functions.append(compare(context, result, DrawnPadding(other.draws)))
    samples = [compare(context, result, DrawnSamples(other.draws, pool)) for pool in POOLS]
    policies = compare(context, result, Policies(other.draws))
    mixing = [compare(context, result, DrawnMixing(other.draws, mix)) for mix in MIXES]
    mixing.append(compare(context, result, MixesApart()))
    result.compared[before:] = [*functions, policies, *samples, *mixing]
    result.cover(*(f"distribution of {topic}" for topic in TOPICS), outside=True)

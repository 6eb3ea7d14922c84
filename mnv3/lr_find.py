"""Find a learning rate: train while it grows, and see where the loss begins to fall and where it is least.

    python tools/lr_find.py --config configs/digits.yaml --data-path digits --plot lr.png

The settings are those of tools/train.py; nothing of the run is kept but the figures.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.config_file import Parser, add_flags, make_config
from mobilenetv3_common.counted import counted
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import atomic_open
from mobilenetv3_common.json_output import add_output_flags, outputs_of, writable
from mobilenetv3_common.lr_range import RangeTest, growing_rates, mean_of
from mobilenetv3_common.packages import training_package
from mobilenetv3_common.train_config import TrainConfig


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="a recipe of configs/")
    parser.add_argument("--from", dest="low", type=float, default=1e-5, metavar="X", help="first learning rate (default: 1e-5)")
    parser.add_argument("--to", dest="high", type=float, default=1.0, metavar="X", help="last learning rate (default: 1)")
    parser.add_argument("--updates", type=int, default=200, metavar="N", help="updates from first to last (default: 200)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="number of seeds to average over (default: 3)")
    parser.add_argument("--plot", metavar="FILE.png", help="draw loss and accuracy over the learning rate here")
    add_output_flags(parser, "the figures")
    add_flags(parser, TrainConfig)
    flags = vars(parser.parse_args(argv))
    recipe, low, high, updates, plot = (flags.pop(n) for n in ("config", "low", "high", "updates", "plot"))
    outputs = outputs_of(flags)
    seeds = flags.pop("seeds")
    rates = growing_rates(low, high, updates)
    if not 1 <= seeds <= 100:
        raise UserError(f"--seeds must be from 1 to 100, found {seeds}")
    config = make_config(TrainConfig, recipe, flags)
    if not config.data_path:
        raise UserError("--data-path is missing: give a folder with train/ and val/, or train_list.txt and val_list.txt")
    writable(plot, "--plot")
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
    package = training_package(config.framework)
    with outputs.for_people(), package.started(config.device) as ranks:
        configs = [replace(config, seed=config.seed + number) for number in range(seeds)]
        test = mean_of([package.find_learning_rates(one, ranks, rates) for one in configs])
        if not ranks.first:
            return 0
    ended = f"diverged at learning rate {rates[len(test.rates)]:g}" if test.diverged else "did not diverge"
    with outputs.for_people():
        print(f"{counted(seeds, 'run')} of {len(test.rates)} updates from learning rate {rates[0]:g}; {ended}")
        lower, upper = test.interval()
        print(
            f"suggested learning rate: {test.suggested():.2g}; the loss begins to fall at {lower:.2g} and is least at {upper:.2g}"
        )
        if plot:
            draw(plot, test, (lower, upper), f"{config.model}, {config.optimizer}, {config.framework}")
            print(f"picture: {plot}")
    curves = {"lr": test.rates.tolist(), "loss": test.losses.tolist(), "top1": test.accuracies.tolist()}
    figures = {"suggested": test.suggested(), "interval": [lower, upper], "diverged": test.diverged, **curves}
    outputs.write(figures, indent=None)
    return 0


def draw(path: str, test: RangeTest, interval: tuple[float, float], title: str) -> None:
    """Accuracy and loss over the learning rate, the interval shaded, the suggested rate as a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(7, 5), layout="constrained")
    upper.semilogx(test.rates, test.accuracies, ".", ms=3, color="C7")
    upper.set(ylabel="training top-1", title=f"Learning-rate range test: {title}")
    lower.loglog(test.rates, test.losses, ".", ms=3, color="C7", label="each update, mean of the seeds")
    lower.loglog(test.rates, test.smoothed(), color="C1", label="smoothed")
    lower.axvline(test.suggested(), color="C2", label=f"suggested: {test.suggested():.2g}")
    lower.set(xlabel="learning rate", ylabel="training loss")
    lower.legend(fontsize=8)
    for axis in (upper, lower):
        axis.axvspan(*interval, color="C2", alpha=0.2)
        axis.grid(alpha=0.3)
    with atomic_open(path) as file:
        figure.savefig(file, format="png", dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())

"""A config of PaddlePaddle/models, or one that lacks lines, as the chains here read it: complete_config.py CONFIG DEFAULTS

Prints the lines of DEFAULTS, a config of this folder, with the values of CONFIG where it has them. Tools are those of this project,
pictures that are not here are lite_data's, and one line on standard error says what was taken from DEFAULTS and what is not used.
What this project cannot do is one line with the reason, and exit status 2.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# A line that only such a config has -> why it cannot be run here.
UNAVAILABLE = {
    "pact_train": "quantisation-aware training (PACT) needs PaddleSlim, which does not run on Paddle 3; int8 is made after "
    "training: test_ptq_inference_python.sh",
    "cls_model_path": "the C++ demo needs OpenCV and a Paddle Inference library built for it, neither of which pip installs; "
    "tools/infer.py runs the same exported model",
    "runtime_device": "Paddle Lite has no converter for Paddle 3's programs, and needs an ARM device; tools/infer.py --engine "
    "onnxruntime runs on ARM processors",
    "cpp_client": "Paddle Serving's C++ server is not built for Paddle 3; tools/serve.py is the service, and "
    "test_serving_infer_python.sh its chain",
}
COMMANDS = ("eval", "norm_export", "inference", "serving")
PATHS = ("train_infer_img_dir", "--data-path", "--img-path", "--calibration-data")
OTHERWISE = {"--data-dir": "--calibration-data", "--amp_level": "--amp-level"}
LOCAL = ("127.0.0.1", "localhost")


class Unavailable(Exception):
    """What a config asks for is not in this project."""


def lines_of(text: str) -> list[tuple[str, str]]:
    """Keys with their values, in order; a flag's underscores are hyphens."""
    found = []
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if colon and not line.startswith(("#", "=")):
            key = key.replace("_", "-") if key.startswith("--") else key
            found.append((OTHERWISE.get(key, key), value.strip()))
    return found


def refuse(text: str) -> None:
    """Raise for a config whose chain this project has not."""
    trainers = {value for key, value in lines_of(text) if key == "trainer"}
    words = {line.split(":")[0].split(" ")[0] for line in text.splitlines() if line.strip()}
    for key, reason in UNAVAILABLE.items():
        if key in trainers if key == "pact_train" else key in words:
            raise Unavailable(reason)


def tool(command: str) -> str | None:
    """A command with this project's tool in the place of the one that it names; None where there is none."""
    name, space, flags = command.partition(" ")
    own = name if Path(name).is_file() else f"tools/{Path(name).name}"
    return f"{own}{space}{flags}" if name.endswith(".py") and Path(own).is_file() else None


def usable(key: str, value: str, theirs: dict[str, list[str]]) -> str | None:
    """A line's value as the chains here take it; None where the default has to be taken."""
    if key in COMMANDS:
        return tool(value)
    if key in PATHS:
        paths = [part.rsplit("=", 1)[-1] for part in value.split("|")]
        return value if all(Path(path).exists() for path in paths if path != "data/imagenet") else None
    if key == "trainer":
        return value if all(tool(theirs.get(name, [""])[0]) for name in value.split("|")) else None
    if key == "train_model_name":
        return value.replace(".pdparams", ".safetensors")
    if key == "gpu_list":
        return value.rpartition(";")[2]
    return value


def complete(text: str, defaults: str, node_rank: str | None = None) -> tuple[list[str], str]:
    """The completed config's lines, and what to say of it.

    Args:
        text: of the config.
        defaults: of the config that has every line.
        node_rank: of this machine among several, None where there is one.
    """
    refuse(text)
    theirs: dict[str, list[str]] = {}
    for key, value in lines_of(text):
        theirs.setdefault(key, []).append(value)
    used, missing = {"python"}, []
    seen: dict[str, int] = {}
    if "--use-gpu" in theirs and "--device" not in theirs:  # the first of our two is the trainer's
        devices = [{"True": "gpu", "False": "cpu"}.get(part, part) for part in theirs["--use-gpu"][-1].split("|")]
        theirs["--device"] = ["auto", "|".join(devices)]
        used |= {"--use-gpu", "use-gpu"}
    if theirs.get("gpu_list", [""])[0].count(";") and "ips" not in theirs:
        theirs["ips"] = [theirs["gpu_list"][0].partition(";")[0]]
    if node_rank is None and any(part not in LOCAL for part in ",".join(theirs.get("ips", [])).split(",") if part):
        theirs["ips"] = [",".join(["127.0.0.1"] * len(theirs["ips"][0].split(",")))]
    made = []
    for key, default in lines_of(defaults):
        seen[key] = seen.get(key, 0) + 1
        given = theirs.get(key, [])
        value = usable(key, given[min(seen[key], len(given)) - 1], theirs) if given else None
        if value is not None:
            used.add(key)
        elif default != "null":
            missing.append(key)
        made.append(f"{key}:{default if value is None else value}")
    trainers = next(line for line in made if line.startswith("trainer:")).partition(":")[2].split("|")
    for name in trainers:
        if command := tool(theirs.get(name, [""])[0]):
            made = [line for line in made if not line.startswith(f"{name}:")] + [f"{name}:{command}"]
            used.add(name)
            if "--amp" in command:
                made = [line for line in made if not line.startswith("--amp-level:")] + ["--amp-level:null"]
    said = [f"taken from the default config: {', '.join(dict.fromkeys(missing))}"] if missing else []
    unused = [key for key in theirs if key not in used]
    said += [f"not used here: {', '.join(unused)}"] if unused else []
    return made, "; ".join(said)


def main() -> int:
    config, defaults = sys.argv[1:3]
    try:
        made, said = complete(Path(config).read_text(), Path(defaults).read_text(), os.environ.get("NODE_RANK"))
    except Unavailable as error:
        print(f"error: {config}: {error}", file=sys.stderr)
        return 2
    if said:
        print(f"note: {config}: {said}", file=sys.stderr)
    print("\n".join(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())

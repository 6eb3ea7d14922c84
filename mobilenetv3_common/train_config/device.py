"""Settings of the device and of the precision that the network is computed in."""

from __future__ import annotations

from dataclasses import dataclass

from mobilenetv3_common.train_config.section import Section, option


@dataclass(frozen=True)
class DeviceSettings(Section):
    """Device, precision, and what trades memory, time and repeatability."""

    TITLE = "precision and device"

    device: str = option("auto", "auto takes a GPU where there is one", ("auto", "cpu", "gpu"))
    amp_level: str = option("O0", "O0 float32, O1 automatic mixed precision, O2 weights in half precision", ("O0", "O1", "O2"))
    amp_dtype: str = option("float16", "half-precision type", ("float16", "bfloat16"))
    grad_checkpointing: bool = option(
        False, "compute each block again in the backward pass in the place of keeping what is in it: less memory, equal gradients"
    )
    deterministic: bool = option(False, "GPU: kernels that repeat to the last bit alone, some of them slower")
    channels_last: bool = option(False, "reference: pictures, weights and activations with channels last in memory")
    compile: bool = option(False, "reference: train with torch.compile; it needs a C++ compiler, and minutes at the first update")
    threads: int = option(0, "CPU threads of a rank's computations; 0 leaves the framework's choice", within="[0, 1024]")

"""PaddleMIX's ppdiffusers against diffusers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from projects.zoo.public.pair import PublicPair
from projects.zoo.public.repository import Repository
from projects.zoo.shells import hidden, make_importable, stand_in, standing_in

PADDLEMIX = Repository("PaddlePaddle/PaddleMIX", "6afaf05", "ppdiffusers/models", root="ppdiffusers", package="ppdiffusers")
UNET = {"sample_size": 16, "block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
UNET_2D = {**UNET, "in_channels": 3, "out_channels": 3, "attention_head_dim": 8}
UNET_2D |= {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
CONDITION = {**UNET, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 24, "attention_head_dim": 4}
CONDITION |= {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
VAE = {**UNET, "in_channels": 3, "out_channels": 3, "latent_channels": 4}
VAE |= {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
# Ways to load weights: the networks inherit from them.
LOADERS = (
    "FromOriginalVAEMixin",
    "FromOriginalControlnetMixin",
    "FromSingleFileMixin",
    "UNet2DConditionLoadersMixin",
    "PeftAdapterMixin",
)
# Imported beside the networks: other devices, encoders of texts, two ways to download, a log in colours.
UNUSED = (
    "ppdiffusers.accelerate",
    "ppdiffusers.accelerate.utils",
    "ppdiffusers.transformers",
    "aistudio_sdk",
    "aistudio_sdk.hub",
    "colorlog",
)


@cache
def _prepare(folder: Path) -> None:
    """Let one model be imported without the pipelines, the ways to load weights and what these need."""
    import huggingface_hub
    from huggingface_hub import constants

    make_importable(folder, ("ppdiffusers", "ppdiffusers.models"))
    for name in ("HfFolder", "cached_download"):  # imported, and gone from newer versions
        if not hasattr(huggingface_hub, name):
            setattr(huggingface_hub, name, None)
    if not hasattr(constants, "hf_cache_home"):  # its older name
        vars(constants)["hf_cache_home"] = constants.HF_HOME
    stand_in("ppdiffusers.loaders", __all__=[], **{name: type(name, (), {}) for name in LOADERS})
    stand_in("ppdiffusers.utils.accelerate_utils", apply_forward_hook=lambda function: function)  # hooks of other devices
    kept = np.bool
    with standing_in(*UNUSED), hidden("paddlenlp"):  # it does without, and a newer one needs much more
        from ppdiffusers.models import autoencoder_kl, unet_2d, unet_2d_condition  # noqa: F401
    vars(np)["bool"] = kept  # ppdiffusers sets Python's in its place, which numpy.ma cannot be imported with


def unet_2d(checkouts: str | None = None) -> Any:
    _prepare(PADDLEMIX.found(checkouts))
    from ppdiffusers.models.unet_2d import UNet2DModel

    return UNet2DModel(**UNET_2D)


def unet_2d_reference() -> Any:
    from diffusers import UNet2DModel

    return UNet2DModel(**UNET_2D)


def unet_2d_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Noise, and the step of each sample."""
    return {"sample": _normal(generator, samples, 3, 16, 16), "timestep": generator.integers(0, 1000, samples)}


def unet_2d_condition(checkouts: str | None = None) -> Any:
    _prepare(PADDLEMIX.found(checkouts))
    from ppdiffusers.models.unet_2d_condition import UNet2DConditionModel

    return UNet2DConditionModel(**CONDITION)


def unet_2d_condition_reference() -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(**CONDITION)


def unet_2d_condition_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Noise, the step of each sample, and five states of a text."""
    sample, text = _normal(generator, samples, 4, 16, 16), _normal(generator, samples, 5, 24)
    return {"sample": sample, "timestep": generator.integers(0, 1000, samples), "encoder_hidden_states": text}


def autoencoder_kl(checkouts: str | None = None) -> Any:
    _prepare(PADDLEMIX.found(checkouts))
    from ppdiffusers.models.autoencoder_kl import AutoencoderKL

    return AutoencoderKL(**VAE)


def autoencoder_kl_reference() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(**VAE)


def autoencoder_kl_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Pictures."""
    return {"sample": _normal(generator, samples, 3, 16, 16)}


def _normal(generator: np.random.Generator, *shape: int) -> np.ndarray:
    return generator.standard_normal(shape, dtype=np.float32)


PAIRS = (
    PublicPair(PADDLEMIX, unet_2d, unet_2d_reference, "diffusers UNet2DModel", unet_2d_inputs),
    PublicPair(
        PADDLEMIX, unet_2d_condition, unet_2d_condition_reference, "diffusers UNet2DConditionModel", unet_2d_condition_inputs
    ),
    PublicPair(PADDLEMIX, autoencoder_kl, autoencoder_kl_reference, "diffusers AutoencoderKL", autoencoder_kl_inputs),
)

"""PaddleSpeech's models of speech against those of transformers."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from alignment.kinds import Kind
from projects.zoo.public.pair import Difference, PublicPair
from projects.zoo.public.repository import Repository
from projects.zoo.shells import make_importable, stand_in, standing_in

PADDLESPEECH = Repository("PaddlePaddle/PaddleSpeech", "969f339", "paddlespeech/s2t/models", package="paddlespeech")
SHELLS = ("paddlespeech", "paddlespeech.s2t", "paddlespeech.s2t.models", "paddlespeech.s2t.modules", "paddlespeech.s2t.utils")
WAV2VEC2 = {
    "hidden_size": 32,
    "feat_extract_norm": "layer",
    "feat_extract_activation": "gelu",
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 2, 2],
    "conv_kernel": [10, 3, 3],
    "conv_bias": True,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "hidden_act": "gelu",
    "num_attention_heads": 4,
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "feat_proj_dropout": 0.1,
    "final_dropout": 0.1,
    "layerdrop": 0.1,
    "layer_norm_eps": 1e-5,
    "do_stable_layer_norm": True,
    "apply_spec_augment": False,
}
# What the port reads without a default, as transformers has it; nothing of it is in the model without its head.
WAV2VEC2_MORE = {
    "initializer_range": 0.02,
    "use_weighted_layer_sum": False,
    "mask_time_prob": 0.05,
    "mask_time_length": 10,
    "mask_time_min_masks": 2,
    "mask_feature_prob": 0.0,
    "mask_feature_length": 10,
    "mask_feature_min_masks": 0,
    "num_codevectors_per_group": 320,
    "num_codevector_groups": 2,
    "contrastive_logits_temperature": 0.1,
    "feat_quantizer_dropout": 0.0,
    "num_negatives": 100,
    "codevector_dim": 256,
    "proj_codevector_dim": 256,
    "diversity_loss_weight": 0.1,
    "add_adapter": False,
    "adapter_kernel_size": 3,
    "adapter_stride": 2,
    "num_adapter_layers": 3,
    "output_hidden_size": None,
}
WHISPER = {
    "vocab_size": 60,
    "num_mel_bins": 16,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_source_positions": 20,
    "max_target_positions": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@cache
def _prepare(folder: Path, *packages: str) -> None:
    """Let one model be imported without the others, their data pipelines and what these need."""
    make_importable(folder, (*SHELLS, *packages))
    stand_in("paddlespeech.s2t.utils.log", Log=lambda *_: SimpleNamespace(getlog=lambda: None))  # it imports loguru


def wav2vec2(checkouts: str | None = None) -> Any:
    _prepare(PADDLESPEECH.found(checkouts), "paddlespeech.s2t.models.wav2vec2", "paddlespeech.s2t.models.wav2vec2.modules")
    from paddlespeech.s2t.models.wav2vec2.modules.modeling_wav2vec2 import Wav2Vec2ConfigPure, Wav2Vec2Model

    return Wav2Vec2Model(Wav2Vec2ConfigPure(SimpleNamespace(**WAV2VEC2, **WAV2VEC2_MORE)))


def wav2vec2_reference() -> Any:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    return Wav2Vec2Model(Wav2Vec2Config(**WAV2VEC2))


def wav2vec2_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Sound: 600 standard normal numbers."""
    return {"input_values": generator.standard_normal((samples, 600), dtype=np.float32)}


@cache
def _prepare_whisper(folder: Path) -> None:
    _prepare(folder, "paddlespeech.s2t.models.whisper")
    # The tokenizer and the reading of files, which import more packages.
    stand_in("paddlespeech.s2t.models.whisper.tokenizer", get_tokenizer=None, LANGUAGES={}, Tokenizer=object)
    stand_in("paddlespeech.s2t.models.whisper.utils", exact_div=lambda a, b: a // b)
    import paddle
    from paddlespeech.s2t.modules import align

    # Its own layers set initial weights alone, and hand on one positional argument more than this Paddle takes.
    align.Conv1D, align.LayerNorm, align.Linear = paddle.nn.Conv1D, paddle.nn.LayerNorm, paddle.nn.Linear
    with standing_in("soundfile"):
        from paddlespeech.s2t.models.whisper import whipser  # noqa: F401


def whisper(checkouts: str | None = None) -> Any:
    _prepare_whisper(PADDLESPEECH.found(checkouts))
    from paddlespeech.s2t.models.whisper.whipser import ModelDimensions, Whisper

    audio = {"n_mels": 16, "n_audio_ctx": 20, "n_audio_state": 32, "n_audio_head": 4, "n_audio_layer": 2}
    text = {"n_vocab": 60, "n_text_ctx": 24, "n_text_state": 32, "n_text_head": 4, "n_text_layer": 2}
    return Whisper(ModelDimensions(**audio, **text))


def whisper_reference() -> Any:
    """The logits alone, from arguments of the port's names."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    class Logits(torch.nn.Module):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net

        def forward(self, mel: Any, tokens: Any) -> Any:
            return self.net(input_features=mel, decoder_input_ids=tokens, use_cache=False).logits

    return Logits(WhisperForConditionalGeneration(WhisperConfig(**WHISPER)))


def whisper_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Sound, and a text of which one token is the padding."""
    tokens = generator.integers(0, 59, (samples, 9))
    tokens[:, 6] = WHISPER["pad_token_id"]
    return {"mel": generator.standard_normal((samples, 16, 40), dtype=np.float32), "tokens": tokens}


_WHISPER = "paddlespeech/s2t/models/whisper/whipser.py"
PAIRS = (
    PublicPair(PADDLESPEECH, wav2vec2, wav2vec2_reference, "transformers Wav2Vec2Model", wav2vec2_inputs),
    PublicPair(
        PADDLESPEECH,
        whisper,
        whisper_reference,
        "transformers WhisperForConditionalGeneration",
        whisper_inputs,
        (
            Difference(
                "embedding: the row of the padding token has a gradient; the reference has padding_idx",
                _WHISPER,
                "self.token_embedding = nn.Embedding(n_vocab, n_state)",
                (Kind.PADDING_INDEX,),
                ("net.model.decoder.embed_tokens",),
            ),
            Difference(
                "embedding: the fresh row of the padding token is random, the reference's is zero",
                _WHISPER,
                "self.token_embedding = nn.Embedding(n_vocab, n_state)",
                (Kind.INITIALISATION,),
                ("net.model.decoder.embed_tokens.weight",),
            ),
            Difference(
                "the causal mask is as wide as a state, so that longer texts fail",
                _WHISPER,
                "shape=[n_ctx, n_state], fill_value=-np.inf",
            ),
        ),
    ),
)

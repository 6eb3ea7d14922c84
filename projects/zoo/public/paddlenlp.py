"""PaddleNLP's language models against those of transformers."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from alignment.kinds import Kind
from projects.zoo.public.pair import Difference, PublicPair
from projects.zoo.public.repository import Repository
from projects.zoo.shells import make_importable, standing_in

PADDLENLP = Repository("PaddlePaddle/PaddleNLP", "2.8.1", "paddlenlp/transformers", package="paddlenlp")
MODELS = ("bert", "electra", "roberta", "llama", "t5")
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 40}
ROBERTA = {**BERT, "vocab_size": 90, "layer_norm_eps": 1e-12, "type_vocab_size": 2, "pad_token_id": 1}
LLAMA = {"vocab_size": 80, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA |= {"num_key_value_heads": 2, "max_position_embeddings": 32, "use_cache": False}
T5 = {"vocab_size": 70, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}


@cache
def _prepare(folder: Path) -> None:
    """Let one model be imported without the others, their data pipelines and what these need."""
    import huggingface_hub

    models = (f"paddlenlp.transformers.{name}" for name in MODELS)
    make_importable(folder, ("paddlenlp", "paddlenlp.transformers", "paddlenlp.data", *models))
    vars(sys.modules["paddlenlp"])["__version__"] = PADDLENLP.version  # the configurations read it
    for name in ("repo_type_and_id_from_hf_id", "HfFolder", "cached_download"):  # imported, and gone from newer versions
        if not hasattr(huggingface_hub, name):
            setattr(huggingface_hub, name, None)
    # A log in colours, two ways to download, templates of chats: no network uses them.
    with standing_in("colorlog", "aistudio_sdk", "aistudio_sdk.hub", "jinja2", "jinja2.exceptions", "jinja2.sandbox"):
        from paddlenlp.transformers import configuration_utils, model_utils

        # The networks import these from paddlenlp.transformers, whose __init__ would give it them.
        shell = vars(sys.modules["paddlenlp.transformers"])
        shell["PretrainedConfig"] = configuration_utils.PretrainedConfig
        shell["PretrainedModel"] = model_utils.PretrainedModel
        shell["register_base_model"] = model_utils.register_base_model
        for name in MODELS:
            importlib.import_module(f"paddlenlp.transformers.{name}.modeling")


def bert(checkouts: str | None = None) -> Any:
    _prepare(PADDLENLP.found(checkouts))
    from paddlenlp.transformers.bert.configuration import BertConfig
    from paddlenlp.transformers.bert.modeling import BertModel

    return BertModel(BertConfig(vocab_size=90, type_vocab_size=2, **BERT))


def bert_reference() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(vocab_size=90, type_vocab_size=2, **BERT))


def bert_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Two segments of tokens; every second text ends with three of padding."""
    tokens = generator.integers(3, 86, (samples, 12))
    tokens[1::2, -3:] = 0
    return {"input_ids": tokens, "token_type_ids": np.repeat([[0, 1]], 6, 1).repeat(samples, 0)}


def electra(checkouts: str | None = None) -> Any:
    _prepare(PADDLENLP.found(checkouts))
    from paddlenlp.transformers.electra.configuration import ElectraConfig
    from paddlenlp.transformers.electra.modeling import ElectraModel

    return ElectraModel(ElectraConfig(vocab_size=90, embedding_size=24, **BERT))


def electra_reference() -> Any:
    from transformers import ElectraConfig, ElectraModel

    return ElectraModel(ElectraConfig(vocab_size=90, embedding_size=24, **BERT))


def electra_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Tokens without padding."""
    return {"input_ids": generator.integers(3, 86, (samples, 12))}


def roberta(checkouts: str | None = None) -> Any:
    _prepare(PADDLENLP.found(checkouts))
    from paddlenlp.transformers.roberta.configuration import RobertaConfig
    from paddlenlp.transformers.roberta.modeling import RobertaModel

    return RobertaModel(RobertaConfig(**ROBERTA))


def roberta_reference() -> Any:
    from transformers import RobertaConfig, RobertaModel

    return RobertaModel(RobertaConfig(**ROBERTA))


def roberta_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Tokens; every second text ends with four of padding."""
    tokens = generator.integers(4, 86, (samples, 12))
    tokens[1::2, -4:] = ROBERTA["pad_token_id"]
    return {"input_ids": tokens}


def llama(checkouts: str | None = None) -> Any:
    _prepare(PADDLENLP.found(checkouts))
    from paddlenlp.transformers.llama.configuration import LlamaConfig
    from paddlenlp.transformers.llama.modeling import LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(seq_length=32, **LLAMA))


def llama_reference() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**LLAMA))


def llama_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Tokens."""
    return {"input_ids": generator.integers(3, 77, (samples, 11))}


def t5(checkouts: str | None = None) -> Any:
    _prepare(PADDLENLP.found(checkouts))
    from paddlenlp.transformers.t5.configuration import T5Config
    from paddlenlp.transformers.t5.modeling import T5Model

    return T5Model(T5Config(use_cache=False, **T5))


def t5_reference() -> Any:
    from transformers import T5Config, T5Model

    return T5Model(T5Config(use_cache=False, **T5))


def t5_inputs(samples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Tokens of the encoder and of the decoder."""
    return {"input_ids": generator.integers(1, 69, (samples, 24)), "decoder_input_ids": generator.integers(6, 68, (samples, 10))}


def _files(model: str) -> str:
    return f"paddlenlp/transformers/{model}/modeling.py"


def _mask(model: str, place: str, seen: bool = True) -> Difference:
    return Difference(
        "positions of the padding token are masked where no mask is given; transformers attends to them",
        _files(model),
        "(input_ids == self.pad_token_id).astype(",
        (Kind.MASK, Kind.CALL_EXTRA) if seen else (),
        (place,) if seen else (),
    )


def _padding(model: str, table: str) -> tuple[Difference, Difference]:
    """The gradient, and the fresh weights, of an embedding whose padding token is not said."""
    text = f"self.{table} = nn.Embedding("
    return (
        Difference(
            f"{table}: the row of the padding token has a gradient; the reference has padding_idx",
            _files(model),
            text,
            (Kind.PADDING_INDEX,),
            (f"embeddings.{table}",),
        ),
        _fresh_row(model, table),
    )


def _fresh_row(model: str, table: str) -> Difference:
    return Difference(
        f"{table}: the fresh row of the padding token is random, the reference's is zero",
        _files(model),
        f"self.{table} = nn.Embedding(",
        (Kind.INITIALISATION,),
        (f"embeddings.{table}.weight",),
    )


PAIRS = (
    PublicPair(
        PADDLENLP,
        bert,
        bert_reference,
        "transformers BertModel",
        bert_inputs,
        (_mask("bert", "BertModel.forward"), *_padding("bert", "word_embeddings")),
    ),
    PublicPair(
        PADDLENLP,
        electra,
        electra_reference,
        "transformers ElectraModel",
        electra_inputs,
        (_mask("electra", "", seen=False), *_padding("electra", "word_embeddings")),
    ),
    PublicPair(
        PADDLENLP,
        roberta,
        roberta_reference,
        "transformers RobertaModel",
        roberta_inputs,
        (
            _mask("roberta", "RobertaModel.forward"),
            Difference(
                "word_embeddings: the padding token is looked up as zeros, as Paddle's padding_idx does; torch's gives the row",
                _files("roberta"),
                "padding_idx=config.pad_token_id",
                (Kind.PADDING_INDEX,),
                ("embeddings.word_embeddings",),
            ),
            _fresh_row("roberta", "word_embeddings"),
            *_padding("roberta", "position_embeddings"),
        ),
    ),
    PublicPair(
        PADDLENLP,
        llama,
        llama_reference,
        "transformers LlamaForCausalLM",
        llama_inputs,
        (
            Difference(
                "fresh weights of o_proj and down_proj are divided by the root of twice the number of layers",
                _files("llama"),
                "layer.o_proj.weight.scale_(factor)",
                (Kind.INITIALISATION,),
                ("model.layers.*.self_attn.o_proj.weight", "model.layers.*.mlp.down_proj.weight"),
            ),
        ),
    ),
    PublicPair(PADDLENLP, t5, t5_reference, "transformers T5Model", t5_inputs),
)

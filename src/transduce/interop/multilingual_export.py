"""Writing Hugging Face folders of M2M-100, NLLB and mBART-50: models whose decoder reads the tag of the language."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.errors import ModelError
from transduce.interop.exchange import ACTIVATIONS, Exported, require_exportable, transformers_weights, write_json
from transduce.interop.imported_tokenizers import ImportedTokenizer, LibraryTokenizer, SentencePiecePair
from transduce.interop.multilingual import token_of
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.model import Model
from transduce.models.weight_tensors import save_tensors
from transduce.nn.positions import FAIRSEQ_OFFSET
from transduce.tokenizers.tokenizer import BOS, EOS, PAD

_BATCH = 16
_CLASSES = {"m2m_100": "M2M100ForConditionalGeneration", "mbart": "MBartForConditionalGeneration"}


def kind_of(model: EncoderDecoder) -> str:
    return "mbart" if model.config.embedding == "normalized" else "m2m_100"


def check(model: Model) -> EncoderDecoder:
    """Raise a ModelError, which says why, if neither type can express the model."""
    common: dict[str, Sequence[object]] = {"norm": ("pre",), "activation": tuple(ACTIVATIONS), "norm_epsilon": (1e-5,)}
    common["decoder_tag"] = (True,)
    if isinstance(model, EncoderDecoder) and kind_of(model) == "mbart":
        return require_exportable(model, "mBART", **common, positions=("learned",), share_positions=(False,))
    return require_exportable(model, "M2M-100", **common, positions=("fairseq",), tie_output=(True,))


def tokenizer_of(exported: Exported) -> ImportedTokenizer:
    tokenizer = exported.tokenizer
    if not isinstance(tokenizer, ImportedTokenizer) or not tokenizer.languages:
        raise ModelError("only a vocabulary that was imported with tokens of languages can be exported with them")
    return tokenizer


def write(exported: Exported, folder: Path) -> None:
    model, tokenizer = exported.model, tokenizer_of(exported)
    order, kind = tokenizer.order, kind_of(model)
    weights = transformers_weights(model)
    for name in ("model.shared.weight", "lm_head.weight"):
        weights[name] = weights[name][order.ids]
    bias = weights.pop("final_logits_bias")[:, order.ids]
    if kind == "mbart":
        weights["final_logits_bias"] = bias
        ours = model.state_dict()
        for side, name in (("encoder", "source_embedding"), ("decoder", "embedding")):
            table_TD = ours[f"{name}.positions.table_TD"].float()
            padding = torch.zeros(FAIRSEQ_OFFSET, table_TD.shape[1])
            weights[f"model.{side}.embed_positions.weight"] = torch.cat([padding, table_TD])
            for part in ("weight", "bias"):
                weights[f"model.{side}.layernorm_embedding.{part}"] = ours[f"{name}.norm.{part}"].float()
    elif bias.any():
        raise ModelError("M2M-100 has no bias of logits, which this model was trained with")
    if model.config.tie_output:
        del weights["lm_head.weight"]
    save_tensors({name: x.contiguous() for name, x in weights.items()}, folder / "model.safetensors")
    _write_settings(exported, folder, kind, tokenizer)
    _write_tokenizer(folder, kind, tokenizer)


def _write_settings(exported: Exported, folder: Path, kind: str, tokenizer: ImportedTokenizer) -> None:
    config, (pad, _, bos, eos) = exported.model.config, tokenizer.order.markers
    markers = {"pad_token_id": pad, "eos_token_id": eos, "decoder_start_token_id": bos}
    both = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", getattr(config, f"{side}_layers")), ("attention_heads", config.num_heads),
            ("ffn_dim", config.d_ff),
        )
    }  # fmt: skip
    settings = {
        "architectures": [_CLASSES[kind]], "model_type": kind, "vocab_size": tokenizer.order.size,
        "d_model": config.d_model, **both, "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout, "attention_dropout": config.attention_dropout,
        "max_position_embeddings": config.max_positions, "scale_embedding": config.embedding == "scaled",
        "tie_word_embeddings": config.tie_output, "is_encoder_decoder": True, "dtype": "float32", **markers,
    }  # fmt: skip
    write_json(folder / "config.json", settings)
    search = {"num_beams": exported.search.beam, "max_length": config.max_positions}
    write_json(folder / "generation_config.json", markers | search)


def _write_tokenizer(folder: Path, kind: str, tokenizer: ImportedTokenizer) -> None:
    tags = [token_of(name) for name in tokenizer.languages.values()]
    is_nllb = kind == "m2m_100" and isinstance(tokenizer, LibraryTokenizer)
    name = "NllbTokenizer" if is_nllb else "M2M100Tokenizer" if kind == "m2m_100" else "MBart50Tokenizer"
    options: dict[str, Any] = {"tokenizer_class": name, "src_lang": next(iter(tokenizer.languages.values()))}
    if isinstance(tokenizer, LibraryTokenizer):
        (folder / "tokenizer.json").write_text(tokenizer.text, encoding="utf-8")
        options["extra_special_tokens"] = tags
    else:
        assert isinstance(tokenizer, SentencePiecePair)
        (folder / "sentencepiece.bpe.model").write_bytes(tokenizer.models[0])
        pieces = tokenizer.original_pieces
        if kind == "m2m_100":
            words = pieces[: min(pieces.index(tag) for tag in tags)]
            write_json(folder / "vocab.json", {piece: number for number, piece in enumerate(words)})
    write_json(folder / "tokenizer_config.json", options)


class MultilingualConsumer:
    """transformers as the program that runs an export; its texts begin with the codes of both languages."""

    def __init__(self, library: Any, folder: Path, exported: Exported) -> None:
        self.name = f"transformers {library.__version__}"
        library.utils.logging.disable_progress_bar()
        self._tokenizer = library.AutoTokenizer.from_pretrained(folder)
        self._model = library.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._order = tokenizer_of(exported).order

    def _read(self, text: str) -> tuple[Any, int]:
        """The tokens of a source and the tag of the target."""
        source, target, rest = text.split(" ", 2)
        self._tokenizer.src_lang = source
        tag: int = self._tokenizer.convert_tokens_to_ids(token_of(target))
        return self._tokenizer(rest, return_tensors="pt"), tag

    def logits(self, text: str, output: Sequence[int]) -> Tensor:
        batch, tag = self._read(text)
        start, *tokens = (self._order.originals[token] for token in (BOS, *output))
        with torch.inference_mode():
            decoder = torch.tensor([[start, tag, *tokens]])
            logits_TV: Tensor = self._model(**batch, decoder_input_ids=decoder).logits[0, 1:]
        return logits_TV[:, self._order.originals]

    def translate(self, texts: Sequence[str], limits: Sequence[int]) -> list[list[int]]:
        """Sentences of similar length share a batch."""
        outputs: dict[int, list[int]] = {}
        markers, order = self._order.markers, sorted(range(len(texts)), key=lambda n: limits[n])
        never = [[marker] for marker in set(markers) - {markers[EOS]}]
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            read = [self._read(texts[n]) for n in chosen]
            ids = nn.utils.rnn.pad_sequence([batch.input_ids[0] for batch, _ in read], True, markers[PAD])
            options = {"num_beams": 1, "max_length": None, "max_new_tokens": max(limits[n] for n in chosen) + 1}
            with torch.inference_mode():
                found = self._model.generate(
                    input_ids=ids, attention_mask=ids != markers[PAD], bad_words_ids=never, min_new_tokens=1, **options,
                    decoder_input_ids=torch.tensor([[markers[BOS], tag] for _, tag in read]),
                )  # fmt: skip
            for n, tokens in zip(chosen, found.tolist(), strict=True):
                ours = [self._order.ids[token] for token in tokens[2:]]
                outputs[n] = ours[: ours.index(EOS)] if EOS in ours else ours
        return [outputs[n] for n in range(len(texts))]

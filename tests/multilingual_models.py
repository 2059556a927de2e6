"""Small random originals of M2M-100, NLLB and mBART-50, as transformers writes them."""

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
from mixed_text import MIXED
from transformers_models import randomized, transformers

SIZES = {
    "d_model": 30, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3, "decoder_attention_heads": 3,
    "encoder_ffn_dim": 47, "decoder_ffn_dim": 47, "max_position_embeddings": 64,
}  # fmt: skip
LANGUAGES = {"m2m_100": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn"), "mbart": ("en_XX", "de_DE")}
"""English and German in each of them."""
NLLB = ["eng_Latn", "deu_Latn", "fra_Latn", "zho_Hans", "zho_Hant", "ast_Latn"]
MODEL = "sentencepiece.bpe.model"


def write_multilingual(kind: str, folder: Path) -> tuple[Any, Any]:
    """The model and the tokenizer of a folder that is written."""
    folder.mkdir(parents=True)
    spm = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(MIXED * 3), model_writer=spm, vocab_size=260, hard_vocab_limit=False, minloglevel=2,
        model_type="unigram" if kind == "mbart" else "bpe", unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        character_coverage=1.0,
    )  # fmt: skip
    (folder / MODEL).write_bytes(spm.getvalue())
    if kind == "m2m_100":
        processor = sentencepiece.SentencePieceProcessor(model_proto=spm.getvalue())
        pieces = [processor.id_to_piece(token) for token in range(3, processor.vocab_size())]
        vocabulary = {piece: token for token, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        tokenizer = transformers.M2M100Tokenizer(str(folder / "vocab.json"), str(folder / MODEL))
        size = len(vocabulary) + 108  # 100 languages, and 8 rows without a meaning
    else:
        name, more = ("NllbTokenizer", {"extra_special_tokens": NLLB}) if kind == "nllb" else ("MBart50Tokenizer", {})
        tokenizer = getattr(transformers, name).from_pretrained(folder, **more)
        size = len(tokenizer)
    if kind == "mbart":
        config = transformers.MBartConfig(vocab_size=size, **SIZES, scale_embedding=True, decoder_start_token_id=2)
        model = randomized(transformers.MBartForConditionalGeneration(config))
    else:
        config = transformers.M2M100Config(vocab_size=size, **SIZES)
        model = randomized(transformers.M2M100ForConditionalGeneration(config))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def source_ids(tokenizer: Any, text: str, source: str, target: str) -> tuple[Any, int]:
    """The tokens of a source, and the tag of the target language."""
    tokenizer.src_lang = source
    ids = tokenizer(text, return_tensors="pt").input_ids
    find = getattr(tokenizer, "get_lang_id", tokenizer.convert_tokens_to_ids)
    return ids, find(target)

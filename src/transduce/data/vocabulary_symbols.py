"""The reserved symbols that the vocabulary of a corpus must have."""

from dataclasses import replace

from transduce.data.data_config import DataConfig
from transduce.errors import ConfigError
from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import BACK_TRANSLATED, SPACE_MARK
from transduce.tokenizers.tokenizer import TokenizerConfig


def with_tags(vocabulary: TokenizerConfig | AnyTokenizer, tags: list[str]) -> TokenizerConfig | AnyTokenizer:
    """The settings of the vocabulary with a symbol for each tag; a finished vocabulary must have them."""
    if isinstance(vocabulary, TokenizerConfig):
        return replace(vocabulary, symbols=(*vocabulary.symbols, *tags))
    if missing := [tag[1:-1] for tag in tags if tag not in vocabulary.symbol_ids]:
        raise ConfigError(
            f"the vocabulary of the model that training starts from has no tag for {', '.join(missing)}; start from a "
            "model with these target languages, or train a new one"
        )
    return vocabulary


def with_symbols(vocabulary: TokenizerConfig | AnyTokenizer, symbols: list[str]) -> TokenizerConfig | AnyTokenizer:
    """The settings of the vocabulary with the symbols that the reader requires; a finished one must have them."""
    if isinstance(vocabulary, TokenizerConfig):
        new = [symbol for symbol in symbols if symbol not in vocabulary.symbols]
        return replace(vocabulary, symbols=(*vocabulary.symbols, *new)) if new else vocabulary
    known = {*vocabulary.pieces(range(vocabulary.vocab_size)), *vocabulary.symbol_ids}
    if missing := [symbol.removeprefix(SPACE_MARK) for symbol in symbols if symbol not in known]:
        raise ConfigError(
            f"the vocabulary that training starts with has no symbol {', '.join(missing[:4])}; leave out the examples "
            "that need it, or train a new model"
        )
    return vocabulary


def require_back_translation_symbol(vocabulary: TokenizerConfig | AnyTokenizer, data: DataConfig) -> None:
    """Raise ConfigError if there are back-translations and a finished vocabulary has no symbol for them."""
    uses = any(part.back_translated for part in data.parts)
    if uses and not isinstance(vocabulary, TokenizerConfig) and BACK_TRANSLATED not in vocabulary.symbol_ids:
        raise ConfigError(
            "the vocabulary of the model that training starts from has no symbol for back-translations; name the "
            "synthetic pairs in data.train instead of data.back_translated, or train a new model"
        )

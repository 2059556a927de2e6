"""Text that arrives token by token: complete characters only, up to the first stop string."""

import codecs
from collections.abc import Sequence

from transduce.tokenizers.any_tokenizer import AnyTokenizer
from transduce.tokenizers.symbols import ESCAPE, unescape


class TextStream:
    """Turns tokens into text as they arrive.

    A character whose bytes are several tokens appears when it is complete. Text that may be the beginning of a stop
    string is held back; after a stop string, which is not part of the text, nothing more appears.
    """

    def __init__(self, tokenizer: AnyTokenizer, stop: Sequence[str] = (), *, at_start: bool = False) -> None:
        self._tokenizer, self._stop = tokenizer, [text for text in stop if text]
        self._strips_space = at_start and tokenizer.adds_prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._escaped, self._held = "", ""
        self.text = ""
        """The text so far, without what is held back."""
        self.stopped = False
        """Whether a stop string has been found."""

    def add(self, token: int) -> str:
        """The text that becomes certain with this token; empty if there is none."""
        raw = self._tokenizer.raw_bytes(token)
        if self._strips_space and raw:  # the space that the tokenizer adds before every text
            raw, self._strips_space = raw.removeprefix(b" "), False
        return self._add(self._decoder.decode(raw))

    def finish(self) -> str:
        """The text that was held back, after the last token."""
        last = self._add(self._decoder.decode(b"", final=True), final=True)
        return last + self._emit("" if self.stopped else self._held)

    def _add(self, decoded: str, final: bool = False) -> str:
        if self.stopped:
            return ""
        self._escaped += decoded
        whole = len(self._escaped) - (self._escaped.endswith(ESCAPE) and not final)  # an escape has two characters
        self._held += unescape(self._escaped[:whole])
        self._escaped = self._escaped[whole:]
        ends = [place for place in map(self._held.find, self._stop) if place >= 0]
        if ends:
            self.stopped = True
            return self._emit(self._held[: min(ends)])
        return self._emit(self._held[: len(self._held) - self._possible_stop()])

    def _possible_stop(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        lengths = (
            length
            for stop in self._stop
            for length in range(min(len(stop) - 1, len(self._held)), 0, -1)
            if self._held.endswith(stop[:length])
        )
        return max(lengths, default=0)

    def _emit(self, text: str) -> str:
        self._held = self._held[len(text) :]
        self.text += text
        return text

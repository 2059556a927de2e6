"""The grammar of linearized trees: a constraint under which every output is a tree over the words of its sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.tokenizers.tokenizer import EOS, PAD

MOST_IN_A_ROW = 10
"""The most opening brackets without a word between them; no tree of CRAFT and GUM has more."""


def most_brackets(words: int) -> int:
    """The most constituents of a tree with this many words; no tree of CRAFT and GUM has more."""
    return 3 * words // 2 + 4


@dataclass(frozen=True)
class TreeGrammar:
    """The tokens of linearized trees: brackets and the first pieces of words."""

    closing: Mapping[int, int]
    """The closing bracket of each opening bracket."""
    word_starts: frozenset[int]
    """The pieces that begin a word; every other piece continues one."""

    def constrain(self, sources: Sequence[Sequence[int]], device: torch.device | str) -> "TreeConstraint":
        """The constraint for sentences with these source tokens."""
        return TreeConstraint(self, sources, device)


class TreeConstraint:
    """Allows the next piece of the sentence, an opening bracket before a word, and the innermost closing bracket.

    Brackets are balanced, contain at least one word each, and never split a word. All words come in order within one
    root, after whose closing bracket only the end marker is allowed. The number of brackets is bounded, in total and in
    a row, so every search ends, and one whose model prefers a wrong word does not open brackets endlessly.
    """

    def __init__(self, grammar: TreeGrammar, sources: Sequence[Sequence[int]], device: torch.device | str) -> None:
        assert all(sources), "a tree has at least one word"
        tokens = [*grammar.closing, *grammar.closing.values(), *(token for source in sources for token in source)]
        step_V = torch.zeros(max(tokens) + 1, dtype=torch.long)
        closing_V = torch.full_like(step_V, PAD)
        opening_O = torch.tensor(list(grammar.closing))
        step_V[opening_O], step_V[list(grammar.closing.values())] = 1, -1
        closing_V[opening_O] = torch.tensor(list(grammar.closing.values()))
        rows, starts = [], []
        for source in sources:
            rows.append(torch.tensor([*source, PAD]))
            starts.append(torch.tensor([*(token in grammar.word_starts for token in source), True]))
        most_B = [most_brackets(int(start.sum()) - 1) for start in starts]
        self.limits = [len(source) + 2 * most for source, most in zip(sources, most_B, strict=True)]
        """See `Constraint`."""
        self._step_V = step_V.to(device)
        """The change of depth: 1 for an opening bracket, -1 for a closing bracket, 0 for a piece of a word."""
        self._closing_V, self._opening_O = closing_V.to(device), opening_O.to(device)
        self._piece_BS = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)
        self._is_start_BS = torch.nn.utils.rnn.pad_sequence(starts, batch_first=True).to(device)
        """Whether a word begins at each position, or the sentence ends before it."""
        self._length_B1 = torch.tensor([[len(source)] for source in sources], device=device)
        self._most_B1 = torch.tensor(most_B, device=device)[:, None]

    def allowed(self, sentence_B: Sequence[int], prefix_BWT: Tensor, vocab_size: int) -> Tensor:
        """See `Constraint`."""
        t = prefix_BWT.shape[2]
        index_B = torch.tensor(sentence_B, device=prefix_BWT.device)
        length_B1, most_B1 = self._length_B1[index_B], self._most_B1[index_B]
        prefix_BWT = prefix_BWT.clamp(max=len(self._step_V) - 1)
        step_BWT = self._step_V[prefix_BWT]
        depth_BW = step_BWT.sum(-1)
        is_open_BWT = step_BWT == 1
        used_BW = torch.minimum((step_BWT == 0).sum(-1), length_B1)
        if t:
            # The innermost open bracket is the last one that was opened at the present depth.
            is_innermost_BWT = is_open_BWT & (step_BWT.cumsum(-1) == depth_BW[:, :, None])
            order_T = torch.arange(t, device=prefix_BWT.device)
            last_BW1 = torch.where(is_innermost_BWT, order_T, 0).amax(-1, keepdim=True)
            close_BW = self._closing_V[prefix_BWT.gather(2, last_BW1)[:, :, 0]]
            after_opening_BW = is_open_BWT[:, :, -1]
        else:
            close_BW, after_opening_BW = torch.full_like(depth_BW, PAD), torch.zeros_like(depth_BW, dtype=torch.bool)
        words_left_BW = used_BW < length_B1
        at_start_BW = self._is_start_BS[index_B].gather(1, used_BW)
        is_complete_BW = (depth_BW <= 0) & (t > 0)
        may_open_BW = at_start_BW & words_left_BW & ~is_complete_BW & (is_open_BWT.sum(-1) < most_B1)
        may_open_BW &= is_open_BWT[:, :, -MOST_IN_A_ROW:].sum(-1) < MOST_IN_A_ROW
        may_close_BW = at_start_BW & ~after_opening_BW & ((depth_BW > 1) | (depth_BW == 1) & ~words_left_BW)

        allowed_BWV = torch.zeros(*depth_BW.shape, vocab_size, dtype=torch.bool, device=prefix_BWT.device)
        allowed_BWV[:, :, self._opening_O] = may_open_BW[:, :, None]
        piece_BW = self._piece_BS[index_B].gather(1, used_BW)
        allowed_BWV.scatter_(2, piece_BW[:, :, None], (words_left_BW & (depth_BW > 0))[:, :, None])
        allowed_BWV.scatter_(2, close_BW[:, :, None], may_close_BW[:, :, None])
        allowed_BWV[:, :, EOS] = is_complete_BW
        return allowed_BWV

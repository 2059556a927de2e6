"""The kernels of `slot_beam.SlotBeam`.

`begin` puts a sentence into a slot. A step takes two: the best C words of a slot lie in the C parts of its rows'
vocabularies whose best words are best, so `summarise` reads all logits once and keeps two numbers of each part, and
`advance` finds those parts and looks into them alone.
"""

import triton
import triton.language as tl


@triton.jit
def begin(
    entry_A, slot_A, ticket_S, limit_S, position_R, forced_SP, token_R, alive_R, ended_score_R, places,
    W: tl.constexpr, W2: tl.constexpr, P2: tl.constexpr, BOS: tl.constexpr,
):  # fmt: skip
    """Put a sentence into its slot: one hypothesis to begin with, which has said nothing."""
    entry = entry_A + tl.program_id(0) * (places + 2)
    slot, row, place = tl.load(slot_A + tl.program_id(0)), tl.arange(0, W2), tl.arange(0, P2)
    rows = slot * W + row
    tl.store(ticket_S + slot, tl.load(entry))
    tl.store(limit_S + slot, tl.load(entry + 1))
    forced = tl.load(entry + 2 + place, mask=place < places, other=0)
    tl.store(forced_SP + slot * places + place, forced, mask=place < places)
    tl.store(position_R + rows, row * 0, mask=row < W)
    tl.store(token_R + rows, row * 0 + BOS, mask=row < W)
    tl.store(alive_R + rows, tl.where(row == 0, 0.0, float("-inf")), mask=row < W)
    tl.store(ended_score_R + rows, tl.where(row >= 0, float("-inf"), 0.0), mask=row < W)


@triton.jit
def _may_say(word, forced, PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr):
    """The forced word where there is one, else all but the markers."""
    return (word == forced) | ((forced < 0) & (word != PAD) & (word != UNK) & (word != BOS))


@triton.jit
def summarise(
    logits_RV, ticket_S, position_R, forced_SP, best_RX, log_total_RX, vocabulary, parts, places,
    W: tl.constexpr, PART: tl.constexpr, PARTS_AT_ONCE: tl.constexpr,
    PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr,
):  # fmt: skip
    """Of each part of a row: its best logit that may be said, and the logarithm of its share of the softmax's sum."""
    row = tl.program_id(0)
    slot = row // W
    if tl.load(ticket_S + slot) != 0:
        part = tl.program_id(1) * PARTS_AT_ONCE + tl.arange(0, PARTS_AT_ONCE)
        word = part[:, None] * PART + tl.arange(0, PART)[None, :]
        logit = tl.load(logits_RV + row.to(tl.int64) * vocabulary + word, mask=word < vocabulary, other=float("-inf"))
        top = tl.max(logit, 1)
        top = tl.where(part < parts, top, 0.0)
        total = tl.sum(tl.exp(logit - top[:, None]), 1)
        log_total = top + tl.log(tl.where(part < parts, total, 1.0))
        forced = tl.load(forced_SP + slot * places + tl.load(position_R + row))
        best = tl.max(tl.where(_may_say(word, forced, PAD, UNK, BOS), logit, float("-inf")), 1)
        tl.store(best_RX + row * parts + part, best, mask=part < parts)
        tl.store(log_total_RX + row * parts + part, log_total, mask=part < parts)


@triton.jit
def _penalty(length, alpha):
    return tl.exp(alpha * tl.log((5.0 + length) / 6.0))


@triton.jit
def advance(
    logits_RV, best_RX, log_total_RX, ticket_S, done_S, position_R, limit_S, forced_SP, token_R, said_RP, ancestor_RP,
    alive_R, ended_RP, ended_length_R, ended_log_prob_R, ended_score_R, alpha_1, nbest_1, vocabulary, parts, places,
    W: tl.constexpr, W2: tl.constexpr, C: tl.constexpr, C2: tl.constexpr, X2: tl.constexpr, P2: tl.constexpr,
    PART: tl.constexpr, PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr, EOS: tl.constexpr,
):  # fmt: skip
    """Extend the hypotheses of one slot by their best next words."""
    slot = tl.program_id(0)
    ticket = tl.load(ticket_S + slot)
    if ticket != 0:
        t, limit, alpha = tl.load(position_R + slot * W), tl.load(limit_S + slot), tl.load(alpha_1)
        row, part, place = tl.arange(0, W2), tl.arange(0, X2), tl.arange(0, P2)
        rows = slot * W + row
        # What to add to a row's logits: its log-probability so far, less the logarithm of the softmax's sum.
        there = (row < W)[:, None] & (part < parts)[None, :]
        log_total = tl.load(log_total_RX + rows[:, None] * parts + part[None, :], mask=there, other=float("-inf"))
        top = tl.where(row < W, tl.max(log_total, 1), 0.0)
        log_sum = top + tl.log(tl.where(row < W, tl.sum(tl.exp(log_total - top[:, None]), 1), 1.0))
        gain = tl.load(alive_R + rows, mask=row < W, other=float("-inf")) - log_sum
        best = tl.load(best_RX + rows[:, None] * parts + part[None, :], mask=there, other=float("-inf"))
        best = tl.reshape(best + gain[:, None], (W2 * X2,))
        # The C best parts, and all words in them.
        choice, index = tl.arange(0, C2), tl.arange(0, W2 * X2)
        chosen, peak = tl.zeros((C2,), tl.int32), tl.full((C2,), float("-inf"), tl.float32)
        for c in tl.static_range(C):
            highest, at = tl.max(best, 0, return_indices=True)
            chosen, peak = tl.where(choice == c, at, chosen), tl.where(choice == c, highest, peak)
            best = tl.where(index == at, float("-inf"), best)
        of_row = chosen // X2
        chosen_gain = tl.sum(tl.where(of_row[:, None] == row[None, :], gain[None, :], 0.0), 1)
        word = (chosen % X2 * PART)[:, None] + tl.arange(0, PART)[None, :]
        forced = tl.load(forced_SP + slot * places + t)
        line = logits_RV + (slot * W + of_row).to(tl.int64)[:, None] * vocabulary
        value = tl.load(line + word, mask=(peak > float("-inf"))[:, None] & (word < vocabulary), other=float("-inf"))
        value = tl.where(_may_say(word, forced, PAD, UNK, BOS), value, float("-inf"))
        value = tl.reshape(value + chosen_gain[:, None], (C2 * PART,))
        index = tl.arange(0, C2 * PART)

        ended_score = tl.load(ended_score_R + rows, mask=row < W, other=float("inf"))
        ended_log_prob = tl.load(ended_log_prob_R + rows, mask=row < W, other=0.0)
        next_alive = tl.full((W2,), float("-inf"), tl.float32)
        next_token = tl.full((W2,), EOS, tl.int32)
        parent = tl.zeros((W2,), tl.int32)
        kept = 0
        for _ in tl.static_range(C):
            log_prob, at = tl.max(value, 0, return_indices=True)
            found = tl.sum(tl.where(choice == at // PART, chosen, 0), 0)
            said, came_from = found % X2 * PART + at % PART, found // X2
            value = tl.where(index == at, float("-inf"), value)
            if said == EOS:
                score = log_prob / _penalty(t + 1.0, alpha)
                worst, worst_at = tl.min(ended_score, 0, return_indices=True)
                if score > worst:  # it takes the place of the worst that ended before
                    ended_score = tl.where(row == worst_at, score, ended_score)
                    ended_log_prob = tl.where(row == worst_at, log_prob, ended_log_prob)
                    own = ancestor_RP + (slot * W + came_from) * places
                    who = tl.load(own + place + 1, mask=place + 1 < t, other=0).to(tl.int32)
                    who = tl.where(place + 1 < t, who, came_from)
                    tokens = tl.load(said_RP + (slot * W + who) * places + place, mask=place < t, other=EOS)
                    tl.store(ended_RP + (slot * W + worst_at) * places + place, tokens, mask=place < t)
                    tl.store(ended_length_R + slot * W + worst_at, t)
            elif kept < W:
                next_alive = tl.where(row == kept, log_prob, next_alive)
                next_token = tl.where(row == kept, said, next_token)
                parent = tl.where(row == kept, came_from, parent)
                kept += 1

        ancestors = tl.load(
            ancestor_RP + (slot * W + parent)[:, None] * places + place[None, :], mask=(place < t)[None, :], other=0
        )
        ancestors = tl.where(place[None, :] == t, parent[:, None].to(tl.uint8), ancestors)
        tl.debug_barrier()  # all are read before the first is written
        mine = (row < W)[:, None] & (place <= t)[None, :]
        tl.store(ancestor_RP + rows[:, None] * places + place[None, :], ancestors, mask=mine)
        tl.store(said_RP + rows * places + t, next_token, mask=row < W)
        tl.store(token_R + rows, next_token, mask=row < W)
        tl.store(alive_R + rows, next_alive, mask=row < W)
        tl.store(ended_score_R + rows, ended_score, mask=row < W)
        tl.store(ended_log_prob_R + rows, ended_log_prob, mask=row < W)
        # Log-probabilities only fall: a live hypothesis can at best keep its own and end at the kindest length.
        kindest = tl.where(alpha >= 0, limit + 1.0, t + 2.0)
        bound = tl.max(next_alive, 0) / _penalty(kindest, alpha)
        final = tl.sum(((ended_score >= bound) & (row < W)).to(tl.int32), 0) >= tl.load(nbest_1)
        final = final | (t >= limit) | (bound != bound)  # scores that are no numbers end it, too
        tl.store(position_R + rows, tl.where(final, 0, t + 1) + row * 0, mask=row < W)
        if final:
            tl.store(done_S + slot, ticket)
            tl.store(ticket_S + slot, 0)

"""The kernels of `beam.SlotBeam`.

`start_slots` initialises slots. A step is two kernels. The C best extensions of a slot are in the C parts of the
vocabulary, counted per row, whose best tokens are best. So `summarise` reads all logits once and reduces each part to
two numbers, and `advance` searches only the C best parts.
"""

import triton
import triton.language as tl

from transduce.fast.kernels.common import wait_for_inputs


@triton.jit
def start_slots(
    entry_A, slot_A, job_id_S, limit_S, position_R, forced_SP, symbols_S2, missing_R, token_R, alive_R,
    finished_score_R, positions,
    FIELDS: tl.constexpr, W: tl.constexpr, W2: tl.constexpr, P2: tl.constexpr, BOS: tl.constexpr,
):  # fmt: skip
    """Initialise a slot with one empty hypothesis."""
    entry = entry_A + tl.program_id(0) * (positions + FIELDS)
    slot, row, position = tl.load(slot_A + tl.program_id(0)), tl.arange(0, W2), tl.arange(0, P2)
    rows = slot * W + row
    tl.store(job_id_S + slot, tl.load(entry))
    tl.store(limit_S + slot, tl.load(entry + 1))
    tl.store(symbols_S2 + slot * 2, tl.load(entry + 2))
    tl.store(symbols_S2 + slot * 2 + 1, tl.load(entry + 3))
    tl.store(missing_R + rows, row * 0 + tl.load(entry + 4), mask=row < W)
    forced = tl.load(entry + FIELDS + position, mask=position < positions, other=0)
    tl.store(forced_SP + slot * positions + position, forced, mask=position < positions)
    tl.store(position_R + rows, row * 0, mask=row < W)
    tl.store(token_R + rows, row * 0 + BOS, mask=row < W)
    tl.store(alive_R + rows, tl.where(row == 0, 0.0, float("-inf")), mask=row < W)
    tl.store(finished_score_R + rows, tl.where(row >= 0, float("-inf"), 0.0), mask=row < W)


@triton.jit
def _symbol_bit(token, symbols):
    """The bit of a token in `missing_R`; 0 if it is none of the slot's symbols."""
    symbol = token - tl.load(symbols)
    is_symbol = (symbol >= 0) & (symbol < tl.load(symbols + 1))
    return tl.where(is_symbol, (symbol * 0 + 1) << tl.where(is_symbol, symbol, 0), 0)


@triton.jit
def _is_allowed(
    token,
    forced,
    symbols,
    missing,
    PAD: tl.constexpr,
    UNK: tl.constexpr,
    BOS: tl.constexpr,
    EOS: tl.constexpr,
    ANY_BUT_END: tl.constexpr,
):
    """Only the forced token if there is one, otherwise every token but markers and symbols that are not missing.

    EOS is allowed unless a symbol is missing or ANY_BUT_END is forced.
    """
    is_free = (forced < 0) & (token != PAD) & (token != UNK) & (token != BOS)
    is_free = is_free & ((_symbol_bit(token, symbols) & ~missing) == 0)
    return (token == forced) | (is_free & ((token != EOS) | ((forced != ANY_BUT_END) & (missing == 0))))


@triton.jit
def summarise(
    logits_RV, job_id_S, position_R, forced_SP, symbols_S2, missing_R, best_RX, log_total_RX, vocab_size, stride,
    parts, positions, W: tl.constexpr, PART: tl.constexpr, PARTS_AT_ONCE: tl.constexpr,
    PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr, EOS: tl.constexpr, ANY_BUT_END: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """For each part of a row: its best allowed logit, and the logarithm of its sum of exponentials."""
    wait_for_inputs(EARLY)
    row = tl.program_id(0)
    slot = row // W
    if tl.load(job_id_S + slot) != 0:
        first = tl.program_id(1) * PARTS_AT_ONCE
        part = first + tl.arange(0, PARTS_AT_ONCE)
        token = part[:, None] * PART + tl.arange(0, PART)[None, :]
        # Rows are padded to an aligned width, `stride`: a mask with it allows loads of several logits at once.
        logit = tl.load(logits_RV + row.to(tl.int64) * stride + token, mask=token < stride, other=float("-inf"))
        logit = tl.where(token < vocab_size, logit, float("-inf"))
        best = tl.max(logit, 1)
        maximum = tl.where(part < parts, best, 0.0)
        total = tl.sum(tl.exp(logit - maximum[:, None]), 1)
        log_total = maximum + tl.log(tl.where(part < parts, total, 1.0))
        forced = tl.load(forced_SP + slot * positions + tl.load(position_R + row))
        symbol = tl.load(symbols_S2 + slot * 2)
        end_of_symbols = symbol + tl.load(symbols_S2 + slot * 2 + 1)
        has_symbols = (symbol < (first + PARTS_AT_ONCE) * PART) & (end_of_symbols > first * PART)
        if (
            (forced >= 0) | (first == 0) | has_symbols
        ):  # the markers are in the first part; all other tokens are allowed
            missing = tl.load(missing_R + row)
            allowed = _is_allowed(token, forced, symbols_S2 + slot * 2, missing, PAD, UNK, BOS, EOS, ANY_BUT_END)
            best = tl.max(tl.where(allowed, logit, float("-inf")), 1)
        tl.store(best_RX + row * parts + part, best, mask=part < parts)
        tl.store(log_total_RX + row * parts + part, log_total, mask=part < parts)


@triton.jit
def _penalty(length, alpha):
    return tl.exp(alpha * tl.log((5.0 + length) / 6.0))


@triton.jit
def advance(
    logits_RV, best_RX, log_total_RX, job_id_S, done_S, position_R, limit_S, forced_SP, symbols_S2, missing_R,
    token_R, generated_RP, ancestor_RP, alive_R, finished_RP, finished_length_R, finished_log_prob_R, finished_score_R,
    alpha_1, nbest_1, vocab_size, stride, parts, positions,
    W: tl.constexpr, W2: tl.constexpr, C: tl.constexpr, C2: tl.constexpr, X2: tl.constexpr, P2: tl.constexpr,
    PART: tl.constexpr, PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr, EOS: tl.constexpr,
    ANY_BUT_END: tl.constexpr, EARLY: tl.constexpr, BEGIN: tl.constexpr,
):  # fmt: skip
    """Extend the hypotheses of a slot by their best next tokens; scores and lengths leave out the first BEGIN ones."""
    wait_for_inputs(EARLY)
    slot = tl.program_id(0)
    job_id = tl.load(job_id_S + slot)
    if job_id != 0:
        t, limit, alpha = tl.load(position_R + slot * W), tl.load(limit_S + slot), tl.load(alpha_1)
        row, part, position = tl.arange(0, W2), tl.arange(0, X2), tl.arange(0, P2)
        rows = slot * W + row
        # `gain` is added to the logits of a row: its log-probability so far minus the log of the softmax's denominator.
        inside = (row < W)[:, None] & (part < parts)[None, :]
        log_total = tl.load(log_total_RX + rows[:, None] * parts + part[None, :], mask=inside, other=float("-inf"))
        maximum = tl.where(row < W, tl.max(log_total, 1), 0.0)
        log_sum = maximum + tl.log(tl.where(row < W, tl.sum(tl.exp(log_total - maximum[:, None]), 1), 1.0))
        gain = tl.load(alive_R + rows, mask=row < W, other=float("-inf")) - log_sum
        best = tl.load(best_RX + rows[:, None] * parts + part[None, :], mask=inside, other=float("-inf"))
        best = tl.reshape(best + gain[:, None], (W2 * X2,))
        # The C best parts, and the log-probabilities of all tokens in them.
        choice, index = tl.arange(0, C2), tl.arange(0, W2 * X2)
        chosen, peak = tl.zeros((C2,), tl.int32), tl.full((C2,), float("-inf"), tl.float32)
        for c in tl.static_range(C):
            highest, at = tl.max(best, 0, return_indices=True)
            chosen, peak = tl.where(choice == c, at, chosen), tl.where(choice == c, highest, peak)
            best = tl.where(index == at, float("-inf"), best)
        of_row = chosen // X2
        chosen_gain = tl.sum(tl.where(of_row[:, None] == row[None, :], gain[None, :], 0.0), 1)
        token = (chosen % X2 * PART)[:, None] + tl.arange(0, PART)[None, :]
        forced, symbols = tl.load(forced_SP + slot * positions + t), symbols_S2 + slot * 2
        missing = tl.load(missing_R + rows, mask=row < W, other=0)
        chosen_missing = tl.sum(tl.where(of_row[:, None] == row[None, :], missing[None, :], 0), 1)
        logits = logits_RV + (slot * W + of_row).to(tl.int64)[:, None] * stride
        exists = (peak > float("-inf"))[:, None] & (token < vocab_size)
        value = tl.load(logits + token, mask=exists, other=float("-inf"))
        allowed = _is_allowed(token, forced, symbols, chosen_missing[:, None], PAD, UNK, BOS, EOS, ANY_BUT_END)
        value = tl.where(allowed, value, float("-inf"))
        value = tl.reshape(value + chosen_gain[:, None], (C2 * PART,))
        index = tl.arange(0, C2 * PART)
        finished_score = tl.load(finished_score_R + rows, mask=row < W, other=float("inf"))
        finished_log_prob = tl.load(finished_log_prob_R + rows, mask=row < W, other=0.0)
        next_alive = tl.full((W2,), float("-inf"), tl.float32)
        next_token = tl.full((W2,), EOS, tl.int32)
        parent, next_missing = tl.zeros((W2,), tl.int32), tl.zeros((W2,), tl.int32)
        kept = 0
        for _ in tl.static_range(C):
            log_prob, at = tl.max(value, 0, return_indices=True)
            row_and_part = tl.sum(tl.where(choice == at // PART, chosen, 0), 0)
            # If all scores are NaN, any index may be the highest; the next step must still find the token's embedding.
            best_token = tl.minimum(row_and_part % X2 * PART + at % PART, vocab_size - 1)
            parent_row = row_and_part // X2
            value = tl.where(index == at, float("-inf"), value)
            if best_token == EOS:
                score = log_prob / _penalty(t + 1.0 - BEGIN, alpha)
                worst, worst_at = tl.min(finished_score, 0, return_indices=True)
                if score > worst:  # it replaces the worst finished hypothesis
                    finished_score = tl.where(row == worst_at, score, finished_score)
                    finished_log_prob = tl.where(row == worst_at, log_prob, finished_log_prob)
                    parent_ancestors = ancestor_RP + (slot * W + parent_row) * positions
                    ancestor = tl.load(parent_ancestors + position + 1, mask=position + 1 < t, other=0).to(tl.int32)
                    ancestor = tl.where(position + 1 < t, ancestor, parent_row)
                    tokens = tl.load(
                        generated_RP + (slot * W + ancestor) * positions + position, mask=position < t, other=EOS
                    )
                    tl.store(finished_RP + (slot * W + worst_at) * positions + position, tokens, mask=position < t)
                    tl.store(finished_length_R + slot * W + worst_at, t)
            elif kept < W:
                log_prob = tl.where((t < BEGIN) & (log_prob > float("-inf")), 0.0, log_prob)
                next_alive = tl.where(row == kept, log_prob, next_alive)
                next_token = tl.where(row == kept, best_token, next_token)
                parent = tl.where(row == kept, parent_row, parent)
                word = tl.where(t < BEGIN, -1, best_token)  # the tag of a language uses no symbol
                still = tl.sum(tl.where(row == parent_row, missing, 0), 0) & ~_symbol_bit(word, symbols)
                next_missing = tl.where(row == kept, still, next_missing)
                kept += 1
        of_parent = ancestor_RP + (slot * W + parent)[:, None] * positions
        ancestors = tl.load(of_parent + position[None, :], mask=(position < t)[None, :], other=0)
        ancestors = tl.where(position[None, :] == t, parent[:, None].to(tl.uint8), ancestors)
        tl.debug_barrier()  # all reads happen before the first write
        written = (row < W)[:, None] & (position <= t)[None, :]
        tl.store(ancestor_RP + rows[:, None] * positions + position[None, :], ancestors, mask=written)
        tl.store(generated_RP + rows * positions + t, next_token, mask=row < W)
        tl.store(token_R + rows, next_token, mask=row < W)
        tl.store(missing_R + rows, next_missing, mask=row < W)
        tl.store(alive_R + rows, next_alive, mask=row < W)
        tl.store(finished_score_R + rows, finished_score, mask=row < W)
        tl.store(finished_log_prob_R + rows, finished_log_prob, mask=row < W)
        # Log-probabilities never increase: this bounds the scores of alive hypotheses, as in `search.beam`.
        length = tl.where(alpha >= 0, limit + 1.0, t + 2.0)
        bound = tl.max(next_alive, 0) / _penalty(length - BEGIN, alpha)
        final = tl.sum(((finished_score >= bound) & (row < W)).to(tl.int32), 0) >= tl.load(nbest_1)
        final = final | (t >= limit) | (bound != bound)  # NaN scores end the search too
        tl.store(position_R + rows, tl.where(final, 0, t + 1) + row * 0, mask=row < W)
        tl.store(done_S + slot, job_id, mask=final)
        tl.store(job_id_S + slot, 0, mask=final)

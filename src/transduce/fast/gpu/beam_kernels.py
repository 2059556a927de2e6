"""The kernels of `beam.SlotBeam`.

`start_slots` initialises slots. A step is two kernels. The C best extensions of a slot are in the C parts of the
vocabulary, counted per row, whose best tokens are best. So `project` reduces each part to two numbers while it computes
the logits, and `advance` reads only those of the C best parts. Logits are stored as their distance to the best one of
their part, so that rounding them to half precision changes the best ones least.
"""

import triton
import triton.language as tl

from transduce.fast.kernels.common import LOWEST, start_next, wait_for_inputs


@triton.jit
def start_slots(
    entry_A, source_length_S, job_id_S, limit_S, position_R, forced_SP, symbols_S2, missing_R, token_R, alive_R,
    finished_score_R, positions,
    FIELDS: tl.constexpr, W: tl.constexpr, W2: tl.constexpr, P2: tl.constexpr, BOS: tl.constexpr,
):  # fmt: skip
    """Initialise a slot with one empty hypothesis."""
    entry = entry_A + tl.program_id(0) * (positions + FIELDS)
    slot, row, position = tl.load(entry), tl.arange(0, W2), tl.arange(0, P2)
    rows = slot * W + row
    tl.store(source_length_S + slot, tl.load(entry + 1))
    tl.store(job_id_S + slot, tl.load(entry + 2))
    tl.store(limit_S + slot, tl.load(entry + 3))
    tl.store(symbols_S2 + slot * 2, tl.load(entry + 4))
    tl.store(symbols_S2 + slot * 2 + 1, tl.load(entry + 5))
    tl.store(missing_R + rows, row * 0 + tl.load(entry + 6), mask=row < W)
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
def project(
    hidden_RD, weight_VD, bias_V, below_RV, best_RX, log_total_RX, rows_in_all, vocab_size, stride, parts,
    BIAS: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """For a part of some rows: the best logit, the log of the sum of exponentials, how far each logit is below."""
    start_next(EARLY)
    tiles = tl.cdiv(rows_in_all, ROWS)  # of two parts, whose weights stay in the cache
    index = tl.program_id(0) % (2 * tiles)
    part = tl.program_id(0) // (2 * tiles) * 2 + index % 2
    rows, token = index // 2 * ROWS + tl.arange(0, ROWS), part * PART + tl.arange(0, PART)
    k = tl.arange(0, BLOCK)
    vectors = hidden_RD + (rows % rows_in_all)[:, None] * D + k[None, :]
    weights = weight_VD + (token % vocab_size)[None, :].to(tl.int64) * D + k[:, None]
    wait_for_inputs(EARLY)
    if part < parts:
        logit = tl.zeros((ROWS, PART), tl.float32)
        for start in range(0, D, BLOCK):
            x = tl.load(vectors + start, mask=(start + k < D)[None, :], other=0.0)
            weight = tl.load(weights + start, mask=(start + k < D)[:, None], other=0.0)
            logit = tl.dot(x, weight, logit, input_precision="ieee")
        if BIAS:
            logit += tl.load(bias_V + token, mask=token < vocab_size, other=0.0).to(tl.float32)[None, :]
        logit = tl.where((token < vocab_size)[None, :], logit, float("-inf"))
        best, offset = tl.max(logit, 1), rows * parts + part
        tl.store(best_RX + offset, best, mask=rows < rows_in_all)
        best = tl.maximum(best, LOWEST)  # even where a bias excludes the whole part
        logit -= best[:, None]
        tl.store(log_total_RX + offset, best + tl.log(tl.sum(tl.exp(logit), 1)), mask=rows < rows_in_all)
        below = below_RV + rows[:, None].to(tl.int64) * stride + token[None, :]
        inside = (rows < rows_in_all)[:, None] & (token < stride)[None, :]
        tl.store(below, logit.to(below_RV.dtype.element_ty), mask=inside)


@triton.jit
def _best_allowed(
    best, at, part, below, best_X, in_rows, vocab_size, forced, symbols, missing,
    PART: tl.constexpr, PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr, EOS: tl.constexpr,
    ANY_BUT_END: tl.constexpr,
):  # fmt: skip
    """The best logits of the parts of rows, with those of the part `at` replaced by the best that are allowed."""
    token = (at * PART + tl.arange(0, PART))[None, :]
    logit = tl.load(below + token, mask=in_rows & (token < vocab_size), other=float("-inf")).to(tl.float32)
    logit += tl.load(best_X + at, mask=in_rows, other=0.0)
    allowed = _is_allowed(token, forced, symbols, missing[:, None], PAD, UNK, BOS, EOS, ANY_BUT_END)
    highest = tl.max(tl.where(allowed, logit, float("-inf")), 1)
    return tl.where((part == at)[None, :], highest[:, None], best)


@triton.jit
def _best_of_parts(
    below_RV, best_RX, log_total_RX, alive_R, missing_R, rows, in_slot, forced, symbols, vocab_size, stride, parts,
    X2: tl.constexpr, PART: tl.constexpr, PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr, EOS: tl.constexpr,
    ANY_BUT_END: tl.constexpr,
):  # fmt: skip
    """For the rows of a slot: their gain and missing symbols, and the best log-probability of each part [row][part].

    The gain is added to the logits of a row: its log-probability so far minus the log of the softmax's denominator.
    """
    part = tl.arange(0, X2)
    of_part, inside = rows[:, None] * parts + part[None, :], in_slot[:, None] & (part < parts)[None, :]
    log_total = tl.load(log_total_RX + of_part, mask=inside, other=float("-inf"))
    maximum = tl.where(in_slot, tl.max(log_total, 1), 0.0)
    log_sum = maximum + tl.log(tl.where(in_slot, tl.sum(tl.exp(log_total - maximum[:, None]), 1), 1.0))
    gain = tl.load(alive_R + rows, mask=in_slot, other=float("-inf")) - log_sum
    missing = tl.load(missing_R + rows, mask=in_slot, other=0)
    best = tl.load(best_RX + of_part, mask=inside, other=float("-inf"))
    # Only the forced token if there is one. Otherwise all tokens are allowed but markers, in the first part, and
    # symbols, of which there are too few for three parts.
    best = tl.where((forced >= 0) & (part != forced // PART)[None, :], float("-inf"), best)
    below, best_X = below_RV + rows.to(tl.int64)[:, None] * stride, best_RX + rows[:, None] * parts
    in_rows, at = in_slot[:, None], tl.where(forced >= 0, forced // PART, 0)
    best = _best_allowed(
        best, at, part, below, best_X, in_rows, vocab_size, forced, symbols, missing,
        PART, PAD, UNK, BOS, EOS, ANY_BUT_END,
    )  # fmt: skip
    count = tl.load(symbols + 1)
    if count > 0:
        for last in tl.static_range(2):
            at = (tl.load(symbols) + last * (count - 1)) // PART
            best = _best_allowed(
                best, at, part, below, best_X, in_rows, vocab_size, forced, symbols, missing,
                PART, PAD, UNK, BOS, EOS, ANY_BUT_END,
            )  # fmt: skip
    return gain, missing, best + gain[:, None]


@triton.jit
def _penalty(length, alpha):
    return tl.exp(alpha * tl.log((5.0 + length) / 6.0))


@triton.jit
def advance(
    below_RV, best_RX, log_total_RX, job_id_S, done_S, position_R, limit_S, forced_SP, symbols_S2, missing_R,
    token_R, generated_RP, ancestor_RP, alive_R, finished_RP, finished_length_R, finished_log_prob_R, finished_score_R,
    alpha_1, nbest_1, vocab_size, stride, parts, positions,
    W: tl.constexpr, W2: tl.constexpr, C: tl.constexpr, C2: tl.constexpr, X2: tl.constexpr, P2: tl.constexpr,
    PART: tl.constexpr, PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr, EOS: tl.constexpr,
    ANY_BUT_END: tl.constexpr, EARLY: tl.constexpr, BEGIN: tl.constexpr,
):  # fmt: skip
    """Extend the hypotheses of a slot by their best next tokens; scores and lengths leave out the first BEGIN ones."""
    start_next(EARLY)
    wait_for_inputs(EARLY)
    slot = tl.program_id(0)
    job_id = tl.load(job_id_S + slot)
    if job_id != 0:
        t, limit, alpha = tl.load(position_R + slot * W), tl.load(limit_S + slot), tl.load(alpha_1)
        row, position = tl.arange(0, W2), tl.arange(0, P2)
        rows = slot * W + row
        forced, symbols = tl.load(forced_SP + slot * positions + t), symbols_S2 + slot * 2
        gain, missing, best = _best_of_parts(
            below_RV, best_RX, log_total_RX, alive_R, missing_R, rows, row < W, forced, symbols, vocab_size, stride,
            parts, X2, PART, PAD, UNK, BOS, EOS, ANY_BUT_END,
        )  # fmt: skip
        best = tl.reshape(best, (W2 * X2,))
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
        chosen_missing = tl.sum(tl.where(of_row[:, None] == row[None, :], missing[None, :], 0), 1)
        chosen_row, is_chosen = slot * W + of_row, peak > float("-inf")
        below = below_RV + chosen_row.to(tl.int64)[:, None] * stride
        exists = is_chosen[:, None] & (token < vocab_size)
        value = tl.load(below + token, mask=exists, other=float("-inf")).to(tl.float32)
        value += tl.load(best_RX + chosen_row * parts + chosen % X2, mask=is_chosen, other=0.0)[:, None]
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

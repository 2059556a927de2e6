"""The two kernels of a step of `slot_beam.SlotBeam`: the best next words of every row, and what becomes of them."""

import triton
import triton.language as tl


@triton.jit
def candidates(
    logits_RV, ticket_S, position_S, forced_SP, value_RXC, token_RXC, top_RX, total_RX, vocabulary, room,
    W: tl.constexpr, C: tl.constexpr, CHUNK: tl.constexpr, PAD: tl.constexpr, UNK: tl.constexpr, BOS: tl.constexpr,
):  # fmt: skip
    """The best C words of a part of the vocabulary, and the part's share of the softmax's sum."""
    row, chunk, chunks = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    slot = row // W
    if tl.load(ticket_S + slot) != 0:
        word = chunk * CHUNK + tl.arange(0, CHUNK)
        logit = tl.load(logits_RV + row.to(tl.int64) * vocabulary + word, mask=word < vocabulary, other=float("-inf"))
        top = tl.max(logit, 0)
        tl.store(top_RX + row * chunks + chunk, top)
        tl.store(total_RX + row * chunks + chunk, tl.sum(tl.exp(logit - top), 0))
        forced = tl.load(forced_SP + slot * room + tl.load(position_S + slot))
        sayable = (word != PAD) & (word != UNK) & (word != BOS)
        logit = tl.where((word == forced) | ((forced < 0) & sayable), logit, float("-inf"))
        for c in tl.static_range(C):
            best, at = tl.max(logit, 0, return_indices=True)
            tl.store(value_RXC + (row * chunks + chunk) * C + c, best)
            tl.store(token_RXC + (row * chunks + chunk) * C + c, chunk * CHUNK + at)
            logit = tl.where(word == chunk * CHUNK + at, float("-inf"), logit)


@triton.jit
def _penalty(length, alpha):
    return tl.exp(alpha * tl.log((5.0 + length) / 6.0))


@triton.jit
def advance(
    value_RXC, token_RXC, top_RX, total_RX, ticket_S, done_S, position_S, limit_S, token_R, said_RP, ancestor_RP,
    alive_R, ended_RP, ended_length_R, ended_log_prob_R, ended_score_R, alpha_1, nbest_1, room,
    W: tl.constexpr, W2: tl.constexpr, C: tl.constexpr, C2: tl.constexpr, X: tl.constexpr, X2: tl.constexpr,
    P2: tl.constexpr, EOS: tl.constexpr,
):  # fmt: skip
    """Extend the hypotheses of one slot by their best next words."""
    slot = tl.program_id(0)
    ticket = tl.load(ticket_S + slot)
    if ticket != 0:
        t, limit, alpha = tl.load(position_S + slot), tl.load(limit_S + slot), tl.load(alpha_1)
        row, place = tl.arange(0, W2), tl.arange(0, P2)
        rows = slot * W + row
        # Log-probabilities of all candidates of all rows.
        part = tl.arange(0, X2)
        parts = rows[:, None] * X + part[None, :]
        there = (row < W)[:, None] & (part < X)[None, :]
        top = tl.load(top_RX + parts, mask=there, other=float("-inf"))
        highest = tl.max(top, 1)
        highest = tl.where(row < W, highest, 0.0)
        total = tl.load(total_RX + parts, mask=there, other=0.0) * tl.exp(top - highest[:, None])
        log_sum = highest + tl.log(tl.where(row < W, tl.sum(total, 1), 1.0))
        alive = tl.load(alive_R + rows, mask=row < W, other=float("-inf"))
        pick = tl.arange(0, X2 * C2)
        picks = rows[:, None] * (X * C) + ((pick // C2) * C + pick % C2)[None, :]
        there = (row < W)[:, None] & ((pick // C2 < X) & (pick % C2 < C))[None, :]
        value = tl.load(value_RXC + picks, mask=there, other=float("-inf")) + (alive - log_sum)[:, None]
        value = tl.reshape(value, (W2 * X2 * C2,))
        token = tl.reshape(tl.load(token_RXC + picks, mask=there, other=0), (W2 * X2 * C2,))
        index = tl.arange(0, W2 * X2 * C2)

        ended_score = tl.load(ended_score_R + rows, mask=row < W, other=float("inf"))
        ended_log_prob = tl.load(ended_log_prob_R + rows, mask=row < W, other=0.0)
        next_alive = tl.full((W2,), float("-inf"), tl.float32)
        next_token = tl.full((W2,), EOS, tl.int32)
        parent = tl.zeros((W2,), tl.int32)
        kept = 0
        for _ in tl.static_range(C):
            best, at = tl.max(value, 0, return_indices=True)
            word, came_from = tl.sum(tl.where(index == at, token, 0), 0), at // (X2 * C2)
            value = tl.where(index == at, float("-inf"), value)
            if word == EOS:
                score = best / _penalty(t + 1.0, alpha)
                worst, worst_at = tl.min(ended_score, 0, return_indices=True)
                if score > worst:  # it takes the place of the worst that ended before
                    ended_score = tl.where(row == worst_at, score, ended_score)
                    ended_log_prob = tl.where(row == worst_at, best, ended_log_prob)
                    who = tl.load(
                        ancestor_RP + (slot * W + came_from) * room + place + 1, mask=place + 1 < t, other=0
                    ).to(tl.int32)
                    who = tl.where(place + 1 < t, who, came_from)
                    tokens = tl.load(said_RP + (slot * W + who) * room + place, mask=place < t, other=EOS)
                    tl.store(ended_RP + (slot * W + worst_at) * room + place, tokens, mask=place < t)
                    tl.store(ended_length_R + slot * W + worst_at, t)
            elif kept < W:
                next_alive = tl.where(row == kept, best, next_alive)
                next_token = tl.where(row == kept, word, next_token)
                parent = tl.where(row == kept, came_from, parent)
                kept += 1

        ancestors = tl.load(
            ancestor_RP + (slot * W + parent)[:, None] * room + place[None, :], mask=(place < t)[None, :], other=0
        )
        ancestors = tl.where(place[None, :] == t, parent[:, None].to(tl.uint8), ancestors)
        tl.debug_barrier()  # all are read before the first is written
        mine = (row < W)[:, None] & (place <= t)[None, :]
        tl.store(ancestor_RP + rows[:, None] * room + place[None, :], ancestors, mask=mine)
        tl.store(said_RP + rows * room + t, next_token, mask=row < W)
        tl.store(token_R + rows, next_token, mask=row < W)
        tl.store(alive_R + rows, next_alive, mask=row < W)
        tl.store(ended_score_R + rows, ended_score, mask=row < W)
        tl.store(ended_log_prob_R + rows, ended_log_prob, mask=row < W)
        # Log-probabilities only fall: a live hypothesis can at best keep its own and end at the kindest length.
        kindest = tl.where(alpha >= 0, limit + 1.0, t + 2.0)
        bound = tl.max(next_alive, 0) / _penalty(kindest, alpha)
        final = tl.sum(((ended_score >= bound) & (row < W)).to(tl.int32), 0) >= tl.load(nbest_1)
        tl.store(position_S + slot, tl.where(final, 0, t + 1))
        if final:
            tl.store(done_S + slot, ticket)
            tl.store(ticket_S + slot, 0)

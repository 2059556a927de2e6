/* Beam search, as in `search/beam.py`; with a beam of 1, greedy search. */
#include "layers.h"

enum { ANCESTORS = 64, SCANNED = 64 }; /* positions whose ancestors are copied at once; logits that are skipped at once */

/* ((5 + length) / 6)^alpha */
float EXPORT(length_penalty)(float length, float alpha) { return (float)pow((5 + length) / 6, alpha); }

/* Insert a candidate into the best `count`, which are sorted, if it is one of them. */
static void insert(Candidate *best, int count, float log_prob, int token) {
    if (log_prob <= best[count - 1].log_prob) return;
    int i = count - 1;
    for (; i > 0 && best[i - 1].log_prob < log_prob; i--) best[i] = best[i - 1];
    best[i] = (Candidate){log_prob, token};
}

/* The bit of a token in Job.missing; 0 if it is no symbol. */
static uint32_t symbol_bit(const Job *job, int token) {
    int symbol = token - job->first_symbol;
    return symbol >= 0 && symbol < job->symbols ? 1u << symbol : 0;
}

/* Index of the first of n ascending tokens that is not below this one. */
static int index_of(const int32_t *tokens, int n, int token) {
    int low = 0;
    while (low < n) {
        int middle = (low + n) / 2;
        if (tokens[middle] < token) low = middle + 1;
        else n = middle;
    }
    return low;
}

/* Project the rows `from` up to `to` onto the vocabulary, or onto the tokens of a shortlist, block by block. Of each row,
 * update the softmax's maximum and sum and the best `count` tokens of a part of them, but never keep all logits.
 */
static void project_rows(Worker part, const Linear *projection, const int32_t *shortlist, int from, int to, Batch *batch,
                         int count) {
    int first, last, R = batch->count;
    const Integer *quantised = batch->quantised;
    float *logits = batch->logits + (size_t)part.id * R * LOGIT_PANELS * PANEL;
    float *max_logit = batch->max_logit + part.id * R, *exp_sum = batch->exp_sum + part.id * R;
    float *logit_sum = batch->logit_sum + part.id * R;
    Candidate *candidates = batch->candidates + (size_t)part.id * R * count;
    split_work(part, projection->panels, &first, &last);
    for (int panel = first; panel < last; panel += LOGIT_PANELS) {
        int end = panel + LOGIT_PANELS < last ? panel + LOGIT_PANELS : last, start = panel * PANEL;
        int tokens = (end * PANEL < projection->width_out ? end * PANEL : projection->width_out) - start;
        multiply_panels(projection, panel, end, quantised + (size_t)from * batch->parts * projection->padded_in,
                        batch->scale + from * batch->parts, to - from, batch->parts, logits, LOGIT_PANELS * PANEL, 0);
        for (int r = from; r < to; r++) {
            const float *row = logits + (size_t)(r - from) * LOGIT_PANELS * PANEL;
            const Job *job = batch->row[r].job;
            Candidate *best = candidates + r * count;
            float max = largest_of(row, tokens, -INFINITY, 0), terms[LOGIT_PANELS * PANEL];
            if (max > max_logit[r]) {
                float scale = max_logit[r] == -INFINITY ? 0 : exponential(max_logit[r] - max);
                logit_sum[r] = scale > 0 ? scale * (logit_sum[r] + (max_logit[r] - max) * exp_sum[r]) : 0;
                exp_sum[r] *= scale;
                max_logit[r] = max;
            }
            exp_sum[r] += exponentials(row, tokens, max_logit[r], 1, terms);
            for (int i = 0; job->entropy && i < tokens; i++) logit_sum[r] += terms[i] * (row[i] - max_logit[r]);
            uint32_t missing = job->missing[batch->row[r].hypothesis];
            int forced = job->forced[job->position], may_end = forced != ANY_BUT_END && !missing;
            int lowest = forced >= 0 ? forced : may_end ? EOS : EOS + 1;
            int i = shortlist ? index_of(shortlist + start, tokens, lowest) : lowest > start ? lowest - start : 0;
            float worst = best[count - 1].log_prob;
            if (forced >= 0) {
                if (i < tokens && (shortlist ? shortlist[start + i] : start + i) == forced) insert(best, count, row[i], forced);
                continue;
            }
            if (max <= worst) continue;
            for (int stop; i < tokens; i = stop) {
                stop = i + SCANNED < tokens ? i + SCANNED : tokens;
                if (largest_of(row + i, stop - i, -INFINITY, 0) <= worst) continue;
                for (; i < stop; i++)
                    if (row[i] > worst) {
                        int token = shortlist ? shortlist[start + i] : start + i;
                        if (symbol_bit(job, token) & ~missing) continue;
                        insert(best, count, row[i], token);
                        worst = best[count - 1].log_prob;
                    }
            }
        }
    }
}

/* Find the best `count` next tokens of each row in a part of the vocabulary. Adjacent rows with the same common tokens, or
 * without a shortlist, are projected together; those of a job with a shortlist, then also onto its own tokens.
 */
static void find_candidates(Worker part, const Model *model, Batch *batch, int count) {
    int R = batch->count;
    const Row *row = batch->row;
    float *max_logit = batch->max_logit + part.id * R, *exp_sum = batch->exp_sum + part.id * R;
    Candidate *candidates = batch->candidates + (size_t)part.id * R * count;
    float *logit_sum = batch->logit_sum + part.id * R;
    for (int r = 0; r < R; r++) max_logit[r] = -INFINITY, exp_sum[r] = logit_sum[r] = 0;
    for (int i = 0; i < R * count; i++) candidates[i] = (Candidate){-INFINITY, EOS};
    for (int from = 0, to; from < R; from = to) {
        const Shortlist *common = row[from].job->common;
        for (to = from + 1; to < R && row[to].job->common == common; to++);
        project_rows(part, common ? &common->projection : &model->projection, common ? common->tokens : NULL, from, to,
                     batch, count);
    }
    for (int from = 0, to; from < R; from = to) {
        const Job *job = row[from].job;
        for (to = from + 1; to < R && row[to].job == job; to++);
        if (job->common) project_rows(part, &job->own.projection, job->own.tokens, from, to, batch, count);
    }
}

/* Add a hypothesis to the finished ones; if there are `beam` already, it replaces the worst unless that is better. */
static void finish(Job *job, int row, float log_prob, float score) {
    int i = job->finished_count, t = job->position, P = job->positions;
    if (i == job->beam) {
        i = 0;
        for (int w = 1; w < job->beam; w++)
            if (job->finished_score[w] < job->finished_score[i]) i = w;
        if (score <= job->finished_score[i]) return;
    } else job->finished_count++;
    for (int p = 0; p < t; p++) job->finished_tokens[i * P + p] = job->tokens[job->ancestor[row * P + p + 1] * P + p];
    job->finished_length[i] = t, job->finished_log_prob[i] = log_prob, job->finished_score[i] = score;
}

/* Number of candidates for the next tokens: of 2 * beam, at most `beam` end, so that enough remain to continue with. */
static int candidate_count(int beam) { return beam > 1 ? 2 * beam : 1; }

/* Here and below, logarithms are of double precision and then rounded: those of single precision depend on the C library.
 * The entropy of a row's distribution, whose largest logit is `max` and whose softmax has the sum `total`. */
static float entropy(const Batch *batch, int r, int parts, float max, float total) {
    float weighted = 0;
    for (int i = r; i < parts * batch->count; i += batch->count) {
        float below = batch->max_logit[i] - max;
        if (batch->exp_sum[i] > 0) weighted += (float)exp(below) * (batch->logit_sum[i] + below * batch->exp_sum[i]);
    }
    return (float)log(total) - weighted / total;
}

/* Extend a job's hypotheses by their best next tokens. Those alive are the rows r, r + 1, ... of the batch, each with `found`
 * candidates, the best first.
 */
static void extend(Job *job, int r, const Batch *batch, int parts, int found) {
    int W = job->beam, P = job->positions, t = job->position, R = batch->count, alive = 0, count = candidate_count(W);
    float alpha = job->alpha;
    float base[MAX_BEAM]; /* what turns a row's logits into log-probabilities of hypotheses */
    int hypothesis[MAX_BEAM];
    for (int w = 0; w < W; w++)
        if (job->log_prob[w] > -INFINITY) {
            const float *max_logit = batch->max_logit + r + alive, *exp_sum = batch->exp_sum + r + alive;
            float max = -INFINITY, total = 0;
            for (int i = 0; i < parts; i++) max = fmaxf(max, max_logit[i * R]);
            for (int i = 0; i < parts; i++)
                if (exp_sum[i * R] > 0) total += exp_sum[i * R] * (float)exp(max_logit[i * R] - max);
            base[alive] = job->log_prob[w] - max - (float)log(total);
            if (job->entropy) job->entropy[t] = entropy(batch, r + alive, parts, max, total);
            hypothesis[alive++] = w;
        }
    Candidate best[2 * MAX_BEAM]; /* here, `token` is the token times W, plus the row */
    for (int c = 0; c < count; c++) best[c] = (Candidate){-INFINITY, 0};
    for (int i = 0; i < parts; i++)
        for (int row = 0; row < alive; row++)
            for (int c = 0; c < count; c++) {
                const Candidate *one = batch->candidates + ((size_t)i * R + r + row) * found + c;
                if (one->log_prob > -INFINITY) insert(best, count, one->log_prob + base[row], one->token * W + row);
            }
    if (job->token_log_prob) job->token_log_prob[t] = best[0].log_prob - job->log_prob[0];
    float log_prob[MAX_BEAM];
    int tokens[MAX_BEAM], parent[MAX_BEAM], kept = 0;
    uint32_t missing[MAX_BEAM];
    for (int c = 0; c < count && best[c].log_prob > -INFINITY; c++) {
        int token = best[c].token / W, from = hypothesis[best[c].token % W];
        float penalty = EXPORT(length_penalty)(t + 1 - job->begin, alpha);
        if (token == EOS) finish(job, from, best[c].log_prob, best[c].log_prob / penalty);
        else if (kept < W) log_prob[kept] = t < job->begin ? 0 : best[c].log_prob, tokens[kept] = token, parent[kept++] = from;
    }
    for (int w = 0; w < kept; w++) missing[w] = job->missing[parent[w]] & ~symbol_bit(job, tokens[w]);
    for (int p = 0; p <= t; p += ANCESTORS) {
        uint8_t history[MAX_BEAM][ANCESTORS];
        int size = t + 1 - p < ANCESTORS ? t + 1 - p : ANCESTORS;
        for (int w = 0; w < kept; w++) memcpy(history[w], job->ancestor + parent[w] * P + p, size);
        for (int w = 0; w < kept; w++) memcpy(job->ancestor + w * P + p, history[w], size);
    }
    for (int w = 0; w < kept; w++) {
        job->ancestor[w * P + t + 1] = w;
        job->tokens[w * P + t] = tokens[w];
        job->missing[w] = missing[w];
        job->log_prob[w] = log_prob[w];
    }
    for (int w = kept; w < W; w++) job->log_prob[w] = -INFINITY;
    /* Log-probabilities only decrease: at best, a hypothesis keeps its own and ends at the most favourable length. If as many
     * finished ones as are wanted are as good as that, it is pruned, and so are those below it.
     */
    float penalty = EXPORT(length_penalty)((alpha >= 0 ? job->limit + 1 : t + 2) - job->begin, alpha);
    for (int w = 0; w < kept; w++) {
        int as_good = 0;
        for (int i = 0; i < job->finished_count; i++) as_good += job->finished_score[i] >= log_prob[w] / penalty;
        if (as_good >= job->nbest) job->log_prob[w] = -INFINITY;
    }
    job->done = job->log_prob[0] == -INFINITY;
    job->position = t + 1;
}

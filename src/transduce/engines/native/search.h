/* From next words to whole sentences: what `search/beam.py` says in Python. */
#include "parts.h"

enum { CHUNK = 64 }; /* places whose ancestors are moved at once */

/* Keep the best `most` candidates, best first. */
static void consider(Candidate *best, int most, float log_prob, int token) {
    if (log_prob <= best[most - 1].log_prob) return;
    int place = most - 1;
    for (; place > 0 && best[place - 1].log_prob < log_prob; place--) best[place] = best[place - 1];
    best[place] = (Candidate){log_prob, token};
}

/* The vocabulary projection, block by block: of each row the softmax's sum and the best words, never all logits. */
static void next_words(Team team, const Model *model, Rows *rows, int most) {
    const Row *which = rows->which;
    int first, last, R = rows->rows;
    float *logits = rows->logits + (size_t)team.id * R * BLOCK * PANEL, *top = rows->top + team.id * R;
    float *total = rows->total + team.id * R;
    Candidate *best = rows->best + (size_t)team.id * R * most;
    for (int r = 0; r < R; r++) top[r] = -INFINITY, total[r] = 0;
    for (int i = 0; i < R * most; i++) best[i] = (Candidate){-INFINITY, EOS};
    share(team, model->projection.panels, &first, &last);
    for (int panel = first; panel < last; panel += BLOCK) {
        int end = panel + BLOCK < last ? panel + BLOCK : last, start = panel * PANEL;
        int words = (end * PANEL < model->vocabulary ? end * PANEL : model->vocabulary) - start;
        multiply_panels(&model->projection, panel, end, rows->q, rows->scale, R, logits, BLOCK * PANEL, 0);
        for (int r = 0; r < R; r++) {
            const float *row = logits + (size_t)r * BLOCK * PANEL;
            float highest = row[0], sum = 0;
            for (int i = 1; i < words; i++) highest = fmaxf(highest, row[i]);
            if (highest > top[r]) total[r] *= top[r] == -INFINITY ? 0 : exponential(top[r] - highest), top[r] = highest;
            for (int i = 0; i < words; i++) sum += exponential(row[i] - top[r]);
            total[r] += sum;
            int forced = which[r].job->forced[which[r].job->position];
            if (forced >= start && forced < start + words) consider(best + r * most, most, row[forced - start], forced);
            if (forced >= 0 || highest <= best[r * most + most - 1].log_prob) continue;
            for (int i = start < EOS ? EOS - start : 0; i < words; i++)
                if (row[i] > best[r * most + most - 1].log_prob) consider(best + r * most, most, row[i], start + i);
        }
    }
    meet(team);
}

float length_penalty(float length, float alpha) { return powf((5 + length) / 6, alpha); }

static void finish(Job *job, int row, float log_prob, float score) {
    int place = job->ended_count, t = job->position;
    if (place == job->beam) { /* it takes the place of the worst that ended before, if it is better */
        place = 0;
        for (int i = 1; i < job->beam; i++)
            if (job->ended_score[i] < job->ended_score[place]) place = i;
        if (score <= job->ended_score[place]) return;
    } else job->ended_count++;
    for (int p = 0; p < t; p++)
        job->ended[place * job->places + p] = job->said[job->ancestor[row * job->places + p + 1] * job->places + p];
    job->ended_length[place] = t, job->ended_log_prob[place] = log_prob, job->ended_score[place] = score;
}

/* Extend a job's hypotheses by their best next words; its live rows are r, r + 1, ... of the batch. */
static void advance(Job *job, int r, const Rows *rows, int threads, int most, float alpha, int nbest) {
    int W = job->beam, P = job->places, t = job->position, R = rows->rows, live = 0;
    float gain[MAX_BEAM];
    int from[MAX_BEAM];
    for (int w = 0; w < W; w++)
        if (job->alive[w] > -INFINITY) {
            float top = -INFINITY, total = 0;
            for (int i = 0; i < threads; i++) top = fmaxf(top, rows->top[i * R + r + live]);
            for (int i = 0; i < threads; i++)
                if (rows->total[i * R + r + live] > 0)
                    total += rows->total[i * R + r + live] * expf(rows->top[i * R + r + live] - top);
            gain[live] = job->alive[w] - top - logf(total);
            from[live++] = w;
        }
    Candidate found[2 * MAX_BEAM]; /* its token is the word, times W, plus the live row */
    for (int c = 0; c < most; c++) found[c] = (Candidate){-INFINITY, 0};
    for (int i = 0; i < threads; i++)
        for (int w = 0; w < live; w++)
            for (int c = 0; c < most; c++) {
                const Candidate *one = rows->best + ((size_t)i * R + r + w) * most + c;
                if (one->log_prob > -INFINITY) consider(found, most, one->log_prob + gain[w], one->token * W + w);
            }
    float alive[MAX_BEAM];
    int token[MAX_BEAM], parent[MAX_BEAM], kept = 0;
    for (int c = 0; c < most && found[c].log_prob > -INFINITY; c++) {
        int word = found[c].token / W, row = from[found[c].token % W];
        if (word == EOS) finish(job, row, found[c].log_prob, found[c].log_prob / length_penalty(t + 1, alpha));
        else if (kept < W) alive[kept] = found[c].log_prob, token[kept] = word, parent[kept++] = row;
    }
    for (int p = 0; p <= t; p += CHUNK) {
        uint8_t history[MAX_BEAM][CHUNK];
        int some = t + 1 - p < CHUNK ? t + 1 - p : CHUNK;
        for (int w = 0; w < kept; w++) memcpy(history[w], job->ancestor + parent[w] * P + p, some);
        for (int w = 0; w < kept; w++) memcpy(job->ancestor + w * P + p, history[w], some);
    }
    for (int w = 0; w < kept; w++) {
        job->ancestor[w * P + t + 1] = w;
        job->said[w * P + t] = token[w];
        job->alive[w] = alive[w];
    }
    for (int w = kept; w < W; w++) job->alive[w] = -INFINITY;
    /* Log-probabilities only fall: a live hypothesis can at best keep its own and end at the kindest length. */
    float bound = kept ? alive[0] / length_penalty(alpha >= 0 ? job->limit + 1 : t + 2, alpha) : -INFINITY;
    int final = 0;
    for (int i = 0; i < job->ended_count; i++) final += job->ended_score[i] >= bound;
    job->done = final >= nbest || !kept;
    job->position = t + 1;
}

/* The Transformer and its beam search for a CPU, in 8-bit whole numbers: what `nn/`, `models/` and `search/` say in Python.
 *
 * A job is one sentence with `beam` rows for its hypotheses. Jobs are encoded when they come and stepped together, each at
 * its own place. Keys and values never move: ancestor[r][p] says in which row of the job the token lies that hypothesis
 * r has at place p. Every function below `Team` is run by all threads at once, each doing its share; `meet` lets
 * them wait for each other.
 */
#include <stdlib.h>

#include "int8.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum { EOS = 3 }; /* the markers below it are never said; BOS stands before it */
enum { BLOCK = 32, ENCODED_AT_ONCE = 128 };

typedef struct { int32_t width; float epsilon; const float *gain, *shift; } Norm;

typedef struct {
    Linear qkv, out, q, kv, cross_out, inner, outer;
    Norm norms[3]; /* around self-attention, cross-attention (decoder) and feed-forward */
} Layer;

typedef struct {
    int32_t vocabulary, width, heads, d_k, d_v, encoder_layers, decoder_layers, norm_first;
    const float *embedding, *positions;
    const Layer *encoder, *decoder;
    Norm encoder_norm, decoder_norm; /* used where the norm comes first */
    Linear projection;
} Model;

typedef struct { float log_prob; int32_t token; } Candidate;

typedef struct {
    int32_t beam, places, source, limit, position, ended_count, done;
    float *self_kv, *cross_kv;          /* [layer][row][place][keys, values], [layer][place][keys, values] */
    uint8_t *ancestor;                  /* [row][place] */
    int32_t *said, *forced, *ended;     /* [row][place], [place], [row][place] */
    int32_t *ended_length;
    float *alive, *ended_log_prob, *ended_score; /* [row] */
} Job;

typedef struct { Job *job; int32_t row; } Row;

/* Buffers for the rows that are worked on together. */
typedef struct {
    int32_t rows;
    Row *which; /* in a step */
    float *x, *y, *wide, *scale, *logits;
    int8_t *q;
    float *top, *total; /* [thread][row]: of the softmax over the words a thread has seen */
    Candidate *best;    /* [thread][row][2 beam] */
} Rows;

typedef struct { int id, size; } Team;

static void meet(void) {
#ifdef _OPENMP
#pragma omp barrier
#endif
}

static Team team_here(void) {
#ifdef _OPENMP
    return (Team){omp_get_thread_num(), omp_get_num_threads()};
#else
    return (Team){0, 1};
#endif
}

static void share(Team team, int all, int *first, int *last) {
    *first = (int)((int64_t)all * team.id / team.size);
    *last = (int)((int64_t)all * (team.id + 1) / team.size);
}

/* e^x to about 1e-7, in a form that compilers turn into vector instructions. */
static inline float exponential(float x) {
    x = fmaxf(x, -87.0f);
    float n = rintf(x * 1.44269504f), r = x - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f)))));
    union { int32_t i; float f; } power = {.i = ((int32_t)n + 127) << 23};
    return p * power.f;
}

static void linear(Team team, const Linear *layer, const Rows *rows, float *y, int relu) {
    int first, last;
    share(team, layer->panels, &first, &last);
    multiply_panels(layer, first, last, rows->q, rows->scale, rows->rows, y + first * PANEL, layer->width_out, relu);
    meet();
}

static void quantise(Team team, const float *x, const Linear *next, Rows *rows) {
    int first, last;
    share(team, rows->rows, &first, &last);
    for (int r = first; r < last; r++)
        rows->scale[r] = quantise_row(x + (size_t)r * next->width_in, next->width_in, next->padded_in,
                                      rows->q + (size_t)r * next->padded_in);
    meet();
}

static void normalise(const Norm *norm, const float *x, float *y) {
    float mean = 0, variance = 0;
    for (int d = 0; d < norm->width; d++) mean += x[d];
    mean /= norm->width;
    for (int d = 0; d < norm->width; d++) variance += (x[d] - mean) * (x[d] - mean);
    float scale = 1 / sqrtf(variance / norm->width + norm->epsilon);
    for (int d = 0; d < norm->width; d++) y[d] = (x[d] - mean) * scale * norm->gain[d] + norm->shift[d];
}

/* Around a sub-layer: x becomes what it is after `y` was added (unless NULL), and `next` finds its input in rows->q. */
static void residual(Team team, Rows *rows, const float *y, const Norm *after, const Norm *before, const Linear *next) {
    int first, last, D = next->width_in;
    float normed[D];
    share(team, rows->rows, &first, &last);
    for (int r = first; r < last; r++) {
        float *x = rows->x + (size_t)r * D;
        if (y)
            for (int d = 0; d < D; d++) x[d] += y[(size_t)r * D + d];
        if (y && after) normalise(after, x, x);
        if (before) normalise(before, x, normed);
        rows->scale[r] = quantise_row(before ? normed : x, D, next->padded_in, rows->q + (size_t)r * next->padded_in);
    }
    meet();
}

static void embed(const Model *model, int token, int position, float *x) {
    float scale = sqrtf(model->width);
    const float *word = model->embedding + (size_t)token * model->width;
    const float *place = model->positions + (size_t)position * model->width;
    for (int d = 0; d < model->width; d++) x[d] = word[d] * scale + place[d];
}

static float dot(const float *a, const float *b, int width) {
    float total = 0;
    for (int i = 0; i < width; i++) total += a[i] * b[i];
    return total;
}

/* The softmax of n scores, left unnormalised in place; one over their sum. */
static float softmax(float *scores, int n) {
    float top = scores[0], total = 0;
    for (int i = 1; i < n; i++) top = fmaxf(top, scores[i]);
    for (int i = 0; i < n; i++) scores[i] = exponential(scores[i] - top);
    for (int i = 0; i < n; i++) total += scores[i];
    return 1 / total;
}

/* One head of one query over n places; `line` finds the keys of a place, its values lie `apart` behind them. */
#define ATTEND(q, o, n, line, apart)                                                     \
    do {                                                                                 \
        float scores[n], scale = 1 / sqrtf(d_k);                                         \
        for (int p = 0; p < (n); p++) scores[p] = dot(q, line, d_k) * scale;             \
        float share_of = softmax(scores, n);                                             \
        for (int i = 0; i < d_v; i++) (o)[i] = 0;                                        \
        for (int p = 0; p < (n); p++) {                                                  \
            const float *values = (line) + (apart);                                      \
            float weight = scores[p] * share_of;                                         \
            for (int i = 0; i < d_v; i++) (o)[i] += weight * values[i];                  \
        }                                                                                \
    } while (0)

/* ---- encoder: sentences laid end to end ---- */

static void encode_some(Team team, const Model *model, Job **jobs, int count, const int32_t *tokens, const int32_t *offsets,
                        Rows *rows) {
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, D = model->width, first, last;
    int qkv_width = H * (2 * d_k + d_v), base = offsets[0];
    const Layer *layers = model->encoder;
    share(team, count, &first, &last);
    for (int b = first; b < last; b++)
        for (int i = offsets[b]; i < offsets[b + 1]; i++)
            embed(model, tokens[i], i - offsets[b], rows->x + (size_t)(i - base) * D);
    meet();
    residual(team, rows, NULL, NULL, model->norm_first ? &layers[0].norms[0] : NULL, &layers[0].qkv);
    for (int l = 0; l < model->encoder_layers; l++) {
        const Layer *layer = &layers[l], *next = l + 1 < model->encoder_layers ? layer + 1 : NULL;
        linear(team, &layer->qkv, rows, rows->wide, 0);
        share(team, count * H, &first, &last);
        for (int i = first; i < last; i++) {
            int b = i / H, h = i % H, start = offsets[b] - base, length = offsets[b + 1] - offsets[b];
            const float *own = rows->wide + (size_t)start * qkv_width;
            for (int t = 0; t < length; t++) {
                const float *q = own + (size_t)t * qkv_width + h * d_k;
                float *o = rows->y + (size_t)(start + t) * H * d_v + h * d_v;
                ATTEND(q, o, length, own + (size_t)p * qkv_width + (H + h) * d_k, H * d_k - h * d_k + h * d_v);
            }
        }
        meet();
        quantise(team, rows->y, &layer->out, rows);
        linear(team, &layer->out, rows, rows->y, 0);
        int post = !model->norm_first;
        residual(team, rows, rows->y, post ? &layer->norms[0] : NULL, post ? NULL : &layer->norms[2], &layer->inner);
        linear(team, &layer->inner, rows, rows->wide, 1);
        quantise(team, rows->wide, &layer->outer, rows);
        linear(team, &layer->outer, rows, rows->y, 0);
        const Norm *before = post ? NULL : next ? &next->norms[0] : &model->encoder_norm;
        residual(team, rows, rows->y, post ? &layer->norms[2] : NULL, before, next ? &next->qkv : &model->decoder[0].kv);
    }
    int line = H * (d_k + d_v);
    for (int l = 0; l < model->decoder_layers; l++) {
        linear(team, &model->decoder[l].kv, rows, rows->wide, 0);
        share(team, count, &first, &last);
        for (int b = first; b < last; b++)
            memcpy(jobs[b]->cross_kv + (size_t)l * jobs[b]->source * line, rows->wide + (size_t)(offsets[b] - base) * line,
                   (size_t)jobs[b]->source * line * sizeof(float));
        meet();
    }
}

/* Read the sources of these jobs: job b's tokens are offsets[b]..offsets[b + 1], its end marker among them. */
void encode(const Model *model, Job **jobs, int count, const int32_t *tokens, const int32_t *offsets, Rows *rows,
            int threads) {
#pragma omp parallel num_threads(threads)
    {
        Team team = team_here();
        for (int b = 0, end; b < count; b = end) { /* a few at a time, so that they stay in the cache */
            end = b + 1;
            while (end < count && offsets[end + 1] - offsets[b] <= ENCODED_AT_ONCE) end++;
            if (team.id == 0) rows->rows = offsets[end] - offsets[b];
            meet();
            encode_some(team, model, jobs + b, end - b, tokens, offsets + b, rows);
        }
    }
}

/* ---- decoder: one new token for each row ---- */

static void attend_self(Team team, const Model *model, int l, Rows *rows) {
    const Row *which = rows->which;
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, line = H * (d_k + d_v), first, last;
    share(team, rows->rows * H, &first, &last);
    for (int i = first; i < last; i++) {
        int h = i % H;
        const Job *job = which[i / H].job;
        int own = which[i / H].row, t = job->position;
        const float *qkv = rows->wide + (size_t)(i / H) * H * (2 * d_k + d_v), *q = qkv + h * d_k;
        float *cache = job->self_kv + (size_t)l * job->beam * job->places * line + h * d_k;
        int apart = H * d_k - h * d_k + h * d_v;
        float *now = cache + ((size_t)own * job->places + t) * line;
        memcpy(now, qkv + (H + h) * d_k, d_k * sizeof(float));
        memcpy(now + apart, qkv + 2 * H * d_k + h * d_v, d_v * sizeof(float));
        const uint8_t *ancestor = job->ancestor + own * job->places; /* at place t it says `own` */
        float *o = rows->y + (size_t)(i / H) * H * d_v + h * d_v;
        ATTEND(q, o, t + 1, cache + ((size_t)ancestor[p] * job->places + p) * line, apart);
    }
    meet();
}

static void attend_cross(Team team, const Model *model, int l, Rows *rows) {
    const Row *which = rows->which;
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, line = H * (d_k + d_v), first, last;
    share(team, rows->rows * H, &first, &last);
    for (int i = first; i < last; i++) {
        int h = i % H;
        const Job *job = which[i / H].job;
        const float *q = rows->wide + (size_t)(i / H) * H * d_k + h * d_k;
        const float *cache = job->cross_kv + (size_t)l * job->source * line + h * d_k;
        float *o = rows->y + (size_t)(i / H) * H * d_v + h * d_v;
        ATTEND(q, o, job->source, cache + (size_t)p * line, H * d_k - h * d_k + h * d_v);
    }
    meet();
}

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
    meet();
}

static float penalty(float length, float alpha) { return powf((5 + length) / 6, alpha); }

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
    float gain[W];
    int from[W];
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
    Candidate found[most]; /* its token is the word, times W, plus the live row */
    for (int c = 0; c < most; c++) found[c] = (Candidate){-INFINITY, 0};
    for (int i = 0; i < threads; i++)
        for (int w = 0; w < live; w++)
            for (int c = 0; c < most; c++) {
                const Candidate *one = rows->best + ((size_t)i * R + r + w) * most + c;
                if (one->log_prob > -INFINITY) consider(found, most, one->log_prob + gain[w], one->token * W + w);
            }
    float alive[W];
    int token[W], parent[W], kept = 0;
    for (int c = 0; c < most && found[c].log_prob > -INFINITY; c++) {
        int word = found[c].token / W, row = from[found[c].token % W];
        if (word == EOS) finish(job, row, found[c].log_prob, found[c].log_prob / penalty(t + 1, alpha));
        else if (kept < W) alive[kept] = found[c].log_prob, token[kept] = word, parent[kept++] = row;
    }
    uint8_t history[W][t + 1];
    for (int w = 0; w < kept; w++) memcpy(history[w], job->ancestor + parent[w] * P, t + 1);
    for (int w = 0; w < kept; w++) {
        memcpy(job->ancestor + w * P, history[w], t + 1);
        job->ancestor[w * P + t + 1] = w;
        job->said[w * P + t] = token[w];
        job->alive[w] = alive[w];
    }
    for (int w = kept; w < W; w++) job->alive[w] = -INFINITY;
    /* Log-probabilities only fall: a live hypothesis can at best keep its own and end at the kindest length. */
    float bound = kept ? alive[0] / penalty(alpha >= 0 ? job->limit + 1 : t + 2, alpha) : -INFINITY;
    int final = 0;
    for (int i = 0; i < job->ended_count; i++) final += job->ended_score[i] >= bound;
    job->done = final >= nbest || !kept;
    job->position = t + 1;
}

/* One step of all jobs, which all have the same beam. */
void step(const Model *model, Job **jobs, int count, Rows *rows, float alpha, int nbest, int threads) {
    const Row *which = rows->which;
    rows->rows = 0;
    for (int j = 0; j < count; j++)
        for (int w = 0; w < jobs[j]->beam; w++)
            if (jobs[j]->alive[w] > -INFINITY) rows->which[rows->rows++] = (Row){jobs[j], w};
#pragma omp parallel num_threads(threads)
    {
        Team team = team_here();
        int D = model->width, post = !model->norm_first, first, last;
        const Layer *layers = model->decoder;
        int most = which[0].job->beam > 1 ? 2 * which[0].job->beam : 1; /* of 2W at most W end, so W live ones remain */
        share(team, rows->rows, &first, &last);
        for (int r = first; r < last; r++) {
            const Job *job = which[r].job;
            int token = job->position ? job->said[which[r].row * job->places + job->position - 1] : EOS - 1;
            embed(model, token, job->position, rows->x + (size_t)r * D);
        }
        meet();
        residual(team, rows, NULL, NULL, post ? NULL : &layers[0].norms[0], &layers[0].qkv);
        for (int l = 0; l < model->decoder_layers; l++) {
            const Layer *layer = &layers[l], *next = l + 1 < model->decoder_layers ? layer + 1 : NULL;
            linear(team, &layer->qkv, rows, rows->wide, 0);
            attend_self(team, model, l, rows);
            quantise(team, rows->y, &layer->out, rows);
            linear(team, &layer->out, rows, rows->y, 0);
            residual(team, rows, rows->y, post ? &layer->norms[0] : NULL, post ? NULL : &layer->norms[1], &layer->q);
            linear(team, &layer->q, rows, rows->wide, 0);
            attend_cross(team, model, l, rows);
            quantise(team, rows->y, &layer->cross_out, rows);
            linear(team, &layer->cross_out, rows, rows->y, 0);
            residual(team, rows, rows->y, post ? &layer->norms[1] : NULL, post ? NULL : &layer->norms[2], &layer->inner);
            linear(team, &layer->inner, rows, rows->wide, 1);
            quantise(team, rows->wide, &layer->outer, rows);
            linear(team, &layer->outer, rows, rows->y, 0);
            const Norm *before = post ? NULL : next ? &next->norms[0] : &model->decoder_norm;
            residual(team, rows, rows->y, post ? &layer->norms[2] : NULL, before, next ? &next->qkv : &model->projection);
        }
        next_words(team, model, rows, most);
        for (int r = 0, end, job = 0; r < rows->rows; r = end, job++) {
            for (end = r + 1; end < rows->rows && which[end].job == which[r].job; end++);
            if (job % team.size == team.id) advance(which[r].job, r, rows, team.size, most, alpha, nbest);
        }
    }
}

/* Weights to whole numbers in panels: `packed` has room for all panels, `scale` and `sum` for all their channels. */
void pack_weights(const float *weight, int width_out, int width_in, int padded_in, int8_t *packed, float *scale,
                  int32_t *sum) {
    for (int n = 0; n < width_out; n++) {
        int8_t row[padded_in];
        scale[n] = quantise_row(weight + (size_t)n * width_in, width_in, padded_in, row);
        int8_t *panel = packed + (size_t)(n / PANEL) * PANEL * padded_in;
        for (int k = 0; k < padded_in; k++) {
            panel[(k / 4 * PANEL + n % PANEL) * 4 + k % 4] = row[k];
            sum[n] += row[k];
        }
    }
}

/* y = x W^T + b of float rows, by which the library is checked. */
void apply_linear(const Linear *layer, const float *x, int rows, float *y) {
    int8_t *q = malloc((size_t)rows * layer->padded_in);
    float *scale = malloc(rows * sizeof(float));
    for (int r = 0; r < rows; r++)
        scale[r] = quantise_row(x + (size_t)r * layer->width_in, layer->width_in, layer->padded_in, q + (size_t)r * layer->padded_in);
    multiply_panels(layer, 0, layer->panels, q, scale, rows, y, layer->width_out, 0);
    free(q);
    free(scale);
}

const char *instructions(void) {
#if defined(__ARM_FEATURE_DOTPROD)
    return "aarch64 dot product";
#elif defined(__AVX512VNNI__)
    return "AVX-512 VNNI";
#elif defined(__AVX2__)
    return "AVX2";
#else
    return "portable C";
#endif
}

/* The Transformer and its beam search for a CPU, in 8-bit whole numbers: what `nn/`, `models/` and `search/` say in Python.
 *
 * A job is one sentence with `beam` rows for its hypotheses. Jobs are encoded when they come and stepped together, each at
 * its own place. Keys and values never move: ancestor[r][p] says in which row of the job the token lies that hypothesis
 * r has at place p.
 */
#include <stdlib.h>

#include "search.h"

/* ---- encoder: sentences laid end to end ---- */

static void encode_some(Team team, const Model *model, Job **jobs, int count, const int32_t *tokens, const int32_t *offsets,
                        Rows *rows) {
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, D = model->width, first, last;
    int qkv_width = H * (2 * d_k + d_v), base = offsets[0];
    float *scores = rows->scores + (size_t)team.id * rows->longest;
    const Layer *layers = model->encoder;
    share(team, count, &first, &last);
    for (int b = first; b < last; b++)
        for (int i = offsets[b]; i < offsets[b + 1]; i++)
            embed(model, tokens[i], i - offsets[b], rows->x + (size_t)(i - base) * D);
    meet(team);
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
                ATTEND(q, o, length, own + (size_t)p * qkv_width + (H + h) * d_k, H * d_k - h * d_k + h * d_v,
                       scores);
            }
        }
        meet(team);
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
        meet(team);
    }
}

typedef struct { const Model *model; Job **jobs; int count; const int32_t *tokens, *offsets; Rows *rows; } Reading;

static void read_sources(Team team, void *arguments) {
    const Reading *all = arguments;
    const int32_t *offsets = all->offsets;
    for (int b = 0, end; b < all->count; b = end) { /* a few at a time, so that they stay in the cache */
        end = b + 1;
        while (end < all->count && offsets[end + 1] - offsets[b] <= ENCODED_AT_ONCE) end++;
        if (team.id == 0) all->rows->rows = offsets[end] - offsets[b];
        meet(team);
        encode_some(team, all->model, all->jobs + b, end - b, all->tokens, offsets + b, all->rows);
    }
}

/* Read the sources of these jobs: job b's tokens are offsets[b]..offsets[b + 1], its end marker among them. */
void encode(const Model *model, Job **jobs, int count, const int32_t *tokens, const int32_t *offsets, Rows *rows,
            int threads) {
    Reading all = {model, jobs, count, tokens, offsets, rows};
    together(threads, read_sources, &all);
}

/* ---- decoder: one new token for each row ---- */

static void attend_self(Team team, const Model *model, int l, Rows *rows) {
    const Row *which = rows->which;
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, line = H * (d_k + d_v), first, last;
    float *scores = rows->scores + (size_t)team.id * rows->longest;
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
        ATTEND(q, o, t + 1, cache + ((size_t)ancestor[p] * job->places + p) * line, apart, scores);
    }
    meet(team);
}

static void attend_cross(Team team, const Model *model, int l, Rows *rows) {
    const Row *which = rows->which;
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, line = H * (d_k + d_v), first, last;
    float *scores = rows->scores + (size_t)team.id * rows->longest;
    share(team, rows->rows * H, &first, &last);
    for (int i = first; i < last; i++) {
        int h = i % H;
        const Job *job = which[i / H].job;
        const float *q = rows->wide + (size_t)(i / H) * H * d_k + h * d_k;
        const float *cache = job->cross_kv + (size_t)l * job->source * line + h * d_k;
        float *o = rows->y + (size_t)(i / H) * H * d_v + h * d_v;
        ATTEND(q, o, job->source, cache + (size_t)p * line, H * d_k - h * d_k + h * d_v, scores);
    }
    meet(team);
}

typedef struct { const Model *model; Rows *rows; float alpha; int nbest; } Writing;

static void write_words(Team team, void *arguments) {
    const Writing *all = arguments;
    const Model *model = all->model;
    Rows *rows = all->rows;
    const Row *which = rows->which;
    int D = model->width, post = !model->norm_first, first, last;
    const Layer *layers = model->decoder;
    int most = which[0].job->beam > 1 ? 2 * which[0].job->beam : 1; /* of 2W at most W end, so W live ones remain */
    share(team, rows->rows, &first, &last);
    for (int r = first; r < last; r++) {
        const Job *job = which[r].job;
        int token = job->position ? job->said[which[r].row * job->places + job->position - 1] : BOS;
        embed(model, token, job->position, rows->x + (size_t)r * D);
    }
    meet(team);
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
        if (job % team.size == team.id) advance(which[r].job, r, rows, team.size, most, all->alpha, all->nbest);
    }
}

/* One step of all jobs, which all have the same beam. */
void step(const Model *model, Job **jobs, int count, Rows *rows, float alpha, int nbest, int threads) {
    rows->rows = 0;
    for (int j = 0; j < count; j++)
        for (int w = 0; w < jobs[j]->beam; w++)
            if (jobs[j]->alive[w] > -INFINITY) rows->which[rows->rows++] = (Row){jobs[j], w};
    Writing all = {model, rows, alpha, nbest};
    together(threads, write_words, &all);
}

/* Weights to whole numbers in panels: `packed` has room for all panels, `scale` and `sum` for all their channels, `row` for
 * padded_in numbers.
 */
void pack_weights(const float *weight, int width_out, int width_in, int padded_in, int8_t *row, int8_t *packed,
                  float *scale, int32_t *sum) {
    for (int n = 0; n < width_out; n++) {
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
    for (int r = 0; q && scale && r < rows; r++)
        scale[r] = quantise_row(x + (size_t)r * layer->width_in, layer->width_in, layer->padded_in, q + (size_t)r * layer->padded_in);
    if (q && scale) multiply_panels(layer, 0, layer->panels, q, scale, rows, y, layer->width_out, 0);
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

/* The Transformer and its beam search on a CPU, with 8-bit integers: in Python, these are `nn/`, `models/` and `search/`.
 *
 * A job is a sentence with `beam` hypotheses. Jobs are encoded when they start and then take steps together, each at its
 * own position. Keys and values never move in the cache: ancestor[r][p] is the row of the job in which hypothesis r has
 * its token of position p. Neither do the states of SSRUs: those of even and of odd positions have places of their own.
 */
#include <stdlib.h>

#include "search.h"
#include "language_model.h"
#include "packing.h"
#ifdef __wasm__
#include "observe.h"
#else
#include "training.h"
#endif

/* Copy the rows of the model's projection for the tokens of a shortlist, of which there is at least one. */
static void pack_tokens(Worker worker, const Model *model, const Shortlist *shortlist) {
    const Linear *from = &model->projection, *to = &shortlist->projection;
    int8_t *weight = (int8_t *)to->weight;
    float *scale = (float *)to->scale, *bias = (float *)to->bias;
    int32_t *start = (int32_t *)to->start;
    int K = from->padded_in, first, last;
    split_work(worker, to->panels, &first, &last);
    for (int n = first * PANEL; n < last * PANEL; n++) {
        int token = shortlist->tokens[n < to->width_out ? n : 0]; /* what fills the last panel is never used */
        int8_t *channel = weight + (size_t)(n / PANEL) * PANEL * K + n % PANEL * 4;
        const int8_t *row = from->weight + (size_t)(token / PANEL) * PANEL * K + token % PANEL * 4;
        for (int k = 0; k < K * PANEL; k += 4 * PANEL) memcpy(channel + k, row + k, 4);
        scale[n] = from->scale[token], bias[n] = from->bias[token], start[n] = from->start[token];
    }
}

void EXPORT(pack_shortlist)(const Model *model, const Shortlist *shortlist) {
    pack_tokens((Worker){0, 1}, model, shortlist);
}

/* ---- encoder: packed sentences ---- */

/* Weights of an encoder that has no decoder, beyond 8 bits: what the integers of its layers leave, and its embeddings. */
typedef struct { const Layer *rest; const float *embedding; } Precise;

/* Run the encoder's layers on `count` texts, of which text b has the tokens offsets[b] up to offsets[b + 1]: batch->x is the
 * residual stream at the end, and it is quantised, after the encoder's final norm, as the input of `reader`.
 */
static void encoder_layers(Worker worker, const Model *model, int count, const int32_t *tokens, const int32_t *offsets,
                           const Linear *reader, const Precise *precise, Batch *batch) {
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, D = model->width, first, last;
    int qkv_width = H * (2 * d_k + d_v), base = offsets[0], post = !model->norm_first;
    const Layer *layers = model->encoder;
    float *arranged = scratch_of(worker, batch);
    split_work(worker, count, &first, &last);
    for (int b = first; b < last; b++)
        for (int i = offsets[b]; i < offsets[b + 1]; i++)
            embed(model, &model->source, precise ? precise->embedding : NULL, tokens[i], i - offsets[b],
                  batch->x + (size_t)(i - base) * D);
    barrier(worker);
    residual(worker, batch, 0, NULL, post ? NULL : &layers[0].norms[0], &layers[0].qkv);
    for (int l = 0; l < model->encoder_layers; l++) {
        const Layer *layer = &layers[l], *next = l + 1 < model->encoder_layers ? layer + 1 : NULL;
        const Layer *rest = precise ? precise->rest + l : NULL;
        linear_with_rest(worker, &layer->qkv, rest ? &rest->qkv : NULL, batch, batch->wide, 0);
        split_work(worker, count * H, &first, &last);
        for (int i = first; i < last; i++) {
            int b = i / H, h = i % H, start = offsets[b] - base, length = offsets[b + 1] - offsets[b];
            const float *qkv = batch->wide + (size_t)start * qkv_width;
            arrange(length, d_k, d_v, qkv + (H + h) * d_k, qkv + 2 * H * d_k + h * d_v, qkv_width, arranged);
            attend_all(qkv + h * d_k, qkv_width, length, arranged, 0, 0, length, d_k, d_v,
                       arranged + arranged_size(length, d_k, d_v), batch->y + (size_t)start * H * d_v + h * d_v, H * d_v);
        }
        barrier(worker);
        quantise(worker, batch->y, &layer->out, batch);
        linear_with_rest(worker, &layer->out, rest ? &rest->out : NULL, batch, batch->y, 0);
        residual(worker, batch, 1, post ? &layer->norms[0] : NULL, post ? NULL : &layer->norms[2], &layer->inner);
        inner_layer(worker, model->activation, &layer->inner, rest ? &rest->inner : NULL, batch, batch->wide);
        quantise(worker, batch->wide, &layer->outer, batch);
        linear_with_rest(worker, &layer->outer, rest ? &rest->outer : NULL, batch, batch->y, 0);
        const Norm *before = post ? NULL : next ? &next->norms[0] : &model->encoder_norm;
        residual(worker, batch, 1, post ? &layer->norms[2] : NULL, before, next ? &next->qkv : reader);
    }
}

/* The numbers of a job's cross-attention cache, in a layer: [source][keys, values] or, if several hypotheses read it, of each
 * head as in attention.h.
 */
int EXPORT(cross_size)(int heads, int d_k, int d_v, int source_length, int beam) {
    return heads * (beam == 1 ? source_length * (d_k + d_v) : arranged_size(source_length, d_k, d_v));
}

static void *cross_cache(const Model *model, const Job *job, int l) {
    size_t size = EXPORT(cross_size)(model->heads, model->d_k, model->d_v, job->source_length, job->beam);
    return (void *)number_at(job->cross_kv, l * size, job->half);
}

/* The numbers of scratch space of a worker, for texts up to a length. */
int EXPORT(scratch_size)(int width, int heads, int d_k, int d_v, int longest) {
    int of_queries = arranged_size(longest, d_k, d_v) + scores_size(longest, d_v), of_query = heads * longest;
    int most = of_queries > of_query ? of_queries : of_query;
    return most > width ? most : width;
}

/* Encode `count` sources and fill the cross-attention caches of their jobs. */
static void encode_sources(Worker worker, const Model *model, Job **jobs, int count, const int32_t *tokens,
                           const int32_t *offsets, Batch *batch) {
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, kv_width = H * (d_k + d_v), base = offsets[0], first, last;
    float *arranged = scratch_of(worker, batch);
    encoder_layers(worker, model, count, tokens, offsets, &model->decoder[0].kv, NULL, batch);
    for (int l = 0; l < model->decoder_layers; l++) {
        linear(worker, &model->decoder[l].kv, batch, batch->wide, 0);
        split_work(worker, count, &first, &last);
        for (int b = first; b < last; b++) {
            const Job *job = jobs[b];
            int S = job->source_length, size = arranged_size(S, d_k, d_v);
            const float *kv = batch->wide + (size_t)(offsets[b] - base) * kv_width;
            void *cache = cross_cache(model, job, l);
            if (job->beam == 1) write_row(cache, 0, S * kv_width, job->half, kv);
            for (int h = 0; h < H && job->beam > 1; h++) {
                arrange(S, d_k, d_v, kv + h * d_k, kv + H * d_k + h * d_v, kv_width, arranged);
                write_row(cache, (size_t)h * size, size, job->half, arranged);
            }
        }
        barrier(worker);
    }
}

/* The vectors of all tokens of `count` texts, for models without a decoder. */
static void encode_vectors(Worker worker, const Model *model, int count, const int32_t *tokens, const int32_t *offsets,
                           const Precise *precise, Batch *batch, float *vectors) {
    int D = model->width, first, last;
    encoder_layers(worker, model, count, tokens, offsets, &model->encoder[0].qkv, precise, batch);
    split_work(worker, batch->count, &first, &last);
    for (int r = first; r < last; r++) {
        const float *x = batch->x + (size_t)r * D;
        float *vector = vectors + (size_t)(offsets[0] + r) * D;
        if (model->norm_first) normalise(&model->encoder_norm, x, vector);
        else memcpy(vector, x, D * sizeof(float));
    }
    barrier(worker);
}

/* With `precise` and `vectors`, there are no jobs. */
typedef struct {
    const Model *model; Job **jobs; int count; const int32_t *tokens, *offsets; Batch *batch; const Precise *precise;
    float *vectors;
} EncodeCall;

static void run_encode(Worker worker, void *arguments) {
    const EncodeCall *call = arguments;
    const int32_t *offsets = call->offsets;
    for (int b = 0; call->jobs && b < call->count; b++)
        if (call->jobs[b]->common) pack_tokens(worker, call->model, &call->jobs[b]->own);
    for (int b = 0, end; b < call->count; b = end) { /* a few at a time, so that activations stay in the CPU's cache */
        end = b + 1;
        while (end < call->count && offsets[end + 1] - offsets[b] <= ENCODER_TOKENS) end++;
        if (worker.id == 0) call->batch->count = offsets[end] - offsets[b];
        barrier(worker);
        if (call->vectors)
            encode_vectors(worker, call->model, end - b, call->tokens, offsets + b, call->precise, call->batch,
                           call->vectors);
        else encode_sources(worker, call->model, call->jobs + b, end - b, call->tokens, offsets + b, call->batch);
    }
}

/* Encode the sources of these jobs: job b has the tokens offsets[b] up to offsets[b + 1], with the end marker. */
void EXPORT(encode)(const Model *model, Job **jobs, int count, const int32_t *tokens, const int32_t *offsets,
                    Batch *batch, int threads) {
    EncodeCall call = {model, jobs, count, tokens, offsets, batch, NULL, NULL};
    run_parallel(threads, run_encode, &call);
}

/* The vectors [offsets[count]][width] of the tokens of these texts, of a model that has only an encoder. */
void EXPORT(encode_texts)(const Model *model, const Layer *rest, const float *embedding, const int32_t *tokens,
                          const int32_t *offsets, int count, Batch *batch, float *vectors, int threads) {
    Precise precise = {rest, embedding};
    EncodeCall call = {model, NULL, count, tokens, offsets, batch, &precise, vectors};
    run_parallel(threads, run_encode, &call);
}

/* ---- decoder: one new token for each row ---- */

/* The heads of a row that a worker computes: those from item i up to `last`, if there are H items for each row. */
static int heads_at(int i, int last, int H) { return H - i % H < last - i ? H - i % H : last - i; }

static void self_attention(Worker worker, const Model *model, int l, Batch *batch) {
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, kv_width = H * (d_k + d_v), first, last;
    float *scores = scratch_of(worker, batch);
    split_work(worker, batch->count * H, &first, &last);
    for (int i = first, heads; i < last; i += heads) {
        heads = heads_at(i, last, H);
        int h = i % H, value_offset = H * d_k - h * d_k + h * d_v;
        const Job *job = batch->row[i / H].job;
        int row = batch->row[i / H].hypothesis, t = job->position;
        const float *qkv = batch->wide + (size_t)(i / H) * H * (2 * d_k + d_v), *q = qkv + h * d_k;
        size_t first_key = (size_t)l * job->beam * job->positions * kv_width + h * d_k, first_value = first_key + value_offset;
        size_t new = ((size_t)row * job->positions + t) * kv_width;
        write_row(job->self_kv, first_key + new, heads * d_k, job->half, qkv + (H + h) * d_k);
        write_row(job->self_kv, first_value + new, heads * d_v, job->half, qkv + 2 * H * d_k + h * d_v);
        const uint8_t *ancestor = job->ancestor + row * job->positions; /* ancestor[t] is `row` itself */
        float *o = batch->y + (size_t)(i / H) * H * d_v + h * d_v;
        Positions positions = {number_at(job->self_kv, first_key, job->half), number_at(job->self_kv, first_value, job->half),
                               kv_width, kv_width, (size_t)job->positions * kv_width, ancestor, job->half};
        attend(q, &positions, t + 1, heads, d_k, d_v, scores, o);
    }
    barrier(worker);
}

/* The simpler simple recurrent unit: in Python, `predecessors/variants.py`. `residual` splits the rows among the workers in the same way,
 * so no barrier is needed in between.
 */
static void ssru(Worker worker, const Model *model, int l, Batch *batch) {
    int D = model->width, first, last;
    split_work(worker, batch->count, &first, &last);
    for (int r = first; r < last; r++) {
        const Job *job = batch->row[r].job;
        int row = batch->row[r].hypothesis, t = job->position;
        int parent = t ? job->ancestor[row * job->positions + t - 1] : row; /* before the first position are zeros */
        float *states = job->states + (size_t)2 * l * job->beam * D;
        const float *before = states + (size_t)((t + 1) % 2 * job->beam + parent) * D;
        const float *input = batch->wide + (size_t)r * 2 * D, *gate = input + D;
        float *restrict state = states + (size_t)(t % 2 * job->beam + row) * D, *restrict y = batch->y + (size_t)r * D;
        for (int d = 0; d < D; d++) {
            float keep = sigmoid(gate[d]);
            state[d] = keep * before[d] + (1 - keep) * input[d];
            y[d] = state[d] > 0 ? state[d] : 0;
        }
    }
}

/* Work is split by jobs and heads: the hypotheses of a job read the same keys and values. */
static void cross_attention(Worker worker, const Model *model, int l, Batch *batch) {
    int H = model->heads, d_k = model->d_k, d_v = model->d_v, kv_width = H * (d_k + d_v), jobs = 0, first, last;
    float *scores = scratch_of(worker, batch);
    const Row *row = batch->row;
    for (int r = 0; r < batch->count; r++) jobs += !r || row[r].job != row[r - 1].job;
    split_work(worker, jobs * H, &first, &last);
    for (int r = 0, end; r < batch->count && last > 0; r = end, first -= H, last -= H) {
        for (end = r + 1; end < batch->count && row[end].job == row[r].job; end++);
        const Job *job = row[r].job;
        int h = first > 0 ? first : 0, last_head = last < H ? last : H, S = job->source_length;
        if (h >= last_head) continue;
        const float *q = batch->wide + ((size_t)r * H + h) * d_k;
        const void *cache = cross_cache(model, job, l);
        float *o = batch->y + ((size_t)r * H + h) * d_v;
        if (job->beam > 1) {
            for (; h < last_head; h++, q += d_k, o += d_v)
                attend_all(q, H * d_k, end - r, cache, (size_t)h * arranged_size(S, d_k, d_v), job->half, S, d_k, d_v, scores, o,
                           H * d_v);
            continue;
        }
        Positions positions = {number_at(cache, h * d_k, job->half), number_at(cache, H * d_k + h * d_v, job->half), kv_width,
                               kv_width, 0, NULL, job->half};
        attend(q, &positions, S, last_head - h, d_k, d_v, scores, o);
        if (job->head_attention && l == model->alignment_layer)
            memcpy(job->head_attention + (size_t)h * S, scores, (size_t)(last_head - h) * S * sizeof(float));
    }
    barrier(worker);
}

/* The means of the attention weights over the heads, for the rows of forced decoding. */
static void average_heads(Worker worker, const Model *model, Batch *batch) {
    int first, last;
    split_work(worker, batch->count, &first, &last);
    for (int r = first; r < last; r++) {
        const Job *job = batch->row[r].job;
        for (int s = 0; job->attention && s < job->source_length; s++) {
            float sum = 0;
            for (int h = 0; h < model->heads; h++) sum += job->head_attention[(size_t)h * job->source_length + s];
            job->attention[(size_t)job->position * job->source_length + s] = sum / model->heads;
        }
    }
}

typedef struct { const Model *model; Batch *batch; int candidates, parts; } StepCall;

static void run_step(Worker worker, void *arguments) {
    const StepCall *call = arguments;
    const Model *model = call->model;
    Batch *batch = call->batch;
    const Row *row = batch->row;
    int D = model->width, post = !model->norm_first, first, last;
    const Layer *layers = model->decoder;
    split_work(worker, batch->count, &first, &last);
    for (int r = first; r < last; r++) {
        const Job *job = row[r].job;
        int token = job->position ? job->tokens[row[r].hypothesis * job->positions + job->position - 1] : model->start;
        embed(model, &model->target, NULL, token, job->position, batch->x + (size_t)r * D);
    }
    barrier(worker);
    residual(worker, batch, 0, NULL, post ? NULL : &layers[0].norms[0], &layers[0].qkv);
    for (int l = 0; l < model->decoder_layers; l++) {
        const Layer *layer = &layers[l], *next = l + 1 < model->decoder_layers ? layer + 1 : NULL;
        linear(worker, &layer->qkv, batch, batch->wide, 0);
        if (model->ssru) ssru(worker, model, l, batch);
        else {
            self_attention(worker, model, l, batch);
            quantise(worker, batch->y, &layer->out, batch);
            linear(worker, &layer->out, batch, batch->y, 0);
        }
        residual(worker, batch, 1, post ? &layer->norms[0] : NULL, post ? NULL : &layer->norms[1], &layer->q);
        linear(worker, &layer->q, batch, batch->wide, 0);
        cross_attention(worker, model, l, batch);
        quantise(worker, batch->y, &layer->cross_out, batch);
        linear(worker, &layer->cross_out, batch, batch->y, 0);
        residual(worker, batch, 1, post ? &layer->norms[1] : NULL, post ? NULL : &layer->norms[2], &layer->inner);
        inner_layer(worker, model->activation, &layer->inner, NULL, batch, batch->wide);
        quantise(worker, batch->wide, &layer->outer, batch);
        linear(worker, &layer->outer, batch, batch->y, 0);
        const Norm *before = post ? NULL : next ? &next->norms[0] : &model->decoder_norm;
        residual(worker, batch, 1, post ? &layer->norms[2] : NULL, before, next ? &next->qkv : &model->projection);
    }
    average_heads(worker, model, batch);
    for (int part = worker.id; part < call->parts; part += worker.count)
        find_candidates((Worker){part, call->parts}, model, batch, call->candidates);
    barrier(worker);
    for (int r = 0, end, j = 0; r < batch->count; r = end, j++) {
        for (end = r + 1; end < batch->count && row[end].job == row[r].job; end++);
        if (j % worker.count == worker.id) extend(row[r].job, r, batch, call->parts, call->candidates);
    }
}

/* One step of all jobs. */
void EXPORT(step)(const Model *model, Job **jobs, int count, Batch *batch, int threads) {
    int candidates = 1;
    batch->count = 0;
    for (int j = 0; j < count; j++) {
        int own = candidate_count(jobs[j]->beam);
        if (own > candidates) candidates = own;
        for (int w = 0; w < jobs[j]->beam; w++)
            if (jobs[j]->log_prob[w] > -INFINITY) batch->row[batch->count++] = (Row){jobs[j], w};
    }
    StepCall call = {model, batch, candidates, threads};
    run_parallel(threads, run_step, &call);
}

/* y = x W^T + b of float rows, for tests; if `chunked`, of a language model. */
void EXPORT(apply_linear)(const Linear *layer, const float *x, int rows, int chunked, float *y) {
    Batch batch = {.count = rows, .parts = 1};
    batch.quantised = malloc(((size_t)rows + TILE_ROWS) * layer->padded_in * sizeof(Integer));
    batch.scale = malloc(rows * sizeof(float));
    batch.chunks = chunked ? malloc((size_t)rows * count_chunks(layer->padded_in) * sizeof(Chunk)) : NULL;
    if (batch.quantised && batch.scale && (batch.chunks || !chunked)) {
        for (int r = 0; r < rows; r++) quantise_input(x + (size_t)r * layer->width_in, r, layer, &batch);
        multiply(layer, 0, layer->panels, &batch, y, layer->width_out, 0);
    }
    free(batch.quantised);
    free(batch.scale);
    free(batch.chunks);
}

const char *EXPORT(instructions)(void) {
#ifdef TILES
    if (tiles_allowed()) return INSTRUCTIONS " and AMX";
#endif
    return INSTRUCTIONS;
}

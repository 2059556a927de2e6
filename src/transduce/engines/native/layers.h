/* The layers of the model. Functions that take a `Worker` are called by all workers of a task at the same time: each
 * computes its part, and a barrier at the end waits for the others.
 */
#include "int8.h"
#include "thread_pool.h"

/* e^x with a relative error of about 1e-7, in a form that compilers vectorise. */
static inline float exponential(float x) {
    x = x > -87.0f ? x : -87.0f; /* not fmaxf: see `largest_of` */
    float n = rintf(x * 1.44269504f), r = x - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f)))));
    union { int32_t i; float f; } power = {.i = ((int32_t)n + 127) << 23};
    return p * power.f;
}

/* y = x W^T + b of the rows in batch->quantised, optionally followed by a ReLU. */
static void linear(Worker worker, const Linear *layer, const Batch *batch, float *y, int relu) {
    int first, last;
    split_work(worker, layer->panels, &first, &last);
    multiply_panels(layer, first, last, batch->quantised, batch->scale, batch->count, y + first * PANEL, layer->width_out,
                    relu);
    barrier(worker);
}

/* x sigmoid(x); e^(-|x|) never overflows. */
static inline float swish(float x) {
    float t = exponential(-fabsf(x));
    return x * (x < 0 ? t : 1) / (1 + t);
}

/* Apply swish to every output y of a layer. `quantise` splits the rows among the workers in the same way, so no barrier is
 * needed in between.
 */
static void apply_swish(Worker worker, const Linear *layer, const Batch *batch, float *y) {
    int first, last;
    split_work(worker, batch->count, &first, &last);
    for (size_t i = (size_t)first * layer->width_out; i < (size_t)last * layer->width_out; i++) y[i] = swish(y[i]);
}

/* Quantise x as the input of layer `next`. */
static void quantise(Worker worker, const float *x, const Linear *next, Batch *batch) {
    int first, last;
    split_work(worker, batch->count, &first, &last);
    for (int r = first; r < last; r++)
        batch->scale[r] = quantise_row(x + (size_t)r * next->width_in, next->width_in, next->padded_in, ZERO_POINT,
                                       batch->quantised + (size_t)r * next->padded_in);
    barrier(worker);
}

static void layer_norm(const Norm *norm, const float *x, float *y) {
    float mean = 0, variance = 0;
    for (int d = 0; d < norm->width; d++) mean += x[d];
    mean /= norm->width;
    for (int d = 0; d < norm->width; d++) variance += (x[d] - mean) * (x[d] - mean);
    float scale = 1 / sqrtf(variance / norm->width + norm->epsilon);
    for (int d = 0; d < norm->width; d++) y[d] = (x[d] - mean) * scale * norm->gain[d] + norm->shift[d];
}

/* Root mean square norm, which neither centres nor shifts. */
static void rms_norm(const Norm *norm, const float *x, float *y) {
    float squares = 0;
    for (int d = 0; d < norm->width; d++) squares += x[d] * x[d];
    float scale = 1 / sqrtf(squares / norm->width + norm->epsilon);
    for (int d = 0; d < norm->width; d++) y[d] = x[d] * scale * norm->gain[d];
}

static void normalise(const Norm *norm, const float *x, float *y) {
    if (norm->shift) layer_norm(norm, x, y);
    else rms_norm(norm, x, y);
}

static float *scratch_of(Worker worker, const Batch *batch) {
    return batch->scratch + (size_t)worker.id * batch->scratch_size;
}

/* Between sub-layers: if `add`, add the output of the last one, batch->y, to the residual stream batch->x and apply the
 * post-norm `after` (or NULL). Then quantise the stream, through the pre-norm `before` (or NULL), as the input of `next`.
 */
static void residual(Worker worker, Batch *batch, int add, const Norm *after, const Norm *before, const Linear *next) {
    int first, last, D = next->width_in;
    float *normed = scratch_of(worker, batch);
    split_work(worker, batch->count, &first, &last);
    for (int r = first; r < last; r++) {
        float *x = batch->x + (size_t)r * D;
        if (add)
            for (int d = 0; d < D; d++) x[d] += batch->y[(size_t)r * D + d];
        if (add && after) normalise(after, x, x);
        if (before) normalise(before, x, normed);
        batch->scale[r] = quantise_row(before ? normed : x, D, next->padded_in, ZERO_POINT,
                                       batch->quantised + (size_t)r * next->padded_in);
    }
    barrier(worker);
}

static void embed(const Model *model, int token, int position, float *x) {
    float scale = model->projection.scale[token] * sqrtf(model->width);
    const float *encoding = model->positions + (size_t)position * model->width;
    for (int d = 0; d < model->width; d++) x[d] = weight_at(&model->projection, token, d) * scale + encoding[d];
}

static float dot(const float *a, const float *b, int width) {
    float total = 0;
    for (int i = 0; i < width; i++) total += a[i] * b[i];
    return total;
}

/* Replace n scores by their exponentials; returns the factor that makes these a softmax. */
static float softmax(float *scores, int n) {
    float max = largest_of(scores, n, -INFINITY, 0), total = 0;
    for (int i = 0; i < n; i++) scores[i] = exponential(scores[i] - max);
    for (int i = 0; i < n; i++) total += scores[i];
    return 1 / total;
}

/* Attention of one head of one query over n positions. `keys` is the address of the keys of position p, whose values
 * follow at `value_offset`; `scores` has room for n.
 */
#define ATTEND(q, o, n, keys, value_offset, scores)                                      \
    do {                                                                                 \
        float scale = 1 / sqrtf(d_k);                                                    \
        for (int p = 0; p < (n); p++) scores[p] = dot(q, keys, d_k) * scale;             \
        float factor = softmax(scores, n);                                               \
        for (int i = 0; i < d_v; i++) (o)[i] = 0;                                        \
        for (int p = 0; p < (n); p++) {                                                  \
            const float *values = (keys) + (value_offset);                               \
            float weight = scores[p] * factor;                                           \
            for (int i = 0; i < d_v; i++) (o)[i] += weight * values[i];                  \
        }                                                                                \
    } while (0)

/* The layers of the model. Functions that take a `Worker` are called by all workers of a task at the same time: each
 * computes its part, and a barrier at the end waits for the others.
 */
#include "attention.h"
#include "thread_pool.h"

/* x W^T + b of the rows in batch->quantised for the panels `first` up to `last`, optionally followed by a ReLU, which
 * language models do not need here.
 */
static void multiply(const Linear *layer, int first, int last, const Batch *batch, float *y, int y_stride, int relu) {
    if (batch->chunks)
        multiply_chunks(layer, first, last, (Rows){batch->quantised, batch->chunks, batch->count}, batch->count, y, y_stride);
    else multiply_panels(layer, first, last, batch->quantised, batch->scale, batch->count, batch->parts, y, y_stride, relu);
}

/* The same for all panels. */
static void linear(Worker worker, const Linear *layer, const Batch *batch, float *y, int relu) {
    int first, last;
    split_work(worker, layer->panels, &first, &last);
    multiply(layer, first, last, batch, y + first * PANEL, layer->width_out, relu);
    barrier(worker);
}

/* The same with weights in two parts: `rest` has what the integers of `layer` leave; if it is NULL, there is none. Activations
 * have two parts too, of which only the first is multiplied by `rest`: copies of these rows follow all others.
 */
static void linear_with_rest(Worker worker, const Linear *layer, const Linear *rest, const Batch *batch, float *y,
                             int relu) {
    int K = layer->padded_in, R = batch->count, N = layer->width_out, first, last;
    Integer *quantised = batch->quantised, *leading = quantised + (size_t)2 * R * K;
    float *scale = batch->scale + 2 * R, *terms = batch->logits + (size_t)worker.id * R * LOGIT_PANELS * PANEL;
    split_work(worker, rest ? R : 0, &first, &last);
    for (int r = first; r < last; r++) {
        memcpy(leading + (size_t)r * K, quantised + (size_t)2 * r * K, K * sizeof(Integer));
        scale[r] = batch->scale[2 * r];
    }
    linear(worker, layer, batch, y, relu && !rest);
    if (!rest) return;
    split_work(worker, layer->panels, &first, &last);
    for (int panel = first; panel < last; panel += LOGIT_PANELS) {
        int end = panel + LOGIT_PANELS < last ? panel + LOGIT_PANELS : last, start = panel * PANEL;
        int width = (end * PANEL < N ? end * PANEL : N) - start;
        multiply_panels(rest, panel, end, leading, scale, R, 1, terms, LOGIT_PANELS * PANEL, 0);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < width; c++) {
                float *sum = y + (size_t)r * N + start + c;
                *sum += terms[(size_t)r * LOGIT_PANELS * PANEL + c];
                if (relu && *sum < 0) *sum = 0;
            }
    }
    barrier(worker);
}

/* 1 / (1 + e^-x); e^(-|x|) never overflows. */
static inline float sigmoid(float x) {
    float t = exponential(-fabsf(x));
    return (x < 0 ? t : 1) / (1 + t);
}

/* x sigmoid(x) */
static inline float swish(float x) {
    float t = exponential(-fabsf(x));
    return x * (x < 0 ? t : 1) / (1 + t);
}

static inline float gelu_tanh(float x) { /* x sigmoid(2 u) = x (1 + tanh(u)) / 2 */
    float u = 0.797884561f * (x + 0.044715f * x * x * x), t = exponential(-2 * fabsf(u));
    return x * (u < 0 ? t : 1) / (1 + t);
}

/* x (1 + erf(x / sqrt(2))) / 2, by formula 7.1.26 of Abramowitz and Stegun, whose error is below 1.5e-7: C's erff is not
 * vectorised and takes as long as the products.
 */
static inline float gelu(float x) {
    float z = fabsf(x) * 0.707106781f, t = 1 / (1 + 0.3275911f * z);
    float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float tail = 0.5f * p * exponential(-z * z); /* the normal distribution's, beyond |x| */
    return x * (x < 0 ? tail : 1 - tail);
}

/* The activation of one row of the feed-forward network; `width` is that of the result. */
static void activate(Activation activation, const float *x, int width, float *y) {
    const float *gated = x + width;
    switch (activation) {
    case RELU: for (int i = 0; i < width; i++) y[i] = x[i] > 0 ? x[i] : 0; break;
    case GELU: for (int i = 0; i < width; i++) y[i] = gelu(x[i]); break;
    case GELU_TANH: for (int i = 0; i < width; i++) y[i] = gelu_tanh(x[i]); break;
    case SWISH: for (int i = 0; i < width; i++) y[i] = swish(x[i]); break;
    case GEGLU: for (int i = 0; i < width; i++) y[i] = gelu_tanh(x[i]) * gated[i]; break;
    case SWIGLU: for (int i = 0; i < width; i++) y[i] = swish(x[i]) * gated[i]; break;
    }
}

/* The first layer of a feed-forward network whose activation is not gated, and this. `quantise` splits the rows among the
 * workers in the same way, so no barrier is needed at the end.
 */
static void inner_layer(Worker worker, Activation activation, const Linear *layer, const Linear *rest, const Batch *batch,
                        float *y) {
    int first, last;
    linear_with_rest(worker, layer, rest, batch, y, activation == RELU);
    split_work(worker, batch->count, &first, &last);
    float *row = y + (size_t)first * layer->width_out;
    if (activation != RELU) activate(activation, row, (last - first) * layer->width_out, row);
}

/* Quantise x as row r of the input of layer `next`. */
static void quantise_input(const float *x, int r, const Linear *next, Batch *batch) {
    const int K = next->padded_in;
    Integer *q = batch->quantised;
    if (batch->chunks) {
        quantise_chunks(x, next->width_in, K, q + (size_t)r * K, batch->chunks + r, batch->count);
        return;
    }
    q += (size_t)r * batch->parts * K;
    float *scale = batch->scale + r * batch->parts;
    if (batch->parts == 2) quantise_two_parts(x, next->width_in, K, q, scale);
    else *scale = quantise_row(x, next->width_in, K, q);
}

/* Quantise all rows of x as the input of layer `next`. */
static void quantise(Worker worker, const float *x, const Linear *next, Batch *batch) {
    int first, last;
    split_work(worker, batch->count, &first, &last);
    for (int r = first; r < last; r++) quantise_input(x + (size_t)r * next->width_in, r, next, batch);
    barrier(worker);
}

static void layer_norm(const Norm *norm, const float *x, float *y) {
    float mean = sum_of(x, norm->width) / norm->width;
    float scale = 1 / sqrtf(sum_of_squares(x, norm->width, mean) / norm->width + norm->epsilon);
    for (int d = 0; d < norm->width; d++) y[d] = (x[d] - mean) * scale * norm->gain[d] + norm->shift[d];
}

/* Root mean square norm, which neither centres nor shifts. */
static void rms_norm(const Norm *norm, const float *x, float *y) {
    float scale = 1 / sqrtf(sum_of_squares(x, norm->width, 0) / norm->width + norm->epsilon);
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
        quantise_input(before ? normed : x, r, next, batch);
    }
    barrier(worker);
}

/* `table` has the embeddings [vocabulary][width] as floats; if it is NULL, they are those of `input`. */
static void embed(const Model *model, const Input *input, const float *table, int token, int position, float *x) {
    const Linear *embedding = &input->embedding;
    const float *encoding = input->positions + (size_t)position * model->width, *row = table ? table + (size_t)token * model->width : NULL;
    float scale = table ? model->embedding_scale : embedding->scale[token] * model->embedding_scale;
    if (table)
        for (int d = 0; d < model->width; d++) x[d] = row[d] * scale + encoding[d];
    else
        for (int d = 0; d < model->width; d++) x[d] = weight_at(embedding, token, d) * scale + encoding[d];
    if (input->norm.gain) normalise(&input->norm, x, x);
}

/* The parts of a model: norms, products, attention. Functions that take a `Team` are run by all its threads
 * at once, each doing its share.
 */
#include "int8.h"
#include "team.h"

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
    meet(team);
}

static void quantise(Team team, const float *x, const Linear *next, Rows *rows) {
    int first, last;
    share(team, rows->rows, &first, &last);
    for (int r = first; r < last; r++)
        rows->scale[r] = quantise_row(x + (size_t)r * next->width_in, next->width_in, next->padded_in,
                                      rows->q + (size_t)r * next->padded_in);
    meet(team);
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
    share(team, rows->rows, &first, &last);
    for (int r = first; r < last; r++) {
        float *x = rows->x + (size_t)r * D;
        if (y)
            for (int d = 0; d < D; d++) x[d] += y[(size_t)r * D + d];
        if (y && after) normalise(after, x, x);
        float *normed = rows->y + (size_t)r * D; /* no longer needed there */
        if (before) normalise(before, x, normed);
        rows->scale[r] = quantise_row(before ? normed : x, D, next->padded_in, rows->q + (size_t)r * next->padded_in);
    }
    meet(team);
}

static void embed(const Model *model, int token, int position, float *x) {
    float scale = model->projection.scale[token] * sqrtf(model->width);
    const float *place = model->positions + (size_t)position * model->width;
    for (int d = 0; d < model->width; d++) x[d] = weight_at(&model->projection, token, d) * scale + place[d];
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

/* One head of one query over n places; `line` finds the keys of a place, its values lie `apart` behind them; `scores`
 * has room for n.
 */
#define ATTEND(q, o, n, line, apart, scores)                                             \
    do {                                                                                 \
        float scale = 1 / sqrtf(d_k);                                                    \
        for (int p = 0; p < (n); p++) scores[p] = dot(q, line, d_k) * scale;             \
        float share_of = softmax(scores, n);                                             \
        for (int i = 0; i < d_v; i++) (o)[i] = 0;                                        \
        for (int p = 0; p < (n); p++) {                                                  \
            const float *values = (line) + (apart);                                      \
            float weight = scores[p] * share_of;                                         \
            for (int i = 0; i < d_v; i++) (o)[i] += weight * values[i];                  \
        }                                                                                \
    } while (0)

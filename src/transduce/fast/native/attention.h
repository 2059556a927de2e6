/* Attention in float32: of one query, as outputs grow token by token, and of several queries by matrix products. Keys and
 * values may be stored as bfloat16 (`half`), since reading them takes longer than computing with them.
 */
#include "int8.h"

/* ---- numbers ---- */

static inline float widen(uint16_t x) {
    union { uint32_t i; float f; } wide = {.i = (uint32_t)x << 16};
    return wide.f;
}

static inline uint16_t narrow(float x) { /* to the nearest, ties to even */
    union { float f; uint32_t i; } wide = {.f = x};
    return (wide.i + 0x7fff + (wide.i >> 16 & 1)) >> 16;
}

/* A pointer to n numbers from `start` on: in place, or converted to floats in `copy` if they are bfloat16. */
static const float *read_row(const void *x, size_t start, int n, int half, float *restrict copy) {
    if (!half) return (const float *)x + start;
    const uint16_t *restrict from = (const uint16_t *)x + start;
    for (int i = 0; i < n; i++) copy[i] = widen(from[i]);
    return copy;
}

static void write_row(void *y, size_t start, int n, int half, const float *restrict x) {
    if (!half) {
        memcpy((float *)y + start, x, n * sizeof(float));
        return;
    }
    uint16_t *restrict to = (uint16_t *)y + start;
    for (int i = 0; i < n; i++) to[i] = narrow(x[i]);
}

#ifndef WIDE
typedef uint16_t Halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
#define WIDE(p) __builtin_convertvector(*(const Halves *)(p), Ints)
#endif

/* A vector of the numbers x, from i on. */
INLINE Floats read_vector(const void *x, size_t i, const int half) {
    if (!half) return *(const Floats *)((const float *)x + i);
    return (Floats)((Ints)WIDE((const uint16_t *)x + i) << 16);
}

static inline const void *number_at(const void *x, size_t i, int half) { return (const char *)x + i * (half ? 2 : 4); }

INLINE float read_element(const void *x, size_t i, const int half) {
    return half ? widen(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* e^r for small r */
#define EXPONENTIAL_SERIES(r) \
    (1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f))))))

/* e^x with a relative error below 5e-6, and below 5e-7 with fused products, in a form that compilers vectorise. */
static inline float exponential(float x) {
    x = x > -87.0f ? x : -87.0f; /* not fmaxf: see `largest_of` */
    float n = rintf(x * 1.44269504f), r = x - n * 0.693145752f - n * 1.42860677e-6f;
    union { int32_t i; float f; } power = {.i = ((int32_t)n + 127) << 23};
    return EXPONENTIAL_SERIES(r) * power.f;
}

/* The same of a vector, faster than what compilers make of a loop. */
INLINE Floats exponential_of_lanes(Floats x) {
    x = larger((Floats){0} - 87.0f, x);
    Floats shifted = IN_ORDER(x * 1.44269504f + 0x1.8p23f); /* rounded: its last bits are an integer */
    Floats n = shifted - 0x1.8p23f, r = x - n * 0.693145752f - n * 1.42860677e-6f;
    return EXPONENTIAL_SERIES(r) * (Floats)(((Ints)shifted + 127) << 23);
}

/* y = e^((x - max) scale) for n numbers; returns their sum. y may be x. The last numbers are computed as a whole vector,
 * with some of those before.
 */
INLINE float exponentials(const float *x, int n, float max, const float scale, float *y) {
    static const int32_t indices[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    if (n < LANES) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += y[i] = exponential((x[i] - max) * scale);
        return sum;
    }
    Floats sums = {0}, last = *(const Floats *)(x + n - LANES);
    int k = 0;
    for (; k + LANES <= n; k += LANES) {
        Floats part = exponential_of_lanes((*(const Floats *)(x + k) - max) * scale);
        *(Floats *)(y + k) = part;
        sums += part;
    }
    if (k < n) {
        last = exponential_of_lanes((last - max) * scale);
        *(Floats *)(y + n - LANES) = last;
        sums += (Floats)((Ints)last & (*(const Ints *)indices >= LANES - (n - k)));
    }
    return sum_lanes(sums);
}

/* Replace n scores by the softmax of their products with `scale`. */
static void softmax(float *scores, int n, float scale) {
    float inverse = 1 / exponentials(scores, n, largest_of(scores, n, -INFINITY, 0), scale, scores);
    for (int i = 0; i < n; i++) scores[i] *= inverse;
}

/* ---- attention of one query ---- */

/* Keys and values of the positions of a text: those of position p are p strides, and of beams ancestor[p] row strides,
 * after the first ones.
 */
typedef struct {
    const void *keys, *values;
    size_t key_stride, value_stride, row_stride;
    const uint8_t *ancestor;
    int half;
} Positions;

/* Begin to read the n numbers from `offset` on of four positions, which are computed with next. */
INLINE void prefetch_four(const void *x, const size_t *start, int offset, int n, const int half) {
    for (int i = 0; i < n; i += half ? 32 : 16) /* a cache line */
        UNROLL for (int j = 0; j < 4; j++) __builtin_prefetch(number_at(x, start[j] + offset + i, half));
}

/* Attention of one query over n positions. The keys, values and outputs of its heads are adjacent. Positions are read in
 * order, four at a time, for all heads: this is the order in memory. Processors do not foresee it, since four places of a page
 * are read in turns, so the next four positions are prefetched. `scores` has room for [head][n], and then has the
 * weights. The widths and `half` may be constants.
 */
INLINE void attend_widths(const float *q, const Positions *positions, int n, int heads, const int d_k, const int d_v,
                          const int half, float *scores, float *o) {
#define PLACE(p) ((positions->ancestor ? positions->ancestor[p] : 0) * positions->row_stride + (p) * stride)
#define PLACE_FOUR(place, first) UNROLL for (int j = 0; j < 4; j++) place[j] = PLACE(((first) + j < n ? (first) + j : p))
#define KEY(i) read_vector(positions->keys, i, half)
#define VALUE(i) read_vector(positions->values, i, half)
    size_t stride = positions->key_stride;
    int p = 0;
    for (; p + 4 <= n; p += 4) {
        size_t k[4], next[4];
        PLACE_FOUR(k, p);
        PLACE_FOUR(next, p + 4);
        for (int h = 0; h < heads; h++) {
            size_t k0 = k[0] + h * d_k, k1 = k[1] + h * d_k, k2 = k[2] + h * d_k, k3 = k[3] + h * d_k;
            prefetch_four(positions->keys, next, h * d_k, d_k, half);
            const float *query = q + h * d_k;
            float *score = scores + (size_t)h * n + p;
            Floats lanes0 = {0}, lanes1 = {0}, lanes2 = {0}, lanes3 = {0};
            int i = 0;
            for (; i + LANES <= d_k; i += LANES) {
                Floats part = read_vector(query, i, 0);
                lanes0 += part * KEY(k0 + i), lanes1 += part * KEY(k1 + i);
                lanes2 += part * KEY(k2 + i), lanes3 += part * KEY(k3 + i);
            }
            float sums[4];
            sum_lanes_of_four(lanes0, lanes1, lanes2, lanes3, sums);
            const size_t rest[] = {k0, k1, k2, k3};
            for (; i < d_k; i++)
                UNROLL for (int j = 0; j < 4; j++) sums[j] += query[i] * read_element(positions->keys, rest[j] + i, half);
            memcpy(score, sums, sizeof sums);
        }
    }
    for (; p < n; p++) {
        size_t k = PLACE(p);
        for (int h = 0; h < heads; h++, k += d_k) {
            Floats lanes = {0};
            int i = 0;
            for (; i + LANES <= d_k; i += LANES) lanes += read_vector(q, h * d_k + i, 0) * KEY(k + i);
            float sum = sum_lanes(lanes);
            for (; i < d_k; i++) sum += q[h * d_k + i] * read_element(positions->keys, k + i, half);
            scores[(size_t)h * n + p] = sum;
        }
    }
    for (int h = 0; h < heads; h++) softmax(scores + (size_t)h * n, n, 1 / sqrtf(d_k));
    for (int i = 0; i < heads * d_v; i++) o[i] = 0;
    stride = positions->value_stride;
    for (p = 0; p + 4 <= n; p += 4) {
        size_t v[4], next[4];
        PLACE_FOUR(v, p);
        PLACE_FOUR(next, p + 4);
        for (int h = 0; h < heads; h++) {
            size_t v0 = v[0] + h * d_v, v1 = v[1] + h * d_v, v2 = v[2] + h * d_v, v3 = v[3] + h * d_v;
            prefetch_four(positions->values, next, h * d_v, d_v, half);
            const float *weight = scores + (size_t)h * n + p;
            float w0 = weight[0], w1 = weight[1], w2 = weight[2], w3 = weight[3], *restrict output = o + h * d_v;
            int i = 0;
            for (; i + LANES <= d_v; i += LANES)
                *(Floats *)(output + i) += (w0 * VALUE(v0 + i) + w1 * VALUE(v1 + i)) + (w2 * VALUE(v2 + i) + w3 * VALUE(v3 + i));
            const size_t rest[] = {v0, v1, v2, v3};
            for (; i < d_v; i++)
                UNROLL for (int j = 0; j < 4; j++) output[i] += weight[j] * read_element(positions->values, rest[j] + i, half);
        }
    }
    for (; p < n; p++) {
        size_t v = PLACE(p);
        for (int h = 0; h < heads; h++, v += d_v) {
            float weight = scores[(size_t)h * n + p], *restrict output = o + h * d_v;
            for (int i = 0; i < d_v; i++) output[i] += weight * read_element(positions->values, v + i, half);
        }
    }
#undef PLACE
#undef PLACE_FOUR
#undef KEY
#undef VALUE
}

/* Heads of 64 dimensions, which most models have, are compiled separately: loops of a known length are faster. */
static void attend(const float *q, const Positions *positions, int n, int heads, int d_k, int d_v, float *scores, float *o) {
    if (d_k != 64 || d_v != 64) attend_widths(q, positions, n, heads, d_k, d_v, positions->half, scores, o);
    else if (positions->half) attend_widths(q, positions, n, heads, 64, 64, 1, scores, o);
    else attend_widths(q, positions, n, heads, 64, 64, 0, scores, o);
}

/* ---- matrix products ---- */

enum { QUERIES = 64, PRODUCT_ROWS = 6, PRODUCT_COLUMNS = 2 * LANES, AHEAD = 16 }; /* queries of a segment at once; sums in registers */

INLINE void product_block(const int R, int K, const float *a, int a_row, int a_column, const void *b, size_t first, int b_row,
                          const int half, float *c, int c_row, int adds) {
    Floats sum[PRODUCT_ROWS][2];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int v = 0; v < 2; v++) sum[r][v] = adds ? *(Floats *)(c + r * c_row + v * LANES) : (Floats){0};
    for (int k = 0; k < K; k++, a += a_column, first += b_row) {
        if (half) __builtin_prefetch(number_at(b, first + (size_t)AHEAD * b_row, half));
        Floats row[2];
        UNROLL for (int v = 0; v < 2; v++) row[v] = read_vector(b, first + v * LANES, half);
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int v = 0; v < 2; v++) sum[r][v] += a[r * a_row] * row[v];
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int v = 0; v < 2; v++) *(Floats *)(c + r * c_row + v * LANES) = sum[r][v];
}

INLINE void product_of(int M, int N, int K, const float *a, int a_row, int a_column, const void *b, int b_row,
                       const int half, float *c, int c_row, int adds) {
#define CASE(R) case R: product_block(R, K, from, a_row, a_column, b, n, b_row, half, to, c_row, adds); break;
    for (int n = 0; n < N; n += PRODUCT_COLUMNS)
        for (int m = 0; m < M; m += PRODUCT_ROWS) {
            const float *from = a + m * a_row;
            float *to = c + m * c_row + n;
            switch (M - m) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) default: CASE(6) }
        }
#undef CASE
}

/* c [M][N] = a [M][K] b [K][N], or c + a b if `adds`. N is a multiple of PRODUCT_COLUMNS; element [m][k] of a is
 * a[m * a_row + k * a_column].
 */
static void product(int M, int N, int K, const float *a, int a_row, int a_column, const float *b, int b_row, float *c,
                    int c_row, int adds) {
    product_of(M, N, K, a, a_row, a_column, b, b_row, 0, c, c_row, adds);
}

/* The same for b of either kind. */
static void product_of_stored(int M, int N, int K, const float *a, int a_row, const void *b, int b_row, int half, float *c,
                              int c_row) {
    if (half) product_of(M, N, K, a, a_row, 1, b, b_row, 1, c, c_row, 0);
    else product(M, N, K, a, a_row, 1, b, b_row, c, c_row, 0);
}

static int padded_width(int64_t n) { return (n + PRODUCT_COLUMNS - 1) / PRODUCT_COLUMNS * PRODUCT_COLUMNS; }

/* The columns of x [rows][d], each filled up with zeros. */
static void transpose(int rows, int d, const float *restrict x, int x_row, float *restrict to, int to_row) {
    for (int i = 0; i < d; i++, to += to_row) {
        for (int t = 0; t < rows; t++) to[t] = x[(size_t)t * x_row + i];
        memset(to + rows, 0, (to_row - rows) * sizeof(float));
    }
}

/* ---- attention of several queries ---- */

/* The keys and values of a head, arranged for products: keys[dimension][position], values[position][dimension]. */
static int arranged_size(int positions, int d_k, int d_v) {
    return d_k * padded_width(positions) + positions * padded_width(d_v);
}

static void arrange(int positions, int d_k, int d_v, const float *keys, const float *values, int row, float *to) {
    int W = padded_width(positions), V = padded_width(d_v);
    transpose(positions, d_k, keys, row, to, W);
    to += (size_t)d_k * W;
    for (int s = 0; s < positions; s++, to += V, values += row) {
        memcpy(to, values, d_v * sizeof(float));
        memset(to + d_v, 0, (V - d_v) * sizeof(float));
    }
}

/* The numbers of scratch space that `attend_all` needs. */
static int scores_size(int positions, int d_v) { return QUERIES * (padded_width(positions) + padded_width(d_v)); }

/* Attention of T queries over all positions, for one head, whose arranged keys and values begin with number `first`. */
static void attend_all(const float *q, int q_row, int T, const void *arranged, size_t first, int half, int positions, int d_k,
                       int d_v, float *scores, float *o, int o_row) {
    int W = padded_width(positions), V = padded_width(d_v);
    const void *keys = number_at(arranged, first, half), *values = number_at(keys, (size_t)d_k * W, half);
    float *outputs = scores + (size_t)QUERIES * W;
    for (int t = 0; t < T; t += QUERIES, q += (size_t)QUERIES * q_row, o += (size_t)QUERIES * o_row) {
        int rows = T - t < QUERIES ? T - t : QUERIES;
        product_of_stored(rows, W, d_k, q, q_row, keys, W, half, scores, W);
        for (int r = 0; r < rows; r++) softmax(scores + (size_t)r * W, positions, 1 / sqrtf(d_k));
        product_of_stored(rows, V, positions, scores, W, values, V, half, outputs, V);
        for (int r = 0; r < rows; r++) memcpy(o + (size_t)r * o_row, outputs + (size_t)r * V, d_v * sizeof(float));
    }
}

/* Matrix products of 8-bit integers.
 *
 * Weights have one scale for each output channel, activations one for each row, computed from the row. Both are in
 * -127..127; activations are stored with ZERO_POINT added. A panel holds PANEL output channels, interleaved in groups of
 * four inputs as the dot-product instructions expect them: panel[k / 4][channel][k % 4].
 *
 * Activations may have two parts, which are two rows here: integers, and integers of their rounding errors, with a scale
 * 254 times as small. The products are then as precise as those of 16-bit activations.
 *
 * In language models, whose activations have outliers, weights and activations have a scale for each CHUNK of inputs. The
 * LARGE_GROUPS groups of four activations of a chunk with the largest magnitudes are integers of 16 bits: their low bytes
 * are among those of all others, and their high bytes are multiplied before these. ZERO_POINT is added to the weights here,
 * so what is to be subtracted from the sums is one number for each row and chunk, whatever its large groups are.
 *
 * Blocking: the sums of a block of a few rows and panels stay in registers over all inputs. There are enough of them to
 * hide the latency of the instructions, and each load of weights or activations serves several products. All rows use a
 * panel before the next one is read, so weights are read from memory once; meanwhile, the next panels are prefetched.
 * With AMX, a block has two tiles of rows and two panels: four tiles of sums, two of activations and two of weights.
 */
#include <math.h>
#include <string.h>

#include "structs.h"

#include "instructions.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
enum { LINE = 64 }; /* bytes of a cache line */

/* A product whose factors stay together. Compilers may choose another order in each copy of inlined code, and rounding would
 * then depend on the number of rows. Not gcc's builtin for vectors, which it computes number by number.
 */
#if defined(__aarch64__)
#define IN_ORDER(product) ({ Floats ordered = product; __asm__("" : "+w"(ordered)); ordered; })
#elif defined(__x86_64__)
#define IN_ORDER(product) ({ Floats ordered = product; __asm__("" : "+v"(ordered)); ordered; })
#elif defined(__wasm__)
#define IN_ORDER(product) product /* web/wasm.py compiles without -fassociative-math */
#else
#define IN_ORDER(product) ({ Floats ordered = product; __asm__("" : "+m"(ordered)); ordered; })
#endif

/* A vector of the processor, at any address. */
enum { LANES = CHANNELS > 1 ? CHANNELS : 4 };
typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* How the sums of a block become its outputs `y`: scales of the rows, scales and biases of the channels, and the number, 0
 * or -INFINITY, below which outputs are replaced by 0.
 */
typedef struct { const float *x_scale, *scale, *bias; int bias_stride; float lowest, *y; int y_stride; } Outputs;

/* Write the outputs of R rows and P panels. If `chunked`, a constant, the scales of the rows are in Chunks, and each row has
 * a row of biases: the sums of the chunks before.
 */
INLINE void write_outputs(const int chunked, const int R, const int P, int32_t sums[][MOST_PANELS * PANEL],
                          const Outputs *outputs) {
    const int next = chunked ? sizeof(Chunk) / sizeof(float) : 1;
    UNROLL for (int c = 0; c < P * PANEL; c += LANES) {
        Floats scale = *(const Floats *)(outputs->scale + c), bias = *(const Floats *)(outputs->bias + c);
        UNROLL for (int r = 0; r < R; r++) {
            Floats value = __builtin_convertvector(*(const Ints *)(sums[r] + c), Floats);
            if (chunked) bias = *(const Floats *)(outputs->bias + (size_t)r * outputs->bias_stride + c);
            value = IN_ORDER(value * scale) * outputs->x_scale[r * next] + bias;
            if (!chunked) value = (Floats)((Ints)value & ~(Ints)(value < outputs->lowest));
            *(Floats *)(outputs->y + (size_t)r * outputs->y_stride + c) = value;
        }
    }
}

/* The weights of adjacent panels, and what to prefetch while they are used: `ahead` and, after every 16 inputs (with
 * tiles, 64), the next `step` bytes. `scales` is the number of scales of a chunk.
 */
typedef struct { const int8_t *weight; const int32_t *start; int padded_in, scales; const int8_t *ahead; int step; } Panels;

/* Rows of activations: their integers and, in language models, their chunks, those of the same inputs one after the other:
 * `next` is their number.
 */
typedef struct { const Integer *q; const Chunk *chunks; int next; } Rows;

/* From the outputs of a chunk to those of the next one, whose sums are added. */
INLINE void next_chunk(Rows *x, const Panels *panels, Outputs *outputs) {
    x->chunks += x->next;
    outputs->x_scale = &x->chunks->scale, outputs->scale += panels->scales;
    outputs->bias = outputs->y, outputs->bias_stride = outputs->y_stride;
}

static inline int count_chunks(int padded_in) { return (padded_in + CHUNK - 1) / CHUNK; }

/* What the sums of a row and P panels start with in a chunk: with the products of the high bytes. */
INLINE void start_chunk(const int P, const Chunk *chunk, const int8_t *weight, int K, Vector *sum) {
    const int V = P * VECTORS;
    Integer bytes[4 * LARGE_GROUPS];
    for (int i = 0; i < 4 * LARGE_GROUPS; i++) bytes[i] = chunk->high[i / 4][i % 4];
    Row16 high = ROW(bytes);
    UNROLL for (int v = 0; v < V; v++) sum[v] = SPLAT(chunk->start);
#define LARGE_GROUP(i)                                                                                               \
    {                                                                                                                \
        const int8_t *four = weight + chunk->offset[i];                                                              \
        UNROLL for (int v = 0; v < V; v++) {                                                                         \
            Weights w = WEIGHTS(four + (size_t)(v / VECTORS) * PANEL * K + v % VECTORS * CHANNELS * 4);              \
            sum[v] = DOT_CHUNK(sum[v], w, high, i);                                                                  \
        }                                                                                                            \
    }
    LARGE_GROUP(0)
    LARGE_GROUP(1)
    LARGE_GROUP(2)
    LARGE_GROUP(3)
#undef LARGE_GROUP
    UNROLL for (int v = 0; v < V; v++) sum[v] = TIMES_128(sum[v]);
}

/* Outputs of R rows and P panels; these and `chunked` are constants, and the compiler unrolls the loops over them. */
INLINE void dot_block(const int chunked, const int R, const int P, Rows x, Panels panels, Outputs outputs) {
    const int K = panels.padded_in, V = P * VECTORS;
    const int8_t *weight = panels.weight;
    for (int k = 0, end; k < K; next_chunk(&x, &panels, &outputs)) {
        Vector sum[BLOCK_ROWS][MOST_PANELS * VECTORS];
        UNROLL for (int r = 0; r < R; r++) {
            if (chunked) start_chunk(P, x.chunks + r, weight, K, sum[r]);
            else UNROLL for (int v = 0; v < V; v++) sum[r][v] = LOAD(panels.start + v * CHANNELS);
        }
        end = chunked && K - k > CHUNK ? k + CHUNK : K;
        for (; k < end; k += 16, panels.weight += 16 * PANEL, panels.ahead += panels.step) {
            UNROLL for (int i = 0; i < P; i++) __builtin_prefetch(panels.ahead + i * LINE);
            if (panels.step > P * LINE)
                UNROLL for (int i = P; i < 4 * P; i++) __builtin_prefetch(panels.ahead + i * LINE);
            Row16 row[BLOCK_ROWS];
            UNROLL for (int r = 0; r < R; r++) row[r] = ROW(x.q + (size_t)r * K + k);
#define CHANNELS_AT(v, lane) \
    WEIGHTS(panels.weight + (size_t)(v / VECTORS) * PANEL * K + (lane * PANEL + v % VECTORS * CHANNELS) * 4)
#define FOUR_INPUTS(lane)                                                                                    \
    UNROLL for (int v = 0; v < V; v++) {                                                                     \
        Weights w = CHANNELS_AT(v, lane);                                                                    \
        UNROLL for (int r = 0; r < R; r++)                                                                   \
            sum[r][v] = chunked ? DOT_CHUNK(sum[r][v], w, row[r], lane) : DOT(sum[r][v], w, row[r], lane);   \
    }
#define EIGHT_INPUTS(lane)                                                                                   \
    UNROLL for (int v = 0; v < V; v++) {                                                                     \
        Weights w = CHANNELS_AT(v, lane), next = CHANNELS_AT(v, (lane + 1));                                 \
        UNROLL for (int r = 0; r < R; r++) sum[r][v] = DOT_TWO(sum[r][v], w, next, row[r], lane);            \
    }
#ifdef DOT_TWO
            EIGHT_INPUTS(0)
            EIGHT_INPUTS(2)
#else
            FOUR_INPUTS(0)
            FOUR_INPUTS(1)
            FOUR_INPUTS(2)
            FOUR_INPUTS(3)
#endif
#undef CHANNELS_AT
#undef FOUR_INPUTS
#undef EIGHT_INPUTS
        }
        int32_t sums[BLOCK_ROWS][MOST_PANELS * PANEL]; /* the compiler keeps them in registers */
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int v = 0; v < V; v++) STORE(&sums[r][v * CHANNELS], sum[r][v]);
        write_outputs(chunked, R, P, sums, &outputs);
        if (!chunked) break;
    }
}

/* The same for a number of rows that is not a constant, from 1 to `most`, which is one. */
INLINE void dot_rows(const int chunked, int rows, const int most, const int P, Rows x, Panels panels, Outputs outputs) {
#define CASE(R) case R: if (R <= most) dot_block(chunked, R < most ? R : most, P, x, panels, outputs); break;
    switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
#undef CASE
}

#ifdef TILES
/* The sums of R tiles of rows and P panels over a number of inputs; if `chunked`, `out` has what they start with. */
INLINE void dot_tiles(const int chunked, const int R, const int P, const int8_t *x, int inputs, Panels *panels,
                      int32_t out[][MOST_PANELS * PANEL]) {
    const int K = panels->padded_in;
    const int8_t *x2 = x + (size_t)TILE_ROWS * K;
    const int32_t *start = chunked ? out[0] : panels->start, *start2 = chunked ? out[TILE_ROWS] : panels->start;
    const size_t stride = sizeof(out[0]), start_stride = chunked ? stride : 0; /* 0: the same start in all rows */
    _tile_loadd(0, start, start_stride);
    if (P == 2) _tile_loadd(1, start + PANEL, start_stride);
    if (R == 2) _tile_loadd(2, start2, start_stride);
    if (R == 2 && P == 2) _tile_loadd(3, start2 + PANEL, start_stride);
#define DOT_TILES(sum, x, w)                  \
    {                                         \
        if (chunked) _tile_dpbsud(sum, x, w); \
        else _tile_dpbusd(sum, x, w);         \
    }
    for (int k = 0; k < inputs; k += PADDING, panels->weight += PADDING * PANEL, panels->ahead += panels->step) {
        for (int i = 0; i < panels->step; i += LINE) __builtin_prefetch(panels->ahead + i);
        _tile_loadd(4, x + k, K);
        _tile_loadd(6, panels->weight, 4 * PANEL);
        DOT_TILES(0, 4, 6)
        if (P == 2) _tile_loadd(7, panels->weight + (size_t)PANEL * K, 4 * PANEL);
        if (P == 2) DOT_TILES(1, 4, 7)
        if (R == 2) _tile_loadd(5, x2 + k, K);
        if (R == 2) DOT_TILES(2, 5, 6)
        if (R == 2 && P == 2) DOT_TILES(3, 5, 7)
    }
#undef DOT_TILES
    _tile_stored(0, &out[0][0], stride);
    if (P == 2) _tile_stored(1, &out[0][PANEL], stride);
    if (R == 2) _tile_stored(2, &out[TILE_ROWS][0], stride);
    if (R == 2 && P == 2) _tile_stored(3, &out[TILE_ROWS][PANEL], stride);
}

/* The outputs of a number of rows, up to two tiles, and of panels, 1 or 2, that are not constants. */
INLINE void dot_tile_rows(const int chunked, int rows, int P, Rows x, Panels panels, Outputs outputs) {
    const int K = panels.padded_in;
    const int8_t *weight = panels.weight;
    int32_t sums[2 * TILE_ROWS][MOST_PANELS * PANEL];
    for (int k = 0, inputs; k < K; k += inputs, next_chunk(&x, &panels, &outputs)) {
        for (int r = 0; chunked && r < rows; r++) {
            Vector sum[MOST_PANELS * VECTORS];
            if (P == 2) start_chunk(2, x.chunks + r, weight, K, sum);
            else start_chunk(1, x.chunks + r, weight, K, sum);
            for (int v = 0; v < P * VECTORS; v++) STORE(&sums[r][v * CHANNELS], sum[v]);
        }
        __asm__ volatile("" ::: "memory"); /* these stores come before, which the intrinsics do not say */
        inputs = chunked && K - k > CHUNK ? CHUNK : K - k;
        if (rows > TILE_ROWS && P == 2) dot_tiles(chunked, 2, 2, x.q + k, inputs, &panels, sums);
        else if (rows > TILE_ROWS) dot_tiles(chunked, 2, 1, x.q + k, inputs, &panels, sums);
        else if (P == 2) dot_tiles(chunked, 1, 2, x.q + k, inputs, &panels, sums);
        else dot_tiles(chunked, 1, 1, x.q + k, inputs, &panels, sums);
        write_outputs(chunked, rows, P, sums, &outputs);
        if (!chunked) break;
    }
}

/* Set all eight tiles to 16 rows of 64 bytes. */
static void configure_tiles(void) {
    static const struct { uint8_t palette, start, unused[14]; uint16_t bytes[16]; uint8_t rows[16]; } config = {
        .palette = 1,
        .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS},
    };
    __asm__ volatile("" ::: "memory"); /* stores to the activations come before, which the intrinsics do not say */
    _tile_loadconfig(&config);
}

static void release_tiles(void) { _tile_release(); }
#else
enum { TILES_FROM = INT32_MAX };
static int tiles_allowed(void) { return 0; }
static void configure_tiles(void) {}
static void release_tiles(void) {}
INLINE void dot_tile_rows(const int chunked, int rows, int P, Rows x, Panels panels, Outputs outputs) {
    (void)chunked, (void)rows, (void)P, (void)x, (void)panels, (void)outputs;
}
#endif

/* Complete the output y of row i, of which `sums` are scaled. If `two`, they are those of one part: the first part of an
 * output has the bias, and numbers below `lowest` are replaced by 0 after the second.
 */
INLINE void finish_row(const int two, int i, const float *sums, const float *bias, float lowest, int width, float *y) {
    if (!two) memcpy(y, sums, width * sizeof(float));
    else if (i % 2 == 0)
        for (int c = 0; c < width; c++) y[c] = sums[c] + bias[c];
    else
        for (int c = 0; c < width; c++) y[c] = y[c] + sums[c] < lowest ? 0 : y[c] + sums[c];
}

/* x W^T + b of all rows for the panels `first` up to `last` (excluded); `y` points to the first panel's output in row 0. If
 * `two`, odd rows are second parts: they are added to the output of the row before. If `chunked`, the rows have chunks
 * instead of `x_scale`, and there is no ReLU. Both are constants.
 */
INLINE void multiply_rows(const int two, const int chunked, const Linear *linear, int first, int last, Rows x,
                          const float *x_scale, int rows, float *y, int y_stride, int relu) {
    const int K = linear->padded_in, tiles = rows >= TILES_FROM && tiles_allowed();
    const int block_panels = tiles ? 2 : rows <= NARROW_ROWS ? WIDE_PANELS : BLOCK_PANELS;
    const int block_rows = tiles ? 2 * TILE_ROWS : BLOCK_ROWS, blocks = (rows + block_rows - 1) / block_rows;
    const float lowest = relu ? 0 : -INFINITY, zeros[MOST_PANELS * PANEL] = {0};
    if (tiles) configure_tiles();
    for (int p = first, P; p < last; p += P, y += P * PANEL) {
        P = last - p < block_panels ? 1 : block_panels;
        const size_t size = (size_t)P * PANEL * K;
        const int rest = linear->width_out - p * PANEL, width = rest < P * PANEL ? rest : P * PANEL;
        const int complete = !two && width == P * PANEL;
        const float *scale = linear->scale + p * PANEL, *bias = linear->bias + p * PANEL;
        const int8_t *weight = linear->weight + (size_t)p * PANEL * K;
        const int step = tiles ? (16 * P + blocks - 1) / blocks * LINE : (blocks < 4 ? 4 * P : P) * LINE;
        size_t prefetched = 0; /* of the next panels */
        for (int b = 0, r = 0, end; b < blocks; b++, r = end) {
            Panels panels = {weight, linear->start + p * PANEL, K, linear->panels * PANEL, weight, prefetched < size ? step : 0};
            if (panels.step) panels.ahead += size + prefetched;
            prefetched += (size_t)K / (tiles ? PADDING : 16) * step;
            Rows block = {x.q + (size_t)r * K, chunked ? x.chunks + r : NULL, x.next};
            Outputs outputs = {chunked ? &block.chunks->scale : x_scale + r, scale, bias, 0, lowest, y + (size_t)r * y_stride, y_stride};
            if (two) outputs.bias = zeros, outputs.lowest = -INFINITY;
            float scaled[SUM_ROWS][MOST_PANELS * PANEL]; /* outputs that are not complete */
            if (!complete) outputs.y = scaled[0], outputs.y_stride = MOST_PANELS * PANEL;
            if (tiles) {
                end = r + block_rows < rows ? r + block_rows : rows;
                dot_tile_rows(chunked, end - r, P, block, panels, outputs);
            } else {
                end = (int)((int64_t)rows * (b + 1) / blocks); /* blocks of about the same size */
                if (P == 1) dot_rows(chunked, end - r, BLOCK_ROWS, 1, block, panels, outputs);
                else if (rows <= NARROW_ROWS) dot_rows(chunked, end - r, NARROW_ROWS, WIDE_PANELS, block, panels, outputs);
                else dot_rows(chunked, end - r, BLOCK_ROWS, BLOCK_PANELS, block, panels, outputs);
            }
            for (int i = r; i < end && !complete; i++)
                finish_row(two, i, scaled[i - r], bias, lowest, width, y + (size_t)(two ? i / 2 : i) * y_stride);
        }
    }
    if (tiles) release_tiles();
}

/* Functions of their own: in one function, gcc's code for the first is 7% slower. */
static __attribute__((noinline)) void multiply_one_part(const Linear *linear, int first, int last, const Integer *x,
                                                        const float *x_scale, int count, float *y, int y_stride,
                                                        int relu) {
    multiply_rows(0, 0, linear, first, last, (Rows){x, NULL, 0}, x_scale, count, y, y_stride, relu);
}

static __attribute__((noinline)) void multiply_two_parts(const Linear *linear, int first, int last, const Integer *x,
                                                         const float *x_scale, int count, float *y, int y_stride,
                                                         int relu) {
    multiply_rows(1, 0, linear, first, last, (Rows){x, NULL, 0}, x_scale, 2 * count, y, y_stride, relu);
}

static __attribute__((noinline)) void multiply_chunks(const Linear *linear, int first, int last, Rows x, int count,
                                                      float *y, int y_stride) {
    multiply_rows(0, 1, linear, first, last, x, NULL, count, y, y_stride, 0);
}

/* The same for `count` rows of 1 or 2 parts. */
static void multiply_panels(const Linear *linear, int first, int last, const Integer *x, const float *x_scale, int count,
                            int parts, float *y, int y_stride, int relu) {
    if (parts == 2) multiply_two_parts(linear, first, last, x, x_scale, count, y, y_stride, relu);
    else multiply_one_part(linear, first, last, x, x_scale, count, y, y_stride, relu);
}

/* Where the weight of input k and output channel n is in the panels. */
static inline size_t weight_index(int n, int k, int padded_in) {
    return (size_t)(n / PANEL) * PANEL * padded_in + (k / 4 * PANEL + n % PANEL) * 4 + place_of(k);
}

/* The quantised weight of input k and output channel n, to which ZERO_POINT is added in language models. */
static inline int8_t weight_at(const Linear *linear, int n, int k) {
    return linear->weight[weight_index(n, k, linear->padded_in)];
}

INLINE Floats magnitude(Floats value, const int magnitudes) { return magnitudes ? (Floats)((Ints)value & INT32_MAX) : value; }

/* The larger numbers of two vectors; those of `largest` beside NaNs. */
INLINE Floats larger(Floats largest, Floats value) {
#ifdef LARGER
    return (Floats)LARGER(value, largest);
#else
    Ints more = (Ints)(value > largest);
    return (Floats)(((Ints)value & more) | ((Ints)largest & ~more));
#endif
}

/* The largest of n numbers and `lowest`, or of their magnitudes. Not fmaxf: because of NaNs, which are ignored here, that
 * is a call for each number on x86-64.
 */
INLINE float largest_of(const float *x, int n, float lowest, const int magnitudes) {
    enum { MAXIMA = 4 }; /* at once, to hide the latency of comparisons */
    Floats largest[MAXIMA];
    int k = 0;
    UNROLL for (int i = 0; i < MAXIMA; i++) largest[i] = (Floats){0} + lowest;
    for (; k + MAXIMA * LANES <= n; k += MAXIMA * LANES)
        UNROLL for (int i = 0; i < MAXIMA; i++)
            largest[i] = larger(largest[i], magnitude(*(const Floats *)(x + k + i * LANES), magnitudes));
    for (; k + LANES <= n; k += LANES) largest[0] = larger(largest[0], magnitude(*(const Floats *)(x + k), magnitudes));
    if (k < n && n >= LANES) { /* the last ones, again with some of those before */
        largest[1] = larger(largest[1], magnitude(*(const Floats *)(x + n - LANES), magnitudes));
        k = n;
    }
    Floats lanes = larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
    UNROLL for (int half = LANES / 2; half > 0; half /= 2)
        UNROLL for (int i = 0; i < half; i++) lanes[i] = lanes[i + half] > lanes[i] ? lanes[i + half] : lanes[i];
    lowest = lanes[0];
    for (; k < n; k++) {
        float value = magnitudes ? fabsf(x[k]) : x[k];
        lowest = value > lowest ? value : lowest;
    }
    return lowest;
}

/* The sum of the lanes of a vector. */
INLINE float sum_lanes(Floats lanes) {
    UNROLL for (int half = LANES / 2; half > 0; half /= 2)
        UNROLL for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (Ints){__VA_ARGS__})
#endif

/* The sums of the lanes of four vectors, added in the order of `sum_lanes`. */
INLINE void sum_lanes_of_four(Floats a, Floats b, Floats c, Floats d, float *sums) {
#if defined(__AVX512BW__)
    Floats ab = SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    Floats cd = SHUFFLE(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                SHUFFLE(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    Floats all = SHUFFLE(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                 SHUFFLE(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    all += SHUFFLE(all, all, 2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15);
    all += SHUFFLE(all, all, 1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13);
#elif defined(__AVX2__)
    Floats ab = SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    Floats cd = SHUFFLE(c, d, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE(c, d, 4, 5, 6, 7, 12, 13, 14, 15);
    Floats all = SHUFFLE(ab, cd, 0, 1, 4, 5, 8, 9, 12, 13) + SHUFFLE(ab, cd, 2, 3, 6, 7, 10, 11, 14, 15);
    all += SHUFFLE(all, all, 1, 1, 3, 3, 5, 5, 7, 7);
#else
    Floats ab = SHUFFLE(a, b, 0, 1, 4, 5) + SHUFFLE(a, b, 2, 3, 6, 7);
    Floats cd = SHUFFLE(c, d, 0, 1, 4, 5) + SHUFFLE(c, d, 2, 3, 6, 7);
    Floats all = SHUFFLE(ab, cd, 0, 2, 4, 6) + SHUFFLE(ab, cd, 1, 3, 5, 7);
#endif
    UNROLL for (int i = 0; i < 4; i++) sums[i] = all[i * LANES / 4];
}

/* Sums are written with vectors, so that their order, on which rounding depends, is not left to the compiler. */
static float sum_of(const float *x, int n) {
    Floats lanes = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) lanes += *(const Floats *)(x + i);
    float total = sum_lanes(lanes);
    for (; i < n; i++) total += x[i];
    return total;
}

/* The sum of the squares of x - mean. */
static float sum_of_squares(const float *x, int n, float mean) {
    Floats lanes = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        Floats from_mean = *(const Floats *)(x + i) - mean;
        lanes += from_mean * from_mean;
    }
    float total = sum_lanes(lanes);
    for (; i < n; i++) total += (x[i] - mean) * (x[i] - mean);
    return total;
}

/* Quantise one row, add ZERO_POINT and pad it; returns its scale: x is about (q - ZERO_POINT) * scale. */
static float quantise_row(const float *restrict x, int width, int padded, Integer *restrict q) {
    float largest = largest_of(x, width, 0, 1), inverse = largest > 0 ? 127 / largest : 0;
    for (int k = 0; k < width; k++) q[k] = (Integer)((int)rintf(x[k] * inverse) + ZERO_POINT);
    memset(q + width, 0, (padded - width) * sizeof(Integer));
    return largest / 127;
}

/* Quantise one row in two parts, the second after the first. */
static void quantise_two_parts(const float *restrict x, int width, int padded, Integer *restrict q, float *scale) {
    float largest = largest_of(x, width, 0, 1), inverse = largest > 0 ? 127 / largest : 0;
    for (int k = 0; k < width; k++) {
        float value = x[k] * inverse, first = rintf(value);
        q[k] = (Integer)((int)first + ZERO_POINT);
        q[padded + k] = (Integer)((int)rintf((value - first) * 254) + ZERO_POINT);
    }
    memset(q + width, 0, (padded - width) * sizeof(Integer));
    memset(q + padded + width, 0, (padded - width) * sizeof(Integer));
    scale[0] = largest / 127, scale[1] = largest / (127 * 254);
}

/* Quantise one row in chunks, each of which is `next` after the one before: x is about q times the scale of its chunk. In
 * all groups but the large ones, q is in -127..127; what these have decides the scale only beyond 16 bits.
 */
static void quantise_chunks(const float *restrict x, int width, int padded, Integer *restrict q, Chunk *chunk, int next) {
    enum { GROUPS = CHUNK / 4, NUMBERS = 128 }; /* the last bits of a group's magnitude are replaced by its number, below 128 */
    for (int begin = 0; begin < padded; begin += CHUNK, x += CHUNK, q += CHUNK, chunk += next) {
        int inputs = padded - begin < CHUNK ? padded - begin : CHUNK, rest = width - begin;
        uint32_t total = 0; /* sums of what was not finite overflow */
        float copy[CHUNK];
        const float *part = x;
        if (rest < CHUNK) {
            memcpy(copy, x, rest * sizeof(float)), memset(copy + rest, 0, (CHUNK - rest) * sizeof(float));
            part = copy;
        }
        float largest[GROUPS];
        int32_t magnitudes[GROUPS], top[LARGE_GROUPS + 1];
        for (int g = 0; g < GROUPS; g++) { /* positive floats are in the order of their bits */
            float a = fabsf(part[4 * g]), b = fabsf(part[4 * g + 1]), c = fabsf(part[4 * g + 2]), d = fabsf(part[4 * g + 3]);
            a = a > b ? a : b, c = c > d ? c : d, a = a > c ? a : c;
            union { float f; int32_t i; } bits = {a};
            largest[g] = a, magnitudes[g] = (bits.i & -NUMBERS) | g;
        }
        for (int g = inputs / 4; g < GROUPS; g++) magnitudes[g] = -1;
        for (int i = 0; i <= LARGE_GROUPS; i++) { /* no two magnitudes are equal */
            int32_t before = i ? top[i - 1] : INT32_MAX;
            top[i] = -1;
            for (int g = 0; g < GROUPS; g++) {
                int32_t magnitude = magnitudes[g] < before ? magnitudes[g] : -1;
                top[i] = magnitude > top[i] ? magnitude : top[i];
            }
        }
        float limit = largest[top[LARGE_GROUPS] % NUMBERS], least = largest[top[0] % NUMBERS] / 128;
        limit = limit > least ? limit : least;
        float inverse = limit > 0 ? 127 / limit : 0;
        for (int k = 0; k < inputs; k++) {
            int number = (int)rintf(part[k] * inverse);
            q[k] = (Integer)number;
            total += (uint32_t)number;
        }
        for (int i = 0; i < LARGE_GROUPS; i++) {
            int g = top[i] % NUMBERS;
            for (int k = 0; k < 4; k++) {
                int number = (int)rintf(part[4 * g + k] * inverse), high = ((number >> 6) + 1) >> 1;
                chunk->high[i][k] = (int8_t)high;
                q[4 * g + k] = (Integer)(number - 128 * high);
            }
            chunk->offset[i] = (begin / 4 + g) * 4 * PANEL;
        }
        chunk->scale = limit / 127, chunk->start = ZERO_POINT ? (int32_t)(0 - total) : 0;
    }
}

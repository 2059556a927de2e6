/* Only the products of the native engine: exactness, speed, and the limits of the machine.
 *
 *     cc -O2 -march=native -pthread benchmarks/int8_products.c -o products -lm && ./products [threads] [limits]
 *
 * Compares random products with plain loops. Then prints, for some shapes, the speed of products whose weights are in
 * memory rather than in a cache, as in decoding, next to the measured peak of the instruction set and the bandwidth; with
 * `limits`, only the latter two. With 0 threads, nothing is timed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../src/transduce/fast/native/int8.h"
#include "../src/transduce/fast/native/thread_pool.h"

enum { MEMORY = 64 << 20, ROUNDS = 5 };

static uint32_t state = 1;

static int draw(int n) {
    state = state * 1664525u + 1013904223u;
    return (int)((uint64_t)state * n >> 32);
}

/* Seconds: of one thread those on the CPU, which other processes do not disturb. */
static double now(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static Linear make_layer(int width_in, int width_out) {
    Linear layer = {width_in, (width_in + PADDING - 1) / PADDING * PADDING, width_out, (width_out + PANEL - 1) / PANEL, 0, 0, 0, 0};
    int channels = layer.panels * PANEL;
    int8_t *weight = aligned_alloc(64, (size_t)channels * layer.padded_in);
    float *scale = malloc(channels * sizeof(float)), *bias = malloc(channels * sizeof(float));
    int32_t *start = calloc(channels, sizeof(int32_t));
    if (!weight || !scale || !bias || !start) abort();
    for (int n = 0; n < channels; n++) {
        scale[n] = 1 + draw(100), bias[n] = draw(1000);
        for (int k = 0; k < layer.padded_in; k++) {
            int w = n < width_out && k < width_in ? draw(255) - 127 : 0;
            weight[weight_index(n, k, layer.padded_in)] = w;
            start[n] -= ZERO_POINT * w;
        }
    }
    layer.weight = weight, layer.scale = scale, layer.bias = bias, layer.start = start;
    return layer;
}

static void free_layer(Linear *layer) {
    free((void *)layer->weight), free((void *)layer->scale), free((void *)layer->bias), free((void *)layer->start);
}

/* Random activations, the extreme ones among them. */
static Integer *make_rows(const Linear *layer, int rows, int extreme) {
    int padded_rows = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    Integer *x = aligned_alloc(64, (size_t)padded_rows * layer->padded_in * sizeof(Integer));
    if (!x) abort();
    memset(x, 77, (size_t)padded_rows * layer->padded_in * sizeof(Integer));
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < layer->width_in; k++)
            x[(size_t)r * layer->padded_in + k] = (extreme ? (draw(2) ? 127 : -127) : draw(255) - 127) + ZERO_POINT;
    return x;
}

static void check_products(int count) {
    for (int i = 0; i < count; i++) {
        int rows = i < 70 ? i + 1 : 1 + draw(70), width_in = 1 + draw(i % 5 ? 300 : 2100), width_out = 1 + draw(150);
        int relu = draw(2), stride = width_out + draw(5), parts = 1 + draw(2);
        Linear layer = make_layer(width_in, width_out);
        Integer *x = make_rows(&layer, rows * parts, i % 3 == 0);
        float *y = malloc((size_t)rows * stride * sizeof(float)), *x_scale = malloc(rows * parts * sizeof(float));
        if (!y || !x_scale) abort();
        for (int r = 0; r < rows * parts; r++) x_scale[r] = 1 + draw(9);
        memset(y, 0x55, (size_t)rows * stride * sizeof(float));
        int middle = draw(layer.panels + 1); /* as two threads would share them */
        multiply_panels(&layer, 0, middle, x, x_scale, rows, parts, y, stride, relu);
        multiply_panels(&layer, middle, layer.panels, x, x_scale, rows, parts, y + middle * PANEL, stride, relu);
        for (int r = 0; r < rows; r++)
            for (int n = 0; n < stride; n++) {
                float expected, got = y[(size_t)r * stride + n], magnitude = 0;
                memset(&expected, 0x55, sizeof(float));
                if (n < width_out) {
                    expected = layer.bias[n];
                    for (int i = r * parts; i < (r + 1) * parts; i++) {
                        int32_t sum = 0;
                        for (int k = 0; k < width_in; k++) {
                            Integer q = x[(size_t)i * layer.padded_in + k];
                            sum += (ZERO_POINT ? (uint8_t)q - ZERO_POINT : q) * weight_at(&layer, n, k);
                        }
                        expected = fmaf(sum, x_scale[i] * layer.scale[n], expected);
                        magnitude = fmaxf(magnitude, fabsf(expected)); /* the second part may cancel the first */
                    }
                    if (relu && expected < 0) expected = 0;
                }
                float tolerance = n < width_out ? 1e-6f * magnitude + 1e-6f : 0;
                if (!(fabsf(got - expected) <= tolerance)) {
                    printf("WRONG: rows %d, %d -> %d, row %d, channel %d: %f instead of %f\n", rows, width_in, width_out, r, n,
                           got, expected);
                    exit(1);
                }
            }
        free(x), free(y), free(x_scale), free_layer(&layer);
    }
    printf("exact in %d random products\n", count);
}

/* One thread's product, repeated over `copies` of the layer, which together exceed the caches. */
typedef struct { const Linear *layers; int copies, rows, repeats; const Integer *x; const float *x_scale; float *y; } Repeat;

static void run_products(Worker worker, void *arguments) {
    const Repeat *call = arguments;
    for (int i = 0; i < call->repeats; i++) {
        const Linear *layer = &call->layers[i % call->copies];
        int first, last;
        split_work(worker, layer->panels, &first, &last);
        multiply_panels(layer, first, last, call->x, call->x_scale, call->rows, 1, call->y + first * PANEL, layer->width_out,
                        0);
        barrier(worker);
    }
}

static double best_of(int threads, Task *task, void *call) {
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double start = now(threads);
        run_parallel(threads, task, call);
        double seconds = now(threads) - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

/* The peak: one block of sums over and over, weights and activations in the first-level cache. */
typedef struct { Linear layer; Integer *x; int rows, repeats; } Peak;

static void run_peak(Worker worker, void *arguments) {
    const Peak *call = arguments;
    float y[BLOCK_ROWS][MOST_PANELS * PANEL];
    const float *scale = call->layer.scale; /* any numbers serve as scales of the rows */
    Outputs outputs = {scale, scale, call->layer.bias, 0, -INFINITY, y[0], MOST_PANELS * PANEL};
    Rows x = {call->x, NULL, 0};
    int K = call->layer.padded_in;
    Panels panels = {call->layer.weight, call->layer.start, K, 0, call->layer.weight, 0};
    (void)worker;
#ifdef TILES
    if (call->rows > BLOCK_ROWS) {
        int32_t sums[2 * TILE_ROWS][MOST_PANELS * PANEL];
        configure_tiles();
        for (int i = 0; i < call->repeats; i++) {
            Panels same = panels;
            dot_tiles(0, 2, 2, call->x, K, &same, sums);
        }
        _tile_release();
        __asm__ volatile("" ::"r"(sums) : "memory");
    } else
#endif
    for (int i = 0; i < call->repeats; i++) {
        dot_block(0, BLOCK_ROWS, BLOCK_PANELS, x, panels, outputs);
        __asm__ volatile("" ::"r"(y) : "memory"); /* the next round is not the same to the compiler */
    }
}

static double measure_peak(int threads, int tiles) {
    Peak call = {make_layer(tiles ? 256 : 1024, 32), NULL, tiles ? 2 * TILE_ROWS : BLOCK_ROWS, 0};
    call.x = make_rows(&call.layer, 2 * TILE_ROWS, 0);
    double work = 2.0 * call.rows * (tiles ? 2 : BLOCK_PANELS) * PANEL * call.layer.padded_in;
    call.repeats = (int)((tiles ? 2e11 : 2e10) / work);
    double rate = work * call.repeats * threads / best_of(threads, run_peak, &call);
    free(call.x), free_layer(&call.layer);
    return rate;
}

/* The bandwidth of reading memory once. */
typedef struct { const int8_t *memory; size_t size; int64_t total[MAX_THREADS]; } Reading;

static void run_reading(Worker worker, void *arguments) {
    Reading *call = arguments;
    const int64_t *numbers = (const int64_t *)call->memory;
    int first, last;
    split_work(worker, (int)(call->size / 64), &first, &last);
    int64_t total[8] = {0};
    for (size_t i = first; i < (size_t)last; i++) {
        __builtin_prefetch(numbers + 8 * i + 256); /* as the products do */
        for (int j = 0; j < 8; j++) total[j] += numbers[8 * i + j];
    }
    for (int j = 0; j < 8; j++) call->total[worker.id] += total[j];
}

static double measure_bandwidth(int threads) {
    static Reading call;
    int8_t *memory = aligned_alloc(64, 4 * (size_t)MEMORY);
    if (!memory) abort();
    memset(memory, 1, 4 * (size_t)MEMORY);
    call.memory = memory, call.size = 4 * (size_t)MEMORY;
    double rate = call.size / best_of(threads, run_reading, &call);
    free(memory);
    return rate;
}

static void time_shape(int threads, int width_in, int width_out, int rows, double peak, double bandwidth) {
    size_t size = (size_t)width_in * width_out;
    int copies = (int)(MEMORY / size) + 1;
    Linear *layers = malloc(copies * sizeof(Linear));
    Linear pattern = make_layer(width_in, width_out);
    if (!layers) abort();
    for (int i = 0; i < copies; i++) {
        layers[i] = pattern;
        int8_t *weight = aligned_alloc(64, (size_t)pattern.panels * PANEL * pattern.padded_in);
        if (!weight) abort();
        memcpy(weight, pattern.weight, (size_t)pattern.panels * PANEL * pattern.padded_in);
        layers[i].weight = weight;
    }
    Integer *x = make_rows(&pattern, rows, 0);
    float *y = malloc((size_t)rows * width_out * sizeof(float)), *x_scale = malloc(rows * sizeof(float));
    if (!y || !x_scale) abort();
    for (int r = 0; r < rows; r++) x_scale[r] = 1;
    int repeats = (int)(5e9 / (2.0 * size * (rows + 4))) + 1;
    Repeat call = {layers, copies, rows, repeats, x, x_scale, y};
    double seconds = best_of(threads, run_products, &call) / repeats, rate = 2.0 * size * rows / seconds;
    printf("  %5d -> %5d, %3d rows: %8.1f us, %7.1f GOP/s (%3.0f%% of the peak), weights at %5.1f GB/s (%3.0f%% of the bandwidth)\n",
           width_in, width_out, rows, seconds * 1e6, rate * 1e-9, 100 * rate / peak, size / seconds * 1e-9,
           100 * size / seconds / bandwidth);
    for (int i = 0; i < copies; i++) free((void *)layers[i].weight);
    free(layers), free(x), free(y), free(x_scale), free_layer(&pattern);
}

int main(int count, char **arguments) {
    static const int shapes[][2] = {{512, 512}, {512, 2048}, {2048, 512}, {512, 32000}}, rows[] = {1, 4, 8, 16, 32, 128};
    int threads = count > 1 ? atoi(arguments[1]) : 1, tiles = tiles_allowed();
    printf("%s%s, %d thread(s)\n", INSTRUCTIONS, tiles ? " and AMX" : "", threads);
    if (count <= 2) check_products(300);
    if (!threads) return 0;
    double vectors = measure_peak(threads, 0), peak = tiles ? measure_peak(threads, 1) : vectors, bandwidth = measure_bandwidth(threads);
    printf("peak: %.0f GOP/s", vectors * 1e-9);
    if (tiles) printf(", with tiles %.0f GOP/s", peak * 1e-9);
    printf("; bandwidth: %.1f GB/s\n", bandwidth * 1e-9);
    for (int s = 0; s < 4 && count <= 2; s++)
        for (int r = 0; r < 6; r++) time_shape(threads, shapes[s][0], shapes[s][1], rows[r], peak, bandwidth);
}

/* Training on a CPU: what torch computes in several passes over memory, in one or two. Numbers in memory are float32 or,
 * with `half`, bfloat16; arithmetic is in float32. The work is divided into parts whose number does not depend on that of
 * threads, and sums over all rows are added up part by part, so results do not depend on it either.
 */

/* ---- threads ---- */

/* What the arguments of each kernel begin with. All of their fields have 8 bytes, so that Python packs them without a
 * copy of the structures (training.py).
 */
typedef struct { float *scratch; int64_t scratch_size, threads, parts; } Work; /* scratch: [threads][scratch_size] */
typedef void Part(const void *arguments, int part, float *scratch);
typedef struct { Part *part; const Work *work; atomic_int parts, threads; } Run;
typedef void Team(void (*)(void *), void *, unsigned, unsigned);

/* torch's threads, as GOMP_parallel starts them: others would compete with them for the cores. */
static Team *team;
void EXPORT(use_team)(Team *gomp_parallel) { team = gomp_parallel; }

static void run_parts(void *pointer) {
    Run *run = pointer;
    float *scratch = run->work->scratch + atomic_fetch_add(&run->threads, 1) * run->work->scratch_size;
    for (int i; (i = atomic_fetch_add(&run->parts, 1)) < run->work->parts;) run->part(run->work, i, scratch);
}

static void run_as_worker(Worker worker, void *run) { (void)worker, run_parts(run); }

static void run_kernel(Part *part, const Work *work) {
    Run run = {part, work, 0, 0};
    int threads = work->threads < work->parts ? work->threads : work->parts;
    if (threads <= 1) run_parts(&run);
    else if (team) team(run_parts, &run, threads, 0);
    else run_parallel(threads, run_as_worker, &run);
}

#define KERNEL(name) void EXPORT(name)(const Work *work) { run_kernel(name##_part, work); }

static void part_of(int64_t count, int part, int parts, int64_t *first, int64_t *last) {
    *first = count * part / parts, *last = count * (part + 1) / parts;
}

/* ---- numbers ---- */

/* Unlike `exponential`, NaNs stay NaNs, so that they reach the gradients. */
static inline float exponential_of(float x) { return x == x ? exponential(x) : x; }

/* ---- residual connections: dropout, sum and norm ---- */

typedef struct {
    Work work;
    int64_t rows, width, half, rms;
    double p, epsilon;
    const int64_t *seeds;
    const void *x, *sublayer, *bias, *gain, *shift; /* all but x may be NULL */
    void *sum, *y;                                  /* x + dropout(sublayer + bias), and its norm */
} Connection;

typedef struct {
    Work work;
    int64_t rows, width, half, rms;
    double p, epsilon;
    const int64_t *seeds;
    const void *sum, *gain;
    const void *dy, *dsum; /* gradients of the norm and of the sum */
    void *dx, *dsublayer;  /* gradients of x and of the sub-layer's output */
    float *partial;        /* [parts][3][width]: gradients of bias, gain and shift */
} ConnectionGradient;

/* The factor of an element: 0 with probability p, otherwise 1 / (1 - p), from a hash of its index (kernels/common.py). */
static inline float dropout_factor(uint32_t x, uint32_t seed, uint32_t seed2, int32_t threshold, float scale) {
    x ^= seed;
    x = (x ^ x >> 16) * 0x7feb352d ^ seed2;
    x = (x ^ x >> 15) * 0x846ca68b;
    x ^= x >> 16;
    return (int32_t)(x >> 8) >= threshold ? scale : 0;
}

/* x times the factors of the elements from index `start` on. */
static void drop(double p, const int64_t *seeds, size_t start, int n, const float *restrict x, float *restrict y) {
    uint32_t seed = p ? seeds[0] : 0, seed2 = p ? seeds[1] : 0;
    int32_t threshold = (int32_t)ceil(p * 0x1p24);
    float scale = 1 / (1 - p);
    for (int d = 0; d < n; d++)
        y[d] = x[d] * dropout_factor((uint32_t)start + d, seed, seed2, threshold, scale);
}

static void mean_and_scale(const float *z, int n, int rms, float epsilon, float *mean, float *scale) {
    *mean = rms ? 0 : sum_of(z, n) / n;
    *scale = 1 / sqrtf(sum_of_squares(z, n, *mean) / n + epsilon);
}

static void connect_part(const void *arguments, int part, float *scratch) {
    const Connection *c = arguments;
    int64_t first, last, D = c->width, half = c->half;
    float *restrict z_row = scratch, *restrict y = scratch + D, *added = scratch + 2 * D, mean, scale;
    const float *bias = c->bias ? read_row(c->bias, 0, D, half, scratch + 3 * D) : NULL;
    const float *gain = c->gain ? read_row(c->gain, 0, D, half, scratch + 4 * D) : NULL;
    const float *shift = c->shift ? read_row(c->shift, 0, D, half, scratch + 5 * D) : NULL;
    part_of(c->rows, part, c->work.parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        const float *restrict z = read_row(c->x, r * D, D, half, scratch + 6 * D);
        if (c->sublayer) {
            const float *sublayer = read_row(c->sublayer, r * D, D, half, added);
            if (bias)
                for (int d = 0; d < D; d++) y[d] = sublayer[d] + bias[d];
            drop(c->p, c->seeds, r * D, D, bias ? y : sublayer, z_row);
            for (int d = 0; d < D; d++) z_row[d] += z[d];
            write_row(c->sum, r * D, D, half, z_row);
            z = read_row(c->sum, r * D, D, half, z_row); /* rounded, as in the gradient */
        }
        if (!gain) continue;
        mean_and_scale(z, D, c->rms, c->epsilon, &mean, &scale);
        for (int d = 0; d < D; d++) y[d] = (z[d] - mean) * scale * gain[d];
        if (shift)
            for (int d = 0; d < D; d++) y[d] += shift[d];
        write_row(c->y, r * D, D, half, y);
    }
}

static void connect_gradient_part(const void *arguments, int part, float *scratch) {
    const ConnectionGradient *c = arguments;
    int64_t first, last, D = c->width, half = c->half;
    float *restrict dx = scratch, *restrict normed = scratch + D, *copy = scratch + 2 * D;
    float *restrict dbias = c->partial + 3 * D * part, *restrict dgain = dbias + D, *restrict dshift = dgain + D;
    const float *restrict gain = c->gain ? read_row(c->gain, 0, D, half, scratch + 4 * D) : NULL;
    memset(dbias, 0, 3 * D * sizeof(float));
    part_of(c->rows, part, c->work.parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        if (gain) {
            const float *restrict dy = read_row(c->dy, r * D, D, half, scratch + 3 * D);
            float mean, scale, along_shift = 0, along_scale = 0;
            const float *restrict z = read_row(c->sum, r * D, D, half, copy);
            mean_and_scale(z, D, c->rms, c->epsilon, &mean, &scale);
            _Pragma("GCC ivdep") for (int d = 0; d < D; d++) { /* too many arrays for checks that none overlap */
                normed[d] = (z[d] - mean) * scale;
                dx[d] = dy[d] * gain[d];
                dgain[d] += dy[d] * normed[d];
                dshift[d] += dy[d];
            }
            /* The norm does not change if z is scaled or, unless it is RMSNorm, shifted: these directions have no gradient. */
            for (int d = 0; d < D; d++) along_shift += dx[d], along_scale += dx[d] * normed[d];
            along_shift = c->rms ? 0 : along_shift / D, along_scale /= D;
            for (int d = 0; d < D; d++) dx[d] = (dx[d] - along_shift - normed[d] * along_scale) * scale;
        } else
            memset(dx, 0, D * sizeof(float));
        if (c->dsum) {
            const float *restrict row = read_row(c->dsum, r * D, D, half, copy);
            for (int d = 0; d < D; d++) dx[d] += row[d];
        }
        if (c->dx) write_row(c->dx, r * D, D, half, dx);
        if (!c->dsublayer) continue;
        drop(c->p, c->seeds, r * D, D, dx, normed);
        write_row(c->dsublayer, r * D, D, half, normed);
        for (int d = 0; d < D; d++) dbias[d] += normed[d];
    }
}

KERNEL(connect)
KERNEL(connect_gradient)

/* ---- linear layers: bias and max(0, x) after the product, and their gradients ---- */

typedef struct {
    Work work;
    int64_t rows, width, half;
    const void *bias;
    void *y;        /* the product, which becomes max(0, y + bias); for the gradient, the result, or NULL without max(0, x) */
    void *dy;       /* the gradient of y, which becomes that of the product */
    float *partial; /* [parts][width]: the gradient of the bias */
} Biased;

static void add_bias_relu_part(const void *arguments, int part, float *scratch) {
    const Biased *b = arguments;
    int64_t first, last, F = b->width;
    const float *bias = read_row(b->bias, 0, F, b->half, scratch);
    part_of(b->rows, part, b->work.parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        float *restrict y = (float *)read_row(b->y, r * F, F, b->half, scratch + F);
        for (int f = 0; f < F; f++) y[f] = y[f] + bias[f] < 0 ? 0 : y[f] + bias[f];
        if (b->half) write_row(b->y, r * F, F, 1, y);
    }
}

static void bias_gradient_part(const void *arguments, int part, float *scratch) {
    const Biased *b = arguments;
    int64_t first, last, F = b->width;
    float *restrict sums = b->partial + F * part;
    memset(sums, 0, F * sizeof(float));
    part_of(b->rows, part, b->work.parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        float *restrict dy = (float *)read_row(b->dy, r * F, F, b->half, scratch);
        if (b->y) {
            const float *restrict y = read_row(b->y, r * F, F, b->half, scratch + F);
            for (int f = 0; f < F; f++) dy[f] = y[f] > 0 ? dy[f] : 0;
            if (b->half) write_row(b->dy, r * F, F, 1, dy);
        }
        for (int f = 0; f < F; f++) sums[f] += dy[f];
    }
}

KERNEL(add_bias_relu)
KERNEL(bias_gradient)

/* ---- label-smoothed cross-entropy: the gradient of logits replaces them ---- */

typedef struct {
    Work work;
    int64_t rows, vocabulary, stride, half, pad;
    double smoothing;
    void *logits;
    const int64_t *labels;
    float *terms; /* [rows][2]: loss and negative log-likelihood */
} Loss;

static void smoothed_loss_part(const void *arguments, int part, float *scratch) {
    const Loss *l = arguments;
    int64_t first, last, V = l->vocabulary;
    part_of(l->rows, part, l->work.parts, &first, &last);
    for (int64_t r = first; r < last; r++) {
        const float *x = read_row(l->logits, r * l->stride, V, l->half, scratch);
        float *grad = l->half ? scratch : (float *)l->logits + r * l->stride, *terms = l->terms + 2 * r;
        int64_t label = l->labels[r];
        if (label == l->pad) {
            terms[0] = terms[1] = 0;
            memset(grad, 0, V * sizeof(float));
        } else {
            float max = largest_of(x, V, -INFINITY, 0), label_logit = x[label], total = 0, sum = 0;
            for (int v = 0; v < V; v++) {
                float e = exponential_of(x[v] - max);
                sum += x[v];
                total += e;
                grad[v] = e;
            }
            float normaliser = max + logf(total), smoothing = l->smoothing, share = smoothing / V, scale = 1 / total;
            for (int v = 0; v < V; v++) grad[v] = grad[v] * scale - share;
            grad[label] -= 1 - smoothing;
            terms[1] = normaliser - label_logit;
            terms[0] = (1 - smoothing) * terms[1] + smoothing * (normaliser - sum / V);
        }
        if (l->half) write_row(l->logits, r * l->stride, V, 1, grad);
    }
}

KERNEL(smoothed_loss)

/* ---- attention of packed segments ---- */

typedef struct { void *x; int64_t row; } Heads; /* the numbers of a head are adjacent; those of tokens are a row apart */
typedef struct {
    Work work;
    int64_t heads, d_k, d_v, causal, half;
    const int32_t *q_offsets, *k_offsets;
    Heads q, k, v, o, dq, dk, dv; /* for the gradient, o is that of the output */
} Attention;

/* Copy a head's vectors of `count` tokens, times `scale`; rows are filled up with zeros. */
static void gather(const Attention *a, Heads from, int64_t first, int count, int head, int d, float scale, float *to,
                   int to_row) {
    for (int t = 0; t < count; t++, to += to_row) {
        const float *x = read_row(from.x, (first + t) * from.row + head * d, d, a->half, to);
        for (int i = 0; i < d; i++) to[i] = x[i] * scale;
        memset(to + d, 0, (to_row - d) * sizeof(float));
    }
}

static void scatter(const Attention *a, Heads to, int64_t first, int count, int head, int d, const float *x, int x_row) {
    for (int t = 0; t < count; t++) write_row(to.x, (first + t) * to.row + head * d, d, a->half, x + (size_t)t * x_row);
}

/* Replace a row of scores, of which the first `count` are allowed, by their softmax. */
static void softmax_of_row(float *restrict scores, int count, int width) {
    float max = largest_of(scores, count, -INFINITY, 0), total = 0;
    for (int s = 0; s < width; s++) scores[s] = exponential_of(scores[s] - max);
    memset(scores + count, 0, (width - count) * sizeof(float));
    for (int s = 0; s < width; s++) total += scores[s];
    total = 1 / total;
    for (int s = 0; s < width; s++) scores[s] *= total;
}

/* One head of one segment: of `part`, the head is the remainder. With dq, the gradient. */
static void attend_segments_part(const void *arguments, int part, float *scratch) {
    const Attention *a = arguments;
    int b = part / a->heads, h = part % a->heads, d_k = a->d_k, d_v = a->d_v, gradient = a->dq.x != NULL;
    int64_t q_first = a->q_offsets[b], k_first = a->k_offsets[b];
    int T = a->q_offsets[b + 1] - q_first, S = a->k_offsets[b + 1] - k_first;
    int K = padded_width(d_k), V = padded_width(d_v), W = padded_width(S) + LANES;
    float scale = 1 / sqrtf(d_k), *k = scratch, *v = k + (size_t)S * K, *k_columns = v + (size_t)S * V;
    float *v_columns = k_columns + (size_t)d_k * W, *weights = v_columns + (size_t)d_v * W;
    float *slopes = weights + (size_t)QUERIES * W, *q = slopes + (size_t)QUERIES * W, *o = q + QUERIES * K;
    float *dq = o + QUERIES * V, *dk = dq + QUERIES * K, *dv = dk + (size_t)S * K;
    gather(a, a->k, k_first, S, h, d_k, 1, k, K);
    gather(a, a->v, k_first, S, h, d_v, 1, v, V);
    transpose(S, d_k, k, K, k_columns, W);
    if (gradient) {
        transpose(S, d_v, v, V, v_columns, W);
        memset(dk, 0, (size_t)S * K * sizeof(float));
        memset(dv, 0, (size_t)S * V * sizeof(float));
    }
    for (int t = 0; t < T; t += QUERIES) {
        int rows = T - t < QUERIES ? T - t : QUERIES, last = a->causal && t + rows < S ? t + rows : S;
        int width = padded_width(last);
        gather(a, a->q, q_first + t, rows, h, d_k, scale, q, K);
        product(rows, width, d_k, q, K, 1, k_columns, W, weights, W, 0);
        for (int r = 0; r < rows; r++)
            softmax_of_row(weights + (size_t)r * W, a->causal && t + r + 1 < last ? t + r + 1 : last, width);
        if (!gradient) {
            product(rows, V, last, weights, W, 1, v, V, o, V, 0);
            scatter(a, a->o, q_first + t, rows, h, d_v, o, V);
            continue;
        }
        gather(a, a->o, q_first + t, rows, h, d_v, 1, o, V);
        product(rows, width, d_v, o, V, 1, v_columns, W, slopes, W, 0);
        product(last, V, rows, weights, 1, W, o, V, dv, V, 1);
        for (int r = 0; r < rows; r++) {
            float *restrict slope = slopes + (size_t)r * W, *restrict weight = weights + (size_t)r * W, mean = 0;
            for (int s = 0; s < width; s++) mean += weight[s] * slope[s];
            for (int s = 0; s < width; s++) slope[s] = weight[s] * (slope[s] - mean);
        }
        product(rows, K, last, slopes, W, 1, k, K, dq, K, 0);
        for (int i = 0; i < rows * K; i++) dq[i] *= scale;
        scatter(a, a->dq, q_first + t, rows, h, d_k, dq, K);
        product(last, K, rows, slopes, 1, W, q, K, dk, K, 1);
    }
    if (gradient) {
        scatter(a, a->dk, k_first, S, h, d_k, dk, K);
        scatter(a, a->dv, k_first, S, h, d_v, dv, V);
    }
}

KERNEL(attend_segments)

/* ---- Adam ---- */

typedef struct { float *weight, *mean, *square; const void *grad; void *copy; int64_t size; double decay; } Trained;
typedef struct {
    Work work;
    int64_t half;
    const Trained *trained;
    const int64_t *blocks; /* [parts][2]: a weight and the first of at most BLOCK of its elements */
    double *squares;       /* [parts]: sums of squared gradients */
    double beta1, beta2, epsilon, rate, uncorrected_rate, root_correction, scale;
} Adam;

enum { BLOCK = 1 << 14 };

static const Trained *block_of(const Adam *a, int part, int64_t *first, int *count) {
    const Trained *trained = a->trained + a->blocks[2 * part];
    *first = a->blocks[2 * part + 1];
    *count = trained->size - *first < BLOCK ? trained->size - *first : BLOCK;
    return trained;
}

static void sum_squares_part(const void *arguments, int part, float *scratch) {
    const Adam *a = arguments;
    int64_t first;
    int count;
    const Trained *trained = block_of(a, part, &first, &count);
    a->squares[part] = sum_of_squares(read_row(trained->grad, first, count, a->half, scratch), count, 0);
}

static void update_weights_part(const void *arguments, int part, float *scratch) {
    const Adam *a = arguments;
    int64_t first;
    int count;
    const Trained *trained = block_of(a, part, &first, &count);
    const float *restrict grad = read_row(trained->grad, first, count, a->half, scratch);
    float *restrict weight = trained->weight + first, *restrict mean = trained->mean + first;
    float *restrict square = trained->square + first, kept = 1 - a->uncorrected_rate * trained->decay, scale = a->scale;
    float share1 = 1 - a->beta1, beta2 = a->beta2, share2 = 1 - a->beta2, rate = a->rate;
    float root_correction = a->root_correction, epsilon = a->epsilon;
    for (int i = 0; i < count; i++) {
        float g = grad[i] * scale;
        mean[i] += share1 * (g - mean[i]);
        square[i] = beta2 * square[i] + share2 * g * g;
        weight[i] = weight[i] * kept - rate * mean[i] / (sqrtf(square[i]) * root_correction + epsilon);
    }
    if (a->half) write_row(trained->copy, first, count, 1, weight);
}

KERNEL(sum_squares)
KERNEL(update_weights)

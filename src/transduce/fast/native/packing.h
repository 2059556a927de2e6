/* When a model is loaded, its numbers are read, and its weights are quantised and arranged in panels, as int8.h needs them. */

static float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 1023, bits;
    if (!exponent) return (sign ? -1.0f : 1.0f) * (float)mantissa * 0x1p-24f;
    bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Number i of an array of this type, which may begin at any address. */
static float read_number(const char *numbers, Real type, size_t i) {
    uint16_t half;
    uint32_t bits;
    float single;
    double wide;
    switch (type) {
    case F64: return memcpy(&wide, numbers + i * 8, 8), (float)wide;
    case F16: return memcpy(&half, numbers + i * 2, 2), half_to_float(half);
    case BF16: memcpy(&half, numbers + i * 2, 2), bits = (uint32_t)half << 16; return memcpy(&single, &bits, 4), single;
    default: return memcpy(&single, numbers + i * 4, 4), single;
    }
}

/* Read numbers of a stored type as floats; returns whether all are finite. */
int EXPORT(read_floats)(const char *numbers, int type, size_t count, float *x) {
    int finite = 1;
    for (size_t i = 0; i < count; i++) {
        x[i] = read_number(numbers, type, i);
        finite &= isfinite(x[i]) != 0;
    }
    return finite;
}

/* The positional encodings of the paper, or those of Marian, whose sines are all before their cosines, from position `first`
 * on: in Python, `nn/positions.py`. Python's lock, which ThreadSanitizer does not see, keeps other threads from a table until it is filled.
 */
__attribute__((no_sanitize_thread))
void EXPORT(fill_positions)(int marian, int first, int length, int width, float *table) {
    int half = width / 2, steps = marian ? (half > 1 ? half - 1 : 1) : width;
    for (int i = 0; i < (width + 1) / 2; i++) {
        int sine = marian ? i : 2 * i, cosine = marian ? half + i : 2 * i + 1;
        double rate = exp(sine * (-log(10000.0) / steps));
        for (int t = 0; t < length; t++) {
            table[(size_t)t * width + sine] = (float)sin((t + first) * rate);
            if (i < half) table[(size_t)t * width + cosine] = (float)cos((t + first) * rate);
        }
    }
}

/* Arrange a quantised row as output channel n of its panel. If `chunked`, ZERO_POINT is added to the weights. */
static void pack_row(const int8_t *row, int n, int padded_in, int chunked, int8_t *packed, int32_t *start) {
    for (int k = 0; k < padded_in; k++) {
        packed[weight_index(n, k, padded_in)] = (int8_t)(row[k] + (chunked ? ZERO_POINT : 0));
        start[n] -= chunked ? 0 : ZERO_POINT * row[k];
    }
}

/* Quantise a row of weights, as `to_int8` in models/weight_tensors.py; returns its scale. Weights that are integers times
 * one number already, as in a model that another toolkit stored in 8 bits with one scale for a matrix, keep these
 * integers.
 */
static float quantise_weights(const float *x, int width, int padded, int8_t *q) {
    float largest = largest_of(x, width, 0, 1), inverse = largest > 0 ? 127 / largest : 0;
    for (int k = 0; k < width; k++) q[k] = (int8_t)rintf(x[k] * inverse);
    memset(q + width, 0, padded - width);
    for (int steps = 127; steps > 0 && largest > 0 && width >= FEWEST_ON_GRID; steps--) { /* in the largest weight */
        inverse = steps / largest;
        int k = 0;
        while (k < width && fabsf(x[k] * inverse - rintf(x[k] * inverse)) < 1e-4f) k++;
        if (k < width) continue;
        for (k = 0; k < width && steps < 127; k++) q[k] = (int8_t)rintf(x[k] * inverse);
        return largest / steps;
    }
    return largest / 127;
}

/* Quantise output channel n of `channels`, with a scale for each chunk if `chunked`. */
static void quantise_channel(const float *x, int n, int channels, int width, int padded, int chunked, int8_t *row,
                             float *scale) {
    int inputs = chunked ? CHUNK : padded, scales = (channels + PANEL - 1) / PANEL * PANEL;
    for (int k = 0; k < padded; k += inputs, scale += scales) {
        int rest = padded - k < inputs ? padded - k : inputs;
        scale[n] = quantise_weights(x + k, width - k < rest ? width - k : rest, rest, row + k);
    }
}

/* Quantise weights and arrange them in panels, with scales for chunks if `chunked`. `packed`, `scale` and `start` have room
 * for all panels and hold zeros; `row` is scratch space of padded_in numbers.
 */
void EXPORT(pack_weights)(const float *weight, int width_out, int width_in, int padded_in, int chunked, int8_t *row,
                          int8_t *packed, float *scale, int32_t *start) {
    for (int n = 0; n < width_out; n++) {
        quantise_channel(weight + (size_t)n * width_in, n, width_out, width_in, padded_in, chunked, row, scale);
        pack_row(row, n, padded_in, chunked, packed, start);
    }
}

/* `pack_weights` of a matrix that is stored as integers q and the largest magnitude of each row
 * (models/weight_tensors.py). Integers that `quantise_weights` would give are used as they are; a row that was not made so,
 * because it has no weight of the largest magnitude, is quantised again. `x` is scratch space of width_in numbers.
 */
void EXPORT(pack_int8_weights)(const int8_t *q, const float *largest, float *x, int width_out, int width_in,
                               int padded_in, int chunked, int8_t *row, int8_t *packed, float *scale, int32_t *start) {
    for (int n = 0; n < width_out; n++, q += width_in) {
        int magnitude = 0;
        for (int k = 0; k < width_in; k++) magnitude = abs(q[k]) > magnitude ? abs(q[k]) : magnitude;
        if (largest[n] > 0 && magnitude == 127 && !chunked) {
            scale[n] = largest[n] / 127;
            memcpy(row, q, width_in);
            memset(row + width_in, 0, padded_in - width_in);
        } else {
            for (int k = 0; k < width_in; k++) x[k] = (float)(q[k] * ((double)largest[n] / 127));
            quantise_channel(x, n, width_out, width_in, padded_in, chunked, row, scale);
        }
        pack_row(row, n, padded_in, chunked, packed, start);
    }
}

/* The weights x [width_out][width_in] that the integers of a layer stand for. */
void EXPORT(unpack_weights)(const Linear *layer, float *x) {
    for (int n = 0; n < layer->width_out; n++)
        for (int k = 0; k < layer->width_in; k++) *x++ = weight_at(layer, n, k) * layer->scale[n];
}

/* Matrix products of 8-bit integers.
 *
 * Weights have one scale for each output channel, activations one for each row, computed from the row. Both are in
 * -127..127. A panel holds PANEL output channels, interleaved in groups of four inputs as the dot-product instructions
 * expect them: panel[k / 4][channel][k % 4].
 */
#include <math.h>
#include <string.h>

#include "structs.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

enum { ROWS = 4 }; /* rows that share one pass over a panel */

/* Dot products of `rows` rows with the channels of one panel. The compiler unrolls the loops over rows and channels. */
static inline __attribute__((always_inline)) void dot_panel(const int8_t *x, int stride, const int rows, const int8_t *panel,
                                                            int padded_in, const int32_t *sum, int32_t out[ROWS][PANEL]) {
#if defined(__ARM_FEATURE_DOTPROD)
    (void)sum;
    int32x4_t acc[ROWS][4];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 4; c++) acc[r][c] = vdupq_n_s32(0);
    for (int k = 0; k < padded_in; k += 16, panel += 16 * PANEL) {
        int8x16_t row[ROWS];
        for (int r = 0; r < rows; r++) row[r] = vld1q_s8(x + r * stride + k);
#define FOUR_INPUTS(lane)                                                                                 \
    for (int c = 0; c < 4; c++) {                                                                         \
        int8x16_t w = vld1q_s8(panel + lane * 4 * PANEL + c * 16);                                        \
        for (int r = 0; r < rows; r++) acc[r][c] = vdotq_laneq_s32(acc[r][c], w, row[r], lane);           \
    }
        FOUR_INPUTS(0)
        FOUR_INPUTS(1)
        FOUR_INPUTS(2)
        FOUR_INPUTS(3)
#undef FOUR_INPUTS
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 4; c++) vst1q_s32(&out[r][c * 4], acc[r][c]);
#elif defined(__AVX512VNNI__)
    /* One operand of the instruction is unsigned: it gets x + 128, and 128 times the sum of the weights is subtracted. */
    __m512i acc[ROWS], flip = _mm512_set1_epi8((char)0x80);
    __m512i start = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(sum)), 7);
    for (int r = 0; r < rows; r++) acc[r] = start;
    for (int k = 0; k < padded_in; k += 4, panel += 4 * PANEL) {
        __m512i w = _mm512_loadu_si512(panel);
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * stride + k, 4);
            acc[r] = _mm512_dpbusd_epi32(acc[r], _mm512_xor_si512(_mm512_set1_epi32(four), flip), w);
        }
    }
    for (int r = 0; r < rows; r++) _mm512_storeu_si512(out[r], acc[r]);
#elif defined(__AVX2__)
    (void)sum;
    __m256i acc[ROWS][2], ones = _mm256_set1_epi16(1);
    for (int r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (int k = 0; k < padded_in; k += 4, panel += 4 * PANEL)
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * stride + k, 4);
            __m256i row = _mm256_set1_epi32(four), size = _mm256_abs_epi8(row);
            for (int c = 0; c < 2; c++) { /* |x| times w with the sign of x: the sum of two products is below 2^15 */
                __m256i w = _mm256_sign_epi8(_mm256_loadu_si256((const __m256i *)(panel + c * 32)), row);
                acc[r][c] = _mm256_add_epi32(acc[r][c], _mm256_madd_epi16(_mm256_maddubs_epi16(size, w), ones));
            }
        }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 2; c++) _mm256_storeu_si256((__m256i *)&out[r][c * 8], acc[r][c]);
#else
    (void)sum;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < PANEL; c++) {
            int32_t total = 0;
            for (int k = 0; k < padded_in; k++) total += x[r * stride + k] * panel[(k / 4 * PANEL + c) * 4 + k % 4];
            out[r][c] = total;
        }
#endif
}

/* x W^T + b of all rows for the panels `first` up to `last` (excluded); `y` points to the first panel's output in row 0. */
static void multiply_panels(const Linear *linear, int first, int last, const int8_t *x, const float *x_scale, int rows,
                            float *y, int y_stride, int relu) {
    int32_t sums[ROWS][PANEL];
    for (int p = first; p < last; p++, y += PANEL) {
        const int8_t *panel = linear->weight + (size_t)p * PANEL * linear->padded_in;
        const float *scale = linear->scale + p * PANEL, *bias = linear->bias + p * PANEL;
        const int32_t *sum = linear->sum + p * PANEL;
        int width = linear->width_out - p * PANEL < PANEL ? linear->width_out - p * PANEL : PANEL;
        for (int r = 0; r < rows; r += ROWS) {
            int count = rows - r < ROWS ? rows - r : ROWS, stride = linear->padded_in;
            const int8_t *block = x + (size_t)r * stride;
            if (count == 4) dot_panel(block, stride, 4, panel, stride, sum, sums);
            else if (count == 3) dot_panel(block, stride, 3, panel, stride, sum, sums);
            else if (count == 2) dot_panel(block, stride, 2, panel, stride, sum, sums);
            else dot_panel(block, stride, 1, panel, stride, sum, sums);
            for (int i = 0; i < count; i++) {
                float values[PANEL];
                for (int c = 0; c < PANEL; c++) {
                    float value = sums[i][c] * (x_scale[r + i] * scale[c]) + bias[c];
                    values[c] = relu && value < 0 ? 0 : value;
                }
                memcpy(y + (size_t)(r + i) * y_stride, values, width * sizeof(float));
            }
        }
    }
}

/* The quantised weight of input k and output channel n. */
static inline int8_t weight_at(const Linear *linear, int n, int k) {
    return linear->weight[(size_t)(n / PANEL) * PANEL * linear->padded_in + (k / 4 * PANEL + n % PANEL) * 4 + k % 4];
}

/* Quantise one row and pad it with zeros; returns its scale: x is about q * scale. */
static float quantise_row(const float *x, int width, int padded, int8_t *q) {
    float largest = 0;
    for (int k = 0; k < width; k++) largest = fmaxf(largest, fabsf(x[k]));
    float inverse = largest > 0 ? 127 / largest : 0;
    for (int k = 0; k < width; k++) q[k] = (int8_t)rintf(x[k] * inverse);
    memset(q + width, 0, padded - width);
    return largest / 127;
}

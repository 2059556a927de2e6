/* What the products of int8.h need from an instruction set.
 *
 * Integer       a quantised activation
 * Vector        sums of CHANNELS output channels, 32 bits each; a panel has VECTORS of them
 * ZERO_POINT    what is added to activations: some instructions take unsigned activations and signed weights
 * BLOCK_ROWS    rows of the largest block whose sums stay in registers: BLOCK_ROWS * VECTORS * BLOCK_PANELS vectors
 * WIDE_PANELS   panels of a block of at most NARROW_ROWS rows
 * ROW(x)        16 activations of a row
 * DOT(sum, w, row, lane)  adds the products of CHANNELS * 4 weights with four activations: 4 * lane, ..., 4 * lane + 3
 * DOT_TWO       the same for two lanes at once; if it is there, it is the faster one
 * DOT_CHUNK     as DOT, if ZERO_POINT is added to the weights rather than to the activations
 * SPLAT(n)      sums that are all n
 * TIMES_128(v)  the products of sums and 128
 * LARGER(a, b)  the larger floats of two vectors, and those of b beside NaNs, if there is an instruction for it
 */
#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

#if defined(__ARM_FEATURE_DOTPROD)
#define INSTRUCTIONS "aarch64 dot product"
enum { CHANNELS = 4, ZERO_POINT = 0, BLOCK_ROWS = 4, BLOCK_PANELS = 1, NARROW_ROWS = 2, WIDE_PANELS = 2 };
typedef int32x4_t Vector;
typedef int8x16_t Weights;
typedef int8x16_t Row16;
#define LOAD(p) vld1q_s32(p)
#define STORE(p, v) vst1q_s32(p, v)
#define WEIGHTS(p) vld1q_s8(p)
#define ROW(p) vld1q_s8(p)
/* Not vdotq_laneq_s32: with that, gcc copies sums between registers in the inner loop. */
#define DOT(sum, w, row, lane)                                                                                   \
    ({                                                                                                           \
        int32x4_t result = sum;                                                                                  \
        __asm__("sdot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(result) : "w"(w), "w"(row));                       \
        result;                                                                                                  \
    })
#define SPLAT(n) vdupq_n_s32(n)
#define TIMES_128(v) vshlq_n_s32(v, 7)

#elif defined(__AVX512BW__)
enum { CHANNELS = 16 };
typedef __m512i Vector;
typedef __m512i Weights;
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define SPLAT(n) _mm512_set1_epi32(n)
#define TIMES_128(v) _mm512_slli_epi32(v, 7)
#define LARGER(a, b) _mm512_max_ps((__m512)(a), (__m512)(b))
#define WIDE(p) _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p)))
#if defined(__AVX512VNNI__)
#define INSTRUCTIONS "AVX-512 VNNI"
enum { ZERO_POINT = 128, BLOCK_ROWS = 8, BLOCK_PANELS = 2, NARROW_ROWS = 4, WIDE_PANELS = 4 };
#define DOT(sum, w, row, lane) dot_bytes(sum, _mm512_set1_epi32(four_inputs(row, lane)), w)
#define DOT_CHUNK(sum, w, row, lane) dot_bytes(sum, w, _mm512_set1_epi32(four_inputs(row, lane)))
static inline __attribute__((always_inline)) __m512i dot_bytes(__m512i sum, __m512i positive, __m512i any) {
    /* With the intrinsic, gcc copies sums between registers in the inner loop. */
    __asm__("vpdpbusd %1, %2, %0" : "+v"(sum) : "v"(any), "v"(positive));
    return sum;
}
#else
#define INSTRUCTIONS "AVX-512"
#define SIXTEEN_BITS
enum { ZERO_POINT = 0, BLOCK_ROWS = 8, BLOCK_PANELS = 2, NARROW_ROWS = 1, WIDE_PANELS = 2 };
typedef int16_t Integer;
/* The even bytes of weights are multiplied by two activations, the odd ones by the next two. */
#define DOT(sum, w, row, lane) dot_pairs(dot_pairs(sum, even_bytes(w), (row) + 4 * (lane)), odd_bytes(w), (row) + 4 * (lane) + 2)
static inline __m512i even_bytes(__m512i w) { return _mm512_srai_epi16(_mm512_slli_epi16(w, 8), 8); }
static inline __m512i odd_bytes(__m512i w) { return _mm512_srai_epi16(w, 8); }
static inline __attribute__((always_inline)) __m512i dot_pairs(__m512i sum, __m512i w, const int16_t *x) {
    __m512i products; /* with intrinsics, gcc keeps activations in registers and sums in memory */
    __asm__("vpbroadcastd %3, %1\n\tvpmaddwd %2, %1, %1\n\tvpaddd %1, %0, %0"
            : "+v"(sum), "=&v"(products) : "v"(w), "m"(*(const int16_t(*)[2])x));
    return sum;
}
#endif

#elif defined(__AVX2__)
typedef __m256i Vector;
typedef __m256i Weights;
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define SPLAT(n) _mm256_set1_epi32(n)
#define TIMES_128(v) _mm256_slli_epi32(v, 7)
#define LARGER(a, b) _mm256_max_ps((__m256)(a), (__m256)(b))
#define WIDE(p) _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p)))
#if defined(__AVXVNNI__)
#define INSTRUCTIONS "AVX VNNI"
enum { CHANNELS = 8, ZERO_POINT = 128, BLOCK_ROWS = 4, BLOCK_PANELS = 1, NARROW_ROWS = 2, WIDE_PANELS = 2 };
#define DOT(sum, w, row, lane) _mm256_dpbusd_avx_epi32(sum, _mm256_set1_epi32(four_inputs(row, lane)), w)
#define DOT_CHUNK(sum, w, row, lane) _mm256_dpbusd_avx_epi32(sum, w, _mm256_set1_epi32(four_inputs(row, lane)))
#else
#define INSTRUCTIONS "AVX2"
enum { CHANNELS = 8, ZERO_POINT = 0, BLOCK_ROWS = 4, BLOCK_PANELS = 1, NARROW_ROWS = 1, WIDE_PANELS = 2 };
#define DOT(sum, w, row, lane) dot_avx2(sum, w, _mm256_set1_epi32(four_inputs(row, lane)))
/* |x| times w with the sign of x: the sum of two products is below 2^15, so the 16-bit sums do not saturate. */
static inline __m256i dot_avx2(__m256i sum, __m256i w, __m256i x) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif

#elif defined(__wasm_relaxed_simd__)
/* The instruction takes signed weights; whether it takes activations as signed or as unsigned depends on the processor, and
 * so it is compiled for both (wasm.py). With the fitting one, sums are exact.
 */
#ifdef UNSIGNED_ACTIVATIONS
#define INSTRUCTIONS "WebAssembly dot product (unsigned)"
enum { ZERO_POINT = 128 };
#else
#define INSTRUCTIONS "WebAssembly dot product (signed)"
enum { ZERO_POINT = 0 };
#endif
enum { CHANNELS = 4, BLOCK_ROWS = 4, BLOCK_PANELS = 1, NARROW_ROWS = 2, WIDE_PANELS = 2 };
typedef v128_t Vector;
typedef v128_t Weights;
#define LOAD(p) wasm_v128_load(p)
#define STORE(p, v) wasm_v128_store(p, v)
#define WEIGHTS(p) wasm_v128_load(p)
#define DOT(sum, w, row, lane) wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w, wasm_v128_load32_splat((row) + 4 * (lane)), sum)
#define DOT_CHUNK(sum, w, row, lane) wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_v128_load32_splat((row) + 4 * (lane)), w, sum)
#define SPLAT(n) wasm_i32x4_splat(n)
#define TIMES_128(v) wasm_i32x4_shl(v, 7)

#elif defined(__wasm_simd128__)
#define INSTRUCTIONS "WebAssembly SIMD"
enum { CHANNELS = 4, ZERO_POINT = 0, BLOCK_ROWS = 2, BLOCK_PANELS = 1, NARROW_ROWS = 1, WIDE_PANELS = 2 };
typedef struct { v128_t low, high; } Vector; /* two sums for each channel */
typedef v128_t Weights;
#define LOAD(p) load_sums(p)
#define STORE(p, v) store_sums(p, v)
#define WEIGHTS(p) wasm_v128_load(p)
#define SPLAT(n) load_sums((const int32_t[]){n, n, n, n})
#define TIMES_128(v) ((Vector){wasm_i32x4_shl((v).low, 7), wasm_i32x4_shl((v).high, 7)})
#define DOT(sum, w, row, lane) \
    dot_wasm(sum, w, w, wasm_v128_load32_splat((row) + 4 * (lane)), wasm_i32x4_const_splat(0))
#define DOT_TWO(sum, w, next, row, lane) \
    dot_wasm(sum, w, next, wasm_v128_load32_splat((row) + 4 * (lane)), wasm_v128_load32_splat((row) + 4 * (lane) + 4))
static inline Vector load_sums(const int32_t *p) {
    v128_t sums = wasm_v128_load(p), zero = wasm_i32x4_const_splat(0);
    return (Vector){wasm_i32x4_shuffle(sums, zero, 0, 4, 1, 4), wasm_i32x4_shuffle(sums, zero, 2, 4, 3, 4)};
}
static inline void store_sums(int32_t *p, Vector v) {
    wasm_v128_store(p, wasm_i32x4_add(wasm_i32x4_shuffle(v.low, v.high, 0, 2, 4, 6), wasm_i32x4_shuffle(v.low, v.high, 1, 3, 5, 7)));
}
/* The sum of two products is below 2^15, so the 16-bit sums do not overflow. */
static inline Vector dot_wasm(Vector sum, v128_t w, v128_t next, v128_t x, v128_t next_x) {
    v128_t low = wasm_i16x8_add(wasm_i16x8_extmul_low_i8x16(w, x), wasm_i16x8_extmul_low_i8x16(next, next_x));
    v128_t high = wasm_i16x8_add(wasm_i16x8_extmul_high_i8x16(w, x), wasm_i16x8_extmul_high_i8x16(next, next_x));
    return (Vector){wasm_i32x4_add(sum.low, wasm_i32x4_extadd_pairwise_i16x8(low)),
                    wasm_i32x4_add(sum.high, wasm_i32x4_extadd_pairwise_i16x8(high))};
}

#else
#define INSTRUCTIONS "portable C"
enum { CHANNELS = 1, ZERO_POINT = 0, BLOCK_ROWS = 1, BLOCK_PANELS = 1, NARROW_ROWS = 1, WIDE_PANELS = 1 };
typedef int32_t Vector;
typedef const int8_t *Weights;
#define LOAD(p) (*(p))
#define STORE(p, v) (*(p) = (v))
#define WEIGHTS(p) (p)
#define SPLAT(n) (n)
#define TIMES_128(v) ((v) * 128)
#define DOT(sum, w, row, lane) dot_portable(sum, w, (row) + 4 * (lane))
static inline int32_t dot_portable(int32_t sum, const int8_t *w, const int8_t *x) {
    return sum + w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3];
}
#endif

#ifndef SIXTEEN_BITS
typedef int8_t Integer;
#endif

#ifndef ROW
typedef const Integer *Row16;
#define ROW(p) (p)
#endif
#ifndef WEIGHTS
#define WEIGHTS(p) LOAD(p)
#endif
#ifndef DOT_CHUNK
#define DOT_CHUNK DOT
#endif

/* Where input k of a channel is among four adjacent bytes of its panel. */
static inline int place_of(int k) {
#ifdef SIXTEEN_BITS
    return k % 2 * 2 + k % 4 / 2;
#else
    return k % 4;
#endif
}

enum { VECTORS = PANEL / CHANNELS, MOST_PANELS = WIDE_PANELS > BLOCK_PANELS ? WIDE_PANELS : BLOCK_PANELS,
       SUM_ROWS = BLOCK_ROWS > 2 * TILE_ROWS ? BLOCK_ROWS : 2 * TILE_ROWS };

/* Four activations as one number, which an instruction copies into all lanes. */
static inline int32_t four_inputs(const Integer *row, int lane) {
    int32_t four;
    memcpy(&four, row + 4 * lane, 4);
    return four;
}

#if defined(__AVX512VNNI__) && defined(__AMX_INT8__)
/* AMX: a tile has 16 rows of 64 bytes. The operating system must give a process permission to use tiles. */
#include <sys/syscall.h>
#include <unistd.h>
#define TILES
enum { TILES_FROM = 8 }; /* rows from which tiles are faster than vectors */

static int tiles_allowed(void) {
    static int allowed = -1; /* every thread computes the same value */
    int known = __atomic_load_n(&allowed, __ATOMIC_RELAXED);
    if (known < 0) {
        enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
        known = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
        __atomic_store_n(&allowed, known, __ATOMIC_RELAXED);
    }
    return known;
}
#endif

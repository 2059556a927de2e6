/* The x86 instructions of the native engine on any processor: vectors by SIMDe, and the tiles of AMX in C. */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32 simde_mm512_dpbusd_epi32
#define _mm256_dpbusd_avx_epi32 simde_mm256_dpbusd_epi32

/* The operating system permits the use of tiles. */
#define SYS_arch_prctl 0
#define syscall(...) 0

typedef struct { uint8_t palette, start, unused[14]; uint16_t bytes[16]; uint8_t rows[16]; } TileConfig;
static __thread TileConfig tile_config; /* palette 0: released */
static __thread uint8_t tiles[8][16][64];

static inline void _tile_loadconfig(const void *config) {
    memcpy(&tile_config, config, sizeof(tile_config));
    memset(tiles, 0, sizeof(tiles));
    if (sizeof(tile_config) != 64 || tile_config.palette != 1) abort();
}

static inline void _tile_release(void) { tile_config.palette = 0; }

static inline void _tile_loadd(int tile, const void *from, size_t stride) {
    if (!tile_config.palette) abort();
    memset(tiles[tile], 0, sizeof(tiles[tile]));
    for (int r = 0; r < tile_config.rows[tile]; r++)
        memcpy(tiles[tile][r], (const char *)from + r * stride, tile_config.bytes[tile]);
}

static inline void _tile_stored(int tile, void *to, size_t stride) {
    if (!tile_config.palette) abort();
    for (int r = 0; r < tile_config.rows[tile]; r++) memcpy((char *)to + r * stride, tiles[tile][r], tile_config.bytes[tile]);
}

/* Unsigned bytes of `left` times signed bytes of `right`, in groups of four. */
static inline void _tile_dpbusd(int sum, int left, int right) {
    if (!tile_config.palette) abort();
    for (int m = 0; m < tile_config.rows[sum]; m++)
        for (int n = 0; n < tile_config.bytes[sum] / 4; n++) {
            uint32_t total;
            memcpy(&total, &tiles[sum][m][4 * n], 4);
            for (int k = 0; k < tile_config.bytes[left]; k++)
                total += (uint32_t)(tiles[left][m][k] * (int8_t)tiles[right][k / 4][4 * n + k % 4]);
            memcpy(&tiles[sum][m][4 * n], &total, 4);
        }
}

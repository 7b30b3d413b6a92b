/* Dropout, and Adam's update, each in one pass over memory. winograd.py has this file compiled, too. */
#if defined(__AVX512F__) && __GNUC__ >= 8
#pragma GCC target("prefer-vector-width=512") /* for many processors gcc prefers 256 */
#endif
#include <math.h>
#include <stdint.h>

struct Numbers {
    long threads, count, limit; /* limit: of 65,536 values, those below are dropped */
};

#define SIDE_BY_SIDE 16       /* counters of a block */
#define BLOCK 8 * SIDE_BY_SIDE /* numbers that a block draws 16 bits for */
#define PARALLEL 16384        /* fewer numbers than these are left to one thread */

/* 128 bits for each of SIDE_BY_SIDE counters, by Philox4x32-7: https://doi.org/10.1145/2063384.2063405 */
static inline void draw(uint32_t first, const uint32_t *key, uint32_t words[4][SIDE_BY_SIDE]) {
    uint32_t left = key[0], right = key[1];
    for (int k = 0; k < SIDE_BY_SIDE; k++) words[0][k] = first + k, words[1][k] = words[2][k] = words[3][k] = 0;
    for (int turn = 0; turn < 7; turn++) {
        for (int k = 0; k < SIDE_BY_SIDE; k++) {
            uint64_t one = (uint64_t)0xD2511F53 * words[0][k], other = (uint64_t)0xCD9E8D57 * words[2][k];
            words[0][k] = (uint32_t)(other >> 32) ^ words[1][k] ^ left, words[1][k] = (uint32_t)other;
            words[2][k] = (uint32_t)(one >> 32) ^ words[3][k] ^ right, words[3][k] = (uint32_t)one;
        }
        left += 0x9E3779B9, right += 0xBB67AE85;
    }
}

/* given: x; a key of two 32-bit words; the factor of what is kept. found: x times that, or zeros. A key drops the
   same places, so this is the backward pass, too. */
int dropout(const struct Numbers *about, const float **given, float **found) {
    const float *x = given[0], factor = given[2][0];
    float *y = found[0];
    const int limit = about->limit;
#pragma omp parallel for num_threads(about->threads) if (about->count > PARALLEL)
    for (long block = 0; block < (about->count + BLOCK - 1) / (BLOCK); block++) {
        uint32_t words[4][SIDE_BY_SIDE];
        long from = block * BLOCK, many = about->count - from < BLOCK ? about->count - from : BLOCK;
        draw(block * SIDE_BY_SIDE, (const uint32_t *)given[1], words);
        const uint16_t *drawn = (const uint16_t *)words;
        for (long k = 0; k < many; k++) y[from + k] = drawn[k] < limit ? 0 : x[from + k] * factor;
    }
    return 0;
}

/* given: weights, first and second moments, the gradient; and the rate, b1, b2, epsilon. found: the new weights and
   moments. The rate includes the bias correction. */
int adam(const struct Numbers *about, const float **given, float **found) {
    const float *w = given[0], *m = given[1], *v = given[2], *g = given[3], *said = given[4];
    float rate = said[0], left = 1 - said[1], right = 1 - said[2], epsilon = said[3];
#pragma omp parallel for simd num_threads(about->threads) if (about->count > PARALLEL)
    for (long k = 0; k < about->count; k++) {
        float first = m[k] + (g[k] - m[k]) * left, second = v[k] + (g[k] * g[k] - v[k]) * right;
        found[0][k] = w[k] - rate * first / (sqrtf(second) + epsilon), found[1][k] = first, found[2][k] = second;
    }
    return 0;
}

/* Dropout on a CPU: each value is kept by 16 bits of Philox 4x32-10, which depend on the key and the value's place alone,
   so that the gradient is the same function. https://www.thesalmons.org/john/random123/papers/random123sc11.pdf.
   kernels.py describes the functions. */
#include <stdint.h>

#define SIDE 8     /* counters side by side */
#define BLOCK 64   /* values, each with half of a word: so many counters give 4 words of 32 bits each */
#define ROUNDS 10

typedef uint64_t words __attribute__((vector_size(8 * SIDE)));
typedef int32_t halves __attribute__((vector_size(8 * SIDE)));
typedef float floats __attribute__((vector_size(8 * SIDE), aligned(4)));

/* threshold: values whose 16 bits, from -2^15 on, are below it are dropped, all others multiplied by the factor. */
struct Drop {
    long threads, count, threshold;
    double factor;
};

/* Write what the 64 values of a block are multiplied by. */
static inline __attribute__((always_inline)) void draw(
    const struct Drop *s, const uint32_t *key, long block, float *found) {
    const words low = (words){0} + 0xffffffff;
    const words counters = (words){0, 1, 2, 3, 4, 5, 6, 7} + (uint64_t)block * SIDE;
    words a = counters & low, b = counters >> 32, c = {0}, d = {0};
    uint64_t one = key[0], other = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        words left = a * 0xD2511F53, right = c * 0xCD9E8D57;
        a = (right >> 32) ^ b ^ one, b = right & low;
        c = (left >> 32) ^ d ^ other, d = left & low;
        one = (one + 0x9E3779B9) & 0xffffffff, other = (other + 0xBB67AE85) & 0xffffffff;
    }
    const halves pairs[2] = {(halves)(a | b << 32), (halves)(c | d << 32)};
    const halves factor = (halves)((floats){0} + (float)s->factor);
    for (int k = 0; k < 4; k++) {
        halves drawn = k % 2 ? pairs[k / 2] << 16 >> 16 : pairs[k / 2] >> 16;
        *(floats *)(found + 2 * SIDE * k) = (floats)((drawn >= (int)s->threshold) & factor);
    }
}

/* given: numbers, and a key of 64 bits; found: as many numbers, each 0 or the given one times the factor. */
int dropped(const struct Drop *s, const float **given, float **found) {
#pragma omp parallel for num_threads(s->threads)
    for (long block = 0; block < (s->count + BLOCK - 1) / BLOCK; block++) {
        float factors[BLOCK] __attribute__((aligned(64)));
        const float *x = given[0] + block * BLOCK;
        float *y = found[0] + block * BLOCK;
        draw(s, (const uint32_t *)given[1], block, factors);
        if ((block + 1) * BLOCK <= s->count)
            for (int k = 0; k < BLOCK; k++) y[k] = x[k] * factors[k];
        else
            for (int k = 0; k < s->count - block * BLOCK; k++) y[k] = x[k] * factors[k];
    }
    return 0;
}

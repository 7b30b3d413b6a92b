/* A network's first convolution on a CPU, over three colours, with the max pool and the relu behind it, and the gradient of
   its filters: in one pass over the pictures each. One by one these read and write ten times the pool's output, and hardly
   compute anything. Windows are of 3 x 3 or 5 x 5 places, the pool's of 2 x 2 or 3 x 3, two places apart; those of the pool
   may end beyond the picture. kernels.py describes the functions. */
#include "convolution.h"

#define COLOURS 3
#define NUMBERS(s) ((s)->window * (s)->window * COLOURS) /* of a filter for one output */
#define SIDE_BY_SIDE 6 /* places of a row that are computed at once: enough sums that none is waited for */

struct First {
    long threads, pictures, height, width, outputs, above, left, output, row, column, input, window, pool, down, across;
};

/* The convolution's output. */
static inline long rows(const struct First *s) {
    return s->height + 2 * s->above - s->window + 1;
}

static inline long columns(const struct First *s) {
    return s->width + 2 * s->left - s->window + 1;
}

static inline long wide(const struct First *s) {
    return (s->width + 2 * s->left) * COLOURS;
}

static inline const float *number(const struct First *s, const float *filters, long k, long o) {
    long row = s->window * COLOURS;
    return filters + k / row * s->row + k % row / COLOURS * s->column + k % COLOURS * s->input + o * s->output;
}

/* Copy a picture into the middle of zeros. */
static void frame(const struct First *s, const float *picture, float *found) {
    for (long y = 0; y < s->height; y++)
        memcpy(found + (y + s->above) * wide(s) + s->left * COLOURS, picture + y * s->width * COLOURS,
               s->width * COLOURS * sizeof(float));
}

static float *framed(const struct First *s) {
    long count = (s->height + 2 * s->above) * wide(s);
    float *found = floats(count);
    if (found) memset(found, 0, count * sizeof(float));
    return found;
}

/* Write to found [columns, outputs] a row of the convolution, of the row of a framed picture at `from`. */
static void convolve_row(const struct First *s, const float *from, const float *filters, const float *biases, float *found) {
    for (long x = 0; x < columns(s); x += SIDE_BY_SIDE) {
        if (x > columns(s) - SIDE_BY_SIDE) x = columns(s) - SIDE_BY_SIDE; /* some are computed twice */
        for (long c = 0; c < s->outputs; c += 2 * LANES) {
            vector left[SIDE_BY_SIDE], right[SIDE_BY_SIDE];
            for (int k = 0; k < SIDE_BY_SIDE; k++) {
                left[k] = biases ? LOAD(biases + c) : (vector){0};
                right[k] = biases ? LOAD(biases + c + LANES) : (vector){0};
            }
            const float *filter = filters + c;
            for (long a = 0; a < s->window; a++)
                for (long b = 0; b < s->window * COLOURS; b++, filter += s->outputs) {
                    vector one = LOAD(filter), other = LOAD(filter + LANES);
#pragma GCC unroll 6
                    for (int k = 0; k < SIDE_BY_SIDE; k++) {
                        float seen = from[a * wide(s) + (x + k) * COLOURS + b];
                        left[k] += seen * one;
                        right[k] += seen * other;
                    }
                }
            for (int k = 0; k < SIDE_BY_SIDE; k++) {
                STORE(found + (x + k) * s->outputs + c, left[k]);
                STORE(found + (x + k) * s->outputs + c + LANES, right[k]);
            }
        }
    }
}

/* Write to found and choices [across, outputs] the pool over the rows of the convolution at `at`, NULL beyond it. */
static void pool_row(const struct First *s, const float **at, float *found, int *choices) {
    for (long p = 0; p < s->across; p++)
        for (long c = 0; c < s->outputs; c += LANES) {
            vector most = LOAD(at[0] + p * 2 * s->outputs + c);
            whole which = {0};
            for (long k = 1; k < s->pool * s->pool; k++) {
                long x = p * 2 + k % s->pool;
                if (at[k / s->pool] && x < columns(s))
                    larger(LOAD(at[k / s->pool] + x * s->outputs + c), k, &most, &which);
            }
            choose(most, which, found + p * s->outputs + c, choices + p * s->outputs + c);
        }
}

/* given: pictures, filters, biases or NULL; found: the pool's output, and its choices. */
int first_pooled(const struct First *s, const float **given, float **found) {
    float *filters = floats(NUMBERS(s) * s->outputs); /* [window, outputs] */
    int failed = !filters;
    for (long k = 0; k < NUMBERS(s) && !failed; k++)
        for (long o = 0; o < s->outputs; o++) filters[k * s->outputs + o] = *number(s, given[1], k, o);
#pragma omp parallel num_threads(s->threads) reduction(| : failed)
    {
        long length = columns(s) * s->outputs;
        float *picture = framed(s), *kept = floats(s->pool * length); /* the rows that a pool's row needs */
        failed |= !picture || !kept;
#pragma omp for schedule(dynamic)
        for (long p = 0; p < s->pictures; p++) {
            if (failed) continue;
            frame(s, given[0] + p * s->height * s->width * COLOURS, picture);
            for (long y = 0, done = 0; y < s->down; y++) {
                const float *at[3];
                for (; done < rows(s) && done < y * 2 + s->pool; done++)
                    convolve_row(s, picture + done * wide(s), filters, given[2], kept + done % s->pool * length);
                for (long k = 0; k < s->pool; k++)
                    at[k] = y * 2 + k < rows(s) ? kept + (y * 2 + k) % s->pool * length : NULL;
                long place = (p * s->down + y) * s->across * s->outputs;
                pool_row(s, at, found[0] + place, (int *)found[1] + place);
            }
        }
        free(picture);
        free(kept);
    }
    free(filters);
    return failed;
}

/* Write to found [rows, columns, outputs] the gradient of a picture's convolution, from that of its pool; add that to
   sums [outputs]. */
static void unpool_picture(const struct First *s, const float *gradient, const int *choices, float *found, float *sums) {
    memset(found, 0, rows(s) * columns(s) * s->outputs * sizeof(float));
    for (long place = 0; place < s->down * s->across; place++)
        for (long c = 0; c < s->outputs; c += LANES) {
            vector own = LOAD(gradient + place * s->outputs + c), sum = {0};
            whole which = *(const whole *)(choices + place * s->outputs + c);
            for (long k = 0; k < s->pool * s->pool; k++) {
                long y = place / s->across * 2 + k / s->pool, x = place % s->across * 2 + k % s->pool;
                if (y >= rows(s) || x >= columns(s)) continue;
                float *to = found + (y * columns(s) + x) * s->outputs + c;
                vector part = (vector)((which == (int)k) & (whole)own);
                STORE(to, LOAD(to) + part);
                sum += part;
            }
            STORE(sums + c, LOAD(sums + c) + sum);
        }
}

/* Add to sums [window, outputs] the products of a framed picture with the gradient of its convolution, of `length`
   numbers of the window at a time, which lie side by side, and two vectors: as many sums as registers hold. */
static inline __attribute__((always_inline)) void add_products(
    const struct First *s, const float *picture, const float *gradient, float *sums, const int length) {
    for (long c = 0; c < s->outputs; c += 2 * LANES)
        for (long k = 0; k < NUMBERS(s); k += length) {
            const float *seen = picture + k / (s->window * COLOURS) * wide(s) + k % (s->window * COLOURS);
            float *to = sums + k * s->outputs + c;
            vector left[5] = {{0}}, right[5] = {{0}};
            for (long y = 0; y < rows(s); y++)
                for (long x = 0; x < columns(s); x++) {
                    const float *from = gradient + (y * columns(s) + x) * s->outputs + c;
                    vector one = LOAD(from), other = LOAD(from + LANES);
#pragma GCC unroll 5
                    for (int b = 0; b < length; b++) {
                        float number = seen[y * wide(s) + x * COLOURS + b];
                        left[b] += number * one;
                        right[b] += number * other;
                    }
                }
#pragma GCC unroll 5
            for (int b = 0; b < length; b++, to += s->outputs) {
                STORE(to, LOAD(to) + left[b]);
                STORE(to + LANES, LOAD(to + LANES) + right[b]);
            }
        }
}

/* given: pictures, the gradient of the pool's output, its choices; found: the gradients of filters and of biases. */
int first_filter_gradient(const struct First *s, const float **given, float **found) {
    long numbers = NUMBERS(s), size = (numbers + 1) * s->outputs, pooled = s->down * s->across * s->outputs;
    long parts = s->threads < s->pictures ? s->threads : s->pictures; /* each with its sums, so always rounded alike */
    float *sums = floats(parts * size);
    int failed = !sums;
#pragma omp parallel for num_threads(s->threads) reduction(| : failed)
    for (long part = 0; part < parts; part++) {
        float *picture = framed(s), *gradient = floats(rows(s) * columns(s) * s->outputs), *own = sums + part * size;
        failed |= !picture || !gradient;
        if (!failed) memset(own, 0, size * sizeof(float));
        for (long p = part * s->pictures / parts; p < (part + 1) * s->pictures / parts && !failed; p++) {
            frame(s, given[0] + p * s->height * s->width * COLOURS, picture);
            unpool_picture(s, given[1] + p * pooled, (const int *)given[2] + p * pooled, gradient, own + numbers * s->outputs);
            if (s->window == 3)
                add_products(s, picture, gradient, own, 3);
            else
                add_products(s, picture, gradient, own, 5);
        }
        free(picture);
        free(gradient);
    }
    for (long k = 0; k <= numbers && !failed; k++)
        for (long o = 0; o < s->outputs; o++) {
            float sum = 0;
            for (long part = 0; part < parts; part++) sum += sums[part * size + k * s->outputs + o];
            *(k < numbers ? (float *)number(s, found[0], k, o) : found[1] + o) = sum;
        }
    free(sums);
    return failed;
}

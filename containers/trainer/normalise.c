/* Local response normalisation on a CPU, x / (bias + alpha * the sum of the squares of neighbouring channels) ** 0.75, in
   one pass over memory forward and one backward. kernels.py describes the functions. */
#include "convolution.h"

#define MOST 1024 /* channels */
#define EDGE 8    /* neighbours on either side at most */

struct Rows {
    long threads, rows, channels, radius;
    double bias, alpha;
};

/* Return the sums of a channel's neighbours, of numbers with EDGE zeros before and after them. */
static inline vector near(const struct Rows *s, const float *numbers, long c) {
    vector sum = LOAD(numbers + EDGE + c);
    for (long k = 1; k <= s->radius; k++) sum += LOAD(numbers + EDGE + c - k) + LOAD(numbers + EDGE + c + k);
    return sum;
}

static inline vector root(vector x) {
    for (int lane = 0; lane < LANES; lane++) x[lane] = __builtin_sqrtf(x[lane]);
    return x;
}

/* Return scale ** -0.75, of 1 / scale. */
static inline vector power(vector inverse) {
    vector square = root(inverse);
    return square * root(square);
}

/* given: x [rows, channels]; found: the same, normalised. */
int normalised(const struct Rows *s, const float **given, float **found) {
#pragma omp parallel num_threads(s->threads)
    {
        float squares[MOST + 2 * EDGE] = {0};
        float bias = s->bias, alpha = s->alpha;
#pragma omp for schedule(dynamic, 256)
        for (long row = 0; row < s->rows; row++) {
            const float *x = given[0] + row * s->channels;
            for (long c = 0; c < s->channels; c += LANES) STORE(squares + EDGE + c, LOAD(x + c) * LOAD(x + c));
            for (long c = 0; c < s->channels; c += LANES) {
                vector inverse = 1 / (bias + alpha * near(s, squares, c));
                STORE(found[0] + row * s->channels + c, LOAD(x + c) * power(inverse));
            }
        }
    }
    return 0;
}

/* given: x, and the gradient of what normalised() makes of it; found: the gradient of x. */
int normalised_gradient(const struct Rows *s, const float **given, float **found) {
#pragma omp parallel num_threads(s->threads)
    {
        float squares[MOST + 2 * EDGE] = {0}, pulls[MOST + 2 * EDGE] = {0}, own[MOST];
        float bias = s->bias, alpha = s->alpha;
#pragma omp for schedule(dynamic, 256)
        for (long row = 0; row < s->rows; row++) {
            const float *x = given[0] + row * s->channels, *gradient = given[1] + row * s->channels;
            for (long c = 0; c < s->channels; c += LANES) STORE(squares + EDGE + c, LOAD(x + c) * LOAD(x + c));
            for (long c = 0; c < s->channels; c += LANES) {
                vector inverse = 1 / (bias + alpha * near(s, squares, c)), pulled = LOAD(gradient + c) * power(inverse);
                STORE(own + c, pulled);
                STORE(pulls + EDGE + c, pulled * LOAD(x + c) * inverse);
            }
            for (long c = 0; c < s->channels; c += LANES)
                STORE(found[0] + row * s->channels + c,
                      LOAD(own + c) - 2 * 0.75f * alpha * LOAD(x + c) * near(s, pulls, c));
        }
    }
    return 0;
}

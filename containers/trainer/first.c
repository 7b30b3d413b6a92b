/* A network's first convolution on a CPU: 3 x 3 places of three colours, with the max pool of 2 x 2 and the relu behind it,
   and the gradient of its filters, all in one pass over the pictures: one by one they read and write ten times the
   pool's output, and hardly compute anything. winograd.py describes the functions. */
#include "convolution.h"

#define COLOURS 3
#define WINDOW 3
#define ROW (WINDOW * COLOURS)                    /* numbers of a window in one row of a picture */
#define PATCH ((WINDOW + 1) * COLOURS)            /* numbers in one row of what a tile follows from */
#define PLACE(k) ((k) / 2 * PATCH + (k) % 2 * COLOURS) /* where in a patch the window of a tile's place k begins */

/* Copy the 4 x 4 places from which a tile follows. */
static inline void patch(const struct Shape *s, const float *picture, long top, long left, float *found) {
    for (long y = top; y < top + WINDOW + 1; y++, found += PATCH) {
        const float *row = picture + (y * s->width + left) * COLOURS;
        if (y < 0 || y >= s->height)
            memset(found, 0, PATCH * sizeof(float));
        else if (left >= 0 && left + WINDOW < s->width)
            memcpy(found, row, PATCH * sizeof(float));
        else
            for (long k = 0; k < PATCH; k++) {
                long x = left + k / COLOURS;
                found[k] = x >= 0 && x < s->width ? row[k] : 0;
            }
    }
}

/* given: pictures, filters, biases or NULL; found: the pool's output, and its choices. */
int first_pooled(const struct Shape *s, const float **given, float **found) {
    struct Tiles t = tiles_of(s);
    const float *pictures = given[0], *filters = given[1], *biases = given[2];
    int *choices = (int *)found[1];
    float *laid = floats(WINDOW * ROW * s->outputs); /* [window, outputs] */
    if (!laid) return 1;
    for (long k = 0; k < WINDOW * ROW; k++)
        for (long o = 0; o < s->outputs; o++)
            laid[k * s->outputs + o] =
                filters[k / ROW * s->row + k % ROW / COLOURS * s->column + k % COLOURS * s->input + o * s->output];
#pragma omp parallel for num_threads(s->threads)
    for (long line = 0; line < s->pictures * t.down; line++)
        for (long tile = line * t.across; tile < (line + 1) * t.across; tile++) {
            float seen[(WINDOW + 1) * PATCH];
            patch(s, pictures + line / t.down * s->height * s->width * COLOURS, line % t.down * 2 - s->above,
                  tile % t.across * 2 - s->left, seen);
            for (long c = 0; c < s->outputs; c += 2 * LANES) {
                vector left[4], right[4];
                for (int k = 0; k < 4; k++) {
                    left[k] = biases ? LOAD(biases + c) : (vector){0};
                    right[k] = biases ? LOAD(biases + c + LANES) : (vector){0};
                }
#pragma GCC unroll 3
                for (int a = 0; a < WINDOW; a++)
                    for (int b = 0; b < ROW; b++) {
                        const float *from = laid + (a * ROW + b) * s->outputs + c;
                        vector one = LOAD(from), other = LOAD(from + LANES);
#pragma GCC unroll 4
                        for (int k = 0; k < 4; k++) {
                            float number = seen[PLACE(k) + a * PATCH + b];
                            left[k] += number * one;
                            right[k] += number * other;
                        }
                    }
                pool(left, found[0] + tile * s->outputs + c, choices + tile * s->outputs + c);
                pool(right, found[0] + tile * s->outputs + c + LANES, choices + tile * s->outputs + c + LANES);
            }
        }
    free(laid);
    return 0;
}

/* Add to sums [window, outputs] the products of a line of patches with the gradients of their places, and to the numbers
   after them, [outputs], these gradients. */
static void add_line(
    const struct Shape *s, long tiles, const float *patches, const float *gradient, const int *choices,
    float *sums) {
    for (long c = 0; c < s->outputs; c += LANES)
        for (int a = 0; a < WINDOW; a++) {
            vector own[ROW], bias = {0};
#pragma GCC unroll 9
            for (int b = 0; b < ROW; b++) own[b] = LOAD(sums + (a * ROW + b) * s->outputs + c);
            for (long tile = 0; tile < tiles; tile++) {
                const float *seen = patches + tile * (WINDOW + 1) * PATCH + a * PATCH;
                vector four[4];
                unpool(LOAD(gradient + tile * s->outputs + c), choices + tile * s->outputs + c, four);
                bias += (four[0] + four[1]) + (four[2] + four[3]);
#pragma GCC unroll 9
                for (int b = 0; b < ROW; b++)
#pragma GCC unroll 4
                    for (int k = 0; k < 4; k++) own[b] += seen[PLACE(k) + b] * four[k];
            }
#pragma GCC unroll 9
            for (int b = 0; b < ROW; b++) STORE(sums + (a * ROW + b) * s->outputs + c, own[b]);
            float *last = sums + WINDOW * ROW * s->outputs + c;
            if (a == 0) STORE(last, LOAD(last) + bias);
        }
}

/* given: pictures, the gradient of the pool's output, its choices; found: the gradients of filters and of biases. */
int first_filter_gradient(const struct Shape *s, const float **given, float **found) {
    struct Tiles t = tiles_of(s);
    long lines = s->pictures * t.down, size = (WINDOW * ROW + 1) * s->outputs;
    long parts = s->threads < lines ? s->threads : lines; /* each with its own sums, so always rounded alike */
    const int *choices = (const int *)given[2];
    float *sums = floats(parts * size), *patches = floats(parts * t.across * (WINDOW + 1) * PATCH);
    int failed = !sums || !patches;
#pragma omp parallel for num_threads(s->threads)
    for (long part = 0; part < parts; part++) {
        if (failed) continue;
        float *own = sums + part * size, *seen = patches + part * t.across * (WINDOW + 1) * PATCH;
        memset(own, 0, size * sizeof(float));
        for (long line = part * lines / parts; line < (part + 1) * lines / parts; line++) {
            for (long tile = 0; tile < t.across; tile++)
                patch(s, given[0] + line / t.down * s->height * s->width * COLOURS, line % t.down * 2 - s->above,
                      tile * 2 - s->left, seen + tile * (WINDOW + 1) * PATCH);
            add_line(s, t.across, seen, given[1] + line * t.across * s->outputs, choices + line * t.across * s->outputs, own);
        }
    }
    for (long k = 0; k < WINDOW * ROW + 1 && !failed; k++)
        for (long o = 0; o < s->outputs; o++) {
            float sum = 0;
            for (long part = 0; part < parts; part++) sum += sums[part * size + k * s->outputs + o];
            if (k == WINDOW * ROW)
                found[1][o] = sum;
            else
                found[0][k / ROW * s->row + k % ROW / COLOURS * s->column + k % COLOURS * s->input + o * s->output] = sum;
        }
    free(sums);
    free(patches);
    return failed;
}

/* 3 x 3 convolutions of float32 pictures with stride 1 on a CPU, and their gradients, by Winograd's F(2 x 2, 3 x 3):
   16 multiplications for each four values of an output channel instead of 36. https://arxiv.org/abs/1509.09308

   A tile is 4 x 4 places of a picture, from which 2 x 2 places of the output follow. In the transformed domain each of
   a tile's 16 numbers is multiplied on its own, so over all channels it takes 16 matrix products. They are computed for
   a block of tiles at a time, which stays in the cache.

   Pictures are [pictures, height, width, channels], all channel counts multiples of 32. kernels.py has this file
   compiled for the processor that it runs on, and describes the functions: they return 0, or 1 for want of memory. */
#include "convolution.h"

#define COLUMNS (2 * LANES) /* of the part of a product that ROWS x 2 registers hold */
#define POINTS 16           /* of a transformed tile */
#define BLOCK 24            /* tiles: a multiple of ROWS */
#define MOST 1024           /* channels */

static const float zeros[MOST];

static long blocks_of(const struct Tiles *t) {
    return (t->count + BLOCK - 1) / BLOCK;
}

/* Write to c [rows, COLUMNS], or add to it, a [ROWS, depth] times b [depth, COLUMNS]; of a, ROWS rows are read. */
static inline __attribute__((always_inline)) void multiply(
    long rows, long depth, const float *a, long a_row, long a_column, const float *b, long b_row, float *c, long c_row,
    int adds) {
    vector sums[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++) sums[r][0] = sums[r][1] = (vector){0};
    for (long d = 0; d < depth; d++) {
        vector left = LOAD(b + d * b_row), right = LOAD(b + d * b_row + LANES);
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++) {
            float one = a[r * a_row + d * a_column];
            sums[r][0] += one * left;
            sums[r][1] += one * right;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < ROWS; r++)
        if (r < rows) {
            float *place = c + r * c_row;
            STORE(place, adds ? LOAD(place) + sums[r][0] : sums[r][0]);
            STORE(place + LANES, adds ? LOAD(place + LANES) + sums[r][1] : sums[r][1]);
        }
}

/* Write the transformed tile, B' d B, whose first place is (top, left), to found [POINTS][channels], `far` apart. */
static inline __attribute__((always_inline)) void transform_tile(
    const float *picture, long height, long width, long channels, long top, long left, float *found, long far,
    int relued) {
    const float *at[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            long y = top + i, x = left + j;
            int inside = y >= 0 && y < height && x >= 0 && x < width;
            at[i][j] = inside ? picture + (y * width + x) * channels : zeros;
        }
    for (long c = 0; c < channels; c += LANES) {
        vector t[4][4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            vector d[4] = {LOAD(at[0][j] + c), LOAD(at[1][j] + c), LOAD(at[2][j] + c), LOAD(at[3][j] + c)};
            for (int i = 0; i < 4 && relued; i++) d[i] = relu(d[i]);
            t[0][j] = d[0] - d[2], t[1][j] = d[1] + d[2], t[2][j] = d[2] - d[1], t[3][j] = d[1] - d[3];
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            float *place = found + 4 * i * far + c;
            STORE(place, t[i][0] - t[i][2]);
            STORE(place + far, t[i][1] + t[i][2]);
            STORE(place + 2 * far, t[i][2] - t[i][1]);
            STORE(place + 3 * far, t[i][1] - t[i][3]);
        }
    }
}

static void transform_input(
    const struct Shape *s, const float *picture, long top, long left, float *found, long far) {
    if (s->relued)
        transform_tile(picture, s->height, s->width, s->inputs, top, left, found, far, 1);
    else
        transform_tile(picture, s->height, s->width, s->inputs, top, left, found, far, 0);
}

/* Return A' m A, the output's tile, of m [POINTS][channels] for some channels. */
static inline __attribute__((always_inline)) void output_tile(const float *m, long far, vector bias, vector *four) {
    vector t[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const float *from = m + j * far;
        vector one = LOAD(from + 4 * far), two = LOAD(from + 8 * far);
        t[0][j] = LOAD(from) + one + two, t[1][j] = one - two - LOAD(from + 12 * far);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        four[2 * i] = t[i][0] + t[i][1] + t[i][2] + bias;
        four[2 * i + 1] = t[i][1] - t[i][2] - t[i][3] + bias;
    }
}

/* Write the output's tile at (top, left); places beyond the picture are left out. With `relued`, of the same shape as
   the picture, it is the gradient of relu of that. */
static void transform_output(
    const float *m, long far, const float *biases, const float *relued, float *picture, long height, long width,
    long channels, long top, long left) {
    long place = (top * width + left) * channels;
    int has_below = top + 1 < height, has_right = left + 1 < width;
    for (long c = 0; c < channels; c += LANES) {
        vector four[4];
        output_tile(m + c, far, biases ? LOAD(biases + c) : (vector){0}, four);
#pragma GCC unroll 2
        for (int i = 0; i < 1 + has_below; i++) {
            for (int j = 0; j < 1 + has_right; j++) {
                long at = place + (i * width + j) * channels + c;
                vector value = four[2 * i + j];
                STORE(picture + at, relued ? (vector)((LOAD(relued + at) > 0) & (whole)value) : value);
            }
        }
    }
}

/* Write what a pool makes of the output's tile, and its choices. */
static void transform_pooled(const float *m, long far, const float *biases, long channels, float *found, int *choices) {
    for (long c = 0; c < channels; c += LANES) {
        vector four[4];
        output_tile(m + c, far, biases ? LOAD(biases + c) : (vector){0}, four);
        vector most = four[0];
        whole which = {0};
#pragma GCC unroll 3
        for (int k = 1; k < 4; k++) larger(four[k], k, &most, &which);
        choose(most, which, found + c, choices + c);
    }
}

/* Write A y A' of the gradient y of an output's tile, the transpose of transform_output. Add y to sums [channels]. */
static void transform_gradient(
    const float *picture, long height, long width, long channels, long top, long left, float *found, long far,
    float *sums) {
    const float *at[2][2];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            at[i][j] = top + i < height && left + j < width ? picture + ((top + i) * width + left + j) * channels : zeros;
    for (long c = 0; c < channels; c += LANES) {
        vector t[4][2];
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            vector one = LOAD(at[0][j] + c), two = LOAD(at[1][j] + c);
            t[0][j] = one, t[1][j] = one + two, t[2][j] = one - two, t[3][j] = -two;
        }
        STORE(sums + c, LOAD(sums + c) + t[1][0] + t[1][1]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            float *place = found + 4 * i * far + c;
            STORE(place, t[i][0]);
            STORE(place + far, t[i][0] + t[i][1]);
            STORE(place + 2 * far, t[i][0] - t[i][1]);
            STORE(place + 3 * far, -t[i][1]);
        }
    }
}

/* Return the matrices [inputs][outputs] of G g G' of each filter g, one for each point; or, turned, the matrices
   [outputs][inputs] of the filters turned by 180 degrees, which convolve the output's gradient into the input's. NULL
   without memory. */
static float *transform_filters(const struct Shape *s, const float *filters, int turned) {
    float *found = floats(POINTS * s->inputs * s->outputs);
    if (!found) return NULL;
    long rows = turned ? s->outputs : s->inputs, columns = turned ? s->inputs : s->outputs;
    long row = turned ? s->output : s->input, column = turned ? s->input : s->output;
#pragma omp parallel for num_threads(s->threads)
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < columns; c += LANES) {
            const float *from = filters + r * row + c * column;
            vector g[3][3], t[4][3];
            for (int y = 0; y < 3; y++)
                for (int x = 0; x < 3; x++) {
                    const float *one = from + (turned ? 2 - y : y) * s->row + (turned ? 2 - x : x) * s->column;
                    for (int lane = 0; lane < LANES; lane++) g[y][x][lane] = one[lane * column];
                }
            for (int x = 0; x < 3; x++) {
                vector ends = (g[0][x] + g[2][x]) / 2, middle = g[1][x] / 2;
                t[0][x] = g[0][x], t[1][x] = ends + middle, t[2][x] = ends - middle, t[3][x] = g[2][x];
            }
            for (int y = 0; y < 4; y++) {
                vector ends = (t[y][0] + t[y][2]) / 2, middle = t[y][1] / 2;
                vector four[4] = {t[y][0], ends + middle, ends - middle, t[y][2]};
                for (int x = 0; x < 4; x++) STORE(found + ((4 * y + x) * rows + r) * columns + c, four[x]);
            }
        }
    return found;
}

/* Convolve by transformed filters. With choices, y is what a pool makes of the output; relued: see transform_output. */
static int convolve(
    const struct Shape *s, const float *x, const float *filters, const float *biases, const float *relued, float *y,
    int *choices) {
    struct Tiles t = tiles_of(s);
    long blocks = blocks_of(&t), in = BLOCK * s->inputs, out = BLOCK * s->outputs; /* numbers in one point of a block */
    int failed = 0;
#pragma omp parallel num_threads(s->threads) reduction(| : failed)
    {
        float *before = floats(POINTS * in), *after = floats(POINTS * out);
        failed = !before || !after;
#pragma omp for schedule(dynamic)
        for (long block = 0; block < blocks; block++) {
            long first = block * BLOCK, end = first + BLOCK < t.count ? first + BLOCK : t.count;
            if (failed) continue;
            for (long k = first; k < end; k++)
                transform_input(
                    s, x + k / (t.down * t.across) * s->height * s->width * s->inputs,
                    k / t.across % t.down * 2 - s->above, k % t.across * 2 - s->left,
                    before + (k - first) * s->inputs, in);
            for (long point = 0; point < POINTS; point++)
                for (long c = 0; c < s->outputs; c += COLUMNS)
                    for (long r = 0; r < end - first; r += ROWS)
                        multiply(
                            ROWS, s->inputs, before + point * in + r * s->inputs, s->inputs, 1,
                            filters + point * s->inputs * s->outputs + c, s->outputs,
                            after + point * out + r * s->outputs + c, s->outputs, 0);
            for (long k = first; k < end; k++) {
                const float *tile = after + (k - first) * s->outputs;
                long picture = k / (t.down * t.across) * t.height * t.width * s->outputs;
                if (choices)
                    transform_pooled(tile, out, biases, s->outputs, y + k * s->outputs, choices + k * s->outputs);
                else
                    transform_output(
                        tile, out, biases, relued ? relued + picture : NULL, y + picture, t.height, t.width, s->outputs,
                        k / t.across % t.down * 2, k % t.across * 2);
            }
        }
        free(before);
        free(after);
    }
    return failed;
}

static int convolved(const struct Shape *s, const float **given, float *y, int *choices) {
    float *transformed = transform_filters(s, given[1], 0);
    int failed = !transformed || convolve(s, given[0], transformed, given[2], NULL, y, choices);
    free(transformed);
    return failed;
}

int output(const struct Shape *s, const float **given, float **found) {
    return convolved(s, given, found[0], NULL);
}

int pooled(const struct Shape *s, const float **given, float **found) {
    return convolved(s, given, found[0], (int *)found[1]);
}

/* Write the gradient of the output, from that of the pool's output, and the pool's choices. */
int unpooled(const struct Shape *s, const float **given, float **found) {
    struct Tiles t = tiles_of(s);
#pragma omp parallel for num_threads(s->threads)
    for (long tile = 0; tile < t.count; tile++) {
        float *to = found[0] + (tile / t.across * 2 * t.width + tile % t.across * 2) * s->outputs;
        for (long c = 0; c < s->outputs; c += LANES) {
            vector gradient = LOAD(given[0] + tile * s->outputs + c);
            whole which = *(const whole *)((const int *)given[1] + tile * s->outputs + c);
            for (int k = 0; k < 4; k++)
                STORE(to + (k / 2 * t.width + k % 2) * s->outputs + c, (vector)((which == k) & (whole)gradient));
        }
    }
    return 0;
}

int input_gradient(const struct Shape *s, const float **given, float **found) {
    struct Tiles t = tiles_of(s);
    struct Shape back = *s;
    back.height = t.height, back.width = t.width, back.inputs = s->outputs, back.outputs = s->inputs;
    back.above = 2 - s->above, back.left = 2 - s->left, back.relued = 0;
    float *transformed = transform_filters(s, given[1], 1);
    const float *relued = s->relued ? given[2] : NULL;
    int failed = !transformed || convolve(&back, given[0], transformed, NULL, relued, found[0], NULL);
    free(transformed);
    return failed;
}

/* Add to sums [POINTS][inputs][outputs] the products of a block's transformed tiles, of x and of the output's gradient,
   over the tiles; and to the numbers after them, [outputs], the gradient itself. before, after: room for tiles. */
static void add_products(
    const struct Shape *s, const struct Tiles *t, long block, const float *x, const float *gradient, float *before,
    float *after, float *sums) {
    long in = BLOCK * s->inputs, out = BLOCK * s->outputs;
    long first = block * BLOCK, end = first + BLOCK < t->count ? first + BLOCK : t->count;
    for (long k = first; k < end; k++) {
        long picture = k / (t->down * t->across), top = k / t->across % t->down * 2, left = k % t->across * 2;
        transform_input(
            s, x + picture * s->height * s->width * s->inputs, top - s->above, left - s->left,
            before + (k - first) * s->inputs, in);
        transform_gradient(
            gradient + picture * t->height * t->width * s->outputs, t->height, t->width, s->outputs, top, left,
            after + (k - first) * s->outputs, out, sums + POINTS * s->inputs * s->outputs);
    }
    for (long point = 0; point < POINTS; point++)
        for (long c = 0; c < s->outputs; c += COLUMNS)
            for (long r = 0; r < s->inputs; r += ROWS)
                multiply(
                    s->inputs - r, end - first, before + point * in + r, 1, s->inputs, after + point * out + c,
                    s->outputs, sums + (point * s->inputs + r) * s->outputs + c, s->outputs, 1);
}

int filter_gradient(const struct Shape *s, const float **given, float **found) {
    struct Tiles t = tiles_of(s);
    long in = BLOCK * s->inputs, out = BLOCK * s->outputs, size = (POINTS * s->inputs + 1) * s->outputs;
    long blocks = blocks_of(&t), parts = s->threads < blocks ? s->threads : blocks; /* each with its own sums, so always rounded alike */
    float *sums = floats(parts * size);
    int failed = !sums;
    if (failed) return failed;
#pragma omp parallel num_threads(s->threads) reduction(| : failed)
    {
        float *before = floats(POINTS * in), *after = floats(POINTS * out);
        failed = !before || !after;
#pragma omp for
        for (long part = 0; part < parts; part++) {
            float *own = sums + part * size;
            memset(own, 0, size * sizeof(float));
            for (long block = part * blocks / parts; block < (part + 1) * blocks / parts && !failed; block++)
                add_products(s, &t, block, given[0], given[1], before, after, own);
        }
        free(before);
        free(after);
#pragma omp for collapse(2)
        for (long i = 0; i < s->inputs; i++)
            for (long o = 0; o < s->outputs; o += LANES) { /* G' u G */
                vector u[4][4], rows[3][4];
                for (int point = 0; point < POINTS; point++) {
                    u[point / 4][point % 4] = (vector){0};
                    for (long part = 0; part < parts; part++)
                        u[point / 4][point % 4] += LOAD(sums + part * size + (point * s->inputs + i) * s->outputs + o);
                }
                for (int x = 0; x < 4; x++) {
                    vector sum = (u[1][x] + u[2][x]) / 2;
                    rows[0][x] = u[0][x] + sum, rows[1][x] = (u[1][x] - u[2][x]) / 2, rows[2][x] = sum + u[3][x];
                }
                for (int y = 0; y < 3; y++) {
                    vector sum = (rows[y][1] + rows[y][2]) / 2;
                    vector row[3] = {rows[y][0] + sum, (rows[y][1] - rows[y][2]) / 2, sum + rows[y][3]};
                    for (int x = 0; x < 3; x++)
                        for (int lane = 0; lane < LANES; lane++)
                            found[0][(o + lane) * s->output + y * s->row + x * s->column + i * s->input] =
                                row[x][lane];
                }
            }
    }
    for (long o = 0; o < s->outputs; o++) {
        found[1][o] = 0;
        for (long part = 0; part < parts; part++) found[1][o] += sums[(part + 1) * size - s->outputs + o];
    }
    free(sums);
    return failed;
}

/* Convolutions with stride 1 on a CPU as products of spectra, and their gradients. The discrete Fourier transforms of
   LANES channels are taken at once, first of a picture's rows, then of its columns; each frequency's product over the
   channels is that of two complex matrices. kernels.py describes the functions, spectra.py says when this is faster. */
#include "convolution.h"

#define MOST 32 /* places along a side, of a period, too */
#define HALF (MOST / 2 + 1)
#define TOGETHER 4 /* frequencies, or places, that are summed at once */
#define PI 3.14159265358979323846
#define CHUNK 24 /* rows of a spectrum */
#define SHARE 4  /* rows that a thread takes at a time */
#define BETWEEN 16 /* numbers between two planes of a spectrum, or all of them would share a few lines of the cache */
#if LANES == 16
#define TALL 6 /* CHUNK, or a part of it */
#else
#define TALL 2
#endif
#define WIDE 2 /* vectors; TALL rows of so many sums fit into the registers */

/* rows, columns: the filters'. */
struct Spectra {
    struct Shape shape;
    long rows, columns;
};

/* Along one side: how many places there are, after how many the spectrum repeats them, and the waves at each place. */
struct Side {
    long places, period;
    float cosine[HALF + TOGETHER][MOST + TOGETHER], sine[HALF + TOGETHER][MOST + TOGETHER];
};

/* Pictures and their spectrum: of frequencies that mirror each other only one, real parts and imaginary ones in planes
   of their own. */
struct Both {
    struct Side down, across;
    long frequencies;
};

static double cosine(double angle) { /* from -pi to pi; libm might not be there */
    double part = 1, sum = 1;
    for (int k = 1; k < 16; k++) sum += part *= -angle * angle / ((2 * k - 1) * (2 * k));
    return sum;
}

/* first: which place, counted from the picture's edge, is the first. */
static void measure(struct Side *s, long places, long period, long first) {
    memset(s, 0, sizeof *s);
    s->places = places;
    s->period = period;
    for (long f = 0; f <= period / 2; f++)
        for (long at = 0; at < places; at++) {
            long turned = ((f * (at + first)) % period + period) % period;
            long quarter = (4 * turned + 3 * period) % (4 * period); /* sin(x) = cos(x - pi / 2) */
            s->cosine[f][at] = cosine(PI - 2 * PI * turned / period) * -1;
            s->sine[f][at] = cosine(PI - PI * quarter / (2 * period)) * -1;
        }
}

static int is_own(long frequency, long period) { /* its own mirror image */
    return frequency == 0 || 2 * frequency == period;
}

/* How many vertical frequencies there are for a horizontal one. */
static long many(const struct Both *b, long across) {
    return is_own(across, b->across.period) ? b->down.period / 2 + 1 : b->down.period;
}

static void relate(struct Both *b, const struct Spectra *s, long height, long width, long above, long left) {
    measure(&b->down, height, s->shape.height + s->shape.above, -above);
    measure(&b->across, width, s->shape.width + s->shape.left, -left);
    b->frequencies = 0;
    for (long f = 0; f <= b->across.period / 2; f++) b->frequencies += many(b, f);
}

/* Write the spectrum of LANES channels, whose rows and columns lie so far apart. The imaginary parts get `sign`. */
static void analyse(const struct Both *b, const float *from, long row, long column, float sign, float *to, long plane) {
    const struct Side *down = &b->down, *across = &b->across;
    vector re[HALF + TOGETHER][MOST], im[HALF + TOGETHER][MOST];
    for (long y = 0; y < down->places; y++)
        for (long f = 0; f <= across->period / 2; f += TOGETHER) {
            vector one[TOGETHER] = {{0}}, other[TOGETHER] = {{0}};
            for (long x = 0; x < across->places; x++) {
                vector value = LOAD(from + y * row + x * column);
                for (int k = 0; k < TOGETHER; k++) {
                    one[k] += value * across->cosine[f + k][x];
                    other[k] -= value * across->sine[f + k][x];
                }
            }
            for (int k = 0; k < TOGETHER; k++) re[f + k][y] = one[k], im[f + k][y] = other[k];
        }
    for (long f = 0; f <= across->period / 2; to += 2 * plane * many(b, f), f++)
        for (long u = 0; u <= down->period / 2; u += 2) {
            vector a[2] = {{0}}, c[2] = {{0}}, d[2] = {{0}}, e[2] = {{0}};
            for (long y = 0; y < down->places; y++)
                for (int k = 0; k < 2; k++) {
                    a[k] += re[f][y] * down->cosine[u + k][y];
                    c[k] += im[f][y] * down->sine[u + k][y];
                    d[k] += im[f][y] * down->cosine[u + k][y];
                    e[k] += re[f][y] * down->sine[u + k][y];
                }
            for (int k = 0; k < 2 && u + k <= down->period / 2; k++) {
                float *place = to + 2 * plane * (u + k);
                STORE(place, a[k] + c[k]);
                STORE(place + plane, sign * (d[k] - e[k]));
                if (is_own(f, across->period) || is_own(u + k, down->period)) continue;
                place = to + 2 * plane * (down->period - u - k);
                STORE(place, a[k] - c[k]);
                STORE(place + plane, sign * (d[k] + e[k]));
            }
        }
}

/* Write LANES channels of which analyse() would make this spectrum, plus `more`. */
static void synthesise(const struct Both *b, const float *from, long plane, vector more, float *to, long row, long column) {
    const struct Side *down = &b->down, *across = &b->across;
    vector re[HALF][MOST + TOGETHER], im[HALF][MOST + TOGETHER];
    for (long f = 0; f <= across->period / 2; from += 2 * plane * many(b, f), f++) {
        vector sum_re[HALF], sum_im[HALF], apart_re[HALF], apart_im[HALF];
        float share = (is_own(f, across->period) ? 1.f : 2.f) / (down->period * across->period);
        for (long u = 0; u <= down->period / 2; u++) {
            const float *one = from + 2 * plane * u, *other = from + 2 * plane * (down->period - u);
            vector x = LOAD(one) * share, y = LOAD(one + plane) * share, none = {0};
            sum_re[u] = x, sum_im[u] = y, apart_re[u] = apart_im[u] = none;
            if (is_own(u, down->period)) continue;
            if (is_own(f, across->period)) {
                sum_re[u] = 2 * x, sum_im[u] = none, apart_im[u] = 2 * y;
            } else {
                vector z = LOAD(other) * share, w = LOAD(other + plane) * share;
                sum_re[u] = x + z, sum_im[u] = y + w, apart_re[u] = x - z, apart_im[u] = y - w;
            }
        }
        for (long y = 0; y < down->places; y += TOGETHER) {
            vector one[TOGETHER] = {{0}}, other[TOGETHER] = {{0}};
            for (long u = 0; u <= down->period / 2; u++)
                for (int k = 0; k < TOGETHER; k++) {
                    one[k] += sum_re[u] * down->cosine[u][y + k] - apart_im[u] * down->sine[u][y + k];
                    other[k] += sum_im[u] * down->cosine[u][y + k] + apart_re[u] * down->sine[u][y + k];
                }
            for (int k = 0; k < TOGETHER; k++) re[f][y + k] = one[k], im[f][y + k] = other[k];
        }
    }
    for (long y = 0; y < down->places; y++)
        for (long x = 0; x < across->places; x += TOGETHER) {
            vector sum[TOGETHER];
            for (int k = 0; k < TOGETHER; k++) sum[k] = more;
            for (long f = 0; f <= across->period / 2; f++)
                for (int k = 0; k < TOGETHER; k++)
                    sum[k] += re[f][y] * across->cosine[f][x + k] - im[f][y] * across->sine[f][x + k];
            for (int k = 0; k < TOGETHER && x + k < across->places; k++) STORE(to + y * row + (x + k) * column, sum[k]);
        }
}

/* A complex matrix: rows a row apart; numbers a step apart along the sum, and `far` those of the next CHUNK of them;
   `plane` numbers further the imaginary parts. */
struct Matrix {
    const float *numbers;
    long row, step, far, plane;
};

/* Write TALL rows of WIDE vectors: a times b's complex conjugate, over so many steps. */
static inline void block(const struct Matrix *a, const struct Matrix *b, long steps, float *to, long row, long plane) {
    vector re[TALL][WIDE] = {{{0}}}, im[TALL][WIDE] = {{{0}}};
    for (long first = 0; first < steps; first += CHUNK) {
        const float *one = a->numbers + first / CHUNK * a->far, *other = b->numbers + first / CHUNK * b->far;
        long end = first + CHUNK < steps ? first + CHUNK : steps;
        for (long k = first; k < end; k++, one += a->step, other += b->step)
#pragma GCC unroll 6
            for (int r = 0; r < TALL; r++) {
                float x = one[r * a->row], y = one[r * a->row + a->plane];
#pragma GCC unroll 2
                for (int c = 0; c < WIDE; c++) {
                    vector z = LOAD(other + c * LANES), w = LOAD(other + b->plane + c * LANES);
                    re[r][c] += x * z;
                    im[r][c] += y * z;
                    re[r][c] += y * w;
                    im[r][c] -= x * w;
                }
            }
    }
#pragma GCC unroll 6
    for (int r = 0; r < TALL; r++)
#pragma GCC unroll 2
        for (int c = 0; c < WIDE; c++) {
            STORE(to + r * row + c * LANES, re[r][c]);
            STORE(to + r * row + c * LANES + plane, im[r][c]);
        }
}

/* The spectra of `rows` rows of channels, of pictures or of filters: CHUNK rows after the other, because a transform
   writes to as many places as there are planes, which so stay in the cache until all rows of a chunk are there. */
struct Spectrum {
    long rows, channels, plane, chunk, count;
    float *numbers;
};

static struct Spectrum spectrum(const struct Both *b, long rows, long channels) {
    struct Spectrum s = {rows, channels, CHUNK * channels + BETWEEN, 0, 0, NULL};
    s.chunk = 2 * b->frequencies * s.plane;
    s.count = (rows + CHUNK - 1) / CHUNK * s.chunk;
    return s;
}

static float *row_of(const struct Spectrum *s, long row) {
    return s->numbers + row / CHUNK * s->chunk + row % CHUNK * s->channels;
}

/* Write one frequency of `to`: the rows of a (or, if `sums_rows`, its channels) times b's complex conjugate, summed over
   a's channels (or rows) and b's rows. */
static void multiply(
    const struct Spectrum *a, const struct Spectrum *b, const struct Spectrum *to, long frequency, int sums_rows) {
    long place = 2 * frequency;
    struct Matrix one = {NULL, a->channels, 1, CHUNK, a->plane};
    struct Matrix other = {b->numbers + place * b->plane, 0, b->channels, b->chunk, b->plane};
    if (sums_rows) one = (struct Matrix){NULL, 1, a->channels, a->chunk, a->plane};
    for (long c = 0; c < to->channels; c += WIDE * LANES, other.numbers += WIDE * LANES)
        for (long r = 0; r < to->rows; r += TALL) { /* beyond the last row there is room until the chunk's end */
            one.numbers = sums_rows ? a->numbers + r : row_of(a, r);
            one.numbers += place * a->plane;
            block(&one, &other, b->rows, row_of(to, r) + place * to->plane + c, to->channels, to->plane);
        }
}

/* Write a picture's row of a spectrum, of all its channels. */
static void analyse_picture(const struct Both *b, const float *picture, const struct Spectrum *to, long row) {
    for (long c = 0; c < to->channels; c += LANES)
        analyse(b, picture + c, b->across.places * to->channels, to->channels, 1, row_of(to, row) + c, to->plane);
}

/* Write the picture of a spectrum's row, with all its channels, plus biases, unless they are NULL. */
static void synthesise_picture(
    const struct Both *b, const struct Spectrum *from, long row, const float *biases, float *picture) {
    for (long c = 0; c < from->channels; c += LANES)
        synthesise(b, row_of(from, row) + c, from->plane, biases ? LOAD(biases + c) : (vector){0}, picture + c,
                   b->across.places * from->channels, from->channels);
}

/* The spectrum of a filter: of one row and column of the matrix [inputs, outputs] LANES at a time, `step` apart. */
static void analyse_filter(
    const struct Both *b, const struct Spectra *s, const float *filter, long step, float sign, float *to, long plane) {
    float window[MOST * MOST * LANES];
    for (long y = 0; y < s->rows; y++)
        for (long x = 0; x < s->columns; x++)
            for (long lane = 0; lane < LANES; lane++)
                window[(y * s->columns + x) * LANES + lane] =
                    filter[y * s->shape.row + x * s->shape.column + lane * step];
    analyse(b, window, s->columns * LANES, LANES, sign, to, plane);
}

static void synthesise_filter(
    const struct Both *b, const struct Spectra *s, const float *from, long plane, float *filter) {
    float window[MOST * MOST * LANES];
    synthesise(b, from, plane, (vector){0}, window, s->columns * LANES, LANES);
    for (long y = 0; y < s->rows; y++)
        for (long x = 0; x < s->columns; x++)
            for (long lane = 0; lane < LANES; lane++)
                filter[y * s->shape.row + x * s->shape.column + lane * s->shape.output] =
                    window[(y * s->columns + x) * LANES + lane];
}

/* Memory is kept from one call to the next: new pages take as long as a transform. */
struct Room {
    long count;
    float numbers[] __attribute__((aligned(64)));
};
static struct Room *kept;

static void put_back(struct Room *room) {
    free(__atomic_exchange_n(&kept, room, __ATOMIC_ACQ_REL));
}

/* Return room for so many spectra; NULL if there is none. */
static struct Room *taken(struct Spectrum **spectra, int many) {
    long count = 0;
    for (int k = 0; k < many; k++) count += spectra[k]->count;
    struct Room *found = __atomic_exchange_n(&kept, NULL, __ATOMIC_ACQ_REL);
    if (!found || found->count < count) {
        free(found);
        found = (struct Room *)floats(sizeof(struct Room) / sizeof(float) + count);
        if (!found) return NULL;
        memset(found->numbers, 0, count * sizeof(float)); /* what is computed in vain is at least a number */
        found->count = count;
    }
    float *from = found->numbers;
    for (int k = 0; k < many; from += spectra[k++]->count) spectra[k]->numbers = from;
    return found;
}

/* All that a convolution needs: `of_filters` has rows of inputs, `turned` rows of outputs. */
struct Plan {
    struct Both x, filters, y;
    struct Spectrum of_x, of_y, of_filters, turned, pulled;
};

static struct Plan planned(const struct Spectra *s) {
    const struct Shape *h = &s->shape;
    struct Plan p;
    relate(&p.x, s, h->height, h->width, 0, 0);
    relate(&p.filters, s, s->rows, s->columns, 0, 0);
    relate(&p.y, s, h->height + 2 * h->above - s->rows + 1, h->width + 2 * h->left - s->columns + 1, h->above, h->left);
    p.of_x = p.pulled = spectrum(&p.x, h->pictures, h->inputs);
    p.of_y = spectrum(&p.y, h->pictures, h->outputs);
    p.of_filters = spectrum(&p.filters, h->inputs, h->outputs);
    p.turned = spectrum(&p.filters, h->outputs, h->inputs);
    return p;
}

static long area(const struct Both *b) {
    return b->down.places * b->across.places;
}

/* given: x, filters, and biases or NULL; found: the convolution. */
int spectral(const struct Spectra *s, const float **given, float **found) {
    const struct Shape *h = &s->shape;
    struct Plan p = planned(s);
    struct Room *room = taken((struct Spectrum *[]){&p.of_x, &p.of_filters, &p.of_y}, 3);
    if (!room) return 1;
#pragma omp parallel num_threads(h->threads)
    {
#pragma omp for schedule(dynamic, SHARE) nowait
        for (long n = 0; n < h->pictures; n++)
            analyse_picture(&p.x, given[0] + n * area(&p.x) * h->inputs, &p.of_x, n);
#pragma omp for schedule(dynamic, SHARE)
        for (long i = 0; i < h->inputs; i++)
            for (long o = 0; o < h->outputs; o += LANES)
                analyse_filter(&p.filters, s, given[1] + i * h->input + o * h->output, h->output, 1,
                               row_of(&p.of_filters, i) + o, p.of_filters.plane);
#pragma omp for schedule(dynamic)
        for (long f = 0; f < p.x.frequencies; f++) multiply(&p.of_x, &p.of_filters, &p.of_y, f, 0);
#pragma omp for schedule(dynamic, SHARE)
        for (long n = 0; n < h->pictures; n++)
            synthesise_picture(&p.y, &p.of_y, n, given[2], found[0] + n * area(&p.y) * h->outputs);
    }
    put_back(room);
    return 0;
}

/* given: x, filters and the gradient of what spectral() makes of them; found: the gradients of x (or NULL), of the
   filters and of the biases. */
int spectral_gradients(const struct Spectra *s, const float **given, float **found) {
    const struct Shape *h = &s->shape;
    struct Plan p = planned(s);
    struct Room *room = taken((struct Spectrum *[]){&p.of_x, &p.pulled, &p.of_filters, &p.turned, &p.of_y}, 5);
    if (!room) return 1;
#pragma omp parallel num_threads(h->threads)
    {
#pragma omp for schedule(dynamic, SHARE) nowait
        for (long n = 0; n < h->pictures; n++) analyse_picture(&p.x, given[0] + n * area(&p.x) * h->inputs, &p.of_x, n);
#pragma omp for schedule(dynamic, SHARE) nowait
        for (long n = 0; n < h->pictures; n++) analyse_picture(&p.y, given[2] + n * area(&p.y) * h->outputs, &p.of_y, n);
#pragma omp for schedule(dynamic, SHARE)
        for (long o = 0; o < h->outputs; o++) /* their complex conjugate, because multiply() takes that */
            for (long i = 0; found[0] && i < h->inputs; i += LANES)
                analyse_filter(&p.filters, s, given[1] + i * h->input + o * h->output, h->input, -1,
                               row_of(&p.turned, o) + i, p.turned.plane);
#pragma omp for schedule(dynamic)
        for (long f = 0; f < p.x.frequencies; f++) {
            if (found[0]) multiply(&p.of_y, &p.turned, &p.pulled, f, 0);
            multiply(&p.of_x, &p.of_y, &p.of_filters, f, 1);
        }
#pragma omp for schedule(dynamic, SHARE) nowait
        for (long n = 0; n < h->pictures; n++)
            if (found[0]) synthesise_picture(&p.x, &p.pulled, n, NULL, found[0] + n * area(&p.x) * h->inputs);
#pragma omp for schedule(dynamic, SHARE) nowait
        for (long i = 0; i < h->inputs; i++)
            for (long o = 0; o < h->outputs; o += LANES)
                synthesise_filter(&p.filters, s, row_of(&p.of_filters, i) + o, p.of_filters.plane,
                                  found[1] + i * h->input + o * h->output);
#pragma omp for schedule(dynamic)
        for (long o = 0; o < h->outputs; o += LANES) { /* the frequency 0 is the sum of all places */
            vector sum = {0};
            for (long n = 0; n < h->pictures; n++) sum += LOAD(row_of(&p.of_y, n) + o);
            STORE(found[2] + o, sum);
        }
    }
    put_back(room);
    return 0;
}

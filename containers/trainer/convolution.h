/* What winograd.c and first.c share: 3 x 3 convolutions of float32 pictures with stride 1, and a max pool of 2 x 2 with a
   relu behind them. Pictures are [pictures, height, width, channels], the output's channels multiples of 32. */
#include <stdlib.h> /* aligned_alloc: C11, gcc's default since 5 */
#include <string.h>

#if defined(LANES) /* for tests */
#elif defined(__AVX512F__)
#define LANES 16
#define ROWS 12
#elif defined(__AVX2__) || defined(__aarch64__)
#define LANES 8
#define ROWS 6
#else
#error "the vectors below would not fit into the registers"
#endif

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int whole __attribute__((vector_size(4 * LANES), aligned(4)));
#define LOAD(place) (*(const vector *)(place))
#define STORE(place, value) (*(vector *)(place) = (value))

/* above, left: how many rows and columns of zeros surround the picture on either side. The next four are the strides
   of the filters, and of their gradient, in numbers. relued: the convolution is of relu of the pictures, and its gradient
   that of the pictures. */
struct Shape {
    long threads, pictures, height, width, inputs, outputs, above, left, output, row, column, input, relued;
};

/* The pictures of a convolution's output, and the tiles of 2 x 2 places, in rows and columns, that they consist of. */
struct Tiles {
    long height, width, down, across, count;
};

static inline struct Tiles tiles_of(const struct Shape *s) {
    struct Tiles t = {s->height + 2 * s->above - 2, s->width + 2 * s->left - 2, 0, 0, 0};
    t.down = (t.height + 1) / 2;
    t.across = (t.width + 1) / 2;
    t.count = s->pictures * t.down * t.across;
    return t;
}

static inline float *floats(long count) {
    return aligned_alloc(64, (count * sizeof(float) + 127) / 64 * 64); /* with 64 bytes that may be read in vain */
}

static inline vector chosen(whole mask, vector one, vector other) {
    return (vector)((mask & (whole)one) | (~mask & (whole)other));
}

/* What is no number stays so. */
static inline vector relu(vector x) {
    return (vector)(~(whole)(x <= 0) & (whole)x);
}

/* A pool's choices: for each number of its output the place in its window that has it, or NONE, where relu made it 0. */
#define NONE 9

/* Take what is larger, with its place. Of equals the first stays, as in the frameworks. */
static inline __attribute__((always_inline)) void larger(vector value, int place, vector *most, whole *which) {
    whole is = value > *most;
    *most = chosen(is, value, *most);
    *which = (is & place) | (~is & *which);
}

/* Write the pool's output, after relu, and its choices. */
static inline __attribute__((always_inline)) void choose(vector most, whole which, float *to, int *choices) {
    whole dead = most <= 0;
    STORE(to, relu(most));
    *(whole *)choices = (dead & NONE) | (~dead & which);
}

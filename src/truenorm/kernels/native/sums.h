/* Sums along a row in float64, in an order that does not depend on the instruction set.

   A row is taken COLUMNS terms at a time, in LANES partial sums. Within such a block, pieces of
   128 terms add eight terms a lane in pairs of pairs; what is left over is cut into pieces of 64,
   32 and 16 terms and a last one that is filled up with zeros. Pieces are added to the lanes from
   the smallest to the largest, so that no term goes through more than six additions; four more
   fold the lanes. Blocks after the first are added to the lanes of the row by TwoSum: what is
   rounded off has lanes of its own. Rows longer than SEGMENT are summed in segments, whose sums are
   added by TwoSum again: threads can share a row, and the bits are the same if they do not.
   (Depth h of docs/inside/error-analysis.md: `depth_of_sum`.) */
#ifndef TRUENORM_SUMS_H
#define TRUENORM_SUMS_H

#include "elements.h"

enum {
    RUN = 8,
    PIECE = RUN * LANES,
    AT_ONCE = L == 2 ? 1 : VECTORS, /* vectors in one loop: unrolling eight takes long to compile */
};

/* Additions that a term goes through, at most. */
INLINE double depth_of_sum(int64_t size)
{
    return size > SEGMENT ? 12 : size > COLUMNS ? 11 : 10;
}

typedef struct {
    doubles sum[VECTORS], rounded_off[VECTORS];
} lanes_t;

/* The sum of `run` vectors in pairs of pairs; run is a constant. */
INLINE doubles in_pairs(const doubles *t, int run)
{
    if (run == 8)
        return ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]));
    if (run == 4)
        return (t[0] + t[1]) + (t[2] + t[3]);
    return run == 2 ? t[0] + t[1] : t[0];
}

/* Add the lanes of a block to those of its row, which are cleared if there are several blocks. */
INLINE void add_block(lanes_t *row, const doubles *block, int64_t size)
{
    for (int v = 0; v < VECTORS; v++) {
        if (size <= COLUMNS) {
            row->sum[v] = block[v];
            continue;
        }
        pairs_t s = two_sums(row->sum[v], block[v]);
        row->sum[v] = s.high;
        row->rounded_off[v] += s.low;
    }
}

INLINE void add_to_pair(pair_t *sum, double term)
{
    pair_t s = two_sum(sum->high, term);
    sum->high = s.high;
    sum->low += s.low;
}

INLINE double folded(const doubles *lanes)
{
    double t[LANES / 2];
    for (int v = 0; v < VECTORS / 2; v++)
        STORE(t + v * L, lanes[v] + lanes[v + VECTORS / 2]);
    return ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]));
}

INLINE double total(const lanes_t *row, int64_t size)
{
    double sum = folded(row->sum);
    return size > COLUMNS ? sum + folded(row->rounded_off) : sum;
}

/* Call ADD(offset, run) for the pieces of a block of n terms, from the smallest to the largest;
   REST(offset, count) comes first, for the last `count` < LANES terms. */
#define FOR_EACH_PIECE(n, ADD, REST)                             \
    do {                                                         \
        int64_t whole_ = (n) / PIECE * PIECE, left_ = (n)-whole_; \
        int64_t at_ = whole_ + left_ / LANES * LANES;            \
        if (left_ % LANES)                                       \
            REST(at_, (n)-at_);                                  \
        if (left_ & LANES) {                                     \
            at_ -= LANES;                                        \
            ADD(at_, 1);                                         \
        }                                                        \
        if (left_ & 2 * LANES) {                                 \
            at_ -= 2 * LANES;                                    \
            ADD(at_, 2);                                         \
        }                                                        \
        if (left_ & 4 * LANES) {                                 \
            at_ -= 4 * LANES;                                    \
            ADD(at_, 4);                                         \
        }                                                        \
        for (int64_t k_ = 0; k_ < whole_; k_ += PIECE)           \
            ADD(k_, RUN);                                        \
    } while (0)

/* ---- forward: the sums of d = x - near and of its square ---- */

INLINE void add_moments(const element_t *x, int run, double near, bool centred, doubles *s,
                        doubles *q)
{
#pragma GCC unroll AT_ONCE
    for (int v = 0; v < VECTORS; v++) {
        doubles d[RUN];
#pragma GCC unroll 8
        for (int i = 0; i < run; i++) {
            d[i] = wide(x + LANES * i + L * v);
            if (centred)
                d[i] -= near;
        }
        if (centred)
            s[v] += in_pairs(d, run);
#pragma GCC unroll 8
        for (int i = 0; i < run; i++)
            d[i] *= d[i];
        q[v] += in_pairs(d, run);
    }
}

INLINE void add_last_moments(const element_t *x, int64_t n, double near, doubles *s, doubles *q)
{
    double d[LANES] = {0};
    for (int64_t j = 0; j < n; j++)
        d[j] = (double)to_float(x[j]) - near;
    for (int v = 0; v < VECTORS; v++) {
        doubles t = LOAD(doubles, d + L * v);
        s[v] += t;
        q[v] += t * t;
    }
}

/* The sums of d and of its square over at most SEGMENT elements. */
INLINE void sum_segment(const element_t *x, int64_t size, double near, bool centred, double *sum,
                        double *square)
{
    lanes_t sums = {{{0}}, {{0}}}, squares = {{{0}}, {{0}}};
    for (int64_t offset = 0; offset < size; offset += COLUMNS) {
        const element_t *block = x + offset;
        doubles s[VECTORS] = {{0}}, q[VECTORS] = {{0}};
#define ADD(offset, run) add_moments(block + (offset), run, near, centred, s, q)
#define REST(offset, count) add_last_moments(block + (offset), count, near, s, q)
        FOR_EACH_PIECE(smaller(size - offset, COLUMNS), ADD, REST);
#undef ADD
#undef REST
        if (centred)
            add_block(&sums, s, size);
        add_block(&squares, q, size);
    }
    *sum = centred ? total(&sums, size) : 0.0;
    *square = total(&squares, size);
}

/* The same over a row. */
INLINE void sum_moments(const element_t *x, int64_t size, double near, bool centred, double *sum,
                        double *square)
{
    pair_t sums = {0, 0}, squares = {0, 0};
    for (int64_t offset = 0; offset < size; offset += SEGMENT) {
        sum_segment(x + offset, smaller(size - offset, SEGMENT), near, centred, sum, square);
        add_to_pair(&sums, *sum);
        add_to_pair(&squares, *square);
    }
    *sum = sums.high + sums.low;
    *square = squares.high + squares.low;
}

/* Approximate the mean by the first elements, as a float32 number. Any number near the mean is
   valid. For a constant row it is that constant, because the sum is exact then. */
INLINE double near_mean(const element_t *x, int64_t size)
{
    enum { SAMPLE = 32 };
    if (size < SAMPLE) {
        double sum = 0;
        for (int64_t j = 0; j < size; j++)
            sum += to_float(x[j]);
        return (float)(sum / (double)size);
    }
    doubles sums[4] = {{0}};
    for (int v = 0; v < SAMPLE / L; v += 4)
        for (int i = 0; i < 4; i++)
            sums[i] += wide(x + L * (v + i));
    doubles lanes = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    double t[L];
    STORE(t, lanes);
    for (int half = L / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            t[k] += t[k + half];
    return (float)(t[0] / SAMPLE);
}

/* The means of rows as near + low, and their variances; v is NaN if a row is not finite, and 0
   for constant rows only. RMSNorm: zeros, and the mean squares. Each step runs over all rows of
   a group, so that the processor can overlap them. */
typedef struct {
    double near[GROUP], low[GROUP], v[GROUP];
} statistics_t;

/* Divide the sums of row k, low and square, by the size. */
INLINE void derive_statistics(statistics_t *stats, double *square, int64_t k, int64_t size)
{
    stats->low[k] /= (double)size; /* (E1) */
    square[k] /= (double)size;
    stats->v[k] = square[k] - stats->low[k] * stats->low[k]; /* (E2) */
}

/* Return True if near was too far from the mean: it is replaced, and the row must be summed
   again. */
INLINE bool move_near(statistics_t *stats, double square, int64_t k)
{
    double low = stats->low[k];
    if (low * low <= 0.25 * stats->v[k] || !(square > 0))
        return false;
    stats->near[k] = (float)(stats->near[k] + low);
    return true;
}

INLINE void compute_statistics(const element_t *x, int64_t rows, int64_t size, bool centred,
                            statistics_t *stats)
{
    double *near = stats->near, *low = stats->low, *v = stats->v, square[GROUP];
    for (int64_t k = 0; k < GROUP; k++) {
        near[k] = centred && k < rows ? near_mean(x + k * size, size) : 0.0;
        low[k] = square[k] = 0;
    }
    for (int64_t k = 0; k < rows; k++)
        sum_moments(x + k * size, size, near[k], centred, &low[k], &square[k]);
    for (int k = 0; k < GROUP; k++)
        derive_statistics(stats, square, k, size);
    for (int64_t k = 0; k < rows; k++) {
        if (centred && move_near(stats, square[k], k)) {
            sum_moments(x + k * size, size, near[k], centred, &low[k], &square[k]);
            derive_statistics(stats, square, k, size);
        }
        if (!(square[k] < INFINITY))
            v[k] = NAN;
    }
}

/* ---- backward: the sums of c, g, g*c and g*g; RMSNorm: c*c in place of c, and not g ---- */

enum { OF_C, OF_G, OF_GC, OF_GG, ALONG };

INLINE void add_products(const element_t *x, const element_t *dy, const double *gamma, int run,
                         double near, double low, bool centred, doubles s[ALONG][VECTORS])
{
#pragma GCC unroll AT_ONCE
    for (int v = 0; v < VECTORS; v++) {
        doubles c[RUN], g[RUN], t[RUN];
#pragma GCC unroll 8
        for (int i = 0; i < run; i++) {
            int at = LANES * i + L * v;
            c[i] = wide(x + at);
            if (centred)
                c[i] = (c[i] - near) - low;
            g[i] = wide(dy + at) * LOAD(doubles, gamma + at); /* exact: 24 bits times 24 bits */
            t[i] = g[i] * g[i];
        }
        s[OF_GG][v] += in_pairs(t, run);
#pragma GCC unroll 8
        for (int i = 0; i < run; i++)
            t[i] = g[i] * c[i];
        s[OF_GC][v] += in_pairs(t, run);
        if (centred)
            s[OF_G][v] += in_pairs(g, run);
#pragma GCC unroll 8
        for (int i = 0; i < run; i++)
            c[i] = centred ? c[i] : c[i] * c[i];
        s[OF_C][v] += in_pairs(c, run);
    }
}

INLINE void add_last_products(const element_t *x, const element_t *dy, const double *gamma,
                              int64_t n, double near, double low, bool centred,
                              doubles s[ALONG][VECTORS])
{
    double terms[ALONG][LANES] = {{0}};
    for (int64_t j = 0; j < n; j++) {
        double c = ((double)to_float(x[j]) - near) - low, g = (double)to_float(dy[j]) * gamma[j];
        terms[OF_C][j] = centred ? c : c * c;
        terms[OF_G][j] = g;
        terms[OF_GC][j] = g * c;
        terms[OF_GG][j] = g * g;
    }
    for (int k = 0; k < ALONG; k++)
        for (int v = 0; v < VECTORS; v++)
            s[k][v] += LOAD(doubles, terms[k] + L * v);
}

/* Add the products over a block of n <= COLUMNS elements to the lanes of a row. */
INLINE void add_block_products(const element_t *x, const element_t *dy, const double *gamma,
                               int64_t n, double near, double low, bool centred, int64_t size,
                               lanes_t lanes[ALONG])
{
    doubles s[ALONG][VECTORS] = {{{0}}};
#define ADD(offset, run) \
    add_products(x + (offset), dy + (offset), gamma + (offset), run, near, low, centred, s)
#define REST(offset, count) \
    add_last_products(x + (offset), dy + (offset), gamma + (offset), count, near, low, centred, s)
    FOR_EACH_PIECE(n, ADD, REST);
#undef ADD
#undef REST
    for (int k = 0; k < ALONG; k++)
        add_block(&lanes[k], s[k], size);
}

/* ---- the errors of mean, w and r ---- */

INLINE double error_of_mean(double low, double v, double h) /* (E3) */
{
    return (h + 2) * U * sqrt(v + low * low);
}
INLINE double error_of_w(double low, double v, double w, double h) /* relative, (E4) */
{
    double square = v + low * low;
    return ((h + 6) * U * square + 2 * fabs(low) * error_of_mean(low, v, h)) / w + U;
}
INLINE double error_of_r(double err_w) { return err_w / 2 + 2 * U; } /* relative, (E5) */

#endif

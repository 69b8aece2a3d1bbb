/* Sums along a row in float64, in an order that does not depend on the instruction set.

   A row is taken COLUMNS terms at a time, in LANES partial sums. Within such a block, pieces of
   128 terms add eight terms a lane in pairs of pairs, eight products in two chains; what is left
   over is cut into pieces of 64, 32 and 16 terms and a last one that is filled up with zeros.
   Pieces are added to the lanes from the smallest to the largest, so that no term goes through
   more than seven additions; four more fold the lanes, those of eight rows together. Blocks after
   the first are added to the lanes of the row by TwoSum: what is rounded off has lanes of its own.
   Rows longer than SEGMENT are summed in segments, whose sums are added by TwoSum again: threads
   can share a row, and the bits are the same if they do not.
   (Depth h of docs/inside/error-analysis.md: `depth_of_sum`.) */
#ifndef TRUENORM_SUMS_H
#define TRUENORM_SUMS_H

#include "elements.h"

enum {
    RUN = 8,
    PIECE = RUN * LANES,
    KEPT = 4, /* blocks of columns whose parameters are widened once a call */
    AT_ONCE = L == 2 ? 1 : VECTORS, /* vectors in one loop: unrolling eight takes long to compile */
};

/* Additions that a term goes through, at most. */
INLINE double depth_of_sum(int64_t size)
{
    return size > SEGMENT ? 13 : size > COLUMNS ? 12 : 11;
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

/* The sum of the products of `run` vectors, in two chains of multiply-adds. */
INLINE doubles sum_of_products(const doubles *a, const doubles *b, int run)
{
    int half = run / 2;
    doubles t = a[0] * b[0], t2 = a[half] * b[half];
    if (run <= 2)
        return run == 2 ? multiply_add(a[1], b[1], t) : t;
#pragma GCC unroll 4
    for (int i = 1; i < half; i++) {
        t = multiply_add(a[i], b[i], t);
        t2 = multiply_add(a[half + i], b[half + i], t2);
    }
    return t + t2;
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

/* The lanes of a row when half of them are added to the others, and again where a vector has
   four. */
typedef struct {
    doubles lanes[L == 2 ? 2 : 1];
} folded_t;

INLINE folded_t folded(const doubles *lanes)
{
    folded_t f;
#if L == 8
    f.lanes[0] = lanes[0] + lanes[1];
#elif L == 4
    f.lanes[0] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
#else
    f.lanes[0] = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6]);
    f.lanes[1] = (lanes[1] + lanes[5]) + (lanes[3] + lanes[7]);
#endif
    return f;
}

/* The same of a row of several blocks. */
INLINE folded_t folded_row(const lanes_t *row, int64_t size)
{
    folded_t f = folded(row->sum);
    if (size > COLUMNS) {
        folded_t rest = folded(row->rounded_off);
        for (size_t v = 0; v < sizeof f / sizeof(doubles); v++)
            f.lanes[v] += rest.lanes[v];
    }
    return f;
}

/* Finish the sums of GROUP rows. Vectors of different rows are transposed, so that one addition
   serves several rows. */
INLINE void add_folded(const folded_t *rows, double *sums)
{
#if L == 8
    doubles t[4], s[2];
    for (int k = 0; k < 4; k++) {
        __m512d a = (__m512d)rows[k].lanes[0], b = (__m512d)rows[k + 4].lanes[0];
        t[k] = (doubles)_mm512_shuffle_f64x2(a, b, 0x44) +
               (doubles)_mm512_shuffle_f64x2(a, b, 0xEE);
    }
    for (int k = 0; k < 2; k++)
        s[k] = (doubles)_mm512_unpacklo_pd((__m512d)t[2 * k], (__m512d)t[2 * k + 1]) +
               (doubles)_mm512_unpackhi_pd((__m512d)t[2 * k], (__m512d)t[2 * k + 1]);
    __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    __m512i second = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    STORE(sums, (doubles)_mm512_permutex2var_pd((__m512d)s[0], first, (__m512d)s[1]) +
                    (doubles)_mm512_permutex2var_pd((__m512d)s[0], second, (__m512d)s[1]));
#elif L == 4
    for (int k = 0; k < GROUP; k += 4) {
        doubles s[2];
        for (int i = 0; i < 2; i++) {
            __m256d a = (__m256d)rows[k + 2 * i].lanes[0];
            __m256d b = (__m256d)rows[k + 2 * i + 1].lanes[0];
            s[i] = (doubles)_mm256_unpacklo_pd(a, b) + (doubles)_mm256_unpackhi_pd(a, b);
        }
        STORE(sums + k, (doubles)_mm256_permute2f128_pd((__m256d)s[0], (__m256d)s[1], 0x20) +
                            (doubles)_mm256_permute2f128_pd((__m256d)s[0], (__m256d)s[1], 0x31));
    }
#else
    for (int k = 0; k < GROUP; k++) {
        const doubles *t = rows[k].lanes;
        sums[k] = (t[0][0] + t[0][1]) + (t[1][0] + t[1][1]);
    }
#endif
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

INLINE void add_moments(const element_t *x, int run, double near, bool is_far, bool centred,
                        doubles *s, doubles *q)
{
#pragma GCC unroll AT_ONCE
    for (int v = 0; v < VECTORS; v++) {
        doubles d[RUN];
#pragma GCC unroll 8
        for (int i = 0; i < run; i++) {
            d[i] = wide(x + LANES * i + L * v);
            if (is_far)
                d[i] -= near;
        }
        q[v] += sum_of_products(d, d, run);
        if (centred)
            s[v] += in_pairs(d, run);
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

/* The lanes of the sums of d and of its square over at most SEGMENT elements. A row is far if its
   near is not zero. */
INLINE void sum_segment(const element_t *x, int64_t size, double near, bool is_far, bool centred,
                        folded_t *sum, folded_t *square)
{
    lanes_t sums = {{{0}}, {{0}}}, squares = {{{0}}, {{0}}};
    for (int64_t offset = 0; offset < size; offset += COLUMNS) {
        const element_t *block = x + offset;
        doubles s[VECTORS] = {{0}}, q[VECTORS] = {{0}};
#define ADD(offset, run) add_moments(block + (offset), run, near, is_far, centred, s, q)
#define REST(offset, count) add_last_moments(block + (offset), count, near, s, q)
        FOR_EACH_PIECE(smaller(size - offset, COLUMNS), ADD, REST);
#undef ADD
#undef REST
        if (centred)
            add_block(&sums, s, size);
        add_block(&squares, q, size);
    }
    *sum = folded_row(&sums, size);
    *square = folded_row(&squares, size);
}

/* `sum_segment` of a centred row that is far, not inlined. */
static __attribute__((noinline)) void sum_far_segment(const element_t *x, int64_t size,
                                                      double near, folded_t *sum,
                                                      folded_t *square)
{
    sum_segment(x, size, near, true, true, sum, square);
}

/* The sums over up to GROUP rows. */
INLINE void sum_moments(const element_t *x, int64_t rows, int64_t size, const double *near,
                        bool centred, double *sums, double *squares)
{
    pair_t totals[2][GROUP];
    for (int64_t from = 0; from < size; from += SEGMENT) {
        folded_t s[GROUP] = {{{{0}}}}, q[GROUP] = {{{{0}}}};
        for (int64_t k = 0; k < rows; k++) {
            const element_t *segment = x + k * size + from;
            int64_t n = smaller(size - from, SEGMENT);
            if (centred && near[k] != 0)
                sum_far_segment(segment, n, near[k], &s[k], &q[k]);
            else
                sum_segment(segment, n, 0, false, centred, &s[k], &q[k]);
        }
        add_folded(s, sums);
        add_folded(q, squares);
        for (int k = 0; size > SEGMENT && k < GROUP; k++) {
            if (from == 0)
                totals[0][k] = totals[1][k] = (pair_t){0, 0};
            add_to_pair(&totals[0][k], sums[k]);
            add_to_pair(&totals[1][k], squares[k]);
            sums[k] = totals[0][k].high + totals[0][k].low;
            squares[k] = totals[1][k].high + totals[1][k].low;
        }
    }
}

/* Approximate the mean by the first elements, as a float32 number; zero if many of them differ in
   sign. Any number is valid. For a constant row it is that constant, because the sum is exact. */
INLINE double near_mean(const element_t *x, int64_t size)
{
    enum { SAMPLE = 32, MOST = 24 };
    if (size < SAMPLE) {
        double sum = 0;
        for (int64_t j = 0; j < size; j++)
            sum += to_float(x[j]);
        return (float)(sum / (double)size);
    }
    uint32_t signs = 0;
    for (int j = 0; j < SAMPLE; j += 2 * L)
        signs |= (uint32_t)signs_of(load_floats(x + j)) << j;
    int negative = __builtin_popcount(signs);
    if (SAMPLE - MOST < negative && negative < MOST)
        return 0;
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
    if (low * low <= 0.5 * stats->v[k] || !(square > 0))
        return false;
    stats->near[k] = (float)(stats->near[k] + low);
    return true;
}

/* Sum row k again, about the near that it has now. */
static __attribute__((noinline)) void sum_again(const element_t *x, int64_t size,
                                                statistics_t *stats, double *square, int64_t k)
{
    double low[GROUP] = {0}, squares[GROUP] = {0};
    sum_moments(x + k * size, 1, size, stats->near + k, true, low, squares);
    stats->low[k] = low[0];
    square[k] = squares[0];
    derive_statistics(stats, square, k, size);
}

INLINE void compute_statistics(const element_t *x, int64_t rows, int64_t size, bool centred,
                               statistics_t *stats)
{
    double *near = stats->near, square[GROUP];
    bool is_odd = false;
    for (int64_t k = 0; k < GROUP; k++) {
        near[k] = centred && k < rows ? near_mean(x + k * size, size) : 0.0;
        stats->low[k] = square[k] = 0;
    }
    sum_moments(x, rows, size, near, centred, stats->low, square);
    for (int k = 0; k < GROUP; k++) {
        derive_statistics(stats, square, k, size);
        is_odd |= !(stats->low[k] * stats->low[k] <= 0.5 * stats->v[k]) | !(square[k] < INFINITY);
    }
    for (int64_t k = 0; is_odd && k < rows; k++) {
        if (centred && move_near(stats, square[k], k))
            sum_again(x, size, stats, square, k);
        if (!(square[k] < INFINITY))
            stats->v[k] = NAN;
    }
}

/* ---- backward: the sums of d, g, g*d and g*g; RMSNorm: d*d in place of d, and not g ---- */

enum { OF_C, OF_G, OF_GC, OF_GG, ALONG };

INLINE void add_products(const element_t *x, const element_t *dy, const double *gamma, int run,
                         double near, bool is_far, bool centred, doubles s[ALONG][VECTORS])
{
#pragma GCC unroll AT_ONCE
    for (int v = 0; v < VECTORS; v++) {
        doubles d[RUN], g[RUN];
#pragma GCC unroll 8
        for (int i = 0; i < run; i++) {
            int at = LANES * i + L * v;
            d[i] = wide(x + at);
            if (is_far)
                d[i] -= near;
            g[i] = wide(dy + at) * LOAD(doubles, gamma + at); /* exact: 24 bits times 24 bits */
        }
        s[OF_GG][v] += sum_of_products(g, g, run);
        s[OF_GC][v] += sum_of_products(g, d, run);
        if (centred)
            s[OF_G][v] += in_pairs(g, run);
        s[OF_C][v] += centred ? in_pairs(d, run) : sum_of_products(d, d, run);
    }
}

INLINE void add_last_products(const element_t *x, const element_t *dy, const double *gamma,
                              int64_t n, double near, bool centred, doubles s[ALONG][VECTORS])
{
    double terms[ALONG][LANES] = {{0}};
    for (int64_t j = 0; j < n; j++) {
        double d = (double)to_float(x[j]) - near, g = (double)to_float(dy[j]) * gamma[j];
        terms[OF_C][j] = centred ? d : d * d;
        terms[OF_G][j] = g;
        terms[OF_GC][j] = g * d;
        terms[OF_GG][j] = g * g;
    }
    for (int k = 0; k < ALONG; k++)
        for (int v = 0; v < VECTORS; v++)
            s[k][v] += LOAD(doubles, terms[k] + L * v);
}

/* Add the products over a block of n <= COLUMNS elements to the lanes of a row. */
INLINE void add_block_products(const element_t *x, const element_t *dy, const double *gamma,
                               int64_t n, double near, bool is_far, bool centred, int64_t size,
                               lanes_t lanes[ALONG])
{
    doubles s[ALONG][VECTORS] = {{{0}}};
#define ADD(offset, run) \
    add_products(x + (offset), dy + (offset), gamma + (offset), run, near, is_far, centred, s)
#define REST(offset, count) \
    add_last_products(x + (offset), dy + (offset), gamma + (offset), count, near, centred, s)
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

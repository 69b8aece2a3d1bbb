/* Tier 2: a row in double-double, (F1) to (F4) of docs/inside/error-analysis.md.

   Unlike the reference, nothing is scaled: the sums of float32 numbers and of their products stay
   far inside the range of float64. */
#ifndef TRUENORM_TIER2_H
#define TRUENORM_TIER2_H

#include "sums.h"

enum { BLOCK2 = 1024 }; /* elements added in lanes; blocks of them are added as pairs */

/* H of (F1): a sum along a row is off by at most H*W*sum|terms|. */
INLINE double depth_of_pairs(int64_t size)
{
    double n = (double)(smaller(size, BLOCK2) / LANES) + 6;
    return 2 * (n + 1) * (n + 1) + 3 * (double)(size / BLOCK2 + 1);
}

/* x = near + low + c, w = var + eps and r = 1/sqrt(w). The errors of w and r are relative, that
   of c is 3*W*|c| + centring. */
typedef struct {
    double near, spread, centring, err_w, err_r;
    pair_t low, w, r;
} row2_t;

INLINE void accumulate(pairs_t *sum, doubles high, doubles low)
{
    pairs_t s = two_sums(sum->high, high);
    sum->high = s.high;
    sum->low += s.low + low;
}

INLINE pair_t fold_pairs(const pairs_t *sums)
{
    double high[LANES], low[LANES];
    for (int v = 0; v < VECTORS; v++) {
        STORE(high + v * L, sums[v].high);
        STORE(low + v * L, sums[v].low);
    }
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) {
            pair_t s = two_sum(high[k], high[k + half]);
            high[k] = s.high;
            low[k] += low[k + half] + s.low;
        }
    return two_sum(high[0], low[0]);
}

/* The sums of d = x - near and of its square over some elements, as pairs. near is a float32 or
   zero: then d and its square are single numbers, of 24 and 48 bits. */
typedef struct {
    pair_t sum, squares;
} moments2_t;

INLINE moments2_t sum_moments2_of(const element_t *x, int64_t size, double near, bool is_far)
{
    moments2_t totals = {{0, 0}, {0, 0}};
    for (int64_t start = 0; start < size; start += BLOCK2) {
        pairs_t s[VECTORS] = {{{0}, {0}}}, q[VECTORS] = {{{0}, {0}}};
        int64_t end = smaller(start + BLOCK2, size);
        for (int64_t offset = start; offset < end; offset += LANES)
#pragma GCC unroll AT_ONCE
            for (int v = 0; v < VECTORS; v++) {
                int64_t at = offset + v * L;
                if (at >= end)
                    break;
                pairs_t d = {wide_or(x + at, end - at, (float)near), {0}};
                if (is_far)
                    d = two_sums(d.high, all(-near));
                accumulate(&s[v], d.high, d.low);
                pairs_t p = {d.high * d.high, {0}};
                if (is_far) {
                    p = two_products(d.high, d.high);
                    p.low += 2 * d.high * d.low;
                }
                accumulate(&q[v], p.high, p.low);
            }
        totals.sum = add(totals.sum, fold_pairs(s));
        totals.squares = add(totals.squares, fold_pairs(q));
    }
    return totals;
}

static inline moments2_t sum_moments2(const element_t *x, int64_t size, double near)
{
    return near == 0 ? sum_moments2_of(x, size, 0, false) : sum_moments2_of(x, size, near, true);
}

/* The mean of a row less near, w and r, as pairs with bounds. */
static inline void derive_row2(const call_t *call, moments2_t moments, double near, row2_t *row)
{
    int64_t size = call->size;
    pair_t low = {0, 0}, square = divide_double(moments.squares, (double)size), v = square;
    double h = depth_of_pairs(size), s = sqrt(square.high);
    row->centring = TINY; /* (R3) */
    if (call->centred) {
        low = divide_double(moments.sum, (double)size);
        v = add(square, negative(multiply(low, low)));
        row->centring = SLACK * (h + 10) * W * s; /* (F2), (C3) */
    }
    double err_v =
        SLACK * (h + 21) * W * square.high + 2 * fabs(low.high) * row->centring; /* (F3) */
    row->near = near;
    row->low = low;
    row->spread = s;
    row->w = add_double(v, call->eps);
    row->err_w = err_v / row->w.high + 4 * W; /* (F4) */
    row->r = inverse_root(row->w);
    row->err_r = row->err_w / 2 * SLACK + 32 * W;
}

INLINE void compute_row2(const call_t *call, const element_t *x, double near, row2_t *row)
{
    derive_row2(call, sum_moments2(x, call->size, near), near, row);
}

INLINE pair_t centred_element(const row2_t *row, float x)
{
    return add(two_sum((double)x, -row->near), negative(row->low));
}

#endif

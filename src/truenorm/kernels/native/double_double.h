/* Double-double arithmetic for scalars and vectors: a pair of float64 is the unevaluated sum of
   both.

   Bounds in units of W = 2**-106 (Joldes, Muller and Popescu, 2017, rounded up). No operation
   here overflows or underflows: the inputs are float32 and eps lies within 2**+-200. */
#ifndef TRUENORM_DOUBLE_DOUBLE_H
#define TRUENORM_DOUBLE_DOUBLE_H

#include "vectors.h"

typedef struct {
    double high, low;
} pair_t;
typedef struct {
    doubles high, low;
} pairs_t;

/* a + b exactly (Knuth). */
INLINE pair_t two_sum(double a, double b)
{
    double s = a + b, t = s - a;
    return (pair_t){s, (a - (s - t)) + (b - t)};
}
INLINE pairs_t two_sums(doubles a, doubles b)
{
    doubles s = a + b, t = s - a;
    return (pairs_t){s, (a - (s - t)) + (b - t)};
}

/* a + b exactly for |a| >= |b| (Dekker). */
INLINE pair_t fast_two_sum(double a, double b)
{
    double s = a + b;
    return (pair_t){s, b - (s - a)};
}

/* a*b exactly: by a fused multiply-add, or by Dekker's splitting where there is none. */
#if HAS_FMA
INLINE pair_t two_product(double a, double b)
{
    double p = a * b;
    return (pair_t){p, __builtin_fma(a, b, -p)};
}
INLINE pairs_t two_products(doubles a, doubles b)
{
    doubles p = a * b;
    return (pairs_t){p, multiply_add(a, b, -p)};
}
#else
#define SPLIT(type, x, high, low) \
    type high = (x)*0x8000001p0;  \
    high = high - (high - (x));   \
    type low = (x)-high
INLINE pair_t two_product(double a, double b)
{
    double p = a * b;
    SPLIT(double, a, ah, al);
    SPLIT(double, b, bh, bl);
    return (pair_t){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}
INLINE pairs_t two_products(doubles a, doubles b)
{
    doubles p = a * b;
    SPLIT(doubles, a, ah, al);
    SPLIT(doubles, b, bh, bl);
    return (pairs_t){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}
#endif

INLINE pair_t add(pair_t a, pair_t b) /* 3 W */
{
    pair_t s = two_sum(a.high, b.high), t = two_sum(a.low, b.low);
    s = fast_two_sum(s.high, s.low + t.high);
    return fast_two_sum(s.high, s.low + t.low);
}
INLINE pair_t negative(pair_t a) { return (pair_t){-a.high, -a.low}; }
INLINE pair_t add_double(pair_t a, double b) /* 2 W */
{
    pair_t s = two_sum(a.high, b);
    return fast_two_sum(s.high, a.low + s.low);
}
INLINE pair_t multiply(pair_t a, pair_t b) /* 7 W */
{
    pair_t p = two_product(a.high, b.high);
    return fast_two_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}
INLINE pair_t multiply_double(pair_t a, double b) /* 3 W */
{
    pair_t p = two_product(a.high, b);
    return fast_two_sum(p.high, p.low + a.low * b);
}
INLINE pair_t divide_double(pair_t a, double b) /* 4 W */
{
    double q = a.high / b;
    pair_t p = two_product(q, b);
    return fast_two_sum(q, ((a.high - p.high) - p.low + a.low) / b);
}
INLINE pair_t divide(pair_t a, pair_t b) /* 15 W */
{
    double q = a.high / b.high;
    pair_t p = multiply_double(b, q);
    return fast_two_sum(q, ((a.high - p.high) + (a.low - p.low)) / b.high);
}
INLINE pair_t inverse_root(pair_t a) /* 32 W: a Newton step from 1/sqrt of the high part */
{
    double r = 1 / sqrt(a.high);
    pair_t product = multiply(two_product(r, r), a);
    double e = (1 - product.high) - product.low;
    return fast_two_sum(r, r * (e * (0.5 + 0.375 * e)));
}

/* The same of vectors. */
INLINE pairs_t fast_two_sums(doubles a, doubles b)
{
    doubles s = a + b;
    return (pairs_t){s, b - (s - a)};
}
INLINE pairs_t add_pairs(pairs_t a, pairs_t b) /* 3 W */
{
    pairs_t s = two_sums(a.high, b.high), t = two_sums(a.low, b.low);
    s = fast_two_sums(s.high, s.low + t.high);
    return fast_two_sums(s.high, s.low + t.low);
}
INLINE pairs_t negatives(pairs_t a) { return (pairs_t){-a.high, -a.low}; }
INLINE pairs_t multiply_pairs(pairs_t a, pairs_t b) /* 7 W */
{
    pairs_t p = two_products(a.high, b.high);
    return fast_two_sums(p.high, p.low + (a.high * b.low + a.low * b.high));
}
INLINE pairs_t multiply_doubles(pairs_t a, doubles b) /* 3 W */
{
    pairs_t p = two_products(a.high, b);
    return fast_two_sums(p.high, p.low + a.low * b);
}
INLINE pairs_t all_pairs(pair_t a) { return (pairs_t){all(a.high), all(a.low)}; }

#endif

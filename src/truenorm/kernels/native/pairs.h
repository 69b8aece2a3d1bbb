/* Float64 rows: vectors of pairs, sums along a row as pairs, the processor's status flags.

   Nothing is scaled. Sums along a row are checked by their magnitude: see `is_in_range`. The
   processor's flags show that an operation on elements left the range of float64: the driver
   computes such a row. (C6) to (C13) of docs/inside/error-analysis.md. */
#ifndef TRUENORM_PAIRS_H
#define TRUENORM_PAIRS_H

#undef ELEMENT
#define ELEMENT float64
#include "rounding.h"

#if defined(__x86_64__) || defined(__i386__)
#include <emmintrin.h>
#elif !defined(__aarch64__)
#include <fenv.h>
#endif

#define NOT_INLINE static __attribute__((noinline, unused))

/* Sums over rows of fast mode, side by side. */
enum { FAST_DGAMMA_HIGH, FAST_DGAMMA_LOW, FAST_DBETA_HIGH, FAST_DBETA_LOW, FAST_SUMS64 };

/* fast64.c and forward64.c */
outcome_t NAME(fast_forward)(const call_t *call, int64_t from, int64_t to);
outcome_t NAME(fast_backward)(const call_t *call, int64_t from, int64_t to, bool starts,
                              double *sums);
void NAME(fast_merge)(double *sums, const double *others, int64_t size);
int64_t NAME(fast_round)(const call_t *call, const double *sums);
int64_t NAME(statistics)(const call_t *call, int64_t from, int64_t to);
outcome_t NAME(forward)(const call_t *call, int64_t from, int64_t to);

/* ---- status flags: invalid operation, overflow and inexact underflow ---- */

/* A compiler does not know that arithmetic sets flags: it may infer that a function only reads
   memory, and call it before. */
#define ARITHMETIC_FOLLOWS() __asm__ volatile("" ::: "memory")

#if defined(__x86_64__) || defined(__i386__)
INLINE bool has_left_range(void) { return (_mm_getcsr() & 0x19u) != 0; }
INLINE void clear_flags(void)
{
    if (has_left_range())
        _mm_setcsr(_mm_getcsr() & ~0x19u);
    ARITHMETIC_FOLLOWS();
}
#elif defined(__aarch64__)
INLINE bool has_left_range(void)
{
    uint64_t flags;
    __asm__ volatile("mrs %0, fpsr" : "=r"(flags));
    return (flags & 0xD) != 0;
}
INLINE void clear_flags(void)
{
    __asm__ volatile("msr fpsr, %0" : : "r"((uint64_t)0));
    ARITHMETIC_FOLLOWS();
}
#else
INLINE bool has_left_range(void)
{
    return fetestexcept(FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW) != 0;
}
INLINE void clear_flags(void)
{
    feclearexcept(FE_ALL_EXCEPT);
    ARITHMETIC_FOLLOWS();
}
#endif

/* ---- vectors ---- */

#if L == 8
INLINE doubles larger(doubles a, doubles b)
{
    return (doubles)_mm512_max_pd((__m512d)a, (__m512d)b);
}
#elif L == 4
INLINE doubles larger(doubles a, doubles b)
{
    return (doubles)_mm256_max_pd((__m256d)a, (__m256d)b);
}
#elif defined(__x86_64__) || defined(__i386__)
INLINE doubles larger(doubles a, doubles b)
{
    return (doubles)_mm_max_pd((__m128d)a, (__m128d)b);
}
#else
INLINE doubles larger(doubles a, doubles b)
{
    longs is_larger = a > b;
    return (doubles)(((longs)a & is_larger) | ((longs)b & ~is_larger));
}
#endif

/* Exchange elements whose indices differ by `distance`: 4, 2 or 1. */
INLINE doubles exchanged(doubles x, int distance)
{
#if L == 8
    __m512d t = (__m512d)x;
    return (doubles)(distance == 4   ? _mm512_shuffle_f64x2(t, t, 0x4E)
                     : distance == 2 ? _mm512_shuffle_f64x2(t, t, 0xB1)
                                     : _mm512_permute_pd(t, 0x55));
#elif L == 4
    __m256d t = (__m256d)x;
    return (doubles)(distance == 2 ? _mm256_permute2f128_pd(t, t, 1) : _mm256_permute_pd(t, 5));
#else
    (void)distance;
    return (doubles){x[1], x[0]};
#endif
}

INLINE double largest_of_lanes(doubles x)
{
    for (int distance = L / 2; distance > 0; distance /= 2)
        x = larger(x, exchanged(x, distance));
    return x[0];
}
INLINE double sum_of(doubles x)
{
    for (int distance = L / 2; distance > 0; distance /= 2)
        x += exchanged(x, distance);
    return x[0];
}

/* True if a bit is set in any element. */
INLINE bool any_long(longs x)
{
#if L == 8
    return _mm512_test_epi64_mask((__m512i)x, (__m512i)x) != 0;
#elif L == 4
    return !_mm256_testz_si256((__m256i)x, (__m256i)x);
#else
    return (x[0] | x[1]) != 0;
#endif
}

/* A vector of which n >= 0 elements are loaded; the others are `value`. */
INLINE doubles load_or(const double *x, int64_t n, double value)
{
    if (n >= L)
        return LOAD(doubles, x);
    double filled[L];
    for (int k = 0; k < L; k++)
        filled[k] = k < n ? x[k] : value;
    return LOAD(doubles, filled);
}

INLINE doubles roots(doubles x)
{
#if L == 8
    return (doubles)_mm512_sqrt_pd((__m512d)x);
#elif L == 4
    return (doubles)_mm256_sqrt_pd((__m256d)x);
#else
    return (doubles){sqrt(x[0]), sqrt(x[1])};
#endif
}

/* ---- vectors of pairs: more functions of double_double.h ---- */

INLINE pairs_t add_doubles(pairs_t a, doubles b) /* 2 W */
{
    pairs_t s = two_sums(a.high, b);
    return fast_two_sums(s.high, a.low + s.low);
}
INLINE pairs_t divide_doubles(pairs_t a, doubles b) /* 4 W */
{
    doubles q = a.high / b;
    pairs_t p = two_products(q, b);
    return fast_two_sums(q, ((a.high - p.high) - p.low + a.low) / b);
}
INLINE pairs_t inverse_roots(pairs_t a) /* 32 W */
{
    doubles r = 1 / roots(a.high);
    pairs_t product = multiply_pairs(two_products(r, r), a);
    doubles e = (1 - product.high) - product.low;
    return fast_two_sums(r, r * (e * (0.5 + 0.375 * e)));
}

/* The product of a pair and a pair of one row, or a float64, not normalized. */
INLINE pairs_t times_pair(pairs_t a, pair_t b)
{
    pairs_t p = two_products(a.high, all(b.high));
    p.low = multiply_add(a.high, all(b.low), p.low);
    return (pairs_t){p.high, multiply_add(a.low, all(b.high), p.low)};
}
INLINE pairs_t times_doubles(pairs_t a, doubles b)
{
    pairs_t p = two_products(a.high, b);
    return (pairs_t){p.high, multiply_add(a.low, b, p.low)};
}
/* The sum of a pair and a pair of one row, not normalized. */
INLINE pairs_t less_pair(pairs_t a, pair_t b)
{
    pairs_t s = two_sums(a.high, all(-b.high));
    return (pairs_t){s.high, s.low + (a.low - b.low)};
}

/* Add a pair to a sum, by TwoSum; low parts are added in float64. */
INLINE void accumulate_pairs(pairs_t *sum, pairs_t term)
{
    pairs_t s = two_sums(sum->high, term.high);
    sum->high = s.high;
    sum->low += s.low + term.low;
}
INLINE void accumulate_doubles(pairs_t *sum, doubles term)
{
    pairs_t s = two_sums(sum->high, term);
    sum->high = s.high;
    sum->low += s.low;
}

INLINE pair_t folded_pairs(pairs_t lanes)
{
    for (int distance = L / 2; distance > 0; distance /= 2)
        lanes = add_pairs(lanes, (pairs_t){exchanged(lanes.high, distance),
                                           exchanged(lanes.low, distance)});
    return (pair_t){lanes.high[0], lanes.low[0]};
}

/* Rounding test: round both ends of the bracket. Return a mask of elements whose ends differ or
   are NaN. The low part minus the bound is rounded, and then the sum once. */
INLINE longs round_both(pairs_t z, doubles bound, doubles *lower)
{
    *lower = z.high + (z.low - bound);
    return *lower != z.high + (z.low + bound);
}

/* ---- rows ---- */

/* Numbers of the rows of a group, side by side for vectors. */
typedef struct {
    double high[GROUP], low[GROUP];
} group_t;

INLINE pairs_t pairs_of(const group_t *group, int k)
{
    return (pairs_t){LOAD(doubles, group->high + k), LOAD(doubles, group->low + k)};
}
INLINE void put_pairs(group_t *group, int k, pairs_t pairs)
{
    STORE(group->high + k, pairs.high);
    STORE(group->low + k, pairs.low);
}
INLINE void put_pair(group_t *group, int64_t k, pair_t pair)
{
    group->high[k] = pair.high;
    group->low[k] = pair.low;
}
INLINE pair_t pair_of(const group_t *group, int64_t k)
{
    return (pair_t){group->high[k], group->low[k]};
}

/* Rows of a group: their elements stay in the cache between the sums and the results. */
INLINE int64_t rows_of_group(int64_t size)
{
    int64_t rows = (1 << 15) / size;
    return rows < 1 ? 1 : smaller(rows, GROUP);
}

INLINE const double *row_of(const void *rows, int64_t i, int64_t size)
{
    return (const double *)rows + i * size;
}

/* Defaults of gamma and beta for a block of columns. */
static const double ONES[COLUMNS] = {[0 ... COLUMNS - 1] = 1.0}, ZEROS[COLUMNS] = {0};
INLINE const double *gamma_of(const call_t *call, int64_t offset)
{
    return call->gamma ? (const double *)call->gamma + offset : ONES;
}
INLINE const double *beta_of(const call_t *call, int64_t offset)
{
    return call->beta ? (const double *)call->beta + offset : ZEROS;
}

INLINE bool is_finite_row(const double *x, int64_t size)
{
    bool finite = true;
    for (int64_t j = 0; j < size; j++)
        finite &= fabs(x[j]) < INFINITY;
    return finite;
}

/* True if a row is constant; RMSNorm: zero. */
INLINE bool has_no_spread(const double *x, int64_t size, bool centred)
{
    double first = centred ? x[0] : 0;
    for (int64_t j = 0; j < size; j++)
        if (x[j] != first)
            return false;
    return true;
}

/* Saved by correct mode: the power of two of the mean of a row plus BY_PAIRS; see tuning.py. */
#define BY_PAIRS (-0x1p12)
INLINE int saved_exponent(const double *saved)
{
    double exponent = saved[2] - BY_PAIRS;
    return exponent > -2200 && exponent < 2200 ? (int)exponent : 0;
}
INLINE pair_t saved_mean(const double *saved)
{
    int exponent = saved_exponent(saved);
    return (pair_t){ldexp(saved[0], exponent), ldexp(saved[1], exponent)};
}

INLINE const double *saved_of(const call_t *call, int64_t i)
{
    return call->saved + (call->centred ? 3 * i : i);
}

/* Saved as the last number of a row that the driver computes as a whole, with its statistics. */
#define FAR (-INFINITY)

/* The status of a row whose sums left the range of float64. */
INLINE uint8_t far_status(const call_t *call, const double *x, bool centred)
{
    if (!is_finite_row(x, call->size))
        return UNDEFINED;
    return call->eps == 0 && has_no_spread(x, call->size, centred) ? UNDEFINED : UNDECIDED;
}

/* Write y of a constant row: beta. Return False if a parameter is not finite. */
NOT_INLINE bool write_constant(const call_t *call, int64_t i)
{
    double *y = (double *)row_of(call->out, i, call->size);
    bool finite = true;
    for (int64_t offset = 0; offset < call->size; offset += COLUMNS) {
        int64_t n = smaller(call->size - offset, COLUMNS);
        const double *gamma = gamma_of(call, offset), *beta = beta_of(call, offset);
        for (int64_t j = 0; j < n; j++) {
            y[offset + j] = beta[j] + 0.0;
            finite &= fabs(y[offset + j]) < INFINITY && fabs(gamma[j]) < INFINITY;
        }
    }
    return finite;
}

/* Structure check: True if g is constant along a row, so that dx is zero (D21); RMSNorm: if g is
   zero. The caller checks that no product left the range. */
NOT_INLINE bool is_constant_g(const call_t *call, int64_t i)
{
    const double *dy = row_of(call->dy, i, call->size);
    double gamma = gamma_of(call, 0)[0];
    if (!call->centred && dy[0] != 0 && gamma != 0)
        return false;
    pair_t first = two_product(dy[0], gamma);
    for (int64_t j = call->size - 1; j > 0; j--) {
        pair_t g = {dy[j], 0};
        if (call->gamma)
            g = two_product(dy[j], gamma_of(call, j)[0]);
        if (g.high != first.high || g.low != first.low)
            return false;
    }
    return true;
}
INLINE bool is_zero_dx(const call_t *call, int64_t i)
{
    clear_flags();
    return is_constant_g(call, i) && !has_left_range();
}

/* ---- sums along a row, as pairs ---- */

enum {
    WAYS = 2,             /* vectors of partial sums */
    STEPS = 32,           /* additions to each, after which they are added as pairs */
    STRETCH = STEPS * WAYS * L, /* elements */
};

/* H of (C6): a sum along a row is off by at most H*W*sum|terms|. */
INLINE double depth_of_row(int64_t size)
{
    double n = (double)smaller((size + WAYS * L - 1) / (WAYS * L), STEPS);
    return n * n / 2 + 4.5 * n + 3 + 3 * (double)(size / STRETCH + 1) + 12;
}

/* d = x - near and its square; backward: g = gamma*dy and g*d. */
enum { SUM_D, SUM_DD, SUM_G, SUM_GD, SUMS_ALONG };

/* Sizes, in float64: the largest |x|; backward: the sums of |g| and |g*d|. */
enum { LARGEST, SIZE_G = LARGEST, SIZE_GD, SIZES };

typedef struct {
    pairs_t of[SUMS_ALONG][WAYS];
    doubles sizes[SIZES];
} along_t;

INLINE void add_terms(along_t *sums, int way, doubles x, doubles dy, doubles gamma, double near,
                      bool shifted, bool centred, bool backward)
{
    pairs_t d = {x, {0}}, square = two_products(x, x);
    if (shifted) {
        d = two_sums(x, all(-near));
        square = two_products(d.high, d.high);
        square.low = multiply_add(d.high + d.high, d.low, square.low);
        accumulate_pairs(&sums->of[SUM_D][way], d);
    } else if (centred) {
        accumulate_doubles(&sums->of[SUM_D][way], x);
    }
    accumulate_pairs(&sums->of[SUM_DD][way], square);
    if (!backward) {
        sums->sizes[LARGEST] = larger(absolute(x), sums->sizes[LARGEST]);
        return;
    }
    pairs_t g = two_products(dy, gamma), product = two_products(g.high, d.high);
    product.low = multiply_add(g.low, d.high, product.low);
    if (shifted)
        product.low = multiply_add(g.high, d.low, product.low);
    if (centred)
        accumulate_pairs(&sums->of[SUM_G][way], g);
    accumulate_pairs(&sums->of[SUM_GD][way], product);
    sums->sizes[SIZE_G] += absolute(g.high);
    sums->sizes[SIZE_GD] += absolute(product.high);
}

/* Sum along a row, and store the sums with those of other rows. */
INLINE void sum_row(const call_t *call, int64_t i, double near, bool shifted, bool centred,
                    bool backward, int64_t k, group_t sums[SUMS_ALONG], double sizes[SIZES][GROUP])
{
    int64_t size = call->size;
    const double *x = row_of(call->x, i, size), *dy = backward ? row_of(call->dy, i, size) : x;
    along_t row;
    memset(&row, 0, sizeof row);
    for (int64_t offset = 0; offset < size; offset += STRETCH) {
        const double *gamma = gamma_of(call, offset);
        int64_t n = smaller(size - offset, STRETCH), j = 0;
        along_t part;
        memset(&part, 0, sizeof part);
        memcpy(part.sizes, row.sizes, sizeof part.sizes);
        for (; j + WAYS * L <= n; j += WAYS * L)
#pragma GCC unroll 2
            for (int way = 0; way < WAYS; way++) {
                int64_t at = j + way * L;
                add_terms(&part, way, LOAD(doubles, x + offset + at), LOAD(doubles, dy + offset + at),
                          LOAD(doubles, gamma + at), near, shifted, centred, backward);
            }
#pragma GCC unroll 2
        for (int way = 0; way < WAYS; way++) {
            int64_t at = j + way * L, rest = n - at;
            if (rest > 0)
                add_terms(&part, way, load_or(x + offset + at, rest, near),
                          load_or(dy + offset + at, rest, 0), load_or(gamma + at, rest, 0), near,
                          shifted, centred, backward);
        }
        memcpy(row.sizes, part.sizes, sizeof part.sizes);
        for (int s = 0; s < SUMS_ALONG; s++)
            for (int way = 0; way < WAYS; way++) {
                pairs_t t = two_sums(part.of[s][way].high, part.of[s][way].low);
                row.of[s][way] = offset ? add_pairs(row.of[s][way], t) : t;
            }
    }
    for (int s = 0; s < (backward ? SUMS_ALONG : 2); s++)
        put_pair(&sums[s], k, folded_pairs(add_pairs(row.of[s][0], row.of[s][1])));
    doubles first = row.sizes[LARGEST];
    sizes[LARGEST][k] = backward ? sum_of(first) : largest_of_lanes(first);
    sizes[SIZE_GD][k] = sum_of(row.sizes[SIZE_GD]);
}

/* The numbers that results of a row are computed from: x = near + low + c and xhat = c*r. */
typedef struct {
    double near;
    pair_t low, r;
} row64_t;

/* xhat, not normalized (C7). */
INLINE pairs_t normalized(doubles x, const row64_t *row, bool shifted, bool centred)
{
    pairs_t d = {x, {0}};
    if (shifted)
        d = two_sums(x, all(-row->near));
    if (centred)
        d = less_pair(d, row->low);
    return times_pair(d, row->r);
}

/* The moments of the rows of a group, with bounds. The errors of w and r are relative, that of c
   is 3*W*|c| + centring. */
typedef struct {
    group_t low, v, w, r;
    double near[GROUP], spread[GROUP], centring[GROUP], err_w[GROUP], err_r[GROUP];
} moments_t;

INLINE void derive_moments(const call_t *call, bool centred, const group_t *sums, moments_t *m)
{
    double h = depth_of_row(call->size);
    for (int k = 0; k < GROUP; k += L) {
        doubles size = all((double)call->size);
        pairs_t low = {{0}, {0}}, square = divide_doubles(pairs_of(&sums[SUM_DD], k), size);
        pairs_t v = square;
        doubles s = roots(square.high), centring = {0};
        if (centred) {
            low = divide_doubles(pairs_of(&sums[SUM_D], k), size);
            v = add_pairs(square, negatives(multiply_pairs(low, low)));
            centring = SLACK * (h + 24) * W * s; /* (C7) */
        }
        doubles err_v = SLACK * (h + 21) * W * square.high + 2 * absolute(low.high) * centring;
        pairs_t w = add_doubles(v, all(call->eps));
        doubles err_w = err_v / w.high + 4 * W; /* (F3), (F4) */
        put_pairs(&m->low, k, low);
        put_pairs(&m->v, k, v);
        put_pairs(&m->w, k, w);
        put_pairs(&m->r, k, inverse_roots(w));
        STORE(m->spread + k, s);
        STORE(m->centring + k, centring);
        STORE(m->err_w + k, err_w);
        STORE(m->err_r + k, err_w * (SLACK / 2) + 32 * W);
    }
}

/* True if underflow in the sums of a row is negligible: less than W times the square of s. */
INLINE bool is_in_range(double s) { return s > 0x1p-450 && s < 0x1p450; }

/* True if near is further from the mean than four times the spread. */
INLINE bool is_far_off(const moments_t *m, int64_t k)
{
    double low = m->low.high[k];
    return !(low * low <= 16 * m->v.high[k]);
}

INLINE row64_t row_from(const moments_t *m, int64_t k)
{
    return (row64_t){m->near[k], pair_of(&m->low, k), pair_of(&m->r, k)};
}

#endif

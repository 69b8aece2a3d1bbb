/* Fixed-point sums of dgamma: terms dy*xhat, each rounded to the unit of its row and added as an
   integer. Compiled per instruction set. Equations (L..): docs/inside/partials.md. */
#include "tier2.h"

typedef uint64_t unsigned_longs __attribute__((vector_size(8 * L))); /* sums that wrap around */

/* A term in units is high*2**HIGH_BITS + low. Adding a bias rounds to multiples of 2**HIGH_BITS,
   or to integers: the bits of the sum are those of the bias plus that integer. */
#define BIAS_HIGH 0x1.8p76
#define BIAS_LOW 0x1.8p52
enum { HIGH_BITS = 24 };
static const uint64_t BITS_HIGH = UINT64_C(0x44B8) << 48, BITS_LOW = UINT64_C(0x4338) << 48;

enum {
    BELOW = 64,              /* bits of the largest term that a row can have (L1) */
    LOWEST = -320,           /* no unit is below 2**LOWEST */
    MOST_ROWS = 1 << 20,     /* of a bin: high parts are at most 2**41 */
    WITHIN_LANE = 5,         /* 2**5 = COLUMNS/LANES terms are added on a grid */
    NO_LIMIT = 1 << 20,      /* an exponent above all others */
};

/* ---- the unit of a row ---- */

/* e with 2**(e - 1) <= x < 2**e, for x of at least 2**-1022. */
INLINE int exponent_above(double x)
{
    int64_t pattern;
    memcpy(&pattern, &x, sizeof pattern);
    return (int)(pattern >> 52 & 0x7FF) - 1022;
}

INLINE double power_of_two(int exponent)
{
    int64_t limbs = (int64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &limbs, sizeof value);
    return value;
}

INLINE floats larger_floats(floats a, floats b)
{
#if L == 8
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif L == 4
    return (floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    bits larger = (bits)(a > b);
    return (floats)(((bits)a & larger) | ((bits)b & ~larger));
#endif
}
INLINE floats smaller_floats(floats a, floats b)
{
#if L == 8
    return (floats)_mm512_min_ps((__m512)a, (__m512)b);
#elif L == 4
    return (floats)_mm256_min_ps((__m256)a, (__m256)b);
#else
    bits smaller = (bits)(a < b);
    return (floats)(((bits)a & smaller) | ((bits)b & ~smaller));
#endif
}

/* The larger of a and |b|, for a >= 0. */
INLINE doubles farther(doubles a, doubles b)
{
#if L == 8
    return (doubles)_mm512_range_pd((__m512d)a, (__m512d)b, 0xB); /* larger magnitude, no sign */
#elif L == 4
    return (doubles)_mm256_max_pd((__m256d)a, (__m256d)absolute(b));
#else
    doubles size = absolute(b);
    longs larger = a > size;
    return (doubles)(((longs)a & larger) | ((longs)size & ~larger));
#endif
}

/* The smallest and the largest x of a row of finite numbers, and the largest |dy|. */
typedef struct {
    double low, high, dy;
} span_t;

INLINE span_t span_of(const element_t *x, const element_t *dy, int64_t size)
{
    enum { CHAINS = 4, WIDTH = 2 * L };
    floats low[CHAINS], high[CHAINS];
    bits dy_bits[CHAINS];
    for (int k = 0; k < CHAINS; k++) {
        low[k] = high[k] = all_floats(to_float(x[0]));
        dy_bits[k] = (bits){0};
    }
    int64_t j = 0;
    for (; j + CHAINS * WIDTH <= size; j += CHAINS * WIDTH)
#pragma GCC unroll 4
        for (int k = 0; k < CHAINS; k++) {
            floats value = load_floats(x + j + WIDTH * k);
            low[k] = smaller_floats(low[k], value);
            high[k] = larger_floats(high[k], value);
            dy_bits[k] = max_bits(dy_bits[k], (bits)load_floats(dy + j + WIDTH * k) & 0x7FFFFFFFu);
        }
    low[0] = smaller_floats(smaller_floats(low[0], low[1]), smaller_floats(low[2], low[3]));
    high[0] = larger_floats(larger_floats(high[0], high[1]), larger_floats(high[2], high[3]));
    dy_bits[0] = max_bits(max_bits(dy_bits[0], dy_bits[1]), max_bits(dy_bits[2], dy_bits[3]));
    float lows[WIDTH], highs[WIDTH], largest_dy;
    STORE(lows, low[0]);
    STORE(highs, high[0]);
    for (int half = L; half > 0; half /= 2)
        for (int k = 0; k < half; k++) {
            lows[k] = lows[k] < lows[k + half] ? lows[k] : lows[k + half];
            highs[k] = highs[k] > highs[k + half] ? highs[k] : highs[k + half];
        }
    uint32_t largest = largest_of(dy_bits[0]);
    memcpy(&largest_dy, &largest, sizeof largest_dy);
    span_t span = {lows[0], highs[0], largest_dy};
    for (; j < size; j++) {
        double value = to_float(x[j]), size_of_dy = fabsf(to_float(dy[j]));
        span.low = value < span.low ? value : span.low;
        span.high = value > span.high ? value : span.high;
        span.dy = size_of_dy > span.dy ? size_of_dy : span.dy;
    }
    return span;
}

/* The reach of a row: an upper bound of |c|. It may be rounded, but always in the same way (L1). */
INLINE double reach_of(span_t span, bool centred)
{
    if (centred)
        return span.high - span.low;
    return fabs(span.low) > fabs(span.high) ? fabs(span.low) : fabs(span.high);
}

/* An h with 1/sqrt(eps) <= 2**h, and the smallest h with sqrt(size) <= 2**h (L1). */
INLINE int half_exponent_of_eps(double eps)
{
    return eps > 0 ? -((exponent_above(eps) - 1) >> 1) : NO_LIMIT;
}
INLINE int half_exponent_of_size(int64_t size)
{
    int bits = 0;
    while ((size - 1) >> bits > 0)
        bits++;
    return (bits + 1) / 2;
}

INLINE int unit_of(double dy, double reach, int of_eps, int of_size) /* (L1) */
{
    int of_xhat = exponent_above(reach) + of_eps;
    int unit = exponent_above(dy) + (of_xhat < of_size ? of_xhat : of_size) - BELOW;
    return unit > LOWEST ? unit : LOWEST;
}

/* ---- mean and r of a row to some 88 bits ---- */

/* Add a term to a sum that has a bias. The sum stays on the grid of its last place, and the
   rounding error goes to the rest; both steps are exact. */
INLINE void add_on_grid(doubles *sum, doubles *rest, doubles term)
{
    doubles next = *sum + term;
    *rest += term - (next - *sum);
    *sum = next;
}
/* The same for d*d, which is exact in float64. */
INLINE void add_square_on_grid(doubles *sum, doubles *rest, doubles d)
{
    doubles next = multiply_add(d, d, *sum);
#if HAS_FMA
    *rest += multiply_add(d, d, *sum - next);
#else
    *rest += d * d - (next - *sum);
#endif
    *sum = next;
}

/* A group of rows, side by side, so that slow operations run in vectors. A sum is HALF pairs for
   each row, which remain to be added. */
enum { HALF = LANES / 2 };
typedef struct {
    double high[HALF][GROUP], low[HALF][GROUP];
} group_sums_t;

INLINE void put_lanes(const pairs_t *lanes, int row, group_sums_t *sums)
{
    double high[HALF], low[HALF];
    for (int v = 0; v < VECTORS / 2; v++) {
        pairs_t s = two_sums(lanes[v].high, lanes[v + VECTORS / 2].high);
        STORE(high + v * L, s.high);
        STORE(low + v * L, s.low + (lanes[v].low + lanes[v + VECTORS / 2].low));
    }
    for (int k = 0; k < HALF; k++) {
        sums->high[k][row] = high[k];
        sums->low[k][row] = low[k];
    }
}

INLINE void fold_group(group_sums_t *sums)
{
    for (int half = HALF / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            for (int i = 0; i < GROUP; i++) {
                pair_t s = two_sum(sums->high[k][i], sums->high[k + half][i]);
                sums->high[k][i] = s.high;
                sums->low[k][i] += sums->low[k + half][i] + s.low;
            }
    for (int i = 0; i < GROUP; i++) {
        pair_t s = two_sum(sums->high[0][i], sums->low[0][i]);
        sums->high[0][i] = s.high;
        sums->low[0][i] = s.low;
    }
}

/* Sum d = x - near and its square over a row, |d| < 2**exponent (L7). d is exact and has at most
   25 bits. */
INLINE void sum_on_grids(const element_t *x, int64_t size, double near, int exponent, bool centred,
                         bool shifted, int row, group_sums_t *of_d, group_sums_t *of_squares)
{
    pairs_t sums[VECTORS], squares[VECTORS];
    doubles bias = all(BIAS_LOW * power_of_two(exponent + WITHIN_LANE - 50));
    doubles square_bias = all(BIAS_LOW * power_of_two(2 * exponent + WITHIN_LANE - 50));
    memset(sums, 0, sizeof sums);
    memset(squares, 0, sizeof squares);
    for (int64_t offset = 0; offset < size; offset += COLUMNS) {
        int64_t end = smaller(offset + COLUMNS, size), at = offset;
        doubles s[VECTORS], s_rest[VECTORS], q[VECTORS], q_rest[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            s[v] = bias;
            q[v] = square_bias;
            s_rest[v] = q_rest[v] = (doubles){0};
        }
        for (; at + LANES <= end; at += LANES)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) {
                doubles d = wide(x + at + L * v);
                if (shifted)
                    d -= near;
                if (centred)
                    add_on_grid(&s[v], &s_rest[v], d);
                add_square_on_grid(&q[v], &q_rest[v], d);
            }
        for (int v = 0; at < end; at += L, v++) {
            doubles d = wide_or(x + at, end - at, (float)near) - near;
            if (centred)
                add_on_grid(&s[v], &s_rest[v], d);
            add_square_on_grid(&q[v], &q_rest[v], d);
        }
        for (int v = 0; v < VECTORS; v++) {
            if (centred)
                accumulate(&sums[v], s[v] - bias, s_rest[v]);
            accumulate(&squares[v], q[v] - square_bias, q_rest[v]);
        }
    }
    put_lanes(sums, row, of_d);
    put_lanes(squares, row, of_squares);
}

/* dy*xhat in units is dy*(x - near)*r + dy*s. `bound` limits the error of any term (L9). */
typedef struct {
    int64_t index;
    int unit;
    double near, mean, bound;
    pair_t r, s;
} factors_t;

/* Rows of a group before their factors are known: |d| < top, 2**-unit and the largest |dy|. */
typedef struct {
    group_sums_t of_d, of_squares;
    double top[GROUP], scale[GROUP], dy[GROUP];
} group_t;

INLINE void derive_factors(const call_t *call, group_t *group, bool centred, factors_t *rows,
                           int n)
{
    double size = (double)call->size, blocks = (double)((call->size + COLUMNS - 1) / COLUMNS);
    double steps = 24 + 2 * blocks + blocks * blocks / 64;
    double err_rests = steps * U * 0x1p-45 + 0x1p8 * W; /* (L7) */
    struct {
        double mean[GROUP], bound[GROUP], r_high[GROUP], r_low[GROUP], s_high[GROUP], s_low[GROUP];
    } results;
    fold_group(&group->of_d);
    fold_group(&group->of_squares);
    for (int k = 0; k < GROUP; k++) {
        double top = group->top[k], dy = group->dy[k], scale = group->scale[k];
        double err_mean = centred ? err_rests * top : 0, err_square = err_rests * top * top;
        pair_t mean = {group->of_d.high[0][k], group->of_d.low[0][k]};
        pair_t square = {group->of_squares.high[0][k], group->of_squares.low[0][k]};
        mean = divide_double(mean, size);
        square = divide_double(square, size);
        pair_t w = add_double(add(square, negative(multiply(mean, mean))), call->eps);
        double err_w =
            (err_square + 2 * fabs(mean.high) * err_mean + 16 * W * square.high) / w.high;
        double err_r = (err_w + 4 * W) / 2 * SLACK + 32 * W; /* (L8) */
        pair_t r = inverse_root(w);
        r = (pair_t){r.high * scale, r.low * scale};
        pair_t s = multiply(negative(mean), r);
        double largest = dy * (top * r.high + fabs(s.high));
        double bound = SLACK * ((err_r + 24 * W) * largest + dy * r.high * err_mean) + 0x1p-27;
        results.mean[k] = mean.high;
        results.bound[k] = bound * call->bound_scale; /* (L9) */
        results.r_high[k] = r.high;
        results.r_low[k] = r.low;
        results.s_high[k] = s.high;
        results.s_low[k] = s.low;
    }
    for (int k = 0; k < n; k++) {
        rows[k].mean = results.mean[k];
        rows[k].bound = results.bound[k];
        rows[k].r = (pair_t){results.r_high[k], results.r_low[k]};
        rows[k].s = (pair_t){results.s_high[k], results.s_low[k]};
    }
}

/* Take up to GROUP rows with terms from `*from` on, and compute their factors. Return how many. */
INLINE int compute_factors(const call_t *call, int64_t *from, int64_t to, bool centred,
                        factors_t rows[GROUP])
{
    int64_t size = call->size;
    int of_eps = half_exponent_of_eps(call->eps), of_size = half_exponent_of_size(size), n = 0;
    group_t group;
    memset(&group, 0, sizeof group);
    for (int k = 0; k < GROUP; k++)
        group.of_squares.high[0][k] = 1; /* of rows that are not there */
    for (; n < GROUP && *from < to; ++*from) {
        if (call->status[*from] != OK && call->status[*from] != UNDECIDED)
            continue;
        const element_t *x = elements_at(call->x, *from * size);
        span_t span = span_of(x, elements_at(call->dy, *from * size), size);
        double reach = reach_of(span, centred);
        if (reach == 0 || span.dy == 0)
            continue; /* all terms are zero, and the row has no unit */
        if (!(reach < INFINITY && span.dy < INFINITY))
            continue; /* the row status is wrong */
        /* Where all x are far from zero, one of them is subtracted. They lie within a factor of
           three, so the difference is exact. Elsewhere the mean is not large compared with the
           reach. */
        double smallest = span.low > -span.high ? span.low : -span.high;
        double near = centred && 2 * smallest > reach ? to_float(x[0]) : 0.0;
        double low = fabs(span.low - near), high = fabs(span.high - near);
        int exponent = exponent_above(low > high ? low : high);
        rows[n] = (factors_t){.index = *from, .unit = unit_of(span.dy, reach, of_eps, of_size)};
        rows[n].near = near;
        group.top[n] = power_of_two(exponent);
        group.scale[n] = power_of_two(-rows[n].unit);
        group.dy[n] = span.dy;
        if (near == 0)
            sum_on_grids(x, size, 0, exponent, centred, false, n, &group.of_d, &group.of_squares);
        else
            sum_on_grids(x, size, near, exponent, true, true, n, &group.of_d, &group.of_squares);
        n++;
    }
    if (n > 0)
        derive_factors(call, &group, centred, rows, n);
    return n;
}

/* ---- terms ---- */

/* L terms: high and low parts with their biases, and the remainders of the low parts. */
typedef struct {
    doubles high, low, remainder;
} vector_of_terms_t;

/* from + a*b on the grid of `from`, and the rest, which is rounded once. */
INLINE doubles add_product(doubles from, doubles a, doubles b, doubles *rest)
{
#if HAS_FMA
    doubles next = multiply_add(a, b, from);
    *rest = multiply_add(a, b, from - next);
#else
    pairs_t p = two_products(a, b);
    doubles next = from + p.high;
    *rest = (p.high - (next - from)) + p.low;
#endif
    return next;
}

/* (x - near) has at most 25 bits, so its product with dy is exact. */
INLINE vector_of_terms_t terms_of(doubles x, doubles dy, const factors_t *row, bool centred,
                                  bool shifted)
{
    doubles p = dy * (shifted ? x - row->near : x), high = all(BIAS_HIGH), err_mean, rest;
    if (centred)
        high = add_product(high, dy, all(row->s.high), &err_mean);
    high = add_product(high, p, all(row->r.high), &rest);
    rest = multiply_add(p, all(row->r.low), rest);
    if (centred)
        rest = multiply_add(dy, all(row->s.low), rest) + err_mean;
    doubles low = rest + BIAS_LOW;
    return (vector_of_terms_t){high, low, rest - (low - BIAS_LOW)};
}

/* Add the terms of a row to a bin, or subtract the same integers, which is exact. Return the
   largest distance of a term from an integer. */
INLINE double add_row(const element_t *restrict x, const element_t *restrict dy, int64_t size,
                      const factors_t *row, bool centred, bool shifted, bool back,
                      int64_t *restrict high, int64_t *restrict low)
{
    doubles farthest = {0};
    vector_of_terms_t t;
#define ADD_TERMS(x_, dy_)                                                     \
    do {                                                                       \
        t = terms_of(x_, dy_, row, centred, shifted);                          \
        unsigned_longs h_ = (unsigned_longs)t.high, l_ = (unsigned_longs)t.low; \
        unsigned_longs high_ = LOAD(unsigned_longs, high + j);                 \
        unsigned_longs low_ = LOAD(unsigned_longs, low + j);                   \
        STORE(high + j, back ? high_ - h_ : high_ + h_);                       \
        STORE(low + j, back ? low_ - l_ : low_ + l_);                          \
        farthest = farther(farthest, t.remainder);                                  \
    } while (0)
    int64_t j = 0;
#pragma GCC unroll 2
    for (; j + L <= size; j += L)
        ADD_TERMS(wide(x + j), wide(dy + j));
    if (j < size) /* filled up; bins have room for it */
        ADD_TERMS(wide_or(x + j, size - j, 0), wide_or(dy + j, size - j, 0));
#undef ADD_TERMS
    double value = 0;
    for (int k = 0; k < L; k++)
        value = farthest[k] > value ? farthest[k] : value;
    return value;
}

static double add_row_of(const call_t *call, const element_t *x, const element_t *dy,
                         const factors_t *row, bool back, int64_t *high, int64_t *low)
{
    int64_t size = call->size;
    if (back) /* seldom: x - 0 is x */
        return call->centred ? add_row(x, dy, size, row, true, true, true, high, low)
                             : add_row(x, dy, size, row, false, false, true, high, low);
    if (!call->centred)
        return add_row(x, dy, size, row, false, false, false, high, low);
    if (row->near == 0)
        return add_row(x, dy, size, row, true, false, false, high, low);
    return add_row(x, dy, size, row, true, true, false, high, low);
}

/* Tier 2 for a term. Return False if it is undecided. */
static bool decide_term(const call_t *call, const row2_t *row, int unit, float x, float dy,
                        int64_t *high, int64_t *low)
{
    double scale = power_of_two(-unit), dy_bits = dy;
    pair_t t = multiply_double(multiply(centred_element(row, x), row->r), dy_bits);
    t = (pair_t){t.high * scale, t.low * scale};
    double bound = SLACK * (fabs(t.high) * (row->err_r + 16 * W) +
                            fabs(dy_bits) * scale * row->r.high * row->centring); /* (F10) */
    bound = bound * call->bound_scale + TINY + 0x1p-50;
    double coarse = rint(t.high * 0x1p-24);
    pair_t rest = two_sum(t.high - coarse * 0x1p24, t.low);
    double fine = rint(rest.high);
    if (!(fabs((rest.high - fine) + rest.low) <= 0.5 - bound)) /* (L3) */
        return false;
    *high = (int64_t)coarse;
    *low = (int64_t)fine;
    return true;
}

/* Round the terms of a row one by one, undecided ones in tier 2. Return False if one remains
   undecided. */
static bool decide_row(const call_t *call, const element_t *x, const element_t *dy,
                       const factors_t *row, int64_t *high, int64_t *low)
{
    row2_t row2;
    compute_row2(call, x, call->centred ? (float)(row->near + row->mean) : 0.0, &row2);
    for (int64_t j = 0; j < call->size; j += L) {
        int64_t n = smaller(L, call->size - j);
        doubles xs = wide_or(x + j, n, 0), dys = wide_or(dy + j, n, 0);
        vector_of_terms_t t = call->centred ? terms_of(xs, dys, row, true, true)
                                            : terms_of(xs, dys, row, false, false);
        STORE(high + j, (unsigned_longs)t.high - BITS_HIGH);
        STORE(low + j, (unsigned_longs)t.low - BITS_LOW);
        for (int64_t k = 0; k < n; k++)
            if (!(fabs(t.remainder[k]) <= 0.5 - row->bound) &&
                !decide_term(call, &row2, row->unit, to_float(x[j + k]), to_float(dy[j + k]),
                             high + j + k, low + j + k))
                return false;
    }
    return true;
}

/* ---- limbs ---- */

/* The limbs of three places from that of 2**exponent on, cleared at their first use. */
typedef struct {
    int64_t *first, *second, *third;
} places_t;

INLINE places_t places_at(limbs_t *limbs, int exponent)
{
    int64_t *at[3], columns = limbs->columns;
    for (int k = 0; k < 3; k++) {
        int index = (exponent >> 5) + k - FIRST_PLACE; /* rounded down, also below zero */
        at[k] = limbs->limbs + index * columns;
        if (!limbs->is_used[index])
            memset(at[k], 0, (size_t)columns * sizeof(int64_t));
        limbs->is_used[index] = true;
    }
    return (places_t){at[0], at[1], at[2]};
}

/* Add high*2**32 + low to a column, 0 <= low < 2**32, in units of 2**shift, shift < 32. The
   third limb takes the rest: the caller ensures that it fits. */
INLINE void deposit(places_t places, int64_t column, int64_t high, uint64_t low, int shift)
{
    const uint64_t mask = 0xFFFFFFFFu;
    low <<= shift;
    uint64_t middle = (((uint64_t)high & mask) << shift) + (low >> LIMB_BITS);
    uint64_t top = ((uint64_t)(high >> LIMB_BITS) << shift) + (middle >> LIMB_BITS);
    places.first[column] += (int64_t)(low & mask);
    places.second[column] += (int64_t)(middle & mask);
    places.third[column] = (int64_t)((uint64_t)places.third[column] + top);
}

/* Add an integer to each column, in units of 2**exponent. */
INLINE void deposit_integers(limbs_t *limbs, const int64_t *restrict values, int exponent)
{
    places_t places = places_at(limbs, exponent);
    int64_t *restrict first = places.first, *restrict second = places.second;
    int64_t *restrict third = places.third, columns = limbs->columns;
    for (int64_t j = 0; j < columns; j++)
        deposit((places_t){first, second, third}, j, values[j] >> LIMB_BITS,
                (uint64_t)values[j] & 0xFFFFFFFFu, exponent & 31);
}

static void empty_bin(term_sums_t *terms, int k)
{
    int64_t size = terms->limbs.columns - 1, count = terms->counts[k];
    int64_t *restrict high = terms->bins + 2 * k * terms->stride;
    int64_t *restrict low = high + terms->stride;
    int unit = (int)terms->units[k], shift = unit & 31;
    if (count == 0)
        return;
    /* Modulo 2**64, in which the sums without bias fit. The last column is the sum of units. */
    const uint64_t of_high = (uint64_t)count * BITS_HIGH, of_low = (uint64_t)count * BITS_LOW;
    high[size] = (int64_t)of_high;
    low[size] = (int64_t)(of_low + (uint64_t)count);
    places_t places = places_at(&terms->limbs, unit);
    int64_t *restrict first = places.first, *restrict second = places.second;
    int64_t *restrict third = places.third;
    for (int64_t j = 0; j <= size; j++) {
        int64_t coarse = (int64_t)((uint64_t)high[j] - of_high);
        int64_t fine =
            (int64_t)((uint64_t)low[j] - of_low + ((uint64_t)(coarse & 0xFF) << HIGH_BITS));
        /* coarse*2**24 + fine as above*2**32 + low: the third limb is below 2**51 then. */
        int64_t above = (coarse >> (LIMB_BITS - HIGH_BITS)) + (fine >> LIMB_BITS);
        deposit((places_t){first, second, third}, j, above, (uint64_t)fine & 0xFFFFFFFFu, shift);
    }
    terms->counts[k] = 0;
}

/* The high parts of the bin of a unit, which has room for another row. */
static int64_t *bin_of(term_sums_t *terms, int unit, int *k)
{
    *k = unit & (BINS - 1);
    if (terms->units[*k] != unit || terms->counts[*k] == MOST_ROWS)
        empty_bin(terms, *k);
    int64_t *bin = terms->bins + 2 * *k * terms->stride;
    if (terms->counts[*k] == 0) {
        terms->units[*k] = unit;
        size_t bytes = (size_t)(terms->limbs.columns + PADDING) * sizeof(int64_t);
        memset(bin, 0, bytes);
        memset(bin + terms->stride, 0, bytes);
    }
    return bin;
}

/* Add the terms of a row to the bin of its unit. Return False if one is undecided: then nothing is
   added. */
static bool add_terms_of_row(const call_t *call, const factors_t *row, term_sums_t *terms)
{
    int64_t size = call->size;
    const element_t *x = elements_at(call->x, row->index * size);
    const element_t *dy = elements_at(call->dy, row->index * size);
    int k;
    int64_t *high = bin_of(terms, row->unit, &k), *low = high + terms->stride;
    if (!(add_row_of(call, x, dy, row, false, high, low) <= 0.5 - row->bound)) {
        int64_t *coarse = terms->bins + 2 * BINS * terms->stride, *fine = coarse + terms->stride;
        add_row_of(call, x, dy, row, true, high, low);
        if (!decide_row(call, x, dy, row, coarse, fine))
            return false;
        for (int64_t j = 0; j < size; j++) { /* with the biases of other rows */
            high[j] = (int64_t)((uint64_t)high[j] + (uint64_t)coarse[j] + BITS_HIGH);
            low[j] = (int64_t)((uint64_t)low[j] + (uint64_t)fine[j] + BITS_LOW);
        }
    }
    terms->counts[k]++;
    return true;
}

/* Add the terms of rows that have a result. Return how many rows have a term that tier 2 leaves
   undecided: nothing of these is added, and they are marked if `undecided` is not NULL. */
int64_t NAME(add_terms)(const call_t *call, int64_t from, int64_t to, term_sums_t *terms,
                        uint8_t *undecided)
{
    int64_t count = 0;
    while (from < to) {
        factors_t rows[GROUP];
        int n = call->centred ? compute_factors(call, &from, to, true, rows)
                              : compute_factors(call, &from, to, false, rows);
        for (int k = 0; k < n; k++)
            if (!add_terms_of_row(call, &rows[k], terms)) {
                count++;
                if (undecided)
                    undecided[rows[k].index] = true;
            }
    }
    return count;
}

/* Empty all bins into the limbs. */
void NAME(empty_bins)(term_sums_t *terms)
{
    for (int k = 0; k < BINS; k++)
        empty_bin(terms, k);
}

/* Add dbeta, which is exact in pairs, to limbs; `buffer` has room for a number per column. All
   dy are multiples of 2**bottom and below 2**top, over fewer than 2**bits rows. */
void NAME(deposit_dbeta)(limbs_t *limbs, const double *sums, int64_t *restrict buffer,
                         int bottom, int top, int bits)
{
    int64_t size = limbs->columns;
    const double *restrict high = sums + DBETA_HIGH * size;
    const double *restrict low = sums + DBETA_LOW * size;
    if (top + bits - bottom <= 61) { /* nearly always: a sum fits in one int64 */
        double scale = power_of_two(-bottom);
        for (int64_t j = 0; j < size; j++)
            buffer[j] = (int64_t)(high[j] * scale) + (int64_t)(low[j] * scale);
        deposit_integers(limbs, buffer, bottom);
        return;
    }
    for (int64_t j = 0; j < 2 * size; j++) {
        int exponent;
        double part = j < size ? high[j] : low[j - size];
        int64_t value = (int64_t)(frexp(part, &exponent) * 0x1p53);
        exponent -= 53;
        if (value != 0)
            deposit(places_at(limbs, exponent), j % size, value >> LIMB_BITS,
                    (uint64_t)value & 0xFFFFFFFFu, exponent & 31);
    }
}

/* Carry from place to place. Every limb then lies in [-2**31, 2**31), which makes the
   representation unique. Return True if the last place is in that range, too. */
bool NAME(carry)(int64_t *limbs, int64_t places, int64_t columns)
{
    const int64_t half = INT64_C(1) << (LIMB_BITS - 1);
    for (int64_t k = 0; k + 1 < places; k++) {
        int64_t *restrict here = limbs + k * columns, *restrict above = here + columns;
        for (int64_t j = 0; j < columns; j++) {
            int64_t carried = (here[j] + half) >> LIMB_BITS;
            above[j] += carried;
            here[j] -= (int64_t)((uint64_t)carried << LIMB_BITS);
        }
    }
    int64_t overflow = 0;
    for (int64_t j = (places - 1) * columns; j < places * columns; j++)
        overflow |= (limbs[j] + half) >> LIMB_BITS;
    return overflow == 0;
}

/* The limbs of a place of a number, or zeros where it has none. */
INLINE const int64_t *place_or(const fixed_point_t *number, int64_t place, int64_t columns,
                               int64_t offset, const int64_t *zeros)
{
    int64_t k = place - number->first;
    return k < 0 || k >= number->places ? zeros : number->limbs + k * columns + offset;
}

/* Add two numbers into canonical limbs from `first` on, carried. Return False if the last carry
   is not zero. Sums wrap around: only limbs of other programs are that large. */
bool NAME(add_numbers)(const fixed_point_t *a, const fixed_point_t *b, int64_t first,
                       int64_t places, int64_t columns, int64_t *sum)
{
    enum { STEP = 256 }; /* columns whose carries stay in the L1 cache */
    int64_t zeros[STEP] = {0}, carries[STEP], carried = 0;
    for (int64_t offset = 0; offset < columns; offset += STEP) {
        int64_t n = smaller(columns - offset, STEP);
        memset(carries, 0, sizeof carries);
        for (int64_t k = 0; k < places; k++) {
            const int64_t *restrict mine = place_or(a, first + k, columns, offset, zeros);
            const int64_t *restrict other = place_or(b, first + k, columns, offset, zeros);
            int64_t *restrict to = sum + k * columns + offset;
            for (int64_t j = 0; j < n; j++) {
                uint64_t total = (uint64_t)mine[j] + (uint64_t)other[j] + (uint64_t)carries[j];
                int64_t above = (int64_t)(total + (UINT64_C(1) << (LIMB_BITS - 1))) >> LIMB_BITS;
                to[j] = (int64_t)(total - ((uint64_t)above << LIMB_BITS));
                carries[j] = above;
            }
        }
        for (int64_t j = 0; j < n; j++)
            carried |= carries[j];
    }
    return carried == 0;
}

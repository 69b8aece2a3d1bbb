/* Backward, correct: what dx of a row and the sums over rows need, tier 1 and tier 2. */
#ifndef TRUENORM_BACKWARD_H
#define TRUENORM_BACKWARD_H

#include "tier2.h"

enum { FAST_SUMS = 2 }; /* float64 numbers a column in the sums of fast mode: dgamma, dbeta */

/* ---- tier 1 ---- */

/* What the elements of a row need; the last five are the coefficients of (E10) and (E12). */
typedef struct {
    double near, low, r, a, q, common, of_g, of_c, of_dy, of_term;
} row_t;

INLINE double saved_variance(const call_t *call, int64_t i)
{
    return call->saved[call->centred ? 3 * i + 2 : i];
}
INLINE double saved_near(const call_t *call, int64_t i)
{
    return call->centred ? call->saved[3 * i] : 0.0;
}
INLINE double saved_low(const call_t *call, int64_t i)
{
    return call->centred ? call->saved[3 * i + 1] : 0.0;
}

/* Derive the numbers of the rows of a group from their means; changed[k] is set if x of row k
   changed since forward. A loop over GROUP rows runs in vectors: roots and quotients take long. */
INLINE void derive_rows(const call_t *call, int64_t start, int64_t n, double means[ALONG][GROUP],
                        bool centred, row_t *rows, bool *changed)
{
    double h = depth_of_sum(call->size), slack = SLACK * call->scale_of_bounds;
    double low[GROUP], v[GROUP], excess[GROUP];
    struct {
        double r[GROUP], a[GROUP], q[GROUP];
        double common[GROUP], of_g[GROUP], of_c[GROUP], of_dy[GROUP], of_term[GROUP];
    } found;
    for (int64_t k = 0; k < GROUP; k++) {
        low[k] = k < n ? saved_low(call, start + k) : 0;
        v[k] = k < n ? saved_variance(call, start + k) : 1;
    }
    for (int k = 0; k < GROUP; k++) {
        double w = v[k] + call->eps, r = 1 / sqrt(w), s = sqrt(v[k] + low[k] * low[k]);
        double of_mean = error_of_mean(low[k], v[k], h), of_w = error_of_w(low[k], v[k], w, h);
        double of_r = error_of_r(of_w), centring = of_mean + U * s, rms = sqrt(means[OF_GG][k]);
        double a = means[OF_G][k], of_a = (h + 1) * U * rms; /* (E8) */
        excess[k] = fabs(means[OF_C][k]) - (of_mean + (h + 4) * U * s + TINY);
        if (!centred) { /* (R1), (R2). a = -0: g - a is +0 where g is -0 */
            a = -0.0;
            excess[k] = fabs(means[OF_C][k] - v[k]) - 2 * (h + 6) * U * v[k];
            of_a = of_mean = centring = 0;
        }
        double q = means[OF_GC][k] / w;
        double of_p = (h + 4) * U * rms * s + of_mean * fabs(a);
        double of_q = of_p / w + fabs(q) * (of_w + U); /* (E9) */
        found.r[k] = r;
        found.a[k] = a;
        found.q[k] = q;
        found.common[k] = slack * r * (of_a + fabs(q) * centring); /* (E10) */
        found.of_g[k] = slack * r * (of_r + 4 * U);
        found.of_c[k] = slack * r * (of_q + fabs(q) * (of_r + 6 * U));
        found.of_dy[k] = slack * r * centring; /* (E12); a block is a group of rows */
        found.of_term[k] = slack * (of_r + (GROUP + 6) * U);
    }
    for (int64_t k = 0; k < n; k++) {
        changed[k] = !(excess[k] <= 0);
        rows[k] = (row_t){saved_near(call, start + k), low[k],         found.r[k],
                          found.a[k],                  found.q[k],     found.common[k],
                          found.of_g[k],               found.of_c[k],  found.of_dy[k],
                          found.of_term[k]};
    }
}

typedef struct {
    doubles c, z, bound;
} gradient_t;

INLINE gradient_t gradient_of(doubles x, doubles dy, doubles gamma, const row_t *row)
{
    doubles c = (x - row->near) - row->low;
    doubles g = dy * gamma - row->a;
    doubles z = subtract_product(g, c, all(row->q)) * row->r;
    doubles bound = multiply_add(absolute(g), all(row->of_g), all(row->common));
    return (gradient_t){c, z, multiply_add(absolute(c), all(row->of_c), bound)}; /* (E10) */
}

/* Sums of a group over rows: of dgamma, of its bound and of dbeta. The distance keeps loads and
   stores of the three off each other's cache sets. */
enum { SHARE = COLUMNS + 16 };
typedef struct {
    double dgamma[SHARE], bound[SHARE], dbeta[SHARE];
} shares_t;

/* Clear n columns, and those that fill the last vector. */
INLINE void clear(shares_t *shares, int64_t n)
{
    size_t bytes = (size_t)(n + L) * sizeof(double);
    memset(shares->dgamma, 0, bytes);
    memset(shares->bound, 0, bytes);
    memset(shares->dbeta, 0, bytes);
}

INLINE differ_t write_vector(doubles x, doubles dy, doubles gamma, const row_t *row, rounded_t *dx,
                             bool with_dgamma, double *dgamma, double *bound, double *dbeta)
{
    gradient_t found = gradient_of(x, dy, gamma, row);
    differ_t differ = round_bracket(found.z, found.bound, 1, dx);
    if (with_dgamma) {
        doubles xhat = found.c * row->r; /* (E12) */
        doubles error = multiply_add(absolute(xhat), all(row->of_term), all(row->of_dy));
        STORE(dgamma, multiply_add(dy, xhat, LOAD(doubles, dgamma)));
        STORE(bound, multiply_add(absolute(dy), error, LOAD(doubles, bound)));
    }
    STORE(dbeta, LOAD(doubles, dbeta) + dy);
    return differ;
}

/* Write dx of n <= COLUMNS elements and add to the shares. Return True if one is undecided. */
INLINE bool write_dx(const element_t *restrict x, const element_t *restrict dy,
                     const double *restrict gamma, const row_t *row, element_t *restrict dx,
                     bool with_dgamma, shares_t *restrict shares, int64_t n)
{
    differ_t differ = {0};
    rounded_t lower;
    int64_t j = 0;
#pragma GCC unroll 2
    for (; j + L <= n; j += L) {
        differ |= write_vector(wide(x + j), wide(dy + j), LOAD(doubles, gamma + j), row, &lower,
                               with_dgamma, shares->dgamma + j, shares->bound + j,
                               shares->dbeta + j);
        STORE(dx + j, lower);
    }
    if (j < n) { /* filled up; shares have room for it */
        differ_t rest = write_vector(wide_or(x + j, n - j, 0), wide_or(dy + j, n - j, 0),
                                      LOAD(doubles, gamma + j), row, &lower, with_dgamma,
                                     shares->dgamma + j, shares->bound + j, shares->dbeta + j);
        for (int64_t i = 0; i < n - j; i++)
            differ[0] |= rest[i];
        memcpy(dx + j, &lower, (size_t)(n - j) * sizeof(element_t));
    }
    return any_differ(differ);
}

/* gamma of some columns in float64, filled up to a vector. Return False if it is not finite. */
INLINE bool widen_gamma(const call_t *call, int64_t left, int64_t n, double *gamma)
{
    const float *gammas = call->gamma;
    doubles zeros = {0};
    for (int64_t j = 0; j < n; j += L) {
        doubles scale = gammas ? wide_parameters(gammas + left + j, n - j) : all(1);
        STORE(gamma + j, scale);
        zeros += scale * 0.0;
    }
    return all_zero(zeros);
}

INLINE extent_t extent_of(const element_t *dy, int64_t n)
{
    bits largest = {0}, inverted = {0}; /* the maximum of ~m is the minimum of m */
    int64_t j = 0;
    for (; j + 2 * L <= n; j += 2 * L) {
        bits m = (bits)load_floats(dy + j) & 0x7FFFFFFFu;
        largest = max_bits(largest, m);
        inverted = max_bits(inverted, ~(m - 1u));
    }
    extent_t found = {~largest_of(inverted), largest_of(largest)};
    for (; j < n; j++) {
        uint32_t m = magnitude_of(dy[j]);
        found = wider(found, (extent_t){m - 1u, m});
    }
    return found;
}

/* The exponent of the last place of a float32 number with such a magnitude. */
INLINE int last_place(uint32_t magnitude)
{
    int exponent = (int)(magnitude >> 23);
    return (exponent > 1 ? exponent : 1) - 127 - 23;
}

/* True if GROUP numbers of such magnitudes add up without error in float64: all are multiples of
   the last place of the smallest, and the sum of eight is below 2**53 of those. */
INLINE bool is_exact_group(extent_t extent)
{
    return extent.largest == 0 ||
           last_place(extent.largest) + 24 + 3 <= last_place(extent.smallest + 1u) + 53;
}

INLINE void add_to_sum(double *high, double *low, double term)
{
    pair_t s = two_sum(*high, term);
    *high = s.high;
    *low += s.low;
}

/* Add the shares of a group to the sums, and to the bound what the low part loses (E13). */
INLINE void add_shares(const shares_t *shares, double *sums, int64_t size, int64_t left, int64_t n,
                       bool exact, bool with_dgamma)
{
    double *restrict high = sums + DGAMMA_HIGH * size + left;
    double *restrict low = sums + DGAMMA_LOW * size + left;
    double *restrict bound = sums + DGAMMA_BOUND * size + left;
    double *restrict dbeta = sums + DBETA_HIGH * size + left;
    double *restrict dbeta_low = sums + DBETA_LOW * size + left;
    for (int64_t j = 0; with_dgamma && j < n; j++) {
        pair_t s = two_sum(high[j], shares->dgamma[j]);
        high[j] = s.high;
        low[j] += s.low;
        bound[j] += shares->bound[j] + U * fabs(low[j]);
    }
    if (exact)
        for (int64_t j = 0; j < n; j++)
            add_to_sum(dbeta + j, dbeta_low + j, shares->dbeta[j]);
}

/* Structure check: True if g is the same all along a row, so that dx is zero (D21); RMSNorm: if
   it is zero. */
static inline bool is_constant(const call_t *call, const element_t *dy)
{
    const float *gamma = call->gamma;
    double first = (double)to_float(dy[0]) * (gamma ? gamma[0] : 1.0);
    if (!call->centred && first != 0)
        return false;
    for (int64_t j = call->size - 1; j > 0; j--)
        if ((double)to_float(dy[j]) * (gamma ? gamma[j] : 1.0) != first)
            return false;
    return true;
}

/* dx of a centred row of two elements (D24). Return True if one is undecided. */
static inline bool write_two(const call_t *call, int64_t i)
{
    const element_t *dy = elements_at(call->dy, 2 * i);
    const float *gamma = call->gamma;
    element_t *dx = results_at(call, 2 * i);
    double low = saved_low(call, i), v = saved_variance(call, i), w = v + call->eps;
    double of_w = error_of_w(low, v, w, depth_of_sum(2));
    double g0 = (double)to_float(dy[0]) * (gamma ? gamma[0] : 1.0);
    double g1 = (double)to_float(dy[1]) * (gamma ? gamma[1] : 1.0);
    double half = (g0 - g1) * ((call->eps / w) / sqrt(w) / 2);
    double bound = SLACK * fabs(half) * (error_of_r(of_w) + of_w + 8 * U) + TINY; /* (E11) */
    bound *= call->scale_of_bounds;
    dx[0] = nearest(half + 0.0);
    dx[1] = nearest(-half + 0.0);
    return rounded_bits(half - bound, 0, TYPE) != rounded_bits(half + bound, 0, TYPE);
}

/* ---- tier 2 ---- */

/* The sums of g, of g*c as pairs, and of g*g over some elements. */
typedef struct {
    pair_t sum, products;
    double squares;
} products2_t;

static inline products2_t sum_products2(const element_t *x, const element_t *dy, const float *gamma,
                                 int64_t size, const row2_t *row)
{
    products2_t found = {{0, 0}, {0, 0}, 0};
    for (int64_t start = 0; start < size; start += BLOCK2) {
        pairs_t s[VECTORS] = {{{0}, {0}}}, p[VECTORS] = {{{0}, {0}}};
        doubles q = {0};
        int64_t end = smaller(start + BLOCK2, size);
        for (int64_t left = start; left < end; left += LANES)
#pragma GCC unroll AT_ONCE
            for (int v = 0; v < VECTORS; v++) {
                int64_t at = left + v * L;
                if (at >= end)
                    break;
                doubles g = wide_or(dy + at, end - at, 0);
                if (gamma)
                    g *= wide_parameters(gamma + at, end - at);
                /* c as a pair that is not normalized (C3). */
                pairs_t d = two_sums(wide_or(x + at, end - at, 0), all(-row->near));
                pairs_t c = two_sums(d.high, all(-row->low.high));
                c.low += d.low - row->low.low;
                pairs_t t = two_products(g, c.high);
                accumulate(&s[v], g, (doubles){0});
                accumulate(&p[v], t.high, t.low + g * c.low);
                q += g * g;
            }
        found.sum = add(found.sum, fold_pairs(s));
        found.products = add(found.products, fold_pairs(p));
        for (int k = 0; k < L; k++)
            found.squares += q[k];
    }
    return found;
}

/* The mean of g, and q = mean(g*c)/w, as pairs. */
typedef struct {
    pair_t a, q;
    double of_a, of_q;
} slopes_t;

static inline slopes_t derive_slopes(const call_t *call, const products2_t *sums, const row2_t *row)
{
    slopes_t found = {{0, 0}, {0, 0}, 0, 0};
    double n = (double)call->size, h = depth_of_pairs(call->size);
    double rms = sqrt(sums->squares / n) * SLACK;
    if (call->centred)
        found.a = divide_double(sums->sum, n);
    found.of_a = (h + 4) * W * rms; /* (F6) */
    found.q = divide(divide_double(sums->products, n), row->w);
    double of_p = (h + 16) * W * rms * row->spread + rms * row->centring;
    found.of_q = of_p / row->w.high + fabs(found.q.high) * (row->of_w + 15 * W); /* (F7) */
    return found;
}

/* Tier 2 for the undecided elements of some columns of a row. Return True if some remain
   undecided. */
static inline bool settle_dx(const call_t *call, int64_t i, const row_t *row, const row2_t *row2,
                      const slopes_t *slopes, int64_t from, int64_t to)
{
    const element_t *x = elements_at(call->x, i * call->size);
    const element_t *dy = elements_at(call->dy, i * call->size);
    const float *gammas = call->gamma;
    element_t *dx = results_at(call, i * call->size);
    double r = row2->r.high, q = fabs(slopes->q.high);
    bool undecided = false;
    for (int64_t left = from; left < to; left += L) {
        int64_t n = smaller(L, to - left);
        doubles gamma = all(1.0);
        if (gammas)
            gamma = wide_parameters(gammas + left, n);
        gradient_t found = gradient_of(wide_or(x + left, n, 0), wide_or(dy + left, n, 0), gamma, row);
        rounded_t waste;
        differ_t differ = round_bracket(found.z, found.bound, 1, &waste);
        for (int64_t k = 0; k < n; k++) {
            if (differ[k] == 0)
                continue;
            int64_t j = left + k;
            double product = (double)to_float(dy[j]) * (gammas ? gammas[j] : 1.0);
            pair_t g = add_double(negative(slopes->a), product);
            pair_t c = centred_element(row2, to_float(x[j]));
            pair_t z = multiply(add(g, negative(multiply(c, slopes->q))), row2->r);
            double bound = SLACK * (r * (slopes->of_a + q * row2->centring + 3 * W * fabs(g.high) +
                                         fabs(c.high) * (slopes->of_q + 10 * W * q)) +
                                    fabs(z.high) * (row2->of_r + 12 * W)) + TINY; /* (F8) */
            undecided |= !is_decided(z, bound * call->scale_of_bounds, TYPE, dx, j);
        }
    }
    return undecided;
}

/* Add the products of up to SEGMENT elements of a group of rows to their sums. gamma of short rows
   is widened already; for others there is room. Return False if it is not finite. */
INLINE bool add_segment_products(const call_t *call, int64_t start, int64_t n, int64_t from,
                                 bool centred, double *gamma, double sums[ALONG][GROUP],
                                 extent_t *extents)
{
    int64_t size = call->size, length = smaller(size - from, SEGMENT);
    lanes_t lanes[GROUP][ALONG];
    memset(lanes, 0, sizeof(lanes_t) * ALONG * (size_t)n);
    for (int64_t left = from; left < from + length; left += COLUMNS) {
        int64_t columns = smaller(from + length - left, COLUMNS);
        if (size > COLUMNS && !widen_gamma(call, left, columns, gamma))
            return false;
        for (int64_t k = 0; k < n; k++) {
            const element_t *x = elements_at(call->x, (start + k) * size + left);
            const element_t *dy = elements_at(call->dy, (start + k) * size + left);
            extents[k] = wider(extents[k], extent_of(dy, columns));
            add_block_products(x, dy, gamma, columns, saved_near(call, start + k),
                               saved_low(call, start + k), centred, length, lanes[k]);
        }
    }
    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < ALONG; i++)
            sums[i][k] = total(&lanes[k][i], length);
    return true;
}

/* Derive the numbers and the status of the rows of a group. Return the extent of the finite ones. */
INLINE extent_t finish_sums(const call_t *call, int64_t start, int64_t n, bool centred,
                            double means[ALONG][GROUP], const extent_t *extents, row_t *rows)
{
    bool changed[GROUP];
    for (int i = 0; i < ALONG; i++)
        for (int64_t k = 0; k < n; k++)
            means[i][k] /= (double)call->size;
    derive_rows(call, start, n, means, centred, rows, changed);
    extent_t extent = NOTHING;
    for (int64_t k = 0; k < n; k++) {
        uint8_t *status = call->status + start + k;
        double v = saved_variance(call, start + k);
        *status = v != v ? UNDEFINED : changed[k] ? CHANGED : OK;
        if (extents[k].largest >= 0x7F800000u)
            *status = NOT_FINITE;
        else
            extent = wider(extent, extents[k]);
    }
    return extent;
}

/* Sum along the rows of a group, and find their numbers and status. Return False if gamma is not
   finite. */
INLINE bool find_rows(const call_t *call, int64_t start, int64_t n, bool centred, row_t *rows,
                      extent_t *extent, double *gamma)
{
    double sums[ALONG][GROUP] = {{0}};
    pair_t totals[ALONG][GROUP] = {{{0, 0}}};
    extent_t extents[GROUP];
    for (int64_t k = 0; k < n; k++)
        extents[k] = NOTHING;
    for (int64_t from = 0; from < call->size; from += SEGMENT) {
        if (!add_segment_products(call, start, n, from, centred, gamma, sums, extents))
            return false;
        for (int i = 0; call->size > SEGMENT && i < ALONG; i++)
            for (int64_t k = 0; k < n; k++) {
                add_to_pair(&totals[i][k], sums[i][k]);
                sums[i][k] = totals[i][k].high + totals[i][k].low;
            }
    }
    *extent = finish_sums(call, start, n, centred, sums, extents, rows);
    return true;
}

/* ---- columns ---- */

/* Round dgamma of n columns, whose sums are SUMS x n, where the bound allows it. Return how many
   are undecided, and which. */
static inline int64_t round_dgamma_of(const call_t *call, const double *sums, int64_t left, int64_t n,
                               uint8_t *undecided)
{
    int type = call->of_dgamma;
    int64_t count = 0;
    const double *high = sums + DGAMMA_HIGH * n, *low = sums + DGAMMA_LOW * n;
    const double *bound = sums + DGAMMA_BOUND * n;
    float *dgamma = call->dgamma;
    undecided += left;
    if (type != FLOAT32)
        memset(undecided, 1, (size_t)n);
    for (int64_t j = 0; type == FLOAT32 && j < n; j++) { /* the sum as one float64 (E13) */
        double s = high[j] + low[j], error = SLACK * bound[j] + call->scale_of_bounds * U * fabs(s);
        dgamma[left + j] = (float)(s - error);
        undecided[j] = bits_of(dgamma[left + j]) != bits_of((float)(s + error));
    }
    for (int64_t j = 0; j < n; j++)
        if (undecided[j]) {
            pair_t s = two_sum(high[j], low[j]);
            undecided[j] = !is_decided(s, SLACK * bound[j], type, dgamma, left + j);
            count += undecided[j];
        }
    return count;
}

static inline void round_dbeta_of(const call_t *call, const double *sums, int64_t left, int64_t n)
{
    const double *high = sums + DBETA_HIGH * n, *low = sums + DBETA_LOW * n;
    for (int64_t j = 0; j < n; j++)
        put(call->dbeta, left + j, call->of_dbeta, rounded_bits(high[j], low[j], call->of_dbeta));
}

/* Tier 2: add the term of a row to a column of dgamma (F10). */
INLINE void add_term(const call_t *call, int64_t i, const row2_t *row, column_t *column)
{
    int64_t at = i * call->size + column->column;
    double relative = SLACK * (row->of_r + 16 * W), centring = SLACK * row->r.high * row->centring;
    double slope = to_float(*elements_at(call->dy, at));
    pair_t c = centred_element(row, to_float(*elements_at(call->x, at)));
    pair_t t = multiply_double(multiply(c, row->r), slope);
    pair_t s = two_sum(column->high, t.high);
    column->high = s.high;
    column->low += s.low + t.low;
    column->bound += relative * fabs(t.high) + centring * fabs(slope) +
                     U * (2 * fabs(column->low) + fabs(s.low) + fabs(t.low)) +
                     (slope != 0 ? TINY : 0);
}

#endif

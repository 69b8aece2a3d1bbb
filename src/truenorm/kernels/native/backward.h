/* Backward, correct: the numbers that dx of a row and the sums over rows are computed from, in
   tier 1 and tier 2. */
#ifndef TRUENORM_BACKWARD_H
#define TRUENORM_BACKWARD_H

#include "tier2.h"

enum { FAST_SUMS = 2 }; /* float64 numbers a column in the sums of fast mode: dgamma, dbeta */

/* ---- tier 1 ---- */

/* The numbers that dx of a row is computed from. The last five are the coefficients of (E10) and
   (E12). */
typedef struct {
    double near, low, r, a, q, common, bound_g, bound_c, bound_dy, bound_term;
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
    double h = depth_of_sum(call->size), slack = SLACK * call->bound_scale;
    double low[GROUP], v[GROUP], excess[GROUP];
    struct {
        double r[GROUP], a[GROUP], q[GROUP];
        double common[GROUP], bound_g[GROUP], bound_c[GROUP], bound_dy[GROUP], bound_term[GROUP];
    } results;
    for (int64_t k = 0; k < GROUP; k++) {
        low[k] = k < n ? saved_low(call, start + k) : 0;
        v[k] = k < n ? saved_variance(call, start + k) : 1;
    }
    for (int k = 0; k < GROUP; k++) {
        double w = v[k] + call->eps, r = 1 / sqrt(w), s = sqrt(v[k] + low[k] * low[k]);
        double err_mean = error_of_mean(low[k], v[k], h), err_w = error_of_w(low[k], v[k], w, h);
        double err_r = error_of_r(err_w), centring = err_mean + U * s, rms = sqrt(means[OF_GG][k]);
        double a = means[OF_G][k], err_a = (h + 1) * U * rms; /* (E8) */
        excess[k] = fabs(means[OF_C][k]) - (err_mean + (h + 4) * U * s + TINY);
        if (!centred) { /* (R1), (R2). a = -0: g - a is +0 where g is -0 */
            a = -0.0;
            excess[k] = fabs(means[OF_C][k] - v[k]) - 2 * (h + 6) * U * v[k];
            err_a = err_mean = centring = 0;
        }
        double q = means[OF_GC][k] / w;
        double err_p = (h + 4) * U * rms * s + err_mean * fabs(a);
        double err_q = err_p / w + fabs(q) * (err_w + U); /* (E9) */
        results.r[k] = r;
        results.a[k] = a;
        results.q[k] = q;
        results.common[k] = slack * r * (err_a + fabs(q) * centring); /* (E10) */
        results.bound_g[k] = slack * r * (err_r + 4 * U);
        results.bound_c[k] = slack * r * (err_q + fabs(q) * (err_r + 6 * U));
        results.bound_dy[k] = slack * r * centring; /* (E12); a block is a group of rows */
        results.bound_term[k] = slack * (err_r + (GROUP + 6) * U);
    }
    for (int64_t k = 0; k < n; k++) {
        changed[k] = !(excess[k] <= 0);
        rows[k] = (row_t){saved_near(call, start + k), low[k],         results.r[k],
                          results.a[k],                  results.q[k],     results.common[k],
                          results.bound_g[k],               results.bound_c[k],  results.bound_dy[k],
                          results.bound_term[k]};
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
    doubles bound = multiply_add(absolute(g), all(row->bound_g), all(row->common));
    return (gradient_t){c, z, multiply_add(absolute(c), all(row->bound_c), bound)}; /* (E10) */
}

/* Sums over the rows of a group: of dgamma, of its bound and of dbeta. The padding keeps the
   three arrays in different cache sets. */
enum { BLOCK_ROOM = COLUMNS + 16 };
typedef struct {
    double dgamma[BLOCK_ROOM], bound[BLOCK_ROOM], dbeta[BLOCK_ROOM];
} block_sums_t;

/* Clear n columns, and those that fill the last vector. */
INLINE void clear(block_sums_t *block_sums, int64_t n)
{
    size_t bytes = (size_t)(n + L) * sizeof(double);
    memset(block_sums->dgamma, 0, bytes);
    memset(block_sums->bound, 0, bytes);
    memset(block_sums->dbeta, 0, bytes);
}

INLINE differ_t write_vector(doubles x, doubles dy, doubles gamma, const row_t *row, rounded_t *dx,
                             bool with_dgamma, double *dgamma, double *bound, double *dbeta)
{
    gradient_t gradient = gradient_of(x, dy, gamma, row);
    differ_t differ = round_bracket(gradient.z, gradient.bound, 1, dx);
    if (with_dgamma) {
        doubles xhat = gradient.c * row->r; /* (E12) */
        doubles error = multiply_add(absolute(xhat), all(row->bound_term), all(row->bound_dy));
        STORE(dgamma, multiply_add(dy, xhat, LOAD(doubles, dgamma)));
        STORE(bound, multiply_add(absolute(dy), error, LOAD(doubles, bound)));
    }
    STORE(dbeta, LOAD(doubles, dbeta) + dy);
    return differ;
}

/* Write dx of n <= COLUMNS elements and add to the block sums. Return True if one is undecided. */
INLINE bool write_dx(const element_t *restrict x, const element_t *restrict dy,
                     const double *restrict gamma, const row_t *row, element_t *restrict dx,
                     bool with_dgamma, block_sums_t *restrict block_sums, int64_t n)
{
    differ_t differ = {0};
    rounded_t lower;
    int64_t j = 0;
#pragma GCC unroll 2
    for (; j + L <= n; j += L) {
        differ |= write_vector(wide(x + j), wide(dy + j), LOAD(doubles, gamma + j), row, &lower,
                               with_dgamma, block_sums->dgamma + j, block_sums->bound + j,
                               block_sums->dbeta + j);
        STORE(dx + j, lower);
    }
    if (j < n) { /* filled up; the block sums have room for it */
        differ_t rest = write_vector(wide_or(x + j, n - j, 0), wide_or(dy + j, n - j, 0),
                                      LOAD(doubles, gamma + j), row, &lower, with_dgamma,
                                     block_sums->dgamma + j, block_sums->bound + j,
                                     block_sums->dbeta + j);
        for (int64_t i = 0; i < n - j; i++)
            differ[0] |= rest[i];
        memcpy(dx + j, &lower, (size_t)(n - j) * sizeof(element_t));
    }
    return any_differ(differ);
}

/* Widen gamma of some columns to float64, padded to a vector. Return False if it is not finite. */
INLINE bool widen_gamma(const call_t *call, int64_t offset, int64_t n, double *gamma)
{
    const float *gammas = call->gamma;
    doubles zeros = {0};
    for (int64_t j = 0; j < n; j += L) {
        doubles scale = gammas ? wide_parameters(gammas + offset + j, n - j) : all(1);
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
    extent_t extent = {~largest_of(inverted), largest_of(largest)};
    for (; j < n; j++) {
        uint32_t m = magnitude_of(dy[j]);
        extent = wider(extent, (extent_t){m - 1u, m});
    }
    return extent;
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

/* Add the block sums of a group to the sums over rows; the bound includes the rounding of the
   low part (E13). */
INLINE void add_block_sums(const block_sums_t *block_sums, double *sums, int64_t size,
                           int64_t offset, int64_t n, bool exact, bool with_dgamma)
{
    double *restrict high = sums + DGAMMA_HIGH * size + offset;
    double *restrict low = sums + DGAMMA_LOW * size + offset;
    double *restrict bound = sums + DGAMMA_BOUND * size + offset;
    double *restrict dbeta = sums + DBETA_HIGH * size + offset;
    double *restrict dbeta_low = sums + DBETA_LOW * size + offset;
    for (int64_t j = 0; with_dgamma && j < n; j++) {
        pair_t s = two_sum(high[j], block_sums->dgamma[j]);
        high[j] = s.high;
        low[j] += s.low;
        bound[j] += block_sums->bound[j] + U * fabs(low[j]);
    }
    if (exact)
        for (int64_t j = 0; j < n; j++)
            add_to_sum(dbeta + j, dbeta_low + j, block_sums->dbeta[j]);
}

/* Structure check: True if g is constant along a row, so that dx is zero (D21); RMSNorm: if g is
   zero. */
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
    double err_w = error_of_w(low, v, w, depth_of_sum(2));
    double g0 = (double)to_float(dy[0]) * (gamma ? gamma[0] : 1.0);
    double g1 = (double)to_float(dy[1]) * (gamma ? gamma[1] : 1.0);
    double half = (g0 - g1) * ((call->eps / w) / sqrt(w) / 2);
    double bound = SLACK * fabs(half) * (error_of_r(err_w) + err_w + 8 * U) + TINY; /* (E11) */
    bound *= call->bound_scale;
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
    products2_t totals = {{0, 0}, {0, 0}, 0};
    for (int64_t start = 0; start < size; start += BLOCK2) {
        pairs_t s[VECTORS] = {{{0}, {0}}}, p[VECTORS] = {{{0}, {0}}};
        doubles q = {0};
        int64_t end = smaller(start + BLOCK2, size);
        for (int64_t offset = start; offset < end; offset += LANES)
#pragma GCC unroll AT_ONCE
            for (int v = 0; v < VECTORS; v++) {
                int64_t at = offset + v * L;
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
        totals.sum = add(totals.sum, fold_pairs(s));
        totals.products = add(totals.products, fold_pairs(p));
        for (int k = 0; k < L; k++)
            totals.squares += q[k];
    }
    return totals;
}

/* The mean of g, and q = mean(g*c)/w, as pairs. */
typedef struct {
    pair_t a, q;
    double err_a, err_q;
} means2_t;

static inline means2_t derive_means2(const call_t *call, const products2_t *sums, const row2_t *row)
{
    means2_t means = {{0, 0}, {0, 0}, 0, 0};
    double n = (double)call->size, h = depth_of_pairs(call->size);
    double rms = sqrt(sums->squares / n) * SLACK;
    if (call->centred)
        means.a = divide_double(sums->sum, n);
    means.err_a = (h + 4) * W * rms; /* (F6) */
    means.q = divide(divide_double(sums->products, n), row->w);
    double err_p = (h + 16) * W * rms * row->spread + rms * row->centring;
    means.err_q = err_p / row->w.high + fabs(means.q.high) * (row->err_w + 15 * W); /* (F7) */
    return means;
}

/* Tier 2 for the undecided elements of some columns of a row. Return True if some remain
   undecided. */
static inline bool tier2_dx(const call_t *call, int64_t i, const row_t *row, const row2_t *row2,
                      const means2_t *means, int64_t from, int64_t to)
{
    const element_t *x = elements_at(call->x, i * call->size);
    const element_t *dy = elements_at(call->dy, i * call->size);
    const float *gammas = call->gamma;
    element_t *dx = results_at(call, i * call->size);
    double r = row2->r.high, q = fabs(means->q.high);
    bool undecided = false;
    for (int64_t offset = from; offset < to; offset += L) {
        int64_t n = smaller(L, to - offset);
        doubles gamma = all(1.0);
        if (gammas)
            gamma = wide_parameters(gammas + offset, n);
        gradient_t gradient =
            gradient_of(wide_or(x + offset, n, 0), wide_or(dy + offset, n, 0), gamma, row);
        rounded_t waste;
        differ_t differ = round_bracket(gradient.z, gradient.bound, 1, &waste);
        for (int64_t k = 0; k < n; k++) {
            if (differ[k] == 0)
                continue;
            int64_t j = offset + k;
            double product = (double)to_float(dy[j]) * (gammas ? gammas[j] : 1.0);
            pair_t g = add_double(negative(means->a), product);
            pair_t c = centred_element(row2, to_float(x[j]));
            pair_t z = multiply(add(g, negative(multiply(c, means->q))), row2->r);
            double bound = SLACK * (r * (means->err_a + q * row2->centring + 3 * W * fabs(g.high) +
                                         fabs(c.high) * (means->err_q + 10 * W * q)) +
                                    fabs(z.high) * (row2->err_r + 12 * W)) + TINY; /* (F8) */
            undecided |= !is_decided(z, bound * call->bound_scale, TYPE, dx, j);
        }
    }
    return undecided;
}

/* Add the products of up to SEGMENT elements of a group of rows to their sums. `gamma` is
   already widened for short rows; for others it is scratch memory. Return False if it is not
   finite. */
INLINE bool add_segment_products(const call_t *call, int64_t start, int64_t n, int64_t from,
                                 bool centred, double *gamma, double sums[ALONG][GROUP],
                                 extent_t *extents)
{
    int64_t size = call->size, length = smaller(size - from, SEGMENT);
    lanes_t lanes[GROUP][ALONG];
    memset(lanes, 0, sizeof(lanes_t) * ALONG * (size_t)n);
    for (int64_t offset = from; offset < from + length; offset += COLUMNS) {
        int64_t columns = smaller(from + length - offset, COLUMNS);
        if (size > COLUMNS && !widen_gamma(call, offset, columns, gamma))
            return false;
        for (int64_t k = 0; k < n; k++) {
            const element_t *x = elements_at(call->x, (start + k) * size + offset);
            const element_t *dy = elements_at(call->dy, (start + k) * size + offset);
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

/* Derive the numbers and the status of the rows of a group. Return the extent of finite rows. */
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

/* Sum along the rows of a group, and compute their numbers and status. Return False if gamma is
   not finite. */
INLINE bool compute_rows(const call_t *call, int64_t start, int64_t n, bool centred, row_t *rows,
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

/* L sums of which n are loaded; the others are zero. */
INLINE doubles sums_or_zero(const double *x, int64_t n)
{
    doubles sums = {0};
    if (n >= L)
        return LOAD(doubles, x);
    memcpy(&sums, x, (size_t)n * sizeof(double));
    return sums;
}

/* Store the first n of L results. */
INLINE void store_columns(float *column, halves results, int64_t n)
{
    if (n >= L)
        STORE(column, results);
    else
        memcpy(column, &results, (size_t)n * sizeof(float));
}

/* Round dgamma of n columns, whose sums are SUMS x n, where the bound allows it. Return how many
   are undecided, and which. */
static inline int64_t round_dgamma_of(const call_t *call, const double *sums, int64_t offset,
                                      int64_t n, uint8_t *undecided)
{
    int type = call->dgamma_type;
    int64_t count = 0;
    const double *high = sums + DGAMMA_HIGH * n, *low = sums + DGAMMA_LOW * n;
    const double *bound = sums + DGAMMA_BOUND * n;
    float *dgamma = call->dgamma;
    undecided += offset;
    memset(undecided, type != FLOAT32, (size_t)n);
    for (int64_t j = 0; type == FLOAT32 && j < n; j += L) { /* the sum as one float64 (E13) */
        doubles s = sums_or_zero(high + j, n - j) + sums_or_zero(low + j, n - j);
        doubles error = SLACK * sums_or_zero(bound + j, n - j) +
                        call->bound_scale * U * absolute(s);
        halves lower = narrow(s - error);
        half_bits differ = (half_bits)lower ^ (half_bits)narrow(s + error);
        store_columns(dgamma + offset + j, lower, n - j);
        for (int64_t k = 0; any(differ) && k < smaller(L, n - j); k++)
            undecided[j + k] = differ[k] != 0;
    }
    for (int64_t j = 0; j < n; j++)
        if (undecided[j]) {
            pair_t s = two_sum(high[j], low[j]);
            undecided[j] = !is_decided(s, SLACK * bound[j], type, dgamma, offset + j);
            count += undecided[j];
        }
    return count;
}

/* `rounded_bits` to float32 of a vector of pairs: to odd in float64, then to nearest. Sums of dy
   are multiples of 2**-149, so the product of the parts does not underflow. */
INLINE halves rounded_pairs(doubles high, doubles low)
{
    pairs_t s = two_sums(high, low);
    longs pattern = (longs)s.high;
    longs same_sign = s.low * s.high > 0; /* -1 if True */
    pattern += (-1 - 2 * same_sign) & (s.low != 0) & ((pattern & 1) - 1);
    return narrow((doubles)pattern);
}

static inline void round_dbeta_of(const call_t *call, const double *sums, int64_t offset,
                                  int64_t n)
{
    const double *high = sums + DBETA_HIGH * n, *low = sums + DBETA_LOW * n;
    if (call->dbeta_type == FLOAT32)
        for (int64_t j = 0; j < n; j += L)
            store_columns((float *)call->dbeta + offset + j,
                          rounded_pairs(sums_or_zero(high + j, n - j),
                                        sums_or_zero(low + j, n - j)), n - j);
    else
        for (int64_t j = 0; j < n; j++)
            put(call->dbeta, offset + j, call->dbeta_type,
                rounded_bits(high[j], low[j], call->dbeta_type));
}

/* Tier 2: add the term of a row to a column of dgamma (F10). */
INLINE void add_term(const call_t *call, int64_t i, const row2_t *row, column_t *column)
{
    int64_t at = i * call->size + column->column;
    double relative = SLACK * (row->err_r + 16 * W), centring = SLACK * row->r.high * row->centring;
    double dy_value = to_float(*elements_at(call->dy, at));
    pair_t c = centred_element(row, to_float(*elements_at(call->x, at)));
    pair_t t = multiply_double(multiply(c, row->r), dy_value);
    pair_t s = two_sum(column->high, t.high);
    column->high = s.high;
    column->low += s.low + t.low;
    column->bound += relative * fabs(t.high) + centring * fabs(dy_value) +
                     U * (2 * fabs(column->low) + fabs(s.low) + fabs(t.low)) +
                     (dy_value != 0 ? TINY : 0);
}

#endif

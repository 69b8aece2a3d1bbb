/* Backward, correct: the numbers that dx of a row and the sums over rows are computed from, in
   tier 1 and tier 2. */
#ifndef TRUENORM_BACKWARD_H
#define TRUENORM_BACKWARD_H

#include "tier2.h"

enum { FAST_SUMS = 2 }; /* float64 numbers a column in the sums of fast mode: dgamma, dbeta */

/* ---- tier 1 ---- */

/* The numbers that dx of a row is computed from, and the coefficients of (E10) and (T4). With
   d = x - near, xhat is d*r - shift, and dx is g*r + (level - d*slope), of which `reach` bounds the
   error (T3). */
typedef struct {
    double near, low, r, a, q, common, bound_g, bound_c, bound_dy, bound_term;
    double shift, slope, level, reach;
    bool is_constant; /* g is: dx is zero */
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
    double largest = sqrt((double)call->size);
    double err_g = call->wide ? U : 0, of_centred = centred ? err_g : 0; /* g is rounded (E17) */
    double low[GROUP], v[GROUP], excess[GROUP];
    struct {
        double r[GROUP], a[GROUP], q[GROUP], level[GROUP], reach[GROUP];
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
        double a = means[OF_G][k], err_a = (h + 1) * U * rms + err_g * rms; /* (E8), (E16) */
        excess[k] = fabs(means[OF_C][k] - low[k]) - (err_mean + (h + 4) * U * s + TINY);
        if (!centred) { /* (R1), (R2). a = -0: g - a is +0 where g is -0 */
            a = -0.0;
            excess[k] = fabs(means[OF_C][k] - v[k]) - 2 * (h + 6) * U * v[k];
            err_a = err_mean = centring = 0;
        }
        double q = (means[OF_GC][k] - low[k] * a) / w;
        double err_p = ((h + 4) * s + (h + 2) * fabs(low[k])) * U * rms + err_mean * fabs(a) +
                       err_g * (s + fabs(low[k])) * rms;
        double err_q = err_p / w + fabs(q) * (err_w + U); /* (T2) */
        results.r[k] = r;
        results.a[k] = a;
        results.q[k] = q;
        double most_g = largest * rms, most_c = largest * sqrt(v[k]);
        results.level[k] = r * (q * low[k] - a);
        results.reach[k] = slack * r * /* (T3) */
                           (err_a + (4 * U + err_g) * rms + fabs(q) * (err_mean + 6 * U * s) +
                            most_g * (err_r + 3 * U + err_g) +
                            most_c * (err_q + fabs(q) * (err_r + 6 * U)));
        results.common[k] = slack * r * (err_a + of_centred * rms + fabs(q) * centring); /* (E10) */
        results.bound_g[k] = slack * r * (err_r + 4 * U + err_g);
        results.bound_c[k] = slack * r * (err_q + fabs(q) * (err_r + 6 * U));
        results.bound_dy[k] = slack * r * (centring + 2 * U * s); /* (T4) */
        results.bound_term[k] = slack * (err_r + (GROUP + 6) * U);
    }
    for (int64_t k = 0; k < n; k++) {
        changed[k] = !(excess[k] <= 0);
        double r = results.r[k];
        rows[k] = (row_t){.near = saved_near(call, start + k),
                          .low = low[k],
                          .r = r,
                          .a = results.a[k],
                          .q = results.q[k],
                          .common = results.common[k],
                          .bound_g = results.bound_g[k],
                          .bound_c = results.bound_c[k],
                          .bound_dy = results.bound_dy[k],
                          .bound_term = results.bound_term[k],
                          .shift = low[k] * r,
                          .slope = results.q[k] * r,
                          .level = results.level[k],
                          .reach = results.reach[k]};
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

/* The smallest and largest magnitudes of dy, as `extent_t`; the maximum of ~m is the minimum of
   m. */
typedef struct {
    bits largest, inverted;
} extents_t;

INLINE void note_magnitudes(extents_t *extents, bits m)
{
    extents->largest = max_bits(extents->largest, m);
    extents->inverted = max_bits(extents->inverted, ~(m - 1u));
}
INLINE extent_t extent_of(const extents_t *extents)
{
    return (extent_t){~largest_of(extents->inverted), largest_of(extents->largest)};
}

/* Some columns of one or two rows. */
typedef struct {
    const element_t *x[2], *dy[2];
    element_t *dx[2];
    const row_t *row[2];
} rows_t;

/* Tier 1 by the cell test and (T3): write dx of columns, a multiple of 2*L, and add to the block
   sums, or start them. Return a bit for each row with an undecided element. Loads come before
   stores as in `write_cells`. */
INLINE unsigned write_dx_cells(const rows_t *r, const double *restrict gamma,
                               block_sums_t *restrict sums, int64_t from, int64_t to,
                               const int rows, bool is_far, bool with_dgamma, bool is_first,
                               extents_t *extents)
{
    cells_t cells[2] = {{0}, {0}};
    extents_t seen = *extents;
    for (int64_t start = from; start < to; start += 2 * L) {
#pragma GCC unroll 2
        for (int64_t j = start; j < start + 2 * L; j += L) {
            doubles scale = LOAD(doubles, gamma + j), z[2], d[2], dy[2];
            doubles dgamma = is_first ? all(0) : LOAD(doubles, sums->dgamma + j);
            doubles bound = is_first ? all(0) : LOAD(doubles, sums->bound + j);
            doubles dbeta = is_first ? all(0) : LOAD(doubles, sums->dbeta + j);
#pragma GCC unroll 2
            for (int i = 0; i < rows; i++) {
                d[i] = wide(r->x[i] + j);
                dy[i] = wide(r->dy[i] + j);
            }
#pragma GCC unroll 2
            for (int i = 0; i < rows; i++) {
                const row_t *row = r->row[i];
                if (is_far)
                    d[i] -= row->near;
                doubles rest = subtract_product(all(row->level), d[i], all(row->slope));
                z[i] = multiply_add(dy[i] * scale, all(row->r), rest);
                cells[i] = compare_cells(cells[i], z[i], all(row->reach), all(1));
                dbeta += dy[i];
                if (!with_dgamma)
                    continue;
                doubles xhat = multiply_add(d[i], all(row->r), all(-row->shift));
                doubles error = multiply_add(absolute(xhat), all(row->bound_term),
                                             all(row->bound_dy)); /* (T4) */
                dgamma = multiply_add(dy[i], xhat, dgamma);
                bound = multiply_add(absolute(dy[i]), error, bound);
            }
#pragma GCC unroll 2
            for (int i = 0; i < rows; i++)
                STORE(r->dx[i] + j, rounded(z[i]));
            STORE(sums->dbeta + j, dbeta);
            if (with_dgamma) {
                STORE(sums->dgamma + j, dgamma);
                STORE(sums->bound + j, bound);
            }
        }
#pragma GCC unroll 2
        for (int i = 0; i < rows; i++)
            note_magnitudes(&seen, (bits)load_floats(r->dy[i] + start) & 0x7FFFFFFFu);
    }
    *extents = seen;
    return (unsigned)any_cell(cells[0]) | (rows == 2 ? (unsigned)any_cell(cells[1]) << 1 : 0);
}

/* Round both ends of a bracket of dx, and store n elements. Return the bits in which they differ. */
INLINE differ_t write_ends(const gradient_t *t, element_t *dx, int64_t n)
{
    rounded_t lower;
    differ_t differ = round_bracket(t->z, t->bound, 1, &lower);
    for (int64_t i = n; i < L; i++)
        differ[i] = 0;
    memcpy(dx, &lower, (size_t)n * sizeof(element_t));
    return differ;
}

/* Tier 1 by (E10): write dx of columns of a row, whole vectors. Return True if an element is
   undecided. */
static __attribute__((noinline)) bool write_dx_again(const element_t *x, const element_t *dy,
                                                     const double *gamma, const row_t *row,
                                                     element_t *dx, int64_t from, int64_t to)
{
    differ_t differ = {0};
#pragma GCC unroll 2
    for (int64_t j = from; j < to; j += L) {
        gradient_t t = gradient_of(wide(x + j), wide(dy + j), LOAD(doubles, gamma + j), row);
        differ |= write_ends(&t, dx + j, L);
    }
    return any_differ(differ);
}

/* Tier 1 by (E10) of the last columns of a row, fewer than 2*L, filled up with zeros: write dx and
   add to the block sums, which have room for it. Return True if an element is undecided. */
INLINE bool write_last_dx(const element_t *x, const element_t *dy, const double *gamma,
                          const row_t *row, element_t *dx, block_sums_t *sums, int64_t from,
                          int64_t to, bool with_dgamma, bool is_first, extents_t *extents)
{
    differ_t differ = {0};
    note_magnitudes(extents, (bits)floats_or_zero(dy + from, to - from) & 0x7FFFFFFFu);
    for (int64_t j = from; j < to; j += L) {
        int64_t n = smaller(L, to - j);
        doubles term = wide_or(dy + j, n, 0);
        gradient_t t = gradient_of(wide_or(x + j, n, 0), term, LOAD(doubles, gamma + j), row);
        differ |= write_ends(&t, dx + j, n);
        STORE(sums->dbeta + j, is_first ? term : LOAD(doubles, sums->dbeta + j) + term);
        if (!with_dgamma)
            continue;
        doubles xhat = t.c * row->r;
        doubles error = multiply_add(absolute(xhat), all(row->bound_term), all(row->bound_dy));
        doubles dgamma = is_first ? all(0) : LOAD(doubles, sums->dgamma + j);
        doubles bound = is_first ? all(0) : LOAD(doubles, sums->bound + j);
        STORE(sums->dgamma + j, multiply_add(term, xhat, dgamma));
        STORE(sums->bound + j, multiply_add(absolute(term), error, bound));
    }
    return any_differ(differ);
}

/* Tier 1: write dx of n <= COLUMNS columns of one or two rows and add to the block sums, or start
   them. Return a bit for each row with an undecided element. */
INLINE unsigned write_dx(const rows_t *r, const double *gamma, const int rows, bool with_dgamma,
                         bool is_first, block_sums_t *sums, int64_t n, extents_t *extents)
{
    int64_t whole = n / (2 * L) * (2 * L);
    unsigned undecided = 0;
    bool is_far = r->row[0]->near != 0 || r->row[rows - 1]->near != 0;
    for (int64_t from = 0; from < whole; from += PIECE) {
        int64_t to = smaller(from + PIECE, whole);
#define CELLS(is_far, is_first) \
    write_dx_cells(r, gamma, sums, from, to, rows, is_far, with_dgamma, is_first, extents)
        unsigned again = is_first ? rows == 1 || is_far ? CELLS(true, true) : CELLS(false, true)
                         : rows == 1 || is_far ? CELLS(true, false) : CELLS(false, false);
#undef CELLS
        for (int i = 0; i < rows && again; i++)
            if (again >> i & 1)
                undecided |= (unsigned)write_dx_again(r->x[i], r->dy[i], gamma, r->row[i], r->dx[i],
                                                      from, to)
                             << i;
    }
    for (int i = 0; i < rows && whole < n; i++)
        undecided |= (unsigned)write_last_dx(r->x[i], r->dy[i], gamma, r->row[i], r->dx[i], sums,
                                             whole, n, with_dgamma, is_first && i == 0, extents)
                     << i;
    return undecided;
}

/* Widen gamma of some columns to float64, padded to a vector. Return False if it is not finite. */
INLINE bool widen_gamma(const call_t *call, int64_t offset, int64_t n, double *gamma)
{
    doubles zeros = {0};
    for (int64_t j = 0; j < n; j += L) {
        doubles scale = all(1);
        if (call->gamma)
            scale = parameters_at(call, call->gamma, offset + j, n - j);
        STORE(gamma + j, scale);
        zeros += scale * 0.0;
    }
    return all_zero(zeros);
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

/* Start the sums over rows of some columns at zero. */
INLINE void zero_sums(double *sums, int64_t size, int64_t offset, int64_t n)
{
    for (int s = 0; s < SUMS; s++)
        memset(sums + s * size + offset, 0, (size_t)n * sizeof(double));
}

INLINE void set_or_zero(double *restrict sums, const double *restrict terms, int64_t n, bool sets)
{
    if (!sets)
        memset(sums, 0, (size_t)n * sizeof(double));
    for (int64_t j = 0; sets && j < n; j++)
        sums[j] = terms[j] + 0.0;
}

/* Start the sums over rows with the block sums of a group: `add_block_sums` to zeros, with the
   same bits: -0 becomes the +0 of this addition. */
INLINE void set_sums(const block_sums_t *block_sums, double *sums, int64_t size, int64_t offset,
                     int64_t n, bool exact, bool with_dgamma)
{
    set_or_zero(sums + DGAMMA_HIGH * size + offset, block_sums->dgamma, n, with_dgamma);
    set_or_zero(sums + DGAMMA_LOW * size + offset, NULL, n, false);
    set_or_zero(sums + DGAMMA_BOUND * size + offset, block_sums->bound, n, with_dgamma);
    set_or_zero(sums + DBETA_HIGH * size + offset, block_sums->dbeta, n, exact);
    set_or_zero(sums + DBETA_LOW * size + offset, NULL, n, false);
}

/* g of an element, exactly. */
INLINE pair_t product_at(const call_t *call, const element_t *dy, int64_t j)
{
    double value = to_float(dy[j]), gamma = call->gamma ? parameter_at(call, call->gamma, j) : 1;
    return call->wide ? two_product(value, gamma) : (pair_t){value * gamma, 0};
}

/* Structure check: True if g is constant along a row, so that dx is zero (D21); RMSNorm: if g is
   zero. */
static inline bool is_constant(const call_t *call, const element_t *dy)
{
    pair_t first = product_at(call, dy, 0);
    if (!call->centred && first.high != 0)
        return false;
    for (int64_t j = call->size - 1; j > 0; j--) {
        pair_t g = product_at(call, dy, j);
        if (g.high != first.high || g.low != first.low)
            return false;
    }
    return true;
}

/* dx of a centred row of two elements (D24). Return True if one is undecided. */
static inline bool write_two(const call_t *call, int64_t i)
{
    const element_t *dy = elements_at(call->dy, 2 * i);
    element_t *dx = results_at(call, 2 * i);
    double low = saved_low(call, i), v = saved_variance(call, i), w = v + call->eps;
    double err_w = error_of_w(low, v, w, depth_of_sum(2));
    pair_t difference = add(product_at(call, dy, 0), negative(product_at(call, dy, 1)));
    double half = difference.high * ((call->eps / w) / sqrt(w) / 2);
    double bound = SLACK * fabs(half) * (error_of_r(err_w) + err_w + 8 * U) + TINY; /* (E11) */
    bound *= call->bound_scale;
    dx[0] = nearest(half + 0.0);
    dx[1] = nearest(-half + 0.0);
    return rounded_bits(half - bound, 0, TYPE) != rounded_bits(half + bound, 0, TYPE);
}

/* ---- tier 2 ---- */

/* The sums of g, of g*c as pairs, and of g*g over `size` elements of a row. */
typedef struct {
    pair_t sum, products;
    double squares;
} products2_t;

static inline products2_t sum_products2(const call_t *call, int64_t i, int64_t from, int64_t size,
                                        const row2_t *row)
{
    const element_t *x = elements_at(call->x, i * call->size + from);
    const element_t *dy = elements_at(call->dy, i * call->size + from);
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
                pairs_t g = {wide_or(dy + at, end - at, 0), {0}};
                if (call->gamma)
                    g = two_products(g.high,
                                     parameters_at(call, call->gamma, from + at, end - at));
                /* c as a pair that is not normalized (C3). */
                pairs_t d = two_sums(wide_or(x + at, end - at, 0), all(-row->near));
                pairs_t c = two_sums(d.high, all(-row->low.high));
                c.low += d.low - row->low.low;
                pairs_t t = two_products(g.high, c.high);
                accumulate(&s[v], g.high, g.low);
                accumulate(&p[v], t.high, t.low + (g.high * c.low + g.low * c.high));
                q += g.high * g.high;
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
    double err_p = (h + 25) * W * rms * row->spread + rms * row->centring;
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
    element_t *dx = results_at(call, i * call->size);
    double r = row2->r.high, q = fabs(means->q.high);
    bool undecided = false;
    for (int64_t offset = from; offset < to; offset += L) {
        int64_t n = smaller(L, to - offset);
        doubles gamma = all(1.0);
        if (call->gamma)
            gamma = parameters_at(call, call->gamma, offset, n);
        gradient_t gradient =
            gradient_of(wide_or(x + offset, n, 0), wide_or(dy + offset, n, 0), gamma, row);
        rounded_t waste;
        differ_t differ = round_bracket(gradient.z, gradient.bound, 1, &waste);
        for (int64_t k = 0; k < n; k++) {
            if (differ[k] == 0)
                continue;
            int64_t j = offset + k;
            pair_t g = add(product_at(call, dy, j), negative(means->a));
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

/* Widen gamma once for rows of at most KEPT blocks. Return False if it is not finite. */
enum { ROOM_FOR_GAMMA = KEPT * COLUMNS };
INLINE bool is_kept(const call_t *call) { return call->size <= ROOM_FOR_GAMMA; }
INLINE bool keep_gamma(const call_t *call, double *gamma)
{
    return !is_kept(call) || widen_gamma(call, 0, call->size, gamma);
}

/* Return gamma from a column on. If it is not kept, `gamma` is scratch memory; NULL if it is not
   finite. */
INLINE const double *gamma_of(const call_t *call, int64_t offset, int64_t n, double *gamma)
{
    if (is_kept(call))
        return gamma + offset;
    return widen_gamma(call, offset, n, gamma) ? gamma : NULL;
}

/* Sum the products of up to SEGMENT elements of a group of rows. Return False if gamma is not
   finite. */
INLINE bool sum_segment_products(const call_t *call, int64_t start, int64_t n, int64_t from,
                                 bool centred, double *gamma, double sums[ALONG][GROUP])
{
    int64_t size = call->size, length = smaller(size - from, SEGMENT);
    lanes_t lanes[GROUP][ALONG];
    folded_t rows[ALONG][GROUP] = {{{{{0}}}}};
    if (length > COLUMNS)
        memset(lanes, 0, sizeof(lanes_t) * ALONG * (size_t)n);
    int64_t offset = from;
    do { /* at least once */
        int64_t columns = smaller(from + length - offset, COLUMNS);
        const double *scale = gamma_of(call, offset, columns, gamma);
        if (scale == NULL)
            return false;
        for (int64_t k = 0; k < n; k++) {
            const element_t *x = elements_at(call->x, (start + k) * size + offset);
            const element_t *dy = elements_at(call->dy, (start + k) * size + offset);
            double near = saved_near(call, start + k);
            if (centred && near != 0)
                add_block_products(x, dy, scale, columns, near, true, true, length, lanes[k]);
            else
                add_block_products(x, dy, scale, columns, 0, false, centred, length, lanes[k]);
        }
        offset += COLUMNS;
    } while (offset < from + length);
    for (int i = 0; i < ALONG; i++) {
        for (int64_t k = 0; k < n; k++)
            rows[i][k] = folded_row(&lanes[k][i], length);
        add_folded(rows[i], sums[i]);
    }
    return true;
}

/* Derive the numbers and the status of the rows of a group. A row is finite if its g*g are. */
INLINE void finish_sums(const call_t *call, int64_t start, int64_t n, bool centred,
                        double means[ALONG][GROUP], row_t *rows)
{
    bool changed[GROUP];
    for (int i = 0; i < ALONG; i++)
        for (int64_t k = 0; k < GROUP; k++)
            means[i][k] /= (double)call->size;
    derive_rows(call, start, n, means, centred, rows, changed);
    for (int64_t k = 0; k < n; k++) {
        double v = saved_variance(call, start + k);
        call->status[start + k] = !(means[OF_GG][k] < INFINITY) ? NOT_FINITE
                                  : v != v                      ? UNDEFINED
                                  : changed[k]                  ? CHANGED
                                                                : OK;
        rows[k].is_constant = is_constant(call, elements_at(call->dy, (start + k) * call->size));
        if (rows[k].is_constant)
            rows[k].reach = 0; /* what is written is replaced */
    }
}

/* Sum along the rows of a group, and compute their numbers and status. Return False if gamma is
   not finite. */
INLINE bool compute_rows(const call_t *call, int64_t start, int64_t n, bool centred, row_t *rows,
                         double *gamma)
{
    double sums[ALONG][GROUP] = {{0}};
    pair_t totals[ALONG][GROUP];
    memset(totals, 0, sizeof totals);
    for (int64_t from = 0; from < call->size; from += SEGMENT) {
        if (!sum_segment_products(call, start, n, from, centred, gamma, sums))
            return false;
        for (int i = 0; call->size > SEGMENT && i < ALONG; i++)
            for (int64_t k = 0; k < n; k++) {
                add_to_pair(&totals[i][k], sums[i][k]);
                sums[i][k] = totals[i][k].high + totals[i][k].low;
            }
    }
    finish_sums(call, start, n, centred, sums, rows);
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
    undecided += offset;
    memset(undecided, type != FLOAT32, (size_t)n);
    if (type == FLOAT64) /* tier 1 cannot decide it, and has no sums */
        return n;
    const double *high = sums + DGAMMA_HIGH * n, *low = sums + DGAMMA_LOW * n;
    const double *bound = sums + DGAMMA_BOUND * n;
    float *dgamma = call->dgamma;
    for (int64_t j = 0; type == FLOAT32 && j < n; j += L) { /* the sum as one float64 (E13) */
        doubles s = sums_or_zero(high + j, n - j) + sums_or_zero(low + j, n - j);
        doubles error = SLACK * sums_or_zero(bound + j, n - j) +
                        call->bound_scale * 2 * SLACK * U * absolute(s);
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
            put_rounded(call->dbeta, offset + j, call->dbeta_type, high[j], low[j]);
}

/* Tier 2: add L terms of a row to a strip of dgamma, of which n are there. No pair is normalized
   (F10). */
INLINE void add_terms_of(doubles x, doubles dy, const row2_t *row, bool is_far, double of_term,
                         double of_dy, strip_t *strip, int64_t k)
{
    pairs_t d = {x, {0}};
    if (is_far)
        d = two_sums(x, all(-row->near));
    pairs_t c = two_sums(d.high, all(-row->low.high));
    c.low += d.low - row->low.low;
    pairs_t xhat = two_products(c.high, all(row->r.high));
    xhat.low = multiply_add(c.high, all(row->r.low), xhat.low);
    xhat.low = multiply_add(c.low, all(row->r.high), xhat.low);
    pairs_t t = two_products(xhat.high, dy);
    t.low = multiply_add(xhat.low, dy, t.low);
    pairs_t s = two_sums(LOAD(doubles, strip->high + k), t.high);
    doubles low = LOAD(doubles, strip->low + k) + (s.low + t.low);
    doubles bound = LOAD(doubles, strip->bound + k);
    bound = multiply_add(absolute(t.high), all(of_term), bound);
    bound = multiply_add(absolute(dy), all(of_dy), bound);
    bound = multiply_add(absolute(s.high), all(W), bound);
    bound = multiply_add(absolute(low), all(2 * U), bound);
    STORE(strip->high + k, s.high);
    STORE(strip->low + k, low);
    STORE(strip->bound + k, bound);
}

INLINE void add_row_to_strips(const call_t *call, int64_t i, const row2_t *row, bool is_far,
                              strip_t *strips, int64_t count)
{
    double centring = row->centring + (call->centred ? 14 * W * row->spread : 0);
    double of_term = SLACK * (row->err_r + 30 * W), of_dy = SLACK * row->r.high * centring;
    for (strip_t *strip = strips; strip < strips + count; strip++) {
        int64_t at = i * call->size + strip->column, n = call->size - strip->column;
        const element_t *x = elements_at(call->x, at), *dy = elements_at(call->dy, at);
        for (int64_t k = 0; k < STRIP; k += L) {
            if (n >= STRIP)
                add_terms_of(wide(x + k), wide(dy + k), row, is_far, of_term, of_dy, strip, k);
            else if (k < n)
                add_terms_of(wide_or(x + k, n - k, 0), wide_or(dy + k, n - k, 0), row, is_far,
                             of_term, of_dy, strip, k);
        }
    }
}

/* Tier 2: add the terms of a row to strips of dgamma (F10). */
static __attribute__((noinline, unused)) void add_row_to(const call_t *call, int64_t i,
                                                         const row2_t *row, strip_t *strips,
                                                         int64_t count)
{
    if (row->near == 0)
        add_row_to_strips(call, i, row, false, strips, count);
    else
        add_row_to_strips(call, i, row, true, strips, count);
}

#endif

/* Backward: dx of rows and the sums over rows, correct (tiers 1 and 2) and fast. Compiled per
   instruction set. */
#include "tier2.h"

outcome_t NAME(forward)(const call_t *call, int64_t from, int64_t to);
int64_t NAME(statistics)(const call_t *call, int64_t from, int64_t to);
int64_t NAME(add_terms)(const call_t *call, int64_t from, int64_t to, terms_t *terms,
                        uint8_t *undecided);
void NAME(empty_bins)(terms_t *terms);
void NAME(deposit_dbeta)(digits_t *digits, const double *sums, int64_t *buffer, int bottom,
                         int top, int bits);
bool NAME(carry)(int64_t *digits, int64_t places, int64_t columns);
bool NAME(add_numbers)(const number_t *a, const number_t *b, int64_t first, int64_t places,
                       int64_t columns, int64_t *sum);

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

INLINE half_bits write_vector(doubles x, doubles dy, doubles gamma, const row_t *row, halves *dx,
                              bool with_dgamma, double *dgamma, double *bound, double *dbeta)
{
    gradient_t found = gradient_of(x, dy, gamma, row);
    halves upper = narrow(found.z + found.bound);
    *dx = narrow(found.z - found.bound);
    if (with_dgamma) {
        doubles xhat = found.c * row->r; /* (E12) */
        doubles error = multiply_add(absolute(xhat), all(row->of_term), all(row->of_dy));
        STORE(dgamma, multiply_add(dy, xhat, LOAD(doubles, dgamma)));
        STORE(bound, multiply_add(absolute(dy), error, LOAD(doubles, bound)));
    }
    STORE(dbeta, LOAD(doubles, dbeta) + dy);
    return (half_bits)*dx ^ (half_bits)upper;
}

/* Write dx of n <= COLUMNS elements and add to the shares. Return True if one is undecided. */
INLINE bool write_dx(const float *restrict x, const float *restrict dy,
                     const double *restrict gamma, const row_t *row, float *restrict dx,
                     bool with_dgamma, shares_t *restrict shares, int64_t n)
{
    half_bits differ = {0};
    halves lower;
    int64_t j = 0;
#pragma GCC unroll 2
    for (; j + L <= n; j += L) {
        differ |= write_vector(wide(x + j), wide(dy + j), LOAD(doubles, gamma + j), row, &lower,
                               with_dgamma, shares->dgamma + j, shares->bound + j,
                               shares->dbeta + j);
        STORE(dx + j, lower);
    }
    if (j < n) { /* filled up; shares have room for it */
        half_bits rest = write_vector(wide_or(x + j, n - j, 0), wide_or(dy + j, n - j, 0),
                                      LOAD(doubles, gamma + j), row, &lower, with_dgamma,
                                      shares->dgamma + j, shares->bound + j, shares->dbeta + j);
        for (int64_t i = 0; i < n - j; i++)
            differ[0] |= rest[i];
        memcpy(dx + j, &lower, (size_t)(n - j) * sizeof(float));
    }
    return any(differ);
}

/* gamma of some columns in float64, filled up to a vector. Return False if it is not finite. */
INLINE bool widen_gamma(const call_t *call, int64_t left, int64_t n, double *gamma)
{
    doubles zeros = {0};
    for (int64_t j = 0; j < n; j += L) {
        doubles scale = call->gamma ? wide_or(call->gamma + left + j, n - j, 0) : all(1);
        STORE(gamma + j, scale);
        zeros += scale * 0.0;
    }
    return all_zero(zeros);
}

INLINE extent_t wider(extent_t a, extent_t b)
{
    return (extent_t){a.smallest < b.smallest ? a.smallest : b.smallest,
                      a.largest > b.largest ? a.largest : b.largest};
}

static const extent_t NOTHING = {0xFFFFFFFFu, 0};

INLINE extent_t extent_of(const float *dy, int64_t n)
{
    bits largest = {0}, inverted = {0}; /* the maximum of ~m is the minimum of m */
    int64_t j = 0;
    for (; j + 2 * L <= n; j += 2 * L) {
        bits m = LOAD(bits, dy + j) & 0x7FFFFFFFu;
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

INLINE void add_to_pair(double *high, double *low, double term)
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
            add_to_pair(dbeta + j, dbeta_low + j, shares->dbeta[j]);
}

/* Structure check: True if g is the same all along a row, so that dx is zero (D21); RMSNorm: if
   it is zero. */
static bool is_constant(const call_t *call, const float *dy)
{
    const float *gamma = call->gamma;
    double first = (double)dy[0] * (gamma ? gamma[0] : 1.0);
    if (!call->centred && first != 0)
        return false;
    for (int64_t j = call->size - 1; j > 0; j--)
        if ((double)dy[j] * (gamma ? gamma[j] : 1.0) != first)
            return false;
    return true;
}

/* dx of a centred row of two elements (D24). Return True if one is undecided. */
static bool write_two(const call_t *call, int64_t i)
{
    const float *dy = call->dy + 2 * i, *gamma = call->gamma;
    float *dx = call->out + 2 * i;
    double low = saved_low(call, i), v = saved_variance(call, i), w = v + call->eps;
    double of_w = error_of_w(low, v, w, depth_of_sum(2));
    double g0 = (double)dy[0] * (gamma ? gamma[0] : 1.0);
    double g1 = (double)dy[1] * (gamma ? gamma[1] : 1.0);
    double half = (g0 - g1) * ((call->eps / w) / sqrt(w) / 2);
    double bound = SLACK * fabs(half) * (error_of_r(of_w) + of_w + 8 * U) + TINY; /* (E11) */
    bound *= call->scale_of_bounds;
    dx[0] = (float)(half + 0.0);
    dx[1] = (float)(-half + 0.0);
    return bits_of((float)(half - bound)) != bits_of((float)(half + bound));
}

/* ---- tier 2 ---- */

/* The mean of g, and q = mean(g*c)/w, as pairs; rms of g. */
typedef struct {
    pair_t a, q;
    double of_a, of_q;
} slopes_t;

static slopes_t find_slopes(const call_t *call, const float *x, const float *dy, const row2_t *row)
{
    int64_t size = call->size;
    pair_t sum = {0, 0}, products = {0, 0};
    double squares = 0;
    for (int64_t start = 0; start < size; start += BLOCK2) {
        pairs_t s[VECTORS] = {{{0}, {0}}}, p[VECTORS] = {{{0}, {0}}};
        doubles q = {0};
        int64_t end = smaller(start + BLOCK2, size);
        for (int64_t left = start; left < end; left += LANES)
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) {
                int64_t at = left + v * L;
                if (at >= end)
                    break;
                doubles g = wide_or(dy + at, end - at, 0);
                if (call->gamma)
                    g *= wide_or(call->gamma + at, end - at, 0);
                /* c as a pair that is not normalized (C3). */
                pairs_t d = two_sums(wide_or(x + at, end - at, 0), all(-row->near));
                pairs_t c = two_sums(d.high, all(-row->low.high));
                c.low += d.low - row->low.low;
                pairs_t t = two_products(g, c.high);
                accumulate(&s[v], g, (doubles){0});
                accumulate(&p[v], t.high, t.low + g * c.low);
                q += g * g;
            }
        sum = add(sum, fold_pairs(s));
        products = add(products, fold_pairs(p));
        for (int k = 0; k < L; k++)
            squares += q[k];
    }
    slopes_t found = {{0, 0}, {0, 0}, 0, 0};
    double h = depth_of_pairs(size), n = (double)size, rms = sqrt(squares / n) * SLACK;
    if (call->centred)
        found.a = divide_double(sum, n);
    found.of_a = (h + 4) * W * rms; /* (F6) */
    found.q = divide(divide_double(products, n), row->w);
    double of_p = (h + 16) * W * rms * row->spread + rms * row->centring;
    found.of_q = of_p / row->w.high + fabs(found.q.high) * (row->of_w + 15 * W); /* (F7) */
    return found;
}

/* Tier 2 for the undecided elements of a row. Return True if some remain undecided. */
static bool write_dx_tier2(const call_t *call, int64_t i, const row_t *row)
{
    const float *x = call->x + i * call->size, *dy = call->dy + i * call->size;
    float *dx = call->out + i * call->size;
    row2_t row2;
    describe_row(call, x, row->near, &row2);
    slopes_t slopes = find_slopes(call, x, dy, &row2);
    double r = row2.r.high, q = fabs(slopes.q.high);
    bool undecided = false;
    for (int64_t left = 0; left < call->size; left += L) {
        int64_t n = smaller(L, call->size - left);
        doubles gamma = all(1.0);
        if (call->gamma)
            gamma = wide_or(call->gamma + left, n, 0);
        gradient_t found = gradient_of(wide_or(x + left, n, 0), wide_or(dy + left, n, 0), gamma, row);
        half_bits differ =
            (half_bits)narrow(found.z - found.bound) ^ (half_bits)narrow(found.z + found.bound);
        for (int64_t k = 0; k < n; k++) {
            if (differ[k] == 0)
                continue;
            int64_t j = left + k;
            double product = (double)dy[j] * (call->gamma ? call->gamma[j] : 1.0);
            pair_t g = add_double(negative(slopes.a), product);
            pair_t c = centred_element(&row2, x[j]);
            pair_t z = multiply(add(g, negative(multiply(c, slopes.q))), row2.r);
            double bound = SLACK * (r * (slopes.of_a + q * row2.centring + 3 * W * fabs(g.high) +
                                         fabs(c.high) * (slopes.of_q + 10 * W * q)) +
                                    fabs(z.high) * (row2.of_r + 12 * W)) + TINY; /* (F8) */
            undecided |= !is_decided(z, bound * call->scale_of_bounds, dx + j);
        }
    }
    return undecided;
}

/* ---- rows ---- */

/* Finish the rows of a group: structure checks, then tier 2. Return how many are not OK. */
static int64_t finish_rows(const call_t *call, int64_t start, int64_t n, const row_t *rows)
{
    int64_t not_ok = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = start + k;
        uint8_t *status = call->status + i;
        const float *dy = call->dy + i * call->size;
        if (*status == OK || *status == UNDECIDED) {
            if (is_constant(call, dy)) {
                memset(call->out + i * call->size, 0, (size_t)call->size * sizeof(float));
                *status = OK;
            } else if (call->centred && call->size == 2) {
                *status = write_two(call, i) ? UNDECIDED : OK;
            } else if (*status == UNDECIDED && !write_dx_tier2(call, i, &rows[k])) {
                *status = OK;
            }
        }
        not_ok += *status != OK;
    }
    return not_ok;
}

/* Sum along the rows of a group, and find their numbers and status. gamma of short rows is widened
   already; for others there is room. Return False if it is not finite. */
INLINE bool find_rows(const call_t *call, int64_t start, int64_t n, bool centred, row_t *rows,
                      extent_t *extent, double *gamma)
{
    int64_t size = call->size;
    lanes_t lanes[GROUP][ALONG];
    extent_t extents[GROUP];
    memset(lanes, 0, sizeof(lanes_t) * ALONG * (size_t)n);
    for (int64_t k = 0; k < n; k++)
        extents[k] = NOTHING;
    for (int64_t left = 0; left < size; left += COLUMNS) {
        int64_t columns = smaller(size - left, COLUMNS);
        if (size > COLUMNS && !widen_gamma(call, left, columns, gamma))
            return false;
        for (int64_t k = 0; k < n; k++) {
            const float *x = call->x + (start + k) * size + left;
            const float *dy = call->dy + (start + k) * size + left;
            extents[k] = wider(extents[k], extent_of(dy, columns));
            add_block_products(x, dy, gamma, columns, saved_near(call, start + k),
                               saved_low(call, start + k), centred, size, lanes[k]);
        }
    }
    double means[ALONG][GROUP] = {{0}};
    bool changed[GROUP];
    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < ALONG; i++)
            means[i][k] = total(&lanes[k][i], size) / (double)size;
    derive_rows(call, start, n, means, centred, rows, changed);
    *extent = NOTHING;
    for (int64_t k = 0; k < n; k++) {
        uint8_t *status = call->status + start + k;
        double v = saved_variance(call, start + k);
        *status = v != v ? UNDEFINED : changed[k] ? CHANGED : OK;
        if (extents[k].largest >= 0x7F800000u)
            *status = NOT_FINITE;
        else
            *extent = wider(*extent, extents[k]);
    }
    return true;
}

INLINE outcome_t backward_rows(const call_t *call, int64_t from, int64_t to, bool centred,
                               bool with_dgamma, double *sums)
{
    int64_t size = call->size;
    outcome_t outcome = {0, false, NOTHING};
    double gamma[SHARE];
    if (size <= COLUMNS && !widen_gamma(call, 0, size, gamma)) {
        outcome.not_finite = true;
        return outcome;
    }
    for (int64_t start = from; start < to; start += GROUP) {
        int64_t n = smaller(to - start, GROUP);
        row_t rows[GROUP];
        extent_t extent;
        if (!find_rows(call, start, n, centred, rows, &extent, gamma)) {
            outcome.not_finite = true;
            return outcome;
        }
        bool exact = is_exact_group(extent);
        outcome.extent = wider(outcome.extent, extent);
        for (int64_t left = 0; left < size; left += COLUMNS) {
            int64_t columns = smaller(size - left, COLUMNS);
            shares_t shares;
            if (size > COLUMNS)
                widen_gamma(call, left, columns, gamma);
            clear(&shares, columns);
            for (int64_t k = 0; k < n; k++) {
                int64_t at = (start + k) * size + left;
                uint8_t *status = call->status + start + k;
                if (*status != NOT_FINITE &&
                    write_dx(call->x + at, call->dy + at, gamma, &rows[k], call->out + at,
                             with_dgamma, &shares, columns) &&
                    *status == OK)
                    *status = UNDECIDED;
            }
            add_shares(&shares, sums, size, left, columns, exact, with_dgamma);
        }
        if (!exact)
            for (int64_t i = start; i < start + n; i++)
                for (int64_t j = 0; j < size && call->status[i] != NOT_FINITE; j++)
                    add_to_pair(sums + DBETA_HIGH * size + j, sums + DBETA_LOW * size + j,
                                call->dy[i * size + j]);
        outcome.not_ok += finish_rows(call, start, n, rows);
    }
    return outcome;
}

/* Write dx and the row status, and add to the sums over rows (SUMS x size). */
outcome_t NAME(backward)(const call_t *call, int64_t from, int64_t to, double *sums)
{
    if (call->without_dgamma)
        return call->centred ? backward_rows(call, from, to, true, false, sums)
                             : backward_rows(call, from, to, false, false, sums);
    return call->centred ? backward_rows(call, from, to, true, true, sums)
                         : backward_rows(call, from, to, false, true, sums);
}

/* ---- columns ---- */

void NAME(merge)(double *sums, const double *others, int64_t size)
{
    double *high = sums + DGAMMA_HIGH * size, *low = sums + DGAMMA_LOW * size;
    double *bound = sums + DGAMMA_BOUND * size;
    const double *high2 = others + DGAMMA_HIGH * size, *low2 = others + DGAMMA_LOW * size;
    const double *bound2 = others + DGAMMA_BOUND * size;
    for (int64_t j = 0; j < size; j++) {
        pair_t s = two_sum(high[j], high2[j]);
        double rest = low[j] + low2[j] + s.low;
        bound[j] += bound2[j] + 4 * U * (fabs(rest) + fabs(low2[j]) + fabs(s.low));
        high[j] = s.high;
        low[j] = rest;
    }
    for (int64_t j = 0; j < size; j++) {
        add_to_pair(sums + DBETA_HIGH * size + j, sums + DBETA_LOW * size + j,
                    others[DBETA_HIGH * size + j]);
        sums[DBETA_LOW * size + j] += others[DBETA_LOW * size + j];
    }
}

/* Round dgamma where the bound allows it. Return how many columns are undecided, and which. */
int64_t NAME(round_dgamma)(const double *sums, int64_t size, double scale, float *dgamma,
                           uint8_t *undecided)
{
    const double *high = sums + DGAMMA_HIGH * size, *low = sums + DGAMMA_LOW * size;
    const double *bound = sums + DGAMMA_BOUND * size;
    for (int64_t j = 0; j < size; j++) { /* the sum as one float64 (E13) */
        double s = high[j] + low[j], error = SLACK * bound[j] + scale * U * fabs(s);
        dgamma[j] = (float)(s - error);
        undecided[j] = bits_of(dgamma[j]) != bits_of((float)(s + error));
    }
    int64_t count = 0;
    for (int64_t j = 0; j < size; j++)
        if (undecided[j]) {
            undecided[j] = !is_decided(two_sum(high[j], low[j]), SLACK * bound[j], dgamma + j);
            count += undecided[j];
        }
    return count;
}

void NAME(round_dbeta)(const double *sums, int64_t size, float *dbeta)
{
    for (int64_t j = 0; j < size; j++)
        dbeta[j] = rounded(sums[DBETA_HIGH * size + j], sums[DBETA_LOW * size + j]) + 0.0f;
}

/* Tier 2: add the terms of some columns of dgamma, over rows that are OK (F10). */
void NAME(add_columns)(const call_t *call, int64_t from, int64_t to, column_t *columns, int64_t n)
{
    for (int64_t i = from; i < to; i++) {
        const float *x = call->x + i * call->size, *dy = call->dy + i * call->size;
        if (saved_variance(call, i) == 0)
            continue; /* xhat is exactly zero */
        row2_t row;
        describe_row(call, x, saved_near(call, i), &row);
        double relative = SLACK * (row.of_r + 16 * W), centring = SLACK * row.r.high * row.centring;
        for (int64_t k = 0; k < n; k++) {
            column_t *column = columns + k;
            double slope = dy[column->column];
            pair_t c = centred_element(&row, x[column->column]);
            pair_t t = multiply_double(multiply(c, row.r), slope);
            pair_t s = two_sum(column->high, t.high);
            column->high = s.high;
            column->low += s.low + t.low;
            column->bound += relative * fabs(t.high) + centring * fabs(slope) +
                             U * (2 * fabs(column->low) + fabs(s.low) + fabs(t.low)) +
                             (slope != 0 ? TINY : 0);
        }
    }
}

/* ---- fast mode ---- */

/* What the elements of a row need in float32; not easy if float32 cannot hold it. */
typedef struct {
    float high, low, r, a, q;
    bool is_easy;
} fast_row_t;

INLINE floats floats_in_pairs(const floats *t, int run)
{
    if (run == 8)
        return ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]));
    if (run == 4)
        return (t[0] + t[1]) + (t[2] + t[3]);
    return run == 2 ? t[0] + t[1] : t[0];
}
INLINE doubles widened_sum(floats x) { return widened(low_half(x)) + widened(high_half(x)); }

/* Sums of up to eight terms in float32, added up in float64. */
INLINE void add_fast_products(const float *x, const float *dy, const float *gamma, int run,
                              float high, float low, bool centred, doubles s[ALONG])
{
    floats c[RUN], g[RUN], t[RUN];
#pragma GCC unroll 8
    for (int i = 0; i < run; i++) {
        c[i] = LOAD(floats, x + 2 * L * i);
        if (centred)
            c[i] = (c[i] - high) - low;
        g[i] = LOAD(floats, dy + 2 * L * i) * LOAD(floats, gamma + 2 * L * i);
        t[i] = g[i] * g[i];
    }
    s[OF_GG] += widened_sum(floats_in_pairs(t, run));
#pragma GCC unroll 8
    for (int i = 0; i < run; i++)
        t[i] = g[i] * c[i];
    s[OF_GC] += widened_sum(floats_in_pairs(t, run));
    if (centred)
        s[OF_G] += widened_sum(floats_in_pairs(g, run));
#pragma GCC unroll 8
    for (int i = 0; i < run; i++)
        c[i] = centred ? c[i] : c[i] * c[i];
    s[OF_C] += widened_sum(floats_in_pairs(c, run));
}

INLINE void fast_means(const float *x, const float *dy, const float *gamma, int64_t size,
                       float high, float low, bool centred, double means[ALONG])
{
    enum { WIDTH = 2 * L };
    doubles s[ALONG] = {{0}};
    double rest[ALONG] = {0};
    int64_t j = 0;
    for (; j + RUN * WIDTH <= size; j += RUN * WIDTH)
        add_fast_products(x + j, dy + j, gamma + j, RUN, high, low, centred, s);
    if (j + 4 * WIDTH <= size) {
        add_fast_products(x + j, dy + j, gamma + j, 4, high, low, centred, s);
        j += 4 * WIDTH;
    }
    for (; j + WIDTH <= size; j += WIDTH)
        add_fast_products(x + j, dy + j, gamma + j, 1, high, low, centred, s);
    for (; j < size; j++) {
        double c = (x[j] - high) - low, g = (double)(dy[j] * gamma[j]);
        rest[OF_C] += centred ? c : c * c;
        rest[OF_G] += g;
        rest[OF_GC] += g * c;
        rest[OF_GG] += g * g;
    }
    for (int k = 0; k < ALONG; k++) {
        double sum = rest[k];
        for (int i = 0; i < L; i++)
            sum += s[k][i];
        means[k] = sum / (double)size;
    }
}

/* Find the float32 numbers of a row. Return True if x changed since forward. */
INLINE bool find_fast_row(const call_t *call, int64_t i, const float *gamma, bool centred,
                          fast_row_t *row)
{
    double v = saved_variance(call, i), w = v + call->eps;
    *row = (fast_row_t){0};
    row->is_easy = !(centred && call->size == 2) && 0x1p-60 < v && v < 0x1p60 && 0x1p-60 < w &&
                   w < 0x1p80;
    if (!row->is_easy)
        return false;
    double near = saved_near(call, i), low = saved_low(call, i), means[ALONG];
    row->high = (float)(near + low);
    row->low = (float)((near - (double)row->high) + low);
    fast_means(call->x + i * call->size, call->dy + i * call->size, gamma, call->size, row->high,
               row->low, centred, means);
    /* Products of g must stay inside the range of float32. */
    row->is_easy = 0x1p-100 < means[OF_GG] && means[OF_GG] < 0x1p100;
    row->r = (float)(1 / sqrt(w));
    row->a = centred ? (float)means[OF_G] : -0.0f; /* g less -0 is +0 where it is -0 */
    row->q = (float)(means[OF_GC] / w);
    if (!row->is_easy)
        return false;
    return centred ? !(fabs(means[OF_C]) <= 0x1p-19 * sqrt(v))
                   : !(fabs(means[OF_C] - v) <= 0x1p-19 * v);
}

enum { FOUR = 4 };

/* Some columns of four rows. A row that is missing or not easy is a row of zeros, which add
   nothing: dx of a row does not depend on the rows beside it. */
typedef struct {
    const float *x[FOUR], *dy[FOUR];
    float *dx[FOUR];
    fast_row_t rows[FOUR];
} four_t;

/* dx of 2*L columns; return dy*xhat summed over the rows. */
INLINE floats write_four(const four_t *four, int64_t j, floats gamma, floats dx[FOUR])
{
    floats terms[FOUR], dy[FOUR];
#pragma GCC unroll 4
    for (int k = 0; k < FOUR; k++) {
        const fast_row_t *row = &four->rows[k];
        floats c = (LOAD(floats, four->x[k] + j) - row->high) - row->low;
        dy[k] = LOAD(floats, four->dy[k] + j);
        floats g = multiply_add_floats(dy[k], gamma, all_floats(-row->a));
        dx[k] = multiply_add_floats(-c, all_floats(row->q), g) * row->r;
        terms[k] = c * row->r;
    }
    floats first = multiply_add_floats(dy[0], terms[0], dy[1] * terms[1]);
    return first + multiply_add_floats(dy[2], terms[2], dy[3] * terms[3]);
}

INLINE doubles dbeta_of_four(const four_t *four, int64_t j)
{
    return (wide(four->dy[0] + j) + wide(four->dy[1] + j)) +
           (wide(four->dy[2] + j) + wide(four->dy[3] + j));
}

/* Add terms of dgamma in float64: their sum over four rows left the range of float32. */
static void add_large_terms(const four_t *four, int64_t n, double *dgamma)
{
    for (int k = 0; k < FOUR; k++)
        for (int64_t j = 0; j < n; j++) {
            const fast_row_t *row = &four->rows[k];
            float c = (four->x[k][j] - row->high) - row->low;
            dgamma[j] += (double)four->dy[k][j] * (double)(c * row->r);
        }
}

/* dx of some columns of four rows, and their sums over rows. n <= COLUMNS, filled up. */
INLINE void write_columns(const four_t *four, const float *gamma, int64_t n,
                          double *restrict dgamma, double *restrict dbeta)
{
    float terms[COLUMNS];
    bits top = {0};
    for (int64_t j = 0; j < n; j += 2 * L) {
        floats dx[FOUR], term = write_four(four, j, LOAD(floats, gamma + j), dx);
        for (int k = 0; k < FOUR; k++)
            STORE(four->dx[k] + j, dx[k]);
        STORE(terms + j, term);
        top = max_bits((bits)term & 0x7FFFFFFFu, top);
        STORE(dbeta + j, LOAD(doubles, dbeta + j) + dbeta_of_four(four, j));
        STORE(dbeta + j + L, LOAD(doubles, dbeta + j + L) + dbeta_of_four(four, j + L));
    }
    if (largest_of(top) >= 0x7F800000u) {
        add_large_terms(four, n, dgamma);
        return;
    }
    for (int64_t j = 0; j < n; j += 2 * L) {
        STORE(dgamma + j, LOAD(doubles, dgamma + j) + wide(terms + j));
        STORE(dgamma + j + L, LOAD(doubles, dgamma + j + L) + wide(terms + j + L));
    }
}

/* The last columns, fewer than 2*L: by copies that are filled up with zeros. */
static void write_last_columns(const four_t *four, const float *gamma, int64_t n, double *dgamma,
                               double *dbeta)
{
    float x[FOUR][2 * L] = {{0}}, dy[FOUR][2 * L] = {{0}}, dx[FOUR][2 * L], scale[2 * L] = {0};
    double sums[2][2 * L] = {{0}};
    four_t filled = *four;
    size_t bytes = (size_t)n * sizeof(float);
    for (int k = 0; k < FOUR; k++) {
        memcpy(x[k], four->x[k], bytes);
        memcpy(dy[k], four->dy[k], bytes);
        filled.x[k] = x[k];
        filled.dy[k] = dy[k];
        filled.dx[k] = dx[k];
    }
    memcpy(scale, gamma, bytes);
    memcpy(sums[0], dgamma, (size_t)n * sizeof(double));
    memcpy(sums[1], dbeta, (size_t)n * sizeof(double));
    write_columns(&filled, scale, 2 * L, sums[0], sums[1]);
    memcpy(dgamma, sums[0], (size_t)n * sizeof(double));
    memcpy(dbeta, sums[1], (size_t)n * sizeof(double));
    for (int k = 0; k < FOUR; k++)
        memcpy(four->dx[k], dx[k], bytes);
}

/* A row that is not easy: tier 1 without its test. Return False if gamma is not finite. */
static bool write_hard_row(const call_t *call, int64_t i, double *dgamma, double *dbeta)
{
    call_t untested = *call;
    untested.scale_of_bounds = 0;
    row_t row;
    extent_t extent;
    uint8_t *status = call->status + i;
    double gamma[SHARE];
    bool finite = widen_gamma(call, 0, smaller(call->size, COLUMNS), gamma);
    finite = finite && (call->centred ? find_rows(&untested, i, 1, true, &row, &extent, gamma)
                                      : find_rows(&untested, i, 1, false, &row, &extent, gamma));
    if (!finite || *status == NOT_FINITE)
        return finite;
    for (int64_t left = 0; left < call->size; left += COLUMNS) {
        int64_t n = smaller(call->size - left, COLUMNS), at = i * call->size + left;
        shares_t shares;
        widen_gamma(call, left, n, gamma);
        clear(&shares, n);
        write_dx(call->x + at, call->dy + at, gamma, &row, call->out + at, true, &shares, n);
        for (int64_t j = 0; j < n; j++) {
            dgamma[left + j] += shares.dgamma[j];
            dbeta[left + j] += shares.dbeta[j];
        }
    }
    if (*status == OK && is_constant(call, call->dy + i * call->size))
        memset(call->out + i * call->size, 0, (size_t)call->size * sizeof(float));
    else if (*status == OK && call->centred && call->size == 2)
        write_two(call, i);
    return true;
}

INLINE outcome_t fast_backward_rows(const call_t *call, int64_t from, int64_t to, bool centred,
                                    const float *gamma, double *sums)
{
    float zeros[COLUMNS] = {0}, waste[COLUMNS];
    int64_t size = call->size;
    double *dgamma = sums, *dbeta = sums + size;
    outcome_t outcome = {0, false, NOTHING};
    for (int64_t start = from; start < to; start += FOUR) {
        int64_t n = smaller(to - start, FOUR);
        four_t four;
        memset(&four, 0, sizeof four);
        for (int64_t k = 0; k < n; k++)
            call->status[start + k] =
                find_fast_row(call, start + k, gamma, centred, &four.rows[k]) ? CHANGED : OK;
        for (int64_t left = 0; left < size; left += COLUMNS) {
            int64_t columns = smaller(size - left, COLUMNS);
            int64_t whole = columns / (2 * L) * (2 * L);
            for (int k = 0; k < FOUR; k++) {
                int64_t at = (start + k) * size + left;
                bool is_easy = four.rows[k].is_easy;
                four.x[k] = is_easy ? call->x + at : zeros;
                four.dy[k] = is_easy ? call->dy + at : zeros;
                four.dx[k] = is_easy ? call->out + at : waste;
            }
            write_columns(&four, gamma + left, whole, dgamma + left, dbeta + left);
            if (whole == columns)
                continue;
            for (int k = 0; k < FOUR; k++) {
                four.x[k] += whole;
                four.dy[k] += whole;
                four.dx[k] += whole;
            }
            write_last_columns(&four, gamma + left + whole, columns - whole,
                               dgamma + left + whole, dbeta + left + whole);
        }
        for (int64_t k = 0; k < n; k++) {
            if (!four.rows[k].is_easy && !write_hard_row(call, start + k, dgamma, dbeta)) {
                outcome.not_finite = true;
                return outcome;
            }
            outcome.not_ok += call->status[start + k] != OK;
        }
    }
    return outcome;
}

/* Write dx and the row status in fast mode, and add to the sums over rows (2 x size). */
outcome_t NAME(fast_backward)(const call_t *call, int64_t from, int64_t to, double *sums)
{
    return call->centred ? fast_backward_rows(call, from, to, true, call->gamma, sums)
                         : fast_backward_rows(call, from, to, false, call->gamma, sums);
}

const kernels_t NAME(kernels) = {
    .name = TEXT(INSTRUCTIONS),
    .forward = NAME(forward),
    .backward = NAME(backward),
    .fast_backward = NAME(fast_backward),
    .add_terms = NAME(add_terms),
    .empty_bins = NAME(empty_bins),
    .deposit_dbeta = NAME(deposit_dbeta),
    .carry = NAME(carry),
    .add_numbers = NAME(add_numbers),
    .statistics = NAME(statistics),
    .add_columns = NAME(add_columns),
    .merge = NAME(merge),
    .round_dgamma = NAME(round_dgamma),
    .round_dbeta = NAME(round_dbeta),
};

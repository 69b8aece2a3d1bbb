/* Backward on float64 rows in double-double: dx and the sums over rows. Compiled per instruction
   set. */
#include "pairs.h"

/* ---- sums along rows ---- */

/* The numbers that dx of a row is computed from: a = mean(g), h = mean(g*xhat) (k in the
   equations), and the coefficients of the bounds (C11) and (C12). */
typedef struct {
    row64_t row;
    pair_t a, h;
    double common, bound_g, of_x, bound_term, bound_dy, of_low, of_high;
} back64_t;

NOT_INLINE void sum_both(const call_t *call, int64_t i, double near, int64_t k, group_t *sums,
                         double sizes[SIZES][GROUP])
{
    if (!call->centred)
        sum_row(call, i, 0, false, false, true, k, sums, sizes);
    else if (near == 0)
        sum_row(call, i, 0, false, true, true, k, sums, sizes);
    else
        sum_row(call, i, near, true, true, true, k, sums, sizes);
}

/* Return the saved mean if it is a good part of the largest element, else zero. */
INLINE double near_saved(const call_t *call, int64_t i)
{
    const double *saved = saved_of(call, i);
    return call->centred && fabs(saved[0]) > 0.25 ? saved_mean(saved).high : 0;
}

/* Derive the numbers of rows. */
INLINE void derive_rows(const call_t *call, bool centred, const group_t *sums, const moments_t *m,
                        double sizes[SIZES][GROUP], back64_t *rows)
{
    double h = depth_of_row(call->size), slack = SLACK * call->bound_scale;
    group_t mean, products;
    double common[GROUP], bound_g[GROUP], of_x[GROUP], bound_term[GROUP], bound_dy[GROUP];
    for (int k = 0; k < GROUP; k += L) {
        doubles size = all((double)call->size), size_g = LOAD(doubles, sizes[SIZE_G] + k) / size;
        doubles s = LOAD(doubles, m->spread + k), err_r = LOAD(doubles, m->err_r + k);
        pairs_t low = pairs_of(&m->low, k), r = pairs_of(&m->r, k), a = {{0}, {0}};
        pairs_t p = divide_doubles(pairs_of(&sums[SUM_GD], k), size);
        if (centred) {
            a = divide_doubles(pairs_of(&sums[SUM_G], k), size);
            p = add_pairs(p, negatives(multiply_pairs(a, low)));
        }
        pairs_t along = multiply_pairs(p, r);
        doubles size_gd = LOAD(doubles, sizes[SIZE_GD] + k) / size;
        doubles err_a = (h + 4) * W * size_g + 16 * W * absolute(a.high); /* (C9) */
        doubles err_p = (h + 16) * size_gd + (h + 20) * size_g * absolute(low.high) +
                       (h + 10) * s * absolute(a.high);
        doubles of_along = r.high * err_p * W + absolute(along.high) * (err_r + 8 * W); /* (C10) */
        doubles both = err_a + absolute(along.high) * (h + 34) * W * (r.high * s);
        put_pairs(&mean, k, a);
        put_pairs(&products, k, along);
        STORE(common + k, slack * r.high * (centred ? both : all(0))); /* (C11) */
        STORE(bound_g + k, slack * r.high * (err_r + 28 * W));
        STORE(of_x + k, slack * r.high * (of_along + absolute(along.high) * (2 * err_r + 80 * W)));
        STORE(bound_term + k, slack * (err_r + 30 * W)); /* (C12) */
        STORE(bound_dy + k, slack * r.high * LOAD(doubles, m->centring + k));
    }
    for (int64_t k = 0; k < GROUP; k++)
        rows[k] = (back64_t){row_from(m, k), pair_of(&mean, k), pair_of(&products, k), common[k],
                             bound_g[k],        of_x[k],           bound_term[k],         bound_dy[k],
                             slack * U,      slack * W};
}

/* True if a row has another mean than was saved, beyond rounding; RMSNorm: root mean square. */
INLINE bool has_changed(const call_t *call, int64_t i, bool centred, const moments_t *m, int64_t k)
{
    const double *saved = saved_of(call, i);
    if (!centred)
        return !(fabs(m->spread[k] + saved[0]) <= 0x1p-46 * m->spread[k] + 0x1p-1073);
    pair_t mean = add_double(pair_of(&m->low, k), m->near[k]), before = saved_mean(saved);
    double moved = fabs((mean.high - before.high) + (mean.low - before.low));
    return !(saved[2] < 0 && moved <= ldexp(0x1p-90, saved_exponent(saved)));
}

/* The status of a row before its elements are computed. UNDECIDED: the driver computes the whole
   row, because its sums left the range of float64. */
INLINE uint8_t judge_row(const call_t *call, int64_t i, bool centred, const moments_t *m,
                         const group_t *sums, double size_g, bool left_range, int64_t k)
{
    const double *x = row_of(call->x, i, call->size), *dy = row_of(call->dy, i, call->size);
    double s = m->spread[k];
    bool finite = fabs(sums[SUM_GD].high[k]) < INFINITY && size_g < INFINITY;
    if (!finite && !is_finite_row(dy, call->size))
        return NOT_FINITE;
    if (saved_of(call, i)[0] != saved_of(call, i)[0])
        return UNDEFINED;
    if (!(s < INFINITY))
        return is_finite_row(x, call->size) ? UNDECIDED : CHANGED;
    bool is_constant = s == 0 && has_no_spread(x, call->size, centred);
    if (!is_constant && (!is_in_range(s) || (centred && is_far_off(m, k))))
        return UNDECIDED;
    if (has_changed(call, i, centred, m, k))
        return CHANGED;
    /* Products g*d that underflow lose less than W times the mean of |g|, which is in the bound
       of centred rows (C11). */
    bool is_lost = size_g != 0 && (size_g < 0x1p-450 || size_g > 0x1p450);
    return is_lost || !finite || (!centred && left_range) ? UNDECIDED : OK;
}

INLINE void compute_rows(const call_t *call, int64_t start, int64_t n, bool centred, moments_t *m,
                      back64_t *rows, uint8_t *status)
{
    group_t sums[SUMS_ALONG];
    double sizes[SIZES][GROUP] = {{0}};
    bool left_range[GROUP];
    memset(sums, 0, sizeof sums);
    memset(m, 0, sizeof *m);
    for (int64_t k = 0; k < n; k++) {
        m->near[k] = near_saved(call, start + k);
        clear_flags();
        sum_both(call, start + k, m->near[k], k, sums, sizes);
        left_range[k] = has_left_range();
    }
    derive_moments(call, centred, sums, m);
    bool sum_again = false;
    for (int64_t k = 0; centred && k < n; k++)
        if (is_far_off(m, k) && m->spread[k] < INFINITY) {
            m->near[k] += m->low.high[k];
            sum_both(call, start + k, m->near[k], k, sums, sizes);
            sum_again = true;
        }
    if (sum_again)
        derive_moments(call, centred, sums, m);
    derive_rows(call, centred, sums, m, sizes, rows);
    for (int64_t k = 0; k < n; k++)
        status[k] = judge_row(call, start + k, centred, m, sums, sizes[SIZE_G][k],
                              left_range[k], k);
}

/* ---- elements ---- */

/* Columns of a block: its sums over rows stay in the L1 cache. The padding keeps loads and
   stores in different cache sets. */
enum { BLOCK64 = 256, SHARE64 = BLOCK64 + 16 };

enum { DBETA_BOUND = SUMS, SUMS64 };

/* Sums over rows of a block of columns, side by side. */
typedef struct {
    double of[SUMS64][SHARE64];
} shares64_t;

/* Round dx of a vector and add to the sums. Return a mask of undecided elements. */
INLINE longs round_dx(doubles x, doubles dy, doubles gamma, const back64_t *row, bool shifted,
                      bool centred, shares64_t *sums, int64_t j, doubles *dx)
{
    pairs_t xhat = normalized(x, &row->row, shifted, centred), g = two_products(dy, gamma);
    if (centred)
        g = less_pair(g, row->a);
    pairs_t along = times_pair(xhat, row->h), t = two_sums(g.high, -along.high);
    t.low += g.low - along.low;
    pairs_t z = times_pair(t, row->row.r);
    doubles bound = multiply_add(absolute(g.high), all(row->bound_g), all(row->common));
    bound = multiply_add(absolute(xhat.high), all(row->of_x), bound); /* (C11) */
    if (!centred)
        z.high += 0.0; /* no -0 where g and x are zero */

    pairs_t term = times_doubles(xhat, dy);
    pairs_t s = two_sums(LOAD(doubles, sums->of[DGAMMA_HIGH] + j), term.high);
    doubles low = LOAD(doubles, sums->of[DGAMMA_LOW] + j) + (s.low + term.low);
    doubles error = LOAD(doubles, sums->of[DGAMMA_BOUND] + j); /* (C12) */
    error = multiply_add(absolute(term.high), all(row->bound_term), error);
    error = multiply_add(absolute(dy), all(row->bound_dy), error);
    error = multiply_add(absolute(low), all(row->of_low), error);
    STORE(sums->of[DGAMMA_HIGH] + j, s.high);
    STORE(sums->of[DGAMMA_LOW] + j, low);
    STORE(sums->of[DGAMMA_BOUND] + j, multiply_add(absolute(s.high), all(row->of_high), error));

    s = two_sums(LOAD(doubles, sums->of[DBETA_HIGH] + j), dy);
    low = LOAD(doubles, sums->of[DBETA_LOW] + j) + s.low;
    error = LOAD(doubles, sums->of[DBETA_BOUND] + j); /* (C13) */
    STORE(sums->of[DBETA_HIGH] + j, s.high);
    STORE(sums->of[DBETA_LOW] + j, low);
    STORE(sums->of[DBETA_BOUND] + j, multiply_add(absolute(low), all(U), error));
    return round_both(z, bound, dx);
}

INLINE bool write_columns(const double *restrict x, const double *restrict dy,
                          const double *restrict gamma, const back64_t *row, bool shifted,
                          bool centred, shares64_t *restrict sums, double *restrict dx, int64_t n)
{
    longs differ = {0};
    doubles result;
    int64_t j = 0;
    for (; j + L <= n; j += L) {
        differ |= round_dx(LOAD(doubles, x + j), LOAD(doubles, dy + j), LOAD(doubles, gamma + j),
                           row, shifted, centred, sums, j, &result);
        STORE(dx + j, result);
    }
    if (j < n) { /* filled up; the sums have room for it */
        longs answer = round_dx(load_or(x + j, n - j, 0), load_or(dy + j, n - j, 0),
                               load_or(gamma + j, n - j, 0), row, shifted, centred, sums, j,
                               &result);
        for (int64_t k = 0; k < n - j; k++)
            differ[0] |= answer[k];
        memcpy(dx + j, &result, (size_t)(n - j) * sizeof(double));
    }
    return any_long(differ);
}

/* Write dx of some columns and add to their sums. Return True if an element is undecided. */
NOT_INLINE bool write_dx(const call_t *call, int64_t i, int64_t offset, int64_t n,
                         const back64_t *row, shares64_t *sums)
{
    const double *x = row_of(call->x, i, call->size) + offset, *gamma = gamma_of(call, offset);
    const double *dy = row_of(call->dy, i, call->size) + offset;
    double *dx = (double *)row_of(call->out, i, call->size) + offset;
    if (!call->centred)
        return write_columns(x, dy, gamma, row, false, false, sums, dx, n);
    return row->row.near == 0 ? write_columns(x, dy, gamma, row, false, true, sums, dx, n)
                              : write_columns(x, dy, gamma, row, true, true, sums, dx, n);
}

/* Add dy of a row whose other results the driver computes. Its terms of dgamma are unknown,
   unless they are zero. */
static void add_dy(const double *dy, int64_t n, bool has_terms, shares64_t *sums)
{
    for (int64_t j = 0; j < n; j++) {
        pair_t s = two_sum(sums->of[DBETA_HIGH][j], dy[j]);
        sums->of[DBETA_HIGH][j] = s.high;
        sums->of[DBETA_LOW][j] += s.low;
        sums->of[DBETA_BOUND][j] += U * fabs(sums->of[DBETA_LOW][j]);
        if (has_terms)
            sums->of[DGAMMA_BOUND][j] = INFINITY;
    }
}

/* dx of a centred row of two elements (D24). Return True if one is undecided. */
NOT_INLINE bool write_two(const call_t *call, int64_t i, const moments_t *m, int64_t k)
{
    const double *dy = row_of(call->dy, i, 2), *gamma = gamma_of(call, 0);
    double *dx = (double *)row_of(call->out, i, 2);
    pair_t g = add(two_product(dy[0], gamma[0]), negative(two_product(dy[1], gamma[1])));
    pair_t part = divide((pair_t){call->eps / 2, 0}, pair_of(&m->w, k));
    pair_t z = multiply(multiply(g, part), pair_of(&m->r, k));
    double bound = SLACK * fabs(z.high) * (m->err_r[k] + m->err_w[k] + 40 * W); /* (F9) */
    bound *= call->bound_scale;
    double lower = z.high + (z.low - bound), upper = z.high + (z.low + bound);
    dx[0] = lower + 0.0;
    dx[1] = -lower + 0.0;
    return lower != upper;
}

/* Finish the rows of a group by structure checks. Return how many are not OK. */
INLINE int64_t finish_rows(const call_t *call, int64_t start, int64_t n, const moments_t *m,
                           const bool *left_range)
{
    int64_t not_ok = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = start + k;
        uint8_t *status = call->status + i;
        if ((*status == OK || *status == UNDECIDED) && !left_range[k]) {
            if (is_zero_dx(call, i)) {
                memset((double *)row_of(call->out, i, call->size), 0,
                       (size_t)call->size * sizeof(double));
                *status = OK;
            } else if (call->centred && call->size == 2) {
                clear_flags();
                bool undecided = write_two(call, i, m, k);
                *status = undecided || has_left_range() ? UNDECIDED : OK;
            }
        }
        not_ok += *status != OK;
    }
    return not_ok;
}

INLINE void exchange(double *sums, int64_t size, int64_t offset, int64_t n, shares64_t *block_sums,
                     bool load)
{
    for (int s = 0; s < SUMS64; s++) {
        double *of_call = sums + s * size + offset, *of_block = block_sums->of[s];
        memcpy(load ? of_block : of_call, load ? of_call : of_block, (size_t)n * sizeof(double));
        if (load)
            memset(of_block + n, 0, L * sizeof(double));
    }
}

INLINE outcome_t backward_rows(const call_t *call, int64_t from, int64_t to, bool centred,
                               double *sums)
{
    int64_t size = call->size, group = rows_of_group(2 * size);
    outcome_t outcome = {0};
    for (int64_t start = from; start < to; start += group) {
        int64_t n = smaller(to - start, group);
        moments_t m;
        back64_t rows[GROUP];
        bool left_range[GROUP];
        uint8_t *status = call->status + start;
        compute_rows(call, start, n, centred, &m, rows, status);
        for (int64_t k = 0; k < n; k++)
            left_range[k] = status[k] != OK;
        clear_flags();
        for (int64_t offset = 0; offset < size; offset += BLOCK64) {
            int64_t columns = smaller(size - offset, BLOCK64);
            shares64_t block_sums;
            exchange(sums, size, offset, columns, &block_sums, true);
            for (int64_t k = 0; k < n; k++) {
                const double *dy = row_of(call->dy, start + k, size) + offset;
                if (status[k] == NOT_FINITE)
                    continue;
                if (left_range[k]) {
                    add_dy(dy, columns, status[k] != UNDEFINED, &block_sums);
                    clear_flags();
                    continue;
                }
                if (write_dx(call, start + k, offset, columns, &rows[k], &block_sums))
                    status[k] = UNDECIDED;
                if (has_left_range()) {
                    status[k] = UNDECIDED;
                    left_range[k] = true;
                    for (int64_t j = 0; j < columns; j++)
                        block_sums.of[DGAMMA_BOUND][j] = INFINITY;
                    clear_flags();
                }
            }
            exchange(sums, size, offset, columns, &block_sums, false);
        }
        outcome.not_ok += finish_rows(call, start, n, &m, left_range);
    }
    return outcome;
}

/* Write dx and the row status, and add to the sums over rows (SUMS64 x size). */
static outcome_t backward(const call_t *call, int64_t from, int64_t to, bool starts, double *sums)
{
    if (starts)
        memset(sums, 0, (size_t)(SUMS64 * call->size) * sizeof(double));
    return call->centred ? backward_rows(call, from, to, true, sums)
                         : backward_rows(call, from, to, false, sums);
}

/* ---- columns ---- */

INLINE void merge_pairs(double *sums, const double *others, int64_t size, int first)
{
    double *high = sums + first * size, *low = high + size, *bound = low + size;
    const double *high2 = others + first * size, *low2 = high2 + size, *bound2 = low2 + size;
    for (int64_t j = 0; j < size; j++) {
        pair_t s = two_sum(high[j], high2[j]);
        double part = low2[j] + s.low, rest = low[j] + part;
        bound[j] += bound2[j] + U * (fabs(part) + fabs(rest)) * SLACK;
        high[j] = s.high;
        low[j] = rest;
    }
}

static void merge(double *sums, const double *others, int64_t size)
{
    merge_pairs(sums, others, size, DGAMMA_HIGH);
    merge_pairs(sums, others, size, DBETA_HIGH);
}

/* Round sums to a type where the bound allows it. Return how many columns are undecided, and
   which: those without a finite sum are, too. */
static int64_t round_sums(const double *high, const double *low, const double *bound, int64_t size,
                          int type, void *values, uint8_t *undecided)
{
    int64_t count = 0;
    for (int64_t j = 0; j < size; j++) {
        pair_t s = two_sum(high[j], low[j]);
        double error = bound[j] > 0 ? SLACK * (bound[j] + U * fabs(s.low)) : bound[j];
        undecided[j] = !(fabs(s.high) + error < INFINITY) ||
                       !is_decided(s, error, type, values, j);
        count += undecided[j];
    }
    return count;
}

static int64_t round_dgamma(const call_t *call, const double *sums, uint8_t *undecided)
{
    int64_t size = call->size;
    return round_sums(sums + DGAMMA_HIGH * size, sums + DGAMMA_LOW * size,
                      sums + DGAMMA_BOUND * size, size, call->dgamma_type, call->dgamma,
                      undecided);
}

static int64_t round_dbeta(const call_t *call, const double *sums, uint8_t *undecided)
{
    int64_t size = call->size;
    return round_sums(sums + DBETA_HIGH * size, sums + DBETA_LOW * size, sums + DBETA_BOUND * size,
                      size, call->dbeta_type, call->dbeta, undecided);
}

/* Sum one column of dy exactly, as three numbers, and round it once to its type. Return False if
   three are not enough. A tie of the first two is decided by the third: the second is rounded to
   odd. */
static bool sum_dbeta(const call_t *call, int64_t column)
{
    double high = 0, low = 0, last = 0;
    for (int64_t i = 0; i < call->rows; i++) {
        pair_t s = two_sum(high, row_of(call->dy, i, call->size)[column]);
        pair_t t = two_sum(low, s.low), rest = two_sum(last, t.low);
        if (rest.low != 0)
            return false;
        high = s.high;
        low = t.high;
        last = rest.high;
    }
    for (int k = 0; k < 3; k++) {
        pair_t s = two_sum(low, last), t = two_sum(high, s.high);
        high = t.high;
        low = t.low;
        last = s.low;
    }
    pair_t s = two_sum(low, last);
    int64_t limbs;
    memcpy(&limbs, &s.high, sizeof limbs);
    if (s.low != 0 && (limbs & 1) == 0)
        limbs += (s.low > 0) == (s.high > 0) ? 1 : -1;
    memcpy(&s.high, &limbs, sizeof limbs);
    put_rounded(call->dbeta, column, call->dbeta_type, high, s.high);
    return fabs(high + s.high) < INFINITY;
}

const kernels_t NAME(kernels) = {
    .name = TEXT(INSTRUCTIONS),
    .sums = SUMS64,
    .fast_sums = FAST_SUMS64,
    .forward = NAME(forward),
    .backward = backward,
    .fast_backward = NAME(fast_backward),
    .statistics = NAME(statistics),
    .merge = merge,
    .round_dgamma = round_dgamma,
    .round_dbeta = round_dbeta,
    .sum_dbeta = sum_dbeta,
    .fast_merge = NAME(fast_merge),
    .fast_round = NAME(fast_round),
};

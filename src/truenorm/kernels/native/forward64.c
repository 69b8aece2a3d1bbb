/* Forward on float64 rows in double-double: y, the saved statistics and the row status. Compiled
   per instruction set. */
#include "pairs.h"

/* Return the approximate mean of the first elements if it is far from zero, else zero. Rows near
   zero are not shifted, which takes fewer operations. Any number is valid. */
INLINE double choose_near(const double *x, int64_t size)
{
    double sum = 0, squares = 0;
    int64_t n = smaller(size, 32);
    for (int64_t j = 0; j < n; j++) {
        sum += x[j];
        squares += x[j] * x[j];
    }
    return sum * sum <= 0.85 * (double)n * squares ? 0.0 : sum / (double)n;
}

NOT_INLINE void sum_x(const call_t *call, int64_t i, double near, int64_t k, group_t *sums,
                      double sizes[SIZES][GROUP])
{
    if (!call->centred)
        sum_row(call, i, 0, false, false, false, k, sums, sizes);
    else if (near == 0)
        sum_row(call, i, 0, false, true, false, k, sums, sizes);
    else
        sum_row(call, i, near, true, true, false, k, sums, sizes);
}

/* Compute the moments of rows, and their largest magnitudes. */
INLINE void find_moments(const call_t *call, int64_t start, int64_t n, bool centred, moments_t *m,
                         double sizes[SIZES][GROUP])
{
    group_t sums[SUMS_ALONG];
    memset(sums, 0, sizeof sums);
    for (int64_t k = 0; k < n; k++) {
        m->near[k] = centred ? choose_near(row_of(call->x, start + k, call->size), call->size) : 0;
        sum_x(call, start + k, m->near[k], k, sums, sizes);
    }
    derive_moments(call, centred, sums, m);
    bool sum_again = false;
    for (int64_t k = 0; centred && k < n; k++)
        if (is_far_off(m, k) && m->spread[k] < INFINITY) {
            m->near[k] += m->low.high[k];
            sum_x(call, start + k, m->near[k], k, sums, sizes);
            sum_again = true;
        }
    if (sum_again)
        derive_moments(call, centred, sums, m);
}

/* Return the row status before elements are computed; FAR is saved for rows that the driver
   computes. */
INLINE uint8_t judge_row(const call_t *call, int64_t i, bool centred, const moments_t *m,
                         int64_t k, bool *is_constant)
{
    const double *x = row_of(call->x, i, call->size);
    double s = m->spread[k];
    *is_constant = s == 0 && has_no_spread(x, call->size, centred);
    if (*is_constant)
        return call->eps > 0 ? OK : UNDEFINED;
    if (is_in_range(s) && !(centred && is_far_off(m, k)))
        return OK;
    return far_status(call, x, centred);
}

/* Save the mean as a pair times a power of two; RMSNorm: the root mean square, negative. */
INLINE void save_row(double *saved, bool centred, const moments_t *m, int64_t k, double largest)
{
    if (!centred) {
        saved[0] = -(m->spread[k] > 0x1p-1074 ? m->spread[k] : 0x1p-1074);
        return;
    }
    int exponent = 0;
    if (largest > 0)
        frexp(largest, &exponent);
    pair_t mean = add_double(pair_of(&m->low, k), m->near[k]);
    saved[0] = ldexp(mean.high, -exponent);
    saved[1] = ldexp(mean.low, -exponent);
    saved[2] = exponent + BY_PAIRS;
}

/* The numbers that y of a row is computed from; k and f are the factors of |t| and of the
   weights in (C8). */
typedef struct {
    row64_t row;
    double k, f;
} scale64_t;

/* The parameters of a block of columns: beta without -0, and the weights of (C8). */
typedef struct {
    double beta[COLUMNS + L], weight[COLUMNS + L];
} weights_t;

INLINE void find_weights(const call_t *call, int64_t offset, int64_t n, weights_t *p)
{
    const double *gamma = gamma_of(call, offset), *beta = beta_of(call, offset);
    double h = depth_of_row(call->size), scale = SLACK * call->bound_scale;
    double omega = call->centred ? (h + 24) * W * scale : 0, of_beta = 3 * W * scale;
    for (int64_t j = 0; j < n; j++) {
        p->beta[j] = beta[j] + 0.0;
        p->weight[j] = fabs(gamma[j]) * omega + fabs(beta[j]) * of_beta;
    }
}

/* Round y of a vector. Return a mask of undecided elements. */
INLINE longs round_y(doubles x, doubles gamma, doubles beta, doubles weight, const scale64_t *s,
                     bool shifted, bool centred, doubles *y)
{
    pairs_t t = times_doubles(normalized(x, &s->row, shifted, centred), gamma);
    pairs_t z = two_sums(t.high, beta);
    z.low += t.low;
    return round_both(z, multiply_add(absolute(t.high), all(s->k), weight * s->f), y);
}

/* Write y of some columns of a row. Return True if an element is undecided; `undecided`, if it
   is not NULL, marks them. */
INLINE bool write_row(const double *restrict x, const double *restrict gamma,
                      const weights_t *restrict p, const scale64_t *s, bool shifted, bool centred,
                      double *restrict y, int64_t n, uint8_t *undecided)
{
    longs differ = {0};
    doubles result;
    int64_t j = 0;
#pragma GCC unroll 2
    for (; j + L <= n; j += L) {
        longs answer = round_y(LOAD(doubles, x + j), LOAD(doubles, gamma + j),
                              LOAD(doubles, p->beta + j), LOAD(doubles, p->weight + j), s, shifted,
                              centred, &result);
        differ |= answer;
        STORE(y + j, result);
        for (int k = 0; undecided && k < L; k++)
            undecided[j + k] = answer[k] != 0;
    }
    if (j < n) {
        longs answer = round_y(load_or(x + j, n - j, 0), load_or(gamma + j, n - j, 0),
                              load_or(p->beta + j, n - j, 0), load_or(p->weight + j, n - j, 0), s,
                              shifted, centred, &result);
        for (int64_t k = 0; k < n - j; k++) {
            differ[0] |= answer[k];
            y[j + k] = result[k];
            if (undecided)
                undecided[j + k] = answer[k] != 0;
        }
    }
    return any_long(differ);
}

NOT_INLINE bool write_y(const call_t *call, int64_t i, int64_t offset, int64_t n,
                        const weights_t *p,
                        const scale64_t *s)
{
    const double *x = row_of(call->x, i, call->size) + offset, *gamma = gamma_of(call, offset);
    double *y = (double *)row_of(call->out, i, call->size) + offset;
    if (!call->centred)
        return write_row(x, gamma, p, s, false, false, y, n, NULL);
    return s->row.near == 0 ? write_row(x, gamma, p, s, false, true, y, n, NULL)
                            : write_row(x, gamma, p, s, true, true, y, n, NULL);
}

/* Structure check: True if an element equals the mean of its row (RMSNorm: zero), so that y =
   beta. The sum is exact if its low part has no rounding error; otherwise the check returns
   False. */
typedef struct {
    bool is_known, is_exact;
    pair_t sum;
} mean_t;

static bool is_mean(const call_t *call, const double *x, double value, mean_t *mean)
{
    if (!call->centred)
        return value == 0;
    if (!mean->is_known) {
        pair_t sum = {0, 0}, rest;
        bool exact = true;
        for (int64_t j = 0; j < call->size; j++) {
            pair_t s = two_sum(sum.high, x[j]);
            rest = two_sum(sum.low, s.low);
            sum = (pair_t){s.high, rest.high};
            exact &= rest.low == 0;
        }
        *mean = (mean_t){true, exact, two_sum(sum.high, sum.low)};
    }
    pair_t product = two_product((double)call->size, value);
    return mean->is_exact && product.high == mean->sum.high && product.low == mean->sum.low;
}

/* Structure checks for the undecided elements of a row. Return True if some remain undecided. */
NOT_INLINE bool tier2_row(const call_t *call, int64_t i, const scale64_t *s)
{
    const double *x = row_of(call->x, i, call->size);
    double *y = (double *)row_of(call->out, i, call->size);
    mean_t mean = {0};
    for (int64_t offset = 0; offset < call->size; offset += COLUMNS) {
        int64_t n = smaller(call->size - offset, COLUMNS);
        const double *gamma = gamma_of(call, offset);
        uint8_t undecided[COLUMNS];
        weights_t p;
        find_weights(call, offset, n, &p);
        bool centred = call->centred;
        if (!write_row(x + offset, gamma, &p, s, centred, centred, y + offset, n, undecided))
            continue;
        for (int64_t j = 0; j < n; j++)
            if (undecided[j]) {
                bool finite = fabs(gamma[j]) < INFINITY && fabs(p.beta[j]) < INFINITY;
                if (!finite || !is_mean(call, x, x[offset + j], &mean))
                    return true;
                y[offset + j] = p.beta[j];
            }
    }
    return false;
}

/* y of up to GROUP rows, a block of columns at a time. */
INLINE bool forward_correct(const call_t *call, int64_t start, int64_t n, bool centred,
                            uint8_t *status)
{
    moments_t m;
    scale64_t scales[GROUP];
    double sizes[SIZES][GROUP];
    bool is_constant[GROUP], left_range[GROUP] = {false}, finite = true;
    find_moments(call, start, n, centred, &m, sizes);
    for (int64_t k = 0; k < n; k++) {
        double *saved = call->saved + (centred ? 3 : 1) * (start + k);
        status[k] = judge_row(call, start + k, centred, &m, k, &is_constant[k]);
        double sigma = m.r.high[k] * m.spread[k];
        scales[k] = (scale64_t){row_from(&m, k),
                                call->bound_scale * SLACK * (m.err_r[k] + 36 * W),
                                sigma > 1 ? sigma : 1}; /* (C8) */
        if (status[k] == OK)
            save_row(saved, centred, &m, k, sizes[LARGEST][k]);
        else
            for (int number = 0; number < (centred ? 3 : 1); number++)
                saved[number] = status[k] == UNDEFINED ? NAN : FAR;
        left_range[k] = status[k] != OK || is_constant[k];
        if (is_constant[k] && status[k] == OK)
            finite &= write_constant(call, start + k);
    }
    for (int64_t offset = 0; offset < call->size; offset += COLUMNS) {
        int64_t columns = smaller(call->size - offset, COLUMNS);
        weights_t p;
        find_weights(call, offset, columns, &p);
        clear_flags();
        for (int64_t k = 0; k < n; k++) {
            if (left_range[k])
                continue;
            if (write_y(call, start + k, offset, columns, &p, &scales[k]))
                status[k] = UNDECIDED;
            if (has_left_range()) {
                status[k] = UNDECIDED;
                left_range[k] = true;
                clear_flags();
            }
        }
    }
    for (int64_t k = 0; k < n; k++)
        if (status[k] == UNDECIDED && !left_range[k]) {
            bool undecided = tier2_row(call, start + k, &scales[k]);
            status[k] = undecided || has_left_range() ? UNDECIDED : OK;
            clear_flags();
        }
    return finite;
}

INLINE outcome_t forward_rows(const call_t *call, int64_t from, int64_t to, bool centred)
{
    outcome_t outcome = {0};
    int64_t rows = rows_of_group(call->size);
    for (int64_t start = from; start < to; start += rows) {
        int64_t n = smaller(to - start, rows);
        uint8_t *status = call->status + start;
        outcome.not_finite |= !forward_correct(call, start, n, centred, status);
        for (int64_t k = 0; k < n; k++)
            outcome.not_ok += status[k] != OK;
    }
    return outcome;
}

outcome_t NAME(forward)(const call_t *call, int64_t from, int64_t to)
{
    if (call->fast)
        return NAME(fast_forward)(call, from, to);
    return call->centred ? forward_rows(call, from, to, true)
                         : forward_rows(call, from, to, false);
}

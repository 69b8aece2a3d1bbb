/* Forward: the numbers that y of a row is computed from, in tier 1 and tier 2. */
#ifndef TRUENORM_FORWARD_H
#define TRUENORM_FORWARD_H

#include "tier2.h"

/* The parameters of a block of columns in tier 1: gamma, beta and their reach in the bound (T1),
   padded to a vector; omega is that of (C2). 16-bit rows have them in float32 as well (C5), where
   they are float32 numbers and small enough. */
typedef struct {
    double gamma[COLUMNS + L], beta[COLUMNS + L], reach[COLUMNS + L];
    double omega;
#if TYPE != TYPE_float32
    float gamma32[COLUMNS + L], beta32[COLUMNS + L], weight32[COLUMNS + L];
    bool fits_float32;
#endif
} __attribute__((aligned(64))) parameters_t;

/* Widen the parameters of some columns. Return False if one is not finite. */
INLINE bool widen(const call_t *call, int64_t offset, int64_t n, parameters_t *p)
{
    double h = depth_of_sum(call->size);
    double omega = call->centred ? (h + 5) / (2 * sqrt(4.25 * (h + 6))) : 0; /* (C2), (R1) */
    double largest = omega + sqrt((double)call->size);
    doubles zeros = {0};
#if TYPE != TYPE_float32
    longs unfit = {0};
#endif
    for (int64_t j = 0; j < n; j += L) {
        doubles gamma = all(1), beta = all(0);
        if (call->gamma)
            gamma = parameters_at(call, call->gamma, offset + j, n - j);
        if (call->beta)
            beta = parameters_at(call, call->beta, offset + j, n - j) + 0.0; /* no -0 */
        doubles reach = 2.0 * absolute(beta) + absolute(gamma) * largest; /* (T1) */
        STORE(p->gamma + j, gamma);
        STORE(p->beta + j, beta);
        STORE(p->reach + j, (doubles)((longs)reach & ((longs)absolute(gamma) != 0)));
        zeros += (absolute(beta) + absolute(gamma)) * 0.0;
#if TYPE != TYPE_float32
        halves gamma32 = narrow(gamma), beta32 = narrow(beta);
        STORE(p->gamma32 + j, gamma32);
        STORE(p->beta32 + j, beta32);
        STORE(p->weight32 + j, narrow(absolute(beta) + absolute(gamma) * 0x1p-5 + 0x1p-60));
        unfit |= (absolute(gamma) > 0x1p60) | (absolute(beta) > 0x1p100);
        unfit |= (widened(gamma32) != gamma) | (widened(beta32) != beta);
#endif
    }
#if TYPE != TYPE_float32
    p->fits_float32 = true;
    for (int k = 0; k < L; k++)
        p->fits_float32 &= unfit[k] == 0;
#endif
    p->omega = omega;
    return all_zero(zeros);
}

/* The numbers that y of a row is computed from in tier 1. */
typedef struct {
    double near, low, r, shift, k; /* xhat = (x - near)*r - shift; k is K of (E15) */
} scale_t;

typedef struct {
    doubles z, bound;
} bracket_t;

INLINE bracket_t bracket_of(doubles x, const scale_t *s, const parameters_t *p, int64_t j)
{
    doubles gamma = LOAD(doubles, p->gamma + j), beta = LOAD(doubles, p->beta + j);
    doubles xhat = multiply_add(x - s->near, all(s->r), all(-s->shift));
    doubles z = multiply_add(xhat, gamma, beta);
    return (bracket_t){z, absolute(z) + (absolute(beta) + absolute(gamma) * p->omega)};
}

/* Write L elements of a block, of which n are there. Return the bits in which their ends differ. */
INLINE differ_t write_rest(const element_t *x, const scale_t *s, const parameters_t *p, int64_t j,
                           int64_t n, element_t *y)
{
    rounded_t lower;
    bracket_t b = bracket_of(wide_or(x + j, n, 0), s, p, j);
    differ_t differ = round_bracket(b.z, b.bound, s->k, &lower);
    for (int64_t i = n; i < L; i++)
        differ[i] = 0;
    memcpy(y + j, &lower, (size_t)n * sizeof(element_t));
    return differ;
}

/* Tier 1 by (E15): write y of columns of a row. Return True if an element is undecided. */
static __attribute__((noinline)) bool write_y(const element_t *restrict x, const scale_t *s,
                                              const parameters_t *restrict p,
                                              element_t *restrict y, int64_t from, int64_t to)
{
    differ_t differ = {0};
    int64_t j = from;
#pragma GCC unroll 4
    for (; j + L <= to; j += L) {
        rounded_t lower;
        bracket_t b = bracket_of(wide(x + j), s, p, j);
        differ |= round_bracket(b.z, b.bound, s->k, &lower);
        STORE(y + j, lower);
    }
    if (j < to)
        differ |= write_rest(x, s, p, j, to - j, y);
    return any_differ(differ);
}

/* Tier 1 by the cell test and (T1): write y of columns, whole vectors, of one or two adjacent
   rows. Return a bit for each row with an undecided element. All loads of a vector come before its
   stores: y is often a multiple of 4096 bytes from x, and a load would wait for the store. */
INLINE unsigned write_cells(const element_t *restrict x, const scale_t *s,
                            const parameters_t *restrict p, element_t *restrict y, int64_t from,
                            int64_t to, int64_t size, const int rows, bool is_far, bool centred)
{
    cells_t cells[2] = {{0}, {0}};
    const scale_t scale[2] = {s[0], s[rows - 1]}; /* copies, which stores do not change */
#pragma GCC unroll 2
    for (int64_t j = from; j < to; j += L) {
        doubles gamma = LOAD(doubles, p->gamma + j), beta = LOAD(doubles, p->beta + j);
        doubles reach = LOAD(doubles, p->reach + j), z[2], d[2];
#pragma GCC unroll 2
        for (int i = 0; i < rows; i++)
            d[i] = wide(x + i * size + j);
#pragma GCC unroll 2
        for (int i = 0; i < rows; i++) {
            if (is_far)
                d[i] -= scale[i].near;
            z[i] = multiply_add(multiply_add(d[i], all(scale[i].r), all(-scale[i].shift)), gamma, beta);
            cells[i] = compare_cells(cells[i], z[i], centred ? reach : z[i], all(scale[i].k));
        }
#pragma GCC unroll 2
        for (int i = 0; i < rows; i++)
            STORE(y + i * size + j, rounded(z[i]));
    }
    return (unsigned)any_cell(cells[0]) | (rows == 2 ? (unsigned)any_cell(cells[1]) << 1 : 0);
}

/* True if float32 arithmetic on such a row stays away from the ends of its range. */
INLINE bool is_moderate(double v, double w)
{
    return 0x1p-60 < v && v < 0x1p60 && 0x1p-60 < w && w < 0x1p80;
}

#if TYPE != TYPE_float32
/* Tier 1 of 16-bit rows: y in float32 with the bound (C5). Vectors with an undecided element are
   computed again in float64. Return True if an element remains undecided. */
INLINE bool write_y_in_float32(const element_t *restrict x, const scale_t *s, float k,
                               const parameters_t *restrict p, element_t *restrict y, int64_t n)
{
    float high = (float)(s->near + s->low), low = (float)((s->near - (double)high) + s->low);
    float r = (float)s->r;
    bool undecided = false;
    int64_t j = 0;
    for (; j + 2 * L <= n; j += 2 * L) {
        floats c = (load_floats(x + j) - high) - low;
        floats beta = LOAD(floats, p->beta32 + j);
        floats z = multiply_add_floats(c, LOAD(floats, p->gamma32 + j) * r, beta);
        floats bound = ((floats)((bits)z & 0x7FFFFFFFu) + LOAD(floats, p->weight32 + j)) * k;
        STORE(y + j, rounded_floats(z));
        if (any_of((bits)(z - bound) ^ (bits)(z + bound), ~0u << CELL))
            for (int64_t i = j; i < j + 2 * L; i += L)
                undecided |= any_differ(write_rest(x, s, p, i, L, y));
    }
    for (; j < n; j += L)
        undecided |= any_differ(write_rest(x, s, p, j, smaller(n - j, L), y));
    return undecided;
}
#endif

/* Structure check: True if an element equals the mean of its row (RMSNorm: zero), so that y =
   beta. If all x are multiples of 2**k and sum|x| < 2**(k + 53), every partial sum is a float64,
   and the sum is exact in any order. Otherwise the check returns False. */
typedef struct {
    bool is_known, is_exact;
    double sum;
} mean_t;

static inline bool is_mean(const call_t *call, const element_t *x, float value, mean_t *mean)
{
    if (!call->centred)
        return value == 0;
    if (!mean->is_known) {
        double sum = 0, magnitudes = 0;
        for (int64_t j = 0; j < call->size; j++) {
            sum += to_float(x[j]);
            magnitudes += fabs((double)to_float(x[j]));
        }
        int exponent;
        frexp(2 * magnitudes, &exponent);
        double unit = ldexp(1.0, 53 - exponent);
        *mean = (mean_t){true, true, sum};
        for (int64_t j = 0; j < call->size; j++)
            mean->is_exact &= rint(to_float(x[j]) * unit) == to_float(x[j]) * unit;
    }
    pair_t product = two_product((double)call->size, (double)value);
    return mean->is_exact && product.high == mean->sum && product.low == 0;
}

/* Tier 2 for the undecided elements of n columns of a row. Return True if some remain undecided. */
static inline bool tier2_y(const call_t *call, int64_t i, const scale_t *s, const row2_t *row,
                     mean_t *mean, int64_t from, int64_t columns)
{
    const element_t *x = elements_at(call->x, i * call->size);
    element_t *y = results_at(call, i * call->size);
    parameters_t p;
    bool undecided = false;
    for (int64_t offset = from; offset < from + columns; offset += COLUMNS) {
        int64_t n = smaller(from + columns - offset, COLUMNS);
        widen(call, offset, n, &p);
        for (int64_t j = 0; j < n; j += L) {
            element_t waste[COLUMNS];
            differ_t differ = write_rest(x + offset, s, &p, j, smaller(L, n - j), waste);
            if (!any_differ(differ))
                continue;
            for (int64_t k = j; k < smaller(j + L, n); k++) {
                float value = to_float(x[offset + k]);
                pair_t c = centred_element(row, value);
                pair_t t = multiply_double(multiply(c, row->r), p.gamma[k]);
                pair_t z = add_double(t, p.beta[k]);
                double bound = SLACK * fabs(t.high) * (row->err_r + 16 * W) +
                               SLACK * row->r.high * row->centring * fabs(p.gamma[k]) +
                               5 * W * fabs(z.high) + TINY; /* (F5) */
                bound *= call->bound_scale;
                if (differ[k - j] == 0 || is_decided(z, bound, TYPE, y, offset + k))
                    continue;
                if (p.gamma[k] == 0 || is_mean(call, x, value, mean)) /* structure check */
                    y[offset + k] = nearest(p.beta[k]);
                else
                    undecided = true;
            }
        }
    }
    return undecided;
}

/* Write y of a constant row: beta. Return False if that is not finite. */
static inline bool write_constant(const call_t *call, element_t *y)
{
    bool finite = true;
    for (int64_t j = 0; j < call->size; j++) {
        double value = call->beta ? parameter_at(call, call->beta, j) + 0.0 : 0.0;
        y[j] = nearest(value);
        finite &= fabs(value) < INFINITY;
        finite &= !call->gamma || fabs(parameter_at(call, call->gamma, j)) < INFINITY;
    }
    return finite;
}

/* Derive the scales of elements from the statistics of up to GROUP rows, save these, and write the
   row status. */
INLINE void derive_scales(const call_t *call, int64_t start, int64_t n, bool centred,
                          statistics_t *statistics, scale_t *scales)
{
    uint8_t *status = call->status + start;
    statistics_t stats = *statistics;
    double h = depth_of_sum(call->size), r[GROUP], bound[GROUP];
    for (int k = 0; k < GROUP; k++) { /* in vectors: roots and quotients take long */
        double w = stats.v[k] + call->eps;
        r[k] = 1 / sqrt(w);
        bound[k] = error_of_r(error_of_w(stats.low[k], stats.v[k], w, h)) + 6 * U; /* (E15) */
    }
    for (int64_t k = 0; k < n; k++) {
        status[k] = OK;
        if (!(stats.v[k] + call->eps > 0)) {
            status[k] = UNDEFINED;
            stats.near[k] = stats.low[k] = stats.v[k] = NAN;
        }
        scales[k] = (scale_t){stats.near[k], stats.low[k], r[k], stats.low[k] * r[k],
                              call->bound_scale * SLACK * bound[k]};
        double *saved = call->saved + (centred ? 3 : 1) * (start + k);
        saved[0] = centred ? stats.near[k] : stats.v[k];
        if (centred) {
            saved[1] = stats.low[k];
            saved[2] = stats.v[k];
        }
    }
}

/* Tier 1: write y of a block of columns of one or two adjacent rows, whose variances are not zero.
   Return a bit for each row with an undecided element. */
INLINE unsigned write_block(const call_t *call, const double *v, const scale_t *s,
                            const parameters_t *p, int64_t at, int64_t n, int rows, bool centred,
                            trials_t *trials)
{
    const element_t *x = elements_at(call->x, at);
    element_t *y = results_at(call, at);
#if TYPE != TYPE_float32
    if (rows == 1 && p->fits_float32 && is_moderate(*v, *v + call->eps) &&
        fabs(s->near + s->low) * s->r < 0x1p20)
        return write_y_in_float32(x, s, (float)(0x1p-21 * call->bound_scale), p, y, n);
#else
    (void)v;
#endif
    int64_t whole = n / L * L, size = call->size;
    unsigned undecided = 0;
    bool is_far = s[0].near != 0 || s[rows - 1].near != 0;
    for (int64_t from = 0; from < whole; from += PIECE) {
        int64_t to = smaller(from + PIECE, whole);
        unsigned again = (1u << rows) - 1;
        if (are_worthwhile(trials)) {
            again = rows == 1 ? write_cells(x, s, p, y, from, to, size, 1, true, centred)
                    : is_far ? write_cells(x, s, p, y, from, to, size, 2, true, centred)
                             : write_cells(x, s, p, y, from, to, size, 2, false, centred);
            note_trials(trials, rows, again);
        }
        for (int i = 0; i < rows && again; i++)
            if (again >> i & 1)
                undecided |= (unsigned)write_y(x + i * size, s + i, p, y + i * size, from, to) << i;
    }
    for (int i = 0; i < rows && whole < n; i++)
        undecided |=
            (unsigned)any_differ(write_rest(x + i * size, s + i, p, whole, n - whole, y + i * size))
            << i;
    return undecided;
}

#endif

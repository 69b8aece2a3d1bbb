/* Forward: y of rows, correct (tiers 1 and 2) and fast. Compiled per instruction set. */
#include "tier2.h"

/* What a block of columns needs in tier 1: gamma, beta and their weight in the bound (E15). Room
   for the last vector to be filled up. */
typedef struct {
    double gamma[COLUMNS + L], beta[COLUMNS + L], weight[COLUMNS + L];
} parameters_t;

/* Widen the parameters of some columns. Return False if one is not finite. */
INLINE bool widen(const call_t *call, int64_t left, int64_t n, parameters_t *p)
{
    const float *gammas = call->gamma, *betas = call->beta;
    double h = depth_of_sum(call->size);
    double omega = call->centred ? (h + 5) / (2 * sqrt(4.25 * (h + 6))) : 0; /* (C2), (R1) */
    doubles zeros = {0};
    for (int64_t j = 0; j < n; j += L) {
        doubles gamma = gammas ? wide_or(gammas + left + j, n - j, 0) : all(1);
        doubles beta = betas ? wide_or(betas + left + j, n - j, 0) + 0.0 : all(0); /* no -0 */
        doubles weight = absolute(beta) + absolute(gamma) * omega;
        STORE(p->gamma + j, gamma);
        STORE(p->beta + j, beta);
        STORE(p->weight + j, weight);
        zeros += (absolute(beta) + absolute(gamma)) * 0.0;
    }
    return all_zero(zeros);
}

/* What the elements of a row need in tier 1. */
typedef struct {
    double near, r, shift, k; /* xhat = (x - near)*r - shift; k is K of (E15) */
} scale_t;

typedef struct {
    doubles z, bound;
} bracket_t;

INLINE bracket_t bracket_of(doubles x, const scale_t *s, doubles gamma, doubles beta,
                            doubles weight)
{
    doubles xhat = multiply_add(x - s->near, all(s->r), all(-s->shift));
    doubles z = multiply_add(xhat, gamma, beta);
    return (bracket_t){z, absolute(z) + weight};
}

/* Round both ends of the bracket; return the bits in which they differ. */
INLINE half_bits round_ends(bracket_t b, double k, halves *lower)
{
    halves upper = narrow(multiply_add(b.bound, all(k), b.z));
    *lower = narrow(subtract_product(b.z, b.bound, all(k)));
    return (half_bits)*lower ^ (half_bits)upper;
}

/* The last elements of a block, filled up. Return the bits in which their ends differ. */
INLINE half_bits write_rest(const float *x, const scale_t *s, const parameters_t *p, int64_t j,
                            int64_t n, float *y)
{
    halves lower;
    bracket_t b = bracket_of(wide_or(x + j, n, 0), s, LOAD(doubles, p->gamma + j),
                             LOAD(doubles, p->beta + j), LOAD(doubles, p->weight + j));
    half_bits differ = round_ends(b, s->k, &lower);
    for (int64_t i = n; i < L; i++)
        differ[i] = 0;
    memcpy(y + j, &lower, (size_t)n * sizeof(float));
    return differ;
}

/* Tier 1: write y of some columns of a row. Return True if an element is undecided. */
INLINE bool write_y(const float *restrict x, const scale_t *s, const parameters_t *restrict p,
                    float *restrict y, int64_t n)
{
    half_bits differ = {0};
    int64_t j = 0;
#pragma GCC unroll 4
    for (; j + L <= n; j += L) {
        halves lower;
        bracket_t b = bracket_of(wide(x + j), s, LOAD(doubles, p->gamma + j),
                                 LOAD(doubles, p->beta + j), LOAD(doubles, p->weight + j));
        differ |= round_ends(b, s->k, &lower);
        STORE(y + j, lower);
    }
    if (j < n)
        differ |= write_rest(x, s, p, j, n - j, y);
    return any(differ);
}

/* Structure check: True if an element equals the mean of its row (RMSNorm: zero), so that
   y = beta. If all x are multiples of 2**k and sum|x| < 2**(k + 53), every partial sum is a
   float64, and the sum is exact in any order; otherwise nothing is known. */
typedef struct {
    bool is_known, is_exact;
    double sum;
} mean_t;

static bool is_mean(const call_t *call, const float *x, float value, mean_t *mean)
{
    if (!call->centred)
        return value == 0;
    if (!mean->is_known) {
        double sum = 0, magnitudes = 0;
        for (int64_t j = 0; j < call->size; j++) {
            sum += x[j];
            magnitudes += fabs((double)x[j]);
        }
        int exponent;
        frexp(2 * magnitudes, &exponent);
        double unit = ldexp(1.0, 53 - exponent);
        *mean = (mean_t){true, true, sum};
        for (int64_t j = 0; j < call->size; j++)
            mean->is_exact &= rint(x[j] * unit) == x[j] * unit;
    }
    pair_t product = two_product((double)call->size, (double)value);
    return mean->is_exact && product.high == mean->sum && product.low == 0;
}

/* Tier 2 for the undecided elements of a row. Return True if some remain undecided. */
static bool write_y_tier2(const call_t *call, int64_t i, const scale_t *s)
{
    const float *x = call->x + i * call->size;
    float *y = call->out + i * call->size;
    double scale = call->scale_of_bounds;
    row2_t row;
    describe_row(call, x, s->near, &row);
    mean_t mean = {0};
    parameters_t p;
    bool undecided = false;
    for (int64_t left = 0; left < call->size; left += COLUMNS) {
        int64_t n = smaller(call->size - left, COLUMNS);
        widen(call, left, n, &p);
        for (int64_t j = 0; j < n; j += L) {
            float waste[COLUMNS];
            half_bits differ = write_rest(x + left, s, &p, j, smaller(L, n - j), waste);
            if (!any(differ))
                continue;
            for (int64_t k = j; k < smaller(j + L, n); k++) {
                float value = x[left + k];
                pair_t c = centred_element(&row, value);
                pair_t t = multiply_double(multiply(c, row.r), p.gamma[k]);
                pair_t z = add_double(t, p.beta[k]);
                double bound = SLACK * fabs(t.high) * (row.of_r + 16 * W) +
                               SLACK * row.r.high * row.centring * fabs(p.gamma[k]) +
                               5 * W * fabs(z.high) + TINY; /* (F5) */
                if (differ[k - j] == 0 || is_decided(z, bound * scale, y + left + k))
                    continue;
                if (p.gamma[k] == 0 || is_mean(call, x, value, &mean)) /* structure check */
                    y[left + k] = (float)p.beta[k];
                else
                    undecided = true;
            }
        }
    }
    return undecided;
}

/* Fast mode: y of some columns in float32. Return True if one is zero, whose sign is for float64
   to decide, or not finite. */
INLINE bool write_fast(const float *restrict x, float high, float low, float r,
                       const float *restrict gamma, const float *restrict beta,
                       float *restrict y, int64_t n)
{
    bits top = {0};
    int64_t j = 0;
#pragma GCC unroll 2
    for (; j + 2 * L <= n; j += 2 * L) {
        floats c = (LOAD(floats, x + j) - high) - low;
        floats z = multiply_add_floats(c, LOAD(floats, gamma + j) * r, LOAD(floats, beta + j));
        STORE(y + j, z);
        /* The magnitudes of zero, infinity and NaN, less one, are the largest. */
        top = max_bits(((bits)z & 0x7FFFFFFFu) - 1u, top);
    }
    uint32_t largest = largest_of(top);
    if (j < n) {
        float rest[3][2 * L] = {{0}};
        memcpy(rest[0], x + j, (size_t)(n - j) * sizeof(float));
        memcpy(rest[1], gamma + j, (size_t)(n - j) * sizeof(float));
        memcpy(rest[2], beta + j, (size_t)(n - j) * sizeof(float));
        floats c = (LOAD(floats, rest[0]) - high) - low;
        floats z = multiply_add_floats(c, LOAD(floats, rest[1]) * r, LOAD(floats, rest[2]));
        memcpy(y + j, &z, (size_t)(n - j) * sizeof(float));
        for (int64_t i = 0; i < n - j; i++) {
            uint32_t m = magnitude_of(z[i]) - 1u;
            largest = m > largest ? m : largest;
        }
    }
    return largest >= 0x7F7FFFFFu;
}

/* y of a row without spread: beta. Return False if that is not finite. */
static bool write_constant(const call_t *call, float *y)
{
    bool finite = true;
    for (int64_t j = 0; j < call->size; j++) {
        y[j] = call->beta ? call->beta[j] + 0.0f : 0.0f;
        finite &= fabsf(y[j]) < INFINITY;
        finite &= !call->gamma || fabsf(call->gamma[j]) < INFINITY;
    }
    return finite;
}

/* True if float32 arithmetic on such a row stays away from the ends of its range. */
INLINE bool is_moderate(double v, double w)
{
    return 0x1p-60 < v && v < 0x1p60 && 0x1p-60 < w && w < 0x1p80;
}

/* Find the statistics of rows and save them, the row status, and the scales of their elements. */
INLINE void find_scales(const call_t *call, int64_t start, int64_t n, bool centred, scale_t *scales,
                        uint8_t *status)
{
    statistics_t found;
    double h = depth_of_sum(call->size), r[GROUP], bound[GROUP];
    find_statistics(call->x + start * call->size, n, call->size, centred, &found);
    for (int k = 0; k < GROUP; k++) { /* in vectors: roots and quotients take long */
        double w = found.v[k] + call->eps;
        r[k] = 1 / sqrt(w);
        bound[k] = error_of_r(error_of_w(found.low[k], found.v[k], w, h)) + 6 * U; /* (E15) */
    }
    for (int64_t k = 0; k < n; k++) {
        status[k] = OK;
        if (!(found.v[k] + call->eps > 0)) {
            status[k] = UNDEFINED;
            found.near[k] = found.low[k] = found.v[k] = NAN;
        }
        scales[k] = (scale_t){found.near[k], r[k], found.low[k] * r[k],
                              call->scale_of_bounds * SLACK * bound[k]};
        double *saved = call->saved + (centred ? 3 : 1) * (start + k);
        saved[0] = centred ? found.near[k] : found.v[k];
        if (centred) {
            saved[1] = found.low[k];
            saved[2] = found.v[k];
        }
    }
}

/* Correct mode: y of up to GROUP rows, a block of columns at a time. The parameters of short rows
   are widened already. Return False if one is not finite. */
INLINE bool forward_correct(const call_t *call, int64_t start, int64_t n, const scale_t *scales,
                            uint8_t *status, parameters_t *p)
{
    const double *saved = call->saved;
    for (int64_t left = 0; left < call->size; left += COLUMNS) {
        int64_t columns = smaller(call->size - left, COLUMNS);
        if (call->size > COLUMNS && !widen(call, left, columns, p))
            return false;
        for (int64_t k = 0; k < n; k++) {
            double v = call->centred ? saved[3 * (start + k) + 2] : saved[start + k];
            int64_t at = (start + k) * call->size + left;
            if (v > 0 && write_y(call->x + at, &scales[k], p, call->out + at, columns))
                status[k] = UNDECIDED;
        }
    }
    for (int64_t k = 0; k < n; k++)
        if (status[k] == UNDECIDED && !write_y_tier2(call, start + k, &scales[k]))
            status[k] = OK;
    return true;
}

/* Fast mode: y of a row in float64, without the test. */
static bool forward_unrounded(const call_t *call, int64_t i, const scale_t *scale)
{
    scale_t untested = *scale;
    untested.k = 0;
    for (int64_t left = 0; left < call->size; left += COLUMNS) {
        int64_t columns = smaller(call->size - left, COLUMNS), at = i * call->size + left;
        parameters_t p;
        if (!widen(call, left, columns, &p))
            return false;
        write_y(call->x + at, &untested, &p, call->out + at, columns);
    }
    return true;
}

/* Parameters that were not given, for a block of columns. */
typedef struct {
    float ones[COLUMNS], zeros[COLUMNS];
} defaults_t;

INLINE bool forward_fast(const call_t *call, int64_t start, int64_t n, const scale_t *scales,
                         const defaults_t *defaults)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t i = start + k;
        const double *saved = call->saved + (call->centred ? 3 * i : i);
        double v = call->centred ? saved[2] : saved[0], w = v + call->eps;
        double near = scales[k].near, low = call->centred ? saved[1] : 0;
        if (!(w > 0) || v == 0)
            continue;
        bool is_hard = !is_moderate(v, w);
        float high = (float)(near + low), rest = (float)((near - (double)high) + low);
        for (int64_t left = 0; left < call->size && !is_hard; left += COLUMNS) {
            int64_t columns = smaller(call->size - left, COLUMNS), at = i * call->size + left;
            is_hard = write_fast(call->x + at, high, rest, (float)scales[k].r,
                                 call->gamma ? call->gamma + left : defaults->ones,
                                 call->beta ? call->beta + left : defaults->zeros, call->out + at,
                                 columns);
        }
        if (is_hard && !forward_unrounded(call, i, &scales[k]))
            return false;
    }
    return true;
}

INLINE outcome_t forward_rows(const call_t *call, int64_t from, int64_t to, bool centred)
{
    outcome_t outcome = {0};
    parameters_t p;
    if (!call->fast && call->size <= COLUMNS && !widen(call, 0, call->size, &p)) {
        outcome.not_finite = true;
        return outcome;
    }
    defaults_t defaults;
    for (int64_t j = 0; call->fast && j < smaller(call->size, COLUMNS); j++) {
        defaults.ones[j] = 1;
        defaults.zeros[j] = 0;
    }
    for (int64_t start = from; start < to; start += GROUP) {
        int64_t n = smaller(to - start, GROUP);
        scale_t scales[GROUP];
        uint8_t *status = call->status + start;
        find_scales(call, start, n, centred, scales, status);
        bool finite = call->fast ? forward_fast(call, start, n, scales, &defaults)
                                 : forward_correct(call, start, n, scales, status, &p);
        for (int64_t k = 0; k < n; k++) {
            double v = call->saved[centred ? 3 * (start + k) + 2 : start + k];
            if (v == 0 && status[k] == OK)
                finite &= write_constant(call, call->out + (start + k) * call->size);
            outcome.not_ok += status[k] != OK;
        }
        if (!finite) {
            outcome.not_finite = true;
            return outcome;
        }
    }
    return outcome;
}

outcome_t NAME(forward)(const call_t *call, int64_t from, int64_t to)
{
    return call->centred ? forward_rows(call, from, to, true)
                         : forward_rows(call, from, to, false);
}

/* Find the saved statistics anew. Return how many rows have another mean than was saved; RMSNorm:
   another mean square. */
int64_t NAME(statistics)(const call_t *call, int64_t from, int64_t to)
{
    int64_t changed = 0;
    for (int64_t i = from; i < to; i++) {
        statistics_t found;
        double *saved = call->saved + (call->centred ? 3 * i : i);
        if (saved[0] != saved[0])
            continue;
        find_statistics(call->x + i * call->size, 1, call->size, call->centred, &found);
        if (call->centred) {
            double moved = fabs((found.near[0] - saved[0]) + (found.low[0] - saved[1]));
            changed += !(moved <= 0x1p-40 * sqrt(found.v[0]) + TINY);
            saved[0] = found.near[0];
            saved[1] = found.low[0];
            saved[2] = found.v[0];
        } else {
            changed += !(fabs(found.v[0] - saved[0]) <= 0x1p-40 * found.v[0]);
            saved[0] = found.v[0];
        }
    }
    return changed;
}

/* Forward: y of rows, correct (tiers 1 and 2) and fast. Compiled per instruction set. */
#include "tier2.h"

/* What a block of columns needs in tier 1: gamma, beta and their weight in the bound (E15). Room
   for the last vector to be filled up. The same in float32 for 16-bit rows (C5), where they are
   small enough for that. */
typedef struct {
    double gamma[COLUMNS + L], beta[COLUMNS + L], weight[COLUMNS + L];
#if TYPE != TYPE_float32
    float gamma32[COLUMNS + L], beta32[COLUMNS + L], weight32[COLUMNS + L];
    bool fits_float32;
#endif
} parameters_t;

/* Widen the parameters of some columns. Return False if one is not finite. */
INLINE bool widen(const call_t *call, int64_t left, int64_t n, parameters_t *p)
{
    const float *gammas = call->gamma, *betas = call->beta;
    double h = depth_of_sum(call->size);
    double omega = call->centred ? (h + 5) / (2 * sqrt(4.25 * (h + 6))) : 0; /* (C2), (R1) */
    doubles zeros = {0};
#if TYPE != TYPE_float32
    longs too_large = {0};
#endif
    for (int64_t j = 0; j < n; j += L) {
        doubles gamma = gammas ? wide_parameters(gammas + left + j, n - j) : all(1);
        doubles beta = betas ? wide_parameters(betas + left + j, n - j) + 0.0 : all(0); /* no -0 */
        doubles weight = absolute(beta) + absolute(gamma) * omega;
        STORE(p->gamma + j, gamma);
        STORE(p->beta + j, beta);
        STORE(p->weight + j, weight);
        zeros += (absolute(beta) + absolute(gamma)) * 0.0;
#if TYPE != TYPE_float32
        STORE(p->gamma32 + j, narrow(gamma));
        STORE(p->beta32 + j, narrow(beta));
        STORE(p->weight32 + j, narrow(absolute(beta) + absolute(gamma) * 0x1p-5 + 0x1p-60));
        too_large |= (absolute(gamma) > 0x1p60) | (absolute(beta) > 0x1p100);
#endif
    }
#if TYPE != TYPE_float32
    p->fits_float32 = true;
    for (int k = 0; k < L; k++)
        p->fits_float32 &= too_large[k] == 0;
#endif
    return all_zero(zeros);
}

/* What the elements of a row need in tier 1. */
typedef struct {
    double near, low, r, shift, k; /* xhat = (x - near)*r - shift; k is K of (E15) */
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

/* The last elements of a block, filled up. Return the bits in which their ends differ. */
INLINE differ_t write_rest(const element_t *x, const scale_t *s, const parameters_t *p, int64_t j,
                           int64_t n, element_t *y)
{
    rounded_t lower;
    bracket_t b = bracket_of(wide_or(x + j, n, 0), s, LOAD(doubles, p->gamma + j),
                             LOAD(doubles, p->beta + j), LOAD(doubles, p->weight + j));
    differ_t differ = round_bracket(b.z, b.bound, s->k, &lower);
    for (int64_t i = n; i < L; i++)
        differ[i] = 0;
    memcpy(y + j, &lower, (size_t)n * sizeof(element_t));
    return differ;
}

/* Tier 1: write y of some columns of a row. Return True if an element is undecided. */
INLINE bool write_y(const element_t *restrict x, const scale_t *s, const parameters_t *restrict p,
                    element_t *restrict y, int64_t n)
{
    differ_t differ = {0};
    int64_t j = 0;
#pragma GCC unroll 4
    for (; j + L <= n; j += L) {
        rounded_t lower;
        bracket_t b = bracket_of(wide(x + j), s, LOAD(doubles, p->gamma + j),
                                 LOAD(doubles, p->beta + j), LOAD(doubles, p->weight + j));
        differ |= round_bracket(b.z, b.bound, s->k, &lower);
        STORE(y + j, lower);
    }
    if (j < n)
        differ |= write_rest(x, s, p, j, n - j, y);
    return any_differ(differ);
}

/* True if float32 arithmetic on such a row stays away from the ends of its range. */
INLINE bool is_moderate(double v, double w)
{
    return 0x1p-60 < v && v < 0x1p60 && 0x1p-60 < w && w < 0x1p80;
}

#if TYPE != TYPE_float32
/* Tier 1 of 16-bit rows: y in float32 with the bound (C5), and vectors in which an element is
   undecided again in float64. Return True if an element is undecided then. */
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
        shorts lower = rounded_floats(z - bound), upper = rounded_floats(z + bound);
        STORE(y + j, lower);
        if (any_shorts(lower ^ upper))
            for (int64_t i = j; i < j + 2 * L; i += L)
                undecided |= any_differ(write_rest(x, s, p, i, L, y));
    }
    for (; j < n; j += L)
        undecided |= any_differ(write_rest(x, s, p, j, smaller(n - j, L), y));
    return undecided;
}
#endif

/* Structure check: True if an element equals the mean of its row (RMSNorm: zero), so that
   y = beta. If all x are multiples of 2**k and sum|x| < 2**(k + 53), every partial sum is a
   float64, and the sum is exact in any order; otherwise nothing is known. */
typedef struct {
    bool is_known, is_exact;
    double sum;
} mean_t;

static bool is_mean(const call_t *call, const element_t *x, float value, mean_t *mean)
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

/* Tier 2 for the undecided elements of a row. Return True if some remain undecided. */
static bool write_y_tier2(const call_t *call, int64_t i, const scale_t *s)
{
    const element_t *x = elements_at(call->x, i * call->size);
    element_t *y = results_at(call, i * call->size);
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
            element_t waste[COLUMNS];
            differ_t differ = write_rest(x + left, s, &p, j, smaller(L, n - j), waste);
            if (!any_differ(differ))
                continue;
            for (int64_t k = j; k < smaller(j + L, n); k++) {
                float value = to_float(x[left + k]);
                pair_t c = centred_element(&row, value);
                pair_t t = multiply_double(multiply(c, row.r), p.gamma[k]);
                pair_t z = add_double(t, p.beta[k]);
                double bound = SLACK * fabs(t.high) * (row.of_r + 16 * W) +
                               SLACK * row.r.high * row.centring * fabs(p.gamma[k]) +
                               5 * W * fabs(z.high) + TINY; /* (F5) */
                if (differ[k - j] == 0 || is_decided(z, bound * scale, TYPE, y, left + k))
                    continue;
                if (p.gamma[k] == 0 || is_mean(call, x, value, &mean)) /* structure check */
                    y[left + k] = nearest(p.beta[k]);
                else
                    undecided = true;
            }
        }
    }
    return undecided;
}

/* Fast mode: y of some columns in float32. Return True if one is zero, whose sign is for float64
   to decide, or not finite. */
INLINE bool write_fast(const element_t *restrict x, float high, float low, float r,
                       const float *restrict gamma, const float *restrict beta,
                       element_t *restrict y, int64_t n)
{
    bits top = {0};
    int64_t j = 0;
#pragma GCC unroll 2
    for (; j + 2 * L <= n; j += 2 * L) {
        floats c = (load_floats(x + j) - high) - low;
        floats z = multiply_add_floats(c, LOAD(floats, gamma + j) * r, LOAD(floats, beta + j));
        store_floats(y + j, z);
        /* The magnitudes of zero, infinity and NaN, less one, are the largest. */
        top = max_bits(((bits)z & 0x7FFFFFFFu) - 1u, top);
    }
    uint32_t largest = largest_of(top);
    if (j < n) {
        float rest[2][2 * L] = {{0}};
        element_t results[2 * L];
        memcpy(rest[0], gamma + j, (size_t)(n - j) * sizeof(float));
        memcpy(rest[1], beta + j, (size_t)(n - j) * sizeof(float));
        floats c = (floats_or_zero(x + j, n - j) - high) - low;
        floats z = multiply_add_floats(c, LOAD(floats, rest[0]) * r, LOAD(floats, rest[1]));
        store_floats(results, z);
        memcpy(y + j, results, (size_t)(n - j) * sizeof(element_t));
        for (int64_t i = 0; i < n - j; i++) {
            uint32_t m = (bits_of(z[i]) & 0x7FFFFFFFu) - 1u;
            largest = m > largest ? m : largest;
        }
    }
    return largest >= 0x7F7FFFFFu;
}

/* y of a row without spread: beta. Return False if that is not finite. */
static bool write_constant(const call_t *call, element_t *y)
{
    const float *gamma = call->gamma, *beta = call->beta;
    bool finite = true;
    for (int64_t j = 0; j < call->size; j++) {
        float value = beta ? beta[j] + 0.0f : 0.0f;
        y[j] = nearest(value);
        finite &= fabsf(value) < INFINITY;
        finite &= !gamma || fabsf(gamma[j]) < INFINITY;
    }
    return finite;
}

/* Find the statistics of rows and save them, the row status, and the scales of their elements. */
INLINE void find_scales(const call_t *call, int64_t start, int64_t n, bool centred, scale_t *scales,
                        uint8_t *status)
{
    statistics_t found;
    double h = depth_of_sum(call->size), r[GROUP], bound[GROUP];
    find_statistics(elements_at(call->x, start * call->size), n, call->size, centred, &found);
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
        scales[k] = (scale_t){found.near[k], found.low[k], r[k], found.low[k] * r[k],
                              call->scale_of_bounds * SLACK * bound[k]};
        double *saved = call->saved + (centred ? 3 : 1) * (start + k);
        saved[0] = centred ? found.near[k] : found.v[k];
        if (centred) {
            saved[1] = found.low[k];
            saved[2] = found.v[k];
        }
    }
}

/* Tier 1: write y of some columns of a row. Return True if an element is undecided. */
INLINE bool write_block(const call_t *call, double v, const scale_t *s, const parameters_t *p,
                        int64_t at, int64_t n)
{
    const element_t *x = elements_at(call->x, at);
#if TYPE != TYPE_float32
    if (p->fits_float32 && is_moderate(v, v + call->eps) && fabs(s->near) * s->r < 0x1p20)
        return write_y_in_float32(x, s, (float)(0x1p-21 * call->scale_of_bounds), p,
                                  results_at(call, at), n);
#else
    (void)v;
#endif
    return write_y(x, s, p, results_at(call, at), n);
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
            if (v > 0 && write_block(call, v, &scales[k], p, at, columns))
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
        write_y(elements_at(call->x, at), &untested, &p, results_at(call, at), columns);
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
    const float *gamma = call->gamma, *beta = call->beta;
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
            is_hard = write_fast(elements_at(call->x, at), high, rest, (float)scales[k].r,
                                 gamma ? gamma + left : defaults->ones,
                                 beta ? beta + left : defaults->zeros, results_at(call, at),
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
                finite &= write_constant(call, results_at(call, (start + k) * call->size));
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
        find_statistics(elements_at(call->x, i * call->size), 1, call->size, call->centred, &found);
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

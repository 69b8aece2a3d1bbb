/* Forward: y of rows, correct (tiers 1 and 2) and fast. */
#include "forward.h"

/* Fast mode: y of some columns in float32. Return True if one is zero, so that float64 must
   decide its sign, or not finite. Not by gamma*r, which may underflow where y does not (C14). */
INLINE bool write_fast(const element_t *restrict x, float high, float low, float r,
                       const float *restrict gamma, const float *restrict beta,
                       element_t *restrict y, int64_t n)
{
    bits top = {0};
    int64_t j = 0;
#pragma GCC unroll 2
    for (; j + 2 * L <= n; j += 2 * L) {
        floats c = (load_floats(x + j) - high) - low;
        floats z = multiply_add_floats(c * r, LOAD(floats, gamma + j), LOAD(floats, beta + j));
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
        floats z = multiply_add_floats(c * r, LOAD(floats, rest[0]), LOAD(floats, rest[1]));
        store_floats(results, z);
        memcpy(y + j, results, (size_t)(n - j) * sizeof(element_t));
        for (int64_t i = 0; i < n - j; i++) {
            uint32_t m = (bits_of(z[i]) & 0x7FFFFFFFu) - 1u;
            largest = m > largest ? m : largest;
        }
    }
    return largest >= 0x7F7FFFFFu;
}

/* Tier 2 for the undecided elements of a row. Return True if some remain undecided. */
static bool write_y_tier2(const call_t *call, int64_t i, const scale_t *s)
{
    row2_t row;
    mean_t mean = {0};
    compute_row2(call, elements_at(call->x, i * call->size), s->near, &row);
    return tier2_y(call, i, s, &row, &mean, 0, call->size);
}

/* Correct mode: y of up to GROUP rows, a block of columns at a time. The parameters of rows that
   are not longer than KEPT blocks are already widened. Return False if one is not finite. */
INLINE bool forward_correct(const call_t *call, int64_t start, int64_t n, bool centred,
                            const statistics_t *stats, const scale_t *scales, uint8_t *status,
                            parameters_t *kept, trials_t *trials)
{
    const double *v = stats->v;
    for (int64_t offset = 0; offset < call->size; offset += COLUMNS) {
        int64_t columns = smaller(call->size - offset, COLUMNS);
        bool is_kept = call->size <= KEPT * COLUMNS;
        parameters_t *p = is_kept ? &kept[offset / COLUMNS] : kept;
        if (!is_kept && !widen(call, offset, columns, p))
            return false;
        for (int64_t k = 0, rows; k < n; k += rows) {
            int64_t at = (start + k) * call->size + offset;
            rows = TYPE == TYPE_float32 && k + 2 <= n && v[k] > 0 && v[k + 1] > 0 ? 2 : 1;
            if (!(v[k] > 0))
                continue;
            unsigned undecided =
                rows == 2 ? write_block(call, v + k, scales + k, p, at, columns, 2, centred, trials)
                          : write_block(call, v + k, scales + k, p, at, columns, 1, centred, trials);
            for (int64_t i = 0; i < rows && undecided; i++)
                if (undecided >> i & 1)
                    status[k + i] = UNDECIDED;
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
    for (int64_t offset = 0; offset < call->size; offset += COLUMNS) {
        int64_t columns = smaller(call->size - offset, COLUMNS), at = i * call->size + offset;
        parameters_t p;
        if (!widen(call, offset, columns, &p))
            return false;
        write_y(elements_at(call->x, at), &untested, &p, results_at(call, at), 0, columns);
    }
    return true;
}

/* Defaults of gamma and beta for a block of columns. */
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
        for (int64_t offset = 0; offset < call->size && !is_hard; offset += COLUMNS) {
            int64_t columns = smaller(call->size - offset, COLUMNS), at = i * call->size + offset;
            is_hard = write_fast(elements_at(call->x, at), high, rest, (float)scales[k].r,
                                 gamma ? gamma + offset : defaults->ones,
                                 beta ? beta + offset : defaults->zeros, results_at(call, at),
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
    parameters_t kept[KEPT];
    trials_t trials = {0, 0};
    bool is_kept = !call->fast && call->size <= KEPT * COLUMNS;
    for (int64_t offset = 0; is_kept && offset < call->size; offset += COLUMNS)
        if (!widen(call, offset, smaller(call->size - offset, COLUMNS), &kept[offset / COLUMNS])) {
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
        statistics_t stats;
        scale_t scales[GROUP];
        uint8_t *status = call->status + start;
        compute_statistics(elements_at(call->x, start * call->size), n, call->size, centred,
                           &stats);
        derive_scales(call, start, n, centred, &stats, scales);
        bool finite = call->fast ? forward_fast(call, start, n, scales, &defaults)
                                 : forward_correct(call, start, n, centred, &stats, scales, status,
                                                   kept, &trials);
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

/* Recompute the saved statistics. Return how many rows have another mean than the saved one;
   RMSNorm: another mean square. */
int64_t NAME(statistics)(const call_t *call, int64_t from, int64_t to)
{
    int64_t changed = 0;
    for (int64_t i = from; i < to; i++) {
        statistics_t stats;
        double *saved = call->saved + (call->centred ? 3 * i : i);
        if (saved[0] != saved[0])
            continue;
        compute_statistics(elements_at(call->x, i * call->size), 1, call->size, call->centred,
                           &stats);
        if (call->centred) {
            double moved = fabs((stats.near[0] - saved[0]) + (stats.low[0] - saved[1]));
            changed += !(moved <= 0x1p-40 * sqrt(stats.v[0]) + TINY);
            saved[0] = stats.near[0];
            saved[1] = stats.low[0];
            saved[2] = stats.v[0];
        } else {
            changed += !(fabs(stats.v[0] - saved[0]) <= 0x1p-40 * stats.v[0]);
            saved[0] = stats.v[0];
        }
    }
    return changed;
}

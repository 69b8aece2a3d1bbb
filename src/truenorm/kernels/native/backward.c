/* Backward, correct: dx of rows and the sums over rows; and the table of all kernels. */
#include "backward.h"

outcome_t NAME(forward)(const call_t *call, int64_t from, int64_t to);
int64_t NAME(statistics)(const call_t *call, int64_t from, int64_t to);
outcome_t NAME(fast_backward)(const call_t *call, int64_t from, int64_t to, bool starts,
                              double *sums);
void NAME(fast_merge)(double *sums, const double *others, int64_t size);
int64_t NAME(fast_round)(const call_t *call, const double *sums);
int64_t NAME(add_terms)(const call_t *call, int64_t from, int64_t to, term_sums_t *terms,
                        uint8_t *undecided);
void NAME(empty_bins)(term_sums_t *terms);
void NAME(deposit_dbeta)(limbs_t *limbs, const double *sums, int64_t *buffer, int bottom,
                         int top, int bits);
bool NAME(carry)(int64_t *limbs, int64_t places, int64_t columns);
bool NAME(add_numbers)(const fixed_point_t *a, const fixed_point_t *b, int64_t first,
                       int64_t places, int64_t columns, int64_t *sum);
end_t NAME(long_forward)(call_t *call);
end_t NAME(long_backward)(call_t *call);

/* ---- rows ---- */

/* Tier 2 for the undecided elements of a row. Return True if some remain undecided. */
static bool write_dx_tier2(const call_t *call, int64_t i, const row_t *row)
{
    row2_t row2;
    compute_row2(call, elements_at(call->x, i * call->size), row->near, &row2);
    products2_t sums = sum_products2(call, i, 0, call->size, &row2);
    means2_t means = derive_means2(call, &sums, &row2);
    return tier2_dx(call, i, row, &row2, &means, 0, call->size);
}

/* Finish the rows of a group: structure checks, then tier 2. Return how many are not OK. */
static int64_t finish_rows(const call_t *call, int64_t start, int64_t n, const row_t *rows)
{
    int64_t not_ok = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = start + k;
        uint8_t *status = call->status + i;
        if (*status == OK || *status == UNDECIDED) {
            if (rows[k].is_constant) {
                memset(results_at(call, i * call->size), 0, (size_t)call->size * sizeof(element_t));
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

/* `compute_rows` for either norm, not inlined: it takes long to compile. */
static __attribute__((noinline)) bool compute_rows_of(const call_t *call, int64_t start, int64_t n,
                                                   row_t *rows, double *gamma)
{
    return call->centred ? compute_rows(call, start, n, true, rows, gamma)
                         : compute_rows(call, start, n, false, rows, gamma);
}

/* Take one or two finite rows from `*k` on; return how many there are. */
INLINE int take_rows(const call_t *call, int64_t start, int64_t n, int64_t offset,
                     const row_t *rows, int64_t *k, int64_t taken[2], rows_t *r)
{
    int count = 0;
    for (; count < 2 && *k < n; ++*k) {
        int64_t at = (start + *k) * call->size + offset;
        if (call->status[start + *k] == NOT_FINITE)
            continue;
        taken[count] = start + *k;
        r->x[count] = elements_at(call->x, at);
        r->dy[count] = elements_at(call->dy, at);
        r->dx[count] = results_at(call, at);
        r->row[count++] = &rows[*k];
    }
    return count;
}

INLINE outcome_t backward_rows(const call_t *call, int64_t from, int64_t to, bool with_dgamma,
                               bool starts, double *sums)
{
    int64_t size = call->size;
    outcome_t outcome = {0, false, NOTHING};
    double gamma[ROOM_FOR_GAMMA] __attribute__((aligned(64)));
    if (!keep_gamma(call, gamma)) {
        outcome.not_finite = true;
        return outcome;
    }
    for (int64_t start = from; start < to; start += GROUP) {
        int64_t n = smaller(to - start, GROUP);
        row_t rows[GROUP];
        if (!compute_rows_of(call, start, n, rows, gamma)) {
            outcome.not_finite = true;
            return outcome;
        }
        for (int64_t offset = 0; offset < size; offset += COLUMNS) {
            int64_t columns = smaller(size - offset, COLUMNS), k = 0, taken[2];
            block_sums_t block_sums;
            extents_t extents = {{0}, {0}};
            rows_t r;
            const double *scale = gamma_of(call, offset, columns, gamma);
            bool is_first = true;
            for (int count; (count = take_rows(call, start, n, offset, rows, &k, taken, &r)) > 0;) {
                unsigned undecided =
                    count == 2 ? write_dx(&r, scale, 2, with_dgamma, is_first, &block_sums, columns,
                                          &extents)
                               : write_dx(&r, scale, 1, with_dgamma, is_first, &block_sums, columns,
                                          &extents);
                for (int i = 0; i < count; i++)
                    if ((undecided >> i & 1) && call->status[taken[i]] == OK)
                        call->status[taken[i]] = UNDECIDED;
                is_first = false;
            }
            bool sets = starts && start == from;
            if (is_first) { /* no row is finite */
                if (sets)
                    zero_sums(sums, size, offset, columns);
                continue;
            }
            extent_t extent = extent_of(&extents);
            bool exact = is_exact_group(extent);
            outcome.extent = wider(outcome.extent, extent);
            if (sets)
                set_sums(&block_sums, sums, size, offset, columns, exact, with_dgamma);
            else
                add_block_sums(&block_sums, sums, size, offset, columns, exact, with_dgamma);
            for (int64_t i = start; i < start + n && !exact; i++)
                for (int64_t j = offset; j < offset + columns && call->status[i] != NOT_FINITE; j++)
                    add_to_sum(sums + DBETA_HIGH * size + j, sums + DBETA_LOW * size + j,
                               to_float(*elements_at(call->dy, i * size + j)));
        }
        outcome.not_ok += finish_rows(call, start, n, rows);
    }
    return outcome;
}

/* Write dx and the row status, and add to the sums over rows (SUMS x size), or start them. */
outcome_t NAME(backward)(const call_t *call, int64_t from, int64_t to, bool starts, double *sums)
{
    return call->without_dgamma ? backward_rows(call, from, to, false, starts, sums)
                                : backward_rows(call, from, to, true, starts, sums);
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
        add_to_sum(sums + DBETA_HIGH * size + j, sums + DBETA_LOW * size + j,
                    others[DBETA_HIGH * size + j]);
        sums[DBETA_LOW * size + j] += others[DBETA_LOW * size + j];
    }
}

/* Round dgamma where the bound allows it. Return how many columns are undecided, and which. */
int64_t NAME(round_dgamma)(const call_t *call, const double *sums, uint8_t *undecided)
{
    return round_dgamma_of(call, sums, 0, call->size, undecided);
}

/* Round dbeta, which is exact. */
int64_t NAME(round_dbeta)(const call_t *call, const double *sums, uint8_t *undecided)
{
    (void)undecided;
    round_dbeta_of(call, sums, 0, call->size);
    return 0;
}

/* Tier 2: add the terms of some strips of dgamma, over rows that are OK. */
void NAME(add_strips)(const call_t *call, int64_t from, int64_t to, strip_t *strips, int64_t n)
{
    for (int64_t i = from; i < to; i++) {
        row2_t row;
        if (saved_variance(call, i) == 0)
            continue; /* xhat is exactly zero */
        compute_row2(call, elements_at(call->x, i * call->size), saved_near(call, i), &row);
        add_row_to(call, i, &row, strips, n);
    }
}

/* (1 + 2**-27)**2 rounds to 1 + 2**-26, so the difference is zero unless the product is not
   rounded. */
static bool is_contracted(void)
{
    volatile double factor = 1 + 0x1p-27, square = 1 + 0x1p-26;
    double a = factor, b = square;
    doubles rest = all(a) * all(a) - all(b);
    return a * a - b != 0 || rest[0] != 0;
}

const kernels_t NAME(kernels) = {
    .name = TEXT(INSTRUCTIONS),
    .is_contracted = is_contracted,
    .sums = SUMS,
    .fast_sums = FAST_SUMS,
    .forward = NAME(forward),
    .long_forward = NAME(long_forward),
    .long_backward = NAME(long_backward),
    .backward = NAME(backward),
    .fast_backward = NAME(fast_backward),
    .add_terms = NAME(add_terms),
    .empty_bins = NAME(empty_bins),
    .deposit_dbeta = NAME(deposit_dbeta),
    .carry = NAME(carry),
    .add_numbers = NAME(add_numbers),
    .statistics = NAME(statistics),
    .add_strips = NAME(add_strips),
    .merge = NAME(merge),
    .round_dgamma = NAME(round_dgamma),
    .round_dbeta = NAME(round_dbeta),
    .fast_merge = NAME(fast_merge),
    .fast_round = NAME(fast_round),
};

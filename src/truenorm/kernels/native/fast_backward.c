/* Backward in fast mode: float32 arithmetic, sums over rows in float64. */
#include "backward.h"

/* Terms of dgamma are float32 in units of 1/TERM_SCALE, so that none underflows (C14). */
#define TERM_SCALE 0x1p96

/* The numbers that dx of a row is computed from, in float32; not easy if they leave the range of
   float32. `term_r` is r times TERM_SCALE. */
typedef struct {
    float high, low, r, term_r, a, q;
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
INLINE void add_fast_products(const element_t *x, const element_t *dy, const float *gamma, int run,
                              float high, float low, bool centred, doubles s[ALONG])
{
    floats c[RUN], g[RUN], t[RUN];
#pragma GCC unroll 8
    for (int i = 0; i < run; i++) {
        c[i] = load_floats(x + 2 * L * i);
        if (centred)
            c[i] = (c[i] - high) - low;
        g[i] = load_floats(dy + 2 * L * i) * LOAD(floats, gamma + 2 * L * i);
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

INLINE void fast_means(const element_t *x, const element_t *dy, const float *gamma, int64_t size,
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
        double c = (to_float(x[j]) - high) - low, g = (double)(to_float(dy[j]) * gamma[j]);
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

/* Compute the float32 numbers of a row. Return True if x changed since forward. */
INLINE bool compute_fast_row(const call_t *call, int64_t i, const float *gamma, bool centred,
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
    fast_means(elements_at(call->x, i * call->size), elements_at(call->dy, i * call->size), gamma,
               call->size, row->high, row->low, centred, means);
    /* Products of g must stay inside the range of float32. */
    row->is_easy = 0x1p-100 < means[OF_GG] && means[OF_GG] < 0x1p100;
    row->r = (float)(1 / sqrt(w));
    row->term_r = row->r * (float)TERM_SCALE;
    row->a = centred ? (float)means[OF_G] : -0.0f; /* g less -0 is +0 where it is -0 */
    row->q = (float)(means[OF_GC] / w);
    if (!row->is_easy)
        return false;
    return centred ? !(fabs(means[OF_C]) <= 0x1p-19 * sqrt(v))
                   : !(fabs(means[OF_C] - v) <= 0x1p-19 * v);
}

enum { FOUR = 4 };

/* Some columns of four rows. A row that is missing or not easy is replaced by zeros, which add
   nothing: dx of a row does not depend on the other rows. */
typedef struct {
    const element_t *x[FOUR], *dy[FOUR];
    element_t *dx[FOUR];
    fast_row_t rows[FOUR];
} four_t;

/* dx of 2*L columns; return TERM_SCALE*dy*xhat summed over the rows. */
INLINE floats write_four(const four_t *four, int64_t j, floats gamma, floats dx[FOUR])
{
    floats terms[FOUR], dy[FOUR];
#pragma GCC unroll 4
    for (int k = 0; k < FOUR; k++) {
        const fast_row_t *row = &four->rows[k];
        floats c = (load_floats(four->x[k] + j) - row->high) - row->low;
        dy[k] = load_floats(four->dy[k] + j);
        floats g = multiply_add_floats(dy[k], gamma, all_floats(-row->a));
        dx[k] = multiply_add_floats(-c, all_floats(row->q), g) * row->r;
        terms[k] = c * row->term_r;
    }
    floats first = multiply_add_floats(dy[0], terms[0], dy[1] * terms[1]);
    return first + multiply_add_floats(dy[2], terms[2], dy[3] * terms[3]);
}

INLINE doubles dbeta_of_four(const four_t *four, int64_t j)
{
    return (wide(four->dy[0] + j) + wide(four->dy[1] + j)) +
           (wide(four->dy[2] + j) + wide(four->dy[3] + j));
}

/* Add terms of dgamma in float64, where their scaled sum over four rows overflows float32. */
static void add_large_terms(const four_t *four, int64_t n, double *dgamma)
{
    for (int k = 0; k < FOUR; k++)
        for (int64_t j = 0; j < n; j++) {
            const fast_row_t *row = &four->rows[k];
            float c = (to_float(four->x[k][j]) - row->high) - row->low;
            dgamma[j] += (double)to_float(four->dy[k][j]) * (double)(c * row->r);
        }
}

INLINE doubles sum_so_far(const double *sums, bool starts)
{
    return starts ? all(0) : LOAD(doubles, sums);
}

/* Write dx of some columns of four rows, and add to their sums, or start them. n <= COLUMNS,
   padded. */
INLINE void write_columns(const four_t *four, const float *gamma, int64_t n, bool starts,
                          double *restrict dgamma, double *restrict dbeta)
{
    float terms[COLUMNS];
    bits top = {0};
    for (int64_t j = 0; j < n; j += 2 * L) {
        floats dx[FOUR], term = write_four(four, j, LOAD(floats, gamma + j), dx);
        for (int k = 0; k < FOUR; k++)
            store_floats(four->dx[k] + j, dx[k]);
        STORE(terms + j, term);
        top = max_bits((bits)term & 0x7FFFFFFFu, top);
        STORE(dbeta + j, sum_so_far(dbeta + j, starts) + dbeta_of_four(four, j));
        STORE(dbeta + j + L, sum_so_far(dbeta + j + L, starts) + dbeta_of_four(four, j + L));
    }
    if (largest_of(top) >= 0x7F800000u) {
        if (starts)
            memset(dgamma, 0, (size_t)n * sizeof(double));
        add_large_terms(four, n, dgamma);
        return;
    }
    for (int64_t j = 0; j < n; j += L)
        STORE(dgamma + j, multiply_add(widened(LOAD(halves, terms + j)), all(1 / TERM_SCALE),
                                       sum_so_far(dgamma + j, starts)));
}

/* Write the last columns, fewer than 2*L, from copies padded with zeros. */
static void write_last_columns(const four_t *four, const float *gamma, int64_t n, bool starts,
                               double *dgamma, double *dbeta)
{
    element_t x[FOUR][2 * L] = {{0}}, dy[FOUR][2 * L] = {{0}}, dx[FOUR][2 * L];
    float scale[2 * L] = {0};
    double sums[2][2 * L] = {{0}};
    four_t filled = *four;
    size_t bytes = (size_t)n * sizeof(element_t);
    for (int k = 0; k < FOUR; k++) {
        memcpy(x[k], four->x[k], bytes);
        memcpy(dy[k], four->dy[k], bytes);
        filled.x[k] = x[k];
        filled.dy[k] = dy[k];
        filled.dx[k] = dx[k];
    }
    memcpy(scale, gamma, (size_t)n * sizeof(float));
    if (!starts) {
        memcpy(sums[0], dgamma, (size_t)n * sizeof(double));
        memcpy(sums[1], dbeta, (size_t)n * sizeof(double));
    }
    write_columns(&filled, scale, 2 * L, false, sums[0], sums[1]);
    memcpy(dgamma, sums[0], (size_t)n * sizeof(double));
    memcpy(dbeta, sums[1], (size_t)n * sizeof(double));
    for (int k = 0; k < FOUR; k++)
        memcpy(four->dx[k], dx[k], bytes);
}

/* Compute a row that is not easy by tier 1 without the rounding test. Return False if gamma is
   not finite. */
static bool write_hard_row(const call_t *call, int64_t i, double *dgamma, double *dbeta)
{
    call_t untested = *call;
    untested.bound_scale = 0;
    row_t row;
    uint8_t *status = call->status + i;
    double gamma[ROOM_FOR_GAMMA];
    bool finite = keep_gamma(call, gamma);
    finite = finite && (call->centred ? compute_rows(&untested, i, 1, true, &row, gamma)
                                      : compute_rows(&untested, i, 1, false, &row, gamma));
    if (!finite || *status == NOT_FINITE)
        return finite;
    for (int64_t offset = 0; offset < call->size; offset += COLUMNS) {
        int64_t n = smaller(call->size - offset, COLUMNS), at = i * call->size + offset;
        block_sums_t block_sums;
        extents_t extents = {{0}, {0}};
        rows_t r = {.x = {elements_at(call->x, at)}, .dy = {elements_at(call->dy, at)},
                    .dx = {results_at(call, at)}, .row = {&row}};
        const double *scale = gamma_of(call, offset, n, gamma);
        write_dx(&r, scale, 1, true, true, &block_sums, n, &extents);
        for (int64_t j = 0; j < n; j++) {
            dgamma[offset + j] += block_sums.dgamma[j];
            dbeta[offset + j] += block_sums.dbeta[j];
        }
    }
    if (*status == OK && row.is_constant)
        memset(results_at(call, i * call->size), 0, (size_t)call->size * sizeof(element_t));
    else if (*status == OK && call->centred && call->size == 2)
        write_two(call, i);
    return true;
}

INLINE outcome_t fast_backward_rows(const call_t *call, int64_t from, int64_t to, bool centred,
                                    const float *gamma, bool starts, double *sums)
{
    element_t zeros[COLUMNS] = {0}, waste[COLUMNS];
    int64_t size = call->size;
    double *dgamma = sums, *dbeta = sums + size;
    outcome_t outcome = {0, false, NOTHING};
    for (int64_t start = from; start < to; start += FOUR) {
        int64_t n = smaller(to - start, FOUR);
        four_t four;
        memset(&four, 0, sizeof four);
        for (int64_t k = 0; k < n; k++)
            call->status[start + k] =
                compute_fast_row(call, start + k, gamma, centred, &four.rows[k]) ? CHANGED : OK;
        for (int64_t offset = 0; offset < size; offset += COLUMNS) {
            int64_t columns = smaller(size - offset, COLUMNS);
            int64_t whole = columns / (2 * L) * (2 * L);
            for (int k = 0; k < FOUR; k++) {
                int64_t at = (start + k) * size + offset;
                bool is_easy = four.rows[k].is_easy;
                four.x[k] = is_easy ? elements_at(call->x, at) : zeros;
                four.dy[k] = is_easy ? elements_at(call->dy, at) : zeros;
                four.dx[k] = is_easy ? results_at(call, at) : waste;
            }
            write_columns(&four, gamma + offset, whole, starts && start == from, dgamma + offset,
                          dbeta + offset);
            if (whole == columns)
                continue;
            for (int k = 0; k < FOUR; k++) {
                four.x[k] += whole;
                four.dy[k] += whole;
                four.dx[k] += whole;
            }
            write_last_columns(&four, gamma + offset + whole, columns - whole,
                               starts && start == from, dgamma + offset + whole,
                               dbeta + offset + whole);
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

/* Write dx and the row status in fast mode, and add to the sums over rows (2 x size), or start
   them. */
outcome_t NAME(fast_backward)(const call_t *call, int64_t from, int64_t to, bool starts,
                              double *sums)
{
    return call->centred ? fast_backward_rows(call, from, to, true, call->gamma, starts, sums)
                         : fast_backward_rows(call, from, to, false, call->gamma, starts, sums);
}

void NAME(fast_merge)(double *sums, const double *others, int64_t size)
{
    for (int64_t j = 0; j < FAST_SUMS * size; j++)
        sums[j] += others[j];
}

/* Round sums over rows to one of the types. */
static void round_sums(const double *sums, void *results, int type, int64_t n)
{
    if (type == FLOAT32)
        for (int64_t j = 0; j < n; j += L)
            store_columns((float *)results + j, narrow(sums_or_zero(sums + j, n - j)), n - j);
    else
        for (int64_t j = 0; j < n; j++)
            put_rounded(results, j, type, sums[j], 0);
}

int64_t NAME(fast_round)(const call_t *call, const double *sums)
{
    if (call->dgamma)
        round_sums(sums, call->dgamma, call->dgamma_type, call->size);
    if (call->dbeta)
        round_sums(sums + call->size, call->dbeta, call->dbeta_type, call->size);
    return 0;
}

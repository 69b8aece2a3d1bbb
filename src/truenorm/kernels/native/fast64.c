/* Float64 rows in fast mode: forward and backward in float64. Compiled per instruction set.

   Sums along a row have an error of a few u: runs of eight vectors are added as a tree, and from
   there on sums are pairs. Numbers that are computed once per row are pairs. (C15) of
   docs/inside/error-analysis.md. */
#include "pairs.h"

/* ---- mean and variance ---- */

enum { RUN64 = 8, SAMPLE64 = 128 };

INLINE doubles tree_of(const doubles *t, int run)
{
    if (run == 8)
        return ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]));
    if (run == 4)
        return (t[0] + t[1]) + (t[2] + t[3]);
    return run == 2 ? t[0] + t[1] : t[0];
}

/* Call ADD(offset, run) for runs of eight, four, two and one vectors; REST(offset, count) comes
   last, for fewer elements than a vector. */
#define FOR_EACH_RUN(size, ADD, REST)                                    \
    do {                                                                 \
        int64_t at_ = 0, size_ = (size);                                 \
        for (; at_ + RUN64 * L <= size_; at_ += RUN64 * L)               \
            ADD(at_, RUN64);                                             \
        if (at_ + 4 * L <= size_) {                                      \
            ADD(at_, 4);                                                 \
            at_ += 4 * L;                                                \
        }                                                                \
        if (at_ + 2 * L <= size_) {                                      \
            ADD(at_, 2);                                                 \
            at_ += 2 * L;                                                \
        }                                                                \
        if (at_ + L <= size_) {                                          \
            ADD(at_, 1);                                                 \
            at_ += L;                                                    \
        }                                                                \
        if (at_ < size_)                                                 \
            REST(at_, size_ - at_);                                      \
    } while (0)

typedef struct {
    double near[GROUP], low[GROUP], v[GROUP], r[GROUP];
} fast_moments_t;

/* True if underflow in a mean square is negligible. */
INLINE bool is_fast_range(double square) { return square > 0x1p-800 && square < 0x1p800; }

/* Approximate the mean by the first elements. For a constant row it is that constant. */
INLINE double sampled_mean(const double *x, int64_t size)
{
    int64_t n = smaller(size, SAMPLE64);
    doubles sums[4] = {{0}};
    double first = x[0], sum = 0;
    int64_t j = 0;
    for (; j + 4 * L <= n; j += 4 * L)
        for (int i = 0; i < 4; i++)
            sums[i] += LOAD(doubles, x + j + i * L) - first;
    for (; j < n; j++)
        sum += x[j] - first;
    doubles lanes = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int distance = L / 2; distance > 0; distance /= 2)
        lanes += exchanged(lanes, distance);
    return first + (sum + lanes[0]) / (double)n;
}

INLINE void add_fast_moments(const double *x, int run, double near, bool centred, pairs_t *sum,
                             pairs_t *squares)
{
    doubles d[RUN64];
#pragma GCC unroll 8
    for (int i = 0; i < run; i++) {
        d[i] = LOAD(doubles, x + i * L);
        if (centred)
            d[i] -= near;
    }
    if (centred)
        accumulate_doubles(sum, tree_of(d, run));
#pragma GCC unroll 8
    for (int i = 0; i < run; i++)
        d[i] *= d[i];
    accumulate_doubles(squares, tree_of(d, run));
}

NOT_INLINE void sum_fast_row(const double *x, int64_t size, double near, bool centred, int64_t k,
                             group_t sums[2])
{
    pairs_t sum = {{0}, {0}}, squares = {{0}, {0}};
#define ADD(offset, run) add_fast_moments(x + (offset), run, near, centred, &sum, &squares)
#define REST(offset, count)                                           \
    do {                                                              \
        doubles rest_ = load_or(x + (offset), count, near);           \
        add_fast_moments((const double *)&rest_, 1, near, centred, &sum, &squares); \
    } while (0)
    if (centred)
        FOR_EACH_RUN(size, ADD, REST);
    else
        FOR_EACH_RUN(size, ADD, REST);
#undef ADD
#undef REST
    put_pair(&sums[0], k, folded_pairs(two_sums(sum.high, sum.low)));
    put_pair(&sums[1], k, folded_pairs(two_sums(squares.high, squares.low)));
}

INLINE void derive_fast_moments(const call_t *call, bool centred, const group_t sums[2],
                                fast_moments_t *m)
{
    for (int k = 0; k < GROUP; k += L) {
        doubles size = all((double)call->size);
        pairs_t low = {{0}, {0}}, v = divide_doubles(pairs_of(&sums[1], k), size);
        if (centred) {
            low = divide_doubles(pairs_of(&sums[0], k), size);
            v = add_pairs(v, negatives(multiply_pairs(low, low)));
        }
        STORE(m->low + k, low.high);
        STORE(m->v + k, v.high);
        STORE(m->r + k, inverse_roots(two_sums(v.high, all(call->eps))).high);
    }
}

/* Compute the means of rows as near + low, their variances (RMSNorm: mean squares) and r. */
INLINE void find_fast_moments(const call_t *call, int64_t start, int64_t n, bool centred,
                              fast_moments_t *m)
{
    int64_t size = call->size;
    group_t sums[2];
    memset(sums, 0, sizeof sums);
    for (int64_t k = 0; k < n; k++) {
        const double *x = row_of(call->x, start + k, size);
        m->near[k] = centred ? sampled_mean(x, size) : 0;
        sum_fast_row(x, size, m->near[k], centred, k, sums);
    }
    derive_fast_moments(call, centred, sums, m);
    bool sum_again = false;
    for (int64_t k = 0; centred && k < n; k++)
        if (!(m->low[k] * m->low[k] <= m->v[k] / 16) && fabs(m->low[k]) < INFINITY) { /* (C15) */
            m->near[k] += m->low[k];
            sum_fast_row(row_of(call->x, start + k, size), size, m->near[k], centred, k, sums);
            sum_again = true;
        }
    if (sum_again)
        derive_fast_moments(call, centred, sums, m);
}

/* ---- forward ---- */

/* y of some columns of a row. Return a vector of zeros if all are finite. */
INLINE doubles write_fast_row(const double *restrict x, const double *restrict gamma,
                              const double *restrict beta, double near, double low, double r,
                              double *restrict y, int64_t n)
{
    doubles zeros = {0};
    int64_t j = 0;
#pragma GCC unroll 4
    for (; j + L <= n; j += L) {
        doubles c = (LOAD(doubles, x + j) - near) - low;
        doubles z = multiply_add(c, LOAD(doubles, gamma + j) * r, LOAD(doubles, beta + j) + 0.0);
        STORE(y + j, z);
        zeros = multiply_add(z, all(0), zeros);
    }
    if (j < n) {
        doubles c = (load_or(x + j, n - j, near) - near) - low;
        doubles z = multiply_add(c, load_or(gamma + j, n - j, 0) * r,
                                 load_or(beta + j, n - j, 0) + 0.0);
        memcpy(y + j, &z, (size_t)(n - j) * sizeof(double));
        zeros = multiply_add(z, all(0), zeros);
    }
    return zeros;
}

/* Return True if every y is finite. */
NOT_INLINE bool write_fast_y(const call_t *call, int64_t i, double near, double low, double r)
{
    doubles zeros = {0};
    for (int64_t offset = 0; offset < call->size; offset += COLUMNS) {
        int64_t at = i * call->size + offset;
        double *y = (double *)call->out + at;
        zeros += write_fast_row((const double *)call->x + at, gamma_of(call, offset),
                                beta_of(call, offset), near, low, r, y,
                                smaller(call->size - offset, COLUMNS));
    }
    return all_zero(zeros);
}

INLINE bool forward_fast(const call_t *call, int64_t start, int64_t n, bool centred,
                         uint8_t *status)
{
    fast_moments_t m;
    bool finite = true;
    find_fast_moments(call, start, n, centred, &m);
    for (int64_t k = 0; k < n; k++) {
        const double *x = row_of(call->x, start + k, call->size);
        double *saved = call->saved + (centred ? 3 : 1) * (start + k), v = m.v[k];
        bool is_constant = v == 0 && has_no_spread(x, call->size, centred);
        clear_flags();
        status[k] = OK;
        if (is_constant)
            status[k] = call->eps > 0 ? OK : UNDEFINED;
        else if (!is_fast_range(v))
            status[k] = far_status(call, x, centred);
        else if (!write_fast_y(call, start + k, m.near[k], m.low[k], m.r[k]) || has_left_range())
            status[k] = UNDECIDED;
        if (is_constant && status[k] == OK)
            finite &= write_constant(call, start + k);
        double lost = status[k] == UNDEFINED ? NAN : status[k] == UNDECIDED ? FAR : 0;
        saved[0] = lost != 0 ? lost : centred ? m.near[k] : v;
        if (centred) {
            saved[1] = lost != 0 ? lost : m.low[k];
            saved[2] = lost != 0 ? lost : v;
        }
    }
    return finite;
}

INLINE outcome_t fast_forward_rows(const call_t *call, int64_t from, int64_t to, bool centred)
{
    outcome_t outcome = {0};
    int64_t rows = rows_of_group(call->size);
    for (int64_t start = from; start < to; start += rows) {
        int64_t n = smaller(to - start, rows);
        uint8_t *status = call->status + start;
        outcome.not_finite |= !forward_fast(call, start, n, centred, status);
        for (int64_t k = 0; k < n; k++)
            outcome.not_ok += status[k] != OK;
    }
    return outcome;
}

outcome_t NAME(fast_forward)(const call_t *call, int64_t from, int64_t to)
{
    return call->centred ? fast_forward_rows(call, from, to, true)
                         : fast_forward_rows(call, from, to, false);
}

/* Fast mode: recompute the saved statistics, whichever mode saved them. Return how many rows
   have another mean than the saved one; RMSNorm: another mean square. Rows beyond the range of
   fast mode are not changed. */
int64_t NAME(statistics)(const call_t *call, int64_t from, int64_t to)
{
    int64_t changed = 0;
    for (int64_t i = from; i < to; i++) {
        double *saved = call->saved + (call->centred ? 3 * i : i);
        if (saved[0] != saved[0])
            continue;
        fast_moments_t m;
        find_fast_moments(call, i, 1, call->centred, &m);
        double v = m.v[0];
        bool is_constant = v == 0 && has_no_spread(row_of(call->x, i, call->size), call->size,
                                                   call->centred);
        if (!is_fast_range(v) && !is_constant)
            continue;
        if (call->centred) {
            double high = saved[0], low = saved[1];
            if (saved[2] < 0) {
                pair_t mean = saved_mean(saved);
                high = mean.high;
                low = mean.low;
            }
            double moved = fabs((m.near[0] - high) + (m.low[0] - low));
            changed += !(moved <= 0x1p-46 * sqrt(v) + 0x1p-90 * fabs(high));
            saved[0] = m.near[0];
            saved[1] = m.low[0];
            saved[2] = v;
        } else {
            double square = saved[0] < 0 ? saved[0] * saved[0] : saved[0];
            changed += !(fabs(v - square) <= 0x1p-46 * v + 0x1p-1070);
            saved[0] = v;
        }
    }
    return changed;
}

/* ---- backward ---- */

/* The numbers that dx of a row is computed from; zeros for a missing row. */
typedef struct {
    double near, low, r, a, q;
    bool is_there;
} fast64_t;

enum { FOUR64 = 4, FAST_C = 0, FAST_G, FAST_GC, FAST_SUMS };

INLINE void add_fast_products(const double *x, const double *dy, const double *gamma, int run,
                              double near, double low, bool centred, pairs_t sums[FAST_SUMS])
{
    doubles c[RUN64], g[RUN64], t[RUN64];
#pragma GCC unroll 8
    for (int i = 0; i < run; i++) {
        c[i] = LOAD(doubles, x + i * L);
        if (centred)
            c[i] = (c[i] - near) - low;
        g[i] = LOAD(doubles, dy + i * L) * LOAD(doubles, gamma + i * L);
        t[i] = g[i] * c[i];
    }
    accumulate_doubles(&sums[FAST_GC], tree_of(t, run));
    if (centred)
        accumulate_doubles(&sums[FAST_G], tree_of(g, run));
#pragma GCC unroll 8
    for (int i = 0; i < run; i++)
        c[i] = centred ? c[i] : c[i] * c[i];
    accumulate_doubles(&sums[FAST_C], tree_of(c, run));
}

INLINE void sum_products(const double *x, const double *dy, const double *gamma, int64_t size,
                         double near, double low, bool centred, double means[FAST_SUMS])
{
    pairs_t sums[FAST_SUMS];
    memset(sums, 0, sizeof sums);
#define ADD(offset, run)                                                                     \
    add_fast_products(x + (offset), dy + (offset), gamma + (offset), run, near, low, centred, sums)
#define REST(offset, count)                                                                  \
    do {                                                                                     \
        doubles c_ = {0}, dy_ = load_or(dy + (offset), count, 0);                            \
        doubles gamma_ = load_or(gamma + (offset), count, 0);                                \
        for (int64_t k_ = 0; k_ < (count); k_++)                                             \
            c_[k_] = centred ? (x[(offset) + k_] - near) - low : x[(offset) + k_];           \
        doubles g_ = dy_ * gamma_;                                                           \
        accumulate_doubles(&sums[FAST_GC], g_ *c_);                                          \
        accumulate_doubles(&sums[FAST_G], g_);                                               \
        accumulate_doubles(&sums[FAST_C], centred ? c_ : c_ * c_);                           \
    } while (0)
    FOR_EACH_RUN(size, ADD, REST);
#undef ADD
#undef REST
    for (int s = 0; s < FAST_SUMS; s++) {
        pair_t sum = folded_pairs(two_sums(sums[s].high, sums[s].low));
        means[s] = divide_double(sum, (double)size).high;
    }
}

NOT_INLINE void find_means(const call_t *call, int64_t i, double means[FAST_SUMS])
{
    const double *x = row_of(call->x, i, call->size), *dy = row_of(call->dy, i, call->size);
    const double *saved = saved_of(call, i), *gamma = (const double *)call->gamma;
    if (call->centred)
        sum_products(x, dy, gamma, call->size, saved[0], saved[1], true, means);
    else
        sum_products(x, dy, gamma, call->size, 0, 0, false, means);
}

/* Compute the numbers of a row. Return its status; the row is there if that is OK. */
INLINE uint8_t compute_fast_row(const call_t *call, int64_t i, bool centred, fast64_t *row)
{
    const double *x = row_of(call->x, i, call->size), *dy = row_of(call->dy, i, call->size);
    const double *saved = saved_of(call, i);
    double v = saved[centred ? 2 : 0], w = v + call->eps, means[FAST_SUMS];
    memset(row, 0, sizeof *row);
    clear_flags();
    find_means(call, i, means);
    bool left_range = has_left_range();
    bool finite = fabs(means[FAST_GC]) < INFINITY && fabs(means[FAST_C]) < INFINITY;
    if (!finite && !is_finite_row(dy, call->size))
        return NOT_FINITE;
    if (v != v)
        return UNDEFINED;
    if (v < 0)
        return UNDECIDED; /* correct mode computed it */
    if (!finite)
        return is_finite_row(x, call->size) ? UNDECIDED : CHANGED;
    double moved = centred ? fabs(means[FAST_C]) : fabs(means[FAST_C] - v);
    if (!(moved <= 0x1p-46 * (centred ? sqrt(v) : v)))
        return CHANGED;
    if (left_range || !is_fast_range(w))
        return UNDECIDED;
    *row = (fast64_t){centred ? saved[0] : 0,
                      centred ? saved[1] : 0,
                      inverse_root(two_sum(v, call->eps)).high,
                      centred ? means[FAST_G] : -0.0, /* g less -0 is +0 where it is -0 */
                      means[FAST_GC] / w,
                      true};
    return OK;
}

/* Some columns of four rows. A missing row is replaced by zeros, which add nothing: dx of a row
   does not depend on the other rows. */
typedef struct {
    const double *x[FOUR64], *dy[FOUR64];
    double *dx[FOUR64];
    const fast64_t *rows;
} four64_t;

typedef struct {
    doubles x[FOUR64], dy[FOUR64], dx[FOUR64], dgamma, dbeta;
} tile_t;

INLINE void fill_tile(const fast64_t *rows, doubles gamma, tile_t *tile)
{
    doubles terms[FOUR64];
#pragma GCC unroll 4
    for (int k = 0; k < FOUR64; k++) {
        const fast64_t *row = &rows[k];
        doubles c = (tile->x[k] - row->near) - row->low;
        doubles g = multiply_add(tile->dy[k], gamma, all(-row->a));
        tile->dx[k] = subtract_product(g, c, all(row->q)) * row->r;
        terms[k] = tile->dy[k] * (c * row->r);
    }
    tile->dgamma = (terms[0] + terms[1]) + (terms[2] + terms[3]);
    tile->dbeta = (tile->dy[0] + tile->dy[1]) + (tile->dy[2] + tile->dy[3]);
}

INLINE void add_to_sums(double *high, double *low, doubles term)
{
    pairs_t s = two_sums(LOAD(doubles, high), term);
    STORE(high, s.high);
    STORE(low, LOAD(doubles, low) + s.low);
}

/* Write dx of some columns of four rows, and add to their sums. */
NOT_INLINE void write_four(const four64_t *four, const double *gamma, int64_t n, int64_t size,
                           double *sums)
{
    tile_t tile;
    int64_t j = 0;
    double *dgamma = sums + FAST_DGAMMA_HIGH * size, *dgamma_low = sums + FAST_DGAMMA_LOW * size;
    double *dbeta = sums + FAST_DBETA_HIGH * size, *dbeta_low = sums + FAST_DBETA_LOW * size;
    /* Copies, which stores of results cannot change. */
    const double *x[FOUR64], *dy[FOUR64];
    double *dx[FOUR64];
    fast64_t rows[FOUR64];
    memcpy(x, four->x, sizeof x);
    memcpy(dy, four->dy, sizeof dy);
    memcpy(dx, four->dx, sizeof dx);
    memcpy(rows, four->rows, sizeof rows);
    for (; j + L <= n; j += L) {
#pragma GCC unroll 4
        for (int k = 0; k < FOUR64; k++) {
            tile.x[k] = LOAD(doubles, x[k] + j);
            tile.dy[k] = LOAD(doubles, dy[k] + j);
        }
        fill_tile(rows, LOAD(doubles, gamma + j), &tile);
#pragma GCC unroll 4
        for (int k = 0; k < FOUR64; k++)
            STORE(dx[k] + j, tile.dx[k]);
        add_to_sums(dgamma + j, dgamma_low + j, tile.dgamma);
        add_to_sums(dbeta + j, dbeta_low + j, tile.dbeta);
    }
    if (j == n)
        return;
    for (int k = 0; k < FOUR64; k++) {
        tile.x[k] = load_or(four->x[k] + j, n - j, four->rows[k].near);
        tile.dy[k] = load_or(four->dy[k] + j, n - j, 0);
    }
    fill_tile(four->rows, load_or(gamma + j, n - j, 0), &tile);
    for (int64_t i = 0; i < n - j; i++) {
        pair_t s = two_sum(dgamma[j + i], tile.dgamma[i]);
        pair_t t = two_sum(dbeta[j + i], tile.dbeta[i]);
        dgamma[j + i] = s.high;
        dgamma_low[j + i] += s.low;
        dbeta[j + i] = t.high;
        dbeta_low[j + i] += t.low;
    }
    for (int k = 0; k < FOUR64; k++)
        memcpy(four->dx[k] + j, &tile.dx[k], (size_t)(n - j) * sizeof(double));
}

/* True if a row alone leaves the range of float64 in some columns. */
static bool leaves_range(const four64_t *four, int k, const double *gamma, int64_t n)
{
    fast64_t rows[FOUR64] = {four->rows[k]};
    double waste[COLUMNS], sums[FAST_SUMS64 * COLUMNS] = {0};
    four64_t alone = {{four->x[k], ZEROS, ZEROS, ZEROS}, {four->dy[k], ZEROS, ZEROS, ZEROS},
                      {four->dx[k], waste, waste, waste}, rows};
    clear_flags();
    write_four(&alone, gamma, n, COLUMNS, sums);
    return has_left_range();
}

/* Add dy of a row whose other results the driver computes. */
static void add_fast_dy(const call_t *call, int64_t i, bool has_terms, double *sums)
{
    const double *dy = row_of(call->dy, i, call->size);
    int64_t size = call->size;
    for (int64_t j = 0; j < size; j++) {
        pair_t s = two_sum(sums[FAST_DBETA_HIGH * size + j], dy[j]);
        sums[FAST_DBETA_HIGH * size + j] = s.high;
        sums[FAST_DBETA_LOW * size + j] += s.low;
        if (has_terms)
            sums[FAST_DGAMMA_HIGH * size + j] = NAN;
    }
}

/* dx of a centred row of two elements (D24). */
NOT_INLINE void write_fast_two(const call_t *call, int64_t i, const fast64_t *row)
{
    const double *dy = row_of(call->dy, i, 2), *gamma = (const double *)call->gamma;
    double *dx = (double *)row_of(call->out, i, 2), w = call->saved[3 * i + 2] + call->eps;
    double half = (dy[0] * gamma[0] - dy[1] * gamma[1]) * (call->eps / w / 2 * row->r);
    dx[0] = half + 0.0;
    dx[1] = -half + 0.0;
}

static uint8_t finish_fast_row(const call_t *call, int64_t i, const fast64_t *row)
{
    if (is_zero_dx(call, i)) {
        memset((double *)row_of(call->out, i, call->size), 0, (size_t)call->size * sizeof(double));
        return OK;
    }
    clear_flags();
    if (call->centred && call->size == 2)
        write_fast_two(call, i, row);
    return has_left_range() ? UNDECIDED : OK;
}

INLINE outcome_t fast_backward_rows(const call_t *call, int64_t from, int64_t to, bool centred,
                                    double *sums)
{
    double waste[COLUMNS];
    int64_t size = call->size;
    const double *gamma = (const double *)call->gamma;
    outcome_t outcome = {0};
    for (int64_t start = from; start < to; start += FOUR64) {
        int64_t n = smaller(to - start, FOUR64);
        uint8_t *status = call->status + start;
        fast64_t rows[FOUR64];
        memset(rows, 0, sizeof rows);
        for (int64_t k = 0; k < n; k++)
            status[k] = compute_fast_row(call, start + k, centred, &rows[k]);
        clear_flags();
        for (int64_t offset = 0; offset < size; offset += COLUMNS) {
            int64_t columns = smaller(size - offset, COLUMNS);
            four64_t four = {.rows = rows};
            for (int64_t k = 0; k < FOUR64; k++) {
                int64_t i = start + k;
                bool is_there = rows[k].is_there;
                four.x[k] = is_there ? row_of(call->x, i, size) + offset : ZEROS;
                four.dy[k] = is_there ? row_of(call->dy, i, size) + offset : ZEROS;
                four.dx[k] = is_there ? (double *)row_of(call->out, i, size) + offset : waste;
            }
            write_four(&four, gamma + offset, columns, size, sums + offset);
            if (!has_left_range())
                continue;
            for (int64_t k = 0; k < n; k++)
                if (rows[k].is_there && leaves_range(&four, (int)k, gamma + offset, columns))
                    status[k] = UNDECIDED;
            for (int64_t j = offset; j < offset + columns; j++)
                sums[FAST_DGAMMA_HIGH * size + j] = NAN;
            clear_flags();
        }
        for (int64_t k = 0; k < n; k++) {
            if (!rows[k].is_there && status[k] != NOT_FINITE)
                add_fast_dy(call, start + k, status[k] != UNDEFINED, sums);
            if (status[k] == OK)
                status[k] = finish_fast_row(call, start + k, &rows[k]);
            outcome.not_ok += status[k] != OK;
        }
    }
    return outcome;
}

/* Write dx and the row status in fast mode, and add to the sums over rows (FAST_SUMS64 x size). */
outcome_t NAME(fast_backward)(const call_t *call, int64_t from, int64_t to, bool starts,
                              double *sums)
{
    if (starts)
        memset(sums, 0, (size_t)(FAST_SUMS64 * call->size) * sizeof(double));
    return call->centred ? fast_backward_rows(call, from, to, true, sums)
                         : fast_backward_rows(call, from, to, false, sums);
}

void NAME(fast_merge)(double *sums, const double *others, int64_t size)
{
    for (int s = 0; s < FAST_SUMS64; s += 2)
        for (int64_t j = s * size; j < (s + 1) * size; j++) {
            pair_t t = two_sum(sums[j], others[j]);
            sums[j] = t.high;
            sums[j + size] += others[j + size] + t.low;
        }
}

/* Round the sums. Return how many are not finite: the driver sums these again. */
int64_t NAME(fast_round)(const call_t *call, const double *sums)
{
    void *const values[] = {call->dgamma, call->dbeta};
    const int types[] = {call->dgamma_type, call->dbeta_type};
    int64_t size = call->size, count = 0;
    for (int s = 0; s < 2; s++)
        for (int64_t j = 0; values[s] && j < size; j++) {
            double sum = sums[2 * s * size + j] + sums[(2 * s + 1) * size + j];
            put_rounded(values[s], j, types[s], sum, 0);
            count += !(fabs(sum) < INFINITY);
        }
    return count;
}

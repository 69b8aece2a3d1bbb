/* Few long rows, correct: threads share rows, a segment (sums) or a panel (results) at a time.

   Both passes have phases: sums of segments along each row; the numbers of each row; results,
   panel by panel, with sums over rows that need no memory beyond a block; then tier 2 for
   undecided panels and columns. Sums are added in the order of `sum_moments` and `compute_rows`,
   so that results and saved statistics have the bits of other calls. */
#include <stdatomic.h>
#include <stdlib.h>

#include "backward.h"
#include "forward.h"

end_t NAME(long_forward)(call_t *call);
end_t NAME(long_backward)(call_t *call);

enum { PANEL = 1 << 13 }; /* columns whose results one thread writes at a time */

/* The state of a row. */
typedef struct {
    scale_t scale;       /* forward */
    row_t row;           /* backward */
    row2_t row2;         /* tier 2; valid if it is described */
    means2_t means;     /* tier 2 of backward */
    bool is_summed;      /* phase 1: the segments are wanted */
    bool is_described;   /* tier 2: `row2` is valid */
    bool is_constant;
} state_t;

/* Sums of a segment, in float64 and in pairs. */
typedef union {
    double sums[ALONG];
    moments2_t moments;
    products2_t products;
} part_t;

typedef struct {
    call_t *call;
    int64_t segments, panels;
    state_t *states;    /* by row */
    part_t *parts;      /* by row and segment */
    uint8_t *undecided; /* by panel and row: an element of the panel is undecided */
    uint8_t *columns;   /* of dgamma: undecided */
    double *near; /* by row: a float32 number near the mean */
    atomic_bool not_finite, has_undecided, is_inexact;
} long_t;

static void run(work_t work, long_t *job, int64_t chunks)
{
    for_each_chunk(work, job, chunks, job->call->threads, true);
}

static const element_t *segment_of(const long_t *job, const void *rows, int64_t i, int64_t segment)
{
    return elements_at(rows, i * job->call->size + segment * SEGMENT);
}
static int64_t length_of(const long_t *job, int64_t segment)
{
    return smaller(job->call->size - segment * SEGMENT, SEGMENT);
}
static int64_t columns_of(const long_t *job, int64_t panel)
{
    return smaller(job->call->size - panel * PANEL, PANEL);
}

static bool allocate(long_t *job, call_t *call)
{
    int64_t size = call->size, rows = call->rows;
    *job = (long_t){.call = call, .segments = (size + SEGMENT - 1) / SEGMENT,
                    .panels = (size + PANEL - 1) / PANEL};
    size_t parts = (size_t)(rows * job->segments);
    job->states = calloc((size_t)rows, sizeof(state_t));
    job->parts = malloc(parts * sizeof(part_t));
    job->undecided = calloc((size_t)(rows * job->panels), 1);
    job->columns = calloc((size_t)size, 1);
    job->near = malloc((size_t)rows * sizeof(double));
    return job->states && job->parts && job->undecided && job->columns && job->near;
}

static end_t release(long_t *job, end_t end)
{
    free(job->states);
    free(job->parts);
    free(job->undecided);
    free(job->columns);
    free(job->near);
    return end;
}

/* ---- tier 2: rows in double-double ---- */

static void moments2_chunk(void *argument, int64_t chunk, int worker)
{
    long_t *job = argument;
    int64_t i = chunk / job->segments, segment = chunk % job->segments;
    (void)worker;
    if (job->states[i].is_summed)
        job->parts[chunk].moments = sum_moments2(segment_of(job, job->call->x, i, segment),
                                                 length_of(job, segment), job->near[i]);
}

static void products2_chunk(void *argument, int64_t chunk, int worker)
{
    long_t *job = argument;
    const call_t *call = job->call;
    int64_t i = chunk / job->segments, segment = chunk % job->segments;
    (void)worker;
    if (job->states[i].is_summed)
        job->parts[chunk].products = sum_products2(
            call, i, segment * SEGMENT, length_of(job, segment), &job->states[i].row2);
}

/* Compute the double-double statistics of the rows that need them. */
static void describe_rows(long_t *job)
{
    const call_t *call = job->call;
    int64_t wanted = 0;
    for (int64_t i = 0; i < call->rows; i++) {
        state_t *state = &job->states[i];
        state->is_summed = state->is_summed && !state->is_described;
        wanted += state->is_summed;
    }
    if (wanted == 0)
        return;
    run(moments2_chunk, job, call->rows * job->segments);
    for (int64_t i = 0; i < call->rows; i++) {
        if (!job->states[i].is_summed)
            continue;
        moments2_t total = {{0, 0}, {0, 0}};
        for (int64_t k = 0; k < job->segments; k++) {
            const moments2_t *part = &job->parts[i * job->segments + k].moments;
            total.sum = add(total.sum, part->sum);
            total.squares = add(total.squares, part->squares);
        }
        derive_row2(call, total, job->near[i], &job->states[i].row2);
        job->states[i].is_described = true;
    }
}

/* Mark the rows of which a panel is undecided. Return how many there are. */
static int64_t mark_rows(long_t *job)
{
    int64_t marked = 0;
    for (int64_t i = 0; i < job->call->rows; i++) {
        bool is_left = false;
        for (int64_t k = 0; k < job->panels && job->call->status[i] == OK; k++)
            is_left |= job->undecided[k * job->call->rows + i];
        job->states[i].is_summed = is_left && !job->states[i].is_constant;
        marked += job->states[i].is_summed;
    }
    return marked;
}

/* ---- forward ---- */

static void moments_chunk(void *argument, int64_t chunk, int worker)
{
    long_t *job = argument;
    int64_t i = chunk / job->segments, segment = chunk % job->segments;
    double sums[GROUP] = {0}, squares[GROUP] = {0};
    (void)worker;
    if (!job->states[i].is_summed)
        return;
    sum_moments(segment_of(job, job->call->x, i, segment), 1, length_of(job, segment),
                &job->near[i], job->call->centred, sums, squares);
    job->parts[chunk].sums[0] = sums[0];
    job->parts[chunk].sums[1] = squares[0];
}

static double total_of(const long_t *job, int64_t i, int which)
{
    pair_t total = {0, 0};
    for (int64_t k = 0; k < job->segments; k++)
        add_to_pair(&total, job->parts[i * job->segments + k].sums[which]);
    return total.high + total.low;
}

/* Compute the statistics of all rows, as `compute_statistics` does. */
static void find_long_statistics(long_t *job)
{
    const call_t *call = job->call;
    bool centred = call->centred, is_again = true;
    for (int64_t i = 0; i < call->rows; i++) {
        const element_t *x = elements_at(call->x, i * call->size);
        job->near[i] = centred ? near_mean(x, call->size) : 0.0;
        job->states[i].is_summed = true;
    }
    for (int turn = 0; turn < 2 && is_again; turn++) {
        run(moments_chunk, job, call->rows * job->segments);
        is_again = false;
        for (int64_t i = 0; i < call->rows; i++) {
            state_t *state = &job->states[i];
            if (!state->is_summed)
                continue;
            statistics_t stats = {.near = {job->near[i]}, .low = {total_of(job, i, 0)}};
            double square[GROUP] = {total_of(job, i, 1)};
            derive_statistics(&stats, square, 0, call->size);
            state->is_summed = centred && turn == 0 && move_near(&stats, square[0], 0);
            job->near[i] = stats.near[0];
            is_again |= state->is_summed;
            if (state->is_summed)
                continue;
            if (!(square[0] < INFINITY))
                stats.v[0] = NAN;
            derive_scales(call, i, 1, centred, &stats, &state->scale);
        }
    }
}

static void forward_panel(void *argument, int64_t panel, int worker)
{
    long_t *job = argument;
    const call_t *call = job->call;
    int64_t from = panel * PANEL, to = from + columns_of(job, panel);
    (void)worker;
    for (int64_t offset = from; offset < to; offset += COLUMNS) {
        int64_t columns = smaller(to - offset, COLUMNS);
        parameters_t p;
        trials_t trials = {0, 0};
        if (!widen(call, offset, columns, &p)) {
            atomic_store(&job->not_finite, true);
            return;
        }
        for (int64_t i = 0; i < call->rows; i++) {
            double v = saved_variance(call, i);
            int64_t at = i * call->size + offset;
            const scale_t *scale = &job->states[i].scale;
            if (v > 0 && write_block(call, &v, scale, &p, at, columns, 1, call->centred, &trials))
                job->undecided[panel * call->rows + i] = 1;
        }
    }
}

static void tier2_y_panel(void *argument, int64_t panel, int worker)
{
    long_t *job = argument;
    const call_t *call = job->call;
    (void)worker;
    for (int64_t i = 0; i < call->rows; i++) {
        mean_t mean = {0};
        if (job->undecided[panel * call->rows + i] &&
            tier2_y(call, i, &job->states[i].scale, &job->states[i].row2, &mean, panel * PANEL,
                     columns_of(job, panel)))
            atomic_store(&job->has_undecided, true);
    }
}

end_t NAME(long_forward)(call_t *call)
{
    long_t job;
    if (!allocate(&job, call))
        return release(&job, NO_MEMORY);
    find_long_statistics(&job);
    for (int64_t i = 0; i < call->rows; i++) {
        if (call->status[i] != OK)
            return release(&job, NOT_DONE);
        job.states[i].is_constant = saved_variance(call, i) == 0;
        if (job.states[i].is_constant && !write_constant(call, results_at(call, i * call->size)))
            return release(&job, NOT_DONE);
    }
    run(forward_panel, &job, job.panels);
    if (atomic_load(&job.not_finite))
        return release(&job, NOT_DONE);
    if (mark_rows(&job) > 0) {
        describe_rows(&job);
        run(tier2_y_panel, &job, job.panels);
    }
    return release(&job, atomic_load(&job.has_undecided) ? NOT_DONE : DONE);
}

/* ---- backward ---- */

static void products_chunk(void *argument, int64_t chunk, int worker)
{
    long_t *job = argument;
    const call_t *call = job->call;
    int64_t i = chunk / job->segments, from = chunk % job->segments * SEGMENT;
    double gamma[ROOM_FOR_GAMMA], sums[ALONG][GROUP] = {{0}}; /* gamma may not be finite */
    (void)worker;
    bool finite = call->centred
                      ? sum_segment_products(call, i, 1, from, true, gamma, sums)
                      : sum_segment_products(call, i, 1, from, false, gamma, sums);
    if (!finite)
        atomic_store(&job->not_finite, true);
    for (int k = 0; k < ALONG; k++)
        job->parts[chunk].sums[k] = sums[k][0];
}

/* Compute the numbers of all rows. */
static void find_long_rows(long_t *job)
{
    const call_t *call = job->call;
    for (int64_t start = 0; start < call->rows; start += GROUP) {
        int64_t n = smaller(call->rows - start, GROUP);
        double sums[ALONG][GROUP] = {{0}};
        row_t rows[GROUP];
        for (int64_t k = 0; k < n; k++)
            for (int i = 0; i < ALONG; i++)
                sums[i][k] = total_of(job, start + k, i);
        finish_sums(call, start, n, call->centred, sums, rows);
        for (int64_t k = 0; k < n; k++)
            job->states[start + k].row = rows[k];
    }
}

static void backward_panel(void *argument, int64_t panel, int worker)
{
    long_t *job = argument;
    const call_t *call = job->call;
    int64_t from = panel * PANEL, to = from + columns_of(job, panel);
    double gamma[BLOCK_ROOM], sums[SUMS * COLUMNS];
    (void)worker;
    for (int64_t offset = from; offset < to; offset += COLUMNS) {
        int64_t columns = smaller(to - offset, COLUMNS);
        extent_t of_rows = NOTHING;
        widen_gamma(call, offset, columns, gamma);
        memset(sums, 0, sizeof sums);
        for (int64_t start = 0; start < call->rows; start += GROUP) {
            block_sums_t block_sums;
            extents_t extents = {{0}, {0}};
            int64_t end = smaller(start + GROUP, call->rows);
            for (int64_t i = start; i < end; i++) {
                int64_t at = i * call->size + offset;
                rows_t r = {.x = {elements_at(call->x, at)}, .dy = {elements_at(call->dy, at)},
                            .dx = {results_at(call, at)}, .row = {&job->states[i].row}};
                if (write_dx(&r, gamma, 1, true, i == start, &block_sums, columns, &extents))
                    job->undecided[panel * call->rows + i] = 1;
            }
            extent_t extent = extent_of(&extents);
            bool exact = is_exact_group(extent);
            of_rows = wider(of_rows, extent);
            add_block_sums(&block_sums, sums, columns, 0, columns, exact, true);
            for (int64_t i = start; i < end && !exact; i++)
                for (int64_t j = 0; j < columns; j++)
                    add_to_sum(sums + DBETA_HIGH * columns + j, sums + DBETA_LOW * columns + j,
                               to_float(*elements_at(call->dy, i * call->size + offset + j)));
        }
        if (call->dgamma && round_dgamma_of(call, sums, offset, columns, job->columns))
            atomic_store(&job->has_undecided, true);
        if (call->dbeta && is_exact_sum(of_rows, call->rows))
            round_dbeta_of(call, sums, offset, columns);
        else if (call->dbeta)
            atomic_store(&job->is_inexact, true);
    }
}

static void tier2_dx_panel(void *argument, int64_t panel, int worker)
{
    long_t *job = argument;
    const call_t *call = job->call;
    (void)worker;
    for (int64_t i = 0; i < call->rows; i++) {
        const state_t *state = &job->states[i];
        if (state->is_summed && job->undecided[panel * call->rows + i] &&
            tier2_dx(call, i, &state->row, &state->row2, &state->means, panel * PANEL,
                      panel * PANEL + columns_of(job, panel)))
            atomic_store(&job->has_undecided, true);
    }
}

/* Tier 2 for the rows that are undecided. */
static void tier2_rows(long_t *job)
{
    const call_t *call = job->call;
    if (mark_rows(job) == 0)
        return;
    describe_rows(job);
    for (int64_t i = 0; i < call->rows; i++)
        job->states[i].is_summed = job->states[i].is_described;
    run(products2_chunk, job, call->rows * job->segments);
    for (int64_t i = 0; i < call->rows; i++) {
        if (!job->states[i].is_summed)
            continue;
        products2_t total = {{0, 0}, {0, 0}, 0};
        for (int64_t k = 0; k < job->segments; k++) {
            const products2_t *part = &job->parts[i * job->segments + k].products;
            total.sum = add(total.sum, part->sum);
            total.products = add(total.products, part->products);
            total.squares += part->squares;
        }
        job->states[i].means = derive_means2(call, &total, &job->states[i].row2);
    }
    run(tier2_dx_panel, job, job->panels);
}

/* Tier 2 for the undecided columns of dgamma in a panel, a block of columns at a time. */
static void tier2_columns_panel(void *argument, int64_t panel, int worker)
{
    enum { STRIPS = COLUMNS / STRIP };
    long_t *job = argument;
    const call_t *call = job->call;
    int64_t from = panel * PANEL, to = from + columns_of(job, panel);
    (void)worker;
    for (int64_t offset = from; offset < to; offset += COLUMNS) {
        int64_t end = smaller(offset + COLUMNS, to), count = 0;
        strip_t strips[STRIPS];
        for (int64_t j = offset; j < end; j += STRIP)
            if (memchr(job->columns + j, true, (size_t)smaller(STRIP, end - j)) != NULL)
                strips[count++] = (strip_t){.column = j};
        for (int64_t i = 0; i < call->rows && count > 0; i++)
            if (saved_variance(call, i) != 0) /* else xhat is exactly zero */
                add_row_to(call, i, &job->states[i].row2, strips, count);
        if (!decide_strips(call, strips, count, job->columns))
            atomic_store(&job->has_undecided, true);
    }
}

/* Tier 2 for the undecided columns of dgamma. */
static void tier2_long_columns(long_t *job)
{
    for (int64_t i = 0; i < job->call->rows; i++)
        job->states[i].is_summed = saved_variance(job->call, i) != 0;
    describe_rows(job);
    run(tier2_columns_panel, job, job->panels);
}

end_t NAME(long_backward)(call_t *call)
{
    long_t job;
    if (!allocate(&job, call))
        return release(&job, NO_MEMORY);
    run(products_chunk, &job, call->rows * job.segments);
    if (atomic_load(&job.not_finite))
        return release(&job, NOT_DONE);
    find_long_rows(&job);
    for (int64_t i = 0; i < call->rows; i++) {
        if (call->status[i] != OK)
            return release(&job, NOT_DONE);
        job.near[i] = saved_near(call, i);
        job.states[i].is_constant = job.states[i].row.is_constant;
    }
    run(backward_panel, &job, job.panels);
    if (atomic_load(&job.is_inexact))
        return release(&job, NOT_DONE);
    bool has_columns = atomic_exchange(&job.has_undecided, false);
    for (int64_t i = 0; i < call->rows; i++)
        if (job.states[i].is_constant)
            memset(results_at(call, i * call->size), 0, (size_t)call->size * sizeof(element_t));
    tier2_rows(&job);
    if (has_columns && !atomic_load(&job.has_undecided))
        tier2_long_columns(&job);
    return release(&job, atomic_load(&job.has_undecided) ? NOT_DONE : DONE);
}

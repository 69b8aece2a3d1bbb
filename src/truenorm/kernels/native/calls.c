/* Whole calls: the instruction set, rows cut into chunks for threads, sums over rows. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENT float32 /* for headers; nothing here depends on it */
#include "rounding.h"

/* ---- instruction sets ---- */

#define KERNELS(set)                                                                       \
    {&kernels_##set##_float32, &kernels_##set##_float16, &kernels_##set##_bfloat16,        \
     &kernels_##set##_float64}

/* From the best to the one that every processor has, by type of rows. */
static const kernels_t *const sets[][TYPES] = {
#if defined(TRUENORM_X86_SETS)
    KERNELS(avx512),
    KERNELS(avx2),
#endif
    KERNELS(baseline),
};
enum { SETS = sizeof sets / sizeof *sets };

static _Atomic int chosen = SETS - 1;

static bool is_supported(const char *name)
{
#if defined(TRUENORM_X86_SETS)
    if (strcmp(name, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
               is_supported("avx2");
    if (strcmp(name, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
#endif
    return strcmp(name, "baseline") == 0;
}

/* Select the best instruction set of this processor, at most the one that is named (NULL: any).
   Return its name, or NULL if there is no such set. */
const char *kernels_select(const char *at_most)
{
    bool is_allowed = at_most == NULL;
    for (int k = 0; k < SETS; k++) {
        const char *name = sets[k][0]->name;
        is_allowed |= !is_allowed && strcmp(name, at_most) == 0;
        if (is_allowed && is_supported(name) && !sets[k][FLOAT32]->is_contracted()) {
            atomic_store(&chosen, k);
            return name;
        }
    }
    return NULL;
}

const kernels_t *kernels_selected(int type) { return sets[atomic_load(&chosen)][type]; }

/* ---- forward ---- */

enum {
    CHUNK = 1 << 13,       /* elements of a chunk, at least */
    CHUNKS_A_THREAD = 16,  /* at most: a helper that arrives late still gets work */
    WORTH_WAKING = 1 << 14, /* elements from which on sleeping helpers are woken */
    FEW_ROWS = 64,         /* that threads share if they are long */
    ROWS_AT_MOST = 512,    /* of a block with sums of its own in fast mode */
};

static int64_t up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* How many rows have so many elements; at least one, so that loops over rows advance. */
static int64_t rows_within(int64_t elements, const call_t *call)
{
    int64_t rows = elements / call->size;
    return rows > 0 ? rows : 1;
}

static int64_t rows_of_chunk(const call_t *call)
{
    int64_t share = call->rows / ((int64_t)call->threads * CHUNKS_A_THREAD);
    int64_t rows = rows_within(CHUNK, call);
    if (call->size > CHUNK && share == 0)
        return 1;
    return up(rows > share ? rows : share, GROUP);
}

typedef struct {
    call_t *call;
    const kernels_t *kernels; /* the same for the whole call */
    int64_t rows;             /* of a chunk */
    _Atomic int64_t not_ok;
    atomic_bool not_finite;
    double *sums;
    bool *is_used;             /* by worker: true if its sums are started */
    extent_t extents[MOST_THREADS]; /* by worker */
    strip_t *strips; /* by worker */
    int64_t count;   /* of strips */
    term_sums_t *terms; /* by worker */
} sweep_t;

static int64_t end_of(const sweep_t *sweep, int64_t chunk)
{
    int64_t end = (chunk + 1) * sweep->rows;
    return end < sweep->call->rows ? end : sweep->call->rows;
}

static void note(sweep_t *sweep, outcome_t outcome)
{
    if (outcome.not_ok)
        atomic_fetch_add(&sweep->not_ok, outcome.not_ok);
    if (outcome.not_finite)
        atomic_store(&sweep->not_finite, true);
}

static void sweep_rows(work_t work, sweep_t *sweep)
{
    call_t *call = sweep->call;
    int64_t chunks = (call->rows + sweep->rows - 1) / sweep->rows;
    for_each_chunk(work, sweep, chunks, call->threads, call->rows * call->size >= WORTH_WAKING);
}

static void forward_chunk(void *argument, int64_t chunk, int worker)
{
    sweep_t *sweep = argument;
    (void)worker;
    note(sweep, sweep->kernels->forward(sweep->call, chunk * sweep->rows, end_of(sweep, chunk)));
}

/* True if threads share the rows: there are few, and each has several segments. */
static bool is_long(const call_t *call)
{
    return !call->fast && call->type != FLOAT64 && call->size > SEGMENT && call->rows <= FEW_ROWS;
}

end_t run_forward(call_t *call)
{
    if (is_long(call))
        return kernels_selected(call->type)->long_forward(call);
    sweep_t sweep = {
        .call = call, .kernels = kernels_selected(call->type), .rows = rows_of_chunk(call)};
    sweep_rows(forward_chunk, &sweep);
    return sweep.not_ok || sweep.not_finite ? NOT_DONE : DONE;
}

/* ---- backward ---- */

/* Numbers of an extent are multiples of 2**bottom below 2**top; there are fewer than 2**bits. */
typedef struct {
    int bottom, top, bits;
} range_t;

static range_t range_of(extent_t extent, int64_t rows)
{
    int bits = 0, top = (int)(extent.largest >> 23), bottom = (int)((extent.smallest + 1u) >> 23);
    while (rows >> bits > 0)
        bits++;
    return (range_t){(bottom > 1 ? bottom : 1) - 150, (top > 1 ? top : 1) - 150 + 24, bits};
}

/* True if the pairs of dbeta represent the sum over so many rows exactly. The high parts are
   exact by TwoSum. The low parts are sums of multiples of the last place of the smallest number,
   and stay below 2**53 of those. */
bool is_exact_sum(extent_t extent, int64_t rows)
{
    if (extent.largest == 0)
        return true;
    range_t range = range_of(extent, rows);
    return range.top + 2 * range.bits - 53 <= range.bottom + 53;
}

/* True for the first use of a slot, whose sums the kernel starts. */
static bool starts_sums(sweep_t *sweep, int64_t slot)
{
    bool is_used = sweep->is_used[slot];
    sweep->is_used[slot] = true;
    return !is_used;
}

/* The sums of all rows, in the first slot; zeros if no chunk used it. */
static double *first_sums(sweep_t *sweep, int64_t numbers)
{
    if (starts_sums(sweep, 0))
        memset(sweep->sums, 0, (size_t)numbers * sizeof(double));
    return sweep->sums;
}

static void backward_chunk(void *argument, int64_t chunk, int worker)
{
    sweep_t *sweep = argument;
    double *sums = sweep->sums + worker * sweep->kernels->sums * sweep->call->size;
    outcome_t outcome = sweep->kernels->backward(sweep->call, chunk * sweep->rows,
                                                 end_of(sweep, chunk), starts_sums(sweep, worker),
                                                 sums);
    note(sweep, outcome);
    sweep->extents[worker] = wider(sweep->extents[worker], outcome.extent);
}

static void strips_chunk(void *argument, int64_t chunk, int worker)
{
    sweep_t *sweep = argument;
    strip_t *strips = sweep->strips + worker * sweep->count;
    sweep->is_used[worker] = true;
    sweep->kernels->add_strips(sweep->call, chunk * sweep->rows, end_of(sweep, chunk), strips,
                               sweep->count);
}

/* Add the sums of a strip over other rows. */
static void merge_strip(strip_t *sum, const strip_t *other)
{
    for (int k = 0; k < STRIP; k++) {
        pair_t s = two_sum(sum->high[k], other->high[k]);
        double rest = sum->low[k] + other->low[k] + s.low;
        sum->bound[k] +=
            other->bound[k] + 4 * U * (fabs(rest) + fabs(other->low[k]) + fabs(s.low));
        sum->high[k] = s.high;
        sum->low[k] = rest;
    }
}

/* Tier 2 for the undecided columns of dgamma. */
static end_t tier2_columns(sweep_t *sweep, const uint8_t *undecided)
{
    call_t *call = sweep->call;
    int threads = call->threads;
    int64_t count = 0, most = (call->size + STRIP - 1) / STRIP;
    int64_t *columns = malloc((size_t)most * sizeof(int64_t));
    for (int64_t j = 0; columns && j < call->size; j += STRIP) {
        if (memchr(undecided + j, true, (size_t)smaller(STRIP, call->size - j)) != NULL)
            columns[count++] = j;
    }
    sweep->strips = calloc((size_t)threads * (size_t)count, sizeof(strip_t));
    if (columns == NULL || sweep->strips == NULL) {
        free(columns);
        free(sweep->strips);
        return NO_MEMORY;
    }
    for (int64_t k = 0; k < threads * count; k++)
        sweep->strips[k].column = columns[k % count];
    free(columns);
    sweep->count = count;
    memset(sweep->is_used, 0, (size_t)threads);
    sweep_rows(strips_chunk, sweep);
    for (int k = 1; k < threads; k++)
        for (int64_t j = 0; j < count && sweep->is_used[k]; j++)
            merge_strip(&sweep->strips[j], &sweep->strips[k * count + j]);
    bool decided = decide_strips(call, sweep->strips, count, undecided);
    free(sweep->strips);
    return decided ? DONE : NOT_DONE;
}

/* Sum undecided columns of dbeta exactly. Float64 only: other types are exact at once. */
static bool exact_dbeta(sweep_t *sweep, const uint8_t *undecided)
{
    const call_t *call = sweep->call;
    for (int64_t j = 0; j < call->size; j++)
        if (undecided[j] && !sweep->kernels->sum_dbeta(call, j))
            return false;
    return true;
}

static end_t backward_correct(sweep_t *sweep, uint8_t *undecided)
{
    call_t *call = sweep->call;
    int64_t size = call->size, numbers = sweep->kernels->sums * size;
    sweep_rows(backward_chunk, sweep);
    if (sweep->not_ok || sweep->not_finite)
        return NOT_DONE;
    extent_t extent = sweep->extents[0];
    for (int k = 1; k < call->threads; k++) {
        if (!sweep->is_used[k])
            continue;
        extent = wider(extent, sweep->extents[k]);
        sweep->kernels->merge(first_sums(sweep, numbers), sweep->sums + k * numbers, size);
    }
    double *sums = first_sums(sweep, numbers);
    if (call->dbeta) {
        if (!is_exact_sum(extent, call->rows))
            return NOT_DONE;
        if (sweep->kernels->round_dbeta(call, sums, undecided) && !exact_dbeta(sweep, undecided))
            return NOT_DONE;
    }
    int64_t count = 0;
    if (call->dgamma)
        count = sweep->kernels->round_dgamma(call, sums, undecided);
    if (count && sweep->kernels->add_strips == NULL)
        return NOT_DONE;
    return count ? tier2_columns(sweep, undecided) : DONE;
}

/* Fast mode sums over blocks of rows that depend on the shape alone, and adds the blocks in a
   fixed tree: the bits do not depend on threads. An eighth of the rows, or CHUNK*4 elements. */
static int64_t rows_of_fast_block(const call_t *call)
{
    int64_t rows = rows_within(4 * CHUNK, call), eighth = (call->rows + 7) / 8;
    rows = up(rows > eighth ? rows : eighth, 4);
    return rows < ROWS_AT_MOST ? rows : ROWS_AT_MOST;
}

static void fast_backward_chunk(void *argument, int64_t chunk, int worker)
{
    sweep_t *sweep = argument;
    (void)worker;
    double *sums = sweep->sums + chunk * sweep->kernels->fast_sums * sweep->call->size;
    note(sweep, sweep->kernels->fast_backward(sweep->call, chunk * sweep->rows,
                                              end_of(sweep, chunk), true, sums));
}

static end_t backward_fast(sweep_t *sweep, int64_t blocks)
{
    call_t *call = sweep->call;
    int64_t numbers = sweep->kernels->fast_sums * call->size;
    sweep_rows(fast_backward_chunk, sweep);
    if (sweep->not_ok || sweep->not_finite)
        return NOT_DONE;
    for (int64_t half; blocks > 1; blocks = half) {
        half = (blocks + 1) / 2;
        for (int64_t k = 0; k < blocks - half; k++)
            sweep->kernels->fast_merge(sweep->sums + k * numbers,
                                       sweep->sums + (half + k) * numbers, call->size);
    }
    return sweep->kernels->fast_round(call, sweep->sums) ? NOT_DONE : DONE;
}

end_t run_backward(call_t *call)
{
    if (is_long(call))
        return kernels_selected(call->type)->long_backward(call);
    sweep_t sweep = {.call = call, .kernels = kernels_selected(call->type)};
    call->without_dgamma = call->dgamma == NULL || call->dgamma_type == FLOAT64; /* no tier 1 */
    sweep.rows = call->fast ? rows_of_fast_block(call) : rows_of_chunk(call);
    int64_t blocks = (call->rows + sweep.rows - 1) / sweep.rows;
    if (call->threads > blocks)
        call->threads = (int)blocks; /* sums of more threads would be memory that is not used */
    int64_t slots = call->fast ? blocks : call->threads;
    size_t numbers = (size_t)slots * (size_t)call->size *
                     (size_t)(call->fast ? sweep.kernels->fast_sums : sweep.kernels->sums);
    for (int k = 0; k < MOST_THREADS; k++)
        sweep.extents[k] = NOTHING;
    sweep.sums = malloc(numbers * sizeof(double));
    sweep.is_used = calloc((size_t)call->threads, sizeof(bool));
    uint8_t *undecided = malloc((size_t)call->size);
    end_t end = NO_MEMORY;
    if (sweep.sums && sweep.is_used && undecided)
        end = call->fast ? backward_fast(&sweep, blocks) : backward_correct(&sweep, undecided);
    free(undecided);
    free(sweep.is_used);
    free(sweep.sums);
    return end;
}

/* ---- partials: dx, and dgamma and dbeta in fixed point ---- */

enum { IN_CACHE = 1 << 15 }; /* elements whose terms are added while they are in the L2 cache */

static void partial_chunk(void *argument, int64_t chunk, int worker)
{
    sweep_t *sweep = argument;
    call_t *call = sweep->call;
    double *sums = sweep->sums + worker * SUMS * call->size;
    bool starts = starts_sums(sweep, worker);
    int64_t end = end_of(sweep, chunk), step = up(rows_within(IN_CACHE, call), GROUP);
    for (int64_t from = chunk * sweep->rows; from < end; from += step) {
        int64_t to = from + step < end ? from + step : end;
        outcome_t outcome = sweep->kernels->backward(call, from, to, starts, sums);
        starts = false;
        sweep->extents[worker] = wider(sweep->extents[worker], outcome.extent);
        if (!outcome.not_finite) /* else the row status is not written */
            outcome.not_ok +=
                sweep->kernels->add_terms(call, from, to, &sweep->terms[worker], NULL);
        note(sweep, outcome);
    }
}

static bool is_zero(const int64_t *limbs, int64_t count)
{
    enum { PIECE = 256 }; /* a loop that ends early is not made of vectors */
    for (int64_t start = 0; start < count; start += PIECE) {
        int64_t pattern = 0, end = start + PIECE < count ? start + PIECE : count;
        for (int64_t j = start; j < end; j++)
            pattern |= limbs[j];
        if (pattern != 0)
            return false;
    }
    return true;
}

/* Drop empty places at both ends, so that equal sums have equal limbs. */
fixed_point_t trimmed(const int64_t *limbs, int64_t first, int64_t places, int64_t columns)
{
    while (places > 0 && is_zero(limbs + (places - 1) * columns, columns))
        places--;
    int64_t start = 0;
    while (start < places && is_zero(limbs + start * columns, columns))
        start++;
    if (start == places)
        return (fixed_point_t){0, 0, limbs};
    return (fixed_point_t){first + start, places - start, limbs + start * columns};
}

/* Return canonical limbs from the first used place on; the last carry may take one more place. */
static fixed_point_t number_of(limbs_t *limbs)
{
    int64_t columns = limbs->columns;
    int first = 0, last = PLACES - 1;
    while (first < PLACES && !limbs->is_used[first])
        first++;
    while (last > first && !limbs->is_used[last])
        last--;
    if (first == PLACES)
        return (fixed_point_t){0, 0, limbs->limbs};
    int64_t *start = limbs->limbs + first * columns;
    for (int k = first, is_carried = false; !is_carried; last++) {
        for (; k <= last; k++)
            if (!limbs->is_used[k])
                memset(limbs->limbs + k * columns, 0, (size_t)columns * sizeof(int64_t));
        is_carried = kernels_selected(FLOAT32)->carry(start, last - first + 1, columns) ||
                     last + 1 == PLACES; /* no sum over rows gets there */
    }
    return trimmed(start, first + FIRST_PLACE, last - first, columns);
}

static void add_limbs(limbs_t *to, const limbs_t *from)
{
    for (int k = 0; k < PLACES; k++) {
        int64_t *target = to->limbs + k * to->columns;
        const int64_t *source = from->limbs + k * to->columns;
        if (!from->is_used[k])
            continue;
        if (!to->is_used[k])
            memcpy(target, source, (size_t)to->columns * sizeof(int64_t));
        else
            for (int64_t j = 0; j < to->columns; j++)
                target[j] += source[j];
        to->is_used[k] = true;
    }
}

static end_t finish_partial(sweep_t *sweep, partial_t *partial, int64_t *room)
{
    call_t *call = sweep->call;
    int64_t size = call->size;
    double *sums = first_sums(sweep, SUMS * size);
    extent_t extent = sweep->extents[0];
    for (int k = 0; k < call->threads; k++) {
        sweep->kernels->empty_bins(&sweep->terms[k]);
        if (k == 0 || !sweep->is_used[k])
            continue;
        add_limbs(&sweep->terms[0].limbs, &sweep->terms[k].limbs);
        sweep->kernels->merge(sums, sweep->sums + k * SUMS * size, size);
        extent = wider(extent, sweep->extents[k]);
    }
    partial->dgamma = number_of(&sweep->terms[0].limbs);
    partial->dbeta = (fixed_point_t){0, 0, room};
    if (!partial->has_dbeta || extent.largest == 0)
        return DONE;
    if (!is_exact_sum(extent, call->rows))
        return NOT_DONE;
    range_t range = range_of(extent, call->rows);
    limbs_t dbeta = {.columns = size, .limbs = room + size};
    sweep->kernels->deposit_dbeta(&dbeta, sums, room, range.bottom, range.top, range.bits);
    partial->dbeta = number_of(&dbeta);
    return DONE;
}

/* Compute dx, and dgamma and dbeta in fixed point. NOT_DONE: nothing that was written is valid. */
end_t run_partial(call_t *call)
{
    partial_t *partial = call->partial;
    sweep_t sweep = {
        .call = call, .kernels = kernels_selected(call->type), .rows = rows_of_chunk(call)};
    int64_t chunks = (call->rows + sweep.rows - 1) / sweep.rows, size = call->size;
    if (call->threads > chunks)
        call->threads = (int)chunks;
    call->without_dgamma = true;
    int64_t threads = call->threads, of_terms = room_for_terms(size);
    term_sums_t terms[MOST_THREADS];
    bool is_used[MOST_THREADS] = {false};
    int64_t *room = room_for(threads * of_terms + (PLACES + 1) * size, &partial->memory);
    sweep.sums = malloc((size_t)(threads * SUMS * size) * sizeof(double));
    sweep.is_used = is_used;
    sweep.terms = terms;
    end_t end = NO_MEMORY;
    if (room && sweep.sums) {
        for (int64_t k = 0; k < threads; k++) {
            sweep.extents[k] = NOTHING;
            terms[k] = empty_terms(size, room + k * of_terms);
        }
        sweep_rows(partial_chunk, &sweep);
        end = sweep.not_ok || sweep.not_finite
                  ? NOT_DONE
                  : finish_partial(&sweep, partial, room + threads * of_terms);
    }
    free(sweep.sums);
    return end;
}

/* The C core: layer norm and RMSNorm, forward and backward, fast and correctly rounded.

   The kernels are compiled once per instruction set and type of rows (see NAME) and selected at
   run time.
   Equations (E..), (F..) and (R..) are those of docs/inside/error-analysis.md. */
#ifndef TRUENORM_CORE_H
#define TRUENORM_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fixed_point.h"

/* Each of these is an effect of -ffast-math that has an option of its own. Contraction has no
   macro: see `is_contracted`. */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__NO_SIGNED_ZEROS__) || defined(__NO_TRAPPING_MATH__) || \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "the rounding test needs IEEE arithmetic: compile without -ffast-math and its parts"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "the bounds need float and double arithmetic in their own precision (x86: -mfpmath=sse)"
#endif

/* Row status; the same values as kernels/tuning.py. */
enum { OK, UNDECIDED, UNDEFINED, NOT_FINITE, CHANGED };

/* Types of rows and parameters. */
enum { FLOAT32, FLOAT16, BFLOAT16, FLOAT64, TYPES };

enum {
    GROUP = 8,     /* rows that share the parameters of a block while those are in the L1 cache */
    COLUMNS = 512, /* columns of a block */
    SEGMENT = 1 << 15, /* elements of a row that are summed by one thread */
    LANES = 16,    /* partial sums along a row: the same number for every instruction set */
    SUMS = 5,      /* float64 numbers a column in the sums of correct mode */
    STRIP = 8,     /* columns of dgamma that tier 2 sums side by side */
};

/* Rows of `sums`: dgamma as a pair with a bound, dbeta as an exact pair. */
enum { DGAMMA_HIGH, DGAMMA_LOW, DGAMMA_BOUND, DBETA_HIGH, DBETA_LOW };

#define U 0x1p-53 /* unit roundoff of float64 */
#define W 0x1p-106
#define TINY 0x1p-1000
#define SLACK 1.01 /* for products of errors and the rounding of the bounds themselves */

/* One call. All rows have one type. gamma and beta have one type: float64 with float64 rows and in
   wide calls, else float32; others are widened before. NULL stands for ones and zeros (fast
   backward needs gamma). */
typedef struct {
    const void *x, *dy;
    const void *gamma, *beta;
    void *out; /* y or dx */
    double *saved; /* a row: near, low, variance; RMSNorm: the mean square */
    uint8_t *status;
    void *dgamma, *dbeta; /* NULL if not wanted */
    int type, dgamma_type, dbeta_type; /* types of the rows and of the sums over rows */
    int64_t rows, size;
    double eps;
    double bound_scale; /* 1; tests divide the bounds to see that they matter */
    bool centred, fast;
    bool wide; /* narrower rows have float64 parameters, in the range of float32; not fast */
    partial_t *partial;  /* results of `run_partial` */
    bool without_dgamma; /* leave dgamma out of the sums of correct mode */
    int threads;
} call_t;

/* The smallest magnitude that is not zero, less one, and the largest, as bits of a float32. */
typedef struct {
    uint32_t smallest, largest;
} extent_t;
#define NOTHING ((extent_t){0xFFFFFFFFu, 0})

static inline extent_t wider(extent_t a, extent_t b)
{
    return (extent_t){a.smallest < b.smallest ? a.smallest : b.smallest,
                      a.largest > b.largest ? a.largest : b.largest};
}

/* Results of one kernel on a range of rows. */
typedef struct {
    int64_t not_ok;    /* rows whose status is not OK */
    bool not_finite;   /* gamma or beta is not finite: nothing that was written is valid */
    extent_t extent;   /* of dy, over finite rows */
} outcome_t;

/* How a call ended: NOT_DONE is for the driver. */
typedef enum { DONE, NOT_DONE, NO_MEMORY } end_t;

/* The sums of tier 2 over STRIP columns of dgamma, some of which tier 1 left undecided. */
typedef struct {
    int64_t column; /* the first */
    double high[STRIP], low[STRIP], bound[STRIP];
} strip_t;

/* The kernels of one instruction set and type of rows. */
typedef struct {
    const char *name;
    bool (*is_contracted)(void); /* the compiler fused a product and a sum: no bound holds */
    /* Numbers a column that `backward` and `fast_backward` add to; `starts`: that they set first. */
    int sums, fast_sums;
    outcome_t (*forward)(const call_t *call, int64_t from, int64_t to);
    outcome_t (*backward)(const call_t *call, int64_t from, int64_t to, bool starts, double *sums);
    outcome_t (*fast_backward)(const call_t *call, int64_t from, int64_t to, bool starts,
                               double *sums);
    end_t (*long_forward)(call_t *call); /* whole calls on few long rows, correct; or NULL */
    end_t (*long_backward)(call_t *call);
    int64_t (*add_terms)(const call_t *call, int64_t from, int64_t to, term_sums_t *terms,
                         uint8_t *undecided);
    void (*empty_bins)(term_sums_t *terms);
    void (*deposit_dbeta)(limbs_t *limbs, const double *sums, int64_t *buffer, int bottom,
                          int top, int bits);
    bool (*carry)(int64_t *limbs, int64_t places, int64_t columns);
    bool (*add_numbers)(const fixed_point_t *a, const fixed_point_t *b, int64_t first,
                        int64_t places, int64_t columns, int64_t *sum);
    int64_t (*statistics)(const call_t *call, int64_t from, int64_t to);
    void (*add_strips)(const call_t *call, int64_t from, int64_t to, strip_t *strips, int64_t n);
    void (*merge)(double *sums, const double *others, int64_t size);
    int64_t (*round_dgamma)(const call_t *call, const double *sums, uint8_t *undecided);
    int64_t (*round_dbeta)(const call_t *call, const double *sums, uint8_t *undecided);
    bool (*sum_dbeta)(const call_t *call, int64_t column); /* float64: exactly */
    void (*fast_merge)(double *sums, const double *others, int64_t size);
    int64_t (*fast_round)(const call_t *call, const double *sums); /* returns how many overflow */
} kernels_t;

#define DECLARE_KERNELS(set)                                                            \
    extern const kernels_t kernels_##set##_float32, kernels_##set##_float16,            \
        kernels_##set##_bfloat16, kernels_##set##_float64
DECLARE_KERNELS(baseline);
DECLARE_KERNELS(avx2);
DECLARE_KERNELS(avx512);

/* calls.c: whole calls, on several threads. */
const kernels_t *kernels_selected(int type);
const char *kernels_select(const char *at_most);
bool arithmetic_is_ieee(void);
end_t run_forward(call_t *call);
end_t run_backward(call_t *call);
end_t run_partial(call_t *call);
fixed_point_t trimmed(const int64_t *limbs, int64_t first, int64_t places, int64_t columns);
bool is_exact_sum(extent_t extent, int64_t rows);

/* threads.c */
typedef void (*work_t)(void *argument, int64_t chunk, int worker);
enum { MOST_THREADS = 64 };
void for_each_chunk(work_t work, void *argument, int64_t chunks, int threads, bool wake);
void use_ieee_arithmetic(void);

#endif

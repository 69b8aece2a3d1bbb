/* Fixed-point sums over rows: limbs of 32 bits at fixed places, in int64, carried late.

   Place k counts multiples of 2**(32*k). The sum of integers does not depend on their order, so
   threads, batches and instruction sets cannot change it. Equations (L..): docs/inside/partials.md. */
#ifndef TRUENORM_FIXED_POINT_H
#define TRUENORM_FIXED_POINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    LIMB_BITS = 32,        /* bits of a limb */
    FIRST_PLACE = -10, /* no unit is below 2**-320 (L1) */
    PLACES = 18,       /* up to the sum of 2**63 terms below 2**160 */
    BINS = 8,          /* units of rows that have a bin at the same time */
    PADDING = 16,      /* columns that fill the last vector of a bin */
};

/* Limbs that are not carried yet: PLACES x columns. A place is cleared at its first use. */
typedef struct {
    int64_t columns;
    int64_t *limbs;
    bool is_used[PLACES];
} limbs_t;

/* Sums of terms over some rows. A bin sums the terms of rows that have the same unit, each term
   as high*2**24 + low. When the unit changes, the bin is emptied into the limbs. The last column
   of the limbs is the sum of the units (L4). */
typedef struct {
    limbs_t limbs;
    int64_t stride; /* of the high and the low parts of a bin */
    int64_t *bins;  /* BINS x 2 x stride, then 2 x stride for the terms of one row */
    int64_t units[BINS], counts[BINS];
} term_sums_t;

/* Canonical limbs: places from `first` on, within an array. */
typedef struct {
    int64_t first, places;
    const int64_t *limbs;
} fixed_point_t;

/* The sums of a call. The limbs lie in `memory`, which the caller frees. */
typedef struct {
    fixed_point_t dgamma, dbeta;
    bool has_dbeta; /* if it is wanted */
    void *memory;
} partial_t;

/* The distance of the high and the low parts of a bin: whole pages plus half a page, so that a
   load of one is not mistaken for a load of a recent store to the other. */
static inline int64_t stride_of_bins(int64_t size)
{
    return (size + PADDING + 255) / 512 * 512 + 256;
}

/* Return the size of the sums of terms of a call, in int64 numbers: bins, scratch and limbs; a
   multiple of a cache line. */
static inline int64_t room_for_terms(int64_t size)
{
    return (2 * BINS + 2) * stride_of_bins(size) + (PLACES * (size + 1) + 7) / 8 * 8;
}

static inline term_sums_t empty_terms(int64_t size, int64_t *room)
{
    term_sums_t terms = {.stride = stride_of_bins(size), .bins = room};
    terms.limbs.columns = size + 1;
    terms.limbs.limbs = room + (2 * BINS + 2) * terms.stride;
    return terms;
}

/* Allocate int64 numbers at a cache line; the caller frees `*allocated`. */
static inline int64_t *room_for(int64_t numbers, void **allocated)
{
    enum { LINE = 64 };
    uintptr_t start = (uintptr_t)(*allocated = malloc((size_t)numbers * sizeof(int64_t) + LINE));
    return start == 0 ? NULL : (int64_t *)((start + LINE - 1) / LINE * LINE);
}

#endif

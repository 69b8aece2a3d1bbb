/* Fixed-point sums over rows: digits of 32 bits at fixed places, in int64, carried late.

   Place k counts multiples of 2**(32*k). Integers add up to the same sum in any order, so neither
   threads nor batches nor instruction sets can matter. Equations (L..): docs/scale.md. */
#ifndef TRUENORM_FIXED_POINT_H
#define TRUENORM_FIXED_POINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    DIGIT = 32,        /* bits of a digit */
    FIRST_PLACE = -10, /* no unit is below 2**-320 (L1) */
    PLACES = 18,       /* up to the sum of 2**63 terms below 2**160 */
    BINS = 8,          /* units of rows that have a bin at the same time */
    PADDING = 16,      /* columns that fill the last vector of a bin */
};

/* Digits that are not carried yet: PLACES x columns. A place is cleared when it is first used. */
typedef struct {
    int64_t columns;
    int64_t *digits;
    bool is_used[PLACES];
} digits_t;

/* Sums of terms over some rows. A bin adds up the terms of rows that have the same unit, each term
   as high*2**24 + low; when its unit changes it is emptied into the digits. The last column of the
   digits is the sum of the units (L4). */
typedef struct {
    digits_t digits;
    int64_t stride; /* of the high and the low parts of a bin */
    int64_t *bins;  /* BINS x 2 x stride, then 2 x stride for the terms of one row */
    int64_t units[BINS], counts[BINS];
} terms_t;

/* Canonical digits: places from `first` on, within an array. */
typedef struct {
    int64_t first, places;
    const int64_t *digits;
} number_t;

/* The sums of a call. The digits lie in `memory`, which the caller frees. */
typedef struct {
    number_t dgamma, dbeta;
    bool has_dbeta; /* if it is wanted */
    void *memory;
} partial_t;

/* The distance of the high and the low parts of a bin: half a page beyond whole ones, so that a
   load of one does not look like a load of what was just stored into the other. */
static inline int64_t stride_of_bins(int64_t size)
{
    return (size + PADDING + 255) / 512 * 512 + 256;
}

/* How many int64 numbers the sums of terms of a call take: bins, scratch and digits; a multiple of
   a cache line. */
static inline int64_t room_for_terms(int64_t size)
{
    return (2 * BINS + 2) * stride_of_bins(size) + (PLACES * (size + 1) + 7) / 8 * 8;
}

static inline terms_t empty_terms(int64_t size, int64_t *room)
{
    terms_t terms = {.stride = stride_of_bins(size), .bins = room};
    terms.digits.columns = size + 1;
    terms.digits.digits = room + (2 * BINS + 2) * terms.stride;
    return terms;
}

/* Memory for int64 numbers from a cache line on; `*allocated` is to be freed. */
static inline int64_t *room_for(int64_t numbers, void **allocated)
{
    enum { LINE = 64 };
    uintptr_t start = (uintptr_t)(*allocated = malloc((size_t)numbers * sizeof(int64_t) + LINE));
    return start == 0 ? NULL : (int64_t *)((start + LINE - 1) / LINE * LINE);
}

#endif

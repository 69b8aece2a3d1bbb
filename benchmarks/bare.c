/* The bare machine: a copy and a triad over a range of elements, for each width of a number. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Read one array and write one, as forward must. */
void copy_bytes(const char *x, char *out, size_t start, size_t stop) {
    memcpy(out + start, x + start, stop - start);
}

/* Read two arrays and write one, as backward must. Numbers of 16 bits are added as integers: the
   traffic is the same. */
#define TRIAD(NAME, TYPE)                                                                        \
    void NAME(const TYPE *restrict x, const TYPE *restrict dy, TYPE *restrict out, size_t start, \
              size_t stop) {                                                                     \
        for (size_t i = start; i < stop; i++) out[i] = (TYPE)(x[i] + dy[i]);                     \
    }

TRIAD(triad_16, uint16_t)
TRIAD(triad_32, float)
TRIAD(triad_64, double)

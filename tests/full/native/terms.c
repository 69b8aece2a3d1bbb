/* The terms of one row as `fixed_point.c` computes them, for comparison with exact ones. */
#include "fixed_point.c"

/* Write the terms as high and low parts and the distance from an integer, and the unit and the
   bound of the row; return False if the row has no terms. */
__attribute__((visibility("default"))) bool terms_of_row(const float *x, const float *dy,
                                                         int64_t size, double eps, bool centred,
                                                         int64_t *high, int64_t *low, double *remainder,
                                                         int64_t *unit, double *bound)
{
    uint8_t status = OK;
    call_t call = {.x = x, .dy = dy, .status = &status, .rows = 1, .size = size, .eps = eps,
                   .bound_scale = 1, .centred = centred};
    factors_t rows[GROUP];
    int64_t from = 0;
    int n = centred ? compute_factors(&call, &from, 1, true, rows)
                    : compute_factors(&call, &from, 1, false, rows);
    if (n == 0)
        return false;
    *unit = rows[0].unit;
    *bound = rows[0].bound;
    for (int64_t j = 0; j < size; j++) {
        doubles value = wide_or(x + j, 1, 0), dy_value = wide_or(dy + j, 1, 0);
        vector_of_terms_t t = centred ? terms_of(value, dy_value, rows, true, true)
                                      : terms_of(value, dy_value, rows, false, false);
        double high_part = t.high[0], low_part = t.low[0];
        uint64_t bits_of_high, bits_of_low;
        memcpy(&bits_of_high, &high_part, sizeof bits_of_high);
        memcpy(&bits_of_low, &low_part, sizeof bits_of_low);
        high[j] = (int64_t)(bits_of_high - BITS_HIGH);
        low[j] = (int64_t)(bits_of_low - BITS_LOW);
        remainder[j] = t.remainder[0];
    }
    return true;
}

/* Tier 1 of float32 rows, to be compiled with another CELL; `reach` scales the bounds of the
   cell test. */
#include "backward.h"
#include "forward.h"

#define EXPORTED __attribute__((visibility("default")))

/* y of rows, two at once as far as they go. */
EXPORTED void forward_of_rows(const float *x, const float *gamma, const float *beta, int64_t rows,
                              int64_t size, double eps, bool centred, double reach, float *y,
                              double *saved, uint8_t *status)
{
    call_t call = {.x = x, .gamma = gamma, .beta = beta, .out = y, .saved = saved, .status = status,
                   .rows = rows, .size = size, .eps = eps, .bound_scale = 1, .centred = centred};
    for (int64_t i = 0, n; i < rows; i += n) {
        n = smaller(2, rows - i);
        statistics_t stats;
        scale_t scales[GROUP];
        compute_statistics(x + i * size, n, size, centred, &stats);
        derive_scales(&call, i, n, centred, &stats, scales);
        for (int64_t offset = 0; offset < size; offset += COLUMNS) {
            int64_t columns = smaller(size - offset, COLUMNS), at = i * size + offset;
            parameters_t p;
            trials_t trials = {0, 0};
            widen(&call, offset, columns, &p);
            for (int64_t j = 0; j < columns; j++)
                p.reach[j] *= reach;
            unsigned left = n == 2 ? write_block(&call, stats.v, scales, &p, at, columns, 2,
                                                 centred, &trials)
                                   : write_block(&call, stats.v, scales, &p, at, columns, 1,
                                                 centred, &trials);
            for (int64_t k = 0; k < n; k++)
                if (left >> k & 1 || !(stats.v[k] > 0))
                    status[i + k] = UNDECIDED;
        }
    }
}

/* dx of rows of at most KEPT blocks. */
EXPORTED void backward_of_rows(const float *x, const float *dy, const float *gamma, int64_t rows,
                               int64_t size, double eps, bool centred, double reach, float *dx,
                               double *saved, uint8_t *status)
{
    call_t call = {.x = x, .dy = dy, .gamma = gamma, .out = dx, .saved = saved, .status = status,
                   .rows = rows, .size = size, .eps = eps, .bound_scale = 1, .centred = centred};
    double scale[ROOM_FOR_GAMMA];
    keep_gamma(&call, scale);
    for (int64_t i = 0; i < rows; i++) {
        row_t row;
        if (centred)
            compute_rows(&call, i, 1, true, &row, scale);
        else
            compute_rows(&call, i, 1, false, &row, scale);
        row.reach *= reach;
        for (int64_t offset = 0; offset < size; offset += COLUMNS) {
            int64_t at = i * size + offset, n = smaller(size - offset, COLUMNS);
            block_sums_t sums;
            extents_t extents = {{0}, {0}};
            rows_t r = {.x = {x + at}, .dy = {dy + at}, .dx = {dx + at}, .row = {&row}};
            if (write_dx(&r, scale + offset, 1, true, true, &sums, n, &extents) || row.is_constant)
                status[i] = UNDECIDED;
        }
    }
}

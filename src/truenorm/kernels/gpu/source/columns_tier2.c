/* Tier 2 of sums over rows: the statistics of each row in double-double, then some columns, with
 * a team for each.
 *
 * Thread t of a team adds rows t, t + TEAM, ... in their order; threads are added as in a sum over
 * a row. `sums` are those of `column_sums`, replaced in the selected columns.
 */
#define NUMBERS 9 /* of a row */

KERNEL rows_tier2(GLOBAL const store_t *RESTRICT x, double eps, GLOBAL double *RESTRICT numbers,
                  wide_t rows) {
    SHARED double scratch[SCRATCH(2)];
    EACH_ROW(rows) {
        const index_t row = ROW_OF_TEAM(rows);
        const row_t s = row_in_pairs(x + row * SIZE, eps, scratch);
        if (HAS_ROW(rows) && THREADS_OF_ROW == 0) {
            GLOBAL double *to = numbers + row * NUMBERS;
            to[0] = s.mean.high, to[1] = s.mean.low, to[2] = s.residual.high, to[3] = s.residual.low;
            to[4] = s.r.high, to[5] = s.r.low, to[6] = s.total, to[7] = s.centring;
            to[8] = s.is_bounded ? s.err_r : (double)INFINITE;
        }
    }
}

KERNEL columns_tier2(GLOBAL const store_t *RESTRICT dy, GLOBAL const store_t *RESTRICT x,
                     GLOBAL const double *RESTRICT numbers, GLOBAL double *RESTRICT sums,
                     GLOBAL const wide_t *RESTRICT selected, wide_t count, wide_t rows) {
    SHARED double scratch[2 * THREADS];
    const double depth = (double)((rows + TEAM - 1) / TEAM + 5 + WARPS);
    EACH_ROW(count) {
        const small_t column = (small_t)selected[ROW_OF_TEAM(count)];
        pair_t sum = pair_of(0.0, 0.0), dbeta = sum;
        double a[2]; /* of all terms: their errors, and their sizes */
        a[0] = a[1] = 0.0;
        for (index_t row = THREADS_OF_ROW; row < rows; row += TEAM) {
            GLOBAL const double *from = numbers + row * NUMBERS;
            const double value = LOAD(x[row * SIZE + column]);
            const double dy_value = LOAD(dy[row * SIZE + column]);
            row_t s;
            s.mean = pair_of(from[0], from[1]), s.residual = pair_of(from[2], from[3]);
            s.r = pair_of(from[4], from[5]);
            if (CENTRED) add_exactly(&dbeta.high, &dbeta.low, dy_value);
            if (dy_value == 0 || value * SIZE == from[6]) continue; /* x is the mean: xhat is zero */
            const pair_t t = multiply_float(multiply(centred(value, s), s.r), dy_value);
            sum = add(sum, t);
            a[0] += ABS(t.high) * (from[8] + 16 * W) + ABS(dy_value) * s.r.high * from[7]; /* (P5) */
            a[1] += ABS(t.high);
        }
        sum = team_pair(sum, scratch);
        team_sums(2, a, scratch);
        BARRIER;
        scratch[THREAD] = dbeta.high, scratch[THREADS + THREAD] = dbeta.low;
        BARRIER;
        if (HAS_ROW(count) && THREADS_OF_ROW == 0) {
            for (int t = 1; t < TEAM; ++t) {
                add_exactly(&dbeta.high, &dbeta.low, scratch[THREAD + t]);
                dbeta.low = exact_sum(dbeta.low, scratch[THREADS + THREAD + t]);
            }
            sums[column] = sum.high;
            sums[SIZE + column] = sum.low;
            sums[2 * SIZE + column] = a[0] + 3 * W * depth * a[1]; /* (H5) */
            sums[3 * SIZE + column] = dbeta.high;
            sums[4 * SIZE + column] = dbeta.low;
        }
    }
}

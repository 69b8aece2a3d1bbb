/* Add the sums of runs to the sums over all rows, in the order of the runs.
 *
 * `sums` are dgamma as a pair, its bound, and dbeta as a pair, SIZE of each. In correct mode dbeta
 * is exact, or NaN if a pair cannot represent it.
 */
KERNEL column_sums(GLOBAL const double *RESTRICT run_sums, GLOBAL const float *RESTRICT bounds,
                   GLOBAL double *RESTRICT sums, wide_t runs) {
    const small_t column = BLOCK * THREADS + THREAD;
    if (column >= SIZE) return;
    double high = sums[column], low = sums[SIZE + column], bound = sums[2 * SIZE + column];
    double dbeta = sums[3 * SIZE + column], dbeta_low = sums[4 * SIZE + column];
    for (index_t run = 0; run < runs; ++run) {
        const index_t place = run * SIZE + column;
        const double run_sum = run_sums[2 * place], sum = high + run_sum;
        low += error_of_sum(high, run_sum, sum);
        high = sum;
        bound += bounds[place] + U * ABS(low); /* (E13) */
        if (CENTRED) add_exactly(&dbeta, &dbeta_low, run_sums[2 * place + 1]);
    }
    sums[column] = high;
    sums[SIZE + column] = low;
    sums[2 * SIZE + column] = bound;
    sums[3 * SIZE + column] = dbeta;
    sums[4 * SIZE + column] = dbeta_low;
}

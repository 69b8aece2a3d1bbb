/* Sums over rows: the shares of runs, one after the other, added to what there was.
 *
 * `sums` are dgamma as a pair, its bound, and dbeta as a pair, SIZE of each; in correct mode the
 * last is exact, or NaN if it is not.
 */
KERNEL columns(GLOBAL const double *RESTRICT shares, GLOBAL const float *RESTRICT bounds,
               GLOBAL double *RESTRICT sums, wide_t runs) {
    const small_t column = BLOCK * THREADS + THREAD;
    if (column >= SIZE) return;
    double high = sums[column], low = sums[SIZE + column], bound = sums[2 * SIZE + column];
    double of_beta = sums[3 * SIZE + column], rest = sums[4 * SIZE + column];
    for (index_t run = 0; run < runs; ++run) {
        const index_t place = run * SIZE + column;
        const double share = shares[2 * place], sum = high + share;
        low += error_of_sum(high, share, sum);
        high = sum;
        bound += bounds[place] + U * ABS(low); /* (E13) */
        if (CENTRED) add_exactly(&of_beta, &rest, shares[2 * place + 1]);
    }
    sums[column] = high;
    sums[SIZE + column] = low;
    sums[2 * SIZE + column] = bound;
    sums[3 * SIZE + column] = of_beta;
    sums[4 * SIZE + column] = rest;
}

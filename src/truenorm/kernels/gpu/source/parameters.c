/* Parameters: gamma and beta as float32, dgamma and dbeta rounded to their type. */
KERNEL widen(GLOBAL const store_t *RESTRICT from, GLOBAL float *RESTRICT to) {
    const small_t column = BLOCK * THREADS + THREAD;
    if (column < SIZE) to[column] = LOAD(from[column]);
}

/* Round dgamma; `flags` marks undecided columns. */
KERNEL round_dgamma(GLOBAL const double *RESTRICT sums, GLOBAL store_t *RESTRICT to,
                    GLOBAL unsigned char *RESTRICT flags) {
    const small_t column = BLOCK * THREADS + THREAD;
    if (column >= SIZE) return;
    const double high = sums[column] + 0.0, low = sums[SIZE + column]; /* -0 becomes +0 */
    const pair_t z = low == low ? two_sum(high, low) : pair_of(high, 0.0);
    const double bound = CORRECT ? SLACK * sums[2 * SIZE + column] : 0.0;
    flags[column] = round_pair(z, bound, to + column);
}

/* Round dbeta; `flags` marks columns whose sum is not exact. */
KERNEL round_dbeta(GLOBAL const double *RESTRICT sums, GLOBAL store_t *RESTRICT to,
                   GLOBAL unsigned char *RESTRICT flags) {
    const small_t column = BLOCK * THREADS + THREAD;
    if (column >= SIZE) return;
    const double high = sums[3 * SIZE + column], low = sums[4 * SIZE + column];
    const int exact = low == low && high == high;
    const pair_t z = exact ? two_sum(high, low) : pair_of(high, 0.0);
    flags[column] = round_pair(z, 0.0, to + column) || !exact;
}

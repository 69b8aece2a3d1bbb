/* Sums over the rows of a run, for long rows: a thread has one column.
 *
 * `numbers` are r and the coefficients of (E12) of each row. r is zero if the row has no result,
 * and -1 if its dy is not finite, unless STANDALONE.
 */
KERNEL run_sums(GLOBAL const store_t *RESTRICT dy, GLOBAL const store_t *RESTRICT x,
                GLOBAL const double *RESTRICT saved, GLOBAL const double *RESTRICT numbers,
                GLOBAL double *RESTRICT sums, GLOBAL float *RESTRICT bounds, wide_t rows) {
    const small_t strips = (SIZE + THREADS - 1) / THREADS;
    const index_t run = BLOCK / strips;
    const small_t column = BLOCK % strips * THREADS + THREAD;
    const index_t end = (run + 1) * RUN < rows ? (run + 1) * RUN : (index_t)rows;
    if (column >= SIZE) return;
    double dgamma = 0.0, dbeta = 0.0;
    float bound = 0.f;
    for (index_t row = run * RUN; row < end; ++row) {
        const double r = numbers[3 * row];
        if (r < 0) continue;
        const double near = CENTRED ? saved[3 * row] : 0.0, low = CENTRED ? saved[3 * row + 1] : 0.0;
        const double c = ((double)LOAD(x[row * SIZE + column]) - near) - low;
        add_term(LOAD(dy[row * SIZE + column]), STANDALONE || r != 0 ? c * r : 0.0,
                 (float)numbers[3 * row + 1], (float)numbers[3 * row + 2], &dgamma, &dbeta, &bound);
    }
    sums[2 * (run * SIZE + column)] = dgamma;
    sums[2 * (run * SIZE + column) + 1] = dbeta;
    bounds[run * SIZE + column] = bound * 1.001f;
}

/* The shares of runs of long rows, for a column each. `numbers` are r and the
 * coefficients of (E12): r is zero if a row has no result, and -1 if its dy is not finite and the
 * device is not ALONE.
 */
KERNEL shares(GLOBAL const store_t *RESTRICT dy, GLOBAL const store_t *RESTRICT x,
              GLOBAL const double *RESTRICT kept, GLOBAL const double *RESTRICT numbers,
              GLOBAL double *RESTRICT found, GLOBAL float *RESTRICT bounds, wide_t rows) {
    const small_t strips = (SIZE + THREADS - 1) / THREADS;
    const index_t run = BLOCK / strips;
    const small_t column = BLOCK % strips * THREADS + THREAD;
    const index_t end = (run + 1) * RUN < rows ? (run + 1) * RUN : (index_t)rows;
    if (column >= SIZE) return;
    double of_gamma = 0.0, of_beta = 0.0;
    float bound = 0.f;
    for (index_t row = run * RUN; row < end; ++row) {
        const double r = numbers[3 * row];
        if (r < 0) continue;
        const double near = CENTRED ? kept[3 * row] : 0.0, low = CENTRED ? kept[3 * row + 1] : 0.0;
        const double c = ((double)LOAD(x[row * SIZE + column]) - near) - low;
        add_term(LOAD(dy[row * SIZE + column]), ALONE || r != 0 ? c * r : 0.0, (float)numbers[3 * row + 1],
                 (float)numbers[3 * row + 2], &of_gamma, &of_beta, &bound);
    }
    found[2 * (run * SIZE + column)] = of_gamma;
    found[2 * (run * SIZE + column) + 1] = of_beta;
    bounds[run * SIZE + column] = bound * 1.001f;
}

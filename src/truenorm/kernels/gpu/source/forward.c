/* y of rows, what is kept of them and what became of them; states are zero before. */

/* A float32 number near the mean: the first element and the mean distance from it (H2), or else that
 * element alone. Any will do (E1); of a constant row it is the constant.
 */
DEVICE float near_mean(float distance, float of_first, LOCAL double *scratch) {
    double a[1];
    a[0] = distance;
    team_sums(1, a, scratch);
    const float near = of_first + (float)(a[0] / SIZE);
    return near - near == 0.f ? near : of_first;
}

KERNEL forward(GLOBAL const store_t *RESTRICT x, GLOBAL const float *gamma,
               GLOBAL const float *beta, double eps, GLOBAL store_t *RESTRICT y,
               GLOBAL double *RESTRICT kept, GLOBAL unsigned char *RESTRICT states,
               wide_t rows) {
    SHARED double scratch[SCRATCH(2)];
    HOLD(held);
    double a[2];
    EACH_ROW(rows) {
        const index_t row = ROW_OF_TEAM(rows);
        float near = 0.f;
        if (CENTRED) {
            const float of_first = LOAD(x[row * SIZE]);
            float distance = 0.f;
            EACH_PACK {
                const pack_t pack = READ(held, x, row);
                EACH_ITEM distance += LOAD(pack.value[k]) - of_first;
            }
            near = near_mean(distance, of_first, scratch);
        }
        a[0] = a[1] = 0.0;
        EACH_PACK {
            const pack_t pack = CENTRED ? AGAIN(held, x, row) : READ(held, x, row);
            EACH_ITEM {
                const double d = (double)LOAD(pack.value[k]) - near;
                a[0] += d;
                a[1] = FMA(d, d, a[1]);
            }
        }
        team_sums(2, a, scratch);
        const double square = a[1] / SIZE, low = CENTRED ? a[0] / SIZE : 0.0; /* (E1) */
        const stats_t s = stats_of(near, low, square - low * low, eps);       /* (E2) */
        const int defined = square < INFINITE && s.w > 0, flat = s.v == 0;
        const double of_t = SLACK * (s.of_r + 6 * U), of_gamma = SLACK * s.r * s.centring;
        /* Infinities spare the elements beside them where rows are not centred (D33). */
        const int lost = defined ? 0 : CENTRED ? 1 : square != INFINITE;
        const int known = of_t < INFINITE && of_gamma < INFINITE;
        int refused = defined && !known;
        const int easy = is_easy(s);
        const float low_part = (float)low, scale = (float)s.r;
        EACH_PACK {
            const pack_t pack = AGAIN(held, x, row);
            pack_t out;
            EACH_ITEM {
                if (easy) {
                    const float c = (LOAD(pack.value[k]) - near) - low_part;
                    const float z = FMAF(c * scale, gamma[at + k], beta[at + k] + 0.f);
                    out.value[k] = rounded_or_nan(z);
                    continue;
                }
                const double g = gamma[at + k], b = beta[at + k] + 0.f; /* -0 is +0 */
                const double z = FMA(((double)LOAD(pack.value[k]) - near) - low, s.r * g, b);
#if CORRECT
                double bound = FMA(of_t, ABS(z) + ABS(b), of_gamma * ABS(g)); /* (E14) */
                if (flat || g == 0) bound = 0.0; /* z is beta */
                out.value[k] = rounded(z - bound);
                refused |= bits_of(out.value[k]) != bits_of(rounded(z + bound));
                refused |= !(ABS(z) < INFINITE); /* gamma or beta is not finite */
#else
                out.value[k] = rounded_or_nan(z);
#endif
            }
            if (lost) EACH_ITEM out.value[k] = NO_NUMBER;
            if (HAS_ROW(rows)) PUT(y, row, at, out);
        }
        if (CORRECT && HAS_ROW(rows) && refused && defined) states[row] = REFUSED;
        if (HAS_ROW(rows) && THREADS_OF_ROW == 0) {
            const double nothing = (double)INFINITE - (double)INFINITE;
            if (!defined) states[row] = UNDEFINED;
            if (CENTRED) {
                kept[3 * row] = defined ? near : nothing;
                kept[3 * row + 1] = defined ? low : nothing;
            }
            kept[(CENTRED ? 3 : 1) * (row + 1) - 1] = defined ? s.v : nothing;
        }
    }
}

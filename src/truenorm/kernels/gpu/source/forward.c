/* y, the saved statistics and the row status; `status` is zero before. */

/* A float32 number near the mean: the first element plus the mean distance from it (H2), or that
 * element alone if the sum overflows. Any number near the mean will do (E1). For a constant row it
 * is the constant.
 */
DEVICE float near_mean(float distance, float first_x, LOCAL double *scratch) {
    double a[1];
    a[0] = distance;
    team_sums(1, a, scratch);
    const float near = first_x + (float)(a[0] / SIZE);
    return near - near == 0.f ? near : first_x;
}

KERNEL forward(GLOBAL const store_t *RESTRICT x, GLOBAL const float *gamma,
               GLOBAL const float *beta, double eps, GLOBAL store_t *RESTRICT y,
               GLOBAL double *RESTRICT saved, GLOBAL unsigned char *RESTRICT status,
               wide_t rows) {
    SHARED double scratch[SCRATCH(2)];
    REGISTERS(packs);
    double a[2];
    EACH_ROW(rows) {
        const index_t row = ROW_OF_TEAM(rows);
        float near = 0.f;
        if (CENTRED) {
            const float first_x = LOAD(x[row * SIZE]);
            float distance = 0.f;
            EACH_PACK {
                const pack_t pack = READ(packs, x, row);
                EACH_ITEM distance += LOAD(pack.value[k]) - first_x;
            }
            near = near_mean(distance, first_x, scratch);
        }
        a[0] = a[1] = 0.0;
        EACH_PACK {
            const pack_t pack = CENTRED ? REREAD(packs, x, row) : READ(packs, x, row);
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
        const double bound_t = SLACK * (s.err_r + 6 * U), bound_gamma = SLACK * s.r * s.centring;
        /* RMSNorm: an infinity does not make the other elements NaN (D33). */
        const int is_nan = defined ? 0 : CENTRED ? 1 : square != INFINITE;
        const int is_bounded = bound_t < INFINITE && bound_gamma < INFINITE;
        int undecided = defined && !is_bounded;
        const int easy = is_easy(s);
        const float low_part = (float)low, scale = (float)s.r;
        EACH_PACK {
            const pack_t pack = REREAD(packs, x, row);
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
                double bound = FMA(bound_t, ABS(z) + ABS(b), bound_gamma * ABS(g)); /* (E14) */
                if (flat || g == 0) bound = 0.0; /* z is beta, exactly */
                out.value[k] = rounded(z - bound);
                undecided |= bits_of(out.value[k]) != bits_of(rounded(z + bound));
                undecided |= !(ABS(z) < INFINITE); /* gamma or beta is not finite */
#else
                out.value[k] = rounded_or_nan(z);
#endif
            }
            if (is_nan) EACH_ITEM out.value[k] = NAN_BITS;
            if (HAS_ROW(rows)) PUT(y, row, at, out);
        }
        if (CORRECT && HAS_ROW(rows) && undecided && defined) status[row] = UNDECIDED;
        if (HAS_ROW(rows) && THREADS_OF_ROW == 0) {
            const double nan = (double)INFINITE - (double)INFINITE;
            if (!defined) status[row] = UNDEFINED;
            if (CENTRED) {
                saved[3 * row] = defined ? near : nan;
                saved[3 * row + 1] = defined ? low : nan;
            }
            saved[(CENTRED ? 3 : 1) * (row + 1) - 1] = defined ? s.v : nan;
        }
    }
}

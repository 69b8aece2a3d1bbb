/* dx of rows, what became of them, and each run's share of dgamma and dbeta.
 *
 * What is not finite is left out of the sums, for the host to add, unless the device is ALONE, as it
 * is in fast mode when nobody looks at states.
 *
 * A run is RUN rows that one team takes one after the other. Where rows are so long that registers
 * do not hold its sums, `numbers` are written instead, from which the kernel `shares` finds them.
 */
#define LOST_IN_Q 1.4996968138956309e-241 /* 2**-800, (R2) */

/* The sums over a row, and the coefficients of its bounds. */
typedef struct {
    double mean, q;                 /* mean(g), mean(g*c)/w */
    double all, of_g, of_c;         /* (E10): bound = all + of_g*|g - mean| + of_c*|c| */
    float of_dy, of_term;           /* (E12) */
    int changed, not_finite;
} slopes_t;

/* `a` are sums of g*c, g*g, c*c or c, and g. */
DEVICE slopes_t slopes_of(const double *a, stats_t s) {
    slopes_t t;
    const double rms = SQRT(a[1] / SIZE), slack = SLACK * s.r, h = DEPTH;
    t.not_finite = !(a[1] < DOUBLE_OF_BITS((wide_t)0x7ff0000000000000));
    t.mean = CENTRED ? a[3] / SIZE : 0.0;
    t.q = a[0] / SIZE / s.w;
    const double size = ABS(t.q);
    const double of_p = (h + 4) * U * rms * s.spread + s.of_mean * ABS(t.mean);
    const double of_q = of_p / s.w + size * (s.of_w + U);                          /* (E9) */
    t.all = CENTRED ? slack * ((h + 1) * U * rms + size * s.centring) : 0.0;       /* (E8) */
    t.of_g = slack * (s.of_r + 4 * U);
    t.of_c = slack * (of_q + size * (s.of_r + 6 * U)) + (CENTRED ? 0.0 : LOST_IN_Q);
    t.of_dy = (float)(slack * s.centring) * 1.001f + LEAST; /* (H4) */
    t.of_term = (float)(SLACK * (s.of_r + (RUN + 6) * U)) * 1.001f;
    if (!(s.v > 0)) t.of_dy = t.of_term = 0.f; /* c is zero, or the row has no result */
    if (CENTRED)
        t.changed = !(ABS(a[2] / SIZE) <= s.of_mean + (h + 4) * U * s.spread + TINY);
    else
        t.changed = !(ABS(a[2] / SIZE - s.v) <= 2 * (h + 6) * U * s.v + TINY);
    return t;
}

KERNEL backward(GLOBAL const store_t *dy, GLOBAL const store_t *x,
                GLOBAL const float *gamma, GLOBAL const double *RESTRICT kept,
                double eps, GLOBAL store_t *dx, GLOBAL double *RESTRICT shares,
                GLOBAL float *RESTRICT bounds, GLOBAL double *RESTRICT numbers,
                GLOBAL unsigned char *RESTRICT states, wide_t rows) {
    SHARED double scratch[SCRATCH(5)];
    double a[5];
#if SUMS
    double of_gamma[ITEMS], of_beta[ITEMS];
    float bound_of[ITEMS];
#endif
    const index_t runs = (rows + RUN - 1) / RUN;
    EACH_ROW(runs) {
        const index_t run = ROW_OF_TEAM(runs);
#if SUMS
        UNROLL for (small_t i = 0; i < ITEMS; ++i) of_gamma[i] = of_beta[i] = 0.0, bound_of[i] = 0.f;
#endif
        for (small_t step = 0; step < RUN; ++step) {
            const int there = HAS_ROW(runs) && run * RUN + step < rows;
            const index_t row = there ? run * RUN + step : (index_t)(rows - 1);
            GLOBAL const double *of_row = kept + (CENTRED ? 3 : 1) * row;
            const stats_t s = CENTRED ? stats_of(of_row[0], of_row[1], of_row[2], eps)
                                      : stats_of(0.0, 0.0, of_row[0], eps);
            const double first = (double)LOAD(dy[row * SIZE]) * gamma[0];
            int varies = 0;
            a[0] = a[1] = a[2] = a[3] = 0.0;
            EACH_PACK {
                const pack_t of_dy = PACK(dy, row, at), of_x = PACK(x, row, at);
                EACH_ITEM {
                    const double g = (double)LOAD(of_dy.value[k]) * gamma[at + k]; /* exact */
                    const double c = ((double)LOAD(of_x.value[k]) - s.near) - s.low;
                    a[0] = FMA(g, c, a[0]);
                    a[1] = FMA(g, g, a[1]);
                    if (CENTRED) a[2] += c, a[3] += g;
                    else a[2] = FMA(c, c, a[2]);
                    varies |= g != (CENTRED ? first : 0.0);
                }
            }
            a[4] = varies;
            team_sums(5, a, scratch);
            varies = a[4] != 0;
            const slopes_t t = slopes_of(a, s);
            const int defined = s.v == s.v, adds = ALONE ? there : there && !t.not_finite;
            const int has_xhat = ALONE ? 1 : defined;
            const int lost = ALONE && (!defined || t.not_finite); /* dx is NaN */
            /* Beside infinities xhat is zero where rows are not centred (D33). */
            const double r = !CENTRED && !defined && a[2] == INFINITE ? 0.0 : s.r;
            const int known = t.all < INFINITE && t.of_g < INFINITE && t.of_c < INFINITE;
            int refused = !known;
            const double square = a[1] / SIZE;
            const int easy = SIZE > 2 && is_easy(s) && square > 7.888609052210118e-31 &&
                             square < 1.2676506002282294e+30; /* 2**-100, 2**100 */
            const float near = (float)s.near, low = (float)s.low, scale = (float)s.r;
            const float mean = (float)t.mean, q = (float)t.q;
            EACH_PACK {
                const pack_t of_dy = PACK(dy, row, at), of_x = PACK(x, row, at);
                pack_t out;
                EACH_ITEM {
                    const float slope = LOAD(of_dy.value[k]);
                    if (easy) {
                        const float c = (LOAD(of_x.value[k]) - near) - low;
                        const float g = FMAF(slope, gamma[at + k], -mean);
                        out.value[k] = rounded(scale * FMAF(-c, q, g) + 0.f);
#if SUMS
                        if (adds)
                            add_term(slope, c * scale, 0.f, 0.f, &of_gamma[ITEM], &of_beta[ITEM],
                                     &bound_of[ITEM]);
#endif
                        continue;
                    }
                    const double c = ((double)LOAD(of_x.value[k]) - s.near) - s.low;
                    const double g = FMA((double)slope, (double)gamma[at + k], -t.mean);
                    double z = s.r * FMA(-c, t.q, g) + 0.0; /* an exact zero is +0 */
                    double bound = FMA(t.of_g, ABS(g), FMA(t.of_c, ABS(c), t.all)); /* (E10) */
#if CENTRED && SIZE == 2
                    { /* (D24): the general form cancels; errors are relative (E11) */
                        const small_t other = 1 - (at + k);
                        const double of_other =
                            (double)LOAD(dy[row * SIZE + other]) * gamma[other];
                        z = ((double)slope * gamma[at + k] - of_other) * (s.r * (eps / s.w) / 2)
                            + 0.0;
                        bound = ABS(z) * (SLACK * (s.of_r + s.of_w + 8 * U)) + TINY;
                    }
#endif
                    if (!varies) z = bound = 0.0; /* (D21), (D29) */
#if CORRECT
                    out.value[k] = rounded(z - bound);
                    refused |= bits_of(out.value[k]) != bits_of(rounded(z + bound));
#else
                    out.value[k] = rounded(z);
#endif
#if SUMS
                    if (adds)
                        add_term(slope, has_xhat ? c * r : 0.0, t.of_dy, t.of_term, &of_gamma[ITEM],
                                 &of_beta[ITEM], &bound_of[ITEM]);
#endif
                }
                if (lost) EACH_ITEM out.value[k] = NO_NUMBER;
                if (there) PUT(dx, row, at, out);
            }
            if (CORRECT && there && refused && varies && defined && !t.not_finite && !t.changed)
                states[row] = REFUSED;
            if (there && THREADS_OF_ROW == 0) {
                if (t.not_finite) states[row] = NOT_FINITE;
                else if (!defined) states[row] = UNDEFINED;
                else if (t.changed) states[row] = CHANGED;
#if !SUMS
                numbers[3 * row] = !adds ? -1.0 : has_xhat ? r : 0.0;
                numbers[3 * row + 1] = t.of_dy;
                numbers[3 * row + 2] = t.of_term;
#endif
            }
        }
#if SUMS
        EACH_PACK EACH_ITEM {
            const index_t place = run * SIZE + at + k;
            if (HAS_ROW(runs)) {
                shares[2 * place] = of_gamma[ITEM];
                shares[2 * place + 1] = of_beta[ITEM];
                bounds[place] = bound_of[ITEM] * 1.001f;
            }
        }
#endif
    }
}

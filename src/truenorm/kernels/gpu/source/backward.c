/* dx, the row status, and the sums of dgamma and dbeta over each run of rows.
 *
 * Rows with non-finite dy are left out of the sums, and the host adds them. STANDALONE kernels of
 * fast mode include them, since nothing reads the row status.
 *
 * A run is RUN rows that one team takes one after the other. Where rows are too long for sums in
 * registers, `numbers` are written instead, from which the kernel `run_sums` computes them.
 */
#define LOST_IN_Q 1.4996968138956309e-241 /* 2**-800, (R2) */

/* The means over a row and the coefficients of its bounds. */
typedef struct {
    double mean, q;                 /* mean(g), mean(g*c)/w */
    double common, bound_g, bound_c; /* (E10): common + bound_g*|g - mean| + bound_c*|c| */
    float bound_dy, bound_term;     /* (E12) */
    int changed, not_finite;
} gradient_t;

/* `a` are the sums of g*c, g*g, c (RMSNorm: c*c) and g. */
DEVICE gradient_t gradient_of(const double *a, stats_t s) {
    gradient_t t;
    const double rms = SQRT(a[1] / SIZE), slack = SLACK * s.r, h = DEPTH;
    t.not_finite = !(a[1] < DOUBLE_OF_BITS((wide_t)0x7ff0000000000000));
    t.mean = CENTRED ? a[3] / SIZE : 0.0;
    t.q = a[0] / SIZE / s.w;
    const double size = ABS(t.q);
    const double err_p = (h + 4) * U * rms * s.spread + s.err_mean * ABS(t.mean);
    const double err_q = err_p / s.w + size * (s.err_w + U);                          /* (E9) */
    t.common = CENTRED ? slack * ((h + 1) * U * rms + size * s.centring) : 0.0;       /* (E8) */
    t.bound_g = slack * (s.err_r + 4 * U);
    t.bound_c = slack * (err_q + size * (s.err_r + 6 * U)) + (CENTRED ? 0.0 : LOST_IN_Q);
    t.bound_dy = (float)(slack * s.centring) * 1.001f + LEAST; /* (H4) */
    t.bound_term = (float)(SLACK * (s.err_r + (RUN + 6) * U)) * 1.001f;
    if (!(s.v > 0)) t.bound_dy = t.bound_term = 0.f; /* c is zero, or the result is undefined */
    if (CENTRED)
        t.changed = !(ABS(a[2] / SIZE) <= s.err_mean + (h + 4) * U * s.spread + TINY);
    else
        t.changed = !(ABS(a[2] / SIZE - s.v) <= 2 * (h + 6) * U * s.v + TINY);
    return t;
}

KERNEL backward(GLOBAL const store_t *dy, GLOBAL const store_t *x,
                GLOBAL const float *gamma, GLOBAL const double *RESTRICT saved,
                double eps, GLOBAL store_t *dx, GLOBAL double *RESTRICT run_sums,
                GLOBAL float *RESTRICT bounds, GLOBAL double *RESTRICT numbers,
                GLOBAL unsigned char *RESTRICT status, wide_t rows) {
    SHARED double scratch[SCRATCH(5)];
    double a[5];
#if SUMS_IN_REGISTERS
    double dgamma[ITEMS], dbeta[ITEMS];
    float bound_sum[ITEMS];
#endif
    const index_t runs = (rows + RUN - 1) / RUN;
    EACH_ROW(runs) {
        const index_t run = ROW_OF_TEAM(runs);
#if SUMS_IN_REGISTERS
        UNROLL for (small_t i = 0; i < ITEMS; ++i) dgamma[i] = dbeta[i] = 0.0, bound_sum[i] = 0.f;
#endif
        for (small_t step = 0; step < RUN; ++step) {
            const int there = HAS_ROW(runs) && run * RUN + step < rows;
            const index_t row = there ? run * RUN + step : (index_t)(rows - 1);
            GLOBAL const double *row_saved = saved + (CENTRED ? 3 : 1) * row;
            const stats_t s = CENTRED ? stats_of(row_saved[0], row_saved[1], row_saved[2], eps)
                                      : stats_of(0.0, 0.0, row_saved[0], eps);
            const double first = (double)LOAD(dy[row * SIZE]) * gamma[0];
            int varies = 0;
            a[0] = a[1] = a[2] = a[3] = 0.0;
            EACH_PACK {
                const pack_t dy_pack = PACK(dy, row, at), x_pack = PACK(x, row, at);
                EACH_ITEM {
                    const double g = (double)LOAD(dy_pack.value[k]) * gamma[at + k]; /* exact */
                    const double c = ((double)LOAD(x_pack.value[k]) - s.near) - s.low;
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
            const gradient_t t = gradient_of(a, s);
            const int defined = s.v == s.v, adds = STANDALONE ? there : there && !t.not_finite;
            const int has_xhat = STANDALONE ? 1 : defined;
            const int is_nan = STANDALONE && (!defined || t.not_finite); /* dx is NaN */
            /* RMSNorm: xhat is zero beside infinities (D33). */
            const double r = !CENTRED && !defined && a[2] == INFINITE ? 0.0 : s.r;
            const int is_bounded = t.common < INFINITE && t.bound_g < INFINITE &&
                                   t.bound_c < INFINITE;
            int undecided = !is_bounded;
            const double square = a[1] / SIZE;
            const int easy = SIZE > 2 && is_easy(s) && square > 7.888609052210118e-31 &&
                             square < 1.2676506002282294e+30; /* 2**-100, 2**100 */
            const float near = (float)s.near, low = (float)s.low, scale = (float)s.r;
            const float mean = (float)t.mean, q = (float)t.q;
            EACH_PACK {
                const pack_t dy_pack = PACK(dy, row, at), x_pack = PACK(x, row, at);
                pack_t out;
                EACH_ITEM {
                    const float dy_item = LOAD(dy_pack.value[k]);
                    if (easy) {
                        const float c = (LOAD(x_pack.value[k]) - near) - low;
                        const float g = FMAF(dy_item, gamma[at + k], -mean);
                        out.value[k] = rounded(scale * FMAF(-c, q, g) + 0.f);
#if SUMS_IN_REGISTERS
                        if (adds)
                            add_term(dy_item, c * scale, 0.f, 0.f, &dgamma[ITEM], &dbeta[ITEM],
                                     &bound_sum[ITEM]);
#endif
                        continue;
                    }
                    const double c = ((double)LOAD(x_pack.value[k]) - s.near) - s.low;
                    const double g = FMA((double)dy_item, (double)gamma[at + k], -t.mean);
                    double z = s.r * FMA(-c, t.q, g) + 0.0; /* an exact zero is +0 */
                    /* (E10) */
                    double bound = FMA(t.bound_g, ABS(g), FMA(t.bound_c, ABS(c), t.common));
#if CENTRED && SIZE == 2
                    { /* (D24): the general form cancels completely; the error is relative (E11) */
                        const small_t other = 1 - (at + k);
                        const double other_g =
                            (double)LOAD(dy[row * SIZE + other]) * gamma[other];
                        z = ((double)dy_item * gamma[at + k] - other_g) * (s.r * (eps / s.w) / 2)
                            + 0.0;
                        bound = ABS(z) * (SLACK * (s.err_r + s.err_w + 8 * U)) + TINY;
                    }
#endif
                    if (!varies) z = bound = 0.0; /* (D21), (D29) */
#if CORRECT
                    out.value[k] = rounded(z - bound);
                    undecided |= bits_of(out.value[k]) != bits_of(rounded(z + bound));
#else
                    out.value[k] = rounded(z);
#endif
#if SUMS_IN_REGISTERS
                    if (adds)
                        add_term(dy_item, has_xhat ? c * r : 0.0, t.bound_dy, t.bound_term,
                                 &dgamma[ITEM], &dbeta[ITEM], &bound_sum[ITEM]);
#endif
                }
                if (is_nan) EACH_ITEM out.value[k] = NAN_BITS;
                if (there) PUT(dx, row, at, out);
            }
            if (CORRECT && there && undecided && varies && defined && !t.not_finite && !t.changed)
                status[row] = UNDECIDED;
            if (there && THREADS_OF_ROW == 0) {
                if (t.not_finite) status[row] = NOT_FINITE;
                else if (!defined) status[row] = UNDEFINED;
                else if (t.changed) status[row] = CHANGED;
#if !SUMS_IN_REGISTERS
                numbers[3 * row] = !adds ? -1.0 : has_xhat ? r : 0.0;
                numbers[3 * row + 1] = t.bound_dy;
                numbers[3 * row + 2] = t.bound_term;
#endif
            }
        }
#if SUMS_IN_REGISTERS
        EACH_PACK EACH_ITEM {
            const index_t place = run * SIZE + at + k;
            if (HAS_ROW(runs)) {
                run_sums[2 * place] = dgamma[ITEM];
                run_sums[2 * place + 1] = dbeta[ITEM];
                bounds[place] = bound_sum[ITEM] * 1.001f;
            }
        }
#endif
    }
}

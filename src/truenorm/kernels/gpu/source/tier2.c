/* Tier 2: some rows in double-double, by (P5) to (P9). `flags` marks the elements that remain
 * undecided, one row after the other.
 */
KERNEL forward_tier2(GLOBAL const store_t *RESTRICT x, GLOBAL const float *RESTRICT gamma,
                     GLOBAL const float *RESTRICT beta, double eps, GLOBAL store_t *RESTRICT y,
                     GLOBAL unsigned char *RESTRICT flags, GLOBAL const wide_t *RESTRICT rows,
                     wide_t count) {
    SHARED double scratch[SCRATCH(2)];
    EACH_ROW(count) {
        const index_t place = ROW_OF_TEAM(count), row = rows[place];
        const row_t s = row_in_pairs(x + row * SIZE, eps, scratch);
        EACH_INDEX {
            const double value = LOAD(x[row * SIZE + at]), g = gamma[at], b = beta[at] + 0.f;
            const pair_t t = multiply_float(multiply(centred(value, s), s.r), g);
            pair_t z = add_float(t, b);
            double bound = SLACK * (ABS(t.high) * (s.err_r + 16 * W) + ABS(g) * s.r.high * s.centring
                                    + 4 * W * ABS(z.high)) + TINY; /* (P5) */
            if (value * SIZE == s.total || g == 0) z = pair_of(b, 0.0), bound = 0.0; /* (D6) */
            else if (!s.is_bounded) bound = INFINITE;
            if (HAS_ROW(count))
                flags[place * SIZE + at] = round_pair(z, bound, y + row * SIZE + at);
        }
    }
}

KERNEL backward_tier2(GLOBAL const store_t *RESTRICT dy, GLOBAL const store_t *RESTRICT x,
                      GLOBAL const float *RESTRICT gamma, double eps,
                      GLOBAL store_t *RESTRICT dx, GLOBAL unsigned char *RESTRICT flags,
                      GLOBAL const wide_t *RESTRICT rows, wide_t count) {
    SHARED double scratch[SCRATCH(2)];
    EACH_ROW(count) {
        const index_t place = ROW_OF_TEAM(count), row = rows[place];
        GLOBAL const store_t *x_row = x + row * SIZE, *dy_row = dy + row * SIZE;
        const row_t s = row_in_pairs(x_row, eps, scratch);
        double a[1];
        pair_t mean = pair_of(0.0, 0.0), sum = mean;
        a[0] = 0.0;
        EACH_INDEX {
            const double g = (double)LOAD(dy_row[at]) * gamma[at]; /* exact */
            a[0] = FMA(g, g, a[0]);
            if (CENTRED) mean = add_float(mean, g);
        }
        team_sums(1, a, scratch);
        if (CENTRED) mean = divide_float(team_pair(mean, scratch), SIZE);
        EACH_INDEX {
            const double g = (double)LOAD(dy_row[at]) * gamma[at];
            sum = add(sum, multiply(add_float(minus(mean), g), centred(LOAD(x_row[at]), s)));
        }
        const pair_t q = divide(divide_float(team_pair(sum, scratch), SIZE), s.w);
        const double rms = SQRT(a[0] / SIZE), size = ABS(q.high);
        const double err_p = (2 * DEPTH2 + 24) * W * rms * s.spread + rms * s.centring;
        const double err_q = err_p / s.w.high + size * (s.err_w + 15 * W);  /* (P7) */
        const double common = (DEPTH2 + 4) * W * rms + size * s.centring;   /* (P6) */
        EACH_INDEX {
            const double value = LOAD(x_row[at]), g = (double)LOAD(dy_row[at]) * gamma[at];
            const pair_t c = centred(value, s), centred_g = add_float(minus(mean), g);
            pair_t z = multiply(add(centred_g, minus(multiply(c, q))), s.r);
            double bound = SLACK * (s.r.high * (common + 3 * W * ABS(centred_g.high)
                                                + ABS(c.high) * (err_q + 12 * W * size))
                                    + ABS(z.high) * (s.err_r + 12 * W)) + TINY; /* (P8) */
#if CENTRED && SIZE == 2
            { /* (D24), (P9) */
                const double other_g = (double)LOAD(dy_row[1 - at]) * gamma[1 - at];
                const pair_t factor = divide(pair_of(eps / 2, 0.0), s.w);
                z = multiply(multiply(two_sum(g, -other_g), factor), s.r);
                bound = SLACK * ABS(z.high) * (s.err_r + s.err_w + 40 * W) + TINY;
            }
#endif
            if (!CENTRED && value == 0 && g == 0) z = pair_of(0.0, 0.0), bound = 0.0; /* (D29) */
            else if (!s.is_bounded) bound = INFINITE;
            if (HAS_ROW(count))
                flags[place * SIZE + at] = round_pair(z, bound, dx + row * SIZE + at);
        }
    }
}

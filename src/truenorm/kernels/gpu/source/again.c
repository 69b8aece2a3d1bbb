/* Level 2: some rows once more in pairs; flags, one row after the other, say which elements are still
 * refused.
 *
 * (P1) to (P9) of docs/error-analysis.md, with 3*DEPTH for h, and without powers of two: x, gamma
 * and dy are float32 at most. Where w is beyond what that allows, everything is refused.
 */
#define HEIGHT (3 * DEPTH)
#define EACH_INDEX                                                             \
    for (small_t at = THREADS_OF_ROW; at < PACKS * TEAM * VECTOR; at += TEAM) \
        if (at < SIZE)

typedef struct {
    pair_t mean, left, w, r;
    double spread, centring, of_w, of_r; /* errors: absolute, then relative */
    double total;                        /* of x, if that is exact, or else NaN */
    int known;
} row_t;

DEVICE pair_t centred(double x, row_t s) {
    if (!CENTRED) return pair_of(x, 0.0);
    const pair_t once = add_float(two_sum(x, -s.mean.high), -s.mean.low);
    return add(once, minus(s.left));
}

/* Return the sum of x if no addition of its multiples of 2**k can round: then D*x = sum(x) tells
 * which elements are the mean.
 */
DEVICE double exact_total(GLOBAL const store_t *x, LOCAL double *scratch) {
    double a[2];
    a[0] = a[1] = 0.0;
    EACH_INDEX a[0] += ABS((double)LOAD(x[at])), a[1] += LOAD(x[at]);
    team_sums(2, a, scratch);
    const double total = a[1];
    const wide_t exponent = ((BITS_OF_DOUBLE(2 * a[0]) >> 52) & 0x7ff) - 1022;
    const double scale = DOUBLE_OF_BITS((wide_t)(1023 + 53 - exponent) << 52);
    a[0] = 0.0;
    EACH_INDEX {
        const double units = LOAD(x[at]) * scale;
        if ((double)(wide_t)units != units) a[0] = 1.0;
    }
    team_sums(1, a, scratch);
    return a[0] == 0 ? total : (double)INFINITE - (double)INFINITE;
}

DEVICE row_t described(GLOBAL const store_t *x, double eps, LOCAL double *scratch) {
    row_t s;
    pair_t sum = pair_of(0.0, 0.0);
    s.mean = s.left = sum;
    s.total = 0.0;
    if (CENTRED) {
        s.total = exact_total(x, scratch);
        EACH_INDEX sum = add_float(sum, LOAD(x[at]));
        s.mean = divide_float(team_pair(sum, scratch), SIZE);
        sum = pair_of(0.0, 0.0);
        EACH_INDEX sum = add(sum, centred(LOAD(x[at]), s));
        s.left = divide_float(team_pair(sum, scratch), SIZE);
        sum = pair_of(0.0, 0.0);
    }
    EACH_INDEX {
        const pair_t c = centred(LOAD(x[at]), s);
        sum = add(sum, multiply(c, c));
    }
    const pair_t v = divide_float(team_pair(sum, scratch), SIZE);
    s.spread = SQRT(v.high);
    s.centring = CENTRED ? SLACK * (HEIGHT + 10) * W * (s.spread + ABS(s.left.high)) : 0.0;
    const double of_v = (HEIGHT + 20) * W * v.high + 2 * s.centring * s.spread; /* (P1), (P2) */
    s.w = add_float(v, eps);
    s.of_w = SLACK * of_v / s.w.high + 4 * W; /* (P3) */
    s.r = inverse_root(s.w);
    s.of_r = s.of_w / 2 * SLACK + 32 * W; /* (P4) */
    s.known = s.w.high > 4.9e-91 && s.w.high < 2.0e90; /* 2**-300, 2**300 */
    return s;
}

KERNEL forward_again(GLOBAL const store_t *RESTRICT x, GLOBAL const float *RESTRICT gamma,
                     GLOBAL const float *RESTRICT beta, double eps, GLOBAL store_t *RESTRICT y,
                     GLOBAL unsigned char *RESTRICT flags, GLOBAL const wide_t *RESTRICT which,
                     wide_t count) {
    SHARED double scratch[SCRATCH(2)];
    EACH_ROW(count) {
        const index_t place = ROW_OF_TEAM(count), row = which[place];
        const row_t s = described(x + row * SIZE, eps, scratch);
        EACH_INDEX {
            const double value = LOAD(x[row * SIZE + at]), g = gamma[at], b = beta[at] + 0.f;
            const pair_t t = multiply_float(multiply(centred(value, s), s.r), g);
            pair_t z = add_float(t, b);
            double bound = SLACK * (ABS(t.high) * (s.of_r + 16 * W) + ABS(g) * s.r.high * s.centring
                                    + 4 * W * ABS(z.high)) + TINY; /* (P5) */
            if (value * SIZE == s.total) z = pair_of(b, 0.0), bound = 0.0; /* x is the mean */
            else if (!s.known) bound = INFINITE;
            if (HAS_ROW(count))
                flags[place * SIZE + at] = round_pair(z, bound, y + row * SIZE + at);
        }
    }
}

KERNEL backward_again(GLOBAL const store_t *RESTRICT dy, GLOBAL const store_t *RESTRICT x,
                      GLOBAL const float *RESTRICT gamma, double eps,
                      GLOBAL store_t *RESTRICT dx, GLOBAL unsigned char *RESTRICT flags,
                      GLOBAL const wide_t *RESTRICT which, wide_t count) {
    SHARED double scratch[SCRATCH(2)];
    EACH_ROW(count) {
        const index_t place = ROW_OF_TEAM(count), row = which[place];
        GLOBAL const store_t *of_x = x + row * SIZE, *of_dy = dy + row * SIZE;
        const row_t s = described(of_x, eps, scratch);
        double a[1];
        pair_t mean = pair_of(0.0, 0.0), sum = mean;
        a[0] = 0.0;
        EACH_INDEX {
            const double g = (double)LOAD(of_dy[at]) * gamma[at]; /* exact */
            a[0] = FMA(g, g, a[0]);
            if (CENTRED) mean = add_float(mean, g);
        }
        team_sums(1, a, scratch);
        if (CENTRED) mean = divide_float(team_pair(mean, scratch), SIZE);
        EACH_INDEX {
            const double g = (double)LOAD(of_dy[at]) * gamma[at];
            sum = add(sum, multiply(add_float(minus(mean), g), centred(LOAD(of_x[at]), s)));
        }
        const pair_t q = divide(divide_float(team_pair(sum, scratch), SIZE), s.w);
        const double rms = SQRT(a[0] / SIZE), size = ABS(q.high);
        const double of_p = (2 * HEIGHT + 24) * W * rms * s.spread + rms * s.centring;
        const double of_q = of_p / s.w.high + size * (s.of_w + 15 * W);  /* (P7) */
        const double all = (HEIGHT + 4) * W * rms + size * s.centring;   /* (P6) */
        EACH_INDEX {
            const double value = LOAD(of_x[at]), g = (double)LOAD(of_dy[at]) * gamma[at];
            const pair_t c = centred(value, s), slope = add_float(minus(mean), g);
            pair_t z = multiply(add(slope, minus(multiply(c, q))), s.r);
            double bound = SLACK * (s.r.high * (all + 3 * W * ABS(slope.high)
                                                + ABS(c.high) * (of_q + 12 * W * size))
                                    + ABS(z.high) * (s.of_r + 12 * W)) + TINY; /* (P8) */
#if CENTRED && SIZE == 2
            { /* (D24), (P9) */
                const double of_other = (double)LOAD(of_dy[1 - at]) * gamma[1 - at];
                const pair_t kept = divide(pair_of(eps / 2, 0.0), s.w);
                z = multiply(multiply(two_sum(g, -of_other), kept), s.r);
                bound = SLACK * ABS(z.high) * (s.of_r + s.of_w + 40 * W) + TINY;
            }
#endif
            if (!CENTRED && value == 0 && g == 0) z = pair_of(0.0, 0.0), bound = 0.0; /* (D29) */
            else if (!s.known) bound = INFINITE;
            if (HAS_ROW(count))
                flags[place * SIZE + at] = round_pair(z, bound, dx + row * SIZE + at);
        }
    }
}

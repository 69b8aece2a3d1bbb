/* Row statistics in double-double: (P1) to (P4) of docs/inside/error-analysis.md, with 3*DEPTH for h and
 * without scaling, since x, gamma and dy are float32 at most. Where w is out of range, everything
 * remains undecided.
 */
#define DEPTH2 (3 * DEPTH)
#define EACH_INDEX                                                             \
    for (small_t at = THREADS_OF_ROW; at < PACKS * TEAM * VECTOR; at += TEAM) \
        if (at < SIZE)

typedef struct {
    pair_t mean, residual, w, r;
    double spread, centring;
    double err_w, err_r; /* relative */
    double total;        /* the sum of x if it is exact, else NaN */
    int is_bounded;
} row_t;

DEVICE pair_t centred(double x, row_t s) {
    if (!CENTRED) return pair_of(x, 0.0);
    const pair_t once = add_float(two_sum(x, -s.mean.high), -s.mean.low);
    return add(once, minus(s.residual));
}

/* Return the sum of x if no addition of its multiples of 2**k can round, else NaN. Where it is
 * exact, D*x = sum(x) decides which elements equal the mean.
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

DEVICE row_t row_in_pairs(GLOBAL const store_t *x, double eps, LOCAL double *scratch) {
    row_t s;
    pair_t sum = pair_of(0.0, 0.0);
    s.mean = s.residual = sum;
    s.total = 0.0;
    if (CENTRED) {
        s.total = exact_total(x, scratch);
        EACH_INDEX sum = add_float(sum, LOAD(x[at]));
        s.mean = divide_float(team_pair(sum, scratch), SIZE);
        sum = pair_of(0.0, 0.0);
        EACH_INDEX sum = add(sum, centred(LOAD(x[at]), s));
        s.residual = divide_float(team_pair(sum, scratch), SIZE);
        sum = pair_of(0.0, 0.0);
    }
    EACH_INDEX {
        const pair_t c = centred(LOAD(x[at]), s);
        sum = add(sum, multiply(c, c));
    }
    const pair_t v = divide_float(team_pair(sum, scratch), SIZE);
    s.spread = SQRT(v.high);
    s.centring = CENTRED ? SLACK * (DEPTH2 + 10) * W * (s.spread + ABS(s.residual.high)) : 0.0;
    const double err_v = (DEPTH2 + 20) * W * v.high + 2 * s.centring * s.spread; /* (P1), (P2) */
    s.w = add_float(v, eps);
    s.err_w = SLACK * err_v / s.w.high + 4 * W; /* (P3) */
    s.r = inverse_root(s.w);
    s.err_r = s.err_w / 2 * SLACK + 32 * W; /* (P4) */
    s.is_bounded = s.w.high > 4.9e-91 && s.w.high < 2.0e90; /* 2**-300, 2**300 */
    return s;
}

/* Double-double arithmetic, as in kernels/double_double.py, with bounds in units of W = 2**-106.
 * Nothing overflows or underflows: elements are float32 at most.
 */
#define W 1.232595164407831e-32 /* 2**-106 */

typedef struct {
    double high, low;
} pair_t;

DEVICE pair_t pair_of(double high, double low) {
    pair_t a;
    a.high = high, a.low = low;
    return a;
}

DEVICE pair_t minus(pair_t a) { return pair_of(-a.high, -a.low); }

DEVICE pair_t two_sum(double a, double b) {
    const double sum = a + b;
    return pair_of(sum, error_of_sum(a, b, sum));
}

DEVICE pair_t fast_two_sum(double a, double b) {
    const double sum = a + b;
    return pair_of(sum, b - (sum - a));
}

DEVICE pair_t two_product(double a, double b) {
    const double product = a * b;
    return pair_of(product, FMA(a, b, -product));
}

DEVICE pair_t add(pair_t a, pair_t b) { /* 3 W */
    const pair_t s = two_sum(a.high, b.high), t = two_sum(a.low, b.low);
    const pair_t u = fast_two_sum(s.high, s.low + t.high);
    return fast_two_sum(u.high, u.low + t.low);
}

DEVICE pair_t add_float(pair_t a, double b) { /* 2 W */
    const pair_t s = two_sum(a.high, b);
    return fast_two_sum(s.high, a.low + s.low);
}

DEVICE pair_t multiply(pair_t a, pair_t b) { /* 7 W */
    const pair_t p = two_product(a.high, b.high);
    return fast_two_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}

DEVICE pair_t multiply_float(pair_t a, double b) { /* 3 W */
    const pair_t p = two_product(a.high, b);
    return fast_two_sum(p.high, p.low + a.low * b);
}

DEVICE pair_t divide_float(pair_t a, double b) { /* 4 W */
    const double q = a.high / b;
    const pair_t p = two_product(q, b);
    return fast_two_sum(q, ((a.high - p.high) - p.low + a.low) / b);
}

DEVICE pair_t divide(pair_t a, pair_t b) { /* 15 W */
    const double q = a.high / b.high;
    const pair_t p = multiply_float(b, q);
    return fast_two_sum(q, ((a.high - p.high) + (a.low - p.low)) / b.high);
}

DEVICE pair_t inverse_root(pair_t a) { /* 32 W */
    const double r = 1 / SQRT(a.high);
    const pair_t p = multiply(two_product(r, r), a);
    const double e = (1 - p.high) - p.low;
    return fast_two_sum(r, r * (e * (0.5 + 0.375 * e)));
}

/* The sum over a row, in the order of `team_sums`: 3 W for each of DEPTH additions. */
DEVICE pair_t team_pair(pair_t a, LOCAL double *scratch) {
#ifdef EXCHANGE
    for (int offset = LANES / 2; offset; offset >>= 1)
        a = add(a, pair_of(from_lane(a.high, offset), from_lane(a.low, offset)));
    if (WARPS == 1) return a;
    const int slots = WARPS, slot = THREAD / LANES, step = 1, mine = THREAD % LANES == 0;
    BARRIER;
    if (mine) scratch[slot] = a.high, scratch[slots + slot] = a.low;
    BARRIER;
    const int first = 0;
#else
    const int slots = THREADS, slot = THREAD, step = LANES;
    BARRIER;
    scratch[slot] = a.high, scratch[slots + slot] = a.low;
    BARRIER;
    for (int offset = LANES / 2; offset; offset >>= 1) {
        if (THREAD % LANES < offset) {
            a = add(a, pair_of(scratch[slot + offset], scratch[slots + slot + offset]));
            scratch[slot] = a.high, scratch[slots + slot] = a.low;
        }
        BARRIER;
    }
    const int first = TEAM_OF_BLOCK * TEAM;
#endif
    a = pair_of(scratch[first], scratch[slots + first]);
    for (int w = 1; w < WARPS; ++w)
        a = add(a, pair_of(scratch[first + w * step], scratch[slots + first + w * step]));
    return a;
}

/* Round to odd: the last bit is set if the result is inexact, so that a second rounding to fewer
 * bits gives the same result as one rounding.
 */
DEVICE double to_odd(pair_t a) {
    wide_t bits = BITS_OF_DOUBLE(a.high);
    if (a.low < 0 || a.low > 0) { /* not NaN, the low part of an infinity */
        if ((a.low < 0) != (a.high < 0)) bits -= 1;
        bits |= 1;
    }
    return DOUBLE_OF_BITS(bits);
}

/* Round a pair; return 1 if both ends of its bracket do not round to the same number. */
DEVICE unsigned char round_pair(pair_t z, double bound, GLOBAL store_t *to) {
    const store_t rounded_low = rounded(to_odd(two_sum(z.high, z.low - bound)));
    *to = z.high == z.high ? rounded_low : NAN_BITS;
    return !(bound < INFINITE) ||
           bits_of(rounded_low) != bits_of(rounded(to_odd(two_sum(z.high, z.low + bound))));
}

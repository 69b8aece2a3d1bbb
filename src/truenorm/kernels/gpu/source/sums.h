/* Sums over rows: of dy*xhat with a bound on the error, and of dy. In correct mode the sum of dy is
 * exact, or NaN if it is not.
 */
#define LEAST 5.6051938572992683e-45f /* 2**-147: covers underflow of a bound in float32 */

/* Return (a + b) - sum, where `sum` is a + b rounded (Knuth's TwoSum). */
DEVICE double error_of_sum(double a, double b, double sum) {
    const double t = sum - a;
    return (a - (sum - t)) + (b - t);
}

/* Add to an exact sum; return NaN if the result is not exact. Fast mode does not check. */
DEVICE double exact_sum(double sum, double term) {
    const double total = sum + term;
    if (!CORRECT) return total;
    const int exact = total - sum == term && total - term == sum; /* TwoSum's error is zero */
    return exact ? total : (double)INFINITE - (double)INFINITE;
}

/* Add to an exact pair; its low part becomes NaN if the result is not exact. */
DEVICE void add_exactly(double *high, double *low, double term) {
    const double total = *high + term;
    *low = exact_sum(*low, error_of_sum(*high, term, total));
    *high = total;
}

/* Add a term to the sums of a column. The term has no error in rows with xhat = 0 (bound_term is
 * zero there) and, for RMSNorm, where x is zero.
 */
DEVICE void add_term(float dy, double xhat, float bound_dy, float bound_term, double *dgamma,
                     double *dbeta, float *bound) {
    *dgamma = FMA((double)dy, xhat, *dgamma);
    const int exact = CENTRED ? bound_term == 0.f : bound_term == 0.f || xhat == 0;
    if (dy != 0.f && !exact) /* (E12) */
        *bound += FMAF(ABSF(dy), FMAF(bound_term, (float)ABS(xhat), bound_dy), LEAST);
    if (CENTRED) *dbeta = exact_sum(*dbeta, dy);
}

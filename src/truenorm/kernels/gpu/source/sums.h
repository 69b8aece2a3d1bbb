/* Sums over rows. A run's share is a sum of dy*xhat, a bound on its error, and a sum of dy, which in
 * correct mode is exact, or NaN if it is not.
 */
#define LEAST 5.6051938572992683e-45f /* 2**-147: what a bound may lose below float32 */

/* Return what a + b is more than `sum`, its rounding (Knuth's TwoSum). */
DEVICE double error_of_sum(double a, double b, double sum) {
    const double t = sum - a;
    return (a - (sum - t)) + (b - t);
}

/* Add to an exact sum; NaN if it no longer is one. In fast mode any will do. */
DEVICE double exact_sum(double sum, double term) {
    const double total = sum + term;
    if (!CORRECT) return total;
    const int exact = total - sum == term && total - term == sum; /* TwoSum's error is zero */
    return exact ? total : (double)INFINITE - (double)INFINITE;
}

/* Add to an exact pair; its second part is NaN if it no longer is one. */
DEVICE void add_exactly(double *high, double *low, double term) {
    const double total = *high + term;
    *low = exact_sum(*low, error_of_sum(*high, term, total));
    *high = total;
}

/* Add a term to the sums of a column; of_term is zero in rows where xhat is, without any error, and
 * so is the error of a term whose x is zero where rows are not centred.
 */
DEVICE void add_term(float slope, double xhat, float of_dy, float of_term, double *of_gamma,
                     double *of_beta, float *bound) {
    *of_gamma = FMA((double)slope, xhat, *of_gamma);
    const int exact = CENTRED ? of_term == 0.f : of_term == 0.f || xhat == 0;
    if (slope != 0.f && !exact) /* (E12) */
        *bound += FMAF(ABSF(slope), FMAF(of_term, (float)ABS(xhat), of_dy), LEAST);
    if (CENTRED) *of_beta = exact_sum(*of_beta, slope);
}

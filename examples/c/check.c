/* Checks the kernel against a folder made by `truenorm vectors DIR --dtype float32`.
   Exit code 0: all cases pass; 1: some fail; 2: the folder cannot be used. */
#include "run.h"

#include <math.h>

/* How bad a result is: at most 1 is right. Written so that NaN is never right by accident. */
static double badness(float result, float expected, double bound)
{
    if (isnan(expected))
        return isfinite(result) ? INFINITY : 0.0;
    if (isinf(expected))
        return result == expected ? 0.0 : INFINITY;
    double error = fabs((double)result - expected);
    if (error <= bound)
        return bound > 0.0 ? error / bound : 0.0;
    return error < INFINITY && bound > 0.0 ? error / bound : INFINITY;
}

static void print_worst(const vector_case *c, size_t k, float result, float expected, double bound)
{
    size_t whole = c->rows * c->d;
    if (k < 2 * whole)
        printf("FAIL %s: %s[%zu][%zu]", c->name, k < whole ? "y" : "dx", k % whole / c->d,
               k % c->d);
    else
        printf("FAIL %s: %s[%zu]", c->name, k < 2 * whole + c->d ? "dgamma" : "dbeta",
               (k - 2 * whole) % c->d);
    printf(" is %.9g, expected %.9g within %.3g\n", result, expected, bound);
}

/* Returns 1 if the case passes, 0 if it fails, -1 if its files cannot be read. */
static int check_case(const char *folder, const vector_case *c)
{
    size_t worst = 0, count = count_of(c);
    double most = -1.0;
    float *expected = read_numbers(folder, c, ".expected", count, sizeof(float));
    double *bound = read_numbers(folder, c, ".bound", count, sizeof(double));
    float *result = expected && bound ? run_kernel(folder, c) : NULL;
    if (result) {
        for (size_t k = 0; k < count; k++) {
            double bad = badness(result[k], expected[k], bound[k]);
            if (bad > most) {
                most = bad;
                worst = k;
            }
        }
        if (most > 1.0)
            print_worst(c, worst, result[worst], expected[worst], bound[worst]);
    }
    int verdict = !result ? -1 : most <= 1.0;
    free(expected);
    free(bound);
    free(result);
    return verdict;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    FILE *manifest = open_manifest(argv[1]);
    if (!manifest) {
        fprintf(stderr, "%s: no manifest of version 1 that this machine can use\n", argv[1]);
        return 2;
    }

    vector_case c;
    size_t passed = 0, checked = 0, skipped = 0;
    int more, verdict = 1;
    while (verdict >= 0 && (more = next_case(manifest, &c)) == 1) {
        if (strcmp(c.dtype, "float32") == 0) {
            verdict = check_case(argv[1], &c);
            checked++;
            passed += verdict == 1;
        } else {
            skipped++;
        }
    }
    fclose(manifest);
    if (verdict < 0) {
        fprintf(stderr, "%s: a file is missing or of the wrong size\n", c.name);
        return 2;
    }
    if (more < 0) {
        fprintf(stderr, "%s: a line of the manifest is damaged\n", argv[1]);
        return 2;
    }

    printf("%zu of %zu cases pass, %zu of other types skipped\n", passed, checked, skipped);
    return checked == 0 ? 2 : passed < checked;
}

/* Runs the kernel on one case of a folder. */
#ifndef RUN_H
#define RUN_H

#include "layer_norm.h"
#include "rms_norm.h"
#include "vectors.h"

/* RMSNorm has gamma alone, layer norm gamma and beta; each has a gradient. */
#ifdef RMS_NORM
enum { PARAMETERS = 1 };
typedef double kept_number;
#else
enum { PARAMETERS = 2 };
typedef statistic kept_number;
#endif

/* How many results a case has: y, dx, and the gradients of parameters; it has as many inputs. */
static inline size_t count_of(const vector_case *c)
{
    return 2 * c->rows * c->d + PARAMETERS * c->d;
}

/* Computes y, dx and the gradients of parameters from x, the parameters and dy, all of which lie
   one after the other. */
static inline void run_passes(const vector_case *c, const float *x, float *y, kept_number *kept)
{
    size_t rows = c->rows, d = c->d;
    const float *gamma = x + rows * d, *dy = gamma + PARAMETERS * d;
    float *dx = y + rows * d, *dgamma = dx + rows * d, eps = (float)c->eps;
#ifdef RMS_NORM
    rms_norm_forward(x, gamma, eps, rows, d, y, kept);
    rms_norm_backward(dy, x, gamma, kept, rows, d, dx, dgamma);
#else
    statistic *mean = kept, *rstd = kept + rows;
    layer_norm_forward(x, gamma, gamma + d, eps, rows, d, y, mean, rstd);
    layer_norm_backward(dy, x, gamma, mean, rstd, rows, d, dx, dgamma, dgamma + d);
#endif
}

/* Returns the results one after the other, to be freed, or NULL if the input cannot be read. */
static inline float *run_kernel(const char *folder, const vector_case *c)
{
    float *x = read_numbers(folder, c, ".in", count_of(c), sizeof(float));
    float *y = malloc(count_of(c) * sizeof(float));
    kept_number *kept = malloc((2 * c->rows + 1) * sizeof *kept);
    if (x && y && kept) {
        run_passes(c, x, y, kept);
    } else {
        free(y);
        y = NULL;
    }
    free(x);
    free(kept);
    return y;
}

#endif

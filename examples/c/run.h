/* Runs the kernel on one case of a folder. */
#ifndef RUN_H
#define RUN_H

#include "layer_norm.h"
#include "vectors.h"

/* How many results a case has: y, dx, dgamma, dbeta; it has as many inputs. */
static inline size_t count_of(const vector_case *c)
{
    return 2 * (c->rows * c->d + c->d);
}

/* Returns y, dx, dgamma and dbeta one after the other, to be freed, or NULL if the input cannot
   be read. */
static inline float *run_kernel(const char *folder, const vector_case *c)
{
    size_t whole = c->rows * c->d, d = c->d;
    float *x = read_numbers(folder, c, ".in", count_of(c), sizeof(float));
    float *y = malloc(count_of(c) * sizeof(float));
    statistic *mean = malloc((c->rows + 1) * sizeof *mean);
    statistic *rstd = malloc((c->rows + 1) * sizeof *rstd);
    if (x && y && mean && rstd) {
        const float *gamma = x + whole, *beta = gamma + d, *dy = beta + d;
        float *dx = y + whole, *dgamma = dx + whole, *dbeta = dgamma + d;
        layer_norm_forward(x, gamma, beta, (float)c->eps, c->rows, d, y, mean, rstd);
        layer_norm_backward(dy, x, gamma, mean, rstd, c->rows, d, dx, dgamma, dbeta);
    } else {
        free(y);
        y = NULL;
    }
    free(x);
    free(mean);
    free(rstd);
    return y;
}

#endif

/* Layer normalization of rows of d numbers, forward and backward, in float32. */
#ifndef LAYER_NORM_H
#define LAYER_NORM_H

#include <stddef.h>

/* What forward keeps of each row for backward. */
#ifdef LAYER_NORM_STABLE
typedef double statistic;
#else
typedef float statistic;
#endif

void layer_norm_forward(const float *x, const float *gamma, const float *beta, float eps,
                        size_t rows, size_t d, float *y, statistic *mean, statistic *rstd);

void layer_norm_backward(const float *dy, const float *x, const float *gamma,
                         const statistic *mean, const statistic *rstd, size_t rows, size_t d,
                         float *dx, float *dgamma, float *dbeta);

#endif

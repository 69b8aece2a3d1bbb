/* RMS normalization of rows of d numbers, forward and backward, in float32. */
#ifndef RMS_NORM_H
#define RMS_NORM_H

#include <stddef.h>

/* rstd is what forward keeps of each row for backward. */
void rms_norm_forward(const float *x, const float *gamma, float eps, size_t rows, size_t d,
                      float *y, double *rstd);

void rms_norm_backward(const float *dy, const float *x, const float *gamma, const double *rstd,
                       size_t rows, size_t d, float *dx, float *dgamma);

#endif

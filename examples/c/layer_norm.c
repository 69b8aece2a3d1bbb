/* The kernel under test, as it is often written: everything in float32, and the variance as
   mean(x*x) - mean(x)*mean(x), which takes one pass over the row and loses all digits where the
   mean is large. Do not use it: see layer_norm_stable.c. */
#include "layer_norm.h"

#include <math.h>

void layer_norm_forward(const float *x, const float *gamma, const float *beta, float eps,
                        size_t rows, size_t d, float *y, statistic *mean, statistic *rstd)
{
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * d;
        float sum = 0.0f, squares = 0.0f;
        for (size_t j = 0; j < d; j++) {
            sum += row[j];
            squares += row[j] * row[j];
        }
        float m = sum / (float)d;
        float r = 1.0f / sqrtf(squares / (float)d - m * m + eps);
        for (size_t j = 0; j < d; j++)
            y[i * d + j] = gamma[j] * ((row[j] - m) * r) + beta[j];
        mean[i] = m;
        rstd[i] = r;
    }
}

void layer_norm_backward(const float *dy, const float *x, const float *gamma,
                         const statistic *mean, const statistic *rstd, size_t rows, size_t d,
                         float *dx, float *dgamma, float *dbeta)
{
    for (size_t j = 0; j < d; j++)
        dgamma[j] = dbeta[j] = 0.0f;
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * d, *slope = dy + i * d;
        float mean_g = 0.0f, mean_gx = 0.0f;
        for (size_t j = 0; j < d; j++) {
            float xhat = (row[j] - mean[i]) * rstd[i];
            float g = gamma[j] * slope[j];
            mean_g += g;
            mean_gx += g * xhat;
            dgamma[j] += slope[j] * xhat;
            dbeta[j] += slope[j];
        }
        mean_g /= (float)d;
        mean_gx /= (float)d;
        for (size_t j = 0; j < d; j++) {
            float xhat = (row[j] - mean[i]) * rstd[i];
            dx[i * d + j] = rstd[i] * (gamma[j] * slope[j] - mean_g - xhat * mean_gx);
        }
    }
}

/* The same with care: two passes over the row, all in double, and one cast at the end. The mean
   is kept in double too: rounded to float, it would cost dx and dgamma their digits. */
#include "layer_norm.h"

#include <math.h>

void layer_norm_forward(const float *x, const float *gamma, const float *beta, float eps,
                        size_t rows, size_t d, float *y, statistic *mean, statistic *rstd)
{
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * d;
        double m = 0.0, variance = 0.0;
        for (size_t j = 0; j < d; j++)
            m += row[j];
        m /= (double)d;
        for (size_t j = 0; j < d; j++)
            variance += (row[j] - m) * (row[j] - m);
        double r = 1.0 / sqrt(variance / (double)d + eps);
        for (size_t j = 0; j < d; j++)
            y[i * d + j] = (float)(gamma[j] * ((row[j] - m) * r) + beta[j]);
        mean[i] = m;
        rstd[i] = r;
    }
}

/* dgamma and dbeta, column by column, so that a sum in double needs no array. */
static void columns(const float *dy, const float *x, const statistic *mean,
                    const statistic *rstd, size_t rows, size_t d, float *dgamma, float *dbeta)
{
    for (size_t j = 0; j < d; j++) {
        double with_xhat = 0.0, alone = 0.0;
        for (size_t i = 0; i < rows; i++) {
            with_xhat += dy[i * d + j] * ((x[i * d + j] - mean[i]) * rstd[i]);
            alone += dy[i * d + j];
        }
        dgamma[j] = (float)with_xhat;
        dbeta[j] = (float)alone;
    }
}

void layer_norm_backward(const float *dy, const float *x, const float *gamma,
                         const statistic *mean, const statistic *rstd, size_t rows, size_t d,
                         float *dx, float *dgamma, float *dbeta)
{
    columns(dy, x, mean, rstd, rows, d, dgamma, dbeta);
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * d, *slope = dy + i * d;
        double mean_g = 0.0, mean_gx = 0.0;
        for (size_t j = 0; j < d; j++) {
            double g = (double)gamma[j] * slope[j];
            mean_g += g;
            mean_gx += g * ((row[j] - mean[i]) * rstd[i]);
        }
        mean_g /= (double)d;
        mean_gx /= (double)d;
        for (size_t j = 0; j < d; j++) {
            double g = (double)gamma[j] * slope[j];
            double xhat = (row[j] - mean[i]) * rstd[i];
            dx[i * d + j] = (float)(rstd[i] * (g - mean_g - xhat * mean_gx));
        }
    }
}

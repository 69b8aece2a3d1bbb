/* All sums in double, and one cast at the end. In float, squares overflow from 1e19 on, and dx
   loses its digits where x is in proportion to gamma*dy: it cancels down to eps. */
#include "rms_norm.h"

#include <math.h>

void rms_norm_forward(const float *x, const float *gamma, float eps, size_t rows, size_t d,
                      float *y, double *rstd)
{
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * d;
        double squares = 0.0;
        for (size_t j = 0; j < d; j++)
            squares += (double)row[j] * row[j];
        rstd[i] = 1.0 / sqrt(squares / (double)d + eps);
        for (size_t j = 0; j < d; j++)
            y[i * d + j] = (float)(gamma[j] * (row[j] * rstd[i]));
    }
}

void rms_norm_backward(const float *dy, const float *x, const float *gamma, const double *rstd,
                       size_t rows, size_t d, float *dx, float *dgamma)
{
    /* Column by column, so that a sum in double needs no array. */
    for (size_t j = 0; j < d; j++) {
        double sum = 0.0;
        for (size_t i = 0; i < rows; i++)
            sum += dy[i * d + j] * (x[i * d + j] * rstd[i]);
        dgamma[j] = (float)sum;
    }
    for (size_t i = 0; i < rows; i++) {
        const float *row = x + i * d, *slope = dy + i * d;
        double mean = 0.0;
        for (size_t j = 0; j < d; j++)
            mean += (double)gamma[j] * slope[j] * (row[j] * rstd[i]);
        mean /= (double)d;
        for (size_t j = 0; j < d; j++) {
            double g = (double)gamma[j] * slope[j];
            dx[i * d + j] = (float)(rstd[i] * (g - row[j] * rstd[i] * mean));
        }
    }
}

/* Measure what it takes to hand half of a job to another thread, by three pools.

   Compile with -DPOOL=0 (helpers of threads.c), 1 (OpenMP) or 2 (pthreadpool). Prints, in
   microseconds: the median time of a call with two pieces of work, back to back and after a pause
   of 5 ms, less the time of one piece; the processor time that the process uses in 100 ms after a
   call; the same as the first for two callers at once; and whether a forked child gets its
   result within 2 s. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core.h"
#if POOL == 1
#include <omp.h>
#elif POOL == 2
#include <pthreadpool.h>
static pthreadpool_t pool;
#endif

enum { CALLS = 400, PIECE_MICROSECONDS = 20 };

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A piece of work that takes the same time on every thread. */
static void work(void *argument, int64_t chunk, int worker)
{
    double end = seconds(CLOCK_MONOTONIC) + 1e-6 * PIECE_MICROSECONDS;
    while (seconds(CLOCK_MONOTONIC) < end) {
    }
    (void)worker;
    ((int *)argument)[chunk * 32] = 1;
}

#if POOL == 2
static void piece(void *argument, size_t chunk) { work(argument, (int64_t)chunk, 0); }
#endif

static void call(int threads)
{
    int done[64] = {0};
#if POOL == 0
    for_each_chunk(work, done, threads, threads, true);
#elif POOL == 1
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int k = 0; k < threads; k++)
        work(done, k, 0);
#else
    if (threads == 1)
        piece(done, 0);
    else
        pthreadpool_parallelize_1d(pool, piece, done, (size_t)threads, 0);
#endif
    if (!done[0] || (threads == 2 && !done[32]))
        abort();
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_time(int threads, int pause)
{
    static _Thread_local double times[CALLS];
    int calls = pause ? CALLS / 8 : CALLS;
    for (int k = 0; k < calls; k++) {
        if (pause)
            usleep((useconds_t)pause);
        double start = seconds(CLOCK_MONOTONIC);
        call(threads);
        times[k] = seconds(CLOCK_MONOTONIC) - start;
    }
    qsort(times, (size_t)calls, sizeof(double), by_size);
    return 1e6 * times[calls / 2];
}

static void *caller(void *result)
{
    *(double *)result = median_time(2, 0);
    return NULL;
}

static int works_in_child(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        call(2);
        _exit(0);
    }
    for (int k = 0; k < 200 && waitpid(child, &status, WNOHANG) == 0; k++)
        usleep(10000);
    if (kill(child, 0) == 0 && waitpid(child, &status, WNOHANG) == 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return 0;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
#if POOL == 2
    pool = pthreadpool_create(2);
#endif
    call(2);
    double one = median_time(1, 0);
    double awake = median_time(2, 0) - one, asleep = median_time(2, 5000) - one;
    call(2);
    double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    usleep(100000);
    double idle = seconds(CLOCK_PROCESS_CPUTIME_ID) - before, both[2];
    pthread_t other;
    pthread_create(&other, NULL, caller, &both[0]);
    caller(&both[1]);
    pthread_join(other, NULL);
    printf("%.2f %.2f %.0f %.2f %d\n", awake, asleep, 1e6 * idle,
           (both[0] + both[1]) / 2 - one, works_in_child());
    return 0;
}

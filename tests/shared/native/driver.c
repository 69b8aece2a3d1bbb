/* A driver of the C core without Python, for sanitizers and for other processors.

   driver vectors FILE   compute the cases of FILE; write the results to stdout
   driver threads SECONDS CALLERS FORKS
                         call from several threads, fork meanwhile, and compare the bits with those
                         of one thread; print the number of calls
   driver flush THREADS  start helpers in a thread that flushes subnormals to zero, and compare
                         their bits with those of a thread that does not */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if !defined(_WIN32)
#include <sys/wait.h>
#endif
#include <time.h>
#include <unistd.h>

#include "core.h"

enum { HAS_GAMMA = 4, HAS_BETA = 8 }; /* next to CENTRED and FAST */
enum { CENTRED = 1, FAST = 2 };

/* One case of a file; x, dy, gamma and beta follow, also those that are not used. */
typedef struct {
    int64_t rows, size, flags, threads;
    double eps;
} header_t;

typedef struct {
    header_t header;
    float *x, *dy, *gamma, *beta;
} case_t;

/* The ends of forward and backward, then y, dx, dgamma, dbeta as one array. */
typedef struct {
    int64_t ends[2];
    int64_t count;
    float *values;
} results_t;

static void *allocated(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "no memory\n");
        exit(3);
    }
    return memory;
}

static results_t empty_results(const header_t *header)
{
    int64_t count = 2 * header->rows * header->size + 2 * header->size;
    return (results_t){{0, 0}, count, allocated((size_t)count * sizeof(float))};
}

static void compute(const case_t *input, int threads, results_t *results)
{
    header_t h = input->header;
    int64_t elements = h.rows * h.size;
    bool centred = h.flags & CENTRED;
    double *saved = allocated((size_t)h.rows * 3 * sizeof(double));
    uint8_t *status = allocated((size_t)h.rows);
    memset(results->values, 0, (size_t)results->count * sizeof(float));
    call_t call = {.x = input->x, .eps = h.eps, .bound_scale = 1, .rows = h.rows,
                   .size = h.size, .saved = saved, .status = status, .centred = centred,
                   .fast = h.flags & FAST, .threads = threads, .out = results->values};
    call.gamma = h.flags & HAS_GAMMA ? input->gamma : NULL;
    call.beta = h.flags & HAS_BETA ? input->beta : NULL;
    results->ends[0] = run_forward(&call);
    call.threads = threads;
    call.dy = input->dy;
    call.gamma = input->gamma; /* fast mode needs gamma: the module passes ones */
    call.beta = NULL;
    call.out = results->values + elements;
    call.dgamma = results->values + 2 * elements;
    call.dbeta = results->values + 2 * elements + h.size;
    /* Without saved statistics there is no backward. */
    results->ends[1] = results->ends[0] == DONE ? run_backward(&call) : NOT_DONE;
    free(status);
    free(saved);
}

static bool get(void *memory, size_t bytes, FILE *file)
{
    return fread(memory, 1, bytes, file) == bytes;
}

static float *numbers(int64_t count, FILE *file)
{
    float *read = allocated((size_t)count * sizeof(float));
    if (!get(read, (size_t)count * sizeof(float), file)) {
        fprintf(stderr, "the file ends within a case\n");
        exit(2);
    }
    return read;
}

static int do_vectors(const char *path)
{
    FILE *file = fopen(path, "rb");
    case_t input;
    if (file == NULL)
        return 2;
    while (get(&input.header, sizeof input.header, file)) {
        int64_t size = input.header.size, elements = input.header.rows * size;
        input.x = numbers(elements, file);
        input.dy = numbers(elements, file);
        input.gamma = numbers(size, file);
        input.beta = numbers(size, file);
        results_t results = empty_results(&input.header);
        compute(&input, (int)input.header.threads, &results);
        fwrite(results.ends, sizeof results.ends, 1, stdout);
        fwrite(results.values, sizeof(float), (size_t)results.count, stdout);
        free(results.values);
        free(input.x);
        free(input.dy);
        free(input.gamma);
        free(input.beta);
    }
    fclose(file);
    return 0;
}

/* ---- threads ---- */

enum { CASES = 12 };
static case_t cases[CASES];
static results_t expected[CASES];
static atomic_long calls;
static atomic_bool wrong;
static atomic_bool finished;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static float *drawn(int64_t count, uint64_t *state)
{
    float *values = allocated((size_t)count * sizeof(float));
    for (int64_t k = 0; k < count; k++)
        values[k] = (float)((double)next(state) / 0x1p29 - 2);
    return values;
}

static void make_cases(void)
{
    static const int64_t shapes[6][2] = {{3, 5}, {2000, 16}, {64, 512}, {5, 9000}, {300, 130},
                                         {9000, 2}};
    uint64_t state = 1;
    for (int k = 0; k < CASES; k++) {
        header_t header = {shapes[k % 6][0], shapes[k % 6][1], k < 6 ? CENTRED : 0, 1, 1e-5};
        header.flags |= HAS_GAMMA | HAS_BETA | (k % 2 ? FAST : 0);
        int64_t elements = header.rows * header.size;
        cases[k] = (case_t){header, drawn(elements, &state), drawn(elements, &state),
                            drawn(header.size, &state), drawn(header.size, &state)};
        expected[k] = empty_results(&header);
        compute(&cases[k], 1, &expected[k]);
    }
}

/* Compute a random case on some threads. Return True if the bits are those of one thread. */
static bool is_right(uint64_t *state)
{
    int k = (int)(next(state) % CASES), threads = 1 + (int)(next(state) % 5);
    results_t results = empty_results(&cases[k].header);
    compute(&cases[k], threads, &results);
    bool same = results.ends[0] == expected[k].ends[0] && results.ends[1] == expected[k].ends[1];
    size_t compared = (size_t)results.count;
    if (results.ends[1] != DONE) /* what backward leaves behind is not valid */
        compared = (size_t)(cases[k].header.rows * cases[k].header.size);
    if (results.ends[0] == DONE)
        same &= memcmp(results.values, expected[k].values, compared * sizeof(float)) == 0;
    free(results.values);
    return same;
}

static void *call_often(void *argument)
{
    uint64_t state = (uint64_t)(uintptr_t)argument;
    while (!atomic_load(&finished)) {
        if (!is_right(&state))
            atomic_store(&wrong, true);
        atomic_fetch_add(&calls, 1);
    }
    return NULL;
}

#if !defined(_WIN32)
/* Fork while others compute. Return True if the child computes right bits on several threads. */
static bool is_right_in_child(uint64_t seed)
{
    pid_t child = fork();
    if (child == 0) {
        bool right = true;
        alarm(20);
        for (int k = 0; k < 20; k++)
            right &= is_right(&seed);
        _exit(right ? 0 : 1);
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
#else
static bool is_right_in_child(uint64_t seed) { return is_right(&seed); }
#endif

static int do_threads(double duration, int callers, int forks)
{
    pthread_t threads[64];
    int children = 0;
    callers = callers < 64 ? callers : 64;
    make_cases();
    double until = seconds() + duration;
    for (int k = 0; k < callers; k++)
        if (pthread_create(&threads[k], NULL, call_often, (void *)(uintptr_t)(k + 1)) != 0)
            return 3;
    while (children < forks) { /* each child takes longer on a machine that is busy */
        if (!is_right_in_child((uint64_t)(100 + children++)))
            atomic_store(&wrong, true);
        usleep(1000);
    }
    while (seconds() < until)
        usleep(1000);
    atomic_store(&finished, true);
    for (int k = 0; k < callers; k++)
        pthread_join(threads[k], NULL);
    printf("%ld calls, %d children\n", atomic_load(&calls), children);
    return atomic_load(&wrong) ? 1 : 0;
}

/* ---- helpers of a thread that flushes subnormals ---- */

#if defined(__x86_64__)
#include <immintrin.h>
static void flush_subnormals(void) { _mm_setcsr(_mm_getcsr() | 0x8040u); }
#elif defined(__aarch64__)
static void flush_subnormals(void)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)1 << 24));
}
#else
static void flush_subnormals(void) {}
#endif

static int do_flush(int threads)
{
    bool flushed = false;
    make_cases();
    for (int k = 0; k < CASES; k++) {
        header_t h = cases[k].header;
        results_t results = empty_results(&h);
        for (int64_t j = 0; j < h.size; j++) { /* y and dx are subnormal */
            cases[k].gamma[j] *= 1e-39f;
            cases[k].beta[j] *= 1e-40f;
        }
        compute(&cases[k], 1, &expected[k]);
        flush_subnormals();
        compute(&cases[k], threads, &results); /* starts helpers */
        use_ieee_arithmetic();
        flushed |= memcmp(results.values, expected[k].values,
                          (size_t)results.count * sizeof(float)) != 0;
        compute(&cases[k], threads, &results);
        bool same = memcmp(results.values, expected[k].values,
                           (size_t)results.count * sizeof(float)) == 0;
        free(results.values);
        if (expected[k].ends[0] != DONE || expected[k].ends[1] != DONE || !same) {
            printf("case %d: ends %d %d, same %d\n", k, (int)expected[k].ends[0],
                   (int)expected[k].ends[1], same);
            return 1;
        }
    }
    return flushed ? 0 : 1; /* flushing changes the results, so the cases detect it */
}

int main(int count, char **arguments)
{
    kernels_select(NULL);
    if (count == 3 && strcmp(arguments[1], "vectors") == 0)
        return do_vectors(arguments[2]);
    if (count == 3 && strcmp(arguments[1], "flush") == 0)
        return do_flush(atoi(arguments[2]));
    if (count == 5 && strcmp(arguments[1], "threads") == 0)
        return do_threads(atof(arguments[2]), atoi(arguments[3]), atoi(arguments[4]));
    return 2;
}

/* The extension module: buffers are checked, the interpreter's lock is released, calls are run.

   `forward` and `backward` return False for arrays that are not ordinary (C-contiguous, native,
   aligned, of matching shapes, results apart from the rest) and for results that need the
   driver: non-finite numbers, and elements undecided by tier 2. The functions on blocks of rows,
   which the driver calls, raise instead. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <string.h>

#include "rounding.h"

/* Of `mode`: two flags, and the types of rows, gamma and beta at these bits. */
enum { CENTRED = 1, FAST = 2, ROWS_AT = 4, GAMMA_AT = 8, BETA_AT = 12 };
enum { LOCK_KEPT_BELOW = 1 << 13 }; /* elements: to release the lock takes as long as few of them */
enum { MOST_BUFFERS = 8 };

static double scale_of_bounds = 1.0;

/* Buffers of one call, released together. */
typedef struct {
    Py_buffer views[MOST_BUFFERS];
    int count;
    bool failed;
} buffers_t;

static void release(buffers_t *buffers)
{
    while (buffers->count > 0)
        PyBuffer_Release(&buffers->views[--buffers->count]);
}

/* Return the C-contiguous buffer of an object, or NULL (and note the failure) if it has none of
   this format, or is not aligned. An object that is None has no buffer, which is no failure. */
static Py_buffer *view_of(buffers_t *buffers, PyObject *object, char format, bool writable)
{
    Py_buffer *view = &buffers->views[buffers->count];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (object == Py_None || buffers->failed)
        return NULL;
    if (PyObject_GetBuffer(object, view, flags) != 0) {
        PyErr_Clear();
        buffers->failed = true;
        return NULL;
    }
    buffers->count++;
    if (view->format == NULL || view->format[0] != format || view->format[1] != 0 ||
        (uintptr_t)view->buf % (uintptr_t)view->itemsize != 0) {
        buffers->failed = true;
        return NULL;
    }
    return view;
}

/* A buffer of one of the types of rows. bfloat16 arrays are passed as views of uint16: they refuse
   to tell their format. */
static Py_buffer *typed_view(buffers_t *buffers, PyObject *object, int type, bool writable)
{
    static const char formats[TYPES] = {'f', 'e', 'H', 'd'};
    return view_of(buffers, object, formats[type], writable);
}

/* The types that a mode names. Return False with an error set if there is no such type. */
typedef struct {
    int rows, gamma, beta;
} types_t;

static bool read_types(long mode, types_t *types)
{
    *types = (types_t){mode >> ROWS_AT & 15, mode >> GAMMA_AT & 15, mode >> BETA_AT & 15};
    bool exist = types->rows < TYPES && types->gamma < TYPES && types->beta < TYPES;
    bool is_wide = types->rows == FLOAT64;
    if (exist && is_wide == (types->gamma == FLOAT64) && is_wide == (types->beta == FLOAT64))
        return true;
    PyErr_Format(PyExc_ValueError, "mode %ld names types that the core does not have", mode);
    return false;
}

static bool has_shape(const Py_buffer *view, const Py_buffer *like)
{
    if (view == NULL || view->ndim != like->ndim)
        return false;
    for (int k = 0; k < like->ndim; k++)
        if (view->shape[k] != like->shape[k])
            return false;
    return true;
}

static bool is_vector(const Py_buffer *view, int64_t size)
{
    return view == NULL || (view->ndim == 1 && view->shape[0] == size);
}

/* True if a result overlaps no other buffer of its call, or is not wanted. */
static bool is_apart(const Py_buffer *result, const buffers_t *buffers)
{
    for (int k = 0; result != NULL && k < buffers->count; k++) {
        const Py_buffer *other = &buffers->views[k];
        uintptr_t a = (uintptr_t)result->buf, b = (uintptr_t)other->buf;
        if (other != result && a < b + (uintptr_t)other->len && b < a + (uintptr_t)result->len)
            return false;
    }
    return true;
}

static void *memory(const Py_buffer *view) { return view == NULL ? NULL : view->buf; }

/* Fill in what forward and backward have in common. Return False if x has no rows. */
static bool describe(call_t *call, const Py_buffer *x, const Py_buffer *out,
                     const Py_buffer *saved, double eps, long mode, long threads)
{
    if (x == NULL || out == NULL || saved == NULL || x->ndim < 1 || x->len == 0 ||
        !has_shape(out, x) || !(eps == 0 || (eps >= 0x1p-200 && eps <= 0x1p200)))
        return false;
    *call = (call_t){0};
    call->x = x->buf;
    call->out = out->buf;
    call->saved = saved->buf;
    call->size = x->shape[x->ndim - 1];
    call->rows = x->len / x->itemsize / call->size;
    call->type = mode >> ROWS_AT & 15;
    call->eps = eps;
    call->scale_of_bounds = scale_of_bounds;
    call->centred = mode & CENTRED;
    call->fast = mode & FAST;
    call->threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : (int)threads;
    return saved->len == call->rows * (call->centred ? 3 : 1) * (int64_t)sizeof(double);
}

static bool has_room(const Py_buffer *view, int64_t bytes)
{
    return view != NULL && view->len == bytes;
}

/* Run a call without the interpreter's lock, unless it is small. */
static end_t run(end_t (*runner)(call_t *), call_t *call)
{
    if (call->rows * call->size < LOCK_KEPT_BELOW)
        return runner(call);
    end_t end;
    Py_BEGIN_ALLOW_THREADS
    end = runner(call);
    Py_END_ALLOW_THREADS
    return end;
}

/* A parameter as kernels take it: its own memory, or a copy as float32, which is `copied` then.
   NULL if it is not given, or with an error set if there is no memory. */
static const void *parameter(const Py_buffer *view, int type, void **copied)
{
    if (view == NULL || type == FLOAT32 || type == FLOAT64)
        return memory(view);
    const uint16_t *from = view->buf;
    Py_ssize_t size = view->shape[0];
    float *to = *copied = PyMem_Malloc((size_t)size * sizeof(float));
    if (to == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t j = 0; j < size; j++)
        to[j] = type == FLOAT16 ? float_of_float16(from[j]) : float_of_bfloat16(from[j]);
    return to;
}

/* Ones in place of a gamma that is not given, or NULL with an error set. */
static void *ones(int64_t size, int type)
{
    void *found = PyMem_Malloc((size_t)size * (type == FLOAT64 ? sizeof(double) : sizeof(float)));
    if (found == NULL)
        PyErr_NoMemory();
    for (int64_t j = 0; found != NULL && j < size; j++)
        if (type == FLOAT64)
            ((double *)found)[j] = 1;
        else
            ((float *)found)[j] = 1;
    return found;
}

/* Run a call with room for the row status. */
static PyObject *run_with_status(end_t (*runner)(call_t *), call_t *call)
{
    uint8_t few[256], *many = NULL;
    if (call->rows > (int64_t)sizeof few && (many = PyMem_Malloc((size_t)call->rows)) == NULL)
        return PyErr_NoMemory();
    call->status = many ? many : few;
    end_t end = run(runner, call);
    PyMem_Free(many);
    return end == NO_MEMORY ? PyErr_NoMemory() : PyBool_FromLong(end == DONE);
}

static bool has_arguments(Py_ssize_t given, Py_ssize_t expected)
{
    if (given != expected)
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, given);
    return given == expected;
}

/* Read one number each. Return False with an error set: nothing else may be called then. */
static bool read_integer(PyObject *argument, long *value)
{
    *value = PyLong_AsLong(argument);
    return !(*value == -1 && PyErr_Occurred());
}
static bool read_eps_and_mode(PyObject *const *arguments, double *eps, long *mode)
{
    *eps = PyFloat_AsDouble(arguments[0]);
    return !(*eps == -1 && PyErr_Occurred()) && read_integer(arguments[1], mode);
}

/* Numbers at the end of the arguments: eps, mode, threads. Return False with an error set. */
static bool read_numbers(PyObject *const *arguments, double *eps, long *mode, long *threads)
{
    return read_eps_and_mode(arguments, eps, mode) && read_integer(arguments[2], threads);
}

/* forward(x, gamma, beta, y, saved, eps, mode, threads) -> bool */
static PyObject *forward(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    call_t call;
    double eps;
    long mode, threads;
    types_t types;
    if (!has_arguments(count, 8) || !read_numbers(arguments + 5, &eps, &mode, &threads) ||
        !read_types(mode, &types))
        return NULL;
    Py_buffer *x = typed_view(&buffers, arguments[0], types.rows, false);
    Py_buffer *gamma = typed_view(&buffers, arguments[1], types.gamma, false);
    Py_buffer *beta = typed_view(&buffers, arguments[2], types.beta, false);
    Py_buffer *y = typed_view(&buffers, arguments[3], types.rows, true);
    Py_buffer *saved = view_of(&buffers, arguments[4], 'd', true);
    PyObject *result = Py_False;
    if (!buffers.failed && arithmetic_is_ieee() &&
        describe(&call, x, y, saved, eps, mode, threads) && is_vector(gamma, call.size) &&
        is_vector(beta, call.size) && is_apart(y, &buffers) && is_apart(saved, &buffers)) {
        void *copies[2] = {NULL, NULL};
        call.gamma = parameter(gamma, types.gamma, &copies[0]);
        call.beta = parameter(beta, types.beta, &copies[1]);
        result = PyErr_Occurred() ? NULL : run_with_status(run_forward, &call);
        PyMem_Free(copies[0]);
        PyMem_Free(copies[1]);
    } else {
        Py_INCREF(result);
    }
    release(&buffers);
    return result;
}

/* backward(dy, x, gamma, saved, dx, dgamma, dbeta, eps, mode, threads) -> bool */
static PyObject *backward(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    call_t call;
    double eps;
    long mode, threads;
    types_t types;
    if (!has_arguments(count, 10) || !read_numbers(arguments + 7, &eps, &mode, &threads) ||
        !read_types(mode, &types))
        return NULL;
    Py_buffer *dy = typed_view(&buffers, arguments[0], types.rows, false);
    Py_buffer *x = typed_view(&buffers, arguments[1], types.rows, false);
    Py_buffer *gamma = typed_view(&buffers, arguments[2], types.gamma, false);
    Py_buffer *saved = view_of(&buffers, arguments[3], 'd', false);
    Py_buffer *dx = typed_view(&buffers, arguments[4], types.rows, true);
    Py_buffer *dgamma = typed_view(&buffers, arguments[5], types.gamma, true);
    Py_buffer *dbeta = typed_view(&buffers, arguments[6], types.beta, true);
    PyObject *result = Py_False;
    void *copy = NULL;
    if (!buffers.failed && arithmetic_is_ieee() &&
        describe(&call, x, dx, saved, eps, mode, threads) && has_shape(dy, x) &&
        is_vector(gamma, call.size) && is_vector(dgamma, call.size) &&
        is_vector(dbeta, call.size) && is_apart(dx, &buffers) && is_apart(dgamma, &buffers) &&
        is_apart(dbeta, &buffers)) {
        call.dy = dy->buf;
        call.gamma = parameter(gamma, types.gamma, &copy);
        call.dgamma = memory(dgamma);
        call.dbeta = memory(dbeta);
        call.of_dgamma = types.gamma;
        call.of_dbeta = types.beta;
        if (call.fast && gamma == NULL)
            call.gamma = copy = ones(call.size, call.type);
        result = PyErr_Occurred() ? NULL : run_with_status(run_backward, &call);
        PyMem_Free(copy);
    } else {
        Py_INCREF(result);
    }
    release(&buffers);
    return result;
}

/* ---- blocks of rows, for the driver ---- */

static PyObject *refuse(buffers_t *buffers)
{
    release(buffers);
    PyErr_SetString(PyExc_ValueError,
                    "expected C-contiguous arrays of matching shapes and types, apart from each "
                    "other, and eps of 0 or within 2**+-200");
    return NULL;
}

typedef struct {
    call_t call;
    double *sums;
    outcome_t outcome;
} rows_t;

static void without_lock(void (*function)(rows_t *), rows_t *rows)
{
    Py_BEGIN_ALLOW_THREADS
    function(rows);
    Py_END_ALLOW_THREADS
}

static void do_forward(rows_t *rows)
{
    rows->outcome = kernels_selected(rows->call.type)->forward(&rows->call, 0, rows->call.rows);
}
static void do_backward(rows_t *rows)
{
    const kernels_t *kernels = kernels_selected(rows->call.type);
    rows->outcome = (rows->call.fast ? kernels->fast_backward : kernels->backward)(
        &rows->call, 0, rows->call.rows, rows->sums);
}
static void do_statistics(rows_t *rows)
{
    rows->outcome.not_ok = kernels_selected(rows->call.type)->statistics(&rows->call, 0, rows->call.rows);
}

/* forward_rows(x, gamma, beta, y, saved, status, eps, mode) -> rows that are not OK */
static PyObject *forward_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    rows_t rows = {.sums = NULL};
    double eps;
    long mode;
    types_t types;
    if (!has_arguments(count, 8) || !read_eps_and_mode(arguments + 6, &eps, &mode) ||
        !read_types(mode, &types))
        return NULL;
    Py_buffer *x = typed_view(&buffers, arguments[0], types.rows, false);
    int of_parameters = types.rows == FLOAT64 ? FLOAT64 : FLOAT32;
    Py_buffer *gamma = typed_view(&buffers, arguments[1], of_parameters, false);
    Py_buffer *beta = typed_view(&buffers, arguments[2], of_parameters, false);
    Py_buffer *y = typed_view(&buffers, arguments[3], types.rows, true);
    Py_buffer *saved = view_of(&buffers, arguments[4], 'd', true);
    Py_buffer *status = view_of(&buffers, arguments[5], 'B', true);
    if (buffers.failed || !describe(&rows.call, x, y, saved, eps, mode, 1) || gamma == NULL || beta == NULL ||
        !is_vector(gamma, rows.call.size) || !is_vector(beta, rows.call.size) ||
        !has_room(status, rows.call.rows) || !is_apart(y, &buffers) ||
        !is_apart(saved, &buffers) || !is_apart(status, &buffers))
        return refuse(&buffers);
    rows.call.gamma = gamma->buf;
    rows.call.beta = beta->buf;
    rows.call.status = status->buf;
    without_lock(do_forward, &rows);
    release(&buffers);
    return PyLong_FromLongLong(rows.outcome.not_ok);
}

/* backward_rows(dy, x, gamma, saved, dx, sums, status, eps, mode)
   -> rows that are not OK, and the extent of dy */
static PyObject *backward_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    rows_t rows = {.sums = NULL};
    double eps;
    long mode;
    types_t types;
    if (!has_arguments(count, 9) || !read_eps_and_mode(arguments + 7, &eps, &mode) ||
        !read_types(mode, &types))
        return NULL;
    Py_buffer *dy = typed_view(&buffers, arguments[0], types.rows, false);
    Py_buffer *x = typed_view(&buffers, arguments[1], types.rows, false);
    int of_gamma = types.rows == FLOAT64 ? FLOAT64 : FLOAT32;
    Py_buffer *gamma = typed_view(&buffers, arguments[2], of_gamma, false);
    Py_buffer *saved = view_of(&buffers, arguments[3], 'd', false);
    Py_buffer *dx = typed_view(&buffers, arguments[4], types.rows, true);
    Py_buffer *sums = view_of(&buffers, arguments[5], 'd', true);
    Py_buffer *status = view_of(&buffers, arguments[6], 'B', true);
    const kernels_t *kernels = kernels_selected(types.rows);
    int64_t numbers = mode & FAST ? kernels->fast_sums : kernels->sums;
    if (buffers.failed || !describe(&rows.call, x, dx, saved, eps, mode, 1) || !has_shape(dy, x) || gamma == NULL ||
        !is_vector(gamma, rows.call.size) || !has_room(status, rows.call.rows) ||
        !has_room(sums, numbers * rows.call.size * (int64_t)sizeof(double)) ||
        !is_apart(dx, &buffers) || !is_apart(sums, &buffers) || !is_apart(status, &buffers))
        return refuse(&buffers);
    rows.call.dy = dy->buf;
    rows.call.gamma = gamma->buf;
    rows.call.status = status->buf;
    rows.sums = sums->buf;
    without_lock(do_backward, &rows);
    release(&buffers);
    return Py_BuildValue("LII", (long long)rows.outcome.not_ok, rows.outcome.extent.smallest,
                         rows.outcome.extent.largest);
}

/* statistics(x, saved, mode) -> rows whose mean changed; saved is written anew */
static PyObject *statistics(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    rows_t rows = {.sums = NULL};
    long mode;
    types_t types;
    if (!has_arguments(count, 3) || !read_integer(arguments[2], &mode) || !read_types(mode, &types))
        return NULL;
    Py_buffer *x = typed_view(&buffers, arguments[0], types.rows, false);
    Py_buffer *saved = view_of(&buffers, arguments[1], 'd', true);
    if (buffers.failed || !describe(&rows.call, x, x, saved, 0.0, mode, 1) ||
        !is_apart(saved, &buffers))
        return refuse(&buffers);
    without_lock(do_statistics, &rows);
    release(&buffers);
    return PyLong_FromLongLong(rows.outcome.not_ok);
}

/* is_exact_sum(smallest, largest, rows) -> bool */
static PyObject *exact_sum(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (!has_arguments(count, 3))
        return NULL;
    unsigned long smallest = PyLong_AsUnsignedLong(arguments[0]);
    if (PyErr_Occurred())
        return NULL;
    unsigned long largest = PyLong_AsUnsignedLong(arguments[1]);
    if (PyErr_Occurred())
        return NULL;
    long long rows = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(is_exact_sum((extent_t){(uint32_t)smallest, (uint32_t)largest}, rows));
}

/* merge(sums, others): add the sums over other rows */
static PyObject *merge(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    if (!has_arguments(count, 2))
        return NULL;
    Py_buffer *sums = view_of(&buffers, arguments[0], 'd', true);
    Py_buffer *others = view_of(&buffers, arguments[1], 'd', false);
    if (sums == NULL || !has_shape(others, sums) || sums->ndim != 2 || !is_apart(sums, &buffers))
        return refuse(&buffers);
    const kernels_t *narrow = kernels_selected(FLOAT32), *wide = kernels_selected(FLOAT64);
    int64_t numbers = sums->shape[0], size = sums->shape[1];
    if (numbers == narrow->sums)
        narrow->merge(sums->buf, others->buf, size);
    else if (numbers == wide->sums)
        wide->merge(sums->buf, others->buf, size);
    else if (numbers == wide->fast_sums)
        wide->fast_merge(sums->buf, others->buf, size);
    else
        return refuse(&buffers);
    release(&buffers);
    return Py_NewRef(Py_None);
}

/* select(name or None) -> the selected instruction set, at most the named one */
static PyObject *select_set(PyObject *module, PyObject *name)
{
    (void)module;
    const char *at_most = NULL;
    if (name != Py_None && (at_most = PyUnicode_AsUTF8AndSize(name, NULL)) == NULL)
        return NULL;
    const char *selected = kernels_select(at_most);
    if (selected == NULL)
        return PyErr_Format(PyExc_ValueError,
                            "instruction set must be 'baseline', 'avx2' or 'avx512' (x86-64), or "
                            "'baseline' (other processors), got %R", name);
    return PyUnicode_FromString(selected);
}

/* scale_bounds(factor): for tests, which divide the bounds to see results go wrong */
static PyObject *scale_bounds(PyObject *module, PyObject *factor)
{
    (void)module;
    double value = PyFloat_AsDouble(factor);
    if (PyErr_Occurred())
        return NULL;
    scale_of_bounds = value;
    return Py_NewRef(Py_None);
}

#define FASTCALL(name, function, text) \
    {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, text}
static PyMethodDef methods[] = {
    FASTCALL("forward", forward, "forward(x, gamma, beta, y, saved, eps, mode, threads) -> bool"),
    FASTCALL("backward", backward,
             "backward(dy, x, gamma, saved, dx, dgamma, dbeta, eps, mode, threads) -> bool"),
    FASTCALL("forward_rows", forward_rows,
             "forward_rows(x, gamma, beta, y, saved, status, eps, mode) -> int"),
    FASTCALL("backward_rows", backward_rows,
             "backward_rows(dy, x, gamma, saved, dx, sums, status, eps, mode) -> tuple"),
    FASTCALL("statistics", statistics, "statistics(x, saved, mode) -> int"),
    FASTCALL("is_exact_sum", exact_sum, "is_exact_sum(smallest, largest, rows) -> bool"),
    FASTCALL("merge", merge, "merge(sums, others) -> None"),
    {"select", select_set, METH_O, "select(name) -> str"},
    {"scale_bounds", scale_bounds, METH_O, "scale_bounds(factor) -> None"},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    kernels_select(NULL);
    return PyModule_AddIntConstant(module, "CENTRED", CENTRED) ||
           PyModule_AddIntConstant(module, "FAST", FAST) ||
           PyModule_AddIntConstant(module, "ROWS_AT", ROWS_AT);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "The C core of truenorm.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }

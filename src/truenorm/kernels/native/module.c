/* The extension module: its functions on blocks of rows, for the driver, and on partials.

   They check buffers, release the interpreter's lock, and raise for arrays that are not
   C-contiguous, native, aligned and of matching shapes, and for results that overlap other arrays.
   Whole calls are in `entry.c`. */
#include "module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rounding.h"

/* Bits of `mode`: flags, and the type of rows. */
enum { CENTRED = 1, FAST = 2, WIDE = 4, ROWS_AT = 4 };
enum { MOST_BUFFERS = 8 };

double bound_scale = 1.0;

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

#define NATIVE_ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>')

/* Return the C-contiguous buffer of an object, or NULL (and note the failure) if it has none of
   this format, or is not aligned. None has no buffer, which is not a failure. */
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
    /* A dtype with an explicit byte order has it before the type code. */
    const char *code = view->format;
    if (code != NULL && (*code == '=' || *code == '@' || *code == NATIVE_ORDER))
        code++;
    if (code == NULL || code[0] != format || code[1] != 0 ||
        (uintptr_t)view->buf % (uintptr_t)view->itemsize != 0) {
        buffers->failed = true;
        return NULL;
    }
    return view;
}

/* Return a buffer of one of the types of rows. bfloat16 arrays are passed as views of uint16,
   because they do not export a buffer format. */
static Py_buffer *typed_view(buffers_t *buffers, PyObject *object, int type, bool writable)
{
    static const char formats[TYPES] = {'f', 'e', 'H', 'd'};
    return view_of(buffers, object, formats[type], writable);
}

/* The last arguments of most functions, and the type of rows that `mode` names. */
typedef struct {
    double eps;
    long mode;
    int rows;
} settings_t;

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

/* True if a result overlaps no other buffer of its call, or is NULL. */
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

bool is_supported_eps(double eps)
{
    return eps == 0 || (eps >= 0x1p-200 && eps <= 0x1p200);
}

/* Initialize the fields that forward and backward share. Return False if x has no rows. */
static bool init_call(call_t *call, const Py_buffer *x, const Py_buffer *out,
                      const Py_buffer *saved, const settings_t *settings)
{
    if (x == NULL || out == NULL || saved == NULL || x->ndim < 1 || x->len == 0 ||
        !has_shape(out, x) || !is_supported_eps(settings->eps))
        return false;
    *call = (call_t){0};
    call->x = x->buf;
    call->out = out->buf;
    call->saved = saved->buf;
    call->size = x->shape[x->ndim - 1];
    call->rows = x->len / x->itemsize / call->size;
    call->type = settings->rows;
    call->eps = settings->eps;
    call->bound_scale = bound_scale;
    call->centred = settings->mode & CENTRED;
    call->fast = settings->mode & FAST;
    call->wide = settings->mode & WIDE;
    call->threads = 1;
    return saved->len == call->rows * (call->centred ? 3 : 1) * (int64_t)sizeof(double);
}

static bool has_room(const Py_buffer *view, int64_t bytes)
{
    return view != NULL && view->len == bytes;
}

bool has_arguments(Py_ssize_t count, Py_ssize_t expected)
{
    if (count != expected)
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, count);
    return count == expected;
}

/* Read a number. Return False with an error set. */
static bool read_integer(PyObject *argument, long *value)
{
    *value = PyLong_AsLong(argument);
    return !(*value == -1 && PyErr_Occurred());
}

/* Store a mode. Return False with an error set if the core does not support it. */
static bool set_mode(settings_t *settings, long mode)
{
    settings->mode = mode;
    settings->rows = mode >> ROWS_AT & 15;
    if (settings->rows < TYPES && (!(mode & WIDE) || (settings->rows != FLOAT64 && !(mode & FAST))))
        return true;
    PyErr_Format(PyExc_ValueError, "mode %ld is not supported by the core", mode);
    return false;
}
static int type_of_parameters(const settings_t *settings)
{
    return settings->rows == FLOAT64 || settings->mode & WIDE ? FLOAT64 : FLOAT32;
}

/* Check the number of arguments and read the last of them: eps and mode. Return False with an
   error set. */
static bool read_settings(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t expected,
                          settings_t *settings)
{
    if (!has_arguments(count, expected))
        return false;
    PyObject *const *last = arguments + count - 2;
    long mode;
    settings->eps = PyFloat_AsDouble(last[0]);
    return !(settings->eps == -1 && PyErr_Occurred()) && read_integer(last[1], &mode) &&
           set_mode(settings, mode);
}

/* ---- partials ---- */

/* The C-contiguous buffer of an int64 array; see `view_of`. */
static Py_buffer *view_of_integers(buffers_t *buffers, PyObject *object, bool writable)
{
    return view_of(buffers, object, sizeof(long) == sizeof(int64_t) ? 'l' : 'q', writable);
}

/* Return a tuple of the first place of a number and its limbs. */
PyObject *tuple_of_fixed_point(fixed_point_t number, int64_t columns)
{
    int64_t bytes = number.places * columns * (int64_t)sizeof(int64_t);
    PyObject *limbs = PyByteArray_FromStringAndSize((const char *)number.limbs, bytes);
    return limbs == NULL ? NULL : Py_BuildValue("LN", (long long)number.first, limbs);
}

/* Add two numbers, whose limbs are in `views`, into limbs from `first` on. */
static PyObject *sum_of_numbers(Py_buffer *const *views, const long *firsts, int64_t first,
                                int64_t places, int64_t columns)
{
    fixed_point_t numbers[2];
    for (int k = 0; k < 2; k++)
        numbers[k] = (fixed_point_t){firsts[k], views[k]->shape[0], views[k]->buf};
    PyObject *limbs = PyByteArray_FromStringAndSize(
        NULL, (Py_ssize_t)(places * columns * (int64_t)sizeof(int64_t)));
    if (limbs == NULL)
        return NULL;
    int64_t *sum = (int64_t *)PyByteArray_AsString(limbs);
    bool is_carried =
        kernels_selected(FLOAT32)->add_numbers(&numbers[0], &numbers[1], first, places, columns,
                                               sum);
    if (!is_carried) { /* seldom: a carry needs one place more */
        Py_DECREF(limbs);
        return sum_of_numbers(views, firsts, first, places + 1, columns);
    }
    fixed_point_t number = trimmed(sum, first, places, columns);
    if (number.places == places)
        return Py_BuildValue("LN", (long long)first, limbs);
    PyObject *result = tuple_of_fixed_point(number, columns);
    Py_DECREF(limbs);
    return result;
}

/* add_numbers(first, limbs, first, limbs) -> first place and canonical limbs of the sum */
static PyObject *add_numbers(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    enum { FARTHEST = 1 << 8 }; /* limits the memory of the sum of two distant numbers */
    buffers_t buffers = {.count = 0};
    long firsts[2];
    if (!has_arguments(count, 4) || !read_integer(arguments[0], &firsts[0]) ||
        !read_integer(arguments[2], &firsts[1]))
        return NULL;
    Py_buffer *views[2] = {view_of_integers(&buffers, arguments[1], false),
                           view_of_integers(&buffers, arguments[3], false)};
    int64_t columns = views[0] && views[0]->ndim == 2 ? views[0]->shape[1] : 0;
    int64_t first = INT64_MAX, end = INT64_MIN;
    bool is_valid = !buffers.failed && columns > 0;
    for (int k = 0; is_valid && k < 2; k++) {
        is_valid = views[k] != NULL && views[k]->ndim == 2 && views[k]->shape[1] == columns &&
                   -FARTHEST <= firsts[k] && firsts[k] <= FARTHEST;
        if (is_valid && views[k]->shape[0] > 0) {
            first = firsts[k] < first ? firsts[k] : first;
            end = firsts[k] + views[k]->shape[0] > end ? firsts[k] + views[k]->shape[0] : end;
        }
    }
    if (!is_valid) {
        release(&buffers);
        PyErr_SetString(PyExc_ValueError,
                        "expected places within 2**8 and two C-contiguous int64 arrays of two "
                        "axes with the same number of columns");
        return NULL;
    }
    int64_t places = end > first ? end - first : 0;
    PyObject *result = sum_of_numbers(views, firsts, places ? first : 0, places, columns);
    release(&buffers);
    return result;
}

/* ---- blocks of rows, for the driver ---- */

static PyObject *raise_bad_arguments(buffers_t *buffers)
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
        &rows->call, 0, rows->call.rows, false, rows->sums);
}
static void do_statistics(rows_t *rows)
{
    const kernels_t *kernels = kernels_selected(rows->call.type);
    rows->outcome.not_ok = kernels->statistics(&rows->call, 0, rows->call.rows);
}

/* forward_rows(x, gamma, beta, y, saved, status, eps, mode) -> rows that are not OK */
static PyObject *forward_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    rows_t rows = {.sums = NULL};
    settings_t settings;
    if (!read_settings(arguments, count, 8, &settings))
        return NULL;
    Py_buffer *x = typed_view(&buffers, arguments[0], settings.rows, false);
    int of_parameters = type_of_parameters(&settings);
    Py_buffer *gamma = typed_view(&buffers, arguments[1], of_parameters, false);
    Py_buffer *beta = typed_view(&buffers, arguments[2], of_parameters, false);
    Py_buffer *y = typed_view(&buffers, arguments[3], settings.rows, true);
    Py_buffer *saved = view_of(&buffers, arguments[4], 'd', true);
    Py_buffer *status = view_of(&buffers, arguments[5], 'B', true);
    if (buffers.failed || !init_call(&rows.call, x, y, saved, &settings) || gamma == NULL ||
        beta == NULL ||
        !is_vector(gamma, rows.call.size) || !is_vector(beta, rows.call.size) ||
        !has_room(status, rows.call.rows) || !is_apart(y, &buffers) ||
        !is_apart(saved, &buffers) || !is_apart(status, &buffers))
        return raise_bad_arguments(&buffers);
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
    settings_t settings;
    if (!read_settings(arguments, count, 9, &settings))
        return NULL;
    Py_buffer *dy = typed_view(&buffers, arguments[0], settings.rows, false);
    Py_buffer *x = typed_view(&buffers, arguments[1], settings.rows, false);
    Py_buffer *gamma =
        typed_view(&buffers, arguments[2], type_of_parameters(&settings), false);
    Py_buffer *saved = view_of(&buffers, arguments[3], 'd', false);
    Py_buffer *dx = typed_view(&buffers, arguments[4], settings.rows, true);
    Py_buffer *sums = view_of(&buffers, arguments[5], 'd', true);
    Py_buffer *status = view_of(&buffers, arguments[6], 'B', true);
    const kernels_t *kernels = kernels_selected(settings.rows);
    int64_t numbers = settings.mode & FAST ? kernels->fast_sums : kernels->sums;
    if (buffers.failed || !init_call(&rows.call, x, dx, saved, &settings) ||
        !has_shape(dy, x) || gamma == NULL ||
        !is_vector(gamma, rows.call.size) || !has_room(status, rows.call.rows) ||
        !has_room(sums, numbers * rows.call.size * (int64_t)sizeof(double)) ||
        !is_apart(dx, &buffers) || !is_apart(sums, &buffers) || !is_apart(status, &buffers))
        return raise_bad_arguments(&buffers);
    rows.call.dy = dy->buf;
    rows.call.gamma = gamma->buf;
    rows.call.status = status->buf;
    rows.sums = sums->buf;
    without_lock(do_backward, &rows);
    release(&buffers);
    return Py_BuildValue("LII", (long long)rows.outcome.not_ok, rows.outcome.extent.smallest,
                         rows.outcome.extent.largest);
}

typedef struct {
    call_t call;
    term_sums_t terms;
    uint8_t *undecided;
    int64_t count;
} rows_of_terms_t;

static void do_terms(rows_of_terms_t *rows)
{
    const kernels_t *kernels = kernels_selected(rows->call.type);
    rows->count =
        kernels->add_terms(&rows->call, 0, rows->call.rows, &rows->terms, rows->undecided);
    kernels->empty_bins(&rows->terms);
}

/* add_terms(dy, x, status, undecided, limbs, eps, mode)
   -> rows with undecided terms, which are marked and not added */
static PyObject *add_terms(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    rows_of_terms_t rows;
    settings_t settings;
    if (!read_settings(arguments, count, 7, &settings))
        return NULL;
    Py_buffer *dy = typed_view(&buffers, arguments[0], settings.rows, false);
    Py_buffer *x = typed_view(&buffers, arguments[1], settings.rows, false);
    Py_buffer *status = view_of(&buffers, arguments[2], 'B', false);
    Py_buffer *undecided = view_of(&buffers, arguments[3], 'B', true);
    Py_buffer *limbs = view_of_integers(&buffers, arguments[4], true);
    if (buffers.failed || settings.rows == FLOAT64 || x == NULL || x->ndim != 2 ||
        x->len == 0 || !has_shape(dy, x) ||
        !is_supported_eps(settings.eps) || !has_room(status, x->shape[0]) ||
        !has_room(undecided, x->shape[0]) || limbs == NULL || limbs->ndim != 2 ||
        limbs->shape[0] != PLACES || limbs->shape[1] != x->shape[1] + 1 ||
        !is_apart(undecided, &buffers) || !is_apart(limbs, &buffers))
        return raise_bad_arguments(&buffers);
    rows.call = (call_t){.x = x->buf, .dy = dy->buf, .status = status->buf,
                         .rows = x->shape[0], .size = x->shape[1], .eps = settings.eps,
                         .bound_scale = bound_scale, .centred = settings.mode & CENTRED,
                         .type = settings.rows};
    rows.undecided = undecided->buf;
    void *allocated;
    int64_t *room = room_for(room_for_terms(rows.call.size), &allocated);
    if (room == NULL) {
        release(&buffers);
        return PyErr_NoMemory();
    }
    rows.terms = empty_terms(rows.call.size, room);
    rows.terms.limbs.limbs = limbs->buf;
    memset(rows.terms.limbs.is_used, true, PLACES); /* they may have sums over other rows */
    Py_BEGIN_ALLOW_THREADS
    do_terms(&rows);
    Py_END_ALLOW_THREADS
    free(allocated);
    release(&buffers);
    return PyLong_FromLongLong(rows.count);
}

typedef struct {
    call_t call;
    strip_t *strips;
    int64_t count;
} rows_of_strips_t;

static void do_strips(rows_of_strips_t *rows)
{
    const kernels_t *kernels = kernels_selected(rows->call.type);
    kernels->statistics(&rows->call, 0, rows->call.rows);
    kernels->add_strips(&rows->call, 0, rows->call.rows, rows->strips, rows->count);
}

/* Copy sums, strips x 3 x STRIP, to strips or back. */
static void exchange(double *sums, strip_t *strips, int64_t count, bool back)
{
    for (int64_t k = 0; k < count; k++) {
        double *const parts[] = {strips[k].high, strips[k].low, strips[k].bound};
        for (int i = 0; i < 3; i++) {
            double *outer = sums + (3 * k + i) * STRIP;
            memcpy(back ? outer : parts[i], back ? parts[i] : outer, STRIP * sizeof(double));
        }
    }
}

/* add_strips(dy, x, columns, sums, eps, mode): add terms of dgamma, in tier 2, to the sums of
   strips of columns, of which the first columns are given */
static PyObject *add_strips(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    settings_t settings;
    if (!read_settings(arguments, count, 6, &settings))
        return NULL;
    Py_buffer *dy = typed_view(&buffers, arguments[0], settings.rows, false);
    Py_buffer *x = typed_view(&buffers, arguments[1], settings.rows, false);
    Py_buffer *columns = view_of_integers(&buffers, arguments[2], false);
    Py_buffer *sums = view_of(&buffers, arguments[3], 'd', true);
    bool is_valid = !buffers.failed && settings.rows != FLOAT64 && x && x->ndim == 2 && x->len > 0 &&
                    has_shape(dy, x) && is_supported_eps(settings.eps) && columns &&
                    columns->ndim == 1 && is_apart(sums, &buffers) &&
                    has_room(sums, columns->shape[0] * 3 * STRIP * (int64_t)sizeof(double));
    for (int64_t k = 0; is_valid && k < columns->shape[0]; k++) {
        int64_t column = ((const int64_t *)columns->buf)[k];
        is_valid = 0 <= column && column < x->shape[1];
    }
    if (!is_valid)
        return raise_bad_arguments(&buffers);
    rows_of_strips_t rows = {.count = columns->shape[0]};
    rows.call = (call_t){.x = x->buf, .dy = dy->buf, .rows = x->shape[0], .size = x->shape[1],
                         .eps = settings.eps, .centred = settings.mode & CENTRED,
                         .type = settings.rows};
    rows.call.saved = calloc((size_t)rows.call.rows * 3, sizeof(double));
    rows.strips = calloc((size_t)rows.count + 1, sizeof(strip_t));
    bool has_memory = rows.call.saved && rows.strips;
    if (has_memory) {
        for (int64_t k = 0; k < rows.count; k++)
            rows.strips[k].column = ((const int64_t *)columns->buf)[k];
        exchange(sums->buf, rows.strips, rows.count, false);
        Py_BEGIN_ALLOW_THREADS
        do_strips(&rows);
        Py_END_ALLOW_THREADS
        exchange(sums->buf, rows.strips, rows.count, true);
    }
    free(rows.call.saved);
    free(rows.strips);
    release(&buffers);
    return has_memory ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

/* statistics(x, saved, mode) -> rows whose mean changed; recomputes saved */
static PyObject *statistics(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    buffers_t buffers = {.count = 0};
    rows_t rows = {.sums = NULL};
    settings_t settings = {.eps = 0};
    long mode;
    if (!has_arguments(count, 3) || !read_integer(arguments[2], &mode) ||
        !set_mode(&settings, mode))
        return NULL;
    Py_buffer *x = typed_view(&buffers, arguments[0], settings.rows, false);
    Py_buffer *saved = view_of(&buffers, arguments[1], 'd', true);
    if (buffers.failed || !init_call(&rows.call, x, x, saved, &settings) ||
        !is_apart(saved, &buffers))
        return raise_bad_arguments(&buffers);
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
        return raise_bad_arguments(&buffers);
    const kernels_t *narrow = kernels_selected(FLOAT32), *wide = kernels_selected(FLOAT64);
    int64_t numbers = sums->shape[0], size = sums->shape[1];
    if (numbers == narrow->sums)
        narrow->merge(sums->buf, others->buf, size);
    else if (numbers == wide->sums)
        wide->merge(sums->buf, others->buf, size);
    else if (numbers == wide->fast_sums)
        wide->fast_merge(sums->buf, others->buf, size);
    else
        return raise_bad_arguments(&buffers);
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

/* scale_bounds(factor): for tests, in which divided bounds must give wrong results */
static PyObject *scale_bounds(PyObject *module, PyObject *factor)
{
    (void)module;
    double value = PyFloat_AsDouble(factor);
    if (PyErr_Occurred())
        return NULL;
    bound_scale = value;
    return Py_NewRef(Py_None);
}

#define FASTCALL(name, function, text) \
    {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, text}
static PyMethodDef methods[] = {
    FASTCALL("connect", entry_connect, "connect(array_api, ndarray, ...) -> bool"),
    FASTCALL("forward", entry_forward, "forward(norm, x, gamma, beta, axis, ...) -> y, or tuple"),
    FASTCALL("backward", entry_backward, "backward(norm, dy, saved, out, ...) -> Gradients"),
    FASTCALL("backward_partial", entry_backward_partial,
             "backward_partial(norm, dy, saved, out, ...) -> tuple"),
    FASTCALL("forward_rows", forward_rows,
             "forward_rows(x, gamma, beta, y, saved, status, eps, mode) -> int"),
    FASTCALL("backward_rows", backward_rows,
             "backward_rows(dy, x, gamma, saved, dx, sums, status, eps, mode) -> tuple"),
    FASTCALL("add_terms", add_terms,
             "add_terms(dy, x, status, undecided, limbs, eps, mode) -> int"),
    FASTCALL("add_strips", add_strips, "add_strips(dy, x, columns, sums, eps, mode) -> None"),
    FASTCALL("add_numbers", add_numbers, "add_numbers(first, limbs, first, limbs) -> tuple"),
    FASTCALL("statistics", statistics, "statistics(x, saved, mode) -> int"),
    FASTCALL("is_exact_sum", exact_sum, "is_exact_sum(smallest, largest, rows) -> bool"),
    FASTCALL("merge", merge, "merge(sums, others) -> None"),
    {"select", select_set, METH_O, "select(name) -> str"},
    {"scale_bounds", scale_bounds, METH_O, "scale_bounds(factor) -> None"},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    if (kernels_select(NULL) == NULL) {
        PyErr_SetString(PyExc_ImportError, "the C core needs a build with -ffp-contract=off");
        return -1;
    }
    return PyModule_AddIntConstant(module, "CENTRED", CENTRED) ||
           PyModule_AddIntConstant(module, "FAST", FAST) ||
           PyModule_AddIntConstant(module, "WIDE", WIDE) ||
           PyModule_AddIntConstant(module, "ROWS_AT", ROWS_AT) ||
           PyModule_AddIntConstant(module, "STRIP", STRIP) ||
           PyModule_AddIntConstant(module, "FIRST_PLACE", FIRST_PLACE) ||
           PyModule_AddIntConstant(module, "PLACES", PLACES);
}

static void free_state(void *module) { clear_state(module); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "The C core of truenorm.", 0, methods, slots, traverse_state,
    clear_state, free_state};

PyMODINIT_FUNC PyInit__core(void)
{
    definition.m_size = size_of_state;
    return PyModuleDef_Init(&definition);
}

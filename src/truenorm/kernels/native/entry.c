/* The entry of whole calls: from the arguments of a public function to its results.

   Fast-path arrays are ndarrays, C-contiguous, aligned and in native byte order, of matching
   shapes and types; results overlap no other array. All other calls return NotImplemented: calls
   with other arrays or arguments, and calls whose results need the driver. The general path
   (api/run.py) then repeats the call, and raises the error if there is one.

   Arrays are read and made as code that was compiled with NumPy's headers does it: by the public
   fields of an array, and by the table of functions of the C API. docs/inside/engine.md says why.
   Fields are read while the interpreter's lock is held, and after the last call of Python code. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "rounding.h"

/* ---- NumPy: part of its ABI, whose version `connect` checks ---- */

/* The public fields of PyArrayObject. */
typedef struct {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dimensions, *strides;
    PyObject *base, *descr;
    int flags;
} array_t;

enum { NUMPY_ABI = 0x02000000, GET_ABI = 0, NEW_FROM_DESCR = 94 };
/* The sign bit of the flags asks for a warning before a write. */
enum { C_CONTIGUOUS = 0x1, WRITEABLE = 0x400 };

typedef unsigned int (*get_abi_t)(void);
typedef PyObject *(*new_from_descr_t)(PyTypeObject *, PyObject *, int, const Py_ssize_t *,
                                      const Py_ssize_t *, void *, int, PyObject *);

/* ---- state ---- */

/* Fields of Saved. */
enum { SAVED_X, SAVED_GAMMA, SAVED_BETA_DTYPE, SAVED_AXES, SAVED_SETTINGS, STATISTICS, FIELDS };

/* Objects of the state: the arguments of `connect` after the first, then names and a dictionary
   with the fields of Saved. */
enum {
    NDARRAY,
    DTYPES, /* by type; None for bfloat16 until it is learned */
    SAVED_TYPE = DTYPES + TYPES,
    GRADIENTS_TYPE,
    LAYER_NORM,
    OS,
    VARIABLES, /* a tuple of keys of os.environ._data: the variables that settings depend on */
    SETTINGS_OF,
    SETTINGS_OF_BACKWARD,
    THREAD_COUNT,
    TYPE_CODE,
    GIVEN,
    ENVIRON = GIVEN,
    DATA,
    NAME,
    FIELD_NAMES,
    TEMPLATE = FIELD_NAMES + FIELDS,
    OBJECTS
};
enum {
    LOCK_KEPT_BELOW = 1 << 13, /* elements: releasing the lock would cost as much as the call */
    SINGLE_THREAD_BELOW = 1 << 14, /* elements */
    SEEN = 4,                      /* variables */
    CACHED = 16,
};

/* Settings of a call. `object` is the Settings of Python. */
typedef struct {
    PyObject *object;
    double eps;
    long limit; /* of threads; 0: the default */
    bool centred, fast;
} settings_t;

/* What Python made of arguments: of eps, rounding and threads, or of saved settings and threads. */
typedef struct {
    settings_t asked, found;
} cached_t;

typedef struct {
    PyObject *objects[OBJECTS];
    new_from_descr_t new_from_descr;
    allocfunc new_saved, new_gradients;
    PyObject *seen[SEEN]; /* the values of variables under which the rest was found, or NULL */
    uint64_t changes;     /* how often one of them changed */
    long cpus;            /* the default number of threads; 0: not asked yet */
    cached_t forward[CACHED], backward[CACHED];
} state_t;

const Py_ssize_t size_of_state = sizeof(state_t);

int traverse_state(PyObject *module, visitproc visit, void *arg) /* the name that Py_VISIT uses */
{
    state_t *state = PyModule_GetState(module);
    for (int k = 0; state != NULL && k < OBJECTS; k++)
        Py_VISIT(state->objects[k]);
    for (int k = 0; state != NULL && k < SEEN; k++)
        Py_VISIT(state->seen[k]);
    for (int k = 0; state != NULL && k < CACHED; k++) {
        Py_VISIT(state->forward[k].found.object);
        Py_VISIT(state->backward[k].asked.object);
    }
    return 0;
}

/* Forget what Python made of arguments and variables. */
static void forget(state_t *state)
{
    state->changes++;
    state->cpus = 0;
    for (int k = 0; k < CACHED; k++) {
        Py_CLEAR(state->forward[k].found.object);
        Py_CLEAR(state->backward[k].asked.object);
    }
}

int clear_state(PyObject *module)
{
    state_t *state = PyModule_GetState(module);
    if (state == NULL)
        return 0;
    state->new_from_descr = NULL; /* calls are declined from now on */
    for (int k = 0; k < OBJECTS; k++)
        Py_CLEAR(state->objects[k]);
    for (int k = 0; k < SEEN; k++)
        Py_CLEAR(state->seen[k]);
    forget(state);
    return 0;
}

/* connect(array_api, ndarray, dtypes..., Saved, ...) -> bool
   Store the objects that the entry needs; return False if the ABI of NumPy is another one. */
PyObject *entry_connect(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    static const char *const names[TEMPLATE - GIVEN] = {
        "environ", "_data", "name", "x", "gamma", "beta_dtype", "axes", "settings", "statistics"};
    state_t *state = PyModule_GetState(module);
    if (!has_arguments(count, GIVEN + 1))
        return NULL;
    void **api = PyCapsule_GetPointer(arguments[0], NULL);
    if (api == NULL)
        return NULL;
    if (((get_abi_t)api[GET_ABI])() != NUMPY_ABI)
        return Py_NewRef(Py_False);
    if (!PyType_Check(arguments[1 + SAVED_TYPE]) || !PyType_Check(arguments[1 + GRADIENTS_TYPE])) {
        PyErr_SetString(PyExc_TypeError, "expected the types Saved and Gradients");
        return NULL;
    }
    clear_state(module);
    for (int k = 0; k < GIVEN; k++)
        state->objects[k] = Py_NewRef(arguments[1 + k]);
    PyObject *template = state->objects[TEMPLATE] = PyDict_New();
    for (int k = GIVEN; k < TEMPLATE; k++) {
        PyObject *name = state->objects[k] = PyUnicode_InternFromString(names[k - GIVEN]);
        if (template == NULL || name == NULL ||
            (k >= FIELD_NAMES && PyDict_SetItem(template, name, Py_None) != 0)) {
            clear_state(module);
            return NULL;
        }
    }
    state->new_saved =
        (allocfunc)PyType_GetSlot((PyTypeObject *)state->objects[SAVED_TYPE], Py_tp_alloc);
    state->new_gradients =
        (allocfunc)PyType_GetSlot((PyTypeObject *)state->objects[GRADIENTS_TYPE], Py_tp_alloc);
    state->new_from_descr = (new_from_descr_t)api[NEW_FROM_DESCR];
    return Py_NewRef(Py_True);
}

/* ---- settings ---- */

static bool is_text(PyObject *object, const char *text)
{
    return PyUnicode_CheckExact(object) && PyUnicode_CompareWithASCIIString(object, text) == 0;
}

/* Forget what was found under other values of the variables. Return False if the values cannot be
   read here: then nothing may be remembered. A value that was set again is another object. */
static bool sees_variables(state_t *state)
{
    PyObject *environ = PyDict_GetItemWithError(state->objects[OS], state->objects[ENVIRON]);
    PyObject *data = environ ? PyObject_GetAttr(environ, state->objects[DATA]) : NULL;
    bool is_readable = data != NULL && PyDict_CheckExact(data);
    for (int k = 0; k < SEEN && is_readable; k++) {
        PyObject *key = PyTuple_GetItem(state->objects[VARIABLES], k);
        PyObject *value = PyDict_GetItemWithError(data, key), *old = state->seen[k];
        if (value == old)
            continue;
        state->seen[k] = Py_XNewRef(value);
        Py_XDECREF(old);
        forget(state);
    }
    Py_XDECREF(data);
    PyErr_Clear();
    return is_readable;
}

/* True if no variable changed while Python read them. */
static bool sees_as_before(state_t *state, uint64_t changes)
{
    return sees_variables(state) && state->changes == changes;
}

/* Read the argument threads. Return False if Python must. */
static bool read_limit(PyObject *threads, long *limit)
{
    int overflow;
    *limit = 0;
    if (threads == Py_None)
        return true;
    if (!PyLong_CheckExact(threads))
        return false;
    *limit = PyLong_AsLongAndOverflow(threads, &overflow);
    return !overflow && *limit >= 1 && *limit <= INT32_MAX;
}

static bool read_rounding(PyObject *rounding, bool *fast)
{
    *fast = is_text(rounding, "fast");
    return *fast || is_text(rounding, "correct");
}

static bool is_this_backend(PyObject *backend) { return is_text(backend, "native"); }

/* Read the fields of a Settings. Return False if they are not of the C core and this norm. */
static bool read_fields(PyObject *object, settings_t *settings)
{
    if (!PyTuple_Check(object) || PyTuple_Size(object) != 5)
        return false;
    PyObject *norm = PyTuple_GetItem(object, 0), *eps = PyTuple_GetItem(object, 1);
    if (!PyTuple_Check(norm) || PyTuple_Size(norm) != 1 || !PyFloat_CheckExact(eps) ||
        PyTuple_GetItem(norm, 0) != (settings->centred ? Py_True : Py_False))
        return false;
    settings->eps = PyFloat_AsDouble(eps);
    return read_rounding(PyTuple_GetItem(object, 2), &settings->fast) &&
           is_this_backend(PyTuple_GetItem(object, 3)) &&
           read_limit(PyTuple_GetItem(object, 4), &settings->limit) &&
           is_supported_eps(settings->eps);
}

/* As bits, eps of 0 differs from -0.0. */
static uint64_t bits_of_eps(const settings_t *settings)
{
    uint64_t bits;
    memcpy(&bits, &settings->eps, sizeof bits);
    return bits;
}

static cached_t *place_in(cached_t *cache, const settings_t *asked)
{
    uint64_t kind = asked->centred + 2u * asked->fast + 4u * (uint64_t)asked->limit;
    uint64_t key = bits_of_eps(asked) + kind + (uint64_t)(uintptr_t)asked->object;
    return &cache[(key * 0x9E3779B97F4A7C15u >> 60) % CACHED];
}

static bool are_equal(const settings_t *a, const settings_t *b)
{
    return a->object == b->object && a->limit == b->limit && a->centred == b->centred &&
           a->fast == b->fast && bits_of_eps(a) == bits_of_eps(b);
}

/* Read the settings of a forward pass. Return False if the call is declined, or with an error.
   The caller releases `settings->object`. */
static bool settings_of_forward(state_t *state, PyObject *norm, PyObject *eps, PyObject *rounding,
                                PyObject *backend, PyObject *threads, settings_t *settings)
{
    cached_t *cached = NULL;
    settings_t asked = {.centred = settings->centred};
    if (PyFloat_CheckExact(eps) && (backend == Py_None || is_this_backend(backend)) &&
        read_rounding(rounding, &asked.fast) && read_limit(threads, &asked.limit) &&
        sees_variables(state)) {
        asked.eps = PyFloat_AsDouble(eps);
        cached = place_in(state->forward, &asked);
        if (cached->found.object != NULL && are_equal(&cached->asked, &asked)) {
            *settings = cached->found;
            Py_INCREF(settings->object);
            return true;
        }
    }
    uint64_t changes = state->changes;
    PyObject *results = PyObject_CallFunctionObjArgs(state->objects[SETTINGS_OF], norm, eps,
                                                     rounding, backend, threads, NULL);
    if (results == NULL)
        return false;
    PyObject *object = PyTuple_GetItem(results, 1); /* after the backend */
    bool is_read = object != NULL && read_fields(object, settings);
    if (is_read)
        settings->object = Py_NewRef(object);
    Py_DECREF(results);
    if (is_read && cached != NULL && sees_as_before(state, changes)) {
        PyObject *old = cached->found.object;
        *cached = (cached_t){asked, *settings};
        Py_INCREF(object);
        Py_XDECREF(old);
    }
    return is_read;
}

/* Read the settings of a backward pass: those of the forward pass, but for the threads. Return
   False as `settings_of_forward` does. */
static bool settings_of_backward(state_t *state, PyObject *saved, PyObject *backend,
                                 PyObject *threads, settings_t *settings)
{
    cached_t *cached = NULL;
    settings_t asked = {.object = saved, .centred = settings->centred};
    if ((backend == Py_None || is_this_backend(backend)) && read_limit(threads, &asked.limit) &&
        sees_variables(state)) {
        cached = place_in(state->backward, &asked);
        if (are_equal(&cached->asked, &asked)) {
            *settings = cached->found;
            return true;
        }
    }
    if (!read_fields(saved, settings))
        return false;
    uint64_t changes = state->changes;
    PyObject *results = PyObject_CallFunctionObjArgs(state->objects[SETTINGS_OF_BACKWARD], saved,
                                                     backend, threads, NULL);
    PyObject *chosen = results ? PyTuple_GetItem(results, 0) : NULL;
    PyObject *name = chosen ? PyObject_GetAttr(chosen, state->objects[NAME]) : NULL;
    bool is_read =
        name && is_this_backend(name) && read_fields(PyTuple_GetItem(results, 1), settings);
    Py_XDECREF(name);
    Py_XDECREF(results);
    if (is_read && cached != NULL && sees_as_before(state, changes)) {
        PyObject *old = cached->asked.object;
        *cached = (cached_t){asked, *settings};
        Py_INCREF(saved);
        Py_XDECREF(old);
    }
    return is_read;
}

/* ---- arrays ---- */

/* A fast-path array, or none: then the memory is NULL. */
typedef struct {
    char *memory;
    Py_ssize_t bytes;
    int type;
} view_t;

static const Py_ssize_t item_bytes[TYPES] = {4, 2, 2, 8};

static int type_of(const state_t *state, const PyObject *descr)
{
    int type = 0;
    while (type < TYPES && descr != state->objects[DTYPES + type])
        type++;
    return type;
}

static bool is_array(const state_t *state, PyObject *object)
{
    return (PyObject *)Py_TYPE(object) == state->objects[NDARRAY];
}

/* Learn the dtype of bfloat16, which NumPy does not have, from the first array of it. Return False
   with an error set. */
static bool learn_bfloat16(state_t *state, PyObject *object)
{
    PyObject **place = &state->objects[DTYPES + BFLOAT16];
    if (*place != Py_None || !is_array(state, object))
        return true;
    PyObject *descr = Py_NewRef(((array_t *)object)->descr);
    bool is_known = type_of(state, descr) < TYPES;
    PyObject *code =
        is_known ? NULL : PyObject_CallFunctionObjArgs(state->objects[TYPE_CODE], descr, NULL);
    if (code != NULL && PyLong_CheckExact(code) && PyLong_AsLong(code) == BFLOAT16 &&
        *place == Py_None) {
        *place = Py_NewRef(descr);
        Py_DECREF(Py_None);
    }
    Py_DECREF(descr);
    Py_XDECREF(code);
    return is_known || code != NULL;
}

/* Read an array. Return False if it is no fast-path array. */
static bool read_array(const state_t *state, PyObject *object, view_t *view)
{
    if (!is_array(state, object))
        return false;
    const array_t *array = (const array_t *)object;
    int type = type_of(state, array->descr);
    if (type == TYPES || !(array->flags & C_CONTIGUOUS) ||
        (uintptr_t)array->data % (uintptr_t)item_bytes[type] != 0)
        return false;
    Py_ssize_t bytes = item_bytes[type];
    for (int k = 0; k < array->nd; k++)
        bytes *= array->dimensions[k];
    *view = (view_t){array->data, bytes, type};
    return true;
}

/* Read gamma or beta, or None, for rows of a type. */
static bool read_parameter(const state_t *state, PyObject *object, int type, Py_ssize_t size,
                           view_t *view)
{
    *view = (view_t){.type = type};
    if (object == Py_None)
        return true;
    const array_t *array = (const array_t *)object;
    return read_array(state, object, view) && array->nd == 1 && array->dimensions[0] == size &&
           (view->type == FLOAT64) == (type == FLOAT64);
}

/* Read an array of the type and shape of x. */
static bool read_like(const state_t *state, PyObject *object, const array_t *x, view_t *view)
{
    if (!read_array(state, object, view))
        return false;
    const array_t *array = (const array_t *)object;
    return array->descr == x->descr && array->nd == x->nd &&
           memcmp(array->dimensions, x->dimensions, (size_t)x->nd * sizeof(Py_ssize_t)) == 0;
}

static bool is_writeable(PyObject *object)
{
    int flags = ((const array_t *)object)->flags;
    return flags >= 0 && (flags & WRITEABLE);
}

static bool is_apart(const view_t *result, const view_t *other)
{
    uintptr_t a = (uintptr_t)result->memory, b = (uintptr_t)other->memory;
    return !(a < b + (uintptr_t)other->bytes && b < a + (uintptr_t)result->bytes);
}

/* Return a new array, or NULL with an error set. */
static PyObject *new_array(const state_t *state, int type, int nd, const Py_ssize_t *shape)
{
    return state->new_from_descr((PyTypeObject *)state->objects[NDARRAY],
                                 Py_NewRef(state->objects[DTYPES + type]), nd, shape, NULL, NULL, 0,
                                 NULL);
}

/* Return the memory of a new array; NULL of NULL and None. */
static void *memory_of(PyObject *array)
{
    return array == NULL || array == Py_None ? NULL : ((array_t *)array)->data;
}

/* Return the array for y or dx: `out` or, if that is None, a new array like x. Return NULL if
   `out` is declined, or with an error set. */
static PyObject *output_for(const state_t *state, PyObject *out, const array_t *x, int type,
                            const view_t *inputs, int count)
{
    view_t view;
    if (out == Py_None)
        return new_array(state, type, x->nd, x->dimensions);
    bool is_usable = read_like(state, out, x, &view) && is_writeable(out);
    for (int k = 0; is_usable && k < count; k++)
        is_usable = is_apart(&view, &inputs[k]);
    return is_usable ? Py_NewRef(out) : NULL;
}

/* Return the number of threads of a call on rows like x, or 0 with an error set. */
static int threads_of(state_t *state, long limit, PyObject *x)
{
    int64_t elements = is_array(state, x) ? 1 : 0;
    for (int k = 0; elements && k < ((array_t *)x)->nd; k++)
        elements *= ((array_t *)x)->dimensions[k];
    if (elements < SINGLE_THREAD_BELOW)
        return 1;
    bool is_seen = limit == 0 && sees_variables(state);
    if (is_seen)
        limit = state->cpus;
    if (limit == 0) {
        PyObject *count =
            PyObject_CallFunctionObjArgs(state->objects[THREAD_COUNT], Py_None, NULL);
        limit = count ? PyLong_AsLong(count) : -1;
        Py_XDECREF(count);
        if (limit == -1 && PyErr_Occurred())
            return 0;
        if (is_seen)
            state->cpus = limit;
    }
    return limit < 1 ? 1 : limit > MOST_THREADS ? MOST_THREADS : (int)limit;
}

/* ---- calls ---- */

/* Run a call without the interpreter's lock, unless it is small. */
static end_t run(end_t (*runner)(call_t *), call_t *call)
{
    uint8_t few[256], *many = NULL;
    if (call->rows > (int64_t)sizeof few && (many = malloc((size_t)call->rows)) == NULL)
        return NO_MEMORY;
    call->status = many ? many : few;
    end_t end;
    if (call->rows * call->size < LOCK_KEPT_BELOW) {
        end = runner(call);
    } else {
        Py_BEGIN_ALLOW_THREADS
        end = runner(call);
        Py_END_ALLOW_THREADS
    }
    free(many);
    return end;
}

/* Set an error if there was no memory. Return True if the call is done. */
static bool is_done(end_t end)
{
    if (end == NO_MEMORY)
        PyErr_NoMemory();
    return end == DONE;
}

/* Store the memory of a parameter as the core takes it: 16-bit numbers as float32. Return False if
   there is no memory for the copy, which the caller frees. */
static bool set_parameter(const view_t *view, const void **parameter, void **copy)
{
    *parameter = view->memory;
    if (view->memory == NULL || view->type == FLOAT32 || view->type == FLOAT64)
        return true;
    const uint16_t *from = (const uint16_t *)(const void *)view->memory;
    size_t size = (size_t)view->bytes / sizeof *from;
    float *to = malloc(size * sizeof *to);
    if (to == NULL)
        return false;
    for (size_t j = 0; j < size; j++)
        to[j] = view->type == FLOAT16 ? float_of_float16(from[j]) : float_of_bfloat16(from[j]);
    *parameter = *copy = to;
    return true;
}

/* Return ones, the default of gamma, or NULL. */
static void *ones(int64_t size, int type)
{
    bool is_wide = type == FLOAT64;
    void *values = malloc((size_t)size * (is_wide ? sizeof(double) : sizeof(float)));
    for (int64_t j = 0; values != NULL && j < size; j++) {
        if (is_wide)
            ((double *)values)[j] = 1;
        else
            ((float *)values)[j] = 1;
    }
    return values;
}

/* Return a call on rows like x. */
static call_t call_on(const array_t *x, const view_t *view, const settings_t *settings,
                      int threads)
{
    int64_t size = x->dimensions[x->nd - 1];
    return (call_t){.x = view->memory,
                    .type = view->type,
                    .rows = view->bytes / item_bytes[view->type] / size,
                    .size = size,
                    .eps = settings->eps,
                    .bound_scale = bound_scale,
                    .centred = settings->centred,
                    .fast = settings->fast,
                    .threads = threads};
}

static int64_t saved_numbers(const call_t *call) { return call->centred ? 3 : 1; }

static bool is_last_axis(PyObject *axis, int nd)
{
    int overflow;
    if (!PyLong_CheckExact(axis))
        return false;
    long value = PyLong_AsLongAndOverflow(axis, &overflow);
    return !overflow && (value == -1 || value == nd - 1);
}

/* Return NotImplemented in place of NULL without an error. */
static PyObject *or_declined(PyObject *result)
{
    return result || PyErr_Occurred() ? result : Py_NewRef(Py_NotImplemented);
}

/* ---- forward ---- */

/* Return a Saved. It takes the references of its fields, also if there is an error. */
static PyObject *new_saved(const state_t *state, PyObject *fields[FIELDS])
{
    PyObject *dictionary = PyDict_Copy(state->objects[TEMPLATE]);
    bool is_filled = dictionary != NULL;
    for (int k = 0; k < FIELDS; k++) {
        is_filled = is_filled && fields[k] != NULL &&
                    PyDict_SetItem(dictionary, state->objects[FIELD_NAMES + k], fields[k]) == 0;
        Py_XDECREF(fields[k]);
    }
    PyObject *saved =
        is_filled ? state->new_saved((PyTypeObject *)state->objects[SAVED_TYPE], 0) : NULL;
    if (saved != NULL && PyObject_GenericSetDict(saved, dictionary, NULL) != 0)
        Py_CLEAR(saved);
    Py_XDECREF(dictionary);
    return saved;
}

/* Arguments of `forward`; see _core.pyi. */
enum { NORM, X, GAMMA, BETA, AXIS, EPS, ROUNDING, OUT, BACKEND, THREADS, STREAM, NEEDS_SAVED };

/* Return y or (y, saved), or NULL if the call is declined or with an error set. */
static PyObject *forward(state_t *state, PyObject *const *a, const settings_t *settings,
                         int threads)
{
    enum { FEW = 64 };
    view_t views[3] = {{NULL, 0, 0}}, *x = &views[0], *gamma = &views[1], *beta = &views[2];
    const array_t *rows = (const array_t *)a[X];
    bool needs_saved = a[NEEDS_SAVED] == Py_True;
    if (!read_array(state, a[X], x) || rows->nd < 1 || x->bytes == 0 ||
        !is_last_axis(a[AXIS], rows->nd))
        return NULL;
    int last = rows->nd - 1;
    call_t call = call_on(rows, x, settings, threads);
    if (!read_parameter(state, a[GAMMA], x->type, call.size, gamma) ||
        !read_parameter(state, a[BETA], x->type, call.size, beta))
        return NULL;
    PyObject *y = output_for(state, a[OUT], rows, x->type, views, 3);
    if (y == NULL)
        return NULL;
    Py_ssize_t shape[2] = {call.rows, saved_numbers(&call)};
    double few[3 * FEW], *many = NULL;
    PyObject *statistics = needs_saved ? new_array(state, FLOAT64, 2, shape) : NULL;
    if (!needs_saved && call.rows > FEW)
        many = malloc((size_t)(shape[0] * shape[1]) * sizeof(double));
    call.saved = needs_saved ? memory_of(statistics) : many ? many : few;
    call.out = memory_of(y);
    void *copies[2] = {NULL, NULL};
    end_t end = NO_MEMORY;
    if (call.saved && (needs_saved || many || call.rows <= FEW) &&
        set_parameter(gamma, &call.gamma, &copies[0]) &&
        set_parameter(beta, &call.beta, &copies[1]))
        end = run(run_forward, &call);
    free(copies[0]);
    free(copies[1]);
    free(many);
    PyObject *results = NULL;
    if (is_done(end) && !needs_saved)
        return y;
    if (end == DONE) {
        PyObject *beta_dtype = beta->memory ? state->objects[DTYPES + beta->type] : Py_None;
        PyObject *fields[FIELDS] = {Py_NewRef(a[X]),       Py_NewRef(a[GAMMA]),
                                    Py_NewRef(beta_dtype), Py_BuildValue("(i)", last),
                                    Py_NewRef(settings->object), statistics};
        PyObject *saved = new_saved(state, fields);
        results = saved ? PyTuple_Pack(2, y, saved) : NULL;
        Py_XDECREF(saved);
    } else {
        Py_XDECREF(statistics);
    }
    Py_DECREF(y);
    return results;
}

PyObject *entry_forward(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    state_t *state = PyModule_GetState(module);
    if (!has_arguments(count, NEEDS_SAVED + 1))
        return NULL;
    settings_t settings = {.centred = arguments[NORM] == state->objects[LAYER_NORM]};
    if (state->new_from_descr == NULL || arguments[STREAM] != Py_None ||
        !settings_of_forward(state, arguments[NORM], arguments[EPS], arguments[ROUNDING],
                             arguments[BACKEND], arguments[THREADS], &settings))
        return or_declined(NULL);
    int threads = 0;
    if (learn_bfloat16(state, arguments[X]) && learn_bfloat16(state, arguments[GAMMA]) &&
        learn_bfloat16(state, arguments[BETA]))
        threads = threads_of(state, settings.limit, arguments[X]);
    PyObject *results = NULL;
    if (threads && arithmetic_is_ieee())
        results = forward(state, arguments, &settings, threads);
    Py_DECREF(settings.object);
    return or_declined(results);
}

/* ---- backward ---- */

/* Arguments of `backward` and `backward_partial`. */
enum { B_NORM, DY, SAVED, B_OUT, B_BACKEND, B_THREADS, B_STREAM, B_ARGUMENTS };

/* A backward pass: the fields of `saved`, its settings and arrays. */
typedef struct {
    PyObject *fields[FIELDS];
    settings_t settings;
    view_t views[4]; /* dy, x, gamma, statistics */
    int beta_type;   /* TYPES without beta */
    PyObject *dx;
    call_t call;
    void *copy; /* of gamma */
} pass_t;

/* Take the fields of a Saved. Another thread may replace them during the call. */
static bool take_fields(const state_t *state, PyObject *saved, PyObject *fields[FIELDS])
{
    if ((PyObject *)Py_TYPE(saved) != state->objects[SAVED_TYPE])
        return false;
    PyObject *dictionary = PyObject_GenericGetDict(saved, NULL);
    bool is_complete = dictionary != NULL;
    for (int k = 0; k < FIELDS && is_complete; k++) {
        fields[k] = PyDict_GetItemWithError(dictionary, state->objects[FIELD_NAMES + k]);
        Py_XINCREF(fields[k]);
        is_complete = fields[k] != NULL;
    }
    Py_XDECREF(dictionary);
    return is_complete;
}

/* Read the arrays of a pass and find the array for dx. Return False if the call is declined, or
   with an error set. */
static bool read_pass(const state_t *state, PyObject *const *a, pass_t *pass, int threads)
{
    view_t *dy = &pass->views[0], *x = &pass->views[1], *gamma = &pass->views[2],
           *statistics = &pass->views[3];
    PyObject **fields = pass->fields, *axes = fields[SAVED_AXES];
    const array_t *rows = (const array_t *)fields[SAVED_X];
    if (!read_array(state, fields[SAVED_X], x) || rows->nd < 1 || x->bytes == 0 ||
        !PyTuple_Check(axes) || PyTuple_Size(axes) != 1 ||
        !is_last_axis(PyTuple_GetItem(axes, 0), rows->nd))
        return false;
    call_t *call = &pass->call;
    *call = call_on(rows, x, &pass->settings, threads);
    PyObject *beta_dtype = fields[SAVED_BETA_DTYPE];
    pass->beta_type = beta_dtype == Py_None ? TYPES : type_of(state, beta_dtype);
    if (beta_dtype != Py_None &&
        (pass->beta_type == TYPES || (pass->beta_type == FLOAT64) != (x->type == FLOAT64)))
        return false;
    if (!read_like(state, a[DY], rows, dy) ||
        !read_parameter(state, fields[SAVED_GAMMA], x->type, call->size, gamma) ||
        !read_array(state, fields[STATISTICS], statistics) || statistics->type != FLOAT64 ||
        statistics->bytes != call->rows * saved_numbers(call) * (Py_ssize_t)sizeof(double))
        return false;
    pass->dx = output_for(state, a[B_OUT], rows, x->type, pass->views, 4);
    if (pass->dx == NULL)
        return false;
    call->dy = dy->memory;
    call->out = memory_of(pass->dx);
    call->saved = (double *)(void *)statistics->memory;
    return is_done(set_parameter(gamma, &call->gamma, &pass->copy) ? DONE : NO_MEMORY);
}

/* Begin a backward pass: read settings, saved state and arrays. Return False as `read_pass`. */
static bool begin(PyObject *module, PyObject *const *a, Py_ssize_t count, pass_t *pass)
{
    state_t *state = PyModule_GetState(module);
    *pass = (pass_t){.copy = NULL};
    if (!has_arguments(count, B_ARGUMENTS) || state->new_from_descr == NULL ||
        a[B_STREAM] != Py_None || !take_fields(state, a[SAVED], pass->fields))
        return false;
    pass->settings.centred = a[B_NORM] == state->objects[LAYER_NORM];
    if (!settings_of_backward(state, pass->fields[SAVED_SETTINGS], a[B_BACKEND], a[B_THREADS],
                              &pass->settings) ||
        !learn_bfloat16(state, a[DY]) || !learn_bfloat16(state, pass->fields[SAVED_GAMMA]))
        return false;
    int threads = threads_of(state, pass->settings.limit, pass->fields[SAVED_X]);
    return threads && arithmetic_is_ieee() && read_pass(state, a, pass, threads);
}

static void finish(pass_t *pass)
{
    for (int k = 0; k < FIELDS; k++)
        Py_XDECREF(pass->fields[k]);
    Py_XDECREF(pass->dx);
    free(pass->copy);
}

/* Return an array for dgamma or dbeta, None without a type, or NULL with an error set. */
static PyObject *new_gradient(const state_t *state, int type, Py_ssize_t size)
{
    return type == TYPES ? Py_NewRef(Py_None) : new_array(state, type, 1, &size);
}

PyObject *entry_backward(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    state_t *state = PyModule_GetState(module);
    pass_t pass;
    PyObject *gradients = NULL;
    if (begin(module, arguments, count, &pass)) {
        call_t *call = &pass.call;
        const view_t *gamma = &pass.views[2];
        int gamma_type = gamma->memory ? gamma->type : TYPES;
        PyObject *dgamma = new_gradient(state, gamma_type, call->size);
        PyObject *dbeta = new_gradient(state, pass.beta_type, call->size);
        call->dgamma = memory_of(dgamma);
        call->dbeta = memory_of(dbeta);
        call->dgamma_type = gamma->type;
        call->dbeta_type = pass.beta_type == TYPES ? call->type : pass.beta_type;
        if (call->fast && call->gamma == NULL)
            call->gamma = pass.copy = ones(call->size, call->type);
        bool has_memory = dgamma && dbeta && (!call->fast || call->gamma);
        if (is_done(has_memory ? run(run_backward, call) : NO_MEMORY)) {
            gradients = state->new_gradients((PyTypeObject *)state->objects[GRADIENTS_TYPE], 3);
            if (gradients != NULL) { /* the new tuple takes the references */
                PyTuple_SetItem(gradients, 0, Py_NewRef(pass.dx));
                PyTuple_SetItem(gradients, 1, Py_NewRef(dgamma));
                PyTuple_SetItem(gradients, 2, Py_NewRef(dbeta));
            }
        }
        Py_XDECREF(dgamma);
        Py_XDECREF(dbeta);
    }
    finish(&pass);
    return or_declined(gradients);
}

PyObject *entry_backward_partial(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    pass_t pass;
    PyObject *results = NULL;
    if (begin(module, arguments, count, &pass) && !pass.call.fast && pass.call.type != FLOAT64) {
        partial_t partial = {.has_dbeta = pass.beta_type != TYPES};
        pass.call.partial = &partial;
        if (is_done(run(run_partial, &pass.call))) {
            PyObject *dgamma = tuple_of_fixed_point(partial.dgamma, pass.call.size + 1);
            PyObject *dbeta = tuple_of_fixed_point(partial.dbeta, pass.call.size);
            results = dgamma && dbeta ? PyTuple_Pack(3, pass.dx, dgamma, dbeta) : NULL;
            Py_XDECREF(dgamma);
            Py_XDECREF(dbeta);
        }
        free(partial.memory);
    }
    finish(&pass);
    return or_declined(results);
}

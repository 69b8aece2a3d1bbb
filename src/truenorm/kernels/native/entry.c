/* The entry of whole calls: from the arguments of a public function to its results.

   Fast-path arrays are ndarrays of matching shapes and types, and rows lie along the last axes.
   Plain ones, which are C-contiguous, aligned and in native byte order, are read and written in
   place. Of others, and of inputs that overlap the result, plain copies are made if they are small;
   the driver copies large ones block by block. All other calls return NotImplemented: calls with
   other arrays or arguments, and calls whose results need the driver. The general path (api/run.py)
   then repeats the call, and raises the error if there is one.

   Arrays are read and made as code that was compiled with NumPy's headers does it: by the public
   fields of an array, and by the table of functions of the C API. docs/inside/engine.md says why.
   Fields are read while the interpreter's lock is held, and after the last call of Python code. */
#include "module.h"

#include <math.h>
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

/* The first fields of PyArray_Descr. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *typeobj;
    char kind, type, byteorder;
} descr_t;

enum { NUMPY_ABI = 0x02000000, GET_ABI = 0, COPY_INTO = 50, NEW_FROM_DESCR = 94, FROM_ARRAY = 109 };
/* The sign bit of the flags asks for a warning before a write. */
enum { C_CONTIGUOUS = 0x1, ALIGNED = 0x100, WRITEABLE = 0x400 };

typedef unsigned int (*get_abi_t)(void);
typedef int (*copy_into_t)(PyObject *, PyObject *);
typedef PyObject *(*from_array_t)(PyObject *, PyObject *, int);
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
    COPIED_AT_MOST = 1 << 18,      /* elements: a block of the driver */
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
    copy_into_t copy_into;
    from_array_t from_array;
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
    state->copy_into = (copy_into_t)api[COPY_INTO];
    state->from_array = (from_array_t)api[FROM_ARRAY];
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

/* Addresses between which all elements of an array lie. */
typedef struct {
    uintptr_t start, stop;
} span_t;

/* The memory of a fast-path array or of its plain copy, or none: then it is NULL. */
typedef struct {
    char *memory;
    Py_ssize_t bytes;
    int type;
    PyObject *owner; /* of the memory; the caller releases it */
    span_t span;     /* of the array itself */
} view_t;

static const Py_ssize_t item_bytes[TYPES] = {4, 2, 2, 8};

static void release(view_t *views, int count)
{
    for (int k = 0; k < count; k++)
        Py_CLEAR(views[k].owner);
}

/* Dtypes that are equal may be different objects, as those of unpickled arrays are: their class
   decides. */
static int type_of(const state_t *state, PyObject *descr)
{
    int type = 0;
    while (type < TYPES && Py_TYPE(descr) != Py_TYPE(state->objects[DTYPES + type]))
        type++;
    return type;
}

static bool is_native(const PyObject *descr)
{
    char order = ((const descr_t *)descr)->byteorder;
    return order == '=' || order == '|' ||
           order == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>');
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

static Py_ssize_t elements_of(const array_t *array)
{
    Py_ssize_t elements = 1;
    for (int k = 0; k < array->nd; k++)
        elements *= array->dimensions[k];
    return elements;
}

static bool is_plain(const array_t *array, int type)
{
    return (array->flags & C_CONTIGUOUS) && is_native(array->descr) &&
           (uintptr_t)array->data % (uintptr_t)item_bytes[type] == 0;
}

static span_t span_of(const array_t *array, int type)
{
    uintptr_t data = (uintptr_t)array->data;
    span_t span = {data, data + (uintptr_t)item_bytes[type]};
    for (int k = 0; k < array->nd; k++) {
        Py_ssize_t length = array->dimensions[k], stride = array->strides[k];
        if (length == 0)
            return (span_t){data, data};
        *(stride < 0 ? &span.start : &span.stop) += (uintptr_t)(stride * (length - 1));
    }
    return span;
}
static bool are_apart(span_t a, span_t b) { return a.stop <= b.start || b.stop <= a.start; }

/* True if the axes of an array lie in memory in C order, with gaps or without: then no elements
   share memory. */
static bool is_in_order(const array_t *array, int type)
{
    Py_ssize_t extent = item_bytes[type];
    for (int k = array->nd; k-- > 0;) {
        Py_ssize_t length = array->dimensions[k];
        if (length > 1 && array->strides[k] < extent)
            return false;
        if (length > 0)
            extent += (length - 1) * array->strides[k];
    }
    return true;
}

/* Read an array, or a plain copy of a small one. Return False if it is no fast-path array, or with
   an error set. */
static bool read_array(const state_t *state, PyObject *object, view_t *view)
{
    *view = (view_t){.memory = NULL};
    if (!is_array(state, object))
        return false;
    const array_t *array = (const array_t *)object;
    int type = type_of(state, array->descr);
    if (type == TYPES)
        return false;
    Py_ssize_t elements = elements_of(array);
    PyObject *owner = NULL;
    if (is_plain(array, type))
        owner = Py_NewRef(object);
    else if (elements <= COPIED_AT_MOST) /* from_array takes the reference to the dtype */
        owner = state->from_array(object, Py_NewRef(state->objects[DTYPES + type]),
                                  C_CONTIGUOUS | ALIGNED);
    if (owner != NULL)
        *view = (view_t){((array_t *)owner)->data, elements * item_bytes[type], type, owner,
                         span_of(array, type)};
    return owner != NULL;
}

static bool has_shape(const array_t *array, int nd, const Py_ssize_t *shape)
{
    return array->nd == nd && memcmp(array->dimensions, shape, (size_t)nd * sizeof *shape) == 0;
}

/* Read gamma or beta, or None, of the shape of the normalized axes. */
static bool read_parameter(const state_t *state, PyObject *object, int nd, const Py_ssize_t *shape,
                           view_t *view)
{
    *view = (view_t){.type = TYPES};
    return object == Py_None || (read_array(state, object, view) &&
                                 has_shape((const array_t *)object, nd, shape));
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

/* The array that a call returns for y or dx, and the one it is computed in: another one if the
   first is not plain. */
typedef struct {
    PyObject *returned, *computed;
} result_t;

static void drop_result(result_t *result)
{
    Py_CLEAR(result->returned);
    Py_CLEAR(result->computed);
}

/* Store the results where they are returned. Return False with an error set. */
static bool finish_result(const state_t *state, const result_t *result)
{
    return result->returned == result->computed ||
           state->copy_into(result->returned, result->computed) == 0;
}

/* Find the array for y or dx: `out` or, if that is None, a new array like x. A small result that
   overlaps an input, which a declined call reads again, is computed in another array. Return False
   if `out` is declined, or with an error set. */
static bool find_result(const state_t *state, PyObject *out, const array_t *x, int type,
                        const view_t *inputs, int count, bool may_overlap, result_t *result)
{
    if (out == Py_None) {
        result->returned = new_array(state, type, x->nd, x->dimensions);
        result->computed = Py_XNewRef(result->returned);
        return result->returned != NULL;
    }
    if (!is_array(state, out))
        return false;
    const array_t *array = (const array_t *)out;
    if (type_of(state, array->descr) != type || !has_shape(array, x->nd, x->dimensions) ||
        array->flags < 0 || !(array->flags & WRITEABLE) || !is_in_order(array, type))
        return false;
    bool is_apart = true;
    for (int k = 0; k < count; k++)
        is_apart &= are_apart(span_of(array, type), inputs[k].span);
    bool is_in_place = is_apart && is_plain(array, type);
    if ((!is_apart && !may_overlap) || (!is_in_place && elements_of(array) > COPIED_AT_MOST))
        return false;
    result->returned = Py_NewRef(out);
    result->computed =
        is_in_place ? Py_NewRef(out) : new_array(state, type, x->nd, x->dimensions);
    return result->computed != NULL;
}

/* Return the number of threads of a call on rows like x, or 0 with an error set. */
static int threads_of(state_t *state, long limit, PyObject *x)
{
    if (!is_array(state, x) || elements_of((array_t *)x) < SINGLE_THREAD_BELOW)
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
    if (call->rows == 0)
        return DONE;
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

static double number_at(const view_t *view, size_t j)
{
    const void *memory = view->memory;
    switch (view->type) {
    case FLOAT32:
        return ((const float *)memory)[j];
    case FLOAT64:
        return ((const double *)memory)[j];
    case FLOAT16:
        return float_of_float16(((const uint16_t *)memory)[j]);
    default:
        return float_of_bfloat16(((const uint16_t *)memory)[j]);
    }
}

/* Store the memory of a parameter as the core takes it: as float64 or float32 numbers. Return False
   if there is no memory for the copy, which the caller frees. */
static bool set_parameter(const view_t *view, bool is_double, const void **parameter, void **copy)
{
    *parameter = view->memory;
    if (view->memory == NULL || view->type == (is_double ? FLOAT64 : FLOAT32))
        return true;
    size_t size = (size_t)(view->bytes / item_bytes[view->type]);
    *parameter = *copy = malloc(size * (is_double ? sizeof(double) : sizeof(float)));
    for (size_t j = 0; *copy != NULL && j < size; j++) {
        if (is_double)
            ((double *)*copy)[j] = number_at(view, j);
        else
            ((float *)*copy)[j] = (float)number_at(view, j);
    }
    return *copy != NULL;
}

/* True if the numbers of a parameter lie in the range of float32, zeros included: the bounds of
   narrower rows hold for these. */
static bool fits_narrow_rows(const view_t *view)
{
    size_t size = view->type == FLOAT64 ? (size_t)view->bytes / sizeof(double) : 0;
    bool fits = true;
    for (size_t j = 0; j < size; j++) {
        double number = fabs(number_at(view, j));
        fits &= number == 0 || (0x1p-149 <= number && number < 0x1p128);
    }
    return fits;
}

/* Decide what parameters a call on rows of its type has. Return False if the call is declined. */
static bool set_types(call_t *call, const view_t *gamma, const view_t *beta)
{
    if (call->type == FLOAT64)
        return true;
    call->wide = gamma->type == FLOAT64 || beta->type == FLOAT64;
    call->fast &= !call->wide;
    return fits_narrow_rows(gamma) && fits_narrow_rows(beta);
}
static bool has_doubles(const call_t *call) { return call->wide || call->type == FLOAT64; }

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

/* The rows of an array lie along its last axes, from `first` on. */
typedef struct {
    const array_t *array;
    int first;
    int64_t count, size;
} rows_t;

/* Read an axis, an int or a tuple of them, and find the rows of x. Return False if they do not lie
   along the last axes, or are empty. */
static bool read_rows(const state_t *state, PyObject *x, PyObject *axis, rows_t *rows)
{
    if (!is_array(state, x))
        return false;
    bool is_tuple = PyTuple_CheckExact(axis);
    Py_ssize_t count = is_tuple ? PyTuple_Size(axis) : 1;
    *rows = (rows_t){.array = (const array_t *)x, .count = 1, .size = 1};
    int nd = rows->array->nd, overflow;
    if (count < 1 || count > nd)
        return false;
    rows->first = nd - (int)count;
    uint64_t seen = 0; /* NumPy's arrays have at most 64 axes */
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *item = is_tuple ? PyTuple_GetItem(axis, k) : axis;
        if (!PyLong_CheckExact(item))
            return false;
        long value = PyLong_AsLongAndOverflow(item, &overflow);
        value += value < 0 ? nd : 0;
        if (overflow || value < rows->first || value >= nd || (seen >> value & 1))
            return false;
        seen |= UINT64_C(1) << value;
    }
    for (int k = 0; k < nd; k++)
        *(k < rows->first ? &rows->count : &rows->size) *= rows->array->dimensions[k];
    return rows->size > 0;
}
static int row_axes(const rows_t *rows) { return rows->array->nd - rows->first; }
static const Py_ssize_t *row_shape(const rows_t *rows)
{
    return rows->array->dimensions + rows->first;
}

static call_t call_on(const rows_t *rows, const view_t *x, const settings_t *settings, int threads)
{
    return (call_t){.x = x->memory,
                    .type = x->type,
                    .rows = rows->count,
                    .size = rows->size,
                    .eps = settings->eps,
                    .bound_scale = bound_scale,
                    .centred = settings->centred,
                    .fast = settings->fast,
                    .threads = threads};
}

static int64_t saved_numbers(const call_t *call) { return call->centred ? 3 : 1; }

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

/* Return the axes of rows. */
static PyObject *axes_of(const rows_t *rows)
{
    int count = row_axes(rows);
    if (count == 1)
        return Py_BuildValue("(i)", rows->first);
    PyObject *axes = PyTuple_New(count);
    for (int k = 0; axes != NULL && k < count; k++) {
        PyObject *axis = PyLong_FromLong(rows->first + k);
        if (axis == NULL || PyTuple_SetItem(axes, k, axis) != 0)
            Py_CLEAR(axes);
    }
    return axes;
}

/* Compute y and the statistics of rows. Return how the call ended. */
static end_t compute_forward(call_t *call, const view_t *gamma, const view_t *beta)
{
    enum { FEW = 64 };
    double few[3 * FEW], *many = NULL;
    void *copies[2] = {NULL, NULL};
    end_t end = NO_MEMORY;
    if (call->saved == NULL && call->rows > FEW)
        many = malloc((size_t)(call->rows * saved_numbers(call)) * sizeof(double));
    bool has_room = call->saved != NULL || call->rows <= FEW || many != NULL;
    if (call->saved == NULL)
        call->saved = many ? many : few;
    if (has_room && set_parameter(gamma, has_doubles(call), &call->gamma, &copies[0]) &&
        set_parameter(beta, has_doubles(call), &call->beta, &copies[1]))
        end = run(run_forward, call);
    free(copies[0]);
    free(copies[1]);
    free(many);
    return end;
}

/* Return y or (y, saved), or NULL if the call is declined or with an error set. The caller
   releases the views, which are of x, gamma and beta, and the result. */
static PyObject *forward(state_t *state, PyObject *const *a, const settings_t *settings,
                         int threads, view_t *views, result_t *result)
{
    view_t *x = &views[0], *gamma = &views[1], *beta = &views[2];
    bool needs_saved = a[NEEDS_SAVED] == Py_True;
    rows_t rows;
    if (!read_rows(state, a[X], a[AXIS], &rows) || !read_array(state, a[X], x) ||
        !read_parameter(state, a[GAMMA], row_axes(&rows), row_shape(&rows), gamma) ||
        !read_parameter(state, a[BETA], row_axes(&rows), row_shape(&rows), beta))
        return NULL;
    call_t call = call_on(&rows, x, settings, threads);
    if (!set_types(&call, gamma, beta) ||
        !find_result(state, a[OUT], rows.array, x->type, views, 3, !needs_saved, result))
        return NULL;
    call.out = memory_of(result->computed);
    Py_ssize_t shape[2] = {call.rows, saved_numbers(&call)};
    PyObject *statistics = needs_saved ? new_array(state, FLOAT64, 2, shape) : NULL;
    if (needs_saved && statistics == NULL)
        return NULL;
    call.saved = memory_of(statistics);
    if (!is_done(compute_forward(&call, gamma, beta)) || !finish_result(state, result)) {
        Py_XDECREF(statistics);
        return NULL;
    }
    if (!needs_saved)
        return Py_NewRef(result->returned);
    PyObject *beta_dtype = beta->memory ? state->objects[DTYPES + beta->type] : Py_None;
    PyObject *fields[FIELDS] = {Py_NewRef(a[X]),       Py_NewRef(a[GAMMA]),
                                Py_NewRef(beta_dtype), axes_of(&rows),
                                Py_NewRef(settings->object), statistics};
    PyObject *saved = new_saved(state, fields);
    PyObject *results = saved ? PyTuple_Pack(2, result->returned, saved) : NULL;
    Py_XDECREF(saved);
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
    view_t views[3] = {{.memory = NULL}};
    result_t result = {NULL, NULL};
    if (threads && arithmetic_is_ieee())
        results = forward(state, arguments, &settings, threads, views, &result);
    release(views, 3);
    drop_result(&result);
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
    rows_t rows;
    result_t dx;
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
    PyObject **fields = pass->fields, *beta_dtype = fields[SAVED_BETA_DTYPE];
    rows_t *rows = &pass->rows;
    if (!read_rows(state, fields[SAVED_X], fields[SAVED_AXES], rows) ||
        !read_array(state, fields[SAVED_X], x) || !read_array(state, a[DY], dy) ||
        dy->type != x->type ||
        !has_shape((const array_t *)a[DY], rows->array->nd, rows->array->dimensions) ||
        !read_parameter(state, fields[SAVED_GAMMA], row_axes(rows), row_shape(rows), gamma))
        return false;
    call_t *call = &pass->call;
    *call = call_on(rows, x, &pass->settings, threads);
    pass->beta_type = beta_dtype == Py_None ? TYPES : type_of(state, beta_dtype);
    const view_t beta = {.type = pass->beta_type};
    if ((beta_dtype != Py_None && pass->beta_type == TYPES) || !set_types(call, gamma, &beta) ||
        !read_array(state, fields[STATISTICS], statistics) || statistics->type != FLOAT64 ||
        statistics->bytes != call->rows * saved_numbers(call) * (Py_ssize_t)sizeof(double) ||
        !find_result(state, a[B_OUT], rows->array, x->type, pass->views, 4, false, &pass->dx))
        return false;
    call->dy = dy->memory;
    call->out = memory_of(pass->dx.computed);
    call->saved = (double *)(void *)statistics->memory;
    return is_done(
        set_parameter(gamma, has_doubles(call), &call->gamma, &pass->copy) ? DONE : NO_MEMORY);
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
    release(pass->views, 4);
    drop_result(&pass->dx);
    free(pass->copy);
}

/* Return an array for dgamma or dbeta, None without a type, or NULL with an error set. */
static PyObject *new_gradient(const state_t *state, int type, const rows_t *rows)
{
    if (type == TYPES)
        return Py_NewRef(Py_None);
    PyObject *gradient = new_array(state, type, row_axes(rows), row_shape(rows));
    if (gradient != NULL && rows->count == 0)
        memset(memory_of(gradient), 0, (size_t)(rows->size * item_bytes[type]));
    return gradient;
}

PyObject *entry_backward(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    state_t *state = PyModule_GetState(module);
    pass_t pass;
    PyObject *gradients = NULL;
    if (begin(module, arguments, count, &pass)) {
        call_t *call = &pass.call;
        int gamma_type = pass.views[2].type;
        PyObject *dgamma = new_gradient(state, gamma_type, &pass.rows);
        PyObject *dbeta = new_gradient(state, pass.beta_type, &pass.rows);
        call->dgamma = memory_of(dgamma);
        call->dbeta = memory_of(dbeta);
        call->dgamma_type = gamma_type;
        call->dbeta_type = pass.beta_type;
        if (call->fast && call->gamma == NULL)
            call->gamma = pass.copy = ones(call->size, call->type);
        bool has_memory = dgamma && dbeta && (!call->fast || call->gamma);
        if (is_done(has_memory ? run(run_backward, call) : NO_MEMORY) &&
            finish_result(state, &pass.dx)) {
            gradients = state->new_gradients((PyTypeObject *)state->objects[GRADIENTS_TYPE], 3);
            if (gradients != NULL) { /* the new tuple takes the references */
                PyTuple_SetItem(gradients, 0, Py_NewRef(pass.dx.returned));
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
    state_t *state = PyModule_GetState(module);
    pass_t pass;
    PyObject *results = NULL;
    if (begin(module, arguments, count, &pass) && !pass.call.fast && !has_doubles(&pass.call) &&
        pass.call.rows > 0) {
        partial_t partial = {.has_dbeta = pass.beta_type != TYPES};
        pass.call.partial = &partial;
        if (is_done(run(run_partial, &pass.call)) && finish_result(state, &pass.dx)) {
            PyObject *dgamma = tuple_of_fixed_point(partial.dgamma, pass.call.size + 1);
            PyObject *dbeta = tuple_of_fixed_point(partial.dbeta, pass.call.size);
            results = dgamma && dbeta ? PyTuple_Pack(3, pass.dx.returned, dgamma, dbeta) : NULL;
            Py_XDECREF(dgamma);
            Py_XDECREF(dbeta);
        }
        free(partial.memory);
    }
    finish(&pass);
    return or_declined(results);
}

/* What the two files of the extension module share: see `module.c` and `entry.c`. */
#ifndef TRUENORM_MODULE_H
#define TRUENORM_MODULE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core.h"

extern double bound_scale; /* of all calls; see `scale_bounds` */

bool has_arguments(Py_ssize_t count, Py_ssize_t expected);
bool is_supported_eps(double eps);
PyObject *tuple_of_fixed_point(fixed_point_t number, int64_t columns);

/* entry.c: functions of the module, and its state. */
typedef PyObject *function_t(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
function_t entry_connect, entry_forward, entry_backward, entry_backward_partial;
extern const Py_ssize_t size_of_state;
int traverse_state(PyObject *module, visitproc visit, void *argument);
int clear_state(PyObject *module);

#endif

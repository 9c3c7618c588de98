/* Loops over the records of a batch, compiled: the same results as the Python functions beside them.
 *
 *   walk_part(data, at, first, last)  as `records.walk.walk_in_python`
 *   places(Place, data, count)        as `records.filter.places_in_python`
 *
 * Both return None for anything unusual; the Python code then finds the reason. The bytes come from
 * clients: every read is checked against the end of the data, and no length is added to a position
 * before it is compared with what is left. tests/records/test_native.py compares both builds on
 * damaged batches.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* A varint of 64 bits has at most ten bytes. */
#define VARINT_BITS_MAX 70

/* Batches of more records are walked in a thread of their own: others may run Python meanwhile.
 * Below, the change of threads would take longer than the walk. */
#define RECORDS_HELD_MAX 4096

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Reader;

/* Read a zigzag varint; 0 if the data ends inside it or it is too long. */
static int read_varint(Reader *reader, int64_t *value)
{
    uint64_t bits = 0;
    for (int shift = 0; shift < VARINT_BITS_MAX; shift += 7) {
        if (reader->at >= reader->end)
            return 0;
        uint8_t byte = *reader->at++;
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return 1;
        }
    }
    return 0;
}

/* Skip `count` bytes; 0 if fewer are left. A negative count is a null field of no bytes. */
static int skip(Reader *reader, int64_t count)
{
    if (count > reader->end - reader->at)
        return 0;
    if (count > 0)
        reader->at += count;
    return 1;
}

/* Skip a key or value; a null one must be -1 in one byte. */
static int skip_field(Reader *reader, int *is_null)
{
    const uint8_t *start = reader->at;
    int64_t length;
    if (!read_varint(reader, &length))
        return 0;
    *is_null = length < 0;
    if (*is_null && *start != 1)
        return 0;
    return skip(reader, length);
}

static int skip_headers(Reader *reader)
{
    int64_t count, length;
    if (!read_varint(reader, &count) || count < 0 || count > reader->end - reader->at)
        return 0;
    for (; count > 0; count--) {
        if (!read_varint(reader, &length) || length < 0 || !skip(reader, length))
            return 0;
        if (!read_varint(reader, &length) || !skip(reader, length))
            return 0;
    }
    return 1;
}

/* Offset deltas of one and two bytes must have exactly that many. */
static int is_offset_delta(Reader *reader, int64_t index)
{
    const uint8_t *start = reader->at;
    int64_t delta;
    if (!read_varint(reader, &delta) || delta != index)
        return 0;
    if (index < 1 << 6)
        return reader->at - start == 1;
    return index >= 1 << 13 || reader->at - start == 2;
}

typedef struct {
    int64_t low;
    int64_t high;
    int64_t keyless;
} Found;

static int walk_one(Reader *reader, int64_t index, Found *found)
{
    int64_t length, delta;
    int is_keyless, has_no_value;
    if (!read_varint(reader, &length) || length < 0 || length > reader->end - reader->at)
        return 0;
    const uint8_t *end = reader->at + length;
    if (!skip(reader, 1) || !read_varint(reader, &delta) || !is_offset_delta(reader, index))
        return 0;
    if (!skip_field(reader, &is_keyless) || !skip_field(reader, &has_no_value))
        return 0;
    if (!skip_headers(reader) || reader->at != end)
        return 0;
    if (delta < found->low)
        found->low = delta;
    if (delta > found->high)
        found->high = delta;
    found->keyless += is_keyless;
    return 1;
}

static int walk_all(Reader *reader, int64_t first, int64_t last, Found *found)
{
    for (int64_t index = first; index < last; index++)
        if (!walk_one(reader, index, found))
            return 0;
    return 1;
}

static PyObject *walk_part(PyObject *module, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t at;
    long long first, last;
    if (!PyArg_ParseTuple(args, "y*nLL:walk_part", &data, &at, &first, &last))
        return NULL;
    int usual = at >= 0 && at <= data.len && first >= 0 && first < last;
    const uint8_t *start = data.buf;
    Found found = {INT64_MAX, INT64_MIN, 0};
    if (usual) {
        Reader reader = {start + at, start + data.len};
        if (last - first > RECORDS_HELD_MAX) {
            Py_BEGIN_ALLOW_THREADS
            usual = walk_all(&reader, first, last, &found);
            Py_END_ALLOW_THREADS
        } else {
            usual = walk_all(&reader, first, last, &found);
        }
        at = reader.at - start;
    }
    PyBuffer_Release(&data);
    if (!usual)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "nLLL", at, (long long)found.low, (long long)found.high, (long long)found.keyless);
}

/* One record as a `Place`; NULL without an exception if it is not usual. */
static PyObject *place_of(Reader *reader, const uint8_t *data, PyTypeObject *type)
{
    int64_t length, delta, offset_delta, key_length;
    const uint8_t *start = reader->at;
    if (!read_varint(reader, &length) || length < 0 || length > reader->end - reader->at)
        return NULL;
    const uint8_t *end = reader->at + length;
    if (!skip(reader, 1) || !read_varint(reader, &delta))
        return NULL;
    const uint8_t *rest = reader->at;
    if (!read_varint(reader, &offset_delta) || !read_varint(reader, &key_length))
        return NULL;
    const uint8_t *key = reader->at;
    if (!skip(reader, key_length) || reader->at >= end)
        return NULL;
    int has_value = !(*reader->at & 1); /* a negative length is odd */
    reader->at = end;
    PyObject *fields = Py_BuildValue(
        "(nnnLLy#O)", start - data, rest - data, end - data, (long long)delta,
        (long long)offset_delta, key_length < 0 ? NULL : (const char *)key,
        (Py_ssize_t)(key_length < 0 ? 0 : key_length), has_value ? Py_True : Py_False);
    if (fields == NULL)
        return NULL;
    PyObject *arguments = PyTuple_Pack(1, fields);
    PyObject *place = arguments == NULL ? NULL : PyTuple_Type.tp_new(type, arguments, NULL);
    Py_XDECREF(arguments);
    Py_DECREF(fields);
    return place;
}

static PyObject *places_of(Reader *reader, const uint8_t *data, PyTypeObject *type, int64_t count)
{
    PyObject *found = PyList_New(0);
    for (; found != NULL && count > 0; count--) {
        PyObject *place = place_of(reader, data, type);
        if (place == NULL || PyList_Append(found, place) < 0)
            Py_CLEAR(found);
        Py_XDECREF(place);
    }
    if (found != NULL && reader->at != reader->end)
        Py_CLEAR(found);
    return found;
}

static PyObject *places(PyObject *module, PyObject *args)
{
    PyTypeObject *type;
    Py_buffer data;
    long long count;
    if (!PyArg_ParseTuple(args, "O!y*L:places", &PyType_Type, &type, &data, &count))
        return NULL;
    PyObject *found = NULL;
    if (!PyType_IsSubtype(type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "a place is a named tuple");
    } else {
        Reader reader = {data.buf, (const uint8_t *)data.buf + data.len};
        found = places_of(&reader, data.buf, type, count);
    }
    PyBuffer_Release(&data);
    if (found == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return found;
}

static PyMethodDef methods[] = {
    {"walk_part", walk_part, METH_VARARGS, "Walk records; see records.walk."},
    {"places", places, METH_VARARGS, "Find the places of records; see records.filter."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "native", "Compiled loops over records.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_native(void)
{
    return PyModule_Create(&definition);
}

#pragma once

#include <nanobind/nanobind.h>

#include "bindings/name_of_type.h"

namespace heddle::python {

namespace nb = nanobind;

/// One of the named tuples of heddle._arguments, found when it is first used (with the GIL
/// held).
class TupleType {
 public:
  constexpr explicit TupleType(const char* name) : name_(name) {}
  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] bool holds(nb::handle object);

 private:
  const char* name_;
  PyTypeObject* type_ = nullptr;  // kept to the end of the process
};

/// The fields of an argument that is such a tuple, one after the other, in the order in which
/// heddle._arguments declares them.
class TupleFields {
 public:
  /// TypeError, with the argument's name, for anything else than a tuple of `type`.
  TupleFields(const char* argument, nb::handle object, TupleType& type);

  [[nodiscard]] nb::handle next() { return PyTuple_GetItem(tuple_.ptr(), next_++); }

  /// The next field as a C++ value; `name` is the field's in the TypeError for one that is no such
  /// value.
  template <class Value>
  [[nodiscard]] Value next(const char* name) {
    const nb::handle field = next();
    Value value{};
    if (!nb::try_cast(field, value)) {
      nb::raise_type_error("%s is a %s", name, name_of_type(field).c_str());
    }
    return value;
  }

 private:
  nb::handle tuple_;
  Py_ssize_t next_ = 0;
};

}  // namespace heddle::python

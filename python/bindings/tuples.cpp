#include "bindings/tuples.h"

namespace heddle::python {

bool TupleType::holds(nb::handle object) {
  if (type_ == nullptr) {
    nb::object found = nb::module_::import_("heddle._arguments").attr(name_);
    type_ = reinterpret_cast<PyTypeObject*>(found.release().ptr());
  }
  return PyObject_TypeCheck(object.ptr(), type_) != 0;
}

TupleFields::TupleFields(const char* argument, nb::handle object, TupleType& type)
    : tuple_(object) {
  if (type.holds(object)) return;
  nb::raise_type_error("%s is a %s, expected a heddle.%s", argument, name_of_type(object).c_str(),
                       type.name());
}

}  // namespace heddle::python

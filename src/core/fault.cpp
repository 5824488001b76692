#include "heddle/core/fault.h"

namespace heddle {

std::string Fault::text() const {
  if (array == "plan") return op + ": the plan was never written, or is of another batch";
  return op + ": " + array + " holds " + std::to_string(value) + " for row " + std::to_string(row) +
         ", which is out of range";
}

}  // namespace heddle

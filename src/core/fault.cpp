#include "heddle/core/fault.h"

namespace heddle {

std::string Fault::text() const {
  return op + ": " + array + " holds " + std::to_string(value) + " for row " + std::to_string(row) +
         ", which is out of range";
}

}  // namespace heddle

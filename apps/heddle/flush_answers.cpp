#include "flush_answers.h"

#include <cerrno>
#include <system_error>

namespace heddle::app {

void flush_answers(std::ostream& out) {
  out.flush();
  if (!out.good()) throw std::system_error(errno, std::generic_category(), "cannot write answers");
}

}  // namespace heddle::app

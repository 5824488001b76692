#include "core/kernel_log.h"

#include <cstdio>

namespace heddle {

void write_kernel_log(const std::string& line) {
  const std::string text = "heddle: " + line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace heddle

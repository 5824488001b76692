// Any line of a prompts file is either a row or an Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "heddle/core/error.h"

#include "prompts_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  for (const bool raw : {false, true}) {
    try {
      const heddle::Request request = heddle::app::parse_row(line, "line", raw, 0);
      if (request.max_tokens < 1 || request.text.has_value() == !request.messages.empty()) {
        __builtin_trap();
      }
    } catch (const heddle::Error&) {
      // The row is refused.
    }
  }
  return 0;
}

// Any line of a prompts file is either a row or an Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "heddle/core/error.h"

#include "generate/row_parser.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  for (const bool raw : {false, true}) {
    try {
      heddle::app::Row row;
      heddle::app::parse_row(line, "line", {.raw = raw, .adapters = {"a"}, .base_names = {"m"}},
                             row);
      const heddle::Request& request = row.request;
      const int num_prompts = int{request.text.has_value()} + int{!request.messages.empty()} +
                              int{!request.messages_json.empty()};
      if (request.max_tokens < 1 || num_prompts != 1) {
        __builtin_trap();
      }
    } catch (const heddle::Error&) {
      // The row is refused.
    }
  }
  return 0;
}

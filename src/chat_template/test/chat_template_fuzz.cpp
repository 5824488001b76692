// Any text as template, any JSON as its variables: rendered or refused in one line, in bounded time
// and memory. The input is the template, a zero byte, the variables; without a zero byte a
// conversation stands in for these.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "chat_template/chat_template.h"
#include "testing/readers/tree_of.h"

namespace {

using nlohmann::ordered_json;

ordered_json variables_of(std::string_view text) {
  ordered_json given = ordered_json::parse(text, nullptr, false);
  if (given.is_object()) return given;
  return {{"messages",
           {{{"role", "user"}, {"content", " a\u00e9 </think> b\n"}},
            {{"role", "assistant"}, {"content", nullptr}}}},
          {"tools", {{{"name", "f"}, {"n", {1, 2.5, -3, true}}}}},
          {"add_generation_prompt", true}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view variables = end == input.npos ? "" : input.substr(end + 1);
  try {
    const auto chat_template = heddle::chat_template::ChatTemplate::parse(input.substr(0, end));
    (void)chat_template.render(*heddle::testing::tree_of(variables_of(variables)));
  } catch (const heddle::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}

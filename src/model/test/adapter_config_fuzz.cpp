// Any text as adapter_config.json: read or refused in one line, and what is read can be asked about
// every module.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "heddle/core/error.h"

#include "model/adapters/adapter_config.h"

namespace {

template <class Run>
void expect_one_line(const Run& run) {
  try {
    run();
  } catch (const heddle::Error& e) {
    if (std::string(e.what()).find('\n') != std::string::npos) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_one_line([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto config = heddle::model::parse_adapter_config(text, "input");
    for (const char* module :
         {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj"}) {
      expect_one_line([&] { (void)config.targets(module); });
      expect_one_line([&] {
        if (config.rank_of(module) < 1) std::abort();
      });
      expect_one_line([&] { (void)config.scale_of(module); });
    }
  });
  return 0;
}

// Any text as adapter_config.json: read or refused in one line, and what is read can be asked about
// every module.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/adapters/adapter_config.h"
#include "model/test/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::testing::expect_one_line([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto config = heddle::model::parse_adapter_config(text, "input");
    for (const char* module :
         {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj"}) {
      heddle::testing::expect_one_line([&] { (void)config.targets(module); });
      heddle::testing::expect_one_line([&] {
        if (config.rank_of(module) < 1) std::abort();
      });
      heddle::testing::expect_one_line([&] { (void)config.scale_of(module); });
    }
  });
  return 0;
}

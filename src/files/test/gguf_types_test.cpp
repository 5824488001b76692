#include "files/gguf_types.h"

#include <gtest/gtest.h>

namespace heddle::files {
namespace {

TEST(GgmlTypes, AgreeWithTheFormatsOfLinearLayers) {
  int supported = 0;
  for (uint32_t id = 0; id < 100; ++id) {
    const auto format = weight_type_of(id);
    if (!format) continue;
    ++supported;
    const GgmlType* type = find_ggml_type(id);
    ASSERT_NE(type, nullptr);
    EXPECT_STREQ(type->name, name(*format));
    EXPECT_EQ(type->block_weights, block_size(*format));
    EXPECT_EQ(static_cast<size_t>(type->block_bytes), stored_bytes(*format, type->block_weights));
  }
  EXPECT_EQ(supported, 11);
}

}  // namespace
}  // namespace heddle::files

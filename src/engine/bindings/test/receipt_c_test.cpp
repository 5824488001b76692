// Receipts, and adapters of memory, through C.
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "heddle/c_engine.h"

#include "engine/bindings/test/c_engine_case.h"

namespace heddle {
namespace {

using testing::c_string, testing::CEngine, testing::expect_failure, testing::text_of;

/// An adapter from memory answers as from its folder, and has the receipt of it.
TEST_F(CEngine, AdaptersOfMemoryHaveReceipts) {
  const auto text_of_file = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string config = text_of_file(first + "/adapter_config.json"),
                    weights = text_of_file(first + "/adapter_model.safetensors");
  ASSERT_EQ(heddle_engine_load_adapter(engine, c_string("memory"), c_string(config), weights.data(),
                                       weights.size(), false, false),
            HEDDLE_OK);
  std::string digests[2];
  for (int i = 0; i < 2; ++i) {
    heddle_engine_receipt* receipt = nullptr;
    ASSERT_EQ(
        heddle_engine_adapter_receipt(engine, c_string(i == 0 ? name : "memory"), true, &receipt),
        HEDDLE_OK);
    digests[i] = text_of(receipt->digest);
    EXPECT_EQ(digests[i].size(), 32u);
    ASSERT_GT(receipt->num_sites, 0u);
    EXPECT_EQ(receipt->tensors_given, receipt->tensors_applied);
    EXPECT_GT(receipt->sites[0].delta_norm, 0);
    EXPECT_GT(receipt->base_norm, receipt->sites[0].base_norm);
    EXPECT_NE(text_of(receipt->summary).find(digests[i]), std::string::npos);
    heddle_engine_receipt_destroy(receipt);
  }
  EXPECT_EQ(digests[0], digests[1]);
  expect_failure("\"memory\" is given twice",
                 heddle_engine_load_adapter(engine, c_string("memory"), c_string(config),
                                            weights.data(), weights.size(), false, false));
  expect_failure("adapter x",
                 heddle_engine_load_adapter(engine, c_string("x"), c_string(config), weights.data(),
                                            weights.size() - 1, false, false));
  expect_failure("safetensors is NULL",
                 heddle_engine_load_adapter(engine, c_string("x"), c_string(config), nullptr, 9,
                                            false, false));
  expect_failure("switch_running needs replace",
                 heddle_engine_load_adapter(engine, c_string("x"), c_string(config), weights.data(),
                                            weights.size(), false, true));
  heddle_engine_receipt* none = nullptr;
  expect_failure("unknown adapter",
                 heddle_engine_adapter_receipt(engine, c_string("x"), false, &none));
  heddle_engine_receipt_destroy(none);
}

}  // namespace
}  // namespace heddle

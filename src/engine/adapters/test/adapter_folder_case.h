#pragma once

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "engine/test/tiny_model.h"
#include "model/test/adapter_cases.h"

namespace heddle::testing {

/// A tiny model and a folder of adapters for it.
class AdapterFolderTest : public ::testing::Test {
 protected:
  AdapterFolderTest() {
    write("first");
    Engine probe = engine(0);
    (void)answer(probe, "first");
    bytes_of_one_ = probe.load().adapter_bytes;
  }

  /// A random adapter of `rank` under this name; all of one rank are of one size.
  void write(const std::string& name, int64_t rank = 2) {
    std::filesystem::create_directories(folder_.path() / name);
    std::string weights;
    model::ref::Llama merged = base_;
    (void)model::random_adapter<float>("F32", rank, {model::llama::kQ, model::llama::kDown},
                                       weights, merged);
    folder_.write(name + "/adapter_model.safetensors", weights);
    folder_.write(
        name + "/adapter_config.json",
        R"({"peft_type": "LORA", "lora_alpha": 3.0, "target_modules": ["q_proj", "down_proj"], "r": )" +
            std::to_string(rank) + "}");
  }
  /// With room for this many adapters of rank 2; 0: as many as the machine has memory for.
  /// On a GPU with host memory for so many, 0 in the same way.
  [[nodiscard]] Engine engine(int64_t num_adapters, int max_batch = 4, int64_t num_host = 0) const {
    return model_.engine({.max_batch = max_batch,
                          .adapter_dir = folder_.path().string(),
                          .adapter_memory = num_adapters * bytes_of_one_,
                          .adapter_host_memory = is_on_cpu() ? 0 : num_host * bytes_of_one_});
  }
  [[nodiscard]] static Request request(const std::string& adapter, int64_t max_tokens = 3) {
    Request request = endless_request({5, 3, 200, 77}, max_tokens);
    request.adapter = adapter;
    return request;
  }
  static Completion answer(Engine& engine, const std::string& adapter) {
    return run_all(engine, {request(adapter)}).front();
  }
  /// What the adapter answers where it is the only one.
  Completion alone(const std::string& adapter) {
    (void)alone_.replace_adapter("it", (folder_.path() / adapter).string());
    return answer(alone_, "it");
  }

  model::ref::Llama base_ = model::random_llama(tiny_config(), true);
  TinyModel model_{base_};
  TempFolder folder_;
  int64_t bytes_of_one_ = 0;
  Engine alone_ = model_.engine({.max_batch = 1});
};

}  // namespace heddle::testing

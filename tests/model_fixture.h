#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/engine/engine.h"

#include "engine/test/test_device.h"

namespace heddle::testing {

/// The folder of the example adapters; tools/gpu_check may have them elsewhere.
inline std::string adapter_folder() {
  const char* const folder = std::getenv("HEDDLE_TEST_ADAPTERS");
  return (folder == nullptr ? std::string(HEDDLE_SOURCE_DIR) + "/examples/adapters" : folder) + "/";
}

inline const std::vector<std::string> kAdapters = {
    "cron", "iso-date", "opposite", "person-json", "sentiment", "shell", "slug", "sql"};

/// The default model's path; the test's launcher puts it in the environment.
inline std::string model_path() {
  const char* path = std::getenv("HEDDLE_MODEL");
  return path == nullptr ? "HEDDLE_MODEL is not set" : path;
}

/// The default model with the eight example adapters, on the device of tests.
inline Engine load_engine(EngineOptions options = {}) {
  options.model_path = model_path();
  options.device = test_device();
  Engine engine(options);
  for (const std::string& name : kAdapters) engine.add_adapter(name, adapter_folder() + name);
  return engine;
}

/// Runs the requests to their end, as many at once as the engine takes; completions in the order of
/// the requests.
inline std::vector<Completion> run_all(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Completion> completions(requests.size());
  RequestId first = -1;
  for (const Request& request : requests) {
    const RequestId id = engine.submit(request);
    if (first < 0) first = id;
  }
  std::vector<std::string> streamed(requests.size());
  while (engine.num_unfinished() > 0) {
    for (Event& event : engine.step()) {
      const auto index = static_cast<size_t>(event.request - first);
      streamed[index] += event.text;
      if (event.completion) completions[index] = std::move(*event.completion);
    }
  }
  for (size_t i = 0; i < completions.size(); ++i) EXPECT_EQ(streamed[i], completions[i].text);
  return completions;
}

}  // namespace heddle::testing

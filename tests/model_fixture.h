#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/engine/engine.h"

namespace heddle::testing {

inline const std::string kAdapterFolder = std::string(HEDDLE_SOURCE_DIR) + "/examples/adapters/";
inline const std::vector<std::string> kAdapters = {
    "cron", "iso-date", "opposite", "person-json", "sentiment", "shell", "slug", "sql"};

/// The default model's path; the test's launcher puts it in the environment.
inline std::string model_path() {
  const char* path = std::getenv("HEDDLE_MODEL");
  return path == nullptr ? "HEDDLE_MODEL is not set" : path;
}

/// The default model with the eight example adapters.
inline Engine load_engine(EngineOptions options = {}) {
  options.model_path = model_path();
  Engine engine(options);
  for (const std::string& name : kAdapters) engine.add_adapter(name, kAdapterFolder + name);
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

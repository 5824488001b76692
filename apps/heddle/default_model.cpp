#include "default_model.h"

#include <cstdlib>
#include <filesystem>

#include "heddle/core/error.h"

namespace heddle::app {
namespace {

constexpr const char* kDefaultModel = "heddle/models/SmolLM2-135M-Instruct.Q4_1.gguf";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string find_model(const std::string& given) {
  if (!given.empty()) return given;
  if (const std::string named = environment("HEDDLE_MODEL"); !named.empty()) return named;
  std::filesystem::path cache = environment("XDG_CACHE_HOME");
  if (cache.empty()) cache = std::filesystem::path(environment("HOME")) / ".cache";
  const std::filesystem::path path = cache / kDefaultModel;
  HEDDLE_CHECK(std::filesystem::exists(path), "no model: ", path.string(),
               " is missing; name one with --model or HEDDLE_MODEL, or fetch the default with ",
               "`heddle demo` of a wheel or with tools/fetch_model of a checkout");
  return path.string();
}

}  // namespace heddle::app

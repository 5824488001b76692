#include "demo/find_examples.h"

#include <array>
#include <filesystem>

#include "heddle/core/error.h"

namespace heddle::app {
namespace {

namespace fs = std::filesystem;

/// From the folder of the program: of `make install` and wheels, and of a build folder.
constexpr std::array<const char*, 2> kPlaces = {"../share/heddle/examples", "../examples"};

bool has_demo(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "demo.jsonl", error) && fs::is_directory(folder / "adapters", error);
}

}  // namespace

std::string find_examples(const std::string& given) {
  if (!given.empty()) {
    HEDDLE_CHECK(has_demo(given), "--examples ", given,
                 ": expected a folder with demo.jsonl and a folder adapters");
    return given;
  }
  const fs::path program = fs::read_symlink("/proc/self/exe");
  for (const char* place : kPlaces) {
    const fs::path folder = (program.parent_path() / place).lexically_normal();
    if (has_demo(folder)) return folder.string();
  }
  throw_error(ErrorCode::kInvalidArgument, "no examples were installed with ", program.string(),
              "; --examples names the folder examples of a checkout");
}

std::string as_typed(const std::string& path) {
  const fs::path relative = fs::path(path).lexically_proximate(fs::current_path());
  return !relative.empty() && *relative.begin() != ".." ? relative.string() : path;
}

}  // namespace heddle::app

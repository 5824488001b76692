#include "request_json/ordered_json.h"

#include "heddle/core/error.h"

#include "request_json/shown.h"

namespace heddle::app {
namespace {

/// Nesting that no honest row reaches.
constexpr size_t kMaxDepth = 64;

}  // namespace

files::JsonTree parse_ordered_json(const std::string& text, const std::string& where) {
  using files::JsonFault;
  constexpr files::JsonLimits kLimits{.depth = kMaxDepth, .members = size_t{1} << 30};
  try {
    return files::parse_json_text(text, kLimits);
  } catch (const JsonFault& fault) {
    HEDDLE_CHECK(fault.kind() != JsonFault::Kind::kTwice, where, ": field ", quote(fault.what()),
                 " is given twice");
    HEDDLE_CHECK(fault.kind() != JsonFault::Kind::kDepth, where, ": JSON nested ", kMaxDepth + 1,
                 " deep, at most ", kMaxDepth, " is supported");
    throw_error(ErrorCode::kInvalidArgument, where, ": malformed JSON: ", shown(fault.what()));
  }
}

}  // namespace heddle::app

#include "engine/rules/grammar/check_format.h"

#include "heddle/core/error.h"

namespace heddle::grammar {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

}  // namespace

void check_format(const AnswerFormat& format) {
  size_t num_bytes = format.source.size();
  for (const std::string& choice : format.choices) num_bytes += choice.size();
  HEDDLE_CHECK(num_bytes <= kMaxBytes, "format has ", num_bytes, " bytes, expected at most ",
               kMaxBytes);
}

}  // namespace heddle::grammar

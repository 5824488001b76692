#include "engine/drafters/draft_vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle {
namespace {

/// "[PAD151936]", "<unused12>", "<|reserved_special_token_3|>": what files have where a row of the
/// embedding has no token.
bool fills_up(std::string_view text) {
  const auto begins = [&](std::string_view with) { return text.starts_with(with); };
  return text.empty() || begins("[PAD") || begins("<unused") || begins("[unused") ||
         begins("<|reserved_special_token_") || begins("<|extra_");
}

}  // namespace

void check_same_tokens(const tokenizer::Tokenizer& model, const std::string& model_path,
                       const tokenizer::Tokenizer& draft, const std::string& draft_path) {
  const int32_t count = std::min(model.vocab_size(), draft.vocab_size());
  for (int32_t id = 0; id < count; ++id) {
    const std::string_view ours = model.token_bytes(id), theirs = draft.token_bytes(id);
    if (ours == theirs || fills_up(ours) || fills_up(theirs)) continue;
    throw_error(ErrorCode::kInvalidArgument, draft_path, " has another vocabulary than ",
                model_path, ": token ", id, " is ", files::quote(theirs), " there and ",
                files::quote(ours), " here; a draft model needs the tokens of the model");
  }
}

}  // namespace heddle

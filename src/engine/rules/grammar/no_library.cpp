// The functions of grammar_library.h in a build without a library of grammars (HEDDLE_GRAMMAR=OFF).
#include "heddle/core/error.h"

#include "engine/rules/grammar/grammar_library.h"

namespace heddle::grammar {
namespace {

[[noreturn]] void refuse() {
  throw_error(ErrorCode::kUnsupported,
              "this build of heddle has no structured output (HEDDLE_GRAMMAR=OFF)");
}

}  // namespace

bool has_library() { return false; }

std::shared_ptr<const TokenSet> make_token_set(TokenBytes /*tokens*/) { refuse(); }

std::shared_ptr<const CompiledFormat> compile(const TokenSet& /*token_set*/,
                                              const AnswerFormat& /*format*/) {
  refuse();
}

}  // namespace heddle::grammar

// Any schema, pattern, grammar or structural tag: it is compiled or refused within its limits, and
// so are the masks of an answer. The first byte is the kind: s, r, g, l or t.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/error.h"

#include "engine/rules/grammar/grammar_library.h"
#include "engine/rules/grammar/work_limit.h"
#include "engine/rules/schema/schema_grammar.h"

namespace {

using namespace heddle;
using namespace heddle::grammar;
using Kind = AnswerFormat::Kind;

constexpr int32_t kEnd = 256;
constexpr WorkLimit kLimit{.seconds = 1, .num_bytes = int64_t{128} << 20};

void check(bool holds) {
  if (!holds) std::abort();
}

/// A token for each byte, one for several, and the end.
const TokenSet& token_set() {
  static const auto made = [] {
    TokenBytes bytes{.end_tokens = {kEnd}};
    for (int byte = 0; byte < 256; ++byte) bytes.tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"", "\": ", "{\"", "\"}", ", \"", "true", "\\u00"}) {
      bytes.tokens.emplace_back(text);
    }
    return make_token_set(std::move(bytes));
  }();
  return *made;
}

Kind kind_of(char letter) {
  switch (letter) {
    case 's': return Kind::kJsonSchema;
    case 'r': return Kind::kRegex;
    case 'g': return Kind::kGrammar;
    case 'l': return Kind::kLark;
    default: return Kind::kStructuralTag;
  }
}

/// Every token of a mask is accepted, and of the others none.
void draw(const CompiledFormat& format, uint32_t random) {
  const LimitedWork limited(kLimit);
  const std::unique_ptr<Matcher> matcher = format.matcher();
  std::vector<int32_t> words(9);
  for (int length = 0; length < 24 && !matcher->has_ended(); ++length) {
    matcher->fill(words);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < 263; ++token) {
      const auto word = static_cast<uint32_t>(words[static_cast<size_t>(token / 32)]);
      if ((word >> (token % 32) & 1) != 0) allowed.push_back(token);
    }
    random = random * 1664525u + 1013904223u;
    const auto other = static_cast<int32_t>(random >> 8) % 263;
    if (std::find(allowed.begin(), allowed.end(), other) == allowed.end()) {
      check(!matcher->accept(other));
    }
    if (allowed.empty()) return;
    check(matcher->accept(allowed[(random >> 4) % allowed.size()]));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || !has_library()) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const AnswerFormat format{.kind = kind_of(text.front()), .source = std::string(text.substr(1))};
  try {
    const AnswerFormat grammar = without_schemas(format);
    std::shared_ptr<const CompiledFormat> compiled;
    {
      const LimitedWork limited(kLimit);
      compiled = compile(token_set(), grammar);
    }
    draw(*compiled, static_cast<uint32_t>(size));
  } catch (const Error&) {
  } catch (const std::exception&) {  // of the library, which FormatCompiler makes an Error of
  }
  return 0;
}

// Any text as schema: a grammar or one line that refuses it, soon. What the grammar derives is
// JSON: an answer is drawn, with the bytes after a zero byte as dice.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "engine/rules/grammar/work_limit.h"
#include "engine/rules/schema/test/schema_answers.h"

namespace {

using namespace heddle::grammar;

constexpr int kEnd = 256, kLongest = 200;
constexpr WorkLimit kLimit{.seconds = 1, .num_bytes = int64_t{256} << 20};

/// An answer of the format; "": it has not ended.
std::string drawn(const CompiledFormat& format, std::string_view dice) {
  const std::unique_ptr<Matcher> matcher = format.matcher();
  std::vector<int32_t> words(kEnd / 32 + 1);
  std::string answer;
  for (size_t i = 0; answer.size() < kLongest; ++i) {
    matcher->fill(words);
    const auto die = i < dice.size() ? static_cast<uint8_t>(dice[i]) : uint8_t{'"'};
    int token = matcher->is_complete() ? kEnd : -1;
    for (int j = 0; j < kEnd && token < 0; ++j) {
      const int byte = (die + j) % kEnd;
      if ((words[size_t(byte) / 32] >> (byte % 32) & 1) != 0) token = byte;
    }
    if (token < 0 || !matcher->accept(token)) std::abort();  // no answer goes on from here
    if (token == kEnd) return answer;
    answer += static_cast<char>(token);
  }
  return "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  try {
    const std::string grammar = schema_grammar(input.substr(0, end));
    if (!has_library()) return 0;
    static const std::shared_ptr<const TokenSet> tokens = testing::byte_tokens();
    const LimitedWork limited(kLimit);
    const auto format =
        compile(*tokens, {.kind = heddle::AnswerFormat::Kind::kGrammar, .source = grammar});
    const std::string answer = drawn(*format, end < input.size() ? input.substr(end + 1) : "");
    if (!answer.empty() && !nlohmann::json::accept(answer)) std::abort();
  } catch (const LimitPassed&) {
  } catch (const heddle::Error& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}

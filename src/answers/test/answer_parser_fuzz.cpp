// Any text as an answer, cut anywhere: the same parts as in one piece, and no byte lost. The input
// is a byte for the format, one for the cuts, one for the options, then the answer.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "answers/answer_parser.h"
#include "answers/test/answer_cases.h"

namespace {

using namespace heddle::answers;

void check(bool holds) {
  if (!holds) std::abort();
}

ParsedAnswer in_pieces(const AnswerStyle& style, const ParserOptions& options,
                       std::string_view text, size_t cuts) {
  AnswerParser parser(style, options);
  ParsedAnswer answer;
  const auto add = [&](const AnswerDelta& delta) {
    answer.reasoning += delta.reasoning;
    answer.text += delta.text;
    for (const CallDelta& call : delta.calls) {
      if (call.index == answer.calls.size()) answer.calls.push_back({call.id, call.name, {}});
      check(call.index + 1 == answer.calls.size());
      answer.calls.back().arguments += call.arguments;
    }
  };
  while (!text.empty()) {
    const size_t size = std::min(text.size(), 1 + cuts % 7);
    cuts = cuts * 5 + 3;
    add(parser.push(text.substr(0, size)));
    text.remove_prefix(size);
  }
  add(parser.finish());
  return answer;
}

/// Whether the bytes of `part` are in `text` in their order.
bool is_in_order(std::string_view part, std::string_view text) {
  for (const char byte : part) {
    const size_t at = text.find(byte);
    if (at == std::string_view::npos) return false;
    text.remove_prefix(at + 1);
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  constexpr int kNumFormats = static_cast<int>(ToolFormat::kSmolLm3) + 1;
  const AnswerCase one{"", static_cast<ToolFormat>(data[0] % kNumFormats), "", "",
                       (data[2] & 1) != 0};
  AnswerStyle style = style_of_case(one);
  ParserOptions options = options_of_case(one);
  options.finds_reasoning = (data[2] & 2) != 0;
  if ((data[2] & 4) != 0) style.reasoning = {};
  if ((data[2] & 8) != 0) style.reasoning.text_begin = "<response>";
  if ((data[2] & 8) != 0) style.reasoning.text_end = "</response>";
  if ((data[2] & 16) != 0) options.max_calls = 1;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);

  const ParsedAnswer whole = parse_answer(style, options, text);
  const ParsedAnswer pieces = in_pieces(style, options, text, data[1]);
  check(shown(whole) == shown(pieces));
  check(is_in_order(whole.reasoning + whole.text, text));
  for (const ParsedCall& call : whole.calls) check(!call.name.empty() && !call.id.empty());
  // Without calls, and where thoughts are text, all of it is text.
  if (whole.calls.empty() && !options.finds_reasoning) check(whole.text == text);
  return 0;
}

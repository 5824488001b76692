#include "answers/answer_parser.h"

#include <algorithm>
#include <random>
#include <utility>

#include "answers/call_reader.h"
#include "answers/call_syntax.h"
#include "answers/json_scanner.h"

namespace heddle::answers {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string random_digits(size_t num_digits) {
  std::random_device random;
  std::string digits;
  while (digits.size() < num_digits) {
    for (uint32_t bits = random(), left = 8; left > 0 && digits.size() < num_digits; --left) {
      digits.push_back(kHexDigits[bits & 15]);
      bits >>= 4;
    }
  }
  return digits;
}

std::string id_of_call(ToolFormat format) {
  const bool is_short = format == ToolFormat::kMistral || format == ToolFormat::kMistralV11;
  return is_short ? random_digits(9) : "call_" + random_digits(24);
}

bool is_line_end(char byte) { return byte == '\n' || byte == '\r'; }

/// Whether the text may stand between calls.
bool all_separate(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return is_space(c) || c == ';'; });
}

bool all_space(std::string_view text) { return std::all_of(text.begin(), text.end(), is_space); }

}  // namespace

/// One byte after another, so that it does not matter how the text is cut. What may yet become
/// something else is in `held_`, `partial_` and `space_`.
struct AnswerParser::State final : CallSink {
  State(AnswerStyle style, ParserOptions options)
      : style_(std::move(style)), options_(std::move(options)) {
    if (options_.finds_calls) marks_ = call_marks(style_.tools);
    if (style_.reasoning.end.empty()) place_ = Place::kText;
  }

  // ---- CallSink
  [[nodiscard]] bool accepts(std::string_view name) const override {
    if (mark_ == nullptr || !mark_->begins_line) return true;
    return std::find(options_.tools.begin(), options_.tools.end(), name) != options_.tools.end();
  }
  void begin(std::string_view name) override {
    if (place_ == Place::kDropped) return;
    if (!has_calls_ && !after_call_) between_ = space_;
    space_.clear();
    in_call_ = has_calls_ = true;
    has_arguments_ = false;
    delta_.calls.push_back({num_calls_++, id_of_call(style_.tools), std::string(name), {}});
  }
  void add_arguments(std::string_view json) override {
    if (json.empty() || place_ == Place::kDropped) return;
    has_arguments_ = true;
    const size_t index = num_calls_ - 1;
    if (delta_.calls.empty() || delta_.calls.back().index != index) {
      delta_.calls.push_back({index, {}, {}, {}});
    }
    delta_.calls.back().arguments += json;
  }
  void end() override {
    if (!has_arguments_) add_arguments("{}");
    in_call_ = false;
    if (num_calls_ == options_.max_calls) place_ = Place::kDropped;
  }

  // ---- Text
  void put_text(char byte) {
    // Space before calls stays where text follows them.
    if (!between_.empty()) delta_.text += std::exchange(between_, {});
    has_text_ = true;
    delta_.text.push_back(byte);
    begins_line_ = byte == '\n' || (begins_line_ && is_space(byte));
    after_call_ = false;
  }
  /// What looked like a call.
  void put_literally(std::string_view text) {
    for (const char byte : text) put_after(byte);
  }
  void put_space() {
    for (const char byte : std::exchange(space_, {})) put_after(byte);
  }
  /// Of space around calls the first is kept, where it is between texts.
  void put_after(char byte) {
    if (after_call_ && is_space(byte)) {
      after_.push_back(byte);
      return;
    }
    if (after_call_) {
      between_ = has_text_ ? (between_.empty() ? after_ : between_) : "";
      after_.clear();
    }
    put_text(byte);
  }
  /// The mark that `partial_` is; or whether it may become one.
  [[nodiscard]] std::pair<const CallMark*, bool> find_mark() const {
    bool may_become = false;
    for (const CallMark& mark : marks_) {
      if (!mark.text.starts_with(partial_)) continue;
      if (mark.begins_line && !line_begins()) continue;
      if (mark.text.size() == partial_.size()) return {&mark, true};
      may_become = true;
    }
    return {nullptr, may_become};
  }
  [[nodiscard]] bool line_begins() const {
    return begins_line_ || after_call_ || space_.find('\n') != std::string::npos;
  }
  void take_text(char byte) {
    partial_.push_back(byte);
    while (!partial_.empty()) {
      if (in_response_ && style_.reasoning.text_end.starts_with(partial_)) {
        if (partial_ != style_.reasoning.text_end) return;
        in_response_ = false;
        partial_.clear();
        return;
      }
      const auto [mark, may_become] = find_mark();
      if (mark != nullptr) return begin_calls(*mark);
      if (may_become) return;
      take_one(partial_.front());
      partial_.erase(0, 1);
    }
  }
  void take_one(char byte) {
    // Space is held back: next to a call it is dropped. So is what separates calls.
    const bool separates = after_call_ && byte == ';' && space_.find(';') == std::string::npos;
    if (!marks_.empty() && (is_space(byte) || separates)) {
      space_.push_back(byte);
      return;
    }
    put_space();
    put_after(byte);
  }

  // ---- Calls
  void begin_calls(const CallMark& mark) {
    partial_.clear();
    mark_ = &mark;
    reader_.reset();
    has_calls_ = false;
    place_ = Place::kCalls;
    held_ = mark.text.substr(0, mark.text.size() - mark.begun.size());
    for (const char byte : mark.begun) take_call(byte);
  }
  void take_call(char byte) {
    if (reader_ == nullptr) {
      const bool is_before = is_space(byte) && mark_->begun.empty();
      if (is_before && (mark_->bodies & kPythonCode) == 0) {
        held_.push_back(byte);
        return;
      }
      reader_ = read_body(*mark_, byte, options_.types.get(), *this);
      if (reader_ == nullptr) return end_calls(CallReader::Step::kRefused, byte);
    }
    const CallReader::Step step = reader_->take(byte);
    if (place_ == Place::kDropped) return;
    if (step == CallReader::Step::kHeld) {
      held_.push_back(byte);
    } else if (step == CallReader::Step::kOwned) {
      held_.clear();
    } else {
      end_calls(step, byte);
    }
  }
  void end_calls(CallReader::Step step, char byte) {
    place_ = Place::kText;
    std::string held = std::exchange(held_, {});
    const size_t num_again = reader_ == nullptr ? 0 : std::min(reader_->num_again(), held.size());
    reader_.reset();
    if (has_calls_) after_call_ = true;
    if (step == CallReader::Step::kEnded) return;
    if (step == CallReader::Step::kPast) {
      for (const char before : held) take(before);
    } else {
      put_space();
      const std::string again = held.substr(held.size() - num_again);
      put_literally(std::string_view(held).substr(0, held.size() - num_again));
      for (const char before : again) take(before);
    }
    take(byte);
  }

  // ---- Thoughts
  void put_thought(char byte) {
    if (!options_.finds_reasoning) return put_text(byte);
    if (is_line_end(byte)) {
      if (has_thought_) line_ends_.push_back(byte);
      return;
    }
    has_thought_ = true;
    delta_.reasoning += std::exchange(line_ends_, {});
    delta_.reasoning.push_back(byte);
  }
  void put_mark(std::string_view mark) {
    if (options_.finds_reasoning) return;
    for (const char byte : mark) put_text(byte);
  }
  /// Before thoughts, which begin with their mark: again, where the prompt ended with it.
  void take_before(char byte) {
    const std::string& begin = style_.reasoning.begin;
    if (partial_.empty() && is_space(byte)) {
      space_.push_back(byte);
      return;
    }
    partial_.push_back(byte);
    if (!begin.empty() && begin.starts_with(partial_)) {
      if (partial_ != begin) return;
      if (!options_.finds_reasoning) put_space();
      space_.clear();
      put_mark(std::exchange(partial_, {}));
      place_ = Place::kThoughts;
      return;
    }
    leave_before();
  }
  void leave_before() {
    place_ = style_.reasoning.has_begun ? Place::kThoughts : Place::kText;
    const std::string held = std::exchange(space_, {}) + std::exchange(partial_, {});
    for (const char byte : held) take(byte);
  }
  void take_thought(char byte) {
    const std::string& end = style_.reasoning.end;
    partial_.push_back(byte);
    while (!end.starts_with(partial_)) {
      put_thought(partial_.front());
      partial_.erase(0, 1);
    }
    if (partial_ != end) return;
    put_mark(std::exchange(partial_, {}));
    place_ = options_.finds_reasoning ? Place::kAfter : Place::kText;
    line_ends_.clear();
    begins_line_ = true;
  }
  /// After thoughts: line ends are dropped, and the mark of the text.
  void take_after(char byte) {
    const std::string& begin = style_.reasoning.text_begin;
    if (partial_.empty() && is_space(byte)) {
      if (!is_line_end(byte) || !all_space(space_)) space_.push_back(byte);
      return;
    }
    partial_.push_back(byte);
    if (!begin.empty() && !in_response_ && begin.starts_with(partial_)) {
      if (partial_ != begin) return;
      partial_.clear();
      space_.clear();
      in_response_ = true;
      return;
    }
    leave_after();
  }
  void leave_after() {
    place_ = Place::kText;
    const std::string held = std::exchange(space_, {}) + std::exchange(partial_, {});
    for (const char byte : held) take(byte);
  }

  void take(char byte) {
    switch (place_) {
      case Place::kBefore: return take_before(byte);
      case Place::kThoughts: return take_thought(byte);
      case Place::kAfter: return take_after(byte);
      case Place::kText: return take_text(byte);
      case Place::kCalls: return take_call(byte);
      case Place::kDropped: return;
    }
  }

  void finish() {
    if (place_ == Place::kBefore) leave_before();
    if (place_ == Place::kAfter) leave_after();
    if (place_ == Place::kThoughts) {
      for (const char byte : std::exchange(partial_, {})) put_thought(byte);
    }
    if (place_ == Place::kCalls) finish_calls();
    if (place_ == Place::kText) {
      // No mark follows any more.
      const bool is_end = after_call_ && partial_.empty() && all_separate(space_);
      if (is_end) space_.clear();
      put_space();
      put_literally(std::exchange(partial_, {}));
    }
    place_ = Place::kDropped;
  }
  void finish_calls() {
    const bool belongs = reader_ != nullptr && reader_->finish();
    if (belongs && (has_calls_ || in_call_)) return;
    if (has_calls_) after_call_ = true;
    put_space();
    put_literally(std::exchange(held_, {}));
  }

  enum class Place : uint8_t { kBefore, kThoughts, kAfter, kText, kCalls, kDropped };

  AnswerStyle style_;
  ParserOptions options_;
  std::span<const CallMark> marks_{};
  Place place_ = Place::kBefore;
  AnswerDelta delta_{};

  std::string partial_{};    // of a mark
  std::string space_{};      // before what may be a call or a mark
  std::string between_{};    // that was before calls
  std::string after_{};      // that was after them
  std::string held_{};       // of calls, what no call owns yet
  std::string line_ends_{};  // of thoughts, before what may be their end
  bool has_thought_ = false, has_text_ = false, in_response_ = false;
  bool begins_line_ = true, after_call_ = false;

  const CallMark* mark_ = nullptr;  // of the calls that are read
  std::unique_ptr<CallReader> reader_{};
  bool has_calls_ = false;  // some of those after the mark were reported
  bool in_call_ = false, has_arguments_ = false;
  size_t num_calls_ = 0;
};

void find_tools(ParserOptions& options, const JsonValue& tools) {
  options.finds_calls = true;
  options.types = std::make_shared<const ToolTypes>(tools);
  options.tools = options.types->names();
}

AnswerParser::AnswerParser(AnswerStyle style, ParserOptions options)
    : state_(std::make_unique<State>(std::move(style), std::move(options))) {}
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;
AnswerParser::~AnswerParser() = default;

AnswerDelta AnswerParser::push(std::string_view text) {
  for (const char byte : text) state_->take(byte);
  return std::exchange(state_->delta_, {});
}

AnswerDelta AnswerParser::finish() {
  state_->finish();
  return std::exchange(state_->delta_, {});
}

size_t AnswerParser::num_calls() const { return state_->num_calls_; }

ParsedAnswer parse_answer(const AnswerStyle& style, ParserOptions options, std::string_view text) {
  AnswerParser parser(style, std::move(options));
  AnswerDelta delta = parser.push(text);
  AnswerDelta last = parser.finish();
  ParsedAnswer answer{
      std::move(delta.reasoning) + last.reasoning, std::move(delta.text) + last.text, {}};
  for (std::vector<CallDelta>* deltas : {&delta.calls, &last.calls}) {
    for (CallDelta& call : *deltas) {
      if (call.index == answer.calls.size()) {
        answer.calls.push_back({std::move(call.id), std::move(call.name), {}});
      }
      answer.calls[call.index].arguments += call.arguments;
    }
  }
  return answer;
}

}  // namespace heddle::answers

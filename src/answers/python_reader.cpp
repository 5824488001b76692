// Calls as Python, which are read when they are whole.
#include <optional>
#include <vector>

#include "answers/call_reader.h"
#include "answers/json_scanner.h"
#include "answers/python_calls.h"

namespace heddle::answers {
namespace {

using Step = CallReader::Step;

constexpr size_t kMaxPythonName = 256;  // bytes

bool is_one_of(char byte, std::string_view bytes) { return bytes.find(byte) != bytes.npos; }

/// Reports the calls of the text; false where it is something else.
bool report_calls(std::string_view text, CallSink& sink) {
  const std::optional<std::vector<PythonCall>> calls = parse_python_calls(text);
  if (!calls) return false;
  for (const PythonCall& call : *calls) {
    if (!sink.accepts(call.name)) return false;
  }
  for (const PythonCall& call : *calls) {
    sink.begin(call.name);
    sink.add_arguments(call.arguments);
    sink.end();
  }
  return true;
}

/// A list of calls in brackets.
class PythonListReader final : public CallReader {
 public:
  PythonListReader(std::string_view end, CallSink& sink) : end_(end), sink_(sink) {}

  [[nodiscard]] Step take(char byte) override {
    if (is_whole_) return end_.take(byte);
    text_.push_back(byte);
    if (text_.size() == 1) return byte == '[' ? Step::kHeld : Step::kRefused;
    if (!has_name_ && !take_name(byte)) return Step::kRefused;
    if (!ends_list(byte)) return Step::kHeld;
    if (!report_calls(text_, sink_)) return Step::kRefused;
    if (end_.empty()) return Step::kEnded;
    is_whole_ = true;
    return Step::kOwned;
  }
  [[nodiscard]] bool finish() override { return is_whole_; }

 private:
  /// What is no call is seen at once, so that it is not held back.
  [[nodiscard]] bool take_name(char byte) {
    if (byte == '(') {
      has_name_ = true;
      return !name_.empty() && sink_.accepts(name_);
    }
    if (is_space(byte)) return name_.empty();
    name_.push_back(byte);
    return name_.size() <= kMaxPythonName && !is_one_of(byte, "[]{}\"',=");
  }
  [[nodiscard]] bool ends_list(char byte) {
    if (quote_ != '\0') {
      if (!is_escaped_ && byte == quote_) quote_ = '\0';
      is_escaped_ = !is_escaped_ && byte == '\\';
      return false;
    }
    if (byte == '"' || byte == '\'') {
      quote_ = byte;
    } else if (is_one_of(byte, "[({")) {
      ++depth_;
    } else if (is_one_of(byte, "])}")) {
      return --depth_ == 0;
    }
    return false;
  }

  EndMark end_;
  CallSink& sink_;
  std::string text_, name_;
  size_t depth_ = 1;
  char quote_ = '\0';
  bool has_name_ = false, is_escaped_ = false, is_whole_ = false;
};

/// Code up to a mark.
class PythonCodeReader final : public CallReader {
 public:
  PythonCodeReader(std::string_view end, CallSink& sink) : end_(end), sink_(sink) {}

  [[nodiscard]] Step take(char byte) override {
    text_.push_back(byte);
    if (!text_.ends_with(end_)) return Step::kHeld;
    text_.resize(text_.size() - end_.size());
    if (!report_calls(text_, sink_)) return Step::kRefused;
    return Step::kEnded;
  }
  [[nodiscard]] bool finish() override { return false; }

 private:
  std::string_view end_;
  CallSink& sink_;
  std::string text_;
};

}  // namespace

Step EndMark::take(char byte) {
  if (num_seen_ == 0 && is_space(byte)) return Step::kHeld;
  if (byte != text_[num_seen_]) return Step::kPast;
  return ++num_seen_ == text_.size() ? Step::kEnded : Step::kHeld;
}

std::unique_ptr<CallReader> read_python_list(std::string_view end, CallSink& sink) {
  return std::make_unique<PythonListReader>(end, sink);
}

std::unique_ptr<CallReader> read_python_code(std::string_view end, CallSink& sink) {
  return std::make_unique<PythonCodeReader>(end, sink);
}

std::unique_ptr<CallReader> read_body(const CallMark& mark, char first, const ToolTypes* types,
                                      CallSink& sink) {
  const auto has = [&](CallBody body) { return (mark.bodies & body) != 0; };
  if (has(kPythonCode)) return read_python_code(mark.end, sink);
  if (first == '[' && has(kPythonList)) return read_python_list(mark.end, sink);
  if ((first == '{' || first == '[') && has(kObjects)) return read_objects(mark.end, sink);
  if (first == '<' && has(kXml)) return read_xml(mark.end, types, sink);
  const bool is_letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
  return (is_letter || first == '_') && has(kNamed) ? read_named(sink) : nullptr;
}

}  // namespace heddle::answers

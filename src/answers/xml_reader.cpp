// Calls as Qwen3-Coder writes them.
#include <array>
#include <utility>

#include "answers/call_reader.h"
#include "answers/json_scanner.h"

namespace heddle::answers {
namespace {

using Step = CallReader::Step;

constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameterEnd = "\n</parameter>";  // models leave out the line end
constexpr size_t kMaxXmlName = 256;                           // bytes

class XmlReader final : public CallReader {
 public:
  XmlReader(std::string_view end, const ToolTypes* types, CallSink& sink)
      : end_(end), end_text_(end), types_(types), sink_(sink) {}

  [[nodiscard]] Step take(char byte) override {
    switch (place_) {
      case Place::kFunction: return take_function(byte);
      case Place::kName: return take_name(byte);
      case Place::kBetween: return take_between(byte);
      case Place::kKey: return take_key(byte);
      case Place::kValue: return take_value(byte);
      case Place::kEnd: break;
    }
    return end_.take(byte);
  }
  /// A value that is cut off, and no string, may be another one: it is left out.
  [[nodiscard]] bool finish() override { return has_begun_; }
  [[nodiscard]] size_t num_again() const override { return held_.size(); }

 private:
  enum class Place : uint8_t { kFunction, kName, kBetween, kKey, kValue, kEnd };

  /// Whether the mark goes on with the byte.
  [[nodiscard]] bool takes(std::string_view mark, char byte) const {
    return mark.starts_with(held_) && mark.size() > held_.size() && mark[held_.size()] == byte;
  }
  [[nodiscard]] Step take_function(char byte) {
    if (!takes(kFunction, byte)) return Step::kRefused;
    held_.push_back(byte);
    if (held_ != kFunction) return Step::kHeld;
    held_.clear();
    place_ = Place::kName;
    return Step::kHeld;
  }
  [[nodiscard]] Step take_name(char byte) {
    if (byte == '>') {
      place_ = Place::kBetween;
      return name_.empty() || !sink_.accepts(name_) ? Step::kRefused : Step::kHeld;
    }
    name_.push_back(byte);
    const bool fits = !is_space(byte) && byte != '<' && name_.size() <= kMaxXmlName;
    return fits ? Step::kHeld : Step::kRefused;
  }
  [[nodiscard]] Step take_between(char byte) {
    if (held_.empty() && is_space(byte)) return Step::kHeld;
    for (const std::string_view mark : {kParameter, kFunctionEnd, end_text_}) {
      if (!takes(mark, byte)) continue;
      held_.push_back(byte);
      if (mark != held_) return Step::kHeld;
      held_.clear();
      begin();
      if (mark == kParameter) {
        place_ = Place::kKey;
        return Step::kOwned;
      }
      close();
      if (mark == end_text_ || end_.empty()) return Step::kEnded;
      place_ = Place::kEnd;
      return Step::kOwned;
    }
    if (has_begun_) close();
    return Step::kRefused;
  }
  [[nodiscard]] Step take_key(char byte) {
    if (byte == '>') {
      types_of_value_ = types_ == nullptr ? uint8_t{0} : types_->types_of(name_, key_);
      std::string json = num_values_++ == 0 ? "{" : ", ";
      json += escaped_string(key_) + ": ";
      prefix_ = std::move(json);
      key_.clear();
      is_first_ = true;
      place_ = Place::kValue;
      if (types_of_value_ == kStringType) sink_.add_arguments(prefix_ + '"');
      return Step::kOwned;
    }
    key_.push_back(byte);
    if (byte != '\n' && key_.size() <= kMaxXmlName) return Step::kOwned;
    close();
    return Step::kRefused;
  }
  [[nodiscard]] Step take_value(char byte) {
    if (std::exchange(is_first_, false) && byte == '\n') return Step::kOwned;
    held_.push_back(byte);
    constexpr std::string_view kShortEnd = kParameterEnd.substr(1);
    while (!held_.empty() && !kParameterEnd.starts_with(held_) && !kShortEnd.starts_with(held_)) {
      add_value(held_.front());
      held_.erase(0, 1);
    }
    if (held_ != kParameterEnd && held_ != kShortEnd) return Step::kOwned;
    held_.clear();
    if (types_of_value_ == kStringType) {
      sink_.add_arguments("\"");
    } else {
      sink_.add_arguments(prefix_ + json_of_argument(value_, types_of_value_));
      value_.clear();
    }
    place_ = Place::kBetween;
    return Step::kOwned;
  }

  void add_value(char byte) {
    if (types_of_value_ != kStringType) {
      value_.push_back(byte);
      return;
    }
    std::string json;
    append_escaped(json, byte);
    sink_.add_arguments(json);
  }
  void begin() {
    if (!has_begun_) sink_.begin(name_);
    has_begun_ = true;
  }
  void close() {
    sink_.add_arguments(num_values_ == 0 ? "{}" : "}");
    sink_.end();
  }

  EndMark end_;
  std::string_view end_text_;
  const ToolTypes* types_;
  CallSink& sink_;
  Place place_ = Place::kFunction;
  std::string name_, key_, value_, prefix_;
  std::string held_;  // of a mark
  size_t num_values_ = 0;
  uint8_t types_of_value_ = 0;
  bool has_begun_ = false, is_first_ = false;
};

}  // namespace

std::unique_ptr<CallReader> read_xml(std::string_view end, const ToolTypes* types, CallSink& sink) {
  return std::make_unique<XmlReader>(end, types, sink);
}

}  // namespace heddle::answers

// Calls as JSON objects, alone or in a list, and arguments after a name.
#include <optional>

#include "answers/call_reader.h"
#include "answers/json_scanner.h"
#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"

namespace heddle::answers {
namespace {

using Step = CallReader::Step;

constexpr size_t kMaxName = 256;  // bytes

/// The text of a JSON string with its quotes; none where it is no UTF-8.
std::optional<std::string> text_of_string(std::string_view json) {
  try {
    const files::JsonTree tree = files::parse_json_text(json, {.depth = 1});
    return std::string(files::text_of(*tree));
  } catch (const files::JsonFault&) {
    return std::nullopt;
  }
}

/// Whether the text is a JSON object.
bool is_object(std::string_view text) {
  try {
    return files::parse_json_text(text, {.depth = JsonScanner::kMaxDepth})->is_object();
  } catch (const files::JsonFault&) {
    return false;
  }
}

/// An object of arguments, which is handed on byte by byte.
class ArgumentsScanner {
 public:
  /// The byte belongs to the arguments unless it makes them no JSON.
  [[nodiscard]] JsonScanner::Step take(char byte, std::string& json) {
    const bool in_string = scanner_.in_string();
    const JsonScanner::Step step = scanner_.take(byte);
    if (in_string && static_cast<unsigned char>(byte) < 0x20) {
      append_escaped(json, byte);
    } else {
      json.push_back(byte);
    }
    return step;
  }

 private:
  JsonScanner scanner_;
};

/// What is left of a call whose arguments are no JSON: all up to the mark that ends it.
class BrokenRest {
 public:
  explicit BrokenRest(std::string_view end) : end_(end) {}
  [[nodiscard]] Step take(char byte, CallSink& sink) {
    if (end_.empty()) {
      sink.add_arguments({&byte, 1});
      return Step::kOwned;
    }
    held_.push_back(byte);
    while (!end_.starts_with(held_)) {
      sink.add_arguments(std::string_view(held_).substr(0, 1));
      held_.erase(0, 1);
    }
    if (held_ != end_) return Step::kOwned;
    sink.end();
    return Step::kEnded;
  }

 private:
  std::string_view end_;
  std::string held_;
};

/// One object with name and arguments.
class CallObject {
 public:
  enum class Outcome : uint8_t { kInside, kOwned, kWhole, kBroken, kWrong };

  /// From the byte after the bracket on.
  [[nodiscard]] Outcome take(char byte, CallSink& sink) {
    switch (place_) {
      case Place::kKey:
      case Place::kKeyOrEnd: return take_key(byte, sink);
      case Place::kColon:
        if (byte == ':') {
          place_ = Place::kBefore;
          return Outcome::kInside;
        }
        return is_space(byte) ? Outcome::kInside : Outcome::kWrong;
      case Place::kBefore: return is_space(byte) ? Outcome::kInside : begin_value(byte, sink);
      case Place::kName:
      case Place::kSkipped: return take_value(byte, sink);
      case Place::kArguments: return take_arguments(byte, sink);
      case Place::kComma: break;
    }
    if (byte == ',') {
      place_ = Place::kKey;
      return Outcome::kInside;
    }
    if (byte == '}') return close(sink);
    return is_space(byte) ? Outcome::kInside : Outcome::kWrong;
  }
  [[nodiscard]] bool has_begun() const { return has_begun_; }

 private:
  enum class Place : uint8_t {
    kKeyOrEnd,
    kKey,
    kColon,
    kBefore,
    kName,
    kArguments,
    kSkipped,
    kComma
  };

  [[nodiscard]] Outcome take_key(char byte, CallSink& sink) {
    if (raw_.empty() && is_space(byte)) return Outcome::kInside;
    if (raw_.empty() && byte == '}' && place_ == Place::kKeyOrEnd) return close(sink);
    if (raw_.empty() && byte != '"') return Outcome::kWrong;
    if (raw_.empty()) scanner_ = JsonScanner();
    raw_.push_back(byte);
    const JsonScanner::Step step = scanner_.take(byte);
    if (step == JsonScanner::Step::kInside) {
      return raw_.size() > kMaxName ? Outcome::kWrong : Outcome::kInside;
    }
    if (step != JsonScanner::Step::kLast) return Outcome::kWrong;
    is_name_ = raw_ == "\"name\"";
    is_arguments_ = raw_ == "\"arguments\"" || raw_ == "\"parameters\"";
    const bool is_known = is_name_ || is_arguments_ || raw_ == "\"type\"" || raw_ == "\"id\"";
    const bool is_second = (is_name_ && has_name_) || (is_arguments_ && has_arguments_);
    raw_.clear();
    place_ = Place::kColon;
    return is_known && !is_second ? Outcome::kInside : Outcome::kWrong;
  }

  [[nodiscard]] Outcome begin_value(char byte, CallSink& sink) {
    scanner_ = JsonScanner();
    if (is_name_ && byte != '"') return Outcome::kWrong;
    if (is_arguments_ && byte == '{') {
      place_ = Place::kArguments;
      has_arguments_ = true;
      if (has_name_) report(sink);
      return take_arguments(byte, sink);
    }
    if (is_arguments_ && byte != '"' && byte != 'n') return Outcome::kWrong;
    place_ = is_name_ ? Place::kName : Place::kSkipped;
    return take_value(byte, sink);
  }

  [[nodiscard]] Outcome take_value(char byte, CallSink& sink) {
    const bool is_kept = is_name_ || is_arguments_;
    const JsonScanner::Step step = scanner_.take(byte);
    if (step == JsonScanner::Step::kWrong) return Outcome::kWrong;
    if (step == JsonScanner::Step::kPast) {
      place_ = Place::kComma;
      return take(byte, sink);
    }
    if (is_kept) {
      if (static_cast<unsigned char>(byte) < 0x20) {
        append_escaped(raw_, byte);
      } else {
        raw_.push_back(byte);
      }
    }
    if (step == JsonScanner::Step::kInside) {
      return is_name_ && raw_.size() > kMaxName ? Outcome::kWrong : Outcome::kInside;
    }
    place_ = Place::kComma;
    if (!is_kept) return Outcome::kInside;
    const bool fits = is_name_ ? take_name(sink) : take_text_of_arguments();
    raw_.clear();
    return fits ? Outcome::kInside : Outcome::kWrong;
  }

  [[nodiscard]] bool take_name(CallSink& sink) {
    std::optional<std::string> name = text_of_string(raw_);
    if (!name || name->empty() || !sink.accepts(*name)) return false;
    name_ = std::move(*name);
    has_name_ = true;
    if (has_arguments_) report(sink);
    return true;
  }
  /// Arguments as a string that holds an object, or null.
  [[nodiscard]] bool take_text_of_arguments() {
    has_arguments_ = true;
    if (raw_ == "null") return true;
    std::optional<std::string> json = text_of_string(raw_);
    if (!json || !is_object(*json)) return false;
    early_ = std::move(*json);
    return true;
  }
  [[nodiscard]] Outcome take_arguments(char byte, CallSink& sink) {
    std::string json;
    const JsonScanner::Step step = arguments_.take(byte, json);
    if (has_begun_) {
      sink.add_arguments(json);
    } else {
      early_ += json;
    }
    const Outcome taken = has_begun_ ? Outcome::kOwned : Outcome::kInside;
    if (step == JsonScanner::Step::kInside) return taken;
    if (step != JsonScanner::Step::kLast) return has_begun_ ? Outcome::kBroken : Outcome::kWrong;
    place_ = Place::kComma;
    return taken;
  }

  void report(CallSink& sink) {
    sink.begin(name_);
    has_begun_ = true;
    if (!early_.empty()) sink.add_arguments(early_);
    early_.clear();
  }
  [[nodiscard]] Outcome close(CallSink& sink) {
    if (!has_name_) return Outcome::kWrong;
    if (!has_begun_) report(sink);
    sink.end();
    return Outcome::kWhole;
  }

  Place place_ = Place::kKeyOrEnd;
  JsonScanner scanner_;
  ArgumentsScanner arguments_;
  std::string raw_, name_;
  std::string early_;                            // arguments that came before the name
  bool is_name_ = false, is_arguments_ = false;  // what the value that is read is
  bool has_name_ = false, has_arguments_ = false, has_begun_ = false;
};

class ObjectReader final : public CallReader {
 public:
  ObjectReader(std::string_view end, CallSink& sink) : end_(end), broken_(end), sink_(sink) {}

  [[nodiscard]] Step take(char byte) override {
    switch (place_) {
      case Place::kFirst:
        is_list_ = byte == '[';
        if (is_list_) {
          place_ = Place::kElement;
          return Step::kHeld;
        }
        return begin_object(byte);
      case Place::kElement: return is_space(byte) ? Step::kHeld : begin_object(byte);
      case Place::kObject: return take_object(byte);
      case Place::kComma:
        if (byte == ']') return end_calls();
        if (byte == ',') place_ = Place::kElement;
        return byte == ',' || is_space(byte) ? Step::kHeld : Step::kRefused;
      case Place::kBroken: return broken_.take(byte, sink_);
      case Place::kEnd: break;
    }
    return end_.take(byte);
  }
  [[nodiscard]] bool finish() override {
    return place_ == Place::kComma || place_ == Place::kEnd ||
           (place_ == Place::kObject && object_.has_begun());
  }

 private:
  enum class Place : uint8_t { kFirst, kElement, kObject, kComma, kBroken, kEnd };

  [[nodiscard]] Step begin_object(char byte) {
    if (byte != '{') return Step::kRefused;
    object_ = CallObject();
    place_ = Place::kObject;
    return Step::kHeld;
  }
  [[nodiscard]] Step take_object(char byte) {
    switch (object_.take(byte, sink_)) {
      case CallObject::Outcome::kInside: return Step::kHeld;
      case CallObject::Outcome::kOwned: return Step::kOwned;
      case CallObject::Outcome::kBroken: place_ = Place::kBroken; return Step::kOwned;
      case CallObject::Outcome::kWrong:
        if (object_.has_begun()) sink_.end();
        return Step::kRefused;
      case CallObject::Outcome::kWhole: break;
    }
    if (!is_list_) return end_calls();
    place_ = Place::kComma;
    return Step::kOwned;
  }
  [[nodiscard]] Step end_calls() {
    if (end_.empty()) return Step::kEnded;
    place_ = Place::kEnd;
    return Step::kOwned;
  }

  EndMark end_;
  BrokenRest broken_;
  CallSink& sink_;
  CallObject object_;
  Place place_ = Place::kFirst;
  bool is_list_ = false;
};

bool is_name_part(char byte) {
  return !is_space(byte) && byte != '[' && byte != '{' && byte != ']' && byte != '}' &&
         byte != '"' && static_cast<unsigned char>(byte) >= 0x20;
}

/// now[CALL_ID]12[ARGS]{"zone": "UTC"}, with or without what is in brackets.
class NamedReader final : public CallReader {
 public:
  explicit NamedReader(CallSink& sink) : broken_(""), sink_(sink) {}

  [[nodiscard]] Step take(char byte) override {
    if (place_ == Place::kBroken) return broken_.take(byte, sink_);
    if (place_ == Place::kArguments) return take_arguments(byte);
    if (place_ == Place::kName && is_name_part(byte)) {
      name_.push_back(byte);
      return name_.size() > kMaxName ? Step::kRefused : Step::kHeld;
    }
    if (byte == '{' && marks_.empty()) {
      if (!sink_.accepts(name_)) return Step::kRefused;
      sink_.begin(name_);
      place_ = Place::kArguments;
      return take_arguments(byte);
    }
    return take_marks(byte);
  }
  [[nodiscard]] bool finish() override { return place_ == Place::kArguments; }

 private:
  enum class Place : uint8_t { kName, kMarks, kArguments, kBroken };

  [[nodiscard]] Step take_marks(char byte) {
    place_ = Place::kMarks;
    constexpr std::string_view kId = "[CALL_ID]", kArguments = "[ARGS]";
    if (marks_.empty() && is_space(byte)) return Step::kHeld;
    marks_.push_back(byte);
    if (marks_.size() > kMaxName) return Step::kRefused;
    if (marks_ == kArguments) marks_.clear();
    if (marks_.empty() || kArguments.starts_with(marks_) || kId.starts_with(marks_)) {
      return Step::kHeld;
    }
    if (!marks_.starts_with(kId)) return Step::kRefused;
    if (marks_.ends_with(kArguments)) {
      marks_.clear();
      return Step::kHeld;
    }
    return is_space(byte) || byte == '{' ? Step::kRefused : Step::kHeld;
  }
  [[nodiscard]] Step take_arguments(char byte) {
    std::string json;
    const JsonScanner::Step step = arguments_.take(byte, json);
    sink_.add_arguments(json);
    if (step == JsonScanner::Step::kInside) return Step::kOwned;
    if (step == JsonScanner::Step::kLast) {
      sink_.end();
      return Step::kEnded;
    }
    place_ = Place::kBroken;
    return Step::kOwned;
  }

  BrokenRest broken_;
  CallSink& sink_;
  ArgumentsScanner arguments_;
  std::string name_, marks_;
  Place place_ = Place::kName;
};

}  // namespace

std::unique_ptr<CallReader> read_objects(std::string_view end, CallSink& sink) {
  return std::make_unique<ObjectReader>(end, sink);
}

std::unique_ptr<CallReader> read_named(CallSink& sink) {
  return std::make_unique<NamedReader>(sink);
}

}  // namespace heddle::answers

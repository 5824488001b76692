#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "answers/call_syntax.h"
#include "answers/tool_types.h"

namespace heddle::answers {

/// Whom a reader reports the calls of an answer to, in the order of the text.
class CallSink {
 public:
  CallSink() = default;
  CallSink(const CallSink&) = delete;
  CallSink& operator=(const CallSink&) = delete;
  virtual ~CallSink() = default;

  /// Whether a call of this name may be one: the form has a mark, or the request has the tool.
  [[nodiscard]] virtual bool accepts(std::string_view name) const = 0;
  virtual void begin(std::string_view name) = 0;
  virtual void add_arguments(std::string_view json) = 0;
  virtual void end() = 0;
};

/// Reads what follows a mark, one byte after another, each once.
class CallReader {
 public:
  enum class Step : uint8_t {
    kHeld,    // the byte may yet be text
    kOwned,   // the byte and all before it belong to calls, whatever follows
    kEnded,   // so they do, and the calls end with it
    kPast,    // the calls have ended before: what is held, and the byte, are read again
    kRefused  // no call, or no further one: what is held is text, the byte is read again
  };

  CallReader() = default;
  CallReader(const CallReader&) = delete;
  CallReader& operator=(const CallReader&) = delete;
  virtual ~CallReader() = default;

  [[nodiscard]] virtual Step take(char byte) = 0;
  /// The answer ends here. Returns whether what is held belongs to calls; else it is text.
  [[nodiscard]] virtual bool finish() = 0;
  /// How many of the last held bytes are read again after a refusal, since a mark may begin there:
  /// no more than one has.
  [[nodiscard]] virtual size_t num_again() const { return 0; }
};

/// A text that may follow, after space.
class EndMark {
 public:
  explicit EndMark(std::string_view text) : text_(text) {}
  [[nodiscard]] bool empty() const { return text_.empty(); }
  /// kHeld, kEnded or kPast.
  [[nodiscard]] CallReader::Step take(char byte);

 private:
  std::string_view text_;
  size_t num_seen_ = 0;
};

/// Objects with name and arguments, one or a list: {"name": "now", "arguments": {"zone": "UTC"}}.
[[nodiscard]] std::unique_ptr<CallReader> read_objects(std::string_view end, CallSink& sink);
/// now[ARGS]{"zone": "UTC"}
[[nodiscard]] std::unique_ptr<CallReader> read_named(CallSink& sink);
/// <function=now><parameter=zone>UTC</parameter></function>. `types` may be null.
[[nodiscard]] std::unique_ptr<CallReader> read_xml(std::string_view end, const ToolTypes* types,
                                                   CallSink& sink);
/// [now(zone="UTC"), now()]
[[nodiscard]] std::unique_ptr<CallReader> read_python_list(std::string_view end, CallSink& sink);
/// Calls as above up to `end`, in brackets or without, one after another.
[[nodiscard]] std::unique_ptr<CallReader> read_python_code(std::string_view end, CallSink& sink);

/// The reader for a body that begins with this byte; null: none of the body's forms does.
[[nodiscard]] std::unique_ptr<CallReader> read_body(const CallMark& mark, char first,
                                                    const ToolTypes* types, CallSink& sink);

}  // namespace heddle::answers

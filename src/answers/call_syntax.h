// How calls begin and end in each format, as tables: for the parser, which takes what models write,
// and for the grammar, which has them write one form of it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "answers/answer_style.h"

namespace heddle::answers {

/// What may follow a mark; bits.
enum CallBody : uint8_t {
  kObjects = 1,  // {"name": "now", "arguments": {}}, or a list of such
  kNamed = 2,    // now[ARGS]{}
  kXml = 4,      // <function=now></function>
  kPythonList = 8,
  kPythonCode = 16
};

/// A text that begins calls.
struct CallMark {
  std::string_view text;
  uint8_t bodies;
  std::string_view end{};    // that may follow the calls
  std::string_view begun{};  // the end of the mark that belongs to the body
  bool begins_line = false;  // only at the beginning of a line or after calls, of known tools
};

/// The marks of a format.
[[nodiscard]] std::span<const CallMark> call_marks(ToolFormat format);

/// How the grammar writes calls: `begin`, then one call or a list of them with `separator`, then
/// `end`. Of objects each is {"name": "NAME", "ARGUMENTS": {...}}.
struct CallForm {
  std::string_view begin, end;
  CallBody body;
  bool is_list = false;             // one begin and end around all calls
  std::string_view separator = "";  // of lists between calls, else between end and begin
  std::string_view key = "arguments";
  std::string_view trigger = "";  // text that begins with it is held to the form; empty: `begin`
};

/// Of formats other than kNone.
[[nodiscard]] const CallForm& call_form(ToolFormat format);

}  // namespace heddle::answers

#include "chat_template/chat_template.h"

#include <optional>

#include "heddle/core/error.h"

#include "chat_template/interpreter/eval.h"
#include "chat_template/syntax/parser.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {

// Long enough for what raise_exception says; the text of a template can stand in a message, so it
// is cut and made one line.
constexpr size_t kLongestMessage = 800;

[[noreturn]] void fail(const Error& error, const std::string& place) {
  throw Error(error.code(), place + files::printable(error.what(), kLongestMessage));
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view source, std::string name) {
  try {
    const auto program = parse_template(source);
    program->name = std::move(name);
    ChatTemplate result;
    result.facts_ = facts_of(*program);
    result.program_ = program;
    result.source_ = std::make_shared<const std::string>(source);
    return result;
  } catch (const Error& error) {
    fail(error, name + ", ");
  }
}

std::string ChatTemplate::render(const files::Json& variables) const {
  std::optional<Interpreter> interpreter;
  try {
    interpreter.emplace(*program_, variables, clock_);
    return interpreter->run();
  } catch (const Error& error) {
    const std::string line = interpreter ? ", line " + std::to_string(interpreter->line()) : "";
    fail(error, program_->name + line + ": ");
  }
}

}  // namespace heddle::chat_template
